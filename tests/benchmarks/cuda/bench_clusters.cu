// Layouts of the blind rotation for few ciphertexts: clusters of blocks beside the layouts of one multiprocessor. Words against
// reference::blind_rotate on few steps and against the first layout on whole keys of random words; then times by batch.
// run_device.sh builds and runs it (PART: one of its shapes). Compiled with CLOAKWORK_CLOCKS, against a copy of the kernel that
// adds up clocks in step_clocks, it prints where those of a step go.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <type_traits>

#ifdef CLOAKWORK_CLOCKS
namespace fhe_core::cuda {
constexpr int kMarks = 8;
__device__ unsigned long long step_clocks[8][kMarks];  // [block of the first cluster]
}  // namespace fhe_core::cuda
#endif

#include "cuda/rotation/blind_rotate_cluster.cuh"
#include "cuda/rotation/blind_rotate_latency.cuh"
#include "cuda/rotation/blind_rotate_two_limbs.cuh"
#include "device_array.hpp"
#include "host_key.hpp"
#include "reference/reference.hpp"
#include "two_limb_key.hpp"

namespace fhe_core::cuda {
namespace {

template <class Config>
constexpr bool kIsCluster = requires { Config::kBlocks; };

template <class ShapeOf>
struct Bench {
    static constexpr Shape shape = ShapeOf::value;
    static constexpr bool one_limb = shape.limb_count == 1;
    static constexpr int N = shape.polynomial_size, k = shape.glwe_dimension;
    using Word = std::conditional_t<one_limb, std::uint32_t, std::uint64_t>;
    using One = OneLimbConfig<ShapeOf, OneLimbLayout<1, 1, 1, 1, 1>>;
    using Two = TwoLimbConfig<ShapeOf, 1, 1>;

    template <class T>
    static std::vector<std::uint8_t> bytes_of(const std::vector<T>& values) {
        std::vector<std::uint8_t> bytes(values.size() * sizeof(T));
        std::memcpy(bytes.data(), values.data(), bytes.size());
        return bytes;
    }
    static std::vector<std::uint8_t> own_twiddles() {
        if constexpr (one_limb)
            return bytes_of(twiddle_table<typename One::Ntt>());
        else
            return bytes_of(two_limb_tables<Two>());
    }
    static std::vector<std::int32_t> all_powers() {
        std::vector<std::int32_t> powers = plain_powers<0>(N);
        const auto second = plain_powers<1>(N);
        if constexpr (!one_limb) powers.insert(powers.end(), second.begin(), second.end());
        return powers;
    }
    static std::vector<std::int32_t> checked_key(const ParameterSet& params, const std::vector<std::uint64_t>& key) {
        if constexpr (one_limb) {
            const std::vector<Vec4> vectors = kernel_key<One>(key);
            std::vector<std::int32_t> words(vectors.size() * 4);
            std::memcpy(words.data(), vectors.data(), words.size() * 4);
            return words;
        } else {
            return two_limb_key<Two>(params, key);
        }
    }

    DeviceArray<std::uint8_t> twiddles{own_twiddles()};
    DeviceArray<std::int32_t> powers{all_powers()};
    DeviceArray<Twiddle> plain0{plain_twiddles<0>(N, log2_of(N))}, plain1{plain_twiddles<1>(N, log2_of(N))};

    // A key of few steps, with its reference, and a long one of random words in the kernels' order.
    static constexpr int kShort = 6, kShortBatch = 70, kBatch = 132;
    int lwe_dimension;
    ParameterSet params, short_params;
    std::vector<std::uint64_t> table = random_words(N, bench_parameters(shape, 2).modulus(), 2);
    DeviceArray<Word> tables{std::vector<Word>(table.begin(), table.end())};
    std::vector<std::uint32_t> short_switched;
    std::vector<reference::Words> expected;
    DeviceArray<std::int32_t> short_key, long_key;
    DeviceArray<std::uint32_t> short_words, long_words;
    DeviceArray<Word> out{std::size_t(kBatch) * (k + 1) * N};
    std::vector<Word> first_layout;

    static std::vector<std::uint32_t> switched(int batch, int n) {
        const auto wide = random_words(std::size_t(batch) * (n + 1), 2 * N, 3);
        return {wide.begin(), wide.end()};
    }
    static std::vector<std::int32_t> random_key(const ParameterSet& params) {
        std::vector<std::int32_t> key(KeyLayout::make(params, KeyOrder::warp, one_limb ? 32 : N / 32).step_words() *
                                      params.step_count());
        std::uint64_t state = 1;
        for (std::int32_t& word : key) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            word = static_cast<std::int32_t>(state >> 38) - (1 << 25);
        }
        return key;
    }
    static std::vector<std::uint64_t> coefficients(const ParameterSet& params) {
        return random_words(std::size_t(params.step_count()) * params.keys_per_step() * params.row_count() * (k + 1) * N,
                            params.modulus(), 1);
    }

