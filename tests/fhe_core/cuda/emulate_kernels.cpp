// The rotation kernels as they are, in the layouts that the engine takes (rotation_layouts.cuh) and others, every CUDA thread a
// fibre (cuda/emulation/threads.hpp), against reference::blind_rotate and sample_extract. Needs no GPU: test_emulated_kernels.py
// runs it.
#include "cuda/rotation/rotation_layouts.cuh"
#include "host_key.hpp"
#include "reference/reference.hpp"
#include "two_limb_key.hpp"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace fhe_core::cuda {
namespace {

void require(cudaError_t status) {
    if (status == cudaSuccess) return;
    std::printf("launch: %s\n", cudaGetErrorString(status));
    std::exit(EXIT_FAILURE);
}

// One limb: all words of whole GLWE ciphertexts, then extracted ones.
template <class KernelShapeOf, class Config>
bool check_one_limb(const char* layout, int lwe_dimension, std::uint64_t seed, std::size_t batch = 5, int blocks = 2) {
    using M = typename Config::M;
    constexpr int N = Config::N, kWords = Config::kComponents * N, kLweWords = Config::k * N + Config::kLanes;
    constexpr std::size_t kTables = 2;
    const ParameterSet params = bench_parameters(Config::shape, lwe_dimension);
    const auto key = random_words(bootstrap_key_words(params), M::p, seed);
    const auto tables = random_words(kTables * N, M::p, seed + 1);
    const std::size_t size = params.small_words();
    const auto wide = random_words(batch * size, 2 * N, seed + 2);
    const std::vector<std::uint32_t> switched(wide.begin(), wide.end()), narrow_tables(tables.begin(), tables.end());
    const std::vector<std::uint32_t> table_index{1, 0, 0, 1, 1}, coefficients{0, 5, N - 1};

    const auto device_key = kernel_key<OneLimbConfig<KernelShapeOf, OneLimbLayout<1, 1, 1, 1, 1>>>(key);
    const auto twiddles = twiddle_table<typename Config::Ntt>();
    const auto powers = power_table<typename Config::Ntt>();
    std::vector<std::uint32_t> glwe(batch * kWords, 0xdeadbeef), lwe(batch * coefficients.size() * kLweWords, 0xdeadbeef);
    BlindRotateView view{};
    view.switched = switched.data();
    view.key = device_key.data();
    view.twiddles = twiddles.data();
    view.powers = powers.data();
    view.tables = narrow_tables.data();
    view.table_index = table_index.data();
    view.out = glwe.data();
    view.batch = batch;
    view.steps = params.step_count();
    require(launch_persistent<Config>(view, blocks, nullptr));
    view.coefficients = coefficients.data();
    view.coefficient_count = static_cast<int>(coefficients.size());
    view.out = lwe.data();
    require(launch_persistent<Config>(view, blocks, nullptr));

    int wrong = 0, wrong_extracted = 0;
    for (std::size_t item = 0; item < batch; ++item) {
        const auto* first = switched.data() + item * size;
        const auto* table = tables.data() + table_index[item] * N;
        const reference::Words expected =
            reference::blind_rotate(params, key, reference::SmallWords(first, first + size), reference::Words(table, table + N));
        for (int i = 0; i < kWords; ++i) wrong += glwe[item * kWords + i] != expected[i];
        for (std::size_t j = 0; j < coefficients.size(); ++j) {
            const reference::Words sample = reference::sample_extract(params, expected, coefficients[j]);
            for (int i = 0; i < kLweWords; ++i)
                wrong_extracted += lwe[(item * coefficients.size() + j) * kLweWords + i] != sample[i];
        }
    }
    std::printf("N=%d k=%d r=%d %d rows, %s, %s: %d wrong words, %d extracted\n", N, Config::k, Config::kLanes, Config::kRows,
                std::string(params.rotation().name).c_str(), layout, wrong, wrong_extracted);
    return wrong == 0 && wrong_extracted == 0;
}

// Two limbs, or raised.
template <class Config>
bool check_two_limbs(int lwe_dimension, std::uint64_t seed) {
    using Word = std::conditional_t<Config::kRaised, std::uint32_t, std::uint64_t>;
    constexpr int N = Config::N, k = Config::k;
    constexpr std::size_t kBatch = Config::kCiphertexts + 1;
    const ParameterSet params = bench_parameters(Config::shape, lwe_dimension);
    const auto key = random_words(bootstrap_key_words(params), params.key_modulus(), seed);
    const auto table = random_words(N, params.modulus(), seed + 1);
    const auto wide = random_words(kBatch * (lwe_dimension + 1), 2 * N, seed + 2);
    const std::vector<std::uint32_t> switched(wide.begin(), wide.end()), coefficients{0, 5, N - 1};
    const std::vector<Word> device_table(table.begin(), table.end());
    const std::vector<std::int32_t> key_words = two_limb_key<Config>(params, key);
    std::vector<Vec4> device_key(key_words.size() / 4);
    std::memcpy(device_key.data(), key_words.data(), key_words.size() * 4);
    const auto tables = two_limb_tables<Config>();
    const auto powers = two_limb_powers<Config>();
    std::vector<Word> lwe(kBatch * coefficients.size() * (k * N + 1), Word(0xdeadbeef));
    BlindRotateView view{};
    view.switched = switched.data();
    view.key = device_key.data();
    view.twiddles = tables.data();
    view.powers = powers.data();
    view.tables = device_table.data();
    view.out = lwe.data();
    view.batch = kBatch;
    view.steps = params.step_count();
    view.coefficients = coefficients.data();
    view.coefficient_count = static_cast<int>(coefficients.size());
    std::vector<std::int64_t> scratch(scratch_bytes<Config>() / 8, -1);
    view.scratch = scratch.data();
    require(launch_persistent<Config>(view, 1, nullptr));

    int wrong = 0;
    for (std::size_t item = 0; item < kBatch; ++item) {
        const auto* first = switched.data() + item * (lwe_dimension + 1);
        const reference::Words expected =
            reference::blind_rotate(params, key, reference::SmallWords(first, first + lwe_dimension + 1), table);
        for (std::size_t j = 0; j < coefficients.size(); ++j) {
            const reference::Words sample = reference::sample_extract(params, expected, coefficients[j]);
            for (int i = 0; i <= k * N; ++i) wrong += lwe[(item * coefficients.size() + j) * (k * N + 1) + i] != sample[i];
        }
    }
    std::printf("N=%d k=%d %d digits, %s, %s, %d ciphertexts, %d warps: %d wrong words\n", N, k, Config::kRows,
                Config::kRaised ? "raised" : "two limbs", std::string(params.rotation().name).c_str(), Config::kCiphertexts,
                Config::kThreads / 32, wrong);
    return wrong == 0;
}

template <class Shape>
struct OneLimbOf {
    static bool latency(int lwe_dimension, std::uint64_t seed) {
        return check_one_limb<Shape, LatencyConfig<OneLimbConfig<Shape, OneLimbLayout<1, 1, 1, 1, 1>>>>("latency", lwe_dimension,
                                                                                                        seed, 2, 1);
    }
    template <class Layout>
    static bool groups(int lwe_dimension, std::uint64_t seed) {
        return check_one_limb<Shape, OneLimbConfig<Shape, Layout>>("groups", lwe_dimension, seed);
    }
    template <class Layout>
    static bool teams(int lwe_dimension, std::uint64_t seed) {
        return check_one_limb<Shape, TeamConfig<Shape, Layout>>("teams", lwe_dimension, seed);
    }
    static bool chosen(int lwe_dimension, std::uint64_t seed) {
        return check_one_limb<Shape, typename LayoutsOf<Shape>::Throughput>("as chosen", lwe_dimension, seed);
    }
};
template <CmuxKind cmux, int... numbers>
using OneLimb = OneLimbOf<KernelShape<numbers..., cmux>>;
template <int lanes, CmuxKind cmux, int... numbers>
using Lanes = OneLimbOf<KernelShape<numbers..., cmux, 1, Raising::none, lanes>>;

template <CmuxKind cmux, int N, int k, Raising raising = Raising::none, int base_log = 24, int levels = 1>
struct TwoLimbs {
    using Shape = KernelShape<N, k, raising == Raising::raised ? 1 : 2, base_log, levels, base_log, levels, cmux, 1, raising>;
    using Layouts = LayoutsOf<Shape>;

