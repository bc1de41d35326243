// Section 2, steps 1 to 3, of one word: rounding to 2^w and signed digits.
// Source: [Joy21] digits.
#pragma once

#include <cstdint>

#include "core/parameters.hpp"
#include "cuda/device/modulus.cuh"

namespace fhe_core::cuda {

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

struct KeyswitchCut {
    int w, base_log, level_count;

    // The digits of y modulo 2^w, the highest first.
    FHE_HD void operator()(std::uint32_t y, std::int8_t* out) const {
        const int kept = base_log * level_count, dropped = w - kept;
        std::uint32_t v = dropped == 0 ? y : (y + (1u << (dropped - 1))) >> dropped & ((1u << kept) - 1);
        const std::uint32_t base = 1u << base_log, half = base / 2, lowest = v & 1;
        for (int level = level_count - 1; level >= 0; --level) {  // step 3
            const std::uint32_t r = v & (base - 1);
            v >>= base_log;
            const std::uint32_t tie = level == 0 ? lowest : v >> (base_log - 1) & 1;
            const std::uint32_t carry = (r > half) | ((r == half) & tie);
            out[level] = static_cast<std::int8_t>(static_cast<std::int32_t>(r) - static_cast<std::int32_t>(carry << base_log));
            v += carry;
        }
    }
};

}  // namespace fhe_core::cuda
