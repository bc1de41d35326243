// Words of the wire format: byte planes and bit fields (docs/reference/wire_format.md). fhe_core/wire/__init__.py does the same
// with numpy.
#include <algorithm>
#include <cstring>
#include <string>

#include "wasm/exports.hpp"

namespace fhe_core {
namespace {

// Runs of words whose bytes go to all planes while they are in the first-level cache.
constexpr std::size_t kRun = 1024;

template <class Word>
void to_planes(const Word* words, std::size_t count, int planes, std::uint8_t* out) {
    for (std::size_t start = 0; start < count; start += kRun) {
        const std::size_t end = std::min(count, start + kRun);
        for (int plane = 0; plane < planes; ++plane)
            for (std::size_t i = start; i < end; ++i) out[plane * count + i] = static_cast<std::uint8_t>(words[i] >> (8 * plane));
    }
}

template <class Word>
void from_planes(const std::uint8_t* bytes, std::size_t count, int planes, std::uint64_t bound, Word* words) {
    bool outside = false;
    for (std::size_t start = 0; start < count; start += kRun) {
        const std::size_t end = std::min(count, start + kRun);
        std::fill(words + start, words + end, Word{0});
        for (int plane = 0; plane < planes; ++plane)
            for (std::size_t i = start; i < end; ++i)
                words[i] = static_cast<Word>(words[i] | Word{bytes[plane * count + i]} << (8 * plane));
        for (std::size_t i = start; i < end; ++i) outside |= words[i] >= bound;
    }
    if (outside)
        throw SerializationError("ciphertexts: expected every word below " + std::to_string(bound) +
                                 ", found one above; the object was not made by this format's rules");
}

}  // namespace

FHE_CORE_EXPORT(pack_planes)
void pack_planes(const void* words, std::size_t count, std::uint32_t word_bytes, int planes, std::uint8_t* out) {
    if (word_bytes == 4)
        to_planes(static_cast<const std::uint32_t*>(words), count, planes, out);
    else
        to_planes(static_cast<const std::uint64_t*>(words), count, planes, out);
}

FHE_CORE_EXPORT(unpack_planes)
int unpack_planes(const std::uint8_t* bytes, std::size_t count, std::uint32_t word_bytes, int planes, std::uint64_t bound,
                  void* words) {
    return guarded([&] {
        if (word_bytes == 4)
            from_planes(bytes, count, planes, bound, static_cast<std::uint32_t*>(words));
        else
            from_planes(bytes, count, planes, bound, static_cast<std::uint64_t*>(words));
    });
}

// count words of `bits` bits, 1 to 32, lowest bit first, each as the nearest modulo Q: section 11 of
// docs/reference/specification.md.
FHE_CORE_EXPORT(expand_switched)
int expand_switched(std::uint32_t set, const std::uint8_t* bytes, std::size_t count, int bits, void* words) {
    return guarded([&] {
        const ParameterSet& params = set_at(set);
        if (bits < 1 || bits > 32) throw SerializationError("switched ciphertexts: expected words of 1 to 32 bits");
        const std::uint64_t modulus = params.modulus(), half = std::uint64_t{1} << (bits - 1);
        const std::uint64_t total_bits = std::uint64_t{count} * static_cast<std::uint64_t>(bits);  // addresses have 32 bits here
        const int used = static_cast<int>(total_bits % 8);
        if (used != 0 && bytes[total_bits / 8] >> used)
            throw SerializationError(
                "switched ciphertexts: expected zeros after the last word; the object was not made by this format's rules");
        with_word(params.limbs(), [&]<class Word>(Word) {
            Word* out = static_cast<Word*>(words);
            const std::uint64_t low_bits = (std::uint64_t{1} << bits) - 1;
            std::uint64_t held = 0;
            for (std::size_t i = 0, held_bits = 0; i < count; ++i) {
                for (; held_bits < std::size_t(bits); held_bits += 8) held |= std::uint64_t{*bytes++} << held_bits;
                const uint128 scaled = uint128{held & low_bits} * modulus + half;
                out[i] = static_cast<Word>(static_cast<std::uint64_t>(scaled >> bits) % modulus);
                held >>= bits, held_bits -= bits;
            }
        });
    });
}

}  // namespace fhe_core
