// Blind rotation on the device: the arguments every kernel takes, the kernels made for a shape, and the one for any shape.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "cuda/key_layout.cuh"
#include "cuda/plain_ntt.cuh"
#include "cuda/runtime.hpp"
#include "fhe_core/parameters.hpp"

namespace fhe_core::cuda {

struct BlindRotateView {
    const std::uint32_t* switched;      // [batch][n + 1] in [0, 2N)
    const void* key;                    // transform domain, layout of the kernel
    const void* twiddles;               // in the kernel's order
    const std::int32_t* powers;         // root^x, centred, x in [0, 2N)
    const void* tables;                 // [table][N] words in [0, Q)
    const std::uint32_t* table_index;   // [batch] or nullptr
    const std::uint32_t* coefficients;  // [coefficient_count] or nullptr: whole GLWE ciphertexts
    void* out;                          // [batch][k + 1][N], or LWE [batch][coefficient_count][k*N + 1]
    int batch;
    int steps;
    int coefficient_count;
};

// --- Kernels made for a shape: fused with sample extraction, chosen at compile time from the shipped parameter sets ---

struct ShapedKernel {
    Shape shape;
    KeyOrder key_order;
    int lanes;                  // of the key layout
    int ciphertexts_per_block;  // in flight on one multiprocessor
    std::size_t shared_bytes;   // of a block
    std::vector<std::uint8_t> (*twiddles)();
    std::vector<std::int32_t> (*powers)();
    cudaError_t (*launch)(const BlindRotateView& view, int multiprocessors, cudaStream_t stream);
};

// nullptr: this shape has none, use the plain kernel.
const ShapedKernel* find_shaped_kernel(const Shape& shape);

// --- The plain kernel: any N up to 4096, k, gadgets, one or two limbs, any cmux ---

struct PlainRotateView {
    BlindRotateView common;
    PlainTables tables[2];
    // nullptr, or plain_rotate_bytes for each of `blocks`, when a multiprocessor's shared memory is too small.
    std::int32_t* scratch;
};

std::size_t plain_rotate_bytes(const ParameterSet& params);
// Writes whole GLWE ciphertexts; common.coefficients is ignored.
void launch_plain_rotate(const ParameterSet& params, const PlainRotateView& view, int blocks, cudaStream_t stream);

}  // namespace fhe_core::cuda
