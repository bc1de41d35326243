// Words of gathered ciphertexts [column][word] cut into planes of signed bytes [slice][item, word][column]. A word x < Q is
// sum_s 256^s * byte_s: byte_s is byte s of x + 0x80..80, minus 128.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/device/block.cuh"
#include "cuda/linear/byte_slices.cuh"

namespace fhe_core::cuda {

template <class Word>
struct SplitWords {
    static constexpr int kThreads = 256;
    static constexpr int kTile = 64;  // words and columns of a tile
    static constexpr int kWordSlices = sizeof(Word) == 4 ? 4 : 7;
    static constexpr Word kOffset = static_cast<Word>(sizeof(Word) == 4 ? 0x80808080u : 0x80808080808080u);
    const Word* lwe;  // [sample][sample_rows][words]
    const std::int32_t* gather;
    std::int8_t* bytes;
    std::size_t sample_rows, first_item;
    int words, columns, padded_columns, positions, items;

    FHE_HD int word_tiles() const { return (words + kTile - 1) / kTile; }
    FHE_HD int column_tiles() const { return (padded_columns + kTile - 1) / kTile; }
    FHE_HD std::size_t blocks() const { return std::size_t(items) * word_tiles() * column_tiles(); }

    template <class Block>
    FHE_HD void operator()(const Block& block, unsigned char* shared) const {
        auto* tile = reinterpret_cast<Word*>(shared);  // [column][word], padded against bank conflicts
        const int in_item = static_cast<int>(block.number() % (word_tiles() * column_tiles())),
                  item = static_cast<int>(block.number() / (word_tiles() * column_tiles()));
        const int word0 = in_item % word_tiles() * kTile, column0 = in_item / word_tiles() * kTile;
        const std::size_t sample = (first_item + item) / positions, position = (first_item + item) % positions;
        block.each(kThreads, [&](int thread) {  // neighbouring threads, neighbouring words; all loads at once
            constexpr int kLoads = kTile * kTile / kThreads, kColumnStep = kThreads / kTile;
            const int word = word0 + thread % kTile, first = thread / kTile;
            const Word* const in = lwe + sample * sample_rows * words + word;
            const std::int32_t* const rows = gather == nullptr ? nullptr : gather + position * columns;
            Word values[kLoads];
#pragma unroll
            for (int i = 0; i < kLoads; ++i) {
                const int column = column0 + first + i * kColumnStep;
                const bool inside = column < columns && word < words;
                const int row = !inside ? -1 : rows == nullptr ? column : rows[column];
                values[i] = row < 0 ? Word{0} : in[std::size_t(row) * words];
            }
#pragma unroll
            for (int i = 0; i < kLoads; ++i)  // zero has zero bytes only with the offset
                tile[(first + i * kColumnStep) * (kTile + 1) + thread % kTile] = static_cast<Word>(values[i] + kOffset);
        });
        block.each(kThreads, [&](int thread) {
            constexpr int kQuads = kTile / 4, kWordStep = kThreads / kQuads;
            const int quad = thread % kQuads;
            const std::size_t plane = std::size_t(items) * words * padded_columns;
#pragma unroll
            for (int word = thread / kQuads; word < kTile; word += kWordStep) {
                if (word0 + word >= words || column0 + 4 * quad >= padded_columns) continue;
                std::uint32_t four[sizeof(Word) / 4][4];
#pragma unroll
                for (int c = 0; c < 4; ++c) {
                    const Word value = tile[(4 * quad + c) * (kTile + 1) + word];
#pragma unroll
                    for (int half = 0; half < static_cast<int>(sizeof(Word) / 4); ++half)
                        four[half][c] = static_cast<std::uint32_t>(value >> (16 * half) >> (16 * half));
                }
#pragma unroll
                for (auto& part : four) transpose_bytes(part);
                std::int8_t* out = bytes + (std::size_t(item) * words + word0 + word) * padded_columns + column0 + 4 * quad;
#pragma unroll
                for (int slice = 0; slice < kWordSlices; ++slice, out += plane)
                    *reinterpret_cast<std::uint32_t*>(out) = four[slice / 4][slice % 4] ^ 0x80808080u;  // minus 128 in each byte
            }
        });
    }
};

}  // namespace fhe_core::cuda
