// launch_linear with gather, bias and scattered results, as the emulated build runs it, against sums in 128 bits. Needs no GPU:
// test_emulated_kernels.py runs it.
#include <cstdio>
#include <cstdlib>
#include <random>

#include "core/errors.hpp"
#include "cuda/linear/linear.hpp"
#include "host_key.hpp"

namespace fhe_core::cuda {
namespace {

template <class Word>
bool check(Shape shape, std::int64_t largest, int items_at_once) {
    const ParameterSet params = bench_parameters(shape, 4);
    const int words = params.large_words(), samples = 2, sample_rows = 9, positions = 3, rows = 5, columns = 6;
    std::mt19937_64 generator(largest);
    std::vector<std::int32_t> weights(rows * columns), gather(positions * columns), out_rows{10, 0, 5};
    for (auto& weight : weights) weight = static_cast<std::int32_t>(std::int64_t(generator() % (2 * largest + 1)) - largest);
    for (auto& row : gather) row = static_cast<std::int32_t>(generator() % (sample_rows + 1)) - 1;
    const auto wide = random_words(std::size_t(samples) * sample_rows * words, params.modulus(), 1);
    const auto wide_bias = random_words(rows, params.modulus(), 2);
    const std::vector<Word> lwe(wide.begin(), wide.end()), bias(wide_bias.begin(), wide_bias.end());
    const SlicedWeights sliced = slice_weights(weights.data(), rows, columns);
    std::vector<std::int8_t> scratch(linear_scratch_bytes(params, sliced.padded_columns, items_at_once), 0x55);
    const int out_sample_rows = positions * rows + 2;
    std::vector<Word> out(std::size_t(samples) * out_sample_rows * words, Word(-1)), expected = out;

    LinearPiece piece{};
    piece.weights = sliced.slices.data();
    piece.slice_count = sliced.slice_count;
    piece.rows = rows;
    piece.columns = columns;
    piece.padded_rows = sliced.padded_rows;
    piece.padded_columns = sliced.padded_columns;
    piece.lwe = lwe.data();
    piece.sample_rows = sample_rows;
    piece.gather = gather.data();
    piece.positions = positions;
    piece.bias = bias.data();
    piece.out = out.data();
    piece.out_sample_rows = out_sample_rows;
    piece.out_rows = out_rows.data();
    piece.samples = samples;
    piece.bytes = scratch.data();
    piece.bytes_space = scratch.size();
    piece.multiprocessors = 2;
    launch_linear(params, piece, nullptr);

    const auto modulus = static_cast<__int128>(params.modulus());
    for (int s = 0; s < samples; ++s)
        for (int p = 0; p < positions; ++p)
            for (int r = 0; r < rows; ++r)
                for (int w = 0; w < words; ++w) {
                    __int128 total = w >= params.large_dimension() ? bias[r] : 0;
                    for (int c = 0; c < columns; ++c)
                        if (const int row = gather[p * columns + c]; row >= 0)
                            total += static_cast<__int128>(weights[r * columns + c]) * lwe[(s * sample_rows + row) * words + w];
                    expected[(s * out_sample_rows + out_rows[p] + r) * words + w] =
                        static_cast<Word>((total % modulus + modulus) % modulus);
                }
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < out.size(); ++i) wrong += out[i] != expected[i];
    std::printf("%d limbs, weights to %lld, %d items at once: %zu wrong of %zu\n", params.limb_count(),
                static_cast<long long>(largest), items_at_once, wrong, out.size());
    return wrong == 0;
}

}  // namespace
}  // namespace fhe_core::cuda

int main() {
    using namespace fhe_core;
    using namespace fhe_core::cuda;
    const Shape one{256, 1, 1, {8, 2}, {8, 2}, CmuxKind::binary_pair},
        lanes{256, 1, 1, {8, 2}, {8, 2}, CmuxKind::binary_pair, 1, Raising::none, 3},
        two{256, 1, 2, {24, 1}, {24, 1}, CmuxKind::binary_pair};
    bool good = check<std::uint32_t>(one, 7, 4);
    good &= check<std::uint32_t>(one, 2147483647, 1);
    good &= check<std::uint32_t>(lanes, 1000, 4);
    good &= check<std::uint64_t>(two, 100, 6);
    good &= check<std::uint64_t>(two, 1000000, 5);
    return good ? EXIT_SUCCESS : EXIT_FAILURE;
}
