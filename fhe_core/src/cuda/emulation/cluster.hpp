// cluster.cuh for emulated threads. Words sent to another block arrive at once in every second cluster, which shows whether a place
// is written while somebody still reads it, and in the others when somebody waits for them, which shows whether one waits at all.
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

#include "cuda/device/unrolled.cuh"
#include "threads.hpp"

namespace fhe_core::cuda {

// An mbarrier of one arrival: a phase ends when its bytes are said and all of them have come.
struct Arrivals {
    std::int32_t bytes;   // said and not come; below zero: come and not said
    std::uint8_t said;    // in this phase
    std::uint8_t parity;  // of this phase
    std::uint8_t unused[2];

    void end_phase() {
        if (said != 1 || bytes != 0) return;
        said = 0;
        parity ^= 1;
    }
};
static_assert(sizeof(Arrivals) == 8, "as on the device");

struct Letter {
    Vec4* place;
    Vec4 four;
    Arrivals* arrivals;

    void deliver() const {
        *place = four;
        arrivals->bytes -= static_cast<std::int32_t>(sizeof four);
        arrivals->end_phase();
    }
};
inline thread_local std::vector<Letter> letters;

inline std::int32_t* own_memory(std::int32_t* shared) {
    char* const memory = emulation::Block::own().memory(emulation::Block::own().rank());
    return memory == nullptr ? shared : reinterpret_cast<std::int32_t*>(memory);
}
inline int cluster_rank() { return static_cast<int>(emulation::Block::own().rank()); }
inline void arrive_at_cluster() { emulation::Block::own().arrive_at_cluster(); }
inline void wait_for_cluster() { emulation::Block::own().wait_for_cluster(); }

inline void begin_arrivals(Arrivals* arrivals) { *arrivals = {}; }
inline void expect_bytes(Arrivals* arrivals, int bytes) {
    arrivals->bytes += bytes;
    arrivals->said += 1;
    arrivals->end_phase();
}
inline void wait_for_bytes(Arrivals* arrivals, int parity) {
    emulation::Block::own().wait_until([arrivals, parity] {
        std::erase_if(letters, [arrivals](const Letter& letter) {
            if (letter.arrivals != arrivals) return false;
            letter.deliver();
            return true;
        });
        return arrivals->parity != parity;
    });
}

class Peer {
   public:
    Peer() = default;
    Peer(const void*, int rank) {
        const emulation::Block& block = emulation::Block::own();
        distance_ = block.memory(static_cast<unsigned>(rank)) - block.memory(block.rank());
    }
    void send(Vec4* place, const Vec4& four, Arrivals* arrivals) const {
        const Letter letter{there(place), four, there(arrivals)};
        if (emulation::Block::own().cluster() % 2 == 0)
            letter.deliver();
        else
            letters.push_back(letter);
    }
    void store(Vec4* place, const Vec4& four) const { *there(place) = four; }
    Vec4 load(const Vec4* place) const { return *there(const_cast<Vec4*>(place)); }

   private:
    template <class T>
    T* there(T* place) const {
        return reinterpret_cast<T*>(reinterpret_cast<char*>(place) + distance_);
    }
    std::ptrdiff_t distance_ = 0;
};

}  // namespace fhe_core::cuda
