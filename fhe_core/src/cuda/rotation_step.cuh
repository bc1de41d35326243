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

    // e_j is word j: the keys of a block-binary step.
    static constexpr bool has_unit_lines() {
        bool unit = kKeys == kKeyBits;
        for (int j = 0; j < kKeys; ++j)
            for (int i = 0; i < kKeyBits; ++i) unit = unit && rotation_of(kind).lines[j][i] == (i == j);
        return unit;
    }

#if defined(__CUDACC__) || defined(CLOAKWORK_EMULATE_WARPS)
    // Exponent e_j of step `step`, modulo 2^32, for a key that the thread chooses.
    __device__ __forceinline__ static std::uint32_t load_exponent(const std::uint32_t* switched, int step, int key) {
        if constexpr (has_unit_lines()) {
            return __ldg(switched + kKeyBits * step + key);
        } else {
            std::uint32_t exponents[kKeys], chosen = 0;
            load_exponents(switched, step, exponents);
#pragma unroll
            for (int j = 0; j < kKeys; ++j) chosen = key == j ? exponents[j] : chosen;
            return chosen;
        }
    }

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
