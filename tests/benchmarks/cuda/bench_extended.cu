// The blind rotation of extended tables, by number of parts, kind of step and layout. Words against reference::blind_rotate on few
// steps, and among the layouts of a shape on whole keys of random words; then times by batch. run_device.sh builds and runs it.
#include <cstdio>
#include <cstdlib>
#include <string>
#include <type_traits>

#ifdef CLOAKWORK_CLOCKS
namespace fhe_core::cuda {
constexpr int kMarks = 8;
__device__ unsigned long long step_clocks[16][kMarks];  // [warp of the first block]
}  // namespace fhe_core::cuda
#endif

#include "cuda/rotation/blind_rotate_extended.cuh"
#include "device_array.hpp"
#include "host_key.hpp"
#include "reference/reference.hpp"
#include "two_limb_key.hpp"

namespace fhe_core::cuda {
namespace {

template <int parts, CmuxKind cmux>
struct Bench {
    using ShapeOf = KernelShape<2048, 1, 2, 24, 1, 22, 1, cmux, parts>;
    using First = ExtendedConfig<ShapeOf>;
    static constexpr int N = First::N, kTable = First::kTableSize, kDistinct = 2, kBatch = 270;
    static constexpr int kShortSteps = 1, kShort = kShortSteps * rotation_of(cmux).key_bits;

    ParameterSet params, short_params;
    std::vector<std::uint64_t> table = random_words(kTable, bench_parameters(First::shape, kShort).modulus(), 2);
    DeviceArray<std::uint64_t> tables{table};
    DeviceArray<std::uint8_t> twiddles{extended_tables<First>()};
    DeviceArray<std::int32_t> powers{two_limb_powers<typename First::Transform>()};
    DeviceArray<std::int32_t> scratch{std::size_t(device_multiprocessors()) * First::kScratchWords};
    std::vector<std::uint64_t> short_coefficients;
    std::vector<std::uint32_t> short_switched;
    std::vector<reference::Words> expected;
    DeviceArray<std::int32_t> short_key, long_key;
    DeviceArray<std::uint32_t> short_words, long_words;
    DeviceArray<std::uint64_t> out{std::size_t(kBatch) * 2 * kTable};
    std::vector<std::uint64_t> first_layout;

    static std::vector<std::uint32_t> switched(int n, int distinct) {
        const auto wide = random_words(std::size_t(distinct) * (n + 1), 2 * kTable, 3);
        std::vector<std::uint32_t> words;
        for (int i = 0; i < kBatch; ++i)
            words.insert(words.end(), wide.begin() + i % distinct * (n + 1), wide.begin() + (i % distinct + 1) * (n + 1));
        return words;
    }
    static std::vector<std::int32_t> random_key(const ParameterSet& params) {
        std::vector<std::int32_t> key(First::kStepWords * params.step_count());
        std::uint64_t state = 1;
        for (std::int32_t& word : key) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            word = static_cast<std::int32_t>(state >> 38) - (1 << 25);
        }
        return key;
    }

    explicit Bench(int n)
        : params(bench_parameters(First::shape, n)),
          short_params(bench_parameters(First::shape, kShort)),
          short_coefficients(random_words(std::size_t(kShortSteps) * First::kKeys * 2 * 2 * N, short_params.modulus(), 1)),
          short_switched(switched(kShort, kDistinct)),
          short_key(two_limb_key<typename First::Transform>(short_params, short_coefficients, KeyOrder::extended)),
          long_key(random_key(params)),
          short_words(short_switched),
          long_words(switched(n, kBatch)) {
        for (int number = 0; number < kDistinct; ++number)
            expected.push_back(reference::blind_rotate(
                short_params, short_coefficients, {short_switched.data() + number * (kShort + 1), std::size_t(kShort + 1)}, table));
        std::printf("\nnu=%d, %s, n=%d, %d steps, key %zu MiB\n", parts, rotation_of(cmux).name.data(), n, params.step_count(),
                    long_key.size() >> 18);
    }

    BlindRotateView view(bool is_short, int batch) const {
        BlindRotateView view{};
        view.switched = is_short ? short_words.data() : long_words.data();
        view.key = is_short ? short_key.data() : long_key.data();
        view.twiddles = twiddles.data();
        view.powers = powers.data();
        view.tables = tables.data();
        view.scratch = scratch.data();
        view.out = out.data();
        view.batch = batch;
        view.steps = (is_short ? short_params : params).step_count();
        return view;
    }

