// What bench_blind_rotate.cu, bench_lanes.cu and bench_two_limbs.cu share: the layouts of one shape and kind of step on a device.
// Two steps of each are compared with reference::blind_rotate word for word; then whole rotations by random keys are timed, and
// their words compared with the first layout's.
//
//   bench_.. [check | profile] [SHAPE [KIND [batch ..]]]        "all" for any
#pragma once

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "cuda/rotation/rotation_layouts.cuh"
#include "device_array.hpp"
#include "host_key.hpp"
#include "reference/reference.hpp"
#include "two_limb_key.hpp"

namespace fhe_core::cuda {

// Tables and keys of a shape, as its kernels read them.
template <class ShapeOf>
struct ShapeTables {
    using Config = typename LayoutsOf<ShapeOf>::Throughput;
    static constexpr Shape shape = ShapeOf::value;
    static constexpr bool kTwoLimbs = shape.limb_count == 2;
    static constexpr int kLanes = kTwoLimbs ? shape.polynomial_size / 32 : 32;
    static constexpr std::uint64_t kModulus = kTwoLimbs ? std::uint64_t{kLimbPrimes[0]} * kLimbPrimes[1] : kLimbPrimes[0];
    using Word = std::conditional_t<kTwoLimbs, std::uint64_t, std::uint32_t>;

    static auto twiddles() {
        if constexpr (kTwoLimbs)
            return two_limb_tables<Config>();
        else
            return twiddle_table<typename Config::Ntt>();
    }
    static std::vector<std::int32_t> powers() {
        if constexpr (kTwoLimbs)
            return two_limb_powers<Config>();
        else
            return power_table<typename Config::Ntt>();
    }
    static std::vector<std::int32_t> key(const ParameterSet& params, const std::vector<std::uint64_t>& coefficients) {
        if constexpr (kTwoLimbs) return two_limb_key<Config>(params, coefficients);
        const std::vector<Vec4> vectors = [&] {
            if constexpr (kTwoLimbs)
                return std::vector<Vec4>{};
            else
                return kernel_key<OneLimbConfig<ShapeOf, OneLimbLayout<1, 1, 1, 1, 1>>>(coefficients);
        }();
        std::vector<std::int32_t> words(4 * vectors.size());
        std::memcpy(words.data(), vectors.data(), 4 * words.size());
        return words;
    }
    static std::vector<std::int32_t> random_key(const ParameterSet& params) {
        std::vector<std::int32_t> words(KeyLayout::make(params, KeyOrder::warp, kLanes).step_words() * params.step_count());
        std::uint64_t state = 1;
        for (std::int32_t& word : words) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            word = static_cast<std::int32_t>(state >> 38) - (1 << 25);
        }
        return words;
    }
};

// A batch of one key on the device.
template <class ShapeOf>
struct RotationRun {
    using Tables = ShapeTables<ShapeOf>;
    using Word = typename Tables::Word;
    static constexpr std::size_t kGlweWords = std::size_t(Tables::shape.component_count()) * Tables::shape.polynomial_size;

    static std::vector<Word> narrow(const std::vector<std::uint64_t>& words) { return {words.begin(), words.end()}; }

    ParameterSet params;
    int batch;
    std::vector<std::uint64_t> table;
    std::vector<std::uint32_t> switched;
    DeviceArray<Word> device_table, out;
    DeviceArray<std::uint32_t> device_switched;
    DeviceArray<std::int32_t> key, powers;
    DeviceArray<std::uint64_t> scratch;
    decltype(DeviceArray(Tables::twiddles())) twiddles;

    RotationRun(const ParameterSet& params, int batch, const std::vector<std::int32_t>& key_words)
        : params(params),
          batch(batch),
          table(random_words(params.polynomial_size(), Tables::kModulus, 2)),
          switched([&] {
              const auto wide = random_words(std::size_t(batch) * params.small_words(), 2 * params.polynomial_size(), 3);
              return std::vector<std::uint32_t>(wide.begin(), wide.end());
          }()),
          device_table(narrow(table)),
          out(batch * kGlweWords),
          device_switched(switched),
          key(key_words),
          powers(Tables::powers()),
          scratch(device_multiprocessors() * scratch_bytes<typename Tables::Config>() / 8),
          twiddles(Tables::twiddles()) {
        out.fill(0xff);
    }

