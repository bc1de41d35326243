#include "core/answer_words.hpp"

#include <bit>
#include <cmath>
#include <cstring>

#include "core/vector_clones.hpp"

namespace fhe_core {
namespace {

template <class Word>
[[gnu::always_inline]] inline void switched(const Word* words, std::size_t count, std::uint64_t q, int bits, std::uint32_t* out) {
    const double factor = std::ldexp(1.0, bits) / static_cast<double>(q);
    const std::uint64_t half = q / 2;
    const auto modulus = static_cast<std::int64_t>(q);
    const std::uint32_t mask = static_cast<std::uint32_t>((std::uint64_t{1} << bits) - 1);
    for (std::size_t i = 0; i < count; ++i) {
        // Below 2^33 with a relative error of 2^-51: off by one at most, which the remainder, exact modulo 2^64, tells. Rounded to
        // an integer by a sum, which every instruction set has for vectors.
        const double approximate = static_cast<double>(static_cast<std::int64_t>(words[i])) * factor + 0x1p52;
        const auto quotient =
            static_cast<std::int64_t>(std::bit_cast<std::uint64_t>(approximate) - std::bit_cast<std::uint64_t>(0x1p52));
        const auto rest =
            static_cast<std::int64_t>((std::uint64_t{words[i]} << bits) + half - static_cast<std::uint64_t>(quotient) * q);
        out[i] = static_cast<std::uint32_t>(quotient + (rest >= modulus) - (rest < 0)) & mask;
    }
}

FHE_CORE_VECTOR_CLONES
void switch_one_limb(const std::uint32_t* words, std::size_t count, std::uint64_t q, int bits, std::uint32_t* out) {
    switched(words, count, q, bits, out);
}

FHE_CORE_VECTOR_CLONES
void switch_two_limbs(const std::uint64_t* words, std::size_t count, std::uint64_t q, int bits, std::uint32_t* out) {
    switched(words, count, q, bits, out);
}

}  // namespace

template <>
void switch_words(const std::uint32_t* words, std::size_t count, std::uint64_t q, int bits, std::uint32_t* out) {
    switch_one_limb(words, count, q, bits, out);
}

template <>
void switch_words(const std::uint64_t* words, std::size_t count, std::uint64_t q, int bits, std::uint32_t* out) {
    switch_two_limbs(words, count, q, bits, out);
}

void pack_words(const std::uint32_t* words, std::size_t count, int bits, std::uint8_t* bytes) {
    static_assert(std::endian::native == std::endian::little);
    std::uint64_t held = 0;
    int filled = 0;  // below 32 between words
    for (std::size_t i = 0; i < count; ++i) {
        held |= std::uint64_t{words[i]} << filled;
        filled += bits;
        if (filled >= 32) {
            std::memcpy(bytes, &held, 4);
            bytes += 4, held >>= 32, filled -= 32;
        }
    }
    std::memcpy(bytes, &held, static_cast<std::size_t>(filled + 7) / 8);
}

}  // namespace fhe_core
