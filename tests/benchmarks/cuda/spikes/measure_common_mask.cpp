// The common mask with real keys, on the CPU alone: every lane of a rotation decrypts under its own ring key to its own table,
// rotated by its own phase, and its noise is that of fhe_core/noise.py with the digits of all r bodies. run_spikes.sh mask. Fixed
// seeds: for measurements only.
//
// Source: [BBC+25]
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>

#include "common_mask_reference.hpp"

namespace fhe_core::cuda {
namespace {

using common_mask::Polynomial;

template <int lanes>
bool measure(int lwe_dimension) {
    using Config =
        CommonMaskConfig<KernelShape<512, 2, 1, 8, 2, 7, 2, CmuxKind::binary_pair>, PairLayout<2, 1, 1, 2, 2, true>, lanes>;
    constexpr int N = Config::N, k = Config::k, C = Config::kComponents;
    constexpr std::int64_t p = Config::M::p;
    constexpr double sigma = 3.53;  // of `gate_64`
    const int steps = lwe_dimension / 2;
    const ParameterSet params = bench_parameters(Config::shape, lwe_dimension);
    std::mt19937_64 generator(7 + lanes);
    std::normal_distribution<double> noise(0, sigma);

    std::vector<std::vector<Polynomial>> ring(lanes, std::vector<Polynomial>(k, Polynomial(N)));  // quinary
    std::vector<std::vector<int>> small(lanes, std::vector<int>(lwe_dimension));
    for (auto& key : ring)
        for (Polynomial& s : key)
            for (std::int64_t& x : s) x = static_cast<std::int64_t>(generator() % 5) - 2;
    for (auto& key : small)
        for (int& s : key) s = generator() & 1;

    const common_mask::Lines lines = common_mask::pair_lines();
    std::vector<std::uint64_t> key(std::size_t(steps) * 3 * Config::kRows * C * N);
    std::size_t row_number = 0;
    for (int step = 0; step < steps; ++step)
        for (int j = 0; j < 3; ++j)
            for (int row = 0; row < Config::kRows; ++row, ++row_number) {
                const bool of_mask = row < k * Config::kMaskLevels;
                const Gadget gadget = of_mask ? Config::shape.mask_gadget : Config::shape.body_gadget;
                const int at = of_mask ? row : row - k * Config::kMaskLevels;
                const int component = at / gadget.level_count, level = at % gadget.level_count;
                const int drop = kLimbBits - gadget.base_log * gadget.level_count;
                const std::int64_t weight = std::int64_t{1} << (drop + gadget.base_log * (gadget.level_count - 1 - level));
                std::uint64_t* polynomials = key.data() + row_number * C * N;
                for (int i = 0; i < k * N; ++i) polynomials[i] = generator() % p;
                for (int lane = 0; lane < lanes; ++lane) {
                    const int s = small[lane][2 * step], t = small[lane][2 * step + 1];
                    const int message = j == 0 ? s * (1 - t) : j == 1 ? t * (1 - s) : s * t;
                    Polynomial body(N);
                    for (int c = 0; c < k; ++c)
                        common_mask::multiply_accumulate(body, ring[lane][c], {polynomials + c * N, std::size_t(N)});
                    for (int i = 0; i < N; ++i) {
                        body[i] += std::llrint(noise(generator));
                        if (of_mask) body[i] -= message * weight * ring[lane][component][i];
                    }
                    if (!of_mask && component == lane) body[0] += message * weight;
                    for (int i = 0; i < N; ++i) polynomials[(k + lane) * N + i] = static_cast<std::uint64_t>((body[i] % p + p) % p);
                }
            }

    std::vector<std::uint32_t> switched(lwe_dimension + lanes);
    for (std::uint32_t& word : switched) word = generator() % (2 * N);
    std::vector<std::vector<std::uint64_t>> tables(lanes, std::vector<std::uint64_t>(N));
    for (int lane = 0; lane < lanes; ++lane)
        for (int i = 0; i < N; ++i) tables[lane][i] = static_cast<std::uint64_t>(p) * (i % 8 + lane) / 16;
    const auto result = common_mask::blind_rotate<Config>(params, lines, key, switched, steps, tables);

    const auto square = [](Gadget g) {  // sum of E[d^2]
        const double top = static_cast<double>(p) / std::exp2(kLimbBits - g.base_log);
        return (g.level_count - 1) * (std::pow(4.0, g.base_log) + 2) / 12 + top * top / 12;
    };
    const auto rounding = [](Gadget g) { return std::pow(4.0, kLimbBits - g.base_log * g.level_count) / 12; };
    const Gadget mask = Config::shape.mask_gadget, body = Config::shape.body_gadget;
    const double key_variance = N * (k * square(mask) + lanes * square(body)) * sigma * sigma;
    const double model = steps * (6 * key_variance + 1.5 * (rounding(body) + 2.0 * k * N * rounding(mask)));
    double sum = 0, largest = 0;
    for (int lane = 0; lane < lanes; ++lane) {
        std::uint32_t phase = switched[lwe_dimension + lane];
        for (int i = 0; i < lwe_dimension; ++i) phase -= static_cast<std::uint32_t>(small[lane][i]) * switched[i];
        Polynomial masked(N);
        for (int c = 0; c < k; ++c) {
            const std::vector<std::uint64_t> a(result[c].begin(), result[c].end());
            common_mask::multiply_accumulate(masked, ring[lane][c], a);
        }
        for (std::uint32_t j = 0; j < N; ++j) {
            const std::uint32_t at = (j + phase) % (2 * N);
            const auto word = static_cast<std::int64_t>(tables[lane][at % N]);
            const auto error = static_cast<double>(
                centred(static_cast<std::uint64_t>(((result[k + lane][j] - masked[j] - (at < N ? word : -word)) % p + p) % p), p));
            sum += error * error;
            largest = std::max(largest, std::abs(error));
        }
    }
    const double measured = std::sqrt(sum / (lanes * N));
    std::printf("%d lanes, N=%d, k=%d, n=%d: noise %.3e of the torus, %.3f of the model; largest %.1f deviations\n", lanes, N, k,
                lwe_dimension, measured / p, measured / std::sqrt(model), largest / measured);
    return measured < 1.3 * std::sqrt(model);
}

}  // namespace
}  // namespace fhe_core::cuda

int main() {
    using namespace fhe_core::cuda;
    const bool fine = measure<1>(160) & measure<2>(160) & measure<4>(160);
    return fine ? EXIT_SUCCESS : EXIT_FAILURE;
}
