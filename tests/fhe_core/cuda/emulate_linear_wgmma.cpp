// The product kernel of the linear layers for sm_90a as it is, every CUDA thread a fibre, with wgmma, the copy engine and barriers
// in shared memory as the PTX manual describes them (cuda/emulation), against sums in 128 bits. Needs no GPU:
// test_emulated_kernels.py runs it.
#include <cuda_runtime.h>

#include "cuda/linear/linear_wgmma.cuh"

#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

namespace fhe_core::cuda {
namespace {

struct Case {
    int rows, columns, words, samples, positions, slice_count;
    bool bias;
    int blocks;
};

// Bytes of [.., rows][columns] in tiles of `block` rows and 64 columns.
std::vector<std::int8_t> tiled(const std::vector<int>& values, int rows, int columns, int block) {
    const int blocks = (rows + block - 1) / block, stages = (columns + kOperandColumns - 1) / kOperandColumns;
    std::vector<std::int8_t> bytes(std::size_t(blocks) * stages * block * kOperandColumns, 0);
    for (int row = 0; row < rows; ++row)
        for (int column = 0; column < columns; ++column) {
            const std::size_t tile = std::size_t(row / block) * stages + column / kOperandColumns;
            bytes[tile * block * kOperandColumns + operand_offset(row % block, column % kOperandColumns / 16) + column % 16] =
                static_cast<std::int8_t>(values[std::size_t(row) * columns + column]);
        }
    return bytes;
}

template <class Tile>
bool check(const Case& c) {
    using Word = typename Tile::Word;
    std::mt19937_64 generator(c.rows + c.columns);
    std::uint64_t modulus = Modulus<0>::p;
    if (Tile::kLimbs == 2) modulus *= Modulus<1>::p;
    const int stages = (c.columns + kOperandColumns - 1) / kOperandColumns, sample_rows = c.columns + 2;
    constexpr int kBodies = Tile::kLimbs == 1 ? 2 : 1;
    LinearView view{};
    view.slice_count = c.slice_count;
    view.rows = c.rows;
    view.row_blocks = (c.rows + kRowBlock - 1) / kRowBlock;
    view.columns = c.columns;
    view.column_stages = stages;
    view.words = c.words;
    view.mask_words = c.words - kBodies;
    view.positions = c.positions;
    view.items = c.samples * c.positions;
    view.sample_rows = sample_rows;
    view.out_sample_rows = std::size_t(c.positions) * c.rows + 3;
    for (int i = 0; i < kMostFactors; ++i) {
        view.factor[0][i] = Modulus<0>::centre(pow_mod(256, i + 4, Modulus<0>::p));
        view.factor[1][i] = Modulus<1>::centre(pow_mod(256, i + 4, Modulus<1>::p));
    }
    std::vector<std::int8_t> weights;
    std::vector<std::vector<int>> slices(c.slice_count, std::vector<int>(std::size_t(c.rows) * c.columns));
    for (auto& slice : slices) {
        for (int& weight : slice) weight = generator() % 3 == 0 ? -128 : static_cast<std::int8_t>(generator());
        const auto bytes = tiled(slice, c.rows, c.columns, kRowBlock);
        weights.insert(weights.end(), bytes.begin(), bytes.end());
    }
    std::vector<Word> lwe(std::size_t(c.samples) * sample_rows * c.words), bias(c.rows);
    for (Word& word : lwe) word = static_cast<Word>(generator() % 3 == 0 ? modulus - 1 : generator() % modulus);
    for (Word& word : bias) word = static_cast<Word>(generator() % modulus);
    std::vector<std::int32_t> gather(std::size_t(c.positions) * c.columns), out_rows(c.positions);
    for (auto& row : gather) row = static_cast<std::int32_t>(generator() % (sample_rows + 1)) - 1;
    for (int i = 0; i < c.positions; ++i) out_rows[i] = (c.positions - 1 - i) * c.rows + 1;
    view.weights = weights.data();
    view.lwe = lwe.data();
    if (c.positions > 1) {
        view.gather = gather.data();
        view.out_rows = out_rows.data();
    }
    if (c.bias) view.bias = bias.data();
    const std::size_t groups = (view.numbers() + Tile::kGroupWords - 1) / Tile::kGroupWords;
    std::vector<std::int8_t> bytes(groups * stages * Tile::kGroupBytes, 0x55);
    view.bytes = bytes.data();
    std::vector<Word> out(c.samples * view.out_sample_rows * c.words, Word(-1)), expected = out;
    view.out = out.data();

    for (int sample = 0; sample < c.samples; ++sample)
        for (int position = 0; position < c.positions; ++position)
            for (int row = 0; row < c.rows; ++row)
                for (int word = 0; word < c.words; ++word) {
                    __int128 total = c.bias && word >= c.words - kBodies ? bias[row] : 0;
                    for (int column = 0; column < c.columns; ++column) {
                        const int from = c.positions > 1 ? gather[position * c.columns + column] : column;
                        std::int64_t weight = 0;
                        for (int a = c.slice_count - 1; a >= 0; --a)
                            weight = 256 * weight + slices[a][std::size_t(row) * c.columns + column];
                        if (from >= 0)
                            total +=
                                static_cast<__int128>(weight) * lwe[(std::size_t(sample) * sample_rows + from) * c.words + word];
                    }
                    const auto q = static_cast<__int128>(modulus);
                    const std::size_t at = view.out_word(sample * c.positions + position) + std::size_t(row) * c.words + word;
                    expected[at] = static_cast<Word>((total % q + q) % q);
                }
    if (!Tile::kCutInside) {
        const CutWords<Tile> cut{view};
        if (!emulation::run_grid(static_cast<unsigned>(cut.blocks()), 1, CutWords<Tile>::kThreads, Tile::kGroupBytes,
                                 [&] { block_kernel<CutWords<Tile>>(cut); })) {
            std::printf("the kernel that cuts words did not end\n");
            return false;
        }
    }
    if (!emulation::run_grid(c.blocks, 1, Tile::kThreads, Tile::kSharedBytes, [&] { linear_wgmma_kernel<Tile>(view); })) {
        std::printf("the kernel did not end\n");
        return false;
    }
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < out.size(); ++i) wrong += out[i] != expected[i];
    std::printf("%d limbs, tile %d x %d, %d stages, cut %s: %d x %d, %d words, %d items, %d slices of weights: %zu wrong of %zu\n",
                Tile::kLimbs, Tile::kTileRows, Tile::kTileWords, Tile::kStages, Tile::kCutInside ? "inside" : "before", c.rows,
                c.columns, c.words, c.samples * c.positions, c.slice_count, wrong, out.size());
    return wrong == 0;
}

}  // namespace
}  // namespace fhe_core::cuda

int main() {
    using namespace fhe_core::cuda;
    bool good = check<WgmmaTile<1, 2, true, false>>({130, 300, 33, 3, 1, 1, true, 2});
    good &= check<WgmmaTile<1, 2, true, false>>({65, 1030, 70, 1, 1, 1, false, 1});
    good &= check<WgmmaTile<1, 2, false, false>>({33, 70, 65, 2, 2, 2, true, 3});
    good &= check<WgmmaTile<1, 1, true, true>>({10, 150, 130, 2, 3, 1, true, 2});
    good &= check<WgmmaTile<1, 1, false, true>>({64, 16, 33, 3, 1, 5, false, 1});
    good &= check<WgmmaTile<2, 2, true, false>>({70, 130, 35, 2, 2, 1, true, 2});
    good &= check<WgmmaTile<2, 1, true, true>>({64, 260, 70, 3, 1, 1, true, 3});
    good &= check<WgmmaTile<2, 1, false, true>>({20, 150, 35, 2, 1, 3, true, 1});
    good &= check<WgmmaTile<2, 2, false, false>>({129, 64, 33, 2, 1, 5, false, 2});
    return good ? EXIT_SUCCESS : EXIT_FAILURE;
}