    template <class Config>
    void launch(int count) const {
        BlindRotateView view{};
        view.switched = device_switched.data();
        view.key = key.data();
        view.twiddles = twiddles.data();
        view.powers = powers.data();
        view.tables = device_table.data();
        view.out = out.data();
        view.batch = count;
        view.steps = params.step_count();
        view.scratch = scratch.data();
        require(launch_persistent<Config>(view, device_multiprocessors(), nullptr), "launch");
    }
};

template <class ShapeOf, class Config>
void run_layout(const char* name, const std::vector<int>& batches, RotationRun<ShapeOf>& small, RotationRun<ShapeOf>& whole,
                const std::vector<std::pair<int, reference::Words>>& expected,
                std::vector<typename RotationRun<ShapeOf>::Word>& first) {
    constexpr std::size_t kGlweWords = RotationRun<ShapeOf>::kGlweWords;
    cudaFuncAttributes attributes;
    require(cudaFuncGetAttributes(&attributes, kernel_of(Config{})), "attributes");
    std::printf("  %-32s %2d warps %3d registers %3zu local %6zu shared", name, Config::kThreads / 32, attributes.numRegs,
                attributes.localSizeBytes, Config::kSharedBytes);
    small.out.fill(0xff);
    small.template launch<Config>(small.batch);
    require(cudaDeviceSynchronize(), "kernel");
    std::size_t wrong = 0, unwritten = 0;
    const auto got = small.out.host();
    for (const auto& [number, glwe] : expected)
        for (std::size_t i = 0; i < kGlweWords; ++i) wrong += got[number * kGlweWords + i] != glwe[i];
    for (const auto word : got) unwritten += word >= ShapeTables<ShapeOf>::kModulus;

    whole.template launch<Config>(whole.batch);
    require(cudaDeviceSynchronize(), "kernel");
    const auto all = whole.out.host();
    if (first.empty()) first = all;
    for (std::size_t i = 0; i < all.size(); ++i) wrong += all[i] != first[i];
    std::printf(": %zu wrong words, %zu unwritten", wrong, unwritten);
    for (const int batch : batches) {
        const float milliseconds = median_milliseconds(batch > 1000 ? 2 : 5, [&] { whole.template launch<Config>(batch); });
        std::printf("; %d: %.3f ms, %.0f /s", batch, milliseconds, ShapeOf::value.lane_count * batch / milliseconds * 1e3);
    }
    std::printf("\n");
    std::fflush(stdout);
}

template <class Layout>
constexpr bool is_team = requires { Layout::per_team; };

template <class ShapeOf, class Layout>
using ConfigOf = std::conditional_t<is_team<Layout>, TeamConfig<ShapeOf, Layout>, OneLimbConfig<ShapeOf, Layout>>;

template <class Layout>
std::string name_of() {
    const auto list = [](const char* unit, int units, int of_unit, const char* shared, int count) {
        return std::to_string(units) + unit + std::to_string(of_unit) + shared + std::to_string(count) + ", " +
               std::to_string(Layout::key_depth) + " ahead";
    };
    if constexpr (is_team<Layout>)
        return list(" teams of ", Layout::teams, Layout::per_team, ", keys ", Layout::keys) + (Layout::prefetched ? ", L2" : "");
    else
        return list(" groups of ", Layout::groups, Layout::per_warp, ", buffers ", Layout::buffers);
}

