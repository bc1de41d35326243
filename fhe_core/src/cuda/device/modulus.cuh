// Arithmetic modulo a limb prime p < 2^27 on signed 32-bit words. Transforms compute modulo q, which is p or (for P, a prime of 25
// bits) its multiple of 27 bits; ranges are in units of q. Every function says the range of its result; the sums of a whole forward
// transform fit 32 bits without a reduction (limit 16 q < 2^31).
// Source: [Har14] products by constants; [Sei18] algorithm 3, Montgomery with signs. Ours: Montgomery on sums of a whole row.
//
// Host and device: tests/fhe_core/cuda/emulate_blind_rotate.cpp runs the same functions on the CPU.
#pragma once

#include <cstdint>

#include "core/modular.hpp"

#if defined(CLOAKWORK_EMULATE_CUDA)
#include "cuda/emulation/threads.hpp"  // says CLOAKWORK_EMULATE_WARPS, which headers below this one ask for
#endif

#ifdef __CUDACC__
#define FHE_HD __host__ __device__ __forceinline__
#else
#define FHE_HD inline
#endif

namespace fhe_core::cuda {

// w in [-(p-1)/2, (p-1)/2] and round(w * 2^32 / q), for products by w without a division (Shoup).
struct Twiddle {
    std::int32_t value;
    std::int32_t companion;
};

constexpr std::uint32_t inverse_mod_word(std::uint32_t p) {  // p odd -> p^-1 mod 2^32
    std::uint32_t inverse = p;                               // right to 3 bits, doubled each time
    for (int i = 0; i < 5; ++i) inverse *= 2 - p * inverse;
    return inverse;
}

// A 2N-th root of unity for each limb: the first power of 3, 5, 7, .. of full order 8192, brought down to order 2N, such that
// root^(N/2) is the small square root of -1 of modular.hpp.
constexpr std::uint32_t root_of_unity(std::uint32_t p, std::uint32_t order, std::uint32_t sqrt_minus_one) {
    for (std::uint64_t base = 3;; base += 2) {
        const std::uint64_t root = pow_mod(base, (p - 1) / order, p);
        if (pow_mod(root, order / 4, p) == sqrt_minus_one) return static_cast<std::uint32_t>(root);
    }
}

// A limb prime known to the compiler. Operations below take it, or a LimbModulus, as their first argument.
template <int limb, std::uint32_t transform = transform_modulus(limb)>
struct Modulus {
    static constexpr int kBits = limb == 2 ? kRaisingBits : kLimbBits;
    static constexpr std::uint32_t p = kLimbPrimes[limb], q = transform;
    static constexpr std::uint32_t q_negated = 0u - q;
    static constexpr std::uint32_t p_inverse = inverse_mod_word(p);
    static constexpr std::int32_t half = static_cast<std::int32_t>((p - 1) / 2);
    static constexpr std::int32_t sqrt_minus_one = static_cast<std::int32_t>(kLimbSqrtMinusOne[limb]);

    static constexpr std::int32_t centre(std::uint64_t value) { return static_cast<std::int32_t>(centred(value % p, p)); }
    static constexpr Twiddle twiddle(std::uint64_t value) {
        const std::int64_t w = centre(value);
        const std::int64_t half_q = (q - 1) / 2, scaled = w * (std::int64_t{1} << 32) + (w < 0 ? -half_q : half_q);
        return {static_cast<std::int32_t>(w), static_cast<std::int32_t>(scaled / static_cast<std::int64_t>(q))};
    }
};

// One that a thread chooses when it runs: one code path for both limbs, the second prime number `second` of kLimbPrimes.
struct LimbModulus {
    std::uint32_t p, q_negated, p_inverse;

