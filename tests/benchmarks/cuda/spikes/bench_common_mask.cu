// The common mask of common_mask.cuh on a device, on random keys of the shape of `gate_64`: words against
// common_mask_reference.hpp, then rotations of 1, 2 and 4 samples that share a mask beside the production kernel in the same run.
// run_spikes.sh builds and runs it.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <string>

#include "common_mask_reference.hpp"
#include "device_array.hpp"

namespace fhe_core::cuda {
namespace {

constexpr int kSamples = 16384;
using Gates = KernelShape<512, 2, 1, 8, 2, 7, 2, CmuxKind::binary_pair>;

template <class Config>
struct Tables {
    DeviceArray<TwiddlePair> twiddles{twiddle_table<typename Config::Ntt>()};
    DeviceArray<std::int32_t> powers{power_table<typename Config::Ntt>()};
};

std::vector<std::uint32_t> narrow(const std::vector<std::uint64_t>& words) { return {words.begin(), words.end()}; }

// Every lane of every ciphertext has its own of `r` tables.
template <class Config>
std::size_t wrong_words(const common_mask::Lines& lines, int multiprocessors) {
    constexpr int N = Config::N, C = Config::kComponents, r = Config::kLanes, steps = 4, batch = 1100;
    const std::uint64_t p = Config::M::p;
    const ParameterSet params = bench_parameters(Config::shape, 2 * steps);
    const auto key = random_words(std::size_t(steps) * Config::kKeys * Config::kRows * C * N, p, 1);
    const std::size_t size = lines[0].size() * steps + r;
    const auto switched = narrow(random_words(batch * size, 2 * N, 3));
    std::vector<std::vector<std::uint64_t>> tables;
    std::vector<std::uint32_t> table_words, index(std::size_t(batch) * r);
    for (int lane = 0; lane < r; ++lane) {
        tables.push_back(random_words(N, p, 10 + lane));
        table_words.insert(table_words.end(), tables[lane].begin(), tables[lane].end());
    }
    for (std::size_t i = 0; i < index.size(); ++i) index[i] = i % r;
    const Tables<Config> shared_tables;
    const DeviceArray<Vec4> device_key(common_mask::kernel_key<Config>(key));
    const DeviceArray<std::uint32_t> device_switched(switched), device_tables(table_words), device_index(index);
    DeviceArray<std::uint32_t> out(std::size_t(batch) * C * N);
    out.fill(0xff);
    BlindRotateView view{};
    view.switched = device_switched.data();
    view.key = device_key.data();
    view.twiddles = shared_tables.twiddles.data();
    view.powers = shared_tables.powers.data();
    view.tables = device_tables.data();
    view.table_index = device_index.data();
    view.out = out.data();
    view.batch = batch;
    view.steps = steps;
    require(launch_persistent<Config>(view, multiprocessors, nullptr), "launch");
    require(cudaDeviceSynchronize(), "kernel");
    const std::vector<std::uint32_t> got = out.host();
    std::vector<std::future<std::size_t>> counts;
    for (const int number : {0, 1, 395, 396, 527, 1099})
        counts.push_back(std::async(std::launch::async, [&, number] {
            const auto expected =
                common_mask::blind_rotate<Config>(params, lines, key, {switched.data() + number * size, size}, steps, tables);
            std::size_t wrong = 0;
            for (int i = 0; i < C * N; ++i) wrong += got[std::size_t(number) * C * N + i] != expected[i / N][i % N];
            return wrong;
        }));
    std::size_t wrong = 0;
    for (auto& count : counts) wrong += count.get();
    for (const std::uint32_t word : got) wrong += word >= p;  // or not written
    return wrong;
}

// Rotations of random words; `samples` of them are samples / lanes packed ciphertexts.
template <class Config>
void time_rotations(int lanes, int components, int rows, int lwe_dimension, std::vector<int> samples) {
    constexpr int N = Config::N;
    const int multiprocessors = device_multiprocessors(), steps = lwe_dimension / Config::Step::kKeyBits;
    const std::size_t most = *std::max_element(samples.begin(), samples.end()) / lanes;
    const Tables<Config> shared_tables;
    std::vector<Vec4> words(std::size_t(steps) * components * rows * Config::kKeys * N / 4);
    std::uint64_t state = 1;
    for (Vec4& four : words)
        for (std::int32_t& word : four.x) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            word = static_cast<std::int32_t>(state >> 38) - (1 << 25);
        }
    const DeviceArray<Vec4> key(words);
    const DeviceArray<std::uint32_t> table(narrow(random_words(N, Config::M::p, 2))), out(most * components * N),
        switched(narrow(random_words(most * (lwe_dimension + lanes), 2 * N, 3)));
    BlindRotateView view{};
    view.switched = switched.data();
    view.key = key.data();
    view.twiddles = shared_tables.twiddles.data();
    view.powers = shared_tables.powers.data();
    view.tables = table.data();
    view.out = out.data();
    view.steps = steps;
    for (const int count : samples) {
        view.batch = count / lanes;
        const float milliseconds = median_milliseconds(
            count > 2000 ? 3 : 5, [&] { require(launch_persistent<Config>(view, multiprocessors, nullptr), "launch"); });
        std::printf("  %d: %.3f ms, %.0f samples/s", count, milliseconds, count / milliseconds * 1e3);
    }
    std::printf("\n");
    std::fflush(stdout);
}

template <class Config>
void print_layout(const char* name, int lanes, int lwe_dimension, RotationKernel kernel, std::size_t key_bytes) {
    using Layout = typename Config::Layout;
    cudaFuncAttributes attributes;
    require(cudaFuncGetAttributes(&attributes, kernel), "attributes");
    std::printf("%-10s %d lanes n=%d, %d groups, %d buffers, depth %d: %3d registers, %2zu local, key %5.1f MB", name, lanes,
                lwe_dimension, Layout::groups, Layout::buffers, Layout::key_depth, attributes.numRegs, attributes.localSizeBytes,
                key_bytes * 1e-6);
}

void run_production(int lwe_dimension) {
    using Config = PairConfig<Gates, PairLayout<4, 1, 1, 2, 2, true>>;
    print_layout<Config>("production", 1, lwe_dimension, kernel_of(Config{}),
                         std::size_t(lwe_dimension / 2) * 3 * Config::kStepVectors * 16);
    time_rotations<Config>(1, 3, Config::kRows, lwe_dimension, {132, kSamples});
}

template <int lanes, class Layout, class Steps = RotationStep<CmuxKind::binary_pair>>
void run(const char* name, int lwe_dimension) {
    using Config = CommonMaskConfig<Gates, Layout, lanes, Steps>;
    const common_mask::Lines lines = Steps::kKeys == 3 ? common_mask::pair_lines() : common_mask::block_lines(Steps::kKeyBits);
    print_layout<Config>(name, lanes, lwe_dimension, kernel_of(Config{}),
                         std::size_t(lwe_dimension / Steps::kKeyBits) * Config::kComponents * Config::kStepVectors * 16);
    std::printf(", %zu wrong", wrong_words<Config>(lines, device_multiprocessors()));
    time_rotations<Config>(lanes, Config::kComponents, Config::kRows, lwe_dimension, {132 * lanes, kSamples});
}

}  // namespace
}  // namespace fhe_core::cuda

