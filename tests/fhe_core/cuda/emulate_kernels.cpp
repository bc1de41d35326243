// The rotation kernels of both layouts and the two-limb kernel as they are, every CUDA thread a fibre (cuda/emulation/threads.hpp),
// against reference::blind_rotate and sample_extract. Needs no GPU: test_emulated_kernels.py compiles and runs it.
#include "cuda/blind_rotate_latency.cuh"
#include "cuda/blind_rotate_two_limbs.cuh"
#include "fhe_core/reference.hpp"
#include "host_key.hpp"
#include "two_limb_key.hpp"

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace fhe_core::cuda {
namespace {

void require(cudaError_t status) {
    if (status == cudaSuccess) return;
    std::printf("launch: %s\n", cudaGetErrorString(status));
    std::exit(EXIT_FAILURE);
}

template <class Pair, bool latency>
void run_kernel(const BlindRotateView& view) {
    if constexpr (latency)
        require(launch_persistent<LatencyConfig<Pair>>(view, 1, nullptr));
    else
        require(launch_persistent<Pair>(view, 2, nullptr));
}

template <class Layout, bool latency, int... numbers>
bool check_pair(int lwe_dimension, std::uint64_t seed) {
    using Config = PairConfig<KernelShape<numbers..., CmuxKind::binary_pair>, Layout>;
    using M = typename Config::M;
    constexpr int N = Config::N, k = Config::k;
    constexpr std::size_t kBatch = latency ? 2 : 5, kTables = 2;
    const ParameterSet params = bench_parameters(Config::shape, lwe_dimension);
    const auto key = random_words(std::size_t(params.step_count()) * 3 * Config::kRows * (k + 1) * N, M::p, seed);
    const auto tables = random_words(kTables * N, M::p, seed + 1);
    const auto wide = random_words(kBatch * (lwe_dimension + 1), 2 * N, seed + 2);
    const std::vector<std::uint32_t> switched(wide.begin(), wide.end()), narrow_tables(tables.begin(), tables.end());
    const std::vector<std::uint32_t> table_index{1, 0, 0, 1, 1}, coefficients{0, 5, N - 1};

    const auto device_key = kernel_key<Config>(key);
    const auto twiddles = twiddle_table<typename Config::Ntt>();
    const auto powers = power_table<typename Config::Ntt>();
    std::vector<std::uint32_t> glwe(kBatch * (k + 1) * N, 0xdeadbeef), lwe(kBatch * coefficients.size() * (k * N + 1), 0xdeadbeef);
    BlindRotateView view{};
    view.switched = switched.data();
    view.key = device_key.data();
    view.twiddles = twiddles.data();
    view.powers = powers.data();
    view.tables = narrow_tables.data();
    view.table_index = table_index.data();
    view.out = glwe.data();
    view.batch = kBatch;
    view.steps = params.step_count();
    run_kernel<Config, latency>(view);
    view.coefficients = coefficients.data();
    view.coefficient_count = static_cast<int>(coefficients.size());
    view.out = lwe.data();
    run_kernel<Config, latency>(view);

    int wrong = 0, wrong_extracted = 0;
    for (std::size_t item = 0; item < kBatch; ++item) {
        const auto* first = switched.data() + item * (lwe_dimension + 1);
        const auto* table = tables.data() + table_index[item] * N;
        const reference::Words expected = reference::blind_rotate(
            params, key, reference::SmallWords(first, first + lwe_dimension + 1), reference::Words(table, table + N));
        for (int i = 0; i < (k + 1) * N; ++i) wrong += glwe[item * (k + 1) * N + i] != expected[i];
        for (std::size_t j = 0; j < coefficients.size(); ++j) {
            const reference::Words sample = reference::sample_extract(params, expected, coefficients[j]);
            for (int i = 0; i <= k * N; ++i)
                wrong_extracted += lwe[(item * coefficients.size() + j) * (k * N + 1) + i] != sample[i];
        }
    }
    std::printf("N=%d k=%d %d rows, %s: %d wrong words, %d extracted\n", N, k, Config::kRows, latency ? "latency" : "throughput",
                wrong, wrong_extracted);
    return wrong == 0 && wrong_extracted == 0;
}

template <int N, int k, int groups, int warps>
bool check_two_limbs(int lwe_dimension, std::uint64_t seed) {
    using Config = TwoLimbConfig<KernelShape<N, k, 2, 24, 1, 24, 1, CmuxKind::binary_pair>, groups, warps>;
    constexpr std::size_t kBatch = groups + 1;
    const ParameterSet params = bench_parameters(Config::shape, lwe_dimension);
    const auto key = random_words(std::size_t(params.step_count()) * 3 * Config::kRows * (k + 1) * N, params.modulus(), seed);
    const auto table = random_words(N, params.modulus(), seed + 1);
    const auto wide = random_words(kBatch * (lwe_dimension + 1), 2 * N, seed + 2);
    const std::vector<std::uint32_t> switched(wide.begin(), wide.end()), coefficients{0, 5, N - 1};
    const std::vector<std::int32_t> key_words = two_limb_key<Config>(params, key);
    std::vector<Vec4> device_key(key_words.size() / 4);
    std::memcpy(device_key.data(), key_words.data(), key_words.size() * 4);
    const auto tables = two_limb_tables<Config>();
    const auto powers = two_limb_powers<Config>();
    std::vector<std::uint64_t> lwe(kBatch * coefficients.size() * (k * N + 1), 0xdeadbeef);
    BlindRotateView view{};
    view.switched = switched.data();
    view.key = device_key.data();
    view.twiddles = tables.data();
    view.powers = powers.data();
    view.tables = table.data();
    view.out = lwe.data();
    view.batch = kBatch;
    view.steps = params.step_count();
    view.coefficients = coefficients.data();
    view.coefficient_count = static_cast<int>(coefficients.size());
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
    std::printf("N=%d k=%d two limbs, %d groups x %d warps: %d wrong words\n", N, k, groups, Config::kWarpsPerGroup, wrong);
    return wrong == 0;
}

}  // namespace
}  // namespace fhe_core::cuda

