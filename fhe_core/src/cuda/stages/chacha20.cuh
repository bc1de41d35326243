// Public uniform words on the device, bit for bit those of core/expand.cpp (docs/reference/specification.md, section 9): one
// thread makes the 16 words of a block, and asks for further rounds of the same block while a word of it is rejected. Source:
// [RFC8439] section 2.3.
#pragma once

#include <cstdint>
#include <cstring>

#include "core/chacha20.hpp"
#include "core/expand.hpp"
#include "cuda/device/modulus.cuh"

namespace fhe_core::cuda {

struct SeedWords {
    std::uint32_t x[8];
};

inline SeedWords seed_words(const Seed& seed) {
    SeedWords words;
    std::memcpy(words.x, seed.data(), sizeof words.x);  // little-endian, as every CUDA host
    return words;
}

template <int bits>
FHE_HD std::uint32_t rotate_left(std::uint32_t x) {
    return x << bits | x >> (32 - bits);
}

FHE_HD void quarter_round(std::uint32_t& a, std::uint32_t& b, std::uint32_t& c, std::uint32_t& d) {
    a += b, d = rotate_left<16>(d ^ a);
    c += d, b = rotate_left<12>(b ^ c);
    a += b, d = rotate_left<8>(d ^ a);
    c += d, b = rotate_left<7>(b ^ c);
}

FHE_HD void chacha20_block(const SeedWords& seed, std::uint32_t counter, std::uint32_t domain, std::uint64_t index,
                           std::uint32_t (&out)[16]) {
    const std::uint32_t state[16] = {0x61707865u,
                                     0x3320646eu,
                                     0x79622d32u,
                                     0x6b206574u,
                                     seed.x[0],
                                     seed.x[1],
                                     seed.x[2],
                                     seed.x[3],
                                     seed.x[4],
                                     seed.x[5],
                                     seed.x[6],
                                     seed.x[7],
                                     counter,
                                     domain,
                                     static_cast<std::uint32_t>(index),
                                     static_cast<std::uint32_t>(index >> 32)};
#pragma unroll
    for (int i = 0; i < 16; ++i) out[i] = state[i];
    for (int round = 0; round < 10; ++round) {
        quarter_round(out[0], out[4], out[8], out[12]);
        quarter_round(out[1], out[5], out[9], out[13]);
        quarter_round(out[2], out[6], out[10], out[14]);
        quarter_round(out[3], out[7], out[11], out[15]);
        quarter_round(out[0], out[5], out[10], out[15]);
        quarter_round(out[1], out[6], out[11], out[12]);
        quarter_round(out[2], out[7], out[8], out[13]);
        quarter_round(out[3], out[4], out[9], out[14]);
    }
#pragma unroll
    for (int i = 0; i < 16; ++i) out[i] += state[i];
}

// Coefficients 16*block .. +15 modulo p. (A rejection repeats with probability under 1.2 %: no bound on the rounds is needed.)
template <class M>
FHE_HD void uniform_block(const SeedWords& seed, std::uint32_t domain, std::uint64_t index, std::uint32_t block,
                          std::uint32_t (&out)[16]) {
    constexpr std::uint32_t bound = static_cast<std::uint32_t>((std::uint64_t{1} << 32) / M::p * M::p);
    chacha20_block(seed, block, domain, index, out);
    std::uint32_t rejected = 0;
#pragma unroll
    for (int j = 0; j < 16; ++j) {
        rejected |= static_cast<std::uint32_t>(out[j] >= bound) << j;
        out[j] %= M::p;
    }
    for (std::uint32_t round = 1; rejected != 0; ++round) {
        std::uint32_t words[16];
        chacha20_block(seed, block + round * kBlocksPerRound, domain, index, words);
#pragma unroll
        for (int j = 0; j < 16; ++j) {
            if ((rejected >> j & 1) != 0 && words[j] < bound) {
                out[j] = words[j] % M::p;
                rejected &= ~(1u << j);
            }
        }
    }
}

}  // namespace fhe_core::cuda
