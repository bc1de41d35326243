// The threads of a CUDA grid on one CPU thread: clusters of blocks (of one, mostly) one after the other, the threads of a cluster
// as fibres that give way at barriers, shuffles and tensor-core instructions. Between two barriers a thread runs alone, in an order
// that changes from cluster to cluster, so that a missing barrier shows as wrong words, and a barrier that not all threads reach
// ends the launch with an error. Copies that a kernel starts (cp.async) happen when it waits for them, at the last moment that the
// hardware allows; words that blocks of a cluster send each other (cluster.hpp) at that moment or at once, in turn.
#pragma once

#include <setjmp.h>
#include <ucontext.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

#define CLOAKWORK_EMULATE_WARPS
#define __device__
#define __global__
#define __shared__ __thread  // no function of its own runs before an access, as one of thread_local may
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __grid_constant__
#define __align__(bytes) __attribute__((aligned(bytes)))

struct EmulatedIndex {
    unsigned x;
};
inline thread_local EmulatedIndex threadIdx{}, blockIdx{}, blockDim{}, gridDim{};

struct int4 {
    std::int32_t x, y, z, w;
};

namespace emulation {

inline constexpr int kSharedBytes = 227 << 10;  // of a block, as sm_90
inline constexpr std::size_t kStackBytes = std::size_t{512} << 10;

struct Barrier {
    unsigned arrived = 0, generation = 0;
};

// What a lane shows the others of its warp.
struct Exchange {
    std::array<std::uint32_t, 6> words;
    const void* pointer;
};

// Two exchanges in turn: who writes the third has passed the barrier of the second, and so has everyone who read the first.
struct Warp {
    Barrier barrier;
    std::array<std::array<Exchange, 32>, 2> shown;
};

struct Copy {
    void* to;
    const void* from;
    int bytes;
};

// A product of a warpgroup (wgmma), this thread's share of it.
struct Product {
    std::int32_t* sums;
    int count;
    const std::int8_t *rows, *columns;
    bool add;
};

// What the threads of a block share.
struct BlockState {
    Barrier all;
    std::array<Barrier, 16> named;
    std::vector<Warp> warps;
    std::unique_ptr<char[]> memory;  // shared memory of a block of a cluster
};

struct Thread {
    unsigned index = 0, block = 0, generation = 0, exchanges = 0;  // block: of the cluster
    bool started = false, finished = false;
    const Barrier* waits_for = nullptr;
    std::function<bool()> waits_until;
    unsigned cluster_generation = 0;
    std::vector<Copy> copies;             // cp.async, not waited for yet
    std::vector<std::size_t> group_ends;  // in `copies`
    std::vector<Product> products;        // not waited for yet
    std::vector<std::size_t> product_ends;
    ucontext_t first;
    jmp_buf resume;
    std::unique_ptr<char[]> stack{new char[kStackBytes]};
    void* fake_stack = nullptr;  // of AddressSanitizer
};

// The cluster that a CPU thread runs, and its block whose turn it is. Fibres are kept from launch to launch.
class Block {
   public:
    static Block& own() {
        static thread_local std::unique_ptr<Block> block;
        if (current_ == nullptr) {
            block = std::make_unique<Block>();
            current_ = block.get();
        }
        return *current_;
    }

    // Whether all threads of all blocks ended.
    bool run(unsigned blocks, unsigned cluster, unsigned threads, std::size_t shared_bytes, void (*kernel)(const void*),
             const void* arguments, void (*fill_shared)(std::size_t)) {
        kernel_ = kernel;
        arguments_ = arguments;
        gridDim.x = blocks;
        blockDim.x = threads;
        states_.resize(cluster);
        while (threads_.size() < std::size_t{cluster} * threads) threads_.push_back(std::make_unique<Thread>());
        for (first_block_ = 0; first_block_ < blocks; first_block_ += cluster) {
            fill_shared(shared_bytes);
            for (BlockState& state : states_) {
                state.memory.reset();
                if (cluster == 1) continue;
                state.memory.reset(new char[shared_bytes]);
                std::memset(state.memory.get(), 0x5a, shared_bytes);
            }
            if (!run_cluster(threads)) return threads_.clear(), states_.clear(), false;
        }
        return true;
    }

