// Blind rotation on the device: the arguments every kernel takes, the kernels made for a shape, and the one for any shape.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/parameters.hpp"
#include "cuda/device/runtime.hpp"
#include "cuda/rotation/key_layout.cuh"
#include "cuda/transform/plain_ntt.cuh"

namespace fhe_core::cuda {

struct BlindRotateView {
    const std::uint32_t* switched;      // [batch][n + r] in [0, 2 nu N)
    const void* key;                    // transform domain, layout of the kernel
    const void* twiddles;               // in the kernel's order
    const std::int32_t* powers;         // root^x, centred, x in [0, 2N)
    const void* tables;                 // [table][nu N] words in [0, Q)
    const std::uint32_t* table_index;   // [batch] or nullptr
    const std::uint32_t* coefficients;  // [coefficient_count] or nullptr: whole GLWE ciphertexts
    void* scratch;                      // of kernels that ask for it (ShapedKernel::scratch_bytes)
    void* out;                          // [batch][nu][k + r][N], or LWE [batch][coefficient_count][k*N + r]
    int batch;
    int steps;
    int coefficient_count;
    const void* plain_twiddles[2];  // of each limb: root^brv(i), i < N, as Twiddles; for clusters
};

// The ciphertexts of a view from number `first` on.
inline BlindRotateView rest_of(const Shape& shape, BlindRotateView view, int first) {
    const std::size_t size = shape.polynomial_size, lwe_words = shape.glwe_dimension * size + shape.lane_count;
    const std::size_t out = view.coefficients == nullptr ? shape.component_count() * size : view.coefficient_count * lwe_words;
    view.switched += std::size_t(first) * (rotation_of(shape.cmux).lwe_dimension_of(view.steps) + shape.lane_count);
    if (view.table_index != nullptr) view.table_index += first;
    view.out = static_cast<char*>(view.out) + first * out * (shape.limb_count == 1 ? 4 : 8);
    view.batch -= first;
    return view;
}

// --- Kernels made for a shape: fused with sample extraction, chosen at compile time from the shipped parameter sets ---

struct ShapedKernel {
    Shape shape;
    KeyOrder key_order;
    int lanes;                  // of the key layout
    int ciphertexts_per_block;  // in flight on one multiprocessor, or on a cluster of them
    std::size_t shared_bytes;   // of a block
    std::vector<std::uint8_t> (*twiddles)();
    std::vector<std::int32_t> (*powers)();  // nullptr: in the twiddles
    cudaError_t (*launch)(const BlindRotateView& view, int at_once, cudaStream_t stream);
    std::size_t scratch_bytes = 0;  // of a block or cluster
    cudaError_t (*at_once)(int* clusters) =
        nullptr;  // that the current device holds, 0: none; nullptr: a block for a multiprocessor
};

// nullptr: this shape has none, use the plain kernel.
const ShapedKernel* find_shaped_kernel(const Shape& shape);

// --- Clusters of blocks: few ciphertexts, each over several multiprocessors, sm_90 and later ---

struct ClusterKernel {
    cudaError_t (*clusters_at_once)(int* clusters);  // that the current device holds; 0: it has no clusters
    int waves;                                       // so many are still faster than the next kernel
    cudaError_t (*launch)(const BlindRotateView& view, int clusters, cudaStream_t stream);
};

// The fastest for the fewest ciphertexts first; empty where none is faster than the shaped kernel. They read its key and tables.
std::vector<ClusterKernel> find_cluster_kernels(const Shape& shape);

// What the current device does with few ciphertexts.
struct ClusterChoice {
    ClusterKernel kernel;
    int clusters, ciphertexts;  // at once; up to which it is chosen
};
cudaError_t choose_cluster_kernels(const Shape& shape, std::vector<ClusterChoice>& choices);

// Enqueues the rotation, and that of the ciphertexts which whole waves of the shaped kernel leave over, where it is fastest.
cudaError_t launch_rotation(const ShapedKernel& shaped, std::span<const ClusterChoice> clusters, const BlindRotateView& view,
                            int at_once, cudaStream_t stream);

// --- The plain kernel: any N up to 4096, k, gadgets, one or two limbs, raised or not, any cmux; not rounded products ---

struct PlainRotateView {
    BlindRotateView common;
    PlainTables tables[2];  // of the key's limbs
    // nullptr, or plain_rotate_bytes for each of `blocks`, when a multiprocessor's shared memory is too small.
    std::int32_t* scratch;
};

std::size_t plain_rotate_bytes(const ParameterSet& params);
// Writes whole GLWE ciphertexts; common.coefficients is ignored.
void launch_plain_rotate(const ParameterSet& params, const PlainRotateView& view, int blocks, cudaStream_t stream);

}  // namespace fhe_core::cuda
