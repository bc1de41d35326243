// ChaCha20 (RFC 8439) as a counter-mode generator: many blocks at once, any counters in any order.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace fhe_core {

using Seed = std::array<std::uint8_t, 32>;

class ChaCha20 {
   public:
    static constexpr std::size_t kWordsPerBlock = 16;

    // key: the 32-byte seed; nonce = LE32(domain) || LE64(index).
    ChaCha20(const Seed& key, std::uint32_t domain, std::uint64_t index);
    ~ChaCha20();  // overwrites the key
    ChaCha20(const ChaCha20&) = delete;
    ChaCha20& operator=(const ChaCha20&) = delete;

    // Blocks first .. first + count - 1 (counter modulo 2^32) as little-endian words, 16 per block.
    void keystream(std::uint32_t first, std::size_t count, std::uint32_t* words) const;

    // One block per entry of `counters`.
    void blocks(const std::uint32_t* counters, std::size_t count, std::uint32_t* words) const;

   private:
    std::array<std::uint32_t, 16> state_;  // constants, key, counter (set per block), nonce
};

}  // namespace fhe_core