int main() {
    using namespace fhe_core::cuda;
    using Block4 = BlockRotationStep<4>;
    run_production(640);
    run<1, PairLayout<4, 1, 1, 2, 2, true>>("pairs", 640);
    run<2, PairLayout<3, 1, 1, 2, 2, true>>("pairs", 642);
    run<2, PairLayout<3, 1, 2, 2, 2, true>>("pairs", 642);
    run<2, PairLayout<4, 1, 1, 2, 2, true>>("pairs", 642);
    run<2, PairLayout<4, 1, 1, 2, 1, true>>("pairs", 642);
    run<4, PairLayout<2, 1, 1, 2, 2, true>>("pairs", 644);
    run<4, PairLayout<2, 1, 2, 2, 2, true>>("pairs", 644);
    run<1, PairLayout<4, 1, 1, 2, 1, true>, Block4>("blocks 4", 676);
    run<1, PairLayout<4, 1, 1, 2, 2, true>, Block4>("blocks 4", 676);
    run<2, PairLayout<3, 1, 1, 2, 2, true>, Block4>("blocks 4", 680);
    run<2, PairLayout<3, 1, 1, 2, 1, true>, Block4>("blocks 4", 680);
    run<2, PairLayout<3, 1, 2, 2, 1, true>, Block4>("blocks 4", 680);
    run<4, PairLayout<2, 1, 1, 2, 1, true>, Block4>("blocks 4", 680);
    run<4, PairLayout<2, 1, 2, 2, 1, true>, Block4>("blocks 4", 680);
    run_production(640);
    return EXIT_SUCCESS;
}
