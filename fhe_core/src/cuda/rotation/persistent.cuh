// Kernels that stay: one block per multiprocessor at most, tables in shared memory for the whole launch, and groups of warps that
// take one ciphertext after the other through all steps.
//
// A Config says kThreads, kSharedBytes and kPerUnit (ciphertexts that a group takes at once); `kernel_of(Config)` names its kernel.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/device/launch.cuh"
#include "cuda/rotation/blind_rotate.hpp"
#include "cuda/rotation/monomial.cuh"

namespace fhe_core::cuda {

// Device memory of a block, of kernels that ask for it.
template <class Config>
constexpr std::size_t scratch_bytes() {
    if constexpr (requires { Config::kScratchBytes; })
        return Config::kScratchBytes;
    else
        return 0;
}

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

template <int threads, class Factors>
__device__ __forceinline__ void copy_factors(std::int32_t* to, const std::int32_t* powers) {
    for (int x = threadIdx.x; x < Factors::kSize; x += threads) to[Factors::word_of(x)] = Factors::entry(powers[x]);
}

// Step `step` of the key, `bytes` of a step, on its way to L2 while the blocks are at an earlier one: each of the first blocks asks
// for its part. Blocks that run ahead wait for memory, so that all are within about a step of each other.
template <std::uint32_t bytes>
__device__ __forceinline__ void prefetch_key([[maybe_unused]] const BlindRotateView& view, [[maybe_unused]] int step) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    constexpr std::uint32_t kBlocks = 64, kPart = bytes / kBlocks;
    static_assert(bytes % (16 * kBlocks) == 0, "blocks ask for equally many vectors");
    if (threadIdx.x == 0 && blockIdx.x < kBlocks && step < view.steps)
        asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(static_cast<const char*>(view.key) +
                                                                        std::size_t(step) * bytes + blockIdx.x * kPart),
                     "r"(kPart));
#endif
}

// Enqueues it; view.batch >= 1.
template <class Config>
cudaError_t launch_persistent(const BlindRotateView& view, int multiprocessors, cudaStream_t stream) {
    const int units = (view.batch + Config::kPerUnit - 1) / Config::kPerUnit;
    const int blocks = units < multiprocessors ? units : multiprocessors;
    return enqueue(kernel_of(Config{}), blocks, Config::kThreads, Config::kSharedBytes, stream, view);
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

// Throughput, or Small where a multiprocessor of the device lacks the shared memory for it.
template <class Throughput, class Small, class Latency>
cudaError_t launch_fitting(const BlindRotateView& view, int multiprocessors, cudaStream_t stream) {
    if constexpr (Throughput::kSharedBytes > Small::kSharedBytes) {
        int device = 0, most = 0;
        cudaError_t status = cudaGetDevice(&device);
        if (status == cudaSuccess) status = cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
        if (status != cudaSuccess) return status;
        if (Throughput::kSharedBytes > static_cast<std::size_t>(most))
            return launch_by_batch<Small, Latency>(view, multiprocessors, stream);
    }
    return launch_by_batch<Throughput, Latency>(view, multiprocessors, stream);
}

#endif

}  // namespace fhe_core::cuda
