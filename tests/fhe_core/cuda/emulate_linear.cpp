// The product kernel of the linear layers as it is, every CUDA thread a fibre, with ldmatrix, mma and cp.async as the PTX manual
// describes them (cuda/emulation), against sums in 128 bits. Needs no GPU: test_emulated_kernels.py runs it.
#include <cuda_runtime.h>

#include "cuda/linear/linear_product.cuh"

#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

namespace fhe_core::cuda {
namespace {

struct Case {
    int rows, columns, words, items, slice_count, blocks;
};

template <class Tile>
bool check(const Case& c) {
    using Word = typename Tile::Word;
    std::mt19937_64 generator(c.rows + c.columns);
    LinearProductView view{};
    const auto padded = [](int count, int alignment) { return (count + alignment - 1) / alignment * alignment; };
    view.slice_count = c.slice_count;
    view.rows = c.rows;
    view.padded_rows = padded(c.rows, 16);
    view.padded_columns = padded(c.columns, kLinearColumns);
    view.words = c.words;
    view.positions = 2;
    view.byte_words = c.items * c.words;
    view.first_item = 1;
    view.out_sample_rows = 2 * c.rows + 3;
    for (int i = 0; i < kMostShifts; ++i) {
        view.shift[0][i] = Modulus<0>::twiddle(pow_mod(256, i, Modulus<0>::p));
        view.shift[1][i] = Modulus<1>::twiddle(pow_mod(256, i, Modulus<1>::p));
    }
    const auto random_bytes = [&](std::size_t count) {
        std::vector<std::int8_t> bytes(count);
        for (auto& byte : bytes) byte = static_cast<std::int8_t>(generator() % 3 == 0 ? -128 : generator());
        return bytes;
    };
    const auto weights = random_bytes(std::size_t(c.slice_count) * view.padded_rows * view.padded_columns);
    const auto bytes = random_bytes(std::size_t(Tile::kSlices) * view.byte_words * view.padded_columns);
    std::uint64_t modulus = Modulus<0>::p;
    if (Tile::kLimbs == 2) modulus *= Modulus<1>::p;
    std::vector<Word> out((c.items / 2 + 1) * view.out_sample_rows * c.words, Word(-1)), expected = out;
    view.weights = weights.data();
    view.bytes = bytes.data();
    view.out = out.data();
    if (!emulation::run_grid(c.blocks, 1, Tile::kThreads, Tile::kSharedBytes, [&] { linear_product_kernel<Tile>(view); }))
        return false;

    for (int number = 0; number < view.byte_words; ++number)
        for (int row = 0; row < c.rows; ++row) {
            __int128 total = 0;
            for (int a = 0; a < c.slice_count; ++a)
                for (int b = 0; b < Tile::kSlices; ++b) {
                    std::int64_t sum = 0;
                    for (int column = 0; column < view.padded_columns; ++column)
                        sum += std::int64_t{weights[(std::size_t(a) * view.padded_rows + row) * view.padded_columns + column]} *
                               bytes[(std::size_t(b) * view.byte_words + number) * view.padded_columns + column];
                    total += static_cast<__int128>(sum) << (8 * (a + b));
                }
            const int item = number / c.words, word = number % c.words;
            const __int128 residue = (total % static_cast<__int128>(modulus) + modulus) % static_cast<__int128>(modulus);
            expected[view.out_word(item) + std::size_t(row) * c.words + word] = static_cast<Word>(residue);
        }
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < out.size(); ++i) wrong += out[i] != expected[i];
    std::printf("%d limbs, tile %d x %d: %d x %d, %d words, %d items, %d slices of weights: %zu wrong of %zu\n", Tile::kLimbs,
                Tile::kTileRows, Tile::kTileWords, c.rows, c.columns, c.words, c.items, c.slice_count, wrong, out.size());
    return wrong == 0;
}

}  // namespace
}  // namespace fhe_core::cuda

int main() {
    using namespace fhe_core::cuda;
    bool good = check<LinearTile<1, 1, 2, true>>({10, 300, 33, 3, 1, 2});
    good &= check<LinearTile<1, 1, 2, false>>({33, 70, 65, 2, 2, 3});
    good &= check<LinearTile<1, 1, 4, false>>({64, 16, 33, 3, 5, 1});
    good &= check<LinearTile<1, 2, 4, true>>({130, 100, 70, 2, 1, 2});
    good &= check<LinearTile<2, 1, 2, false>>({20, 150, 35, 2, 3, 2});
    good &= check<LinearTile<2, 2, 4, false>>({129, 64, 33, 2, 5, 1});
    good &= check<LinearTile<2, 1, 4, true>>({50, 130, 33, 2, 1, 2});
    return good ? EXIT_SUCCESS : EXIT_FAILURE;
}