    template <class Layout>
    void run(const char* name) {
        using Config = ExtendedConfig<ShapeOf, Layout>;
        cudaFuncAttributes attributes;
        require(cudaFuncGetAttributes(&attributes, kernel_of(Config{})), "attributes");
        int at_once = device_multiprocessors();
        if constexpr (!Config::kOneBlock)
            require(clusters_at_once(&at_once, kernel_of(Config{}), Config::kBlocks, Config::kThreads, Config::kSharedBytes),
                    "clusters");
        const int wave = at_once * Config::kCiphertexts;
        std::printf("%-28s %3d at once, %3d registers, %3zu local, %3zu KiB", name, at_once, attributes.numRegs,
                    attributes.localSizeBytes, Config::kSharedBytes >> 10);
        out.fill(0xff);
        require(launch_extended<Config>(view(true, kBatch), at_once, nullptr), "launch");
        require(cudaDeviceSynchronize(), "kernel");
        std::vector<std::uint64_t> words = out.host();
        std::size_t wrong = 0, other = 0;
        for (std::size_t i = 0; i < words.size(); ++i)
            wrong += words[i] != expected[i / (2 * kTable) % kDistinct][i % (2 * kTable)];
        out.fill(0xff);
        require(launch_extended<Config>(view(false, kBatch), at_once, nullptr), "launch");
        require(cudaDeviceSynchronize(), "kernel");
        words = out.host();
        if (first_layout.empty()) first_layout = words;
        for (std::size_t j = 0; j < words.size(); ++j) other += words[j] != first_layout[j];
        std::printf(", wrong %zu + %zu |", wrong, other);
        for (const int batch : {1, wave, 2 * wave}) {
            if (batch > kBatch) continue;
            const float milliseconds =
                median_milliseconds(3, [&] { require(launch_extended<Config>(view(false, batch), at_once, nullptr), "launch"); });
            std::printf(" %d: %.3f ms, %.0f/s;", batch, milliseconds, 1000 * batch / milliseconds);
        }
        std::printf("\n");
        std::fflush(stdout);
#ifdef CLOAKWORK_CLOCKS
        static const unsigned long long zeros[16][kMarks] = {};
        unsigned long long clocks[16][kMarks];
        require(cudaMemcpyToSymbol(step_clocks, zeros, sizeof zeros), "clocks");
        require(launch_extended<Config>(view(false, wave), at_once, nullptr), "launch");
        require(cudaMemcpyFromSymbol(clocks, step_clocks, sizeof clocks), "clocks");
        static const char* const names[kMarks] = {"rest", "digits", "forward", "wait", "products", "wait", "inverse", "added"};
        for (const int warp : {0, 5, 15}) {
            std::printf("    warp %2d, clocks of a step:", warp);
            for (int mark = 0; mark < kMarks; ++mark)
                std::printf(" %s %llu,", names[mark], clocks[warp][mark] / params.step_count());
            std::printf("\n");
        }
#endif
    }
};

}  // namespace
}  // namespace fhe_core::cuda

int main(int count, char** arguments) {
    using namespace fhe_core;
    using namespace fhe_core::cuda;
    if (count > 1 && arguments[1] == std::string("check"))  // does this build run here?
        return cudaFree(nullptr) == cudaSuccess ? EXIT_SUCCESS : EXIT_FAILURE;
    using enum ExtendedProduct;
#define LAYOUT(...) bench.run<ExtendedLayout<__VA_ARGS__>>(#__VA_ARGS__);
#if !defined(PART) || PART == 0
    {
        Bench<2, CmuxKind::block_6> bench(966);
        LAYOUT(rows_first, 2, 2)
        LAYOUT(rows_first, 1, 2)
        LAYOUT(y_on_digits, 2, 2)
        LAYOUT(y_on_digits, 1, 2)
    }
    {
        Bench<2, CmuxKind::block_4> bench(928);
        LAYOUT(rows_first, 2, 2)
    }
    {
        Bench<2, CmuxKind::block_8> bench(1008);
        LAYOUT(rows_first, 2, 2)
        LAYOUT(rows_first, 2, 2, 8)
        LAYOUT(rows_first, 1, 2)
        LAYOUT(y_on_digits, 2, 2)
    }
    {
        Bench<2, CmuxKind::binary_pair> bench(884);
        LAYOUT(rows_first, 2, 2)
    }
#endif
#if !defined(PART) || PART == 1
    {
        Bench<4, CmuxKind::block_6> bench(1008);
        LAYOUT(y_on_digits, 2, 2)
        LAYOUT(y_on_digits, 1, 2)
        LAYOUT(y_on_keys, 2, 2)
        LAYOUT(y_on_keys, 1, 2)
    }
    {
        Bench<4, CmuxKind::block_4> bench(972);
        LAYOUT(y_on_digits, 2, 2)
    }
    {
        Bench<4, CmuxKind::block_8> bench(1048);
        LAYOUT(y_on_digits, 2, 2)
        LAYOUT(y_on_digits, 2, 2, 8)
        LAYOUT(y_on_digits, 1, 2)
    }
    {
        Bench<4, CmuxKind::binary_pair> bench(940);
        LAYOUT(y_on_digits, 2, 2)
    }
#endif
#if !defined(PART) || PART == 2
    {
        Bench<8, CmuxKind::block_6> bench(1062);
        LAYOUT(y_on_digits, 1, 2)
        LAYOUT(y_on_keys, 1, 2)
        LAYOUT(y_on_keys, 2, 1)
    }
    {
        Bench<8, CmuxKind::block_8> bench(1096);
        LAYOUT(y_on_digits, 1, 2)
    }
    {
        Bench<8, CmuxKind::binary_pair> bench(918);
        LAYOUT(y_on_digits, 1, 2)
    }
#endif
#if !defined(PART) || PART == 3
    {
        Bench<16, CmuxKind::block_6> bench(1104);
        LAYOUT(y_on_keys, 1, 1)
    }
    {
        Bench<16, CmuxKind::block_4> bench(1068);
        LAYOUT(y_on_keys, 1, 1)
    }
    {
        Bench<16, CmuxKind::block_8> bench(1136);
        LAYOUT(y_on_keys, 1, 1)
        LAYOUT(y_on_keys, 1, 1, 4)
        LAYOUT(y_on_keys, 1, 1, 8)
        LAYOUT(y_on_keys, 1, 1, 12)
    }
    {
        Bench<16, CmuxKind::binary_pair> bench(960);
        LAYOUT(y_on_keys, 1, 1)
    }
    {
        Bench<32, CmuxKind::binary_pair> bench(978);
        LAYOUT(lanes, 1, 1)
    }
#endif
    return EXIT_SUCCESS;
}