template <class ShapeOf, class... Others>
void run_shape(int lwe_dimension, const std::vector<int>& batches) {
    using Tables = ShapeTables<ShapeOf>;
    using Layouts = LayoutsOf<ShapeOf>;
    constexpr Shape shape = ShapeOf::value;
    constexpr int kCheckedBatch = 1100;
    const Rotation& rotation = rotation_of(shape.cmux);
    const ParameterSet checked = bench_parameters(shape, 2 * rotation.key_bits), params = bench_parameters(shape, lwe_dimension);
    const auto coefficients = random_words(bootstrap_key_words(checked), Tables::kModulus, 1);
    RotationRun<ShapeOf> small(checked, kCheckedBatch, Tables::key(checked, coefficients));
    RotationRun<ShapeOf> whole(params, *std::max_element(batches.begin(), batches.end()), Tables::random_key(params));
    std::vector<std::pair<int, reference::Words>> expected;
    const std::size_t size = checked.small_words();
    for (const int number : {0, 131, kCheckedBatch - 1})
        expected.emplace_back(
            number, reference::blind_rotate(checked, coefficients, {small.switched.data() + number * size, size}, small.table));
    std::printf("N=%d k=%d r=%d limbs %d rows %d, %s, n=%d, key %.1f MB\n", shape.polynomial_size, shape.glwe_dimension,
                shape.lane_count, shape.limb_count, params.row_count(), std::string(rotation.name).c_str(), lwe_dimension,
                whole.key.size() * 4e-6);
    std::vector<typename Tables::Word> first;
    run_layout<ShapeOf, typename Layouts::Throughput>("throughput", batches, small, whole, expected, first);
    if constexpr (!std::is_same_v<typename Layouts::Small, typename Layouts::Throughput>)
        run_layout<ShapeOf, typename Layouts::Small>("small", batches, small, whole, expected, first);
    run_layout<ShapeOf, typename Layouts::Latency>("latency", batches, small, whole, expected, first);
    (run_layout<ShapeOf, ConfigOf<ShapeOf, Others>>(name_of<Others>().c_str(), batches, small, whole, expected, first), ...);
}

// One launch of few steps for a profiler.
template <class ShapeOf>
void profile_shape() {
    using Tables = ShapeTables<ShapeOf>;
    const ParameterSet params = bench_parameters(ShapeOf::value, 24 * rotation_of(ShapeOf::value.cmux).key_bits);
    const RotationRun<ShapeOf> run(params, 2112, Tables::random_key(params));
    run.template launch<typename LayoutsOf<ShapeOf>::Throughput>(run.batch);
    require(cudaDeviceSynchronize(), "kernel");
}

struct BenchCase {
    std::string_view shape, kind;
    int lwe_dimension;
    void (*run)(int lwe_dimension, const std::vector<int>& batches);
    void (*profile)();
};

template <class ShapeOf, class... Others>
BenchCase case_of(std::string_view name, int lwe_dimension) {
    return {name, rotation_of(ShapeOf::value.cmux).name, lwe_dimension, run_shape<ShapeOf, Others...>, profile_shape<ShapeOf>};
}

// A shape with each kind of step; blocks need about a fifteenth more coefficients than `lwe_dimension` of pairs.
template <int... numbers>
void add_cases(std::vector<BenchCase>& cases, std::string_view name, int lwe_dimension) {
    const auto add = [&]<class ShapeOf>(ShapeOf) {
        const Rotation& rotation = rotation_of(ShapeOf::value.cmux);
        const int wanted = rotation.has_independent_bits() ? lwe_dimension : lwe_dimension * 16 / 15;
        cases.push_back(case_of<ShapeOf>(name, (wanted + rotation.key_bits - 1) / rotation.key_bits * rotation.key_bits));
    };
    add(KernelShape<numbers..., CmuxKind::binary_pair>{});
    add(KernelShape<numbers..., CmuxKind::block_4>{});
    add(KernelShape<numbers..., CmuxKind::block_6>{});
    add(KernelShape<numbers..., CmuxKind::block_8>{});
}

inline int bench_main(int count, char** arguments, const std::vector<BenchCase>& cases, const std::vector<int>& usual_batches) {
    std::vector<std::string> words(arguments + 1, arguments + count);
    const bool profiles = !words.empty() && words[0] == "profile";
    if (!words.empty() && words[0] == "check") return cudaFree(nullptr) == cudaSuccess ? EXIT_SUCCESS : EXIT_FAILURE;
    if (profiles) words.erase(words.begin());
    const auto is_wanted = [&](std::size_t at, std::string_view name) {
        return words.size() <= at || words[at] == "all" || words[at] == name;
    };
    std::vector<int> batches;
    for (std::size_t i = 2; i < words.size(); ++i) batches.push_back(std::atoi(words[i].c_str()));
    bool any = false;
    for (const BenchCase& one : cases) {
        if (!is_wanted(0, one.shape) || !is_wanted(1, one.kind)) continue;
        any = true;
        if (profiles)
            one.profile();
        else
            one.run(one.lwe_dimension, batches.empty() ? usual_batches : batches);
    }
    if (!any) std::fprintf(stderr, "no such shape and kind\n");
    return any ? EXIT_SUCCESS : EXIT_FAILURE;
}

}  // namespace fhe_core::cuda