    void wait(Barrier& barrier, unsigned threads) {
        if (++barrier.arrived == threads) {
            barrier.arrived = 0;
            ++barrier.generation;
            return;
        }
        running_->waits_for = &barrier;
        running_->generation = barrier.generation;
        give_way();
    }
    void wait_for_all() { wait(state().all, blockDim.x); }
    void wait_for_named(int id, int threads) { wait(state().named.at(id), threads); }
    void wait_for_warp() { wait(state().warps[threadIdx.x / 32].barrier, 32); }
    void wait_until(std::function<bool()> condition) {
        running_->waits_until = std::move(condition);
        give_way();
    }

    // The two halves of the cluster's barrier.
    void arrive_at_cluster() {
        running_->cluster_generation = cluster_.generation;
        if (++cluster_.arrived == states_.size() * blockDim.x) cluster_ = {0, cluster_.generation + 1};
    }
    void wait_for_cluster() {
        wait_until([this, before = running_->cluster_generation] { return cluster_.generation != before; });
    }

    // Shows `mine` to the warp and returns what all lanes show.
    const std::array<Exchange, 32>& exchange(const Exchange& mine) {
        Warp& warp = state().warps[threadIdx.x / 32];
        auto& shown = warp.shown[running_->exchanges++ % 2];
        shown[threadIdx.x % 32] = mine;
        wait(warp.barrier, 32);
        return shown;
    }
    Thread& thread() { return *running_; }
    unsigned rank() const { return running_->block; }
    unsigned cluster() const { return first_block_ / static_cast<unsigned>(states_.size()); }
    // nullptr where a cluster is one block, whose shared memory has a name.
    char* memory(unsigned rank) const { return states_[rank].memory.get(); }

   private:
    BlockState& state() { return states_[running_->block]; }

    bool run_cluster(unsigned threads_of_block) {
        for (BlockState& state : states_) {
            state.all = {};
            state.named = {};
            state.warps.assign((threads_of_block + 31) / 32, {});
        }
        cluster_ = {};
        const unsigned threads = threads_of_block * static_cast<unsigned>(states_.size());
        for (unsigned i = 0; i < threads; ++i) {
            Thread& thread = *threads_[i];
            thread.index = i % threads_of_block;
            thread.block = i / threads_of_block;
            thread.finished = false;
            thread.waits_for = nullptr;
            thread.waits_until = nullptr;
            thread.exchanges = 0;
            thread.copies.clear();
            thread.group_ends.clear();
            thread.products.clear();
            thread.product_ends.clear();
        }
        const unsigned stride = stride_of_cluster(threads);
        for (unsigned left = threads; left > 0;) {
            bool moved = false;
            for (unsigned i = 0, at = 0; i < threads; ++i, at = (at + stride) % threads) {
                Thread& thread = *threads_[at];
                if (thread.finished || (thread.waits_for != nullptr && thread.waits_for->generation == thread.generation)) continue;
                if (thread.waits_until && !thread.waits_until()) continue;
                thread.waits_for = nullptr;
                thread.waits_until = nullptr;
                moved = true;
                resume(thread);
                left -= thread.finished;
            }
            if (!moved) return false;  // some threads wait for others that have ended or wait elsewhere
        }
        return true;
    }
    // Up, down, and in leaps.
    unsigned stride_of_cluster(unsigned threads) const {
        unsigned stride = cluster() % 3 == 0 ? 1 : cluster() % 3 == 1 ? threads - 1 : threads / 2 + 7;
        while (std::gcd(stride, threads) != 1) ++stride;
        return stride;
    }

    static void entry() {
        Block& block = own();
        arrive(nullptr, &block.scheduler_stack_, &block.scheduler_stack_bytes_);
        for (;;) {
            block.kernel_(block.arguments_);
            block.running_->finished = true;
            block.give_way();
        }
    }
    void resume(Thread& thread) {
        running_ = &thread;
        threadIdx.x = thread.index;
        blockIdx.x = first_block_ + thread.block;
        leave(&scheduler_fake_stack_, thread.stack.get(), kStackBytes);
        if (_setjmp(scheduler_) == 0) {
            if (running_->started) _longjmp(running_->resume, 1);
            start(*running_);
        }
        arrive(scheduler_fake_stack_, nullptr, nullptr);
    }
    [[noreturn]] static void start(Thread& thread) {
        thread.started = true;
        getcontext(&thread.first);
        thread.first.uc_stack.ss_sp = thread.stack.get();
        thread.first.uc_stack.ss_size = kStackBytes;
        thread.first.uc_link = nullptr;
        makecontext(&thread.first, &Block::entry, 0);
        setcontext(&thread.first);
        __builtin_unreachable();
    }
    void give_way() {
        leave(&running_->fake_stack, scheduler_stack_, scheduler_stack_bytes_);
        if (_setjmp(running_->resume) == 0) _longjmp(scheduler_, 1);
        arrive(running_->fake_stack, nullptr, nullptr);
    }

#if defined(__SANITIZE_ADDRESS__)
    static void leave(void** fake, const void* stack, std::size_t bytes) { __sanitizer_start_switch_fiber(fake, stack, bytes); }
    static void arrive(void* fake, const void** stack, std::size_t* bytes) { __sanitizer_finish_switch_fiber(fake, stack, bytes); }
#else
    static void leave(void**, const void*, std::size_t) {}
    static void arrive(void*, const void**, std::size_t*) {}
#endif

