// Linear layers as int8 matrix products. A word x < Q is sum_s 256^s * byte_s with signed bytes: byte_s is byte s of x + 0x80..80,
// minus 128. Sums stay below columns * 2^14 < 2^31, and the pair (weight slice a, word slice b) counts 2^(8(a + b)).
//
// One sample at a time (its sums stay in the second-level cache): transpose words [column][word] to bytes [slice][word][column],
// product with [weight slice][row][column] to sums [slice][word][weight slice][row], recombine to words [row][word].
#include <algorithm>
#include <cstdlib>
#include <string>

#include "cuda/block.cuh"
#include "cuda/linear.hpp"
#include "fhe_core/errors.hpp"

namespace fhe_core::cuda {
namespace {

constexpr std::int64_t kMaxRowNorm = std::int64_t{1} << 35;  // as the CPU back end
constexpr std::size_t kMostColumns = (std::size_t{1} << 17) - 16;

template <class T>
T padded(T count) {
    constexpr T alignment = static_cast<T>(kGemmAlignment);
    return (count + alignment - 1) / alignment * alignment;
}

template <class Word>
struct SplitWords {
    static constexpr int kThreads = 256;
    static constexpr int kTile = 64;  // words and columns of a tile
    static constexpr int kWordSlices = sizeof(Word) == 4 ? 4 : 7;
    static constexpr Word kOffset = static_cast<Word>(sizeof(Word) == 4 ? 0x80808080u : 0x80808080808080u);
    const Word* lwe;  // [columns][words]
    std::int8_t* bytes;
    int words, columns, padded_columns;

    template <class Block>
    FHE_HD void operator()(const Block& block, unsigned char* shared) const {
        auto* tile = reinterpret_cast<Word*>(shared);  // [column][word], padded against bank conflicts
        const int word_tiles = (words + kTile - 1) / kTile;
        const int word0 = static_cast<int>(block.number()) % word_tiles * kTile,
                  column0 = static_cast<int>(block.number()) / word_tiles * kTile;
        block.each(kTile * kTile, [&](int i) {
            const int column = i / kTile, word = i % kTile;
            const bool inside = column0 + column < columns && word0 + word < words;
            // A zero word has zero bytes only with the offset.
            tile[column * (kTile + 1) + word] =
                static_cast<Word>((inside ? lwe[std::size_t(column0 + column) * words + word0 + word] : Word{0}) + kOffset);
        });
        block.each(kWordSlices * kTile * (kTile / 4), [&](int i) {
            const int quad = i % (kTile / 4), word = i / (kTile / 4) % kTile, slice = i / (kTile / 4) / kTile;
            if (word0 + word >= words || column0 + 4 * quad >= padded_columns) return;
            std::uint32_t four = 0;
            for (int c = 0; c < 4; ++c)
                four |= static_cast<std::uint32_t>(tile[(4 * quad + c) * (kTile + 1) + word] >> (8 * slice) & 255) << (8 * c);
            auto* out = bytes + (std::size_t(slice) * words + word0 + word) * padded_columns + column0 + 4 * quad;
            *reinterpret_cast<std::uint32_t*>(out) = four ^ 0x80808080u;  // minus 128 in each byte
        });
    }
};

template <class Word>
struct JoinSums {
    static constexpr int kThreads = 256;
    static constexpr int kTile = 32;
    static constexpr int kWordSlices = sizeof(Word) == 4 ? 4 : 7;
    const std::int32_t* sums;  // [slice][word][weight slice][padded row]
    Word* out;                 // [row][word]
    int words, rows, padded_rows, weight_slices;

    template <int limb>
    FHE_HD std::uint32_t of_limb(int word, int row) const {
        constexpr std::int64_t p = Modulus<limb>::p;
        const std::size_t slice_stride = std::size_t(words) * weight_slices * padded_rows;
        std::int64_t total = 0;
        for (int a = weight_slices - 1; a >= 0; --a) {
            const std::int32_t* sum = sums + (std::size_t(word) * weight_slices + a) * padded_rows + row;
            std::int64_t value = 0;  // |value| < 2^31 * 2^24 * 1.01, or 2^59 with the upper slices
            for (int b = kWordSlices - 1; b >= 4; --b) value = value * 256 + sum[b * slice_stride];
            if constexpr (kWordSlices > 4) value %= p;
            for (int b = 3; b >= 0; --b) value = value * 256 + sum[b * slice_stride];
            total = (total * 256 + value) % p;
        }
        return static_cast<std::uint32_t>(total < 0 ? total + p : total);
    }

