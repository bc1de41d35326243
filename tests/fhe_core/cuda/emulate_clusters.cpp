// The rotation kernel over clusters of blocks as it is, every CUDA thread a fibre (cuda/emulation/threads.hpp, cluster.hpp),
// against reference::blind_rotate and sample_extract. Needs no GPU: test_emulated_kernels.py runs it.
#include "cuda/rotation/blind_rotate_cluster.cuh"
#include "host_key.hpp"
#include "reference/reference.hpp"
#include "two_limb_key.hpp"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <type_traits>

namespace fhe_core::cuda {
namespace {

void require(cudaError_t status) {
    if (status == cudaSuccess) return;
    std::printf("launch: %s\n", cudaGetErrorString(status));
    std::exit(EXIT_FAILURE);
}

template <class Shape>
std::vector<Vec4> device_key(const ParameterSet& params, const std::vector<std::uint64_t>& key) {
    if constexpr (Shape::value.key_limbs().count == 1) {
        return kernel_key<OneLimbConfig<Shape, OneLimbLayout<1, 1, 1, 1, 1>>>(key);
    } else {
        const std::vector<std::int32_t> words = two_limb_key<TwoLimbConfig<Shape, 1, 1>>(params, key);
        std::vector<Vec4> vectors(words.size() / 4);
        std::memcpy(vectors.data(), words.data(), words.size() * 4);
        return vectors;
    }
}

// Three ciphertexts over two clusters, so that both ways in which mail arrives are seen, and one cluster goes on to a second one.
template <class Layout, class Shape>
bool check_shape(int lwe_dimension, std::uint64_t seed) {
    using Config = ClusterConfig<Shape, Layout>;
    using Word = typename Config::Word;
    constexpr int N = Config::N, kWords = Config::kComponents * N, kLweWords = Config::k * N + Config::kLanes;
    constexpr std::size_t kBatch = 3, kTables = 2;
    const ParameterSet params = bench_parameters(Config::shape, lwe_dimension);
    const std::uint64_t q = params.modulus();
    const std::size_t size = params.small_words();
    const auto key = random_words(bootstrap_key_words(params), params.key_modulus(), seed);
    const auto wide_tables = random_words(kTables * N, q, seed + 1);
    const auto wide = random_words(kBatch * size, 2 * N, seed + 2);
    const std::vector<std::uint32_t> switched(wide.begin(), wide.end());
    const std::vector<Word> tables(wide_tables.begin(), wide_tables.end());
    const std::vector<std::uint32_t> table_index{1, 0, 1}, coefficients{0, 5, N - 1};

    const std::vector<Vec4> words_of_key = device_key<Shape>(params, key);
    const std::vector<Twiddle> twiddles[2]{plain_twiddles<0>(N, log2_of(N)), plain_twiddles<Config::kSecond>(N, log2_of(N))};
    std::vector<std::int32_t> powers = plain_powers<0>(N);
    const std::vector<std::int32_t> second = plain_powers<Config::kSecond>(N);
    if constexpr (Config::kLimbs == 2) powers.insert(powers.end(), second.begin(), second.end());
    std::vector<Word> glwe(kBatch * kWords, Word{0xdeadbeef}), lwe(kBatch * coefficients.size() * kLweWords, Word{0xdeadbeef});
    BlindRotateView view{};
    view.switched = switched.data();
    view.key = words_of_key.data();
    for (const int limb : {0, 1}) view.plain_twiddles[limb] = twiddles[limb].data();
    view.powers = powers.data();
    view.tables = tables.data();
    view.table_index = table_index.data();
    view.out = glwe.data();
    view.batch = kBatch;
    view.steps = params.step_count();
    require(launch_clusters<Config>(view, 2, nullptr));
    view.coefficients = coefficients.data();
    view.coefficient_count = static_cast<int>(coefficients.size());
    view.out = lwe.data();
    require(launch_clusters<Config>(view, 2, nullptr));

    int wrong = 0, wrong_extracted = 0;
    for (std::size_t item = 0; item < kBatch; ++item) {
        const auto* first = switched.data() + item * size;
        const auto* table = wide_tables.data() + table_index[item] * N;
        const reference::Words expected =
            reference::blind_rotate(params, key, reference::SmallWords(first, first + size), reference::Words(table, table + N));
        for (int i = 0; i < kWords; ++i) wrong += glwe[item * kWords + i] != expected[i];
        for (std::size_t j = 0; j < coefficients.size(); ++j) {
            const reference::Words sample = reference::sample_extract(params, expected, coefficients[j]);
            for (int i = 0; i < kLweWords; ++i)
                wrong_extracted += lwe[(item * coefficients.size() + j) * kLweWords + i] != sample[i];
        }
    }
    std::printf("N=%d k=%d r=%d %d%s limbs %d rows %d keys, %d blocks x %d warps, %s first: %d wrong words, %d extracted\n", N,
                Config::k, Config::kLanes, Config::kLimbs, Config::kRaised ? " raised" : "", Config::kRows, Config::kKeys,
                Config::kBlocks, Config::kThreads / 32, Layout::keys_first ? "keys" : "rows", wrong, wrong_extracted);
    return wrong == 0 && wrong_extracted == 0;
}

template <class Layout, CmuxKind kind, int... numbers>
bool check(int lwe_dimension, std::uint64_t seed) {
    return check_shape<Layout, KernelShape<numbers..., kind>>(lwe_dimension, seed);
}

template <class Layout, int lanes, CmuxKind kind, int... numbers>
bool check_lanes(int lwe_dimension, std::uint64_t seed) {
    return check_shape<Layout, KernelShape<numbers..., kind, 1, Raising::none, lanes>>(lwe_dimension, seed);
}

template <class Layout, int N, int k, CmuxKind kind = CmuxKind::binary_pair>
bool check_raised(int lwe_dimension, std::uint64_t seed) {
    return check_shape<Layout, KernelShape<N, k, 1, 24, 1, 24, 1, kind, 1, Raising::raised>>(lwe_dimension, seed);
}

}  // namespace
}  // namespace fhe_core::cuda

