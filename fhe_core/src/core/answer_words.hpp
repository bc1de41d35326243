// Words of answers in few bits: section 11 of docs/reference/specification.md.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fhe_core {

constexpr int kMaxWordBits = 32;

// floor((x 2^bits + floor(Q / 2)) / Q) mod 2^bits for words in [0, Q), Q < 2^54, bits from 1 to kMaxWordBits.
template <class Word>
void switch_words(const Word* words, std::size_t count, std::uint64_t q, int bits, std::uint32_t* switched);

// Words below 2^bits one after the other from the lowest bit on: ceil(count bits / 8) bytes, the last one filled with zeros.
void pack_words(const std::uint32_t* words, std::size_t count, int bits, std::uint8_t* bytes);

}  // namespace fhe_core
