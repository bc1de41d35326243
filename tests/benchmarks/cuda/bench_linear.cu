// The linear layer on words of the device: some words against sums in 128 bits, then times. Multiply-adds are rows * columns *
// words * items * slices of a word * slices of a weight. run_device.sh builds and runs it.
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>

#include "cuda/int8_gemm.hpp"
#include "cuda/linear.hpp"
#include "device_array.hpp"
#include "host_key.hpp"

namespace fhe_core::cuda {
namespace {

struct Case {
    const char* name;
    Shape shape;
    int rows, columns, samples, positions;
    std::int64_t largest;
    std::size_t scratch;  // bytes, 0: what the engine takes
};

template <class Word>
void fill_random(DeviceArray<Word>& words, std::uint64_t modulus) {
    std::vector<Word> host(words.size());
    std::uint64_t state = 1;
    for (Word& word : host) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        word = static_cast<Word>((state >> 5) % modulus);
    }
    require(cudaMemcpy(words.data(), host.data(), host.size() * sizeof(Word), cudaMemcpyHostToDevice), "copy to the device");
}

template <class Word>
void run(const Case& c) {
    const ParameterSet params = bench_parameters(c.shape, 4);
    const std::size_t words = params.large_dimension() + 1, items = std::size_t(c.samples) * c.positions;
    std::mt19937_64 generator(1);
    std::vector<std::int32_t> weights(std::size_t(c.rows) * c.columns), gather(std::size_t(c.positions) * c.columns);
    for (auto& weight : weights) weight = static_cast<std::int32_t>(std::int64_t(generator() % (2 * c.largest + 1)) - c.largest);
    for (auto& row : gather) row = static_cast<std::int32_t>(generator() % (c.columns + 1)) - 1;
    const SlicedWeights sliced = slice_weights(weights.data(), c.rows, c.columns);
    DeviceArray<Word> lwe(c.samples * c.columns * words), out(items * c.rows * words);
    fill_random(lwe, params.modulus());
    out.fill(0xff);
    const DeviceArray<std::int8_t> slices(sliced.slices);
    const DeviceArray<std::int32_t> device_gather(gather);
    const std::size_t scratch = c.scratch == 0 ? linear_scratch_bytes(params, sliced.padded_columns, items) : c.scratch;
    DeviceArray<std::int8_t> bytes(scratch);
    LinearPiece piece{};
    piece.weights = slices.data();
    piece.slice_count = sliced.slice_count;
    piece.rows = c.rows;
    piece.columns = c.columns;
    piece.padded_rows = sliced.padded_rows;
    piece.padded_columns = sliced.padded_columns;
    piece.lwe = lwe.data();
    piece.sample_rows = c.columns;
    piece.gather = c.positions == 1 ? nullptr : device_gather.data();
    piece.positions = c.positions;
    piece.out = out.data();
    piece.out_sample_rows = std::size_t(c.positions) * c.rows;
    piece.samples = c.samples;
    piece.bytes = bytes.data();
    piece.bytes_space = scratch;
    piece.multiprocessors = device_multiprocessors();
    launch_linear(params, piece, nullptr);
    require(cudaDeviceSynchronize(), "linear layer");

    const std::vector<Word> got = out.host(), in = lwe.host();
    const auto modulus = static_cast<__int128>(params.modulus());
    std::size_t wrong = 0, unwritten = 0;
    for (int i = 0; i < 20000; ++i) {
        const std::size_t at = i < 1000 ? got.size() - 1 - i : generator() % got.size(), word = at % words, r = at / words % c.rows,
                          p = at / words / c.rows % c.positions, s = at / words / c.rows / c.positions;
        __int128 total = 0;
        for (int column = 0; column < c.columns; ++column) {
            const int row = c.positions == 1 ? column : gather[p * c.columns + column];
            if (row >= 0)
                total += static_cast<__int128>(weights[r * c.columns + column]) * in[(s * c.columns + row) * words + word];
        }
        wrong += got[at] != static_cast<Word>((total % modulus + modulus) % modulus);
    }
    for (const Word word : got) unwritten += word >= params.modulus();
    const float milliseconds = median_milliseconds(10, [&] { launch_linear(params, piece, nullptr); });
    const double products = double(c.rows) * c.columns * words * items * word_slices(params) * sliced.slice_count;
    std::printf(
        "%s: %d x %d, %d samples x %d, %d slices, %zu MiB scratch: %zu wrong %zu unwritten; %.3f ms, %.1f T multiply-adds/s\n",
        c.name, c.rows, c.columns, c.samples, c.positions, sliced.slice_count, scratch >> 20, wrong, unwritten, milliseconds,
        products / milliseconds / 1e9);
    std::fflush(stdout);
}

// What cuBLAS makes of the same products, without cutting and recombining.
void run_cublas(int m, int n, int k) {
    const DeviceArray<std::int8_t> a(std::size_t(m) * k), b(std::size_t(n) * k);
    DeviceArray<std::int32_t> sums(std::size_t(m) * n);
    std::vector<std::int8_t> host(std::max(a.size(), b.size()));
    std::mt19937 generator(1);
    for (auto& byte : host) byte = static_cast<std::int8_t>(generator());
    require(cudaMemcpy(a.data(), host.data(), a.size(), cudaMemcpyHostToDevice), "copy");
    require(cudaMemcpy(b.data(), host.data(), b.size(), cudaMemcpyHostToDevice), "copy");
    const Int8Gemm gemm;
    const float milliseconds = median_milliseconds(10, [&] { gemm({a.data(), b.data(), sums.data(), m, n, k}, nullptr); });
    std::printf("%s: %d x %d x %d: %.3f ms, %.1f T multiply-adds/s\n", gemm_description().c_str(), m, n, k, milliseconds,
                double(m) * n * k / milliseconds / 1e9);
}

}  // namespace
}  // namespace fhe_core::cuda

