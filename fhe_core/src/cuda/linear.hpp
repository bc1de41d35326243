// Encrypted linear layers: weights and ciphertext words in signed byte slices, one int8 matrix product for all pairs of slices,
// exact recombination modulo Q. out[s][r] = sum over c of weights[r][c] * lwe[s][c].
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "cuda/int8_gemm.hpp"
#include "fhe_core/parameters.hpp"

namespace fhe_core::cuda {

// Signed byte slices of a matrix on the host: [slice][row][column], rows and columns padded with zeros.
struct SlicedWeights {
    std::vector<std::int8_t> slices;
    int slice_count, rows, columns, padded_rows, padded_columns;
};
// ParameterError when a row's absolute values sum to 2^35 or more, or a product sum could leave 31 bits.
SlicedWeights slice_weights(const std::int32_t* weights, std::size_t rows, std::size_t columns);

constexpr int word_slices(const ParameterSet& params) { return params.limb_count() == 1 ? 4 : 7; }

// One piece of the work: samples [0, samples) of `lwe` [samples][columns][kN + 1], words [first_word, first_word + words) of each.
struct LinearPiece {
    const std::int8_t* weights;  // device, as SlicedWeights
    int slice_count, rows, columns, padded_rows, padded_columns;
    const void* lwe;
    void* out;           // [samples][rows][kN + 1]
    std::int8_t* bytes;  // scratch [words padded][padded_columns] for one slice after the other
    std::int32_t* sums;  // scratch
    std::size_t samples;
};

// Scratch of one sample.
std::size_t linear_byte_words(const ParameterSet& params);  // rows of the byte matrix: slices * (kN + 1), padded
void launch_linear(const ParameterSet& params, const LinearPiece& piece, const Int8Gemm& gemm, cudaStream_t stream);

}  // namespace fhe_core::cuda
