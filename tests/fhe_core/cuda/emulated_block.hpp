// A block of CUDA threads on the CPU: a thread each, real barriers, lane exchanges. Include before any header of the back end.
#pragma once

#define CLOAKWORK_EMULATE_WARPS
#include <array>
#include <barrier>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#define __device__
#define __global__
#define __shared__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __grid_constant__
#define __align__(bytes) __attribute__((aligned(bytes)))

struct int4 {
    std::int32_t x, y, z, w;
};

namespace fhe_core::cuda {
namespace {

constexpr int kMostThreads = 1024;

struct EmulatedWarp {
    std::barrier<> barrier{32};
    std::array<std::int32_t, 32> words{};
    std::array<const void*, 32> pointers{};
    std::array<std::array<std::uint32_t, 6>, 32> fragments{};
};
struct EmulatedBlock {
    explicit EmulatedBlock(int threads) : barrier(threads) {}
    std::barrier<> barrier;
    std::array<EmulatedWarp, kMostThreads / 32> warps;
    std::array<std::unique_ptr<std::barrier<>>, 16> named;
    std::array<std::once_flag, 16> made;
};
struct Index3 {
    unsigned x;
};

std::unique_ptr<EmulatedBlock> block;
thread_local Index3 threadIdx{}, blockIdx{};
Index3 gridDim{1};

EmulatedWarp& own_warp() { return block->warps[threadIdx.x / 32]; }
[[maybe_unused]] void __syncthreads() { block->barrier.arrive_and_wait(); }
[[maybe_unused]] void __syncwarp() { own_warp().barrier.arrive_and_wait(); }
[[maybe_unused]] std::int32_t __shfl_xor_sync(unsigned, std::int32_t word, int mask) {
    EmulatedWarp& warp = own_warp();
    warp.words[threadIdx.x % 32] = word;
    warp.barrier.arrive_and_wait();
    const std::int32_t received = warp.words[threadIdx.x % 32 ^ mask];
    warp.barrier.arrive_and_wait();
    return received;
}
// bar.sync id, threads
[[maybe_unused]] void barrier(int id, int threads) {
    std::call_once(block->made[id], [&] { block->named[id] = std::make_unique<std::barrier<>>(threads); });
    block->named[id]->arrive_and_wait();
}
template <class T>
T __ldg(const T* address) {
    return *address;
}

// kernel() by every thread of one block after the other.
template <class Kernel>
void run_blocks(int blocks, int threads_per_block, Kernel kernel) {
    gridDim.x = blocks;
    for (int number = 0; number < blocks; ++number) {
        block = std::make_unique<EmulatedBlock>(threads_per_block);
        std::vector<std::thread> threads;
        for (int i = 0; i < threads_per_block; ++i)
            threads.emplace_back([&kernel, number, i] {
                threadIdx.x = i;
                blockIdx.x = number;
                kernel();
            });
        for (std::thread& thread : threads) thread.join();
    }
}

}  // namespace
}  // namespace fhe_core::cuda
