// The rotation kernel of rounded products in its layouts, every CUDA thread a fibre, against reference::blind_rotate and
// sample_extract. Needs no GPU: test_emulated_kernels.py runs it.
#include <cstdio>
#include <cstdlib>

#include "reference/reference.hpp"
#include "rounded_key.hpp"

namespace fhe_core::cuda {
namespace {

using Shape = KernelShape<2048, 1, 1, 23, 1, 20, 1, CmuxKind::binary_pair, 1, Raising::rounded>;

template <class Config>
bool check(int lwe_dimension, int batch, int blocks, std::uint64_t seed) {
    constexpr int N = Config::N;
    const ParameterSet params = bench_parameters(Config::shape, lwe_dimension);
    const auto key = random_words(params.bootstrap_key_body_words() * 2, params.key_modulus(), seed);
    const auto tables = random_words(2 * N, params.modulus(), seed + 1);
    const auto wide = random_words(std::size_t(batch) * (lwe_dimension + 1), 2 * N, seed + 2);
    const std::vector<std::uint32_t> switched(wide.begin(), wide.end()), narrow_tables(tables.begin(), tables.end()),
        table_index{1, 0, 0, 1, 1}, coefficients{0, 5, N - 1};
    const std::vector<Complex> device_key = rounded_key(params, key);
    const std::vector<LaneRoots> roots = LaneRoots::make();
    std::vector<std::uint32_t> glwe(std::size_t(batch) * 2 * N, 0xdeadbeef), lwe(batch * coefficients.size() * (N + 1), 0xdeadbeef);
    BlindRotateView view{};
    view.switched = switched.data();
    view.key = device_key.data();
    view.twiddles = roots.data();
    view.tables = narrow_tables.data();
    view.table_index = table_index.data();
    view.out = glwe.data();
    view.batch = batch;
    view.steps = params.step_count();
    bool launched = launch_rounded<Config>(view, blocks, nullptr) == cudaSuccess;
    view.coefficients = coefficients.data();
    view.coefficient_count = static_cast<int>(coefficients.size());
    view.out = lwe.data();
    launched = launch_rounded<Config>(view, blocks, nullptr) == cudaSuccess && launched;

    int wrong = 0, wrong_extracted = 0;
    for (int item = 0; item < batch; ++item) {
        const reference::Words expected =
            reference::blind_rotate(params, key, {switched.data() + item * (lwe_dimension + 1), std::size_t(lwe_dimension) + 1},
                                    {tables.data() + table_index[item] * N, N});
        for (int i = 0; i < 2 * N; ++i) wrong += glwe[std::size_t(item) * 2 * N + i] != expected[i];
        for (std::size_t j = 0; j < coefficients.size(); ++j) {
            const reference::Words sample = reference::sample_extract(params, expected, coefficients[j]);
            for (int i = 0; i <= N; ++i) wrong_extracted += lwe[(item * coefficients.size() + j) * (N + 1) + i] != sample[i];
        }
    }
    std::printf("%d ciphertexts of a block, %d ahead: %d wrong words, %d wrong extracted\n", Config::kPerUnit, Config::kAhead,
                wrong, wrong_extracted);
    return launched && wrong == 0 && wrong_extracted == 0;
}

}  // namespace
}  // namespace fhe_core::cuda

int main() {
    using namespace fhe_core::cuda;
    bool good = check<RoundedConfig<Shape, 4, 2, 2>>(6, 5, 1, 1);
    good &= check<RoundedConfig<Shape, 4, 4, 2>>(4, 4, 2, 2);
    good &= check<RoundedConfig<Shape, 2, 1, 2>>(4, 3, 2, 3);
    good &= check<RoundedConfig<Shape, 1, 2, 2>>(6, 3, 2, 4);
    return good ? EXIT_SUCCESS : EXIT_FAILURE;
}
