// Keyswitch: docs/specification.md, section 2. Digits, an int8 matrix product with the key's byte slices (int8_gemm.cpp), sums
// modulo 2^w; one item per thread. CPU counterpart: cpu/keyswitch.cpp.
// Source: [CGGI20] keyswitch; [Joy21] digits.
#include "cuda/stages.hpp"

#include "cuda/block.cuh"
#include "cuda/words.cuh"

namespace fhe_core::cuda {
namespace {

FHE_HD std::uint64_t multiply_high_unsigned(std::uint64_t a, std::uint64_t b) {
#ifdef __CUDA_ARCH__
    return __umul64hi(a, b);
#else
    return static_cast<std::uint64_t>(static_cast<uint128>(a) * b >> 64);
#endif
}

// floor((x * 2^w + floor(Q/2)) / Q) mod 2^w by a reciprocal and corrections; w <= 26.
struct ModulusRounding {
    std::uint64_t modulus, reciprocal;
    int w;

    static ModulusRounding make(const ParameterSet& params) {
        const int w = params.keyswitch_modulus_log2;
        return {params.modulus(), static_cast<std::uint64_t>((static_cast<uint128>(1) << (64 + w)) / params.modulus()), w};
    }
    FHE_HD std::uint32_t operator()(std::uint64_t x) const {
        std::uint64_t quotient = multiply_high_unsigned(x, reciprocal);
        std::uint64_t remainder = (x << w) + modulus / 2 - quotient * modulus;  // exact modulo 2^64, in [0, 3Q)
        while (remainder >= modulus) {
            remainder -= modulus;
            ++quotient;
        }
        return static_cast<std::uint32_t>(quotient) & ((1u << w) - 1);
    }
};

template <class Word>
struct KeyswitchDigits {
    static constexpr int kThreads = 256;
    const Word* lwe;
    std::int8_t* digits;
    std::uint32_t* bodies;
    ModulusRounding round;
    std::size_t batch;
    int dimension, base_log, level_count;

    template <class Block>
    FHE_HD void operator()(const Block& block, unsigned char*) const {
        block.each_of_grid(batch * (dimension + 1), [&](std::size_t item) {
            const std::size_t number = item / (dimension + 1);
            const int j = static_cast<int>(item % (dimension + 1));
            const std::uint32_t y = round(lwe[item]);
            if (j == dimension) {
                bodies[number] = y;
                return;
            }
            const int kept = base_log * level_count, dropped = round.w - kept;
            std::uint32_t v = dropped == 0 ? y : (y + (1u << (dropped - 1))) >> dropped & ((1u << kept) - 1);
            const std::uint32_t base = 1u << base_log, half = base / 2, lowest = v & 1;
            std::int8_t* out = digits + (number * dimension + j) * level_count;
            for (int level = level_count - 1; level >= 0; --level) {  // step 3
                const std::uint32_t r = v & (base - 1);
                v >>= base_log;
                const std::uint32_t tie = level == 0 ? lowest : v >> (base_log - 1) & 1;
                const std::uint32_t carry = (r > half) | ((r == half) & tie);
                out[level] = static_cast<std::int8_t>(static_cast<std::int32_t>(r) - static_cast<std::int32_t>(carry << base_log));
                v += carry;
            }
        });
    }
};

struct KeyswitchSums {
    static constexpr int kThreads = 256;
    const std::int32_t* sums;
    const std::uint32_t* bodies;
    std::uint32_t* small_lwe;
    std::size_t batch;
    int slices, columns, n, w;

    template <class Block>
    FHE_HD void operator()(const Block& block, unsigned char*) const {
        block.each_of_grid(batch * (n + 1), [&](std::size_t item) {
            const std::size_t number = item / (n + 1);
            const int j = static_cast<int>(item % (n + 1));
            std::uint32_t word = j == n ? bodies[number] : 0;
            for (int s = 0; s < slices; ++s)
                word -= static_cast<std::uint32_t>(sums[(number * slices + s) * columns + j]) << (8 * s);
            small_lwe[item] = word & (0xFFFFFFFFu >> (32 - w));
        });
    }
};

}  // namespace

void launch_keyswitch_digits(const ParameterSet& params, const void* lwe, std::size_t batch, std::int8_t* digits,
                             std::uint32_t* bodies, cudaStream_t stream) {
    with_words(params, [&]<class Word>(Word) {
        const KeyswitchDigits<Word> body{static_cast<const Word*>(lwe),
                                         digits,
                                         bodies,
                                         ModulusRounding::make(params),
                                         batch,
                                         params.large_dimension(),
                                         params.keyswitch_gadget.base_log,
                                         params.keyswitch_gadget.level_count};
        launch_over(body, batch * (params.large_dimension() + 1), stream);
    });
}

void launch_keyswitch_sums(const ParameterSet& params, const std::int32_t* sums, int slices, int columns,
                           const std::uint32_t* bodies, std::size_t batch, std::uint32_t* small_lwe, cudaStream_t stream) {
    const KeyswitchSums body{sums, bodies, small_lwe, batch, slices, columns, params.lwe_dimension, params.keyswitch_modulus_log2};
    launch_over(body, batch * (params.lwe_dimension + 1), stream);
}

}  // namespace fhe_core::cuda