    inline static thread_local Block* current_ = nullptr;
    void (*kernel_)(const void*) = nullptr;
    const void* arguments_ = nullptr;
    std::vector<std::unique_ptr<Thread>> threads_;
    std::vector<BlockState> states_;
    Barrier cluster_;
    unsigned first_block_ = 0;
    Thread* running_ = nullptr;
    jmp_buf scheduler_;
    void* scheduler_fake_stack_ = nullptr;
    const void* scheduler_stack_ = nullptr;
    std::size_t scheduler_stack_bytes_ = 0;
};

}  // namespace emulation

inline void __syncthreads() { emulation::Block::own().wait_for_all(); }
inline void __syncwarp() { emulation::Block::own().wait_for_warp(); }
inline std::int32_t __shfl_xor_sync(unsigned, std::int32_t word, int mask) {
    const auto& shown = emulation::Block::own().exchange({{static_cast<std::uint32_t>(word)}, nullptr});
    return static_cast<std::int32_t>(shown[threadIdx.x % 32 ^ mask].words[0]);
}
inline std::uint32_t __shfl_sync(unsigned, std::uint32_t word, int lane) {
    return emulation::Block::own().exchange({{word}, nullptr})[lane].words[0];
}
inline int __reduce_add_sync(unsigned, int word) {
    std::uint32_t sum = 0;
    for (const auto& lane : emulation::Block::own().exchange({{static_cast<std::uint32_t>(word)}, nullptr})) sum += lane.words[0];
    return static_cast<int>(sum);
}
inline void __threadfence() {}
inline unsigned long long atomicAdd(unsigned long long* address, unsigned long long value) {
    const unsigned long long before = *address;
    *address += value;
    return before;
}
inline unsigned long long atomicExch(unsigned long long* address, unsigned long long value) {
    const unsigned long long before = *address;
    *address = value;
    return before;
}
template <class T>
T __ldg(const T* address) {
    return *address;
}
inline int __dp4a(int a, int b, int sum) {
    for (int i = 0; i < 4; ++i)
        sum += std::int32_t{static_cast<std::int8_t>(static_cast<unsigned>(a) >> (8 * i))} *
               static_cast<std::int8_t>(static_cast<unsigned>(b) >> (8 * i));
    return sum;
}

namespace fhe_core::cuda {

// What kernels declare as extern __shared__.
alignas(16) inline __thread std::int32_t shared[emulation::kSharedBytes / 4];
alignas(1024) inline __thread std::int8_t stages[emulation::kSharedBytes];
alignas(16) inline __thread unsigned char shared_bytes[emulation::kSharedBytes];

}  // namespace fhe_core::cuda

namespace emulation {

// A new block finds nothing of the last one, and nothing behind its own memory.
inline void fill_shared(std::size_t bytes) {
    for (void* memory : {static_cast<void*>(fhe_core::cuda::shared), static_cast<void*>(fhe_core::cuda::stages),
                         static_cast<void*>(fhe_core::cuda::shared_bytes)}) {
#if defined(__SANITIZE_ADDRESS__)
        __asan_unpoison_memory_region(memory, kSharedBytes);
        std::memset(memory, 0x5a, bytes);
        __asan_poison_memory_region(static_cast<char*>(memory) + bytes, kSharedBytes - bytes);
#else
        std::memset(memory, 0x5a, bytes);
#endif
    }
}

// kernel() by every thread of every block; `cluster` blocks run together.
template <class Kernel>
bool run_grid(unsigned blocks, unsigned cluster, unsigned threads, std::size_t shared_bytes, const Kernel& kernel) {
    if (shared_bytes > static_cast<std::size_t>(kSharedBytes) || threads > 1024 || blocks % cluster != 0) return false;
    return Block::own().run(
        blocks, cluster, threads, shared_bytes, [](const void* arguments) { (*static_cast<const Kernel*>(arguments))(); }, &kernel,
        fill_shared);
}

}  // namespace emulation
