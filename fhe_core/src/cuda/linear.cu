// Linear layers as int8 matrix products. A word x < Q is sum_s 256^s * byte_s with signed bytes: byte_s is byte s of x + 0x80..80,
// minus 128. Sums stay below columns * 2^14 < 2^31, and the pair (weight slice a, word slice b) counts 2^(8(a + b)).
//
// As many items (positions of samples) at a time as scratch has room for: gather and transpose words [column][word] to bytes
// [slice][item, word][column], product and recombination in one kernel (linear_product.cuh). The gathered words are never written.
#include "cuda/linear.hpp"

#include <algorithm>
#include <cstdlib>
#include <string>

#include "cuda/block.cuh"
#include "cuda/linear_product.cuh"
#include "fhe_core/errors.hpp"

namespace fhe_core::cuda {
namespace {

constexpr std::int64_t kMaxRowNorm = std::int64_t{1} << 35;  // as the CPU back end
constexpr std::size_t kMostColumns = (std::size_t{1} << 17) - 16;
constexpr int kRowAlignment = 16;
constexpr std::size_t kMostBytes = UINT32_MAX;                   // offsets of the product kernel
constexpr std::size_t kPreferredBytes = std::size_t{160} << 20;  // of one product: measured, fewer are slower

int padded(std::size_t count, int alignment) { return static_cast<int>((count + alignment - 1) / alignment * alignment); }

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

template <class Tile>
void launch_product(const LinearProductView& view, int multiprocessors, cudaStream_t stream) {
    const int row_tiles = (view.rows + Tile::kTileRows - 1) / Tile::kTileRows;
    const int tiles = row_tiles * ((view.byte_words + Tile::kTileWords - 1) / Tile::kTileWords);
    const int blocks = std::min(tiles, multiprocessors * Tile::kBlocksPerMultiprocessor);
    check(enqueue(linear_product_kernel<Tile>, blocks, Tile::kThreads, Tile::kSharedBytes, stream, view), "linear layer");
}

template <int limbs, bool one_slice>
void launch_product_of_rows(const LinearProductView& view, int multiprocessors, cudaStream_t stream) {
    if (view.rows <= 32)
        launch_product<LinearTile<limbs, 1, 2, one_slice>>(view, multiprocessors, stream);
    else if (view.rows <= 64)
        launch_product<LinearTile<limbs, 1, 4, one_slice>>(view, multiprocessors, stream);
    else
        launch_product<LinearTile<limbs, 2, 4, one_slice>>(view, multiprocessors, stream);
}

template <int limbs>
void launch_product_of(const LinearProductView& view, int multiprocessors, cudaStream_t stream) {
    if (view.slice_count == 1)
        launch_product_of_rows<limbs, true>(view, multiprocessors, stream);
    else
        launch_product_of_rows<limbs, false>(view, multiprocessors, stream);
}

// bodies += bias; an item is a row of a position of a sample.
template <class Word>
struct AddBias {
    static constexpr int kThreads = 256;
    const Word* bias;
    LinearProductView view;
    std::size_t total;
    Word modulus;