int main() {
    using namespace fhe_core::cuda;
    using enum fhe_core::CmuxKind;
    bool good = check<ClusterLayout<4, true, 6>, binary_pair, 512, 2, 1, 8, 2, 7, 2>(6, 1);
    good &= check<ClusterLayout<8, true, 6, 2>, binary_pair, 512, 2, 1, 8, 2, 7, 2>(6, 3);
    good &= check<ClusterLayout<4, false, 11>, binary_pair, 512, 2, 1, 5, 4, 5, 3>(4, 7);
    good &= check<ClusterLayout<8, true, 7, 4>, binary_pair, 1024, 1, 1, 5, 4, 5, 3>(4, 9);
    good &= check<ClusterLayout<8, true, 6>, binary_pair, 1024, 2, 2, 24, 1, 24, 1>(4, 11);
    good &= check<ClusterLayout<16, true, 4, 4>, binary_pair, 2048, 1, 2, 24, 1, 24, 1>(6, 15);
    good &= check<ClusterLayout<16, true, 4, 4>, binary_pair, 4096, 1, 2, 24, 1, 24, 1>(4, 16);
    good &= check<ClusterLayout<8, true, 3, 2>, block_8, 512, 2, 1, 8, 2, 7, 2>(16, 17);
    good &= check<ClusterLayout<8, true, 3, 4>, block_4, 1024, 2, 2, 24, 1, 24, 1>(8, 21);
    good &= check_raised<ClusterLayout<8, true, 6, 4>, 1024, 2>(6, 23);
    good &= check_raised<ClusterLayout<16, true, 4, 4>, 2048, 1>(6, 25);
    good &= check_raised<ClusterLayout<8, true, 3, 4>, 1024, 2, block_4>(8, 28);
    good &= check_lanes<ClusterLayout<4, true, 9, 4>, 2, binary_pair, 512, 2, 1, 8, 2, 7, 2>(6, 29);
    good &= check_lanes<ClusterLayout<8, true, 3, 2>, 2, block_8, 512, 2, 1, 8, 2, 7, 2>(8, 30);
#ifdef CLOAKWORK_EVERY_SHAPE
    good &= check<ClusterLayout<4, false, 4>, binary_pair, 512, 2, 1, 8, 2, 7, 2>(6, 2);
    good &= check<ClusterLayout<8, true, 4, 2>, binary_pair, 512, 2, 1, 6, 3, 7, 2>(6, 4);
    good &= check<ClusterLayout<4, true, 8, 4>, binary_pair, 512, 2, 1, 6, 3, 7, 2>(6, 5);
    good &= check<ClusterLayout<4, true, 5, 2>, binary_pair, 512, 2, 1, 6, 3, 7, 2>(4, 6);
    good &= check<ClusterLayout<4, true, 6, 4>, binary_pair, 512, 2, 1, 5, 4, 5, 3>(6, 8);
    good &= check<ClusterLayout<4, true, 6, 1>, binary_pair, 256, 1, 1, 7, 3, 7, 3>(6, 10);
    good &= check<ClusterLayout<8, true, 6, 4>, binary_pair, 1024, 2, 2, 24, 1, 24, 1>(4, 12);
    good &= check<ClusterLayout<8, true, 4>, binary_pair, 2048, 1, 2, 24, 1, 24, 1>(4, 13);
    good &= check<ClusterLayout<16, true, 8>, binary_pair, 2048, 1, 2, 24, 1, 24, 1>(4, 14);
    good &= check<ClusterLayout<8, true, 3>, block_4, 512, 2, 1, 6, 3, 7, 2>(8, 18);
    good &= check<ClusterLayout<4, false, 3>, block_8, 512, 2, 1, 5, 4, 5, 3>(16, 19);
    good &= check<ClusterLayout<8, true, 3, 4>, block_6, 1024, 1, 1, 5, 4, 5, 3>(12, 20);
    good &= check<ClusterLayout<16, true, 2, 4>, block_8, 2048, 1, 2, 24, 1, 24, 1>(16, 22);
    good &= check_raised<ClusterLayout<8, true, 6>, 1024, 2>(4, 24);
    good &= check_raised<ClusterLayout<16, true, 8>, 2048, 1>(4, 26);
    good &= check_raised<ClusterLayout<16, true, 4, 4>, 4096, 1>(4, 27);
    good &= check_lanes<ClusterLayout<8, false, 4>, 2, binary_pair, 512, 2, 1, 6, 3, 7, 2>(4, 31);
#endif
    return good ? EXIT_SUCCESS : EXIT_FAILURE;
}
