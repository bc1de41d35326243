// Standalone benchmark of the fused blind rotation: random key and inputs, a few ciphertexts checked word for word against
// reference::blind_rotate, then the median time per batch. run_device.sh builds and runs it.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <string>
#include <type_traits>

#include "cuda/blind_rotate_latency.cuh"
#include "device_array.hpp"
#include "fhe_core/reference.hpp"
#include "host_key.hpp"

namespace fhe_core::cuda {
namespace {

struct Problem {
    ParameterSet params;
    std::vector<std::uint64_t> key, table;
    std::vector<std::uint32_t> switched, tables;
    int batch;
};

Problem make_problem(Shape shape, int lwe_dimension, int batch) {
    Problem problem;
    problem.params = bench_parameters(shape, lwe_dimension);
    problem.batch = batch;
    const std::uint64_t q = problem.params.modulus();
    problem.key = random_words(problem.params.bootstrap_key_body_words() * (shape.glwe_dimension + 1), q, 1);
    problem.table = random_words(shape.polynomial_size, q, 2);
    problem.tables.assign(problem.table.begin(), problem.table.end());
    const auto wide = random_words(std::size_t(batch) * (lwe_dimension + 1), 2 * shape.polynomial_size, 3);
    problem.switched.assign(wide.begin(), wide.end());
    return problem;
}

using Expected = std::vector<std::pair<int, reference::Words>>;

Expected reference_outputs(const Problem& problem, std::vector<int> numbers) {
    std::vector<std::future<reference::Words>> pending;
    const std::size_t size = problem.params.lwe_dimension + 1;
    for (const int number : numbers)
        pending.push_back(std::async(std::launch::async, [&problem, number, size] {
            return reference::blind_rotate(problem.params, problem.key, {problem.switched.data() + number * size, size},
                                           problem.table);
        }));
    Expected expected;
    for (std::size_t i = 0; i < numbers.size(); ++i) expected.emplace_back(numbers[i], pending[i].get());
    return expected;
}

template <class Config, bool latency = false>
void run(const Problem& problem, const Expected& expected, const std::vector<Vec4>& host_key, const std::vector<int>& batches) {
    using Layout = typename Config::Layout;
    using Ntt = typename Config::Ntt;
    const int multiprocessors = device_multiprocessors();
    const std::size_t glwe_words = std::size_t(Config::k + 1) * Config::N;
    const DeviceArray<Vec4> key(host_key);
    const DeviceArray<TwiddlePair> twiddles(twiddle_table<Ntt>());
    const DeviceArray<std::int32_t> powers(power_table<Ntt>());
    const DeviceArray<std::uint32_t> switched(problem.switched), tables(problem.tables);
    DeviceArray<std::uint32_t> out(problem.batch * glwe_words);
    out.fill(0xff);
    BlindRotateView view{switched.data(),
                         key.data(),
                         twiddles.data(),
                         powers.data(),
                         tables.data(),
                         nullptr,
                         nullptr,
                         out.data(),
                         problem.batch,
                         problem.params.step_count(),
                         0};
    using Latency = LatencyConfig<Config>;
    using Launched = std::conditional_t<latency, Latency, Config>;
    const auto launch = launch_persistent<Launched>;
    cudaFuncAttributes attributes;
    require(cudaFuncGetAttributes(&attributes, kernel_of(Launched{})), "attributes");
    if (latency) std::printf("latency layout, %d warps; ", Latency::kWarps);
    std::printf(
        "groups %d x %d ciphertexts, %d buffers, %d digits at once, depth %d%s: %d registers, %zu local bytes, %zu shared\n",
        Layout::groups, Layout::per_warp, Layout::buffers, Layout::digits, Layout::key_depth, Layout::one_loop ? ", one loop" : "",
        attributes.numRegs, attributes.localSizeBytes, Launched::kSharedBytes);

    require(launch(view, multiprocessors, nullptr), "launch");
    require(cudaDeviceSynchronize(), "kernel");
    const std::vector<std::uint32_t> words = out.host();
    std::size_t wrong = 0, unwritten = 0;
    for (const auto& [number, glwe] : expected)
        for (std::size_t i = 0; i < glwe_words; ++i) wrong += words[number * glwe_words + i] != glwe[i];
    for (const std::uint32_t word : words) unwritten += word >= Ntt::M::p;
    std::printf("  %zu of %zu ciphertexts checked: %zu wrong words, %zu unwritten\n", expected.size(), words.size() / glwe_words,
                wrong, unwritten);

    for (const int batch : batches) {
        view.batch = batch;
        const float milliseconds =
            median_milliseconds(batch > 1000 ? 4 : 6, [&] { require(launch(view, multiprocessors, nullptr), "launch"); });
        std::printf("  batch %6d: %8.3f ms, %9.0f /s\n", batch, milliseconds, batch / milliseconds * 1e3);
    }
    std::fflush(stdout);
}

template <class ShapeOf, class... Layouts>
void compare(int lwe_dimension, const std::vector<int>& numbers, const std::vector<int>& batches) {
    constexpr Shape shape = ShapeOf::value;
    const int batch = *std::max_element(batches.begin(), batches.end());
    std::printf("N=%d k=%d digits %d+%d n=%d\n", shape.polynomial_size, shape.glwe_dimension, shape.mask_gadget.level_count,
                shape.body_gadget.level_count, lwe_dimension);
    const Problem problem = make_problem(shape, lwe_dimension, batch);
    const Expected expected = reference_outputs(problem, numbers);
    const std::vector<Vec4> key = kernel_key<PairConfig<ShapeOf, PairLayout<1, 1, 1, 1, 1>>>(problem.key);
    (run<PairConfig<ShapeOf, Layouts>>(problem, expected, key, batches), ...);
}

// The engine's layouts for few ciphertexts: where do they cross?
template <class ShapeOf, class Layout>
void cross(int lwe_dimension) {
    const std::vector<int> batches{1, 66, 132, 264, 396, 528};
    const Problem problem = make_problem(ShapeOf::value, lwe_dimension, 528);
    const Expected expected = reference_outputs(problem, {0, 131, 527});
    const std::vector<Vec4> key = kernel_key<PairConfig<ShapeOf, PairLayout<1, 1, 1, 1, 1>>>(problem.key);
    std::printf("N=%d k=%d %d rows n=%d\n", ShapeOf::value.polynomial_size, ShapeOf::value.glwe_dimension,
                PairConfig<ShapeOf, Layout>::kRows, lwe_dimension);
    run<PairConfig<ShapeOf, Layout>, true>(problem, expected, key, batches);
    run<PairConfig<ShapeOf, Layout>>(problem, expected, key, batches);
}

// One launch of each for a profiler.
template <class ShapeOf, class... Layouts>
void profile(int lwe_dimension, int batch) {
    const Problem problem = make_problem(ShapeOf::value, lwe_dimension, batch);
    const std::vector<Vec4> key = kernel_key<PairConfig<ShapeOf, PairLayout<1, 1, 1, 1, 1>>>(problem.key);
    (run<PairConfig<ShapeOf, Layouts>>(problem, {}, key, {}), ...);
}

}  // namespace
}  // namespace fhe_core::cuda

