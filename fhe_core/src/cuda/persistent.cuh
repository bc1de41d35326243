// Kernels that stay: one block per multiprocessor at most, tables in shared memory for the whole launch, and groups of warps that
// take one ciphertext after the other through all steps.
//
// A Config says kThreads, kSharedBytes and kPerUnit (ciphertexts that a group takes at once); `kernel_of(Config)` names its kernel.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/blind_rotate.hpp"
#include "cuda/launch.cuh"
#include "cuda/monomial.cuh"

namespace fhe_core::cuda {

#if defined(__CUDACC__)

__device__ __forceinline__ void barrier(int id, int threads) {
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

#elif defined(CLOAKWORK_EMULATE_WARPS)

inline void barrier(int id, int threads) { emulation::Block::own().wait_for_named(id, threads); }

#endif
#if defined(__CUDACC__) || defined(CLOAKWORK_EMULATE_WARPS)

using RotationKernel = void (*)(BlindRotateView);

// The tables of a kernel, by all threads of its block; __syncthreads before they are read.
template <int threads, class Vector>
__device__ __forceinline__ void copy_table(Vector* to, const void* from, int count) {
    for (int i = threadIdx.x; i < count; i += threads) to[i] = static_cast<const Vector*>(from)[i];
}
template <int threads, class Powers>
__device__ __forceinline__ void copy_powers(std::int32_t* to, const std::int32_t* from) {
    for (int x = threadIdx.x; x < Powers::kSize; x += threads) to[Powers::word_of(x)] = from[x];
}

// Enqueues it; view.batch >= 1.
template <class Config>
cudaError_t launch_persistent(const BlindRotateView& view, int multiprocessors, cudaStream_t stream) {
    const int units = (view.batch + Config::kPerUnit - 1) / Config::kPerUnit;
    const int blocks = units < multiprocessors ? units : multiprocessors;
    return enqueue(kernel_of(Config{}), blocks, Config::kThreads, Config::kSharedBytes, stream, view);
}

// The ciphertexts of a view from number `first` on.
inline BlindRotateView rest_of(const Shape& shape, BlindRotateView view, int first) {
    const std::size_t words = std::size_t(shape.glwe_dimension) * shape.polynomial_size;
    const std::size_t out = view.coefficients == nullptr ? words + shape.polynomial_size : view.coefficient_count * (words + 1);
    view.switched += std::size_t(first) * (rotation_of(shape.cmux).key_bits * view.steps + 1);
    if (view.table_index != nullptr) view.table_index += first;
    view.out = static_cast<char*>(view.out) + first * out * (shape.limb_count == 1 ? 4 : 8);
    view.batch -= first;
    return view;
}

inline constexpr int kLatencyCiphertexts = 1;  // of a multiprocessor, up to which the latency layout is faster

// Few ciphertexts, and few that whole waves of the throughput layout leave over, go to the latency layout. Both layouts read the
// same key and tables.
template <class Throughput, class Latency>
cudaError_t launch_by_batch(const BlindRotateView& view, int multiprocessors, cudaStream_t stream) {
    const int few = kLatencyCiphertexts * multiprocessors, wave = Throughput::kCiphertexts * multiprocessors;
    if (view.batch <= few) return launch_persistent<Latency>(view, multiprocessors, stream);
    const int left = view.batch > wave ? view.batch % wave : 0;
    if (left == 0 || left > few) return launch_persistent<Throughput>(view, multiprocessors, stream);
    BlindRotateView waves = view;
    waves.batch -= left;
    const cudaError_t status = launch_persistent<Throughput>(waves, multiprocessors, stream);
    const BlindRotateView rest = rest_of(Throughput::shape, view, waves.batch);
    return status == cudaSuccess ? launch_persistent<Latency>(rest, multiprocessors, stream) : status;
}

#endif

}  // namespace fhe_core::cuda
