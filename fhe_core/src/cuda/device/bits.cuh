// Logarithms and bit reversal, for constants and at run time.
#pragma once

#include <cstdint>

#include "cuda/device/modulus.cuh"

namespace fhe_core::cuda {

constexpr int log2_floor(int n) { return n <= 1 ? 0 : 1 + log2_floor(n / 2); }
constexpr int log2_of(int power_of_two) { return log2_floor(power_of_two); }

constexpr int bit_reverse(int value, int bits) {
    int reversed = 0;
    for (int i = 0; i < bits; ++i) reversed |= (value >> i & 1) << (bits - 1 - i);
    return reversed;
}

FHE_HD std::uint32_t reverse_position(std::uint32_t position, int bits) {
#ifdef __CUDA_ARCH__
    return __brev(position) >> (32 - bits);
#else
    return static_cast<std::uint32_t>(bit_reverse(static_cast<int>(position), bits));
#endif
}

}  // namespace fhe_core::cuda
