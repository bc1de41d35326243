// A random bootstrap key on the host, in the coefficient domain for reference::blind_rotate and in the layout of the kernels.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "core/modular.hpp"
#include "cuda/rotation/blind_rotate_one_limb.cuh"
#include "cuda/transform/transform_tables.hpp"

namespace fhe_core::cuda {

// In place, residues in [0, p): natural order in, bit-reversed out.
template <class Ntt>
void forward_transform(std::uint64_t* x) {
    static const std::vector<std::uint64_t> roots = [] {
        std::vector<std::uint64_t> table(Ntt::N);
        for (int i = 0; i < Ntt::N; ++i) table[i] = pow_mod(Ntt::root, bit_reverse(i, Ntt::kLogSize), Ntt::M::p);
        return table;
    }();
    for (int blocks = 1, half = Ntt::N / 2; half >= 1; blocks *= 2, half /= 2)
        for (int block = 0; block < blocks; ++block)
            for (int i = block * 2 * half; i < block * 2 * half + half; ++i) {
                const std::uint64_t product = x[i + half] * roots[blocks + block] % Ntt::M::p;
                x[i + half] = (x[i] + Ntt::M::p - product) % Ntt::M::p;
                x[i] = (x[i] + product) % Ntt::M::p;
            }
}

// Coefficients [step][key][row][k + r][N] -> [step][output component][vector][row][key][lane], selected keys each as a step.
template <class Config>
std::vector<Vec4> kernel_key(std::vector<std::uint64_t> key) {
    using Ntt = typename Config::Ntt;
    constexpr int N = Ntt::N, outputs = Config::kComponents;
    const std::uint64_t p = Ntt::M::p, reductions = rotation_of(Config::shape.cmux).reductions();
    const std::uint64_t scale = mul_mod(pow_mod(2, 32 * reductions, p), inverse_mod(N, p), p);
    std::vector<Vec4> out(key.size() / 4);
    for (std::size_t i = 0; i < key.size() / N; ++i) {
        std::uint64_t* polynomial = key.data() + i * N;
        forward_transform<Ntt>(polynomial);
        const std::size_t component = i % outputs, row = i / outputs % Config::kRows,
                          j = i / outputs / Config::kRows % Config::kKeys, step = i / outputs / Config::kRows / Config::kKeys;
        for (int lane = 0; lane < 32; ++lane)
            for (int v = 0; v < Config::kVectors; ++v) {
                const std::size_t at =
                    ((((step * outputs + component) * Config::kVectors + v) * Config::kRows + row) * Config::kKeys + j) * 32 + lane;
                for (int t = 0; t < 4; ++t) out[at].x[t] = Ntt::M::centre(mul_mod(polynomial[Ntt::P * lane + 4 * v + t], scale, p));
            }
    }
    return out;
}

inline std::vector<std::uint64_t> random_words(std::size_t count, std::uint64_t bound, std::uint64_t seed) {
    std::mt19937_64 generator(seed);
    std::vector<std::uint64_t> words(count);
    for (std::uint64_t& word : words) word = generator() % bound;
    return words;
}

inline ParameterSet bench_parameters(Shape shape, int lwe_dimension) {
    ParameterSet params{};
    params.name = "benchmark";
    params.shape = shape;
    params.lwe_dimension = lwe_dimension;
    params.keyswitch_modulus_log2 = 16;
    params.keyswitch_gadget = {2, 6};
    return params;
}

// Words of a whole bootstrap key in the coefficient domain.
inline std::size_t bootstrap_key_words(const ParameterSet& params) {
    return params.bootstrap_key_body_words() / params.lane_count() * params.component_count();
}

}  // namespace fhe_core::cuda
