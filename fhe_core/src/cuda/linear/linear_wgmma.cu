#include "cuda/linear/linear_wgmma.hpp"

#include <algorithm>

#include "cuda/device/block.cuh"
#include "cuda/linear/linear_wgmma.cuh"

namespace fhe_core::cuda {
namespace {

template <class Tile>
void launch_tiles(const LinearView& view, int multiprocessors, cudaStream_t stream) {
    if constexpr (!Tile::kCutInside) {
        const CutWords<Tile> cut{view};
        launch(cut, cut.blocks(), Tile::kGroupBytes, stream);
    }
    const int blocks = std::min(all_tiles<Tile>(view), multiprocessors);
    check(enqueue(linear_wgmma_kernel<Tile>, blocks, Tile::kThreads, Tile::kSharedBytes, stream, view), "linear layer");
}

template <int limbs, bool one_slice>
void launch_view(const LinearView& view, int multiprocessors, cudaStream_t stream) {
    if (view.rows <= kRowBlock)
        launch_tiles<WgmmaTile<limbs, 1, one_slice, true>>(view, multiprocessors, stream);
    else
        launch_tiles<WgmmaTile<limbs, 2, one_slice, false>>(view, multiprocessors, stream);
}

template <int limb>
void make_factors(std::int32_t (&factor)[kMostFactors]) {
    for (int i = 0; i < kMostFactors; ++i) factor[i] = Modulus<limb>::centre(pow_mod(256, i + 4, Modulus<limb>::p));
}

template <int limbs>
void launch_words(const ParameterSet& params, const LinearPiece& piece, cudaStream_t stream) {
    LinearView view{};
    view.weights = piece.tiles;
    view.lwe = piece.lwe;
    view.bytes = piece.bytes;
    view.gather = piece.gather;
    view.bias = piece.bias;
    view.out = piece.out;
    view.out_rows = piece.out_rows;
    view.sample_rows = piece.sample_rows;
    view.out_sample_rows = piece.out_sample_rows;
    view.slice_count = piece.slice_count;
    view.rows = piece.rows;
    view.row_blocks = (piece.rows + kRowBlock - 1) / kRowBlock;
    view.columns = piece.columns;
    view.column_stages = piece.padded_columns / kOperandColumns;
    view.words = params.large_words();
    view.mask_words = params.large_dimension();
    view.positions = piece.positions;
    make_factors<0>(view.factor[0]);
    make_factors<1>(view.factor[1]);

    const std::size_t items = piece.samples * piece.positions;
    std::size_t most = std::min<std::size_t>(items, INT32_MAX / view.words);
    if (piece.rows > kRowBlock) most = std::min(most, linear_items_at_once(params, piece.padded_columns, piece.bytes_space));
    const std::size_t products = (items + most - 1) / most, at_once = (items + products - 1) / products;  // of equal sizes
    for (std::size_t first = 0; first < items; first += at_once) {
        view.first_item = static_cast<std::uint32_t>(first);
        view.items = static_cast<std::uint32_t>(std::min(at_once, items - first));
        if (view.slice_count == 1)
            launch_view<limbs, true>(view, piece.multiprocessors, stream);
        else
            launch_view<limbs, false>(view, piece.multiprocessors, stream);
    }
}

// Measured on an H200, docs/benchmarks/cuda-log.md: many rows win where all multiprocessors have a tile, few rows where half of
// them do and words are read in order.
template <int limbs>
bool is_faster(const ParameterSet& params, const LinearPiece& piece) {
    using Few = WgmmaTile<limbs, 1, true, true>;
    using Many = WgmmaTile<limbs, 2, true, false>;
    const std::size_t numbers = piece.samples * piece.positions * params.large_words(), multiprocessors = piece.multiprocessors;
    if (piece.rows <= kRowBlock) return piece.positions == 1 && numbers >= multiprocessors * Few::kTileWords / 2;
    const std::size_t row_tiles = (piece.rows + Many::kTileRows - 1) / Many::kTileRows;
    return row_tiles * (numbers / Many::kTileWords) >= multiprocessors;
}

}  // namespace

bool takes_wgmma(const ParameterSet& params, const LinearPiece& piece) {
    if (piece.tiles == nullptr || piece.sample_rows == 0 || piece.kernel == LinearKernel::mma) return false;
    if (piece.kernel == LinearKernel::wgmma) return true;
    return params.limb_count() == 1 ? is_faster<1>(params, piece) : is_faster<2>(params, piece);
}

void launch_linear_wgmma(const ParameterSet& params, const LinearPiece& piece, cudaStream_t stream) {
    if (params.limb_count() == 1)
        launch_words<1>(params, piece, stream);
    else
        launch_words<2>(params, piece, stream);
}

}  // namespace fhe_core::cuda
