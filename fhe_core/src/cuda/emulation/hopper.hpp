// The instructions of hopper.cuh for emulated threads. Copies arrive at once in every second block, which shows whether a stage is
// filled while somebody still reads it, and in the others when somebody waits for them, which shows whether one waits at all.
// Products are carried out when they are waited for: at the last moment that the hardware allows.
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

#include "threads.hpp"

namespace fhe_core::cuda {

struct MemoryBarrier {
    std::int32_t bytes;              // announced and not there
    std::uint8_t threads, missing;   // of a phase; that have not arrived
    std::uint8_t parity, unused[1];  // of this phase

    void end_phase() {
        if (missing != 0 || bytes != 0) return;
        missing = threads;
        parity ^= 1;
    }
};
static_assert(sizeof(MemoryBarrier) == 8, "as on the device");

struct BulkCopy {
    std::int8_t* to;
    const std::int8_t* from;
    int bytes;
    MemoryBarrier* barrier;

    void deliver() const {
        std::memcpy(to, from, static_cast<std::size_t>(bytes));
        barrier->bytes -= bytes;
        barrier->end_phase();
    }
};
inline thread_local std::vector<BulkCopy> bulk_copies;

inline void barrier_init(MemoryBarrier* barrier, int count) {
    std::erase_if(bulk_copies, [barrier](const BulkCopy& copy) { return copy.barrier == barrier; });
    const auto threads = static_cast<std::uint8_t>(count);
    *barrier = {0, threads, threads, 0, {}};
}
inline void barrier_init_done() {}
inline void barrier_arrive_with_bytes(MemoryBarrier* barrier, int bytes) {
    barrier->bytes += bytes;
    --barrier->missing;
    barrier->end_phase();
}
inline void barrier_arrive(MemoryBarrier* barrier) { barrier_arrive_with_bytes(barrier, 0); }
inline void barrier_wait(MemoryBarrier* barrier, int parity) {
    emulation::Block::own().wait_until([barrier, parity] {
        std::erase_if(bulk_copies, [barrier](const BulkCopy& copy) {
            if (copy.barrier != barrier) return false;
            copy.deliver();
            return true;
        });
        return barrier->parity != parity;
    });
}
inline void bulk_copy(std::int8_t* to, const std::int8_t* from, int bytes, MemoryBarrier* barrier) {
    const BulkCopy copy{to, from, bytes, barrier};
    if (blockIdx.x % 2 == 0)
        copy.deliver();
    else
        bulk_copies.push_back(copy);
}
inline void fence_written_operands() {}

template <int count>
void keep_registers() {}
template <int count>
void take_registers() {}

using Operand = const std::int8_t*;

inline Operand operand_of(const std::int8_t* tile) { return tile; }
inline Operand next_columns(Operand operand) { return operand + kProductColumns; }

// The hardware swizzles addresses, not offsets.
inline const std::int8_t* swizzled(const std::int8_t* start, int row) {
    const auto address = reinterpret_cast<std::uintptr_t>(start + row * kOperandColumns);
    return reinterpret_cast<const std::int8_t*>(address ^ ((address >> 7 & 3) << 4));
}

inline void begin_products() {}
inline void end_products() {
    emulation::Thread& thread = emulation::Block::own().thread();
    thread.product_ends.push_back(thread.products.size());
}

inline void carry_out(const emulation::Product& product) {
    const int thread = static_cast<int>(threadIdx.x % 128), lane = thread % 32;
    for (int i = 0; i < product.count; ++i) {
        const int row = 16 * (thread / 32) + lane / 4 + i % 4 / 2 * 8, column = 8 * (i / 4) + 2 * (lane % 4) + i % 2;
        std::int32_t sum = product.add ? product.sums[i] : 0;
        for (int chunk = 0; chunk < kProductColumns; chunk += 16) {
            const std::int8_t* const left = swizzled(product.rows + chunk, row);
            const auto* const right = reinterpret_cast<const std::uint8_t*>(swizzled(product.columns + chunk, column));
            for (int k = 0; k < 16; ++k) sum += left[k] * right[k];
        }
        product.sums[i] = sum;
    }
}

template <int pending>
void wait_products() {
    emulation::Thread& thread = emulation::Block::own().thread();
    if (thread.product_ends.size() > pending) {
        const std::size_t groups = thread.product_ends.size() - pending, done = thread.product_ends[groups - 1];
        for (std::size_t i = 0; i < done; ++i) carry_out(thread.products[i]);
        thread.products.erase(thread.products.begin(), thread.products.begin() + static_cast<std::ptrdiff_t>(done));
        thread.product_ends.erase(thread.product_ends.begin(), thread.product_ends.begin() + static_cast<std::ptrdiff_t>(groups));
        for (std::size_t& end : thread.product_ends) end -= done;
    }
    emulation::Block::own().wait_for_warp();  // .sync.aligned
}

template <int count>
void settle(std::int32_t (&)[count]) {}

template <int count>
void multiply(std::int32_t (&sums)[count], Operand rows, Operand columns, bool add) {
    emulation::Block::own().thread().products.push_back({sums, count, rows, columns, add});
}

}  // namespace fhe_core::cuda
