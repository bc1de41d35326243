// Launches of large transforms: each enqueues, none allocates or waits.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "core/large_ntt.hpp"

namespace fhe_core::cuda {

// primes and roots in device memory; words [batch][prime][N] in [0, q), `out` may be `in`.
struct LargeNttArguments {
    LargeNttLayout layout;
    const LargePrime* primes;
    const Root* roots;
    std::size_t prime_count, batch;
    const std::uint32_t* in;
    std::uint32_t* out;
    int multiprocessors;
    const std::uint32_t* numbers = nullptr;  // [prime_count] which primes they are; nullptr: 0, 1, ..
};
void launch_large_ntt(const LargeNttArguments& arguments, bool inverse, cudaStream_t stream);

// *outside = 1 where a word of `in` is not below its prime.
void launch_large_range_check(const LargeNttArguments& arguments, std::uint32_t* outside, cudaStream_t stream);

}  // namespace fhe_core::cuda
