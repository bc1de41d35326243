// Layouts of the two-limb blind rotation: words against reference::blind_rotate on few steps, then times on whole keys of random
// words. run_device.sh builds and runs it.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "cuda/blind_rotate_two_limbs.cuh"
#include "device_array.hpp"
#include "fhe_core/reference.hpp"
#include "host_key.hpp"
#include "two_limb_key.hpp"

namespace fhe_core::cuda {
namespace {

template <int N, int k, int groups, int warps, bool keys_first = true>
using Layout = TwoLimbConfig<KernelShape<N, k, 2, 24, 1, 24, 1, CmuxKind::binary_pair>, groups, warps, keys_first>;

constexpr std::uint64_t kModulus = std::uint64_t{kLimbPrimes[0]} * kLimbPrimes[1];

struct Tables {
    DeviceArray<PartTwiddles> twiddles;
    DeviceArray<std::int32_t> powers;
};

template <class Config>
BlindRotateView view_of(const Tables& tables, int batch, int steps) {
    BlindRotateView view{};
    view.twiddles = tables.twiddles.data();
    view.powers = tables.powers.data();
    view.batch = batch;
    view.steps = steps;
    return view;
}

template <class Config>
void check(const Tables& tables, int multiprocessors) {
    constexpr int N = Config::N, k = Config::k, n = 6, batch = 600;
    const ParameterSet params = bench_parameters(Config::shape, n);
    const auto key = random_words(std::size_t(n / 2) * 3 * Config::kRows * (k + 1) * N, kModulus, 1);
    const auto table = random_words(N, kModulus, 2);
    const auto wide = random_words(std::size_t(batch) * (n + 1), 2 * N, 3);
    const std::vector<std::uint32_t> switched(wide.begin(), wide.end());
    const DeviceArray<std::int32_t> device_key(two_limb_key<Config>(params, key));
    const DeviceArray<std::uint64_t> device_table(table);
    const DeviceArray<std::uint32_t> device_switched(switched);
    DeviceArray<std::uint64_t> out(std::size_t(batch) * (k + 1) * N);
    out.fill(0xff);
    BlindRotateView view = view_of<Config>(tables, batch, n / 2);
    view.key = device_key.data();
    view.tables = device_table.data();
    view.switched = device_switched.data();
    view.out = out.data();
    require(launch_persistent<Config>(view, multiprocessors, nullptr), "launch");
    require(cudaDeviceSynchronize(), "kernel");
    const std::vector<std::uint64_t> got = out.host();
    std::size_t wrong = 0, unwritten = 0;
    for (const int number : {0, 131, 599}) {
        const reference::Words expected =
            reference::blind_rotate(params, key, {switched.data() + number * (n + 1), std::size_t(n + 1)}, table);
        for (int i = 0; i < (k + 1) * N; ++i) wrong += got[std::size_t(number) * (k + 1) * N + i] != expected[i];
    }
    for (const std::uint64_t word : got) unwritten += word >= kModulus;
    std::printf("%zu wrong %zu unwritten", wrong, unwritten);
}

template <class Config>
void run(int lwe_dimension, std::vector<int> batches) {
    constexpr int N = Config::N, k = Config::k;
    const int multiprocessors = device_multiprocessors();
    cudaFuncAttributes attributes;
    require(cudaFuncGetAttributes(&attributes, blind_rotate_two_limbs_kernel<Config>), "attributes");
    std::printf("N=%d k=%d n=%d: %d groups x %d warps%s, %d registers, %zu local bytes, %zu shared: ", N, k, lwe_dimension,
                Config::kGroups, Config::kWarpsPerGroup, Config::kKeysFirst ? ", keys first" : "", attributes.numRegs,
                attributes.localSizeBytes, Config::kSharedBytes);
    const Tables tables{DeviceArray<PartTwiddles>(two_limb_tables<Config>()), DeviceArray<std::int32_t>(two_limb_powers<Config>())};
    check<Config>(tables, multiprocessors);
    const ParameterSet params = bench_parameters(Config::shape, lwe_dimension);
    const int most = *std::max_element(batches.begin(), batches.end()), steps = lwe_dimension / 2;
    const std::size_t key_words = KeyLayout::make(params, KeyOrder::warp, 32 * Config::kParts).step_words() * steps;
    static std::vector<std::int32_t> key;
    key.resize(std::max(key.size(), key_words));
    std::uint64_t state = 1;
    for (std::int32_t& word : key) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        word = static_cast<std::int32_t>(state >> 38) - (1 << 25);
    }
    const auto wide = random_words(std::size_t(most) * (lwe_dimension + 1), 2 * N, 3);
    const DeviceArray<std::int32_t> device_key(key);
    const DeviceArray<std::uint64_t> table(random_words(N, kModulus, 2)), out(std::size_t(most) * (k + 1) * N);
    const DeviceArray<std::uint32_t> switched(std::vector<std::uint32_t>(wide.begin(), wide.end()));
    BlindRotateView view = view_of<Config>(tables, most, steps);
    view.key = device_key.data();
    view.tables = table.data();
    view.switched = switched.data();
    view.out = out.data();
    for (const int batch : batches) {
        view.batch = batch;
        const float milliseconds = median_milliseconds(
            batch > 1000 ? 2 : 5, [&] { require(launch_persistent<Config>(view, multiprocessors, nullptr), "launch"); });
        std::printf("; %d: %.3f ms, %.0f /s", batch, milliseconds, batch / milliseconds * 1e3);
    }
    std::printf("\n");
    std::fflush(stdout);
}

}  // namespace
}  // namespace fhe_core::cuda

int main(int count, char** arguments) {
    using namespace fhe_core::cuda;
    const std::string mode = count > 1 ? arguments[1] : "";
    if (mode == "check") return cudaFree(nullptr) == cudaSuccess ? EXIT_SUCCESS : EXIT_FAILURE;
    if (mode == "profile") {
        run<Layout<2048, 1, 2, 2>>(40, {1056});
        run<Layout<2048, 1, 1, 4>>(40, {132});
        return EXIT_SUCCESS;
    }
    const int lut4 = 834, lut3 = 786;
    run<Layout<2048, 1, 3, 1>>(lut4, {1, 132, 396, 16384});
    run<Layout<2048, 1, 2, 2>>(lut4, {1, 132, 264, 15840, 16384});
    run<Layout<2048, 1, 1, 4>>(lut4, {1, 132, 264});
    run<Layout<1024, 2, 4, 1>>(lut3, {1, 132, 528, 16384});
    run<Layout<1024, 2, 2, 3>>(lut3, {1, 132, 264, 16384});
    run<Layout<1024, 2, 1, 4>>(lut3, {1, 132, 264});
    run<Layout<4096, 1, 1, 1>>(914, {1, 132, 1056});
    run<Layout<4096, 1, 1, 2>>(914, {1, 132, 1056});
    return EXIT_SUCCESS;
}
