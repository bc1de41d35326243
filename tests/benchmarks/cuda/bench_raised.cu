// Layouts of the raised blind rotation: words against reference::blind_rotate on few steps, then times on whole keys of random
// words. run_device.sh builds and runs it.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "cuda/rotation/blind_rotate_raised.cuh"
#include "device_array.hpp"
#include "host_key.hpp"
#include "reference/reference.hpp"
#include "two_limb_key.hpp"

namespace fhe_core::cuda {
namespace {

template <int N, int k, CmuxKind cmux, int groups, int warps>
using Raised = RaisedConfig<KernelShape<N, k, 1, 24, 1, 24, 1, cmux, 1, Raising::raised>, groups, warps>;
template <int N, int k, int groups, int warps>
using TwoLimbs = TwoLimbConfig<KernelShape<N, k, 2, 24, 1, 24, 1, CmuxKind::binary_pair>, groups, warps>;

template <class Config>
using Word = std::conditional_t<Config::kRaised, std::uint32_t, std::uint64_t>;

template <class Config>
const void* kernel_address() {
    if constexpr (Config::kRaised)
        return reinterpret_cast<const void*>(blind_rotate_raised_kernel<Config>);
    else
        return reinterpret_cast<const void*>(blind_rotate_two_limbs_kernel<Config>);
}

struct Tables {
    DeviceArray<PartTwiddles> twiddles;
    DeviceArray<std::int32_t> powers;
};

BlindRotateView view_of(const Tables& tables, int batch, int steps) {
    BlindRotateView view{};
    view.twiddles = tables.twiddles.data();
    view.powers = tables.powers.data();
    view.batch = batch;
    view.steps = steps;
    return view;
}

std::vector<std::uint32_t> narrow(const std::vector<std::uint64_t>& words) { return {words.begin(), words.end()}; }

template <class Config>
void check(const Tables& tables, int multiprocessors) {
    constexpr int N = Config::N, k = Config::k, n = 2 * Config::Step::kKeyBits, batch = 600;
    const ParameterSet params = bench_parameters(Config::shape, n);
    const auto key = random_words(std::size_t(2) * Config::kKeys * Config::kRows * (k + 1) * N, params.key_modulus(), 1);
    const auto table = random_words(N, params.modulus(), 2);
    const std::vector<std::uint32_t> switched = narrow(random_words(std::size_t(batch) * (n + 1), 2 * N, 3));
    const DeviceArray<std::int32_t> device_key(two_limb_key<Config>(params, key));
    const DeviceArray<Word<Config>> device_table(std::vector<Word<Config>>(table.begin(), table.end()));
    const DeviceArray<std::uint32_t> device_switched(switched);
    DeviceArray<Word<Config>> out(std::size_t(batch) * (k + 1) * N);
    out.fill(0xff);
    BlindRotateView view = view_of(tables, batch, 2);
    view.key = device_key.data();
    view.tables = device_table.data();
    view.switched = device_switched.data();
    view.out = out.data();
    require(launch_persistent<Config>(view, multiprocessors, nullptr), "launch");
    require(cudaDeviceSynchronize(), "kernel");
    const std::vector<Word<Config>> got = out.host();
    std::size_t wrong = 0, unwritten = 0;
    for (const int number : {0, 131, 599}) {
        const reference::Words expected =
            reference::blind_rotate(params, key, {switched.data() + number * (n + 1), std::size_t(n + 1)}, table);
        for (int i = 0; i < (k + 1) * N; ++i) wrong += got[std::size_t(number) * (k + 1) * N + i] != expected[i];
    }
    for (const Word<Config> word : got) unwritten += word >= params.modulus();
    std::printf("%zu wrong %zu unwritten", wrong, unwritten);
}

template <class Config>
void run(const char* what, int lwe_dimension, std::vector<int> batches) {
    constexpr int N = Config::N, k = Config::k;
    const int multiprocessors = device_multiprocessors();
    cudaFuncAttributes attributes;
    require(cudaFuncGetAttributes(&attributes, kernel_address<Config>()), "attributes");
    std::printf("%-40s N=%d k=%d n=%d %s: %d x %d warps, %d registers, %zu local, %zu shared: ", what, N, k, lwe_dimension,
                std::string(rotation_of(Config::shape.cmux).name).c_str(), Config::kGroups, Config::kWarpsPerGroup,
                attributes.numRegs, attributes.localSizeBytes, Config::kSharedBytes);
    const Tables tables{DeviceArray<PartTwiddles>(two_limb_tables<Config>()), DeviceArray<std::int32_t>(two_limb_powers<Config>())};
    check<Config>(tables, multiprocessors);
    const ParameterSet params = bench_parameters(Config::shape, lwe_dimension);
    const int most = *std::max_element(batches.begin(), batches.end()), steps = params.step_count();
    const std::size_t key_words = KeyLayout::make(params, KeyOrder::warp, 32 * Config::kParts).step_words() * steps;
    static std::vector<std::int32_t> key;
    std::uint64_t state = 1;
    for (std::size_t i = key.size(); i < key_words; ++i) {
        state = (state + i) * 6364136223846793005u + 1442695040888963407u;
        key.push_back(static_cast<std::int32_t>(state >> 40) - (1 << 23));
    }
    const DeviceArray<std::int32_t> device_key(key);
    const DeviceArray<std::uint32_t> switched(narrow(random_words(std::size_t(most) * (lwe_dimension + 1), 2 * N, 3)));
    const auto words = random_words(N, params.modulus(), 2);
    const DeviceArray<Word<Config>> table(std::vector<Word<Config>>(words.begin(), words.end())),
        out(std::size_t(most) * (k + 1) * N);
    BlindRotateView view = view_of(tables, most, steps);
    view.key = device_key.data();
    view.tables = table.data();
    view.switched = switched.data();
    view.out = out.data();
    for (const int batch : batches) {
        view.batch = batch;
        const float milliseconds = median_milliseconds(
            batch > 1000 ? 1 : 3, [&] { require(launch_persistent<Config>(view, multiprocessors, nullptr), "launch"); });
        std::printf("; %d: %.3f ms, %.0f /s", batch, milliseconds, batch / milliseconds * 1e3);
    }
    std::printf("\n");
    std::fflush(stdout);
}

}  // namespace
}  // namespace fhe_core::cuda

