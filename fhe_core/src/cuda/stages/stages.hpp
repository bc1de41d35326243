// The stages around the blind rotation, on words in device memory. Each launch enqueues; none allocates or waits.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/parameters.hpp"
#include "cuda/device/runtime.hpp"

namespace fhe_core::cuda {

// DeviceError when the current device cannot run this build's kernels.
void launch_probe();

// Section 2, steps 1 to 3: lwe [batch][kN + r] words -> digits [batch][kN * level_count] and bodies [batch][r] modulo 2^w.
void launch_keyswitch_digits(const ParameterSet& params, const void* lwe, std::size_t batch, std::int8_t* digits,
                             std::uint32_t* bodies, cudaStream_t stream);

// Step 4: sums [batch][slices][columns] of the matrix product -> small [batch][n + r] modulo 2^w.
void launch_keyswitch_sums(const ParameterSet& params, const std::int32_t* sums, int slices, int columns,
                           const std::uint32_t* bodies, std::size_t batch, std::uint32_t* small_lwe, cudaStream_t stream);

// Section 3, may be in place.
void launch_modulus_switch(const ParameterSet& params, const std::uint32_t* small_lwe, std::size_t batch, std::uint32_t* switched,
                           cudaStream_t stream);

// Sections 2 and 3 of few ciphertexts in one launch.
struct KeyswitchFewView {
    const void* lwe;            // [batch][kN + r]
    const std::int8_t* planes;  // the key: [slices][columns][kN * level_count]
    int slices, columns;
    // Of few_keyswitch_counters(params) words, zero before the first launch; each launch leaves zeros.
    unsigned long long* counters;
    std::uint32_t* switched;  // [batch][n + r]
    std::size_t batch;        // <= most_of_few_keyswitch(params)
};
std::size_t most_of_few_keyswitch(const ParameterSet& params);
std::size_t few_keyswitch_counters(const ParameterSet& params);
void launch_keyswitch_few(const ParameterSet& params, const KeyswitchFewView& view, cudaStream_t stream);

// Section 7: glwe [batch][parts][k + r][N] -> lwe [batch][count][kN + r], parts 1 or, of a blind rotation's table, nu.
void launch_sample_extract(const ParameterSet& params, const void* glwe, int parts, std::size_t batch,
                           const std::uint32_t* coefficients, std::size_t count, void* lwe, cudaStream_t stream);

// out = scale_x * x + scale_y * y + (0, .., 0, constant, .., constant), the constant on all bodies; y may be null.
struct CombineView {
    const void* x;
    std::int64_t scale_x;
    const void* y;
    std::int64_t scale_y;
    std::uint64_t constant;
    void* out;
};
void launch_combine(const ParameterSet& params, const CombineView& view, std::size_t batch, cudaStream_t stream);

}  // namespace fhe_core::cuda
