// Seeded evaluation keys to the device's form, on the device: masks from the seed, transforms, byte slices.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/parameters.hpp"
#include "cuda/rotation/key_layout.cuh"
#include "cuda/stages/chacha20.cuh"
#include "cuda/transform/plain_ntt.cuh"

namespace fhe_core::cuda {

// Steps [first_step, first_step + steps). bodies: of these steps, [step][key][row][lane][N] words; key: of the whole key, int32.
struct BootstrapKeyPart {
    KeyLayout layout;
    SeedWords seed;
    PlainTables tables[2];
    const void* bodies;
    std::int32_t* key;
    int first_step, steps;
    const void* lane_roots;  // of rounded products (complex_fft.cuh)
};
void launch_expand_bootstrap_key(const ParameterSet& params, const BootstrapKeyPart& part, cudaStream_t stream);

// Signed byte slices of the keyswitch key for the matrix product: planes[slice][column][row], column j < n + r, slices of value
// sum_s 256^s * byte modulo 2^w. Columns beyond n + r are zero.
struct KeyswitchKeyView {
    SeedWords seed;
    const std::uint32_t* bodies;  // [large_dimension * level_count][lane]
    std::int8_t* planes;
    std::size_t rows;  // large_dimension * level_count
    int columns;       // padded
    int slices;
};
void launch_expand_keyswitch_key(const ParameterSet& params, const KeyswitchKeyView& view, cudaStream_t stream);

// Masks of seeded ciphertexts `first` .. first + batch - 1: index number * streams + i has stream i < streams of `count`
// coefficients, written with the bodies behind them: LWE streams 1, GLWE streams k.
struct ExpandCiphertextsView {
    SeedWords seed;
    std::uint32_t domain;
    const void* bodies;  // [batch][body_words]
    void* out;           // [batch][streams * count + body_words]
    std::size_t first, batch;
    int streams, count, body_words;
};
void launch_expand_ciphertexts(const ParameterSet& params, const ExpandCiphertextsView& view, cudaStream_t stream);

}  // namespace fhe_core::cuda
