// The order of transforms.
#pragma once

#include <cstddef>

namespace fhe_core {

inline std::size_t bit_reverse(std::size_t value, int bits) {
    std::size_t reversed = 0;
    for (int i = 0; i < bits; ++i) reversed |= (value >> i & 1) << (bits - 1 - i);
    return reversed;
}

}  // namespace fhe_core