int main() {
    using namespace fhe_core::cuda;
    using Plain = PairLayout<1, 1, 1, 1, 1>;
    bool good = check_pair<Plain, true, 512, 2, 1, 8, 2, 7, 2>(6, 1);
    good &= check_pair<Plain, true, 512, 2, 1, 6, 3, 7, 2>(4, 2);
    good &= check_pair<Plain, true, 512, 2, 1, 6, 3, 5, 3>(4, 3);
    good &= check_pair<Plain, true, 512, 2, 1, 5, 4, 5, 3>(4, 4);
    good &= check_pair<Plain, true, 512, 3, 1, 6, 3, 7, 2>(4, 5);
    good &= check_pair<Plain, true, 1024, 1, 1, 5, 4, 5, 3>(4, 6);
    good &= check_pair<Plain, true, 1024, 2, 1, 5, 4, 5, 3>(4, 7);
    good &= check_pair<Plain, true, 256, 1, 1, 7, 3, 7, 3>(6, 8);
    good &= check_pair<PairLayout<2, 1, 1, 2, 2>, false, 512, 2, 1, 8, 2, 7, 2>(6, 1);
    good &= check_pair<PairLayout<2, 1, 1, 2, 2, true>, false, 512, 2, 1, 8, 2, 7, 2>(6, 2);
    good &= check_pair<PairLayout<2, 1, 2, 3, 2, true>, false, 512, 2, 1, 6, 3, 5, 3>(6, 3);
    good &= check_pair<PairLayout<2, 1, 1, 1, 2, true>, false, 512, 2, 1, 6, 3, 7, 2>(6, 4);
    good &= check_pair<PairLayout<2, 1, 2, 3, 2>, false, 512, 2, 1, 6, 3, 7, 2>(6, 5);
    good &= check_pair<PairLayout<1, 1, 1, 1, 1, true>, false, 1024, 1, 1, 5, 4, 5, 3>(4, 6);
    good &= check_two_limbs<2048, 1, 2, 2>(4, 1);
    good &= check_two_limbs<2048, 1, 1, 4>(4, 2);
    good &= check_two_limbs<1024, 2, 2, 3>(4, 3);
    good &= check_two_limbs<1024, 2, 1, 4>(4, 4);
    good &= check_two_limbs<4096, 1, 1, 2>(2, 5);
    return good ? EXIT_SUCCESS : EXIT_FAILURE;
}
