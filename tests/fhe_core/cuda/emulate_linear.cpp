// The product kernel of the linear layers as it is, a CPU thread per CUDA thread, with ldmatrix, mma and cp.async as the PTX manual
// describes them, against sums in 64 bits. Needs no GPU:
//   g++ -std=c++20 -O1 -pthread -Ifhe_core/include -Ifhe_core/src tests/fhe_core/cuda/emulate_linear.cpp -o emulate && ./emulate
#include "emulated_block.hpp"

#include <random>

#include "cuda/modulus.cuh"

namespace fhe_core::cuda {

alignas(16) std::int8_t stages[227 * 1024];

namespace {

void copy_async(std::int8_t* to, const std::int8_t* from) { std::memcpy(to, from, 16); }
void commit_copies() {}
template <int pending>
void wait_copies() {}
void load_matrices(std::uint32_t (&x)[4], const std::int8_t* row) {
    EmulatedWarp& warp = own_warp();
    const int lane = threadIdx.x % 32;
    warp.pointers[lane] = row;
    warp.barrier.arrive_and_wait();
    for (int i = 0; i < 4; ++i)
        std::memcpy(&x[i], static_cast<const std::int8_t*>(warp.pointers[8 * i + lane / 4]) + 4 * (lane % 4), 4);
    warp.barrier.arrive_and_wait();
}
std::int8_t byte_of(std::uint32_t word, int i) { return static_cast<std::int8_t>(word >> (8 * i)); }
void multiply_bytes(std::int32_t (&sums)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1) {
    EmulatedWarp& warp = own_warp();
    const int lane = threadIdx.x % 32;
    warp.fragments[lane] = {a[0], a[1], a[2], a[3], b0, b1};
    warp.barrier.arrive_and_wait();
    for (int i = 0; i < 4; ++i) {
        const int row = lane / 4 + (i >= 2) * 8, column = 2 * (lane % 4) + i % 2;
        for (int k = 0; k < 32; ++k) {  // a0: rows 0-7, k 0-15; a1: rows 8-15; a2, a3: k 16-31
            const auto& left = warp.fragments[row % 8 * 4 + k % 16 / 4];
            const auto& right = warp.fragments[column * 4 + k % 16 / 4];
            sums[i] += std::int32_t{byte_of(left[row / 8 + k / 16 * 2], k % 4)} * byte_of(right[4 + k / 16], k % 4);
        }
    }
    warp.barrier.arrive_and_wait();
}

}  // namespace
}  // namespace fhe_core::cuda

#include "cuda/linear_product.cuh"

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
    const int blocks = c.blocks;
    run_blocks(blocks, Tile::kThreads, [&] { linear_product_kernel<Tile>(view); });

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
