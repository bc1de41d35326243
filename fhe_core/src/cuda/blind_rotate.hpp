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

// The ciphertexts of a view from number `first` on.
inline BlindRotateView rest_of(const Shape& shape, BlindRotateView view, int first) {
    const std::size_t words = std::size_t(shape.glwe_dimension) * shape.polynomial_size;
    const std::size_t out = view.coefficients == nullptr ? words + shape.polynomial_size : view.coefficient_count * (words + 1);
    view.switched += std::size_t(first) * (2 * view.steps + 1);
    if (view.table_index != nullptr) view.table_index += first;
    view.out = static_cast<char*>(view.out) + first * out * (shape.limb_count == 1 ? 4 : 8);
    view.batch -= first;
    return view;
}

inline constexpr int kLatencyCiphertexts = 1;  // of a multiprocessor, up to which the latency layout is faster

// Few ciphertexts, and few that whole waves of the throughput layout leave over, go to the latency layout. Both layouts read the
// same key and tables.
template <class Throughput, class Latency>
cudaError_t launch_by_batch(const Shape& shape, int ciphertexts_per_block, const BlindRotateView& view, int multiprocessors,
                            Throughput&& throughput, Latency&& latency) {
    const int few = kLatencyCiphertexts * multiprocessors, wave = ciphertexts_per_block * multiprocessors;
    if (view.batch <= few) return latency(view);
    const int left = view.batch > wave ? view.batch % wave : 0;
    if (left == 0 || left > few) return throughput(view);
    BlindRotateView waves = view;
    waves.batch -= left;
    const cudaError_t status = throughput(waves);
    return status == cudaSuccess ? latency(rest_of(shape, view, waves.batch)) : status;
}

// nullptr: this shape has none, use the plain kernel.
const ShapedKernel* find_shaped_kernel(const Shape& shape);

// --- The plain kernel: any N up to 4096, k, gadgets, one or two limbs, any cmux ---

struct PlainRotateView {
    BlindRotateView common;
    PlainTables tables[2];
    std::int32_t*
        scratch;  // nullptr, or plain_rotate_bytes for each of `blocks`, when a multiprocessor's shared memory is too small
};

std::size_t plain_rotate_bytes(const ParameterSet& params);
// Writes whole GLWE ciphertexts; common.coefficients is ignored.
void launch_plain_rotate(const ParameterSet& params, const PlainRotateView& view, int blocks, cudaStream_t stream);

}  // namespace fhe_core::cuda