int main(int count, char** arguments) {
    using namespace fhe_core;
    using namespace fhe_core::cuda;
    constexpr Shape gate{512, 2, 1, {8, 2}, {7, 2}, CmuxKind::binary_pair},
        lut4{2048, 1, 2, {24, 1}, {24, 1}, CmuxKind::binary_pair};
    constexpr std::size_t mib = std::size_t{1} << 20;
    if (count > 1 && arguments[1] == std::string("check")) return cudaFree(nullptr) == cudaSuccess ? EXIT_SUCCESS : EXIT_FAILURE;
    if (count > 1 && arguments[1] == std::string("profile")) {
        run<std::uint32_t>({"profile", gate, 1024, 1024, 16, 1, 127, 0});
        return EXIT_SUCCESS;
    }
    for (const std::size_t scratch : {0ul, 8 * mib, 16 * mib, 64 * mib, 300 * mib})
        run<std::uint32_t>({"one limb", gate, 1024, 1024, 64, 1, 127, scratch});
    run<std::uint32_t>({"one limb", gate, 1024, 1024, 64, 1, 30000, 0});
    run<std::uint32_t>({"one limb", gate, 1024, 1024, 1, 1, 127, 0});
    run<std::uint32_t>({"one limb", gate, 30, 784, 64, 1, 127, 0});
    run<std::uint32_t>({"one limb", gate, 30, 784, 1, 1, 127, 0});
    run<std::uint32_t>({"convolution", gate, 8, 784, 1, 196, 127, 0});
    run<std::uint32_t>({"convolution", gate, 64, 144, 16, 196, 127, 0});
    run<std::uint64_t>({"two limbs", lut4, 1024, 1024, 16, 1, 127, 0});
    run<std::uint64_t>({"two limbs", lut4, 30, 784, 16, 1, 127, 0});
    run_cublas(1024, 65536, 1024);
    run_cublas(1024, 16384, 1024);
    return EXIT_SUCCESS;
}
