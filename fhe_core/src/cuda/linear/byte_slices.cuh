// Words cut into bytes: four columns of a word become one register of each byte slice.
#pragma once

#include <cstdint>

#include "cuda/device/modulus.cuh"

namespace fhe_core::cuda {

// Bytes `selector` (nibbles, lowest first) of the eight bytes a, b.
FHE_HD std::uint32_t pick_bytes(std::uint32_t a, std::uint32_t b, std::uint32_t selector) {
#ifdef __CUDA_ARCH__
    return __byte_perm(a, b, selector);
#else
    const std::uint64_t both = std::uint64_t{b} << 32 | a;
    std::uint32_t picked = 0;
    for (int i = 0; i < 4; ++i) picked |= static_cast<std::uint32_t>(both >> (8 * (selector >> (4 * i) & 7)) & 255) << (8 * i);
    return picked;
#endif
}

// x[i] gets byte i of all four.
FHE_HD void transpose_bytes(std::uint32_t (&x)[4]) {
    const std::uint32_t low01 = pick_bytes(x[0], x[1], 0x5140), high01 = pick_bytes(x[0], x[1], 0x7362);
    const std::uint32_t low23 = pick_bytes(x[2], x[3], 0x5140), high23 = pick_bytes(x[2], x[3], 0x7362);
    x[0] = pick_bytes(low01, low23, 0x5410);
    x[1] = pick_bytes(low01, low23, 0x7632);
    x[2] = pick_bytes(high01, high23, 0x5410);
    x[3] = pick_bytes(high01, high23, 0x7632);
}

}  // namespace fhe_core::cuda
