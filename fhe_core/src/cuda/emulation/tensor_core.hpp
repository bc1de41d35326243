// cp.async, ldmatrix and mma as the PTX manual describes them, for emulated threads; async_copy.cuh and linear_product.cuh have the
// instructions.
#pragma once

#include <cstdint>
#include <cstring>

#include "threads.hpp"

namespace fhe_core::cuda {

template <int bytes = 16>
void copy_async(void* to, const void* from) {
    emulation::Block::own().thread().copies.push_back({to, from, bytes});
}

inline void commit_copies() {
    emulation::Thread& thread = emulation::Block::own().thread();
    thread.group_ends.push_back(thread.copies.size());
}

// All but the last `pending` groups are there.
template <int pending>
void wait_copies() {
    emulation::Thread& thread = emulation::Block::own().thread();
    if (thread.group_ends.size() <= pending) return;
    const std::size_t groups = thread.group_ends.size() - pending, done = thread.group_ends[groups - 1];
    for (std::size_t i = 0; i < done; ++i) {
        const emulation::Copy& copy = thread.copies[i];
        std::memcpy(copy.to, copy.from, static_cast<std::size_t>(copy.bytes));
    }
    thread.copies.erase(thread.copies.begin(), thread.copies.begin() + static_cast<std::ptrdiff_t>(done));
    thread.group_ends.erase(thread.group_ends.begin(), thread.group_ends.begin() + static_cast<std::ptrdiff_t>(groups));
    for (std::size_t& end : thread.group_ends) end -= done;
}

inline void load_matrices(std::uint32_t (&x)[4], const std::int8_t* row) {
    const auto& shown = emulation::Block::own().exchange({{}, row});
    const int lane = threadIdx.x % 32;
    for (int i = 0; i < 4; ++i)
        std::memcpy(&x[i], static_cast<const std::int8_t*>(shown[8 * i + lane / 4].pointer) + 4 * (lane % 4), 4);
}

inline void multiply_bytes(std::int32_t (&sums)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1) {
    const auto& shown = emulation::Block::own().exchange({{a[0], a[1], a[2], a[3], b0, b1}, nullptr});
    const int lane = threadIdx.x % 32;
    for (int i = 0; i < 4; ++i) {
        const int row = lane / 4 + (i >= 2) * 8, column = 2 * (lane % 4) + i % 2;
        for (int quad = 0; quad < 8; ++quad) {  // four k at a time. a0: rows 0-7, k 0-15; a1: rows 8-15; a2, a3: k 16-31
            const std::uint32_t left = shown[row % 8 * 4 + quad % 4].words[row / 8 + quad / 4 * 2];
            const std::uint32_t right = shown[column * 4 + quad % 4].words[4 + quad / 4];
            sums[i] = __dp4a(static_cast<int>(left), static_cast<int>(right), sums[i]);
        }
    }
}

}  // namespace fhe_core::cuda
