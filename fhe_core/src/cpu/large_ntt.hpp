// Large transforms on the CPU.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/backend.hpp"
#include "core/large_ntt.hpp"

namespace fhe_core::cpu {

// words [batch][prime][N] in [0, q), transformed in place; a polynomial modulo a prime is one thread's.
void large_ntt(const LargeNttTables& tables, std::uint32_t* words, std::size_t batch, bool inverse, int threads,
               const Progress& progress);

}  // namespace fhe_core::cpu
