// One step of a rotation inside a kernel: its line of fhe_core/rotations.def as constants.
#pragma once

#include <cstdint>

#include "cuda/unrolled.cuh"
#include "fhe_core/rotation.hpp"

namespace fhe_core::cuda {

template <CmuxKind kind>
struct RotationStep {
    static constexpr int kKeyBits = rotation_of(kind).key_bits, kKeys = rotation_of(kind).keys;
    static constexpr bool kFactorsOnProducts = rotation_of(kind).factors_on_products();

    template <int key, int bit>
    static constexpr int kLine = rotation_of(kind).lines[key][bit];

#if defined(__CUDACC__) || defined(CLOAKWORK_EMULATE_WARPS)
    // The exponents e_j of step `step`, modulo 2^32.
    __device__ __forceinline__ static void load_exponents(const std::uint32_t* switched, int step,
                                                          std::uint32_t (&exponents)[kKeys]) {
        std::uint32_t words[kKeyBits];
#pragma unroll
        for (int i = 0; i < kKeyBits; ++i) words[i] = __ldg(switched + kKeyBits * step + i);
        static_for<0, kKeys>([&](auto key) {
            constexpr int j = decltype(key)::value;
            exponents[j] = 0;
            static_for<0, kKeyBits>([&](auto bit) {
                constexpr int i = decltype(bit)::value;
                exponents[j] += words[i] * static_cast<std::uint32_t>(kLine<j, i>);
            });
        });
    }
#endif
};

}  // namespace fhe_core::cuda