    template <int second = 1>
    FHE_HD static LimbModulus of(int limb) {
        using M0 = Modulus<0>;
        using M1 = Modulus<second>;
        return {limb == 0 ? M0::p : M1::p, limb == 0 ? M0::q_negated : M1::q_negated, limb == 0 ? M0::p_inverse : M1::p_inverse};
    }
};

// Signed 32-bit arithmetic modulo 2^32, without undefined overflow.
FHE_HD std::int32_t wrap(std::uint32_t x) { return static_cast<std::int32_t>(x); }
FHE_HD std::int32_t wrap_add(std::int32_t a, std::int32_t b) {
    return wrap(static_cast<std::uint32_t>(a) + static_cast<std::uint32_t>(b));
}
FHE_HD std::int32_t wrap_sub(std::int32_t a, std::int32_t b) {
    return wrap(static_cast<std::uint32_t>(a) - static_cast<std::uint32_t>(b));
}

FHE_HD std::int32_t multiply_high(std::int32_t a, std::int32_t b) {
#ifdef __CUDA_ARCH__
    return __mulhi(a, b);
#else
    return static_cast<std::int32_t>((std::int64_t{a} * b) >> 32);
#endif
}

FHE_HD std::int64_t multiply_wide(std::int32_t a, std::int32_t b) { return std::int64_t{a} * b; }

// a + x*w modulo q; x*w contributes a value in [-q/4, 5q/4).
template <class M>
FHE_HD std::int32_t multiply_add(M m, std::int32_t a, std::int32_t x, Twiddle w) {
    const std::uint32_t quotient = static_cast<std::uint32_t>(multiply_high(x, w.companion));
    const std::uint32_t sum = static_cast<std::uint32_t>(a) + static_cast<std::uint32_t>(x) * static_cast<std::uint32_t>(w.value);
    return wrap(sum + quotient * m.q_negated);
}

// Cooley-Tukey: (a, b) -> (a + b*w, a - b*w); both grow by at most 5q/4.
template <class M>
FHE_HD void forward_butterfly(M m, std::int32_t& a, std::int32_t& b, Twiddle w) {
    const std::int32_t sum = multiply_add(m, a, b, w);
    b = wrap_sub(wrap_add(a, a), sum);
    a = sum;
}

// Gentleman-Sande with the inverse of w_mirror's mirror root, which is -w_mirror: (a, b) -> (a + b, (b - a)*w_mirror).
// |a| + |b| < 2^31; the second result is in [-q/4, 5q/4).
template <class M>
FHE_HD void inverse_butterfly(M m, std::int32_t& a, std::int32_t& b, Twiddle w_mirror) {
    const std::int32_t difference = wrap_sub(b, a);
    a = wrap_add(a, b);
    b = multiply_add(m, 0, difference, w_mirror);
}

// |x| <= 15q -> |x| < 0.69q
template <class M>
FHE_HD std::int32_t reduce(M m, std::int32_t x) {
    const std::uint32_t quotient = static_cast<std::uint32_t>(wrap_add(x, 1 << 26) >> 27);
    return wrap(static_cast<std::uint32_t>(x) + quotient * m.q_negated);
}

// |x| <= 15q -> the centred residue of x modulo p.
template <class M>
FHE_HD std::int32_t centre(M, std::int32_t x) {
    const std::uint32_t quotient = static_cast<std::uint32_t>(wrap_add(x, 1 << (M::kBits - 1)) >> M::kBits);
    std::int32_t centred = wrap(static_cast<std::uint32_t>(x) - quotient * M::p);  // |.| < 0.69p
    if (centred > M::half) centred -= static_cast<std::int32_t>(M::p);
    return centred < -M::half ? centred + static_cast<std::int32_t>(M::p) : centred;
}

// |sum| < 2^62 -> sum * 2^-32 modulo p, at most |sum| / 2^32 + p/2 in size.
template <class M>
FHE_HD std::int32_t montgomery(M m, std::int64_t sum) {
    const std::uint32_t quotient = static_cast<std::uint32_t>(sum) * m.p_inverse;
    return wrap_sub(static_cast<std::int32_t>(sum >> 32), multiply_high(wrap(quotient), static_cast<std::int32_t>(m.p)));
}

// y in [0, p) and delta in [-15p, 15p] -> (y + delta) mod p in [0, p); a limb of ciphertexts, q = p.
template <class M>
FHE_HD std::uint32_t accumulate_exact(M m, std::uint32_t y, std::int32_t delta) {
    if constexpr (requires { M::q; }) static_assert(M::q == M::p);  // known to the compiler; a LimbModulus: of limbs 0 and 1
    const std::uint32_t lifted = y + static_cast<std::uint32_t>(delta) + 15 * m.p;  // [0, 31p) < 2^32
    const std::uint32_t reduced = lifted + (lifted >> 27) * m.q_negated;            // [0, 1.37p)
    const std::uint32_t less = reduced - m.p;
    return reduced < less ? reduced : less;
}

}  // namespace fhe_core::cuda
