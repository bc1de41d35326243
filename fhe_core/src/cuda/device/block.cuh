// Kernels without warps.
//
// A body is a struct with `static constexpr int kThreads` and `operator()(block, shared)`. Work inside a block is block.each(count,
// f): f(0) .. f(count - 1), shared by the threads of the block, in any order, then a barrier. Grid-wide work without barriers is
// block.each_of_grid.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "cuda/device/launch.cuh"
#include "cuda/device/modulus.cuh"
#include "cuda/device/runtime.hpp"

namespace fhe_core::cuda {

#if defined(__CUDACC__) || defined(CLOAKWORK_EMULATE_WARPS)

struct DeviceBlock {
    __device__ std::size_t number() const { return blockIdx.x; }
    __device__ std::size_t count() const { return gridDim.x; }

    template <class F>
    __device__ __forceinline__ void each(int total, F&& f) const {
        for (int i = threadIdx.x; i < total; i += blockDim.x) f(i);
        __syncthreads();
    }
    template <class F>
    __device__ __forceinline__ void each_of_grid(std::size_t total, F&& f) const {
        const std::size_t stride = std::size_t(gridDim.x) * blockDim.x;
        for (std::size_t i = std::size_t(blockIdx.x) * blockDim.x + threadIdx.x; i < total; i += stride) f(i);
    }
};

template <class Body>
__global__ __launch_bounds__(Body::kThreads) void block_kernel(const Body body) {
    extern __shared__ __align__(16) unsigned char shared_bytes[];
    body(DeviceBlock{}, shared_bytes);
}

#ifdef __CUDACC__
template <class Body>
inline constexpr int kBlockThreads = Body::kThreads;
#else
template <class Body>
inline constexpr int kBlockThreads = 32;  // share the same numbers, with fewer changes of fibre
#endif

template <class Body>
void launch(const Body& body, std::size_t blocks, std::size_t shared_bytes, cudaStream_t stream) {
    check(enqueue(block_kernel<Body>, blocks, kBlockThreads<Body>, shared_bytes, stream, body), "launch of a kernel");
}

// Grid for `total` independent items.
template <class Body>
void launch_over(const Body& body, std::size_t total, cudaStream_t stream) {
    constexpr std::size_t kMostBlocks = 1 << 20;
    const std::size_t blocks = (total + Body::kThreads - 1) / Body::kThreads;
    if (blocks != 0) launch(body, blocks < kMostBlocks ? blocks : kMostBlocks, 0, stream);
}

#endif

}  // namespace fhe_core::cuda
