// Layouts of the rotation of NTRU accumulators on a device, with random keys: times, and words compared with the first layout's.
//
//   bench_ntru [check | profile] [batch ..]
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "cuda/rotation/blind_rotate_ntru.cuh"
#include "device_array.hpp"
#include "host_key.hpp"

namespace fhe_core::cuda {
namespace {

template <int base_log, int levels>
using NtruShape =
    KernelShape<2048, 1, 1, base_log, levels, base_log, levels, CmuxKind::binary_pair, 1, Raising::none, 1, Accumulator::ntru>;

template <class ShapeOf>
struct Run {
    static constexpr int N = ShapeOf::value.polynomial_size;
    ParameterSet params;
    int batch;
    DeviceArray<std::int32_t> key, powers;
    DeviceArray<std::uint32_t> switched, table, out;
    DeviceArray<TwiddlePair> twiddles;

    static std::vector<std::int32_t> random_key(const ParameterSet& params) {
        std::vector<std::int32_t> words(KeyLayout::make(params, KeyOrder::warp, N / 16).step_words() * params.key_step_count());
        std::uint64_t state = 1;
        for (std::int32_t& word : words) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            word = static_cast<std::int32_t>(state >> 38) - (1 << 25);
        }
        return words;
    }
    static std::vector<std::uint32_t> words(std::size_t count, std::uint64_t bound, std::uint64_t seed) {
        const std::vector<std::uint64_t> wide = random_words(count, bound, seed);
        return {wide.begin(), wide.end()};
    }
    static std::vector<TwiddlePair> tables() {
        std::vector<TwiddlePair> all = ntru_twiddles<NtruConfig<ShapeOf, 1, 16, 1, 1>>();
        const std::vector<TwiddlePair> eight = ntru_twiddles<NtruConfig<ShapeOf, 1, 8, 1, 1>>();
        all.insert(all.end(), eight.begin(), eight.end());
        return all;
    }

    Run(int lwe_dimension, int batch)
        : params(bench_parameters(ShapeOf::value, lwe_dimension)),
          batch(batch),
          key(random_key(params)),
          powers(plain_powers<0>(N)),
          switched(words(std::size_t(batch) * params.small_words(), 2 * N, 3)),
          table(words(N, kLimbPrimes[0], 2)),
          out(std::size_t(batch) * 2 * N),
          twiddles(tables()) {}

    template <class Config>
    void launch(int count) const {
        BlindRotateView view{};
        view.switched = switched.data();
        view.key = key.data();
        view.twiddles = twiddles.data();
        view.powers = powers.data();
        view.tables = table.data();
        view.out = out.data();
        view.batch = count;
        view.steps = params.step_count();
        require(launch_persistent<Config>(view, device_multiprocessors(), nullptr), "launch");
    }
};

template <class ShapeOf, class Config>
void time_layout(Run<ShapeOf>& run, const std::vector<int>& batches, std::vector<std::uint32_t>& first) {
    cudaFuncAttributes attributes;
    require(cudaFuncGetAttributes(&attributes, kernel_of(Config{})), "attributes");
    run.out.fill(0xff);
    run.template launch<Config>(run.batch);
    require(cudaDeviceSynchronize(), "kernel");
    const std::vector<std::uint32_t> all = run.out.host();
    if (first.empty()) first = all;
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < all.size(); ++i) wrong += all[i] != first[i] || all[i] >= kLimbPrimes[0];
    std::printf("  %d groups of %d points, %d together, %d ahead: %2d warps %3d registers %3zu local %6zu shared: %zu wrong",
                Config::kGroups, Config::P, Config::kTogether, Config::kDepth, Config::kThreads / 32, attributes.numRegs,
                attributes.localSizeBytes, Config::kSharedBytes, wrong);
    for (const int count : batches) {
        const float milliseconds = median_milliseconds(count > 1000 ? 2 : 5, [&] { run.template launch<Config>(count); });
        std::printf("; %d: %.3f ms, %.0f /s", count, milliseconds, count / milliseconds * 1e3);
    }
    std::printf("\n");
    std::fflush(stdout);
}

template <class ShapeOf, class... Configs>
void time_shape(int lwe_dimension, const std::vector<int>& batches) {
    Run<ShapeOf> run(lwe_dimension, batches.front());
    std::printf("N=2048, %d digits of %d bits, n=%d, key %.1f MB\n", run.params.row_count(), ShapeOf::value.mask_gadget.base_log,
                lwe_dimension, run.key.size() * 4e-6);
    std::vector<std::uint32_t> first;
    (time_layout<ShapeOf, Configs>(run, batches, first), ...);
}

}  // namespace
}  // namespace fhe_core::cuda

int main(int argc, char** argv) {
    using namespace fhe_core::cuda;
    using Gate = NtruShape<9, 2>;
    using Lookup = NtruShape<4, 6>;
    const bool checks = argc > 1 && std::strcmp(argv[1], "check") == 0, profiles = argc > 1 && std::strcmp(argv[1], "profile") == 0;
    if (profiles) {
        Run<Gate>(48, 2112).launch<NtruConfig<Gate, 3, 16, 2, 2>>(2112);
        Run<Lookup>(48, 2112).launch<NtruConfig<Lookup, 3, 16, 3, 2>>(2112);
        require(cudaDeviceSynchronize(), "kernel");
        return 0;
    }
    std::vector<int> batches;
    for (int i = 1 + checks; i < argc; ++i) batches.push_back(std::atoi(argv[i]));
    if (batches.empty()) batches = checks ? std::vector<int>{132} : std::vector<int>{16384, 132, 1};
    time_shape<Gate, NtruConfig<Gate, 3, 16, 2, 2>, NtruConfig<Gate, 4, 16, 2, 1>, NtruConfig<Gate, 4, 16, 1, 2>,
               NtruConfig<Gate, 3, 16, 2, 4>, NtruConfig<Gate, 2, 8, 2, 2>, NtruConfig<Gate, 1, 8, 2, 2>,
               NtruConfig<Gate, 1, 8, 2, 4>>(642, batches);
    time_shape<Lookup, NtruConfig<Lookup, 3, 16, 3, 2>, NtruConfig<Lookup, 3, 16, 2, 2>, NtruConfig<Lookup, 3, 16, 2, 3>,
               NtruConfig<Lookup, 2, 16, 3, 3>, NtruConfig<Lookup, 2, 8, 3, 2>, NtruConfig<Lookup, 1, 8, 3, 2>,
               NtruConfig<Lookup, 1, 8, 3, 6>>(862, batches);
    return 0;
}