int main(int count, char** arguments) {
    using namespace fhe_core::cuda;
    using enum fhe_core::CmuxKind;
    const std::string mode = count > 1 ? arguments[1] : "";
    if (mode == "check") return cudaFree(nullptr) == cudaSuccess ? EXIT_SUCCESS : EXIT_FAILURE;
    const int pair = 834;
    const std::vector<int> all{1, 132, 264, 8448}, many{8448};
    if (mode == "profile") {
        run<Raised<2048, 1, binary_pair, 2, 2>>("raised", 40, {1056});
        return EXIT_SUCCESS;
    }
    run<TwoLimbs<2048, 1, 2, 2>>("two limbs", pair, all);
    run<Raised<2048, 1, binary_pair, 2, 2>>("raised", pair, all);
    run<Raised<2048, 1, binary_pair, 3, 1>>("raised", pair, many);
    run<Raised<2048, 1, binary_pair, 4, 1>>("raised", pair, many);
    run<Raised<2048, 1, binary_pair, 1, 4>>("raised", pair, {1, 132});
    run<Raised<2048, 1, block_4, 2, 2>>("raised", 868, many);
    run<TwoLimbs<1024, 2, 2, 3>>("two limbs", 786, many);
    run<Raised<1024, 2, binary_pair, 2, 3>>("raised", 786, many);
    run<Raised<1024, 2, binary_pair, 4, 1>>("raised", 786, many);
    run<Raised<4096, 1, binary_pair, 1, 2>>("raised", 914, {1056});
    return EXIT_SUCCESS;
}