    template <class Block>
    FHE_HD void operator()(const Block& block, unsigned char*) const {
        block.each_of_grid(total, [&](std::size_t i) {
            const std::size_t row = i % view.rows;
            Word& body =
                static_cast<Word*>(view.out)[view.out_word(static_cast<std::uint32_t>(i / view.rows)) + (row + 1) * view.words - 1];
            const Word sum = body + bias[row];  // Q < 2^27 or 2^54
            body = sum < modulus ? sum : sum - modulus;
        });
    }
};

template <int limb>
void make_shifts(Twiddle (&shift)[kMostShifts]) {
    for (int i = 0; i < kMostShifts; ++i) shift[i] = Modulus<limb>::twiddle(pow_mod(256, i, Modulus<limb>::p));
}

template <int limbs>
void launch_words(const ParameterSet& params, const LinearPiece& piece, cudaStream_t stream) {
    using Word = typename LinearTile<limbs, 1, 2, true>::Word;
    const int words = params.large_dimension() + 1;
    const std::size_t items = piece.samples * piece.positions;
    const std::size_t item_bytes = linear_item_bytes(params, piece.padded_columns);
    const std::size_t most =
        std::min({items, std::min(piece.bytes_space, kMostBytes) / item_bytes, std::size_t{INT32_MAX} / words});
    const std::size_t products = (items + most - 1) / most, at_once = (items + products - 1) / products;  // of equal sizes
    LinearProductView view{};
    make_shifts<0>(view.shift[0]);
    make_shifts<1>(view.shift[1]);
    view.weights = piece.weights;
    view.bytes = piece.bytes;
    view.out = piece.out;
    view.out_rows = piece.out_rows;
    view.out_sample_rows = piece.out_sample_rows;
    view.slice_count = piece.slice_count;
    view.rows = piece.rows;
    view.padded_rows = piece.padded_rows;
    view.padded_columns = piece.padded_columns;
    view.words = words;
    view.positions = piece.positions;
    for (std::size_t first = 0; first < items; first += at_once) {
        const int count = static_cast<int>(std::min(at_once, items - first));
        const SplitWords<Word> split{static_cast<const Word*>(piece.lwe),
                                     piece.gather,
                                     piece.bytes,
                                     piece.sample_rows,
                                     first,
                                     words,
                                     piece.columns,
                                     piece.padded_columns,
                                     piece.positions,
                                     count};
        constexpr int kTile = SplitWords<Word>::kTile;
        launch(split, split.blocks(), kTile * (kTile + 1) * sizeof(Word), stream);
        view.first_item = static_cast<std::uint32_t>(first);
        view.byte_words = count * words;
        launch_product_of<limbs>(view, piece.multiprocessors, stream);
    }
    if (piece.bias != nullptr) {
        view.first_item = 0;
        const std::size_t total = items * piece.rows;
        launch_over(AddBias<Word>{static_cast<const Word*>(piece.bias), view, total, static_cast<Word>(params.modulus())}, total,
                    stream);
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
    SlicedWeights sliced{
        {}, 1, static_cast<int>(rows), static_cast<int>(columns), padded(rows, kRowAlignment), padded(columns, kLinearColumns)};
    std::int64_t offset = 128;
    while (lowest + offset < 0 || (highest + offset) >> (8 * sliced.slice_count) != 0)
        offset += std::int64_t{128} << (8 * sliced.slice_count++);
    if (std::size_t(sliced.slice_count) * sliced.padded_rows * sliced.padded_columns > kMostBytes)
        throw ParameterError("weights: expected at most 2^32 bytes of slices on this device, got " + std::to_string(rows) + " x " +
                             std::to_string(columns) + " weights of " + std::to_string(sliced.slice_count) +
                             " bytes; split the layer by rows");
    sliced.slices.assign(std::size_t(sliced.slice_count) * sliced.padded_rows * sliced.padded_columns, 0);
    for (int slice = 0; slice < sliced.slice_count; ++slice)
        for (std::size_t r = 0; r < rows; ++r)
            for (std::size_t c = 0; c < columns; ++c)
                sliced.slices[(std::size_t(slice) * sliced.padded_rows + r) * sliced.padded_columns + c] =
                    static_cast<std::int8_t>(((weights[r * columns + c] + offset) >> (8 * slice) & 255) - 128);
    return sliced;
}

std::size_t linear_item_bytes(const ParameterSet& params, std::size_t padded_columns) {
    return std::size_t(word_slices(params)) * (params.large_dimension() + 1) * padded_columns;
}

std::size_t linear_scratch_bytes(const ParameterSet& params, std::size_t padded_columns, std::size_t items) {
    const std::size_t item = linear_item_bytes(params, padded_columns);
    return item * std::min(std::max<std::size_t>(1, kPreferredBytes / item), items);
}

void launch_linear(const ParameterSet& params, const LinearPiece& piece, cudaStream_t stream) {
    if (params.limb_count() == 1)
        launch_words<1>(params, piece, stream);
    else
        launch_words<2>(params, piece, stream);
}

}  // namespace fhe_core::cuda