    template <class Block>
    FHE_HD void operator()(const Block& block, unsigned char* shared) const {
        auto* tile = reinterpret_cast<Word*>(shared);
        const int word_tiles = (words + kTile - 1) / kTile;
        const int word0 = static_cast<int>(block.number()) % word_tiles * kTile,
                  row0 = static_cast<int>(block.number()) / word_tiles * kTile;
        block.each(kTile * kTile, [&](int i) {
            const int word = i / kTile, row = i % kTile;
            if (word0 + word >= words || row0 + row >= rows) return;
            Word joined;
            if constexpr (sizeof(Word) == 4)
                joined = of_limb<0>(word0 + word, row0 + row);
            else
                joined = compose_limbs(of_limb<0>(word0 + word, row0 + row), of_limb<1>(word0 + word, row0 + row));
            tile[row * (kTile + 1) + word] = joined;
        });
        block.each(kTile * kTile, [&](int i) {
            const int row = i / kTile, word = i % kTile;
            if (word0 + word < words && row0 + row < rows)
                out[std::size_t(row0 + row) * words + word0 + word] = tile[row * (kTile + 1) + word];
        });
    }
};

template <class Word>
void launch_words(const ParameterSet& params, const LinearPiece& piece, const Int8Gemm& gemm, cudaStream_t stream) {
    const int words = params.large_dimension() + 1;
    const auto tiles = [](int count, int tile) { return static_cast<std::size_t>((count + tile - 1) / tile); };
    JoinSums<Word> join{piece.sums, nullptr, words, piece.rows, piece.padded_rows, piece.slice_count};
    for (std::size_t s = 0; s < piece.samples; ++s) {
        const SplitWords<Word> split{static_cast<const Word*>(piece.lwe) + s * piece.columns * words, piece.bytes, words,
                                     piece.columns, piece.padded_columns};
        constexpr int kSplitTile = SplitWords<Word>::kTile, kJoinTile = JoinSums<Word>::kTile;
        launch(split, tiles(words, kSplitTile) * tiles(piece.padded_columns, kSplitTile),
               kSplitTile * (kSplitTile + 1) * sizeof(Word), stream);
        gemm({piece.weights, piece.bytes, piece.sums, piece.slice_count * piece.padded_rows,
              static_cast<int>(linear_byte_words(params)), piece.padded_columns},
             stream);
        join.out = static_cast<Word*>(piece.out) + s * piece.rows * words;
        launch(join, tiles(words, kJoinTile) * tiles(piece.rows, kJoinTile), kJoinTile * (kJoinTile + 1) * sizeof(Word), stream);
    }
}

}  // namespace

SlicedWeights slice_weights(const std::int32_t* weights, std::size_t rows, std::size_t columns) {
    if (columns > kMostColumns)
        throw ParameterError("weights: expected at most " + std::to_string(kMostColumns) + " columns on this device, got " +
                             std::to_string(columns) + "; split the layer and add the parts");
    std::int64_t lowest = 0, highest = 0;
    for (std::size_t r = 0; r < rows; ++r) {
        std::int64_t norm = 0;
        for (std::size_t c = 0; c < columns; ++c) {
            const std::int64_t weight = weights[r * columns + c];
            norm += std::abs(weight);
            lowest = std::min(lowest, weight);
            highest = std::max(highest, weight);
        }
        if (norm >= kMaxRowNorm)
            throw ParameterError("weights: the absolute values of row " + std::to_string(r) +
                                 " sum to 2^35 or more; quantise the weights to fewer bits");
    }
    SlicedWeights sliced{{},
                         1,
                         static_cast<int>(rows),
                         static_cast<int>(columns),
                         static_cast<int>(padded(rows)),
                         static_cast<int>(padded(columns))};
    std::int64_t offset = 128;
    while (lowest + offset < 0 || (highest + offset) >> (8 * sliced.slice_count) != 0)
        offset += std::int64_t{128} << (8 * sliced.slice_count++);
    sliced.slices.assign(std::size_t(sliced.slice_count) * sliced.padded_rows * sliced.padded_columns, 0);
    for (int slice = 0; slice < sliced.slice_count; ++slice)
        for (std::size_t r = 0; r < rows; ++r)
            for (std::size_t c = 0; c < columns; ++c)
                sliced.slices[(std::size_t(slice) * sliced.padded_rows + r) * sliced.padded_columns + c] =
                    static_cast<std::int8_t>(((weights[r * columns + c] + offset) >> (8 * slice) & 255) - 128);
    return sliced;
}

std::size_t linear_byte_words(const ParameterSet& params) {
    return padded(std::size_t(word_slices(params)) * (params.large_dimension() + 1));
}

void launch_linear(const ParameterSet& params, const LinearPiece& piece, const Int8Gemm& gemm, cudaStream_t stream) {
    if (params.limb_count() == 1)
        launch_words<std::uint32_t>(params, piece, gemm, stream);
    else
        launch_words<std::uint64_t>(params, piece, gemm, stream);
}

}  // namespace fhe_core::cuda
