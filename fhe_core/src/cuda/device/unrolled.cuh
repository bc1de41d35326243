// What a thread holds in registers: loops that unroll, so that every index is a constant, and four words that move at once.
#pragma once

#include <cstdint>
#include <type_traits>

#include "cuda/device/modulus.cuh"

namespace fhe_core::cuda {

template <int value>
using Index = std::integral_constant<int, value>;

// f(Index<begin>{}), .., f(Index<end - 1>{})
template <int begin, int end, class F>
FHE_HD void static_for(F&& f) {
    if constexpr (begin < end) {
        f(Index<begin>{});
        static_for<begin + 1, end>(f);
    }
}

struct alignas(16) Vec4 {
    std::int32_t x[4];
};

}  // namespace fhe_core::cuda
