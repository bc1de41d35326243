// Linear layers as int8 matrix products. A word x < Q is sum_s 256^s * byte_s with signed bytes: byte_s is byte s of x + 0x80..80,
// minus 128. Sums stay below columns * 2^14 < 2^31, and the pair (weight slice a, word slice b) counts 2^(8(a + b)).
//
// As many items (positions of samples) at a time as scratch has room for: gather and transpose words [column][word] to bytes
// [slice][item, word][column], product and recombination in one kernel (linear_product.cuh). The gathered words are never written.
// Devices of compute capability 9.0 have another way (linear_wgmma.cu), for layers where it is faster.
#include "cuda/linear/linear.hpp"

#include <algorithm>
#include <cstdlib>
#include <string>
#include <string_view>

#include "core/errors.hpp"
#include "cuda/device/block.cuh"
#include "cuda/device/hopper.cuh"
#include "cuda/linear/linear_product.cuh"
#include "cuda/linear/linear_wgmma.hpp"
#include "cuda/linear/split_words.cuh"

namespace fhe_core::cuda {
namespace {

constexpr std::int64_t kMaxRowNorm = std::int64_t{1} << 35;  // as the CPU back end
constexpr std::size_t kMostColumns = (std::size_t{1} << 17) - 16;
constexpr int kRowAlignment = 16;
constexpr std::size_t kMostBytes = UINT32_MAX;                   // offsets of the product kernel
constexpr std::size_t kPreferredBytes = std::size_t{320} << 20;  // of one product: measured, fewer are slower
constexpr std::size_t kGroupWords = 64;                          // tiles of words are whole (wgmma_words.cuh)

int padded(std::size_t count, int alignment) { return static_cast<int>((count + alignment - 1) / alignment * alignment); }

std::size_t bytes_of_words(const ParameterSet& params, std::size_t padded_columns, std::size_t words) {
    return std::size_t(word_slices(params)) * words * padded_columns;
}
std::size_t item_bytes(const ParameterSet& params, std::size_t padded_columns) {
    return bytes_of_words(params, padded_columns, params.large_words());
}

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
    int lanes;

    template <class Block>
    FHE_HD void operator()(const Block& block, unsigned char*) const {
        block.each_of_grid(total, [&](std::size_t i) {
            const std::size_t row = i % view.rows;
            Word* const end =
                static_cast<Word*>(view.out) + view.out_word(static_cast<std::uint32_t>(i / view.rows)) + (row + 1) * view.words;
            for (Word* body = end - lanes; body < end; ++body) {
                const Word sum = *body + bias[row];  // Q < 2^27 or 2^54
                *body = sum < modulus ? sum : sum - modulus;
            }
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
    const int words = params.large_words();
    const std::size_t items = piece.samples * piece.positions;
    const std::size_t most =
        std::min({items, linear_items_at_once(params, piece.padded_columns, piece.bytes_space), std::size_t{INT32_MAX} / words});
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
        launch_over(AddBias<Word>{static_cast<const Word*>(piece.bias), view, total, static_cast<Word>(params.modulus()),
                                  params.lane_count()},
                    total, stream);
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

std::vector<std::int8_t> tile_weights(const SlicedWeights& sliced) {
    constexpr std::size_t kLine = kOperandColumns, kRows = 64, kTile = kRows * kLine;
    static_assert(kLine == kLinearColumns);
    if (sliced.columns > static_cast<int>(kWgmmaColumns)) return {};
    const std::size_t blocks = (sliced.rows + kRows - 1) / kRows, stages = sliced.padded_columns / kLine;
    std::vector<std::int8_t> tiles(sliced.slice_count * blocks * stages * kTile, 0);
    for (int slice = 0; slice < sliced.slice_count; ++slice)
        for (int row = 0; row < sliced.rows; ++row) {
            const std::int8_t* const line =
                sliced.slices.data() + (std::size_t(slice) * sliced.padded_rows + row) * sliced.padded_columns;
            std::int8_t* const tile = tiles.data() + (slice * blocks + row / kRows) * stages * kTile;
            for (std::size_t chunk = 0; chunk < stages * kLine / 16; ++chunk)
                std::copy_n(line + 16 * chunk, 16,
                            tile + chunk / 4 * kTile + operand_offset(row % static_cast<int>(kRows), static_cast<int>(chunk % 4)));
        }
    return tiles;
}

bool has_wgmma(int device) {
    int major = 0, minor = 0;
    check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device), "properties of the device");
    check(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device), "properties of the device");
    return major == 9 && minor == 0;
}

LinearKernel chosen_linear_kernel(int device) {
    const char* const variable = std::getenv("CLOAKWORK_LINEAR");
    const std::string_view value = variable == nullptr ? "auto" : variable;
    if (value == "auto") return LinearKernel::automatic;
    if (value == "mma") return LinearKernel::mma;
    if (value != "wgmma") throw ParameterError("CLOAKWORK_LINEAR: expected auto, mma or wgmma, got '" + std::string(value) + "'");
    if (!has_wgmma(device))
        throw DeviceError("CLOAKWORK_LINEAR: wgmma needs a device of compute capability 9.0, which cuda:" + std::to_string(device) +
                          " is not; set it to auto or mma");
    return LinearKernel::wgmma;
}

std::size_t linear_scratch_bytes(const ParameterSet& params, std::size_t padded_columns, std::size_t items) {
    const std::size_t item = item_bytes(params, padded_columns);
    return item * std::min(std::max<std::size_t>(1, kPreferredBytes / item), items) +
           bytes_of_words(params, padded_columns, kGroupWords);
}

std::size_t linear_items_at_once(const ParameterSet& params, std::size_t padded_columns, std::size_t bytes_space) {
    return (std::min(bytes_space, kMostBytes) - bytes_of_words(params, padded_columns, kGroupWords)) /
           item_bytes(params, padded_columns);
}

void launch_linear(const ParameterSet& params, const LinearPiece& piece, cudaStream_t stream) {
    if (takes_wgmma(params, piece))
        launch_linear_wgmma(params, piece, stream);
    else if (params.limb_count() == 1)
        launch_words<1>(params, piece, stream);
    else
        launch_words<2>(params, piece, stream);
}

}  // namespace fhe_core::cuda
