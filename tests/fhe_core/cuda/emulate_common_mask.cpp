// The common-mask rotation of tests/benchmarks/cuda/spikes as it is, on emulated threads, against schoolbook loops. Needs no GPU:
// test_emulated_kernels.py compiles and runs it.
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "common_mask_reference.hpp"

namespace fhe_core::cuda {
namespace {

using Gates = KernelShape<512, 2, 1, 8, 2, 7, 2, CmuxKind::binary_pair>;
template <int lanes, class Layout, class Steps = RotationStep<CmuxKind::binary_pair>>
using ConfigOf = CommonMaskConfig<Gates, Layout, lanes, Steps>;

// Every lane of every ciphertext has its own of `r` tables.
template <class Config>
bool check(const char* name, const common_mask::Lines& lines) {
    constexpr int N = Config::N, C = Config::kComponents, r = Config::kLanes, steps = 3, batch = 5;
    const std::uint64_t p = Config::M::p;
    const ParameterSet params = bench_parameters(Config::shape, 2 * steps);
    const auto key = random_words(std::size_t(steps) * Config::kKeys * Config::kRows * C * N, p, 1);
    const std::size_t size = lines[0].size() * steps + r;
    const auto wide = random_words(batch * size, 2 * N, 3);
    const std::vector<std::uint32_t> switched(wide.begin(), wide.end());
    std::vector<std::vector<std::uint64_t>> tables;
    std::vector<std::uint32_t> table_words, index(std::size_t(batch) * r), out(std::size_t(batch) * C * N);
    for (int lane = 0; lane < r; ++lane) {
        tables.push_back(random_words(N, p, 10 + lane));
        table_words.insert(table_words.end(), tables[lane].begin(), tables[lane].end());
    }
    for (std::size_t i = 0; i < index.size(); ++i) index[i] = i % r;

    const auto words = common_mask::kernel_key<Config>(key);
    const auto twiddles = twiddle_table<typename Config::Ntt>();
    const auto powers = power_table<typename Config::Ntt>();
    BlindRotateView view{};
    view.switched = switched.data();
    view.key = words.data();
    view.twiddles = twiddles.data();
    view.powers = powers.data();
    view.tables = table_words.data();
    view.table_index = index.data();
    view.out = out.data();
    view.batch = batch;
    view.steps = steps;
    const bool launched = launch_persistent<Config>(view, 2, nullptr) == cudaSuccess;
    std::size_t wrong = 0;
    for (int number = 0; number < batch; ++number) {
        const auto expected =
            common_mask::blind_rotate<Config>(params, lines, key, {switched.data() + number * size, size}, steps, tables);
        for (int i = 0; i < C * N; ++i) wrong += out[std::size_t(number) * C * N + i] != expected[i / N][i % N];
    }
    std::printf("%s, %d lanes: %zu wrong words of %zu\n", name, r, wrong, out.size());
    return launched && wrong == 0;
}

}  // namespace
}  // namespace fhe_core::cuda

int main() {
    using namespace fhe_core::cuda;
    using Block4 = BlockRotationStep<4>;
    const auto pairs = common_mask::pair_lines(), blocks = common_mask::block_lines(4);
    bool good = check<ConfigOf<1, PairLayout<4, 1, 1, 2, 2, true>>>("pairs", pairs);
    good &= check<ConfigOf<2, PairLayout<3, 1, 2, 2, 2, true>>>("pairs", pairs);
    good &= check<ConfigOf<4, PairLayout<2, 1, 2, 2, 2, true>>>("pairs", pairs);
    good &= check<ConfigOf<2, PairLayout<3, 1, 1, 2, 1, true>, Block4>>("blocks of 4", blocks);
    good &= check<ConfigOf<4, PairLayout<2, 1, 2, 2, 1, true>, Block4>>("blocks of 4", blocks);
    return good ? EXIT_SUCCESS : EXIT_FAILURE;
}