    explicit Bench(int n)
        : lwe_dimension(n),
          params(bench_parameters(shape, n)),
          short_params(bench_parameters(shape, kShort)),
          short_switched(switched(kShortBatch, kShort)),
          short_key(checked_key(short_params, coefficients(short_params))),
          long_key(random_key(params)),
          short_words(short_switched),
          long_words(switched(kBatch, n)) {
        const auto key = coefficients(short_params);
        for (const int number : {0, 1, kShortBatch - 1})
            expected.push_back(reference::blind_rotate(
                short_params, key, {short_switched.data() + number * (kShort + 1), std::size_t(kShort + 1)}, table));
        std::printf("\nN=%d k=%d, %d limbs, %d rows, n=%d, key %zu MiB\n", N, k, shape.limb_count, params.row_count(), n,
                    long_key.size() >> 18);
    }

    BlindRotateView view(bool is_short, int batch) const {
        BlindRotateView view{};
        view.switched = is_short ? short_words.data() : long_words.data();
        view.key = is_short ? short_key.data() : long_key.data();
        view.twiddles = twiddles.data();
        view.plain_twiddles[0] = plain0.data();
        view.plain_twiddles[1] = plain1.data();
        view.powers = powers.data();
        view.tables = tables.data();
        view.out = out.data();
        view.batch = batch;
        view.steps = (is_short ? short_params : params).step_count();
        return view;
    }

    template <class Config>
    static cudaError_t launch(const BlindRotateView& view, int at_once) {
        if constexpr (kIsCluster<Config>)
            return launch_clusters<Config>(view, at_once, nullptr);
        else
            return launch_persistent<Config>(view, at_once, nullptr);
    }

    template <class Config>
    void run(const char* name, const std::vector<int>& batches) {
        cudaFuncAttributes attributes;
        require(cudaFuncGetAttributes(&attributes, kernel_of(Config{})), "attributes");
        int at_once = device_multiprocessors();
        if constexpr (kIsCluster<Config>)
            require(clusters_at_once(&at_once, kernel_of(Config{}), Config::kBlocks, Config::kThreads, Config::kSharedBytes),
                    "clusters");
        std::printf("%-34s %3d at once, %2d warps, %3d registers, %3zu local, %3zu KiB", name, at_once, Config::kThreads / 32,
                    attributes.numRegs, attributes.localSizeBytes, Config::kSharedBytes >> 10);
        out.fill(0xff);
        require(launch<Config>(view(true, kShortBatch), at_once), "launch");
        require(cudaDeviceSynchronize(), "kernel");
        std::vector<Word> words = out.host();
        std::size_t wrong = 0, other = 0, i = 0;
        for (const int number : {0, 1, kShortBatch - 1}) {
            for (int j = 0; j < (k + 1) * N; ++j) wrong += words[std::size_t(number) * (k + 1) * N + j] != expected[i][j];
            ++i;
        }
        out.fill(0xff);
        require(launch<Config>(view(false, kBatch), at_once), "launch");
        require(cudaDeviceSynchronize(), "kernel");
        words = out.host();
        if (first_layout.empty()) first_layout = words;
        for (std::size_t j = 0; j < words.size(); ++j) other += words[j] != first_layout[j];
        std::printf(", wrong %zu + %zu |", wrong, other);
        for (const int batch : batches) {
            const float milliseconds =
                median_milliseconds(5, [&] { require(launch<Config>(view(false, batch), at_once), "launch"); });
            std::printf(" %d: %.3f", batch, milliseconds);
        }
        std::printf("\n");
        std::fflush(stdout);
#ifdef CLOAKWORK_CLOCKS
        if constexpr (kIsCluster<Config>) {
            static const unsigned long long zeros[8][kMarks] = {};
            unsigned long long clocks[8][kMarks];
            require(cudaMemcpyToSymbol(step_clocks, zeros, sizeof zeros), "clocks");
            require(launch<Config>(view(false, 1), at_once), "launch");
            require(cudaMemcpyFromSymbol(clocks, step_clocks, sizeof clocks), "clocks");
            for (int block = 0; block < Config::kBlocks; ++block) {
                std::printf("    block %d: clocks of a step:", block);
                static const char* const names[kMarks] = {"rest",    "rows sent", "keys combined", "rows received",
                                                          "product", "added",     "residues sent", "residues received"};
                for (int mark = 0; mark < kMarks; ++mark)
                    std::printf(" %s %llu,", names[mark], clocks[block][mark] / params.step_count());
                std::printf("\n");
            }
        }
#endif
    }
};

template <int... numbers>
using Pair = KernelShape<numbers..., CmuxKind::binary_pair>;

}  // namespace
}  // namespace fhe_core::cuda

