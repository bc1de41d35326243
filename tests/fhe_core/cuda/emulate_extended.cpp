// The rotation kernel of extended tables as it is, every CUDA thread a fibre (cuda/emulation/threads.hpp, cluster.hpp), against
// reference::blind_rotate and sample_extract. Needs no GPU: test_emulated_kernels.py runs it.
#include "cuda/rotation/blind_rotate_extended.cuh"
#include "host_key.hpp"
#include "reference/reference.hpp"
#include "two_limb_key.hpp"

#include <cstdio>
#include <cstdlib>

namespace fhe_core::cuda {
namespace {

void require(cudaError_t status) {
    if (status == cudaSuccess) return;
    std::printf("launch: %s\n", cudaGetErrorString(status));
    std::exit(EXIT_FAILURE);
}

// Three ciphertexts over two clusters: one cluster goes on to a second one; of nu = 2, where a block takes two, one place is empty.
template <int nu, int mask_base_log, int body_base_log, CmuxKind cmux, class Layout = DefaultExtendedLayout<nu>>
bool check(int steps, std::uint64_t seed) {
    using ShapeOf = KernelShape<2048, 1, 2, mask_base_log, 1, body_base_log, 1, cmux, nu>;
    using Config = ExtendedConfig<ShapeOf, Layout>;
    constexpr int N = Config::N, kTable = Config::kTableSize;
    constexpr std::size_t kBatch = 3, kTables = 2;
    const int n = steps * rotation_of(cmux).key_bits;
    const ParameterSet params = bench_parameters(Config::shape, n);
    const std::uint64_t q = params.modulus();
    const auto key = random_words(std::size_t(steps) * Config::kKeys * 2 * 2 * N, q, seed);
    const auto tables = random_words(kTables * kTable, q, seed + 1);
    auto wide = random_words(kBatch * (n + 1), 2 * kTable, seed + 2);
    wide[0] = 0;  // a key that moves nothing
    const std::vector<std::uint32_t> switched(wide.begin(), wide.end());
    const std::vector<std::uint32_t> table_index{1, 0, 1}, coefficients{0, 5, kTable - 1};

    const std::vector<std::int32_t> device_key = two_limb_key<typename Config::Transform>(params, key, KeyOrder::extended);
    const std::vector<std::uint8_t> twiddles = extended_tables<Config>();
    const std::vector<std::int32_t> powers = two_limb_powers<typename Config::Transform>();
    std::vector<std::uint64_t> glwe(kBatch * 2 * kTable, 0xdeadbeef), lwe(kBatch * coefficients.size() * (N + 1), 0xdeadbeef);
    std::vector<Vec4> scratch(2 * Config::kBlocks * Config::kScratchWords / 4);
    BlindRotateView view{};
    view.switched = switched.data();
    view.key = device_key.data();
    view.twiddles = twiddles.data();
    view.powers = powers.data();
    view.tables = tables.data();
    view.table_index = table_index.data();
    view.scratch = scratch.data();
    view.out = glwe.data();
    view.batch = kBatch;
    view.steps = steps;
    require(launch_extended<Config>(view, 2, nullptr));
    view.coefficients = coefficients.data();
    view.coefficient_count = static_cast<int>(coefficients.size());
    view.out = lwe.data();
    require(launch_extended<Config>(view, 2, nullptr));

    int wrong = 0, wrong_extracted = 0;
    for (std::size_t item = 0; item < kBatch; ++item) {
        const auto* first = switched.data() + item * (n + 1);
        const auto* table = tables.data() + table_index[item] * kTable;
        const reference::Words expected = reference::blind_rotate(params, key, reference::SmallWords(first, first + n + 1),
                                                                  reference::Words(table, table + kTable));
        for (int i = 0; i < 2 * kTable; ++i) wrong += glwe[item * 2 * kTable + i] != expected[i];
        for (std::size_t j = 0; j < coefficients.size(); ++j) {
            const auto* part = expected.data() + coefficients[j] % nu * 2 * N;
            const reference::Words sample =
                reference::sample_extract(params, reference::Words(part, part + 2 * N), coefficients[j] / nu);
            for (int i = 0; i <= N; ++i) wrong_extracted += lwe[(item * coefficients.size() + j) * (N + 1) + i] != sample[i];
        }
    }
    std::printf("nu=%d, %s, digits of %d and %d bits, %d steps, %d blocks: %d wrong words, %d extracted\n", nu,
                rotation_of(cmux).name.data(), mask_base_log, body_base_log, steps, Config::kBlocks, wrong, wrong_extracted);
    return wrong == 0 && wrong_extracted == 0;
}

}  // namespace
}  // namespace fhe_core::cuda

int main() {
    using namespace fhe_core;
    using namespace fhe_core::cuda;
    bool good = check<2, 24, 24, CmuxKind::binary_pair>(2, 1);
    good &= check<4, 24, 22, CmuxKind::block_8>(1, 12);
    good &= check<8, 25, 22, CmuxKind::block_4>(1, 4);
    good &= check<16, 24, 22, CmuxKind::binary_pair>(1, 6);
    good &= check<32, 24, 22, CmuxKind::binary_pair>(1, 7);
#ifdef CLOAKWORK_EVERY_SHAPE
    good &= check<16, 24, 22, CmuxKind::block_8>(1, 13);
    good &= check<2, 24, 22, CmuxKind::block_8, ExtendedLayout<ExtendedProduct::rows_first, 2, 2, 8>>(2, 9);
    good &= check<16, 24, 22, CmuxKind::block_8, ExtendedLayout<ExtendedProduct::y_on_keys, 1, 1, 12>>(1, 10);
    good &= check<2, 24, 22, CmuxKind::block_8>(1, 11);
    good &= check<8, 24, 22, CmuxKind::block_8>(1, 8);
#endif
    return good ? EXIT_SUCCESS : EXIT_FAILURE;
}
