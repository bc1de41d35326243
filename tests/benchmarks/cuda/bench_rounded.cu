// Layouts of the blind rotation with rounded products: words against reference::blind_rotate on few steps, then times on whole keys
// of random words, beside the exact kernel of the same dimensions. run_device.sh builds and runs it.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "cuda/rotation/blind_rotate_two_limbs.cuh"
#include "device_array.hpp"
#include "reference/reference.hpp"
#include "rounded_key.hpp"

namespace fhe_core::cuda {
namespace {

constexpr int N = fft::kDegree;
template <int ciphertexts, int chunks_ahead, int steps_ahead>
using Rounded = RoundedConfig<KernelShape<N, 1, 1, 23, 1, 20, 1, CmuxKind::binary_pair, 1, Raising::rounded>, ciphertexts,
                              chunks_ahead, steps_ahead>;
using Exact = TwoLimbConfig<KernelShape<N, 1, 2, 24, 1, 24, 1, CmuxKind::binary_pair>, 2, 2>;

std::vector<std::uint32_t> narrow(const std::vector<std::uint64_t>& words) { return {words.begin(), words.end()}; }

template <class Launch>
void print_times(const std::vector<int>& batches, BlindRotateView& view, const Launch& launch) {
    for (const int batch : batches) {
        view.batch = batch;
        const float milliseconds = median_milliseconds(batch > 1000 ? 2 : 4, [&] { require(launch(), "launch"); });
        std::printf("; %d: %.3f ms, %.0f /s", batch, milliseconds, batch / milliseconds * 1e3);
    }
    std::printf("\n");
    std::fflush(stdout);
}

template <class Config>
void check(const DeviceArray<LaneRoots>& roots, int multiprocessors) {
    constexpr int n = 4, batch = 600;
    const ParameterSet params = bench_parameters(Config::shape, n);
    const auto key = random_words(params.bootstrap_key_body_words() * 2, params.key_modulus(), 1);
    const auto table = random_words(N, params.modulus(), 2);
    const std::vector<std::uint32_t> switched = narrow(random_words(std::size_t(batch) * (n + 1), 2 * N, 3));
    const DeviceArray<Complex> device_key(rounded_key(params, key));
    const DeviceArray<std::uint32_t> device_table(narrow(table)), device_switched(switched);
    DeviceArray<std::uint32_t> out(std::size_t(batch) * 2 * N);
    out.fill(0xff);
    BlindRotateView view{};
    view.twiddles = roots.data();
    view.key = device_key.data();
    view.tables = device_table.data();
    view.switched = device_switched.data();
    view.out = out.data();
    view.batch = batch;
    view.steps = params.step_count();
    require(launch_rounded<Config>(view, multiprocessors, nullptr), "launch");
    require(cudaDeviceSynchronize(), "kernel");
    const std::vector<std::uint32_t> got = out.host();
    std::size_t wrong = 0, unwritten = 0;
    for (const int number : {0, 131, 599}) {
        const reference::Words expected =
            reference::blind_rotate(params, key, {switched.data() + number * (n + 1), std::size_t(n + 1)}, table);
        for (int i = 0; i < 2 * N; ++i) wrong += got[std::size_t(number) * 2 * N + i] != expected[i];
    }
    for (const std::uint32_t word : got) unwritten += word >= params.modulus();
    std::printf(", %zu wrong %zu unwritten", wrong, unwritten);
}

template <class Config>
void run(int lwe_dimension, const std::vector<int>& batches) {
    const int multiprocessors = device_multiprocessors();
    cudaFuncAttributes attributes;
    require(cudaFuncGetAttributes(&attributes, blind_rotate_rounded_kernel<Config>), "attributes");
    std::printf("rounded n=%d: %d ciphertexts, %d chunks and %d steps ahead, %d registers, %zu local, %zu shared", lwe_dimension,
                Config::kPerUnit, Config::kAhead, Config::kStepsAhead, attributes.numRegs, attributes.localSizeBytes,
                Config::kSharedBytes);
    const DeviceArray<LaneRoots> roots(LaneRoots::make());
    check<Config>(roots, multiprocessors);
    const ParameterSet params = bench_parameters(Config::shape, lwe_dimension);
    const int most = *std::max_element(batches.begin(), batches.end());
    // A few polynomials again and again: what they hold does not matter to the time.
    const fft::Points points = fft::key_points(random_words(N, params.key_modulus(), 4), params.key_modulus());
    std::vector<Complex> key(Config::kStepWords * params.step_count());
    for (std::size_t i = 0; i < key.size(); ++i) key[i] = points[i % points.size()];
    const DeviceArray<Complex> device_key(key);
    const DeviceArray<std::uint32_t> switched(narrow(random_words(std::size_t(most) * (lwe_dimension + 1), 2 * N, 3)));
    const DeviceArray<std::uint32_t> table(narrow(random_words(N, params.modulus(), 2))), out(std::size_t(most) * 2 * N);
    BlindRotateView view{};
    view.twiddles = roots.data();
    view.key = device_key.data();
    view.tables = table.data();
    view.switched = switched.data();
    view.out = out.data();
    view.steps = params.step_count();
    print_times(batches, view, [&] { return launch_rounded<Config>(view, multiprocessors, nullptr); });
}

// The exact kernel of `lut4`; bench_two_limbs.cu checks its words.
void run_exact(int lwe_dimension, const std::vector<int>& batches) {
    const ParameterSet params = bench_parameters(Exact::shape, lwe_dimension);
    const int most = *std::max_element(batches.begin(), batches.end());
    std::vector<std::int32_t> words(KeyLayout::make(params, KeyOrder::warp, 32 * Exact::kParts).step_words() * params.step_count());
    std::uint64_t state = 1;
    for (std::int32_t& word : words) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        word = static_cast<std::int32_t>(state >> 38) - (1 << 25);
    }
    const DeviceArray<std::int32_t> key(words), powers(two_limb_powers<Exact>());
    const DeviceArray<PartTwiddles> twiddles(two_limb_tables<Exact>());
    const DeviceArray<std::uint64_t> table(std::vector<std::uint64_t>(N, 1)), out(std::size_t(most) * 2 * N);
    const DeviceArray<std::uint32_t> switched(narrow(random_words(std::size_t(most) * (lwe_dimension + 1), 2 * N, 3)));
    BlindRotateView view{};
    view.twiddles = twiddles.data();
    view.powers = powers.data();
    view.key = key.data();
    view.tables = table.data();
    view.switched = switched.data();
    view.out = out.data();
    view.steps = params.step_count();
    std::printf("exact n=%d, two limbs, %d x %d warps", lwe_dimension, Exact::kGroups, Exact::kWarpsPerGroup);
    print_times(batches, view, [&] { return launch_persistent<Exact>(view, device_multiprocessors(), nullptr); });
}

}  // namespace
}  // namespace fhe_core::cuda

int main(int count, char** arguments) {
    using namespace fhe_core::cuda;
    const std::string mode = count > 1 ? arguments[1] : "";
    if (mode == "check") return cudaFree(nullptr) == cudaSuccess ? EXIT_SUCCESS : EXIT_FAILURE;
    if (mode == "profile") {
        run<Rounded<4, 2, 2>>(40, {1056});
        return EXIT_SUCCESS;
    }
    const int pair = 836;
    const std::vector<int> all{1, 132, 528, 8448}, many{528, 8448};
    run_exact(pair, all);
    run<Rounded<4, 2, 2>>(pair, all);
    run<Rounded<4, 4, 2>>(pair, many);
    run<Rounded<4, 2, 1>>(pair, many);
    run<Rounded<2, 4, 2>>(pair, {1, 132, 264, 8448});
    run<Rounded<1, 2, 2>>(pair, {1, 132, 8448});
    return EXIT_SUCCESS;
}
