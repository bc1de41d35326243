// The rotation of common_mask.cuh as loops: digits as reference::decompose gives them, schoolbook products. Words in [0, p), one
// limb.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "common_mask.cuh"
#include "fhe_core/modular.hpp"
#include "fhe_core/reference.hpp"
#include "host_key.hpp"

namespace fhe_core::cuda::common_mask {

using Polynomial = std::vector<std::int64_t>;  // residues, or digits

// exponents[key][bit] of a step: e_j = sum over bits of line * word.
using Lines = std::vector<std::vector<std::uint32_t>>;
inline Lines pair_lines() { return {{1, 0}, {0, 1}, {1, 1}}; }
inline Lines block_lines(int bits) {
    Lines lines(bits, std::vector<std::uint32_t>(bits));
    for (int i = 0; i < bits; ++i) lines[i][i] = 1;
    return lines;
}

// out += a * b modulo X^N + 1, as integers: |a| < 2^9, b < 2^27, N and rows few.
inline void multiply_accumulate(Polynomial& out, const Polynomial& a, std::span<const std::uint64_t> b) {
    const std::size_t n = a.size();
    std::vector<std::int64_t> twice(2 * n);  // -b, b
    for (std::size_t j = 0; j < n; ++j) twice[j + n] = static_cast<std::int64_t>(b[j]), twice[j] = -twice[j + n];
    for (std::size_t i = 0; i < n; ++i) {
        const std::int64_t* shifted = twice.data() + n - i;
        for (std::size_t j = 0; j < n; ++j) out[j] += a[i] * shifted[j];
    }
}

// key: [step][key][row][component][N]; switched: mask words, then r bodies; tables[lane]. Result [component][N].
template <class Config>
std::vector<Polynomial> blind_rotate(const ParameterSet& params, const Lines& lines, std::span<const std::uint64_t> key,
                                     std::span<const std::uint32_t> switched, int steps,
                                     std::span<const std::vector<std::uint64_t>> tables) {
    constexpr int N = Config::N, C = Config::kComponents, k = Config::k;
    constexpr std::int64_t p = Config::M::p;
    const std::size_t bits = lines[0].size();
    std::vector<Polynomial> accumulator(C, Polynomial(N));
    for (int lane = 0; lane < Config::kLanes; ++lane)
        for (std::uint32_t j = 0; j < N; ++j) {
            const std::uint32_t at = (j + switched[bits * steps + lane]) % (2 * N);
            const auto word = static_cast<std::int64_t>(tables[lane][at % N]);
            accumulator[k + lane][j] = at < N || word == 0 ? word : p - word;
        }
    for (int step = 0; step < steps; ++step) {
        std::vector<Polynomial> rows;
        for (int c = 0; c < C; ++c) {
            const Gadget gadget = c < k ? Config::shape.mask_gadget : Config::shape.body_gadget;
            const std::size_t first = rows.size();
            rows.resize(first + gadget.level_count, Polynomial(N));
            for (int j = 0; j < N; ++j) {
                const auto digits = reference::decompose(params, gadget, centred(accumulator[c][j], p));
                for (int level = 0; level < gadget.level_count; ++level) rows[first + level][j] = digits[level];
            }
        }
        for (std::size_t number = 0; number < lines.size(); ++number) {
            std::uint32_t exponent = 0;
            for (std::size_t bit = 0; bit < bits; ++bit) exponent += lines[number][bit] * switched[bits * step + bit];
            const std::size_t first = (std::size_t(step) * lines.size() + number) * Config::kRows * C * N;
            for (int c = 0; c < C; ++c) {
                Polynomial product(N);
                for (int row = 0; row < Config::kRows; ++row)
                    multiply_accumulate(product, rows[row], key.subspan(first + (std::size_t(row) * C + c) * N, N));
                for (std::uint32_t j = 0; j < N; ++j) {
                    const std::uint32_t to = (j + exponent) % (2 * N);
                    const std::int64_t moved = product[j] % p;
                    accumulator[c][to % N] = (accumulator[c][to % N] + (to < N ? moved : -moved) + p) % p;
                    accumulator[c][j] = (accumulator[c][j] - moved + p) % p;
                }
            }
        }
        for (Polynomial& polynomial : accumulator)
            for (std::int64_t& word : polynomial) word = (word % p + p) % p;
    }
    return accumulator;
}

// The key in the order in which the kernel reads: [step][output component][vector][row][key][lane] of four points.
template <class Config>
std::vector<Vec4> kernel_key(std::vector<std::uint64_t> key) {
    using Ntt = typename Config::Ntt;
    constexpr int N = Config::N, C = Config::kComponents, rows = Config::kRows, keys = Config::kKeys;
    const std::uint64_t p = Ntt::M::p, scale = mul_mod(pow_mod(2, 64, p), inverse_mod(N, p), p);
    std::vector<Vec4> out(key.size() / 4);
    for (std::size_t i = 0; i < key.size() / N; ++i) {
        std::uint64_t* polynomial = key.data() + i * N;
        forward_transform<Ntt>(polynomial);
        const std::size_t component = i % C, row = i / C % rows, j = i / C / rows % keys, step = i / C / rows / keys;
        for (int lane = 0; lane < 32; ++lane)
            for (int v = 0; v < Config::kVectors; ++v) {
                const std::size_t at = ((((step * C + component) * Config::kVectors + v) * rows + row) * keys + j) * 32 + lane;
                for (int t = 0; t < 4; ++t) out[at].x[t] = Ntt::M::centre(mul_mod(polynomial[Ntt::P * lane + 4 * v + t], scale, p));
            }
    }
    return out;
}

}  // namespace fhe_core::cuda::common_mask
