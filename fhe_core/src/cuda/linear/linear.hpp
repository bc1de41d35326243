// Encrypted linear layers: weights and ciphertext words in signed byte slices, int8 matrix products of all pairs of slices, exact
// recombination modulo Q. out[s][p][r] = bias[r] + sum over c of weights[r][c] * lwe[s][gather[p][c]].
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/parameters.hpp"
#include "cuda/device/runtime.hpp"

namespace fhe_core::cuda {

// Signed byte slices of a matrix on the host: [slice][row][column], rows and columns padded with zeros.
struct SlicedWeights {
    std::vector<std::int8_t> slices;
    int slice_count, rows, columns, padded_rows, padded_columns;
};
// ParameterError when a row's absolute values sum to 2^35 or more, or a product sum could leave 31 bits.
SlicedWeights slice_weights(const std::int32_t* weights, std::size_t rows, std::size_t columns);

// The same slices in tiles of 64 rows and columns, [slice][64 rows][64 columns], as the products of hopper.cuh read them; none
// where a layer has more columns than their sums.
std::vector<std::int8_t> tile_weights(const SlicedWeights& sliced);

// CLOAKWORK_LINEAR: auto (or unset), mma, wgmma. ParameterError for another value, DeviceError for wgmma on a device that has none.
enum class LinearKernel : std::uint8_t { automatic, mma, wgmma };
LinearKernel chosen_linear_kernel(int device);
bool has_wgmma(int device);  // compute capability 9.0

constexpr int word_slices(const ParameterSet& params) { return params.limb_count() == 1 ? 4 : 7; }

// All pointers are of the device. A position of a sample is one gathered vector of ciphertexts.
struct LinearPiece {
    const std::int8_t* weights;  // as SlicedWeights
    const std::int8_t* tiles;    // the same as tile_weights; nullptr: not on this device
    LinearKernel kernel;
    int slice_count, rows, columns, padded_rows, padded_columns;
    const void* lwe;             // [samples][sample_rows][kN + r]
    std::size_t sample_rows;     // without a gather at least `columns`
    const std::int32_t* gather;  // [positions][columns] rows of a sample, -1 for a zero; nullptr: the first `columns` rows
    int positions;               // 1 without a gather
    const void* bias;            // [rows] words added to the bodies, or nullptr
    void* out;                   // row r of position p of sample s is out[s*out_sample_rows + out_rows[p] + r]
    std::size_t out_sample_rows;
    const std::int32_t* out_rows;  // [positions], or nullptr: p * rows
    std::size_t samples;
    std::int8_t* bytes;       // scratch
    std::size_t bytes_space;  // of it, at least linear_scratch_bytes of one item
    int multiprocessors;
};

// Scratch that is enough for `items` (positions of samples) to run at full speed, and how many fit into scratch.
std::size_t linear_scratch_bytes(const ParameterSet& params, std::size_t padded_columns, std::size_t items);
std::size_t linear_items_at_once(const ParameterSet& params, std::size_t padded_columns, std::size_t bytes_space);
void launch_linear(const ParameterSet& params, const LinearPiece& piece, cudaStream_t stream);

}  // namespace fhe_core::cuda
