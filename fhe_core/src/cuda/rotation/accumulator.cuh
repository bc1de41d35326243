// The accumulator of a blind rotation: how its words begin, the form they are kept in, how they end, extraction. Kernels differ in
// which thread owns which coefficient; what a coefficient goes through is here (docs/reference/specification.md, sections 6 and 7).
//
// Offset form: x + (p-1)/2 in [0, p) for the centred residue x of a limb. Digits are cut from it with one addition (digits.cuh).
//
// Source: [CGGI20] blind rotation and sample extraction. Ours: the offset form; extraction within the kernel.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/device/modulus.cuh"
#include "cuda/rotation/blind_rotate.hpp"

namespace fhe_core::cuda {

// x in [0, p) -> offset form, and back.
template <class M>
FHE_HD std::uint32_t with_half(M, std::uint32_t x) {
    return x + M::half < M::p ? x + M::half : x + M::half - M::p;
}
template <class M>
FHE_HD std::uint32_t without_half(M, std::uint32_t y) {
    return y < M::half ? y + (M::p - M::half) : y - M::half;
}

// A word of the table in [0, Q), or its negative -> residue in [0, p). Coefficient i of X^-rotation * table is word j mod N of the
// table for j = i + rotation mod 2N, negative from N on.
template <class M, class Word>
FHE_HD std::uint32_t rotated_residue(M, Word word, bool negative) {
    auto residue = static_cast<std::uint32_t>(word);
    if constexpr (sizeof(Word) > sizeof(std::uint32_t)) residue = static_cast<std::uint32_t>(word % M::p);
    if (negative && residue != 0) residue = M::p - residue;
    return residue;
}

// Section 7: mask word j that one component of an accumulator gives for coefficient `coefficient`.
template <class Word>
FHE_HD Word extracted_word(const Word* polynomial, int polynomial_size, int coefficient, int j, Word modulus) {
    const Word word = polynomial[(coefficient - j) & (polynomial_size - 1)];
    return j <= coefficient || word == 0 ? word : modulus - word;
}

// The result of ciphertext `number` from its words [component][N] in [0, modulus), one mask polynomial after the other, by the
// thread `thread` of `threads`: the whole GLWE ciphertext, or the LWE ciphertexts of section 7.
template <int N, int components, class Word>
FHE_HD void store_result(const BlindRotateView& view, int number, const Word* words, Word modulus, int thread, int threads) {
    constexpr int kWords = (components - 1) * N;  // of the mask
    auto* const out = static_cast<Word*>(view.out);
    if (view.coefficients == nullptr) {
        for (int i = thread; i < components * N; i += threads) out[std::size_t(number) * components * N + i] = words[i];
        return;
    }
    for (int i = 0; i < view.coefficient_count; ++i) {
        const int coefficient = view.coefficients[i];
        Word* lwe = out + (std::size_t(number) * view.coefficient_count + i) * (kWords + 1);
        for (int j = thread; j < kWords; j += threads) {
            const int at = j & (N - 1);
            lwe[j] = extracted_word(words + (j - at), N, coefficient, at, modulus);
        }
        if (thread == 0) lwe[kWords] = words[kWords + coefficient];
    }
}

// The table of ciphertext `number`.
template <class Word>
FHE_HD const Word* table_of(const BlindRotateView& view, int number, std::size_t polynomial_size) {
    return static_cast<const Word*>(view.tables) + std::size_t(view.table_index ? view.table_index[number] : 0) * polynomial_size;
}

// The switched ciphertext `number`: mask words of every step, and for each lane a body, by which its table is rotated.
template <class Step, int lanes = 1>
FHE_HD const std::uint32_t* switched_of(const BlindRotateView& view, int number) {
    return view.switched + std::size_t(number) * (Step::mask_words(view.steps) + lanes);
}
template <class Step, int lanes = 1>
FHE_HD std::uint32_t rotation_of_table(const BlindRotateView& view, int number, int lane = 0) {
    return switched_of<Step, lanes>(view, number)[Step::mask_words(view.steps) + lane];
}

#if defined(__CUDACC__) || defined(CLOAKWORK_EMULATE_WARPS)

// --- One component, one limb, owned by a warp: lane l holds the coefficients l + 32*r ---

// X^-rotation * table for a body, zero for a mask.
template <class Config>
__device__ __forceinline__ void load_accumulator(const BlindRotateView& view, int number, int component, int lane,
                                                 std::uint32_t (&accumulator)[Config::P]) {
    using M = typename Config::M;
    constexpr int N = Config::N;
    const bool is_body = component >= Config::k;
    const std::uint32_t rotation =
        rotation_of_table<typename Config::Step, Config::kLanes>(view, number, is_body ? component - Config::k : 0);
    const std::uint32_t* table = table_of<std::uint32_t>(view, number, N);
#pragma unroll
    for (int r = 0; r < Config::P; ++r) {
        std::uint32_t word = 0;
        if (is_body) {
            const std::uint32_t index = (lane + 32 * r + rotation) & (2 * N - 1);
            word = rotated_residue(M{}, table[index & (N - 1)], index >= N);
        }
        accumulator[r] = with_half(M{}, word);
    }
}

// Its part of the result: the whole component, or (through the warp's tile of N words) its part of the extracted LWE ciphertexts.
template <class Config>
__device__ __forceinline__ void store_accumulator(const BlindRotateView& view, int number, int component, int lane,
                                                  std::uint32_t (&accumulator)[Config::P], std::uint32_t* tile) {
    using M = typename Config::M;
    constexpr int N = Config::N, k = Config::k, kWords = k * N + Config::kLanes;  // of an LWE ciphertext
    auto* const out = static_cast<std::uint32_t*>(view.out);
#pragma unroll
    for (int r = 0; r < Config::P; ++r) accumulator[r] = without_half(M{}, accumulator[r]);
    if (view.coefficients == nullptr) {
        std::uint32_t* polynomial = out + (std::size_t(number) * Config::kComponents + component) * N;
#pragma unroll
        for (int r = 0; r < Config::P; ++r) polynomial[lane + 32 * r] = accumulator[r];
        return;
    }
#pragma unroll
    for (int r = 0; r < Config::P; ++r) tile[lane + 32 * r] = accumulator[r];
    __syncwarp();
    for (int i = 0; i < view.coefficient_count; ++i) {
        const int coefficient = view.coefficients[i];
        std::uint32_t* lwe = out + (std::size_t(number) * view.coefficient_count + i) * kWords;
        if (component >= k) {
            if (lane == 0) lwe[k * N + component - k] = tile[coefficient];
        } else {
            for (int j = lane; j < N; j += 32) lwe[component * N + j] = extracted_word(tile, N, coefficient, j, M::p);
        }
    }
    __syncwarp();
}

#endif

// --- Raised sets ---

// y in [0, p0) and an update (x0, x1) of both limbs, |x0| <= 15 p0, |x1| <= 15 * 2^27: y + round(x / P) mod p0.
FHE_HD std::uint32_t accumulate_raised(std::uint32_t y, std::int32_t x0, std::int32_t x1) {
    using M0 = Modulus<0>;
    using M2 = Modulus<2>;
    constexpr Twiddle inverse = M0::twiddle(inverse_mod(M2::p, M0::p));
    const auto least = [](std::uint32_t a, std::uint32_t b) { return a < b ? a : b; };
    const std::uint32_t quotient = static_cast<std::uint32_t>(wrap_add(x1, 1 << (M2::kBits - 1)) >> M2::kBits);
    std::uint32_t lifted = static_cast<std::uint32_t>(x1) - quotient * M2::p + M2::half;  // [-0.04P, 1.04P)
    lifted = least(lifted, lifted + M2::p);
    lifted = least(lifted, lifted - M2::p);  // centred residue + half
    const std::int32_t difference = wrap(static_cast<std::uint32_t>(x0) + M2::half - lifted);
    std::uint32_t sum = static_cast<std::uint32_t>(multiply_add(M0{}, wrap(y), difference, inverse));  // [-p0/4, 9p0/4)
    sum = least(sum, sum + M0::p);
    sum = least(sum, sum - M0::p);
    return least(sum, sum - M0::p);
}

}  // namespace fhe_core::cuda