int main(int count, char** arguments) {
    using namespace fhe_core;
    using namespace fhe_core::cuda;
    constexpr CmuxKind pair = CmuxKind::binary_pair;
    using Gates = KernelShape<512, 2, 1, 8, 2, 8, 2, pair>;
    using One = PairLayout<4, 1, 2, 2, 2>;
    using OneSingle = PairLayout<4, 1, 2, 1, 2>;
    using OneBuffer = PairLayout<4, 1, 1, 2, 2>;
    using Five = PairLayout<5, 1, 1, 2, 2>;
    using Two = PairLayout<4, 2, 1, 2, 2>;
    using TwoSingle = PairLayout<4, 2, 1, 1, 2>;
    if (count > 1 && arguments[1] == std::string("check")) {  // does this build run here?
        require(cudaFree(nullptr), "device");
        return EXIT_SUCCESS;
    }
    if (count > 1 && arguments[1] == std::string("profile")) {
        profile<Gates, One, Two>(640, 4224);
        return EXIT_SUCCESS;
    }
    if (count > 1 &&
        arguments[1] == std::string("loops")) {  // the engine's shapes: one digit loop or two, digits together, buffers
        using OneLoop = PairLayout<4, 1, 1, 2, 2, true>;
        using OneLoopSingle = PairLayout<4, 1, 1, 1, 2, true>;
        using OneLoopBuffers = PairLayout<4, 1, 2, 2, 2, true>;
        using Three = PairLayout<4, 1, 1, 3, 2, true>;
        using ThreeBuffers = PairLayout<4, 1, 2, 3, 2, true>;
        using SeparateBuffers = PairLayout<4, 1, 2, 3, 2>;
        compare<KernelShape<512, 2, 1, 8, 2, 7, 2, pair>, OneBuffer, OneLoop, OneLoopBuffers>(640, {}, {528, 15840, 16384});
        compare<KernelShape<512, 2, 1, 6, 3, 5, 3, pair>, OneBuffer, OneLoopSingle, Three, ThreeBuffers>(670, {},
                                                                                                         {528, 15840, 16384});
        compare<KernelShape<512, 2, 1, 6, 3, 7, 2, pair>, OneBuffer, SeparateBuffers>(710, {}, {528, 15840, 16384});
        return EXIT_SUCCESS;
    }
    std::printf("the engine takes the latency layout up to %d ciphertexts per multiprocessor\n", kLatencyCiphertexts);
    cross<KernelShape<512, 2, 1, 8, 2, 7, 2, pair>, OneBuffer>(640);
    cross<KernelShape<512, 2, 1, 6, 3, 7, 2, pair>, OneBuffer>(710);
    cross<KernelShape<512, 2, 1, 6, 3, 5, 3, pair>, OneBuffer>(670);
    cross<KernelShape<1024, 1, 1, 5, 4, 5, 3, pair>, PairLayout<4, 1, 1, 1, 1>>(744);
    if (count > 1 && arguments[1] == std::string("cross")) return EXIT_SUCCESS;
    compare<Gates, One, OneSingle, OneBuffer, Five, Two, TwoSingle>(16, {0, 1, 31, 528, 1055, 1099}, {1100});
    compare<Gates, One, OneSingle, OneBuffer, Five, Two, TwoSingle>(640, {0, 529, 16383}, {1, 132, 528, 16384});
    compare<KernelShape<512, 2, 1, 6, 3, 7, 2, pair>, One, PairLayout<4, 1, 2, 3, 2>>(16, {0, 1, 1099}, {1100});
    compare<KernelShape<512, 2, 1, 6, 3, 6, 3, pair>, One, PairLayout<4, 1, 2, 3, 2>>(654, {}, {16384});
    compare<KernelShape<1024, 1, 1, 8, 2, 8, 2, pair>, PairLayout<8, 1, 1, 1, 1>, PairLayout<6, 1, 2, 1, 1>>(16, {0, 1, 1099},
                                                                                                             {1100});
    compare<KernelShape<1024, 1, 1, 5, 4, 4, 4, pair>, PairLayout<6, 1, 1, 1, 1>, PairLayout<4, 1, 1, 1, 1>>(640, {}, {16384});
    return EXIT_SUCCESS;
}