    static bool chosen(int lwe_dimension, std::uint64_t seed) {
        return check_two_limbs<typename Layouts::Throughput>(lwe_dimension, seed);
    }
    static bool small(int lwe_dimension, std::uint64_t seed) {
        return check_two_limbs<typename Layouts::Small>(lwe_dimension, seed);
    }
    static bool latency(int lwe_dimension, std::uint64_t seed) {
        return check_two_limbs<typename Layouts::Latency>(lwe_dimension, seed);
    }
};

}  // namespace
}  // namespace fhe_core::cuda

int main() {
    using namespace fhe_core::cuda;
    using enum fhe_core::CmuxKind;
    using enum fhe_core::Raising;
    bool good = OneLimb<binary_pair, 512, 2, 1, 8, 2, 7, 2>::latency(6, 1);
    good &= OneLimb<binary_pair, 1024, 1, 1, 5, 4, 5, 3>::latency(4, 6);
    good &= OneLimb<binary_pair, 512, 2, 1, 8, 2, 7, 2>::groups<OneLimbLayout<2, 1, 1, 2, 2>>(6, 1);
    good &= OneLimb<binary_pair, 512, 2, 1, 6, 3, 5, 3>::groups<OneLimbLayout<2, 1, 2, 3, 2, true>>(6, 3);
    good &= OneLimb<block_3, 512, 2, 1, 8, 2, 7, 2>::chosen(6, 11);
    good &= OneLimb<block_8, 512, 2, 1, 6, 3, 7, 2>::chosen(16, 16);
    good &= OneLimb<binary_pair, 1024, 1, 1, 5, 4, 5, 3>::chosen(4, 18);
    good &= OneLimb<block_8, 1024, 1, 1, 5, 4, 5, 3>::chosen(16, 19);
    good &= Lanes<2, binary_pair, 512, 2, 1, 8, 2, 7, 2>::chosen(6, 42);
    good &= Lanes<3, binary_pair, 256, 1, 1, 5, 4, 5, 3>::chosen(4, 47);
    good &= Lanes<2, block_8, 512, 2, 1, 8, 2, 7, 2>::chosen(16, 50);
    good &= Lanes<2, block_8, 512, 2, 1, 8, 2, 7, 2>::latency(16, 51);
    good &= TwoLimbs<binary_pair, 2048, 1>::chosen(4, 21);
    good &= TwoLimbs<binary_pair, 2048, 1>::latency(4, 23);
    good &= TwoLimbs<binary_pair, 1024, 2>::chosen(4, 24);
    good &= TwoLimbs<binary_pair, 4096, 1>::chosen(2, 26);
    good &= TwoLimbs<block_4, 2048, 1>::chosen(8, 28);
    good &= TwoLimbs<binary_pair, 2048, 1, raised>::chosen(4, 32);
    good &= TwoLimbs<binary_pair, 1024, 2, raised>::chosen(4, 34);
    good &= TwoLimbs<binary_pair, 2048, 1, none, 16, 2>::chosen(4, 39);
    good &= TwoLimbs<binary_pair, 2048, 1, none, 5, 9>::chosen(4, 55);
    good &= TwoLimbs<block_3, 2048, 1, none, 7, 3>::chosen(6, 58);  // the first stage is reduced
    good &= OneLimb<ternary, 1024, 1, 1, 6, 4, 6, 4>::chosen(3, 59);
    good &= TwoLimbs<ternary, 2048, 1, none, 17, 3>::chosen(3, 63);
    good &= TwoLimbs<ternary, 1024, 1, raised>::chosen(3, 64);
    good &= OneLimb<select_2x6, 1024, 1, 1, 6, 4, 6, 4>::chosen(2, 70);
    good &= TwoLimbs<select_2x6, 2048, 1, none, 24, 2>::chosen(2, 72);
    good &= TwoLimbs<select_2x6, 1024, 1, raised>::chosen(2, 74);
#ifdef CLOAKWORK_EVERY_SHAPE
    good &= OneLimb<binary_pair, 512, 2, 1, 6, 3, 7, 2>::latency(4, 2);
    good &= OneLimb<binary_pair, 512, 2, 1, 6, 3, 5, 3>::latency(4, 3);
    good &= OneLimb<binary_pair, 512, 2, 1, 5, 4, 5, 3>::latency(4, 4);
    good &= OneLimb<binary_pair, 512, 3, 1, 6, 3, 7, 2>::latency(4, 5);
    good &= OneLimb<binary_pair, 1024, 2, 1, 5, 4, 5, 3>::latency(4, 7);
    good &= OneLimb<binary_pair, 256, 1, 1, 7, 3, 7, 3>::latency(6, 8);
    good &= OneLimb<binary_pair, 512, 2, 1, 8, 2, 7, 2>::groups<OneLimbLayout<2, 1, 1, 2, 2, true>>(6, 2);
    good &= OneLimb<binary_pair, 512, 2, 1, 6, 3, 7, 2>::groups<OneLimbLayout<2, 1, 1, 1, 2, true>>(6, 4);
    good &= OneLimb<binary_pair, 512, 2, 1, 6, 3, 7, 2>::groups<OneLimbLayout<2, 1, 2, 3, 2>>(6, 5);
    good &= OneLimb<binary_pair, 1024, 1, 1, 5, 4, 5, 3>::groups<OneLimbLayout<1, 1, 1, 1, 1, true>>(4, 6);
    good &= OneLimb<block_4, 512, 2, 1, 8, 2, 7, 2>::latency(8, 12);
    good &= OneLimb<block_8, 512, 2, 1, 8, 2, 7, 2>::latency(16, 13);
    good &= OneLimb<block_4, 512, 2, 1, 6, 3, 5, 3>::chosen(8, 14);
    good &= OneLimb<block_6, 512, 2, 1, 8, 2, 7, 2>::chosen(12, 15);
    good &= OneLimb<block_6, 512, 2, 1, 6, 3, 5, 3>::chosen(12, 17);
    good &= OneLimb<block_8, 512, 2, 1, 5, 4, 5, 3>::chosen(16, 20);
    good &= Lanes<2, binary_pair, 512, 2, 1, 8, 2, 7, 2>::latency(6, 43);
    good &= Lanes<2, binary_pair, 512, 2, 1, 6, 3, 7, 2>::chosen(4, 44);  // rows of bodies are fewer than of masks
    good &= Lanes<2, binary_pair, 512, 2, 1, 6, 3, 7, 2>::latency(4, 45);
    good &= Lanes<2, binary_pair, 512, 2, 1, 5, 4, 5, 3>::latency(4, 53);  // fourteen rows: sixteen warps
    good &= Lanes<4, binary_pair, 512, 2, 1, 8, 2, 7, 2>::chosen(4, 46);
    good &= Lanes<2, binary_pair, 1024, 1, 1, 5, 4, 5, 3>::chosen(4, 48);
    good &= Lanes<2, block_4, 512, 2, 1, 8, 2, 7, 2>::chosen(8, 49);
    good &= Lanes<2, block_8, 512, 2, 1, 6, 3, 5, 3>::chosen(16, 54);
    good &= Lanes<2, block_8, 512, 2, 1, 6, 3, 7, 2>::teams<TeamLayout<1, 2, 1, 2, 2>>(16, 52);
    good &= TwoLimbs<binary_pair, 2048, 1>::small(4, 22);
    good &= TwoLimbs<binary_pair, 1024, 2>::latency(4, 25);
    good &= TwoLimbs<block_3, 2048, 1>::latency(6, 27);
    good &= TwoLimbs<block_8, 2048, 1>::chosen(16, 29);
    good &= TwoLimbs<block_8, 1024, 2>::chosen(16, 30);
    good &= TwoLimbs<block_8, 4096, 1>::chosen(8, 31);
    good &= TwoLimbs<binary_pair, 2048, 1, raised>::latency(4, 33);
    good &= TwoLimbs<binary_pair, 4096, 1, raised>::chosen(2, 35);
    good &= TwoLimbs<block_4, 2048, 1, raised>::chosen(8, 36);
    good &= TwoLimbs<binary_pair, 1024, 2, raised>::small(4, 37);
    good &= TwoLimbs<binary_pair, 1024, 2, raised>::latency(4, 38);
    good &= TwoLimbs<binary_pair, 2048, 1, none, 16, 2>::small(4, 40);
    good &= TwoLimbs<binary_pair, 2048, 1, none, 16, 2>::latency(4, 41);
    good &= TwoLimbs<binary_pair, 2048, 1, none, 5, 9>::latency(4, 56);
    good &= TwoLimbs<binary_pair, 4096, 1, none, 6, 8>::chosen(2, 57);
    good &= OneLimb<ternary, 1024, 1, 1, 6, 4, 6, 4>::latency(3, 60);
    good &= TwoLimbs<ternary, 2048, 1, none, 24, 2>::chosen(3, 61);
    good &= TwoLimbs<ternary, 2048, 1, none, 24, 2>::latency(3, 62);
    good &= TwoLimbs<ternary, 2048, 1, none, 17, 3>::small(2, 68);
    good &= TwoLimbs<ternary, 2048, 1, none, 13, 4>::chosen(3, 69);
    good &= TwoLimbs<ternary, 1024, 1, raised>::latency(3, 65);
    good &= TwoLimbs<ternary, 2048, 1, raised>::chosen(3, 66);
    good &= TwoLimbs<ternary, 2048, 1, raised>::latency(3, 67);
    good &= OneLimb<select_2x6, 1024, 1, 1, 6, 4, 6, 4>::latency(2, 71);
    good &= TwoLimbs<select_2x6, 2048, 1, none, 24, 2>::latency(2, 73);
    good &= TwoLimbs<select_2x6, 1024, 1, raised>::latency(2, 75);
    good &= TwoLimbs<select_2x6, 2048, 1, raised>::chosen(2, 76);
    good &= TwoLimbs<select_2x6, 2048, 1, raised>::latency(2, 77);
#endif
    return good ? EXIT_SUCCESS : EXIT_FAILURE;
}
