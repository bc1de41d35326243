// One step of a rotation inside a kernel: its line of core/rotations.def as constants.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/rotation.hpp"
#include "cuda/device/modulus.cuh"
#include "cuda/device/unrolled.cuh"

namespace fhe_core::cuda {

template <CmuxKind kind>
struct RotationStep {
    // kKeys: that a ciphertext multiplies with, of kSlices times as many; 1 where its digit selects one.
    static constexpr int kKeyBits = rotation_of(kind).key_bits, kKeys = rotation_of(kind).products();
    static constexpr int kSlices = rotation_of(kind).keys / kKeys;
    static constexpr bool kSelectsKey = rotation_of(kind).selects_key();
    static constexpr int kDigits = rotation_of(kind).digits, kDigitBits = rotation_of(kind).digit_bits;
    static constexpr bool kFactorsOnProducts = rotation_of(kind).factors_on_products();

    // Words of the switched mask that so many steps read.
    FHE_HD static constexpr int mask_words(int steps) { return steps / kDigits * kKeyBits; }

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
    // The digit of step `step`, which selects key digit - 1, or none.
    __device__ __forceinline__ static std::uint32_t load_digit(const std::uint32_t* switched, int step) {
        const std::uint32_t word = __ldg(switched + step / kDigits * kKeyBits);
        return word >> (kDigitBits * (step % kDigits)) & ((1u << kDigitBits) - 1);
    }

    // The first step from `step` on that is taken, `steps` if none is: whose digit is not 0 where it selects a key.
    __device__ __forceinline__ static int next_taken(const std::uint32_t* switched, int step, int steps) {
        if constexpr (kSelectsKey) {
            while (step < steps && load_digit(switched, step) == 0) ++step;
        }
        return step;
    }
    // Where its keys lie, in slices of those that a ciphertext multiplies with.
    __device__ __forceinline__ static std::size_t slice_of(const std::uint32_t* switched, int step) {
        if constexpr (kSelectsKey) return std::size_t(step) * kSlices + load_digit(switched, step) - 1;
        return step;
    }

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
