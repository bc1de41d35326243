// Kernels written once for the device and for a plain loop on the CPU.
//
// A body is a struct with `static constexpr int kThreads` and `operator()(block, shared)`. Work inside a block is block.each(count,
// f): f(0) .. f(count - 1) in any order, then a barrier. On the device the threads of the block share the numbers; in an emulated
// build (CLOAKWORK_CUDA=EMULATE) one thread counts. Grid-wide work without barriers is block.each_of_grid.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "cuda/modulus.cuh"
#include "cuda/runtime.hpp"

namespace fhe_core::cuda {

#ifdef __CUDACC__

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

template <class Body>
void launch(const Body& body, std::size_t blocks, std::size_t shared_bytes, cudaStream_t stream) {
    if (shared_bytes > (48 << 10)) {
        check(cudaFuncSetAttribute(block_kernel<Body>, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared_bytes)),
              "shared memory of a kernel");
    }
    block_kernel<Body><<<static_cast<unsigned>(blocks), Body::kThreads, shared_bytes, stream>>>(body);
    check(cudaGetLastError(), "launch of a kernel");
}

#else

struct HostBlock {
    std::size_t index, blocks;
    std::size_t number() const { return index; }
    std::size_t count() const { return blocks; }

    template <class F>
    void each(int total, F&& f) const {
        for (int i = 0; i < total; ++i) f(i);
    }
    template <class F>
    void each_of_grid(std::size_t total, F&& f) const {
        for (std::size_t i = index; i < total; i += blocks) f(i);
    }
};

template <class Body>
void launch(const Body& body, std::size_t blocks, std::size_t shared_bytes, cudaStream_t) {
    std::vector<std::uint64_t> shared((shared_bytes + 7) / 8, 0xa5a5a5a5a5a5a5a5u);
    for (std::size_t i = 0; i < blocks; ++i) body(HostBlock{i, blocks}, reinterpret_cast<unsigned char*>(shared.data()));
}

#endif

// Grid for `total` independent items.
template <class Body>
void launch_over(const Body& body, std::size_t total, cudaStream_t stream) {
    constexpr std::size_t kMostBlocks = 1 << 20;
    const std::size_t blocks = (total + Body::kThreads - 1) / Body::kThreads;
    if (blocks != 0) launch(body, blocks < kMostBlocks ? blocks : kMostBlocks, 0, stream);
}

}  // namespace fhe_core::cuda