int main(int count, char** arguments) {
    using namespace fhe_core::cuda;
    if (count > 1 && arguments[1] == std::string("check"))  // does this build run here?
        return cudaFree(nullptr) == cudaSuccess ? EXIT_SUCCESS : EXIT_FAILURE;
    const std::vector<int> batches{1, 8, 16, 22, 30, 39, 44, 66, 79};
#define LAYOUT(Shape, ...) bench.run<ClusterConfig<Shape, ClusterLayout<__VA_ARGS__>>>("clusters " #__VA_ARGS__, batches);
#define ONE_LIMB(Shape) bench.run<LatencyConfig<OneLimbConfig<Shape, OneLimbLayout<1, 1, 1, 1, 1>>>>("latency", batches);
#define TWO_LIMBS(Shape, warps) bench.run<TwoLimbConfig<Shape, 1, warps>>("latency", batches);
#if !defined(PART) || PART == 0
    {
        using Gate64 = Pair<512, 2, 1, 8, 2, 7, 2>;
        Bench<Gate64> bench(640);
        ONE_LIMB(Gate64)
        LAYOUT(Gate64, 4, true, 6)
        LAYOUT(Gate64, 4, true, 6, 4)
        LAYOUT(Gate64, 8, true, 6, 2)
    }
#endif
#if !defined(PART) || PART == 1
    {
        using Nn2 = Pair<512, 2, 1, 6, 3, 5, 3>;
        Bench<Nn2> bench(670);
        LAYOUT(Nn2, 4, true, 9)
        LAYOUT(Nn2, 4, true, 9, 4)
        LAYOUT(Nn2, 8, true, 9, 2)
    }
    {
        using Lut2_64 = Pair<512, 2, 1, 6, 3, 7, 2>;
        Bench<Lut2_64> bench(710);
        LAYOUT(Lut2_64, 4, true, 8)
        LAYOUT(Lut2_64, 4, true, 8, 4)
        LAYOUT(Lut2_64, 8, true, 8, 2)
    }
#endif
#if !defined(PART) || PART == 2
    {
        using Lut2 = Pair<512, 2, 1, 5, 4, 5, 3>;
        Bench<Lut2> bench(742);
        LAYOUT(Lut2, 4, false, 11)
        LAYOUT(Lut2, 4, true, 6, 4)
    }
    {
        using Lut3_64 = Pair<1024, 1, 1, 5, 4, 5, 3>;
        Bench<Lut3_64> bench(744);
        LAYOUT(Lut3_64, 8, false, 7)
        LAYOUT(Lut3_64, 8, true, 7, 4)
    }
#endif
#if !defined(PART) || PART == 3
    {
        using Lut4 = Pair<2048, 1, 2, 24, 1, 24, 1>;
        Bench<Lut4> bench(834);
        TWO_LIMBS(Lut4, 4)
        LAYOUT(Lut4, 8, true, 4)
        LAYOUT(Lut4, 16, true, 8)
        LAYOUT(Lut4, 8, true, 4, 4)
        LAYOUT(Lut4, 16, true, 4, 4)
        LAYOUT(Lut4, 16, true, 8, 2)
    }
#endif
#if !defined(PART) || PART == 4
    {
        using Lut3 = Pair<1024, 2, 2, 24, 1, 24, 1>;
        Bench<Lut3> bench(786);
        TWO_LIMBS(Lut3, 4)
        LAYOUT(Lut3, 8, true, 6)
        LAYOUT(Lut3, 8, true, 6, 4)
        LAYOUT(Lut3, 8, true, 6, 2)
        LAYOUT(Lut3, 16, true, 6, 2)
    }
    {
        using Lut5 = Pair<4096, 1, 2, 24, 1, 24, 1>;
        Bench<Lut5> bench(914);
        LAYOUT(Lut5, 16, true, 8)
        LAYOUT(Lut5, 16, true, 4, 4)
    }
#endif
    return EXIT_SUCCESS;
}
