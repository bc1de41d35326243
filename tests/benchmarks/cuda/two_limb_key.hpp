// A random two-limb bootstrap key in the layout of its kernels.
#pragma once

#include "core/modular.hpp"
#include "cuda/rotation/blind_rotate_two_limbs.cuh"
#include "reference/reference.hpp"

namespace fhe_core::cuda {

// The limb modulo prime `number` of kLimbPrimes.
template <class Config, int number>
void expand_limb(const KeyLayout& layout, const reference::Words& key, int limb, std::vector<std::int32_t>& out) {
    using M = Modulus<number>;
    constexpr int N = Config::N;
    const std::uint64_t root = root_of_unity(M::p, 2 * N, M::sqrt_minus_one);
    const int reductions = rotation_of(Config::shape.cmux).reductions();
    const std::uint64_t scale = mul_mod(pow_mod(2, 32 * reductions, M::p), inverse_mod(N, M::p), M::p);
    std::vector<std::uint64_t> roots(N), x(N);
    for (int i = 0; i < N; ++i) roots[i] = pow_mod(root, bit_reverse(i, Config::kLogSize), M::p);
    for (std::size_t i = 0; i < key.size() / N; ++i) {
        for (int j = 0; j < N; ++j) x[j] = key[i * N + j] % M::p;
        for (int blocks = 1, half = N / 2; half >= 1; blocks *= 2, half /= 2)
            for (int b = 0; b < blocks; ++b)
                for (int j = b * 2 * half; j < b * 2 * half + half; ++j) {
                    const std::uint64_t product = x[j + half] * roots[blocks + b] % M::p;
                    x[j + half] = (x[j] + M::p - product) % M::p;
                    x[j] = (x[j] + product) % M::p;
                }
        const int component = i % layout.outputs, row = i / layout.outputs % layout.rows,
                  j = i / layout.outputs / layout.rows % layout.keys_per_step();
        const std::size_t step = i / layout.outputs / layout.rows / layout.keys_per_step();
        for (int position = 0; position < N; ++position)
            out[layout.offset(step, limb, component, row, j, position)] = M::centre(mul_mod(x[position], scale, M::p));
    }
}

// Coefficients [step][key][row][k + 1][N] modulo the key's modulus -> the order of a kernel.
template <class Config>
std::vector<std::int32_t> two_limb_key(const ParameterSet& params, const reference::Words& key, KeyOrder order = KeyOrder::warp) {
    const KeyLayout layout = KeyLayout::make(params, order, 32 * Config::kParts);
    std::vector<std::int32_t> words(layout.step_words() * params.step_count());
    expand_limb<Config, 0>(layout, key, 0, words);
    expand_limb<Config, Config::kSecond>(layout, key, 1, words);
    return words;
}

}  // namespace fhe_core::cuda
