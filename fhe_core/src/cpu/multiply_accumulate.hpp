// Digits times key in the transform domain, with the monomial factors X^e - 1 of docs/reference/specification.md, section 6.
// Source: [BMMP18] two key bits per step. Ours: the factors multiply the products, not the keys.
#pragma once

#include <cstddef>

#include "cpu/kernels.hpp"
#include "cpu/simd.hpp"
#include "cpu/transform.hpp"

namespace fhe_core::FHE_CORE_ISA {
namespace {

using cpu::NttTables;

constexpr int kMaxKeys = Rotation::kMostKeys;

// X^e - 1 at the points of one vector register: psi^(e*E) = psi^(e*vector_exponent) * psi^(e*lane_exponent). Vectors 2i and 2i + 1
// differ by psi^(e*N) = (-1)^e, so a product is computed for every other one.
struct Monomial {
    std::uint32_t exponent;                      // [0, 2N)
    alignas(64) std::int32_t lanes[2 * kWidth];  // roots, companions
    alignas(64) std::int32_t power[kWidth];      // X^e at the last even vector, (-q/4, 5q/4)

    void set(std::uint32_t e, const NttTables& tables) {
        const std::uint32_t mask = 2 * std::uint32_t(tables.polynomial_size) - 1;
        exponent = e & mask;
        for (int l = 0; l < kWidth; ++l) {
            const std::uint32_t at = (exponent * std::uint32_t(tables.lane_exponents[l])) & mask;
            lanes[l] = tables.powers[at];
            lanes[kWidth + l] = tables.power_companions[at];
        }
    }

    // X^e, |power| <= 5q/4; to be called for vectors 0, 1, 2, .. in order.
    Vec power_at(const NttTables& tables, int vector, Vec q) {
        if (vector % 2 == 1) {
            const Vec negative = set1(-static_cast<std::int32_t>(exponent & 1));
            return sub(bit_xor(load(power), negative), negative);
        }
        const std::uint32_t mask = 2 * std::uint32_t(tables.polynomial_size) - 1;
        const Vec scalar = set1(tables.powers[(exponent * std::uint32_t(tables.vector_exponents[vector])) & mask]);
        const Vec companion = load(lanes + kWidth);
        const Vec product = shoup(scalar, load(lanes), companion, odd(companion), q);
        store(power, product);
        return product;
    }
    // X^e - 1, |factor| <= 5q/4 + 1.
    Vec factor(const NttTables& tables, int vector, Vec q) { return sub(power_at(tables, vector, q), set1(1)); }
};

// out[c] = sum over keys j of factor_j * sum over rows of digits[row] * key[j][row][c], in the transform domain, for `kCiphertexts`
// ciphertexts at once. The key slice `prefetch` words further on (the next step's) is brought to the second-level cache meanwhile.
// |digits| < 15.6 q < 2^31, |key| <= q/2: sums of up to 32 rows stay under 2^62. |out| <= 1.875 q (expanded_key.cpp). `kKeys`: of a
// step, 0 for any number of several. Longer than a screen: its sums live in registers from the first loop to the last.
template <int kComponents, int kKeys, int kCiphertexts, bool kPrefetch>
void multiply_accumulate_rows(const NttTables& tables, const std::int32_t* digits, std::size_t digit_stride, int rows, int keys,
                              const std::int32_t* key, std::size_t prefetch, Monomial (*monomials)[kMaxKeys], std::int32_t* out,
                              std::size_t out_stride) {
    const Modulus m(tables);
    const int n = tables.polynomial_size;
    for (int v = 0; v < n / kWidth; ++v) {
        Vec total_even[kCiphertexts][kComponents], total_odd[kCiphertexts][kComponents];
#pragma GCC unroll 3
        for (int j = 0; j < (kKeys > 0 ? kKeys : keys); ++j) {
            Vec even[kCiphertexts][kComponents], odds[kCiphertexts][kComponents];
#pragma GCC unroll 2
            for (int t = 0; t < kCiphertexts; ++t) {
#pragma GCC unroll 5
                for (int c = 0; c < kComponents; ++c) even[t][c] = odds[t][c] = zero();
            }
            for (int row = 0; row < rows; ++row) {
                Vec d_even[kCiphertexts], d_odd[kCiphertexts];
#pragma GCC unroll 2
                for (int t = 0; t < kCiphertexts; ++t) {
                    d_even[t] = load_once(digits + t * digit_stride + std::size_t(row) * n + v * kWidth);
                    d_odd[t] = odd(d_even[t]);
                }
#pragma GCC unroll 5
                for (int c = 0; c < kComponents; ++c) {
                    if constexpr (kPrefetch) __builtin_prefetch(key + prefetch, 0, 2);
                    const Vec k_even = load_once(key);
                    const Vec k_odd = odd(k_even);
                    key += kWidth;
#pragma GCC unroll 2
                    for (int t = 0; t < kCiphertexts; ++t) {
                        accumulate64(even[t][c], mul_even(d_even[t], k_even));
                        accumulate64(odds[t][c], mul_even(d_odd[t], k_odd));
                    }
                }
            }
#pragma GCC unroll 2
            for (int t = 0; t < kCiphertexts; ++t) {
                if constexpr (kKeys == 1) {
#pragma GCC unroll 5
                    for (int c = 0; c < kComponents; ++c) {
                        store(out + t * out_stride + std::size_t(c) * n + v * kWidth,
                              merge_high(montgomery(even[t][c], m), montgomery(odds[t][c], m)));
                    }
                } else {
                    const Vec f_even = monomials[t][j].factor(tables, v, m.q);
                    const Vec f_odd = odd(f_even);
#pragma GCC unroll 5
                    for (int c = 0; c < kComponents; ++c) {
                        const Vec p_even = mul_even(odd(montgomery(even[t][c], m)), f_even);
                        const Vec p_odd = mul_even(odd(montgomery(odds[t][c], m)), f_odd);
                        total_even[t][c] = j == 0 ? p_even : add64(total_even[t][c], p_even);
                        total_odd[t][c] = j == 0 ? p_odd : add64(total_odd[t][c], p_odd);
                    }
                }
            }
        }
        if constexpr (kKeys != 1) {
#pragma GCC unroll 2
            for (int t = 0; t < kCiphertexts; ++t) {
#pragma GCC unroll 5
                for (int c = 0; c < kComponents; ++c) {
                    store(out + t * out_stride + std::size_t(c) * n + v * kWidth,
                          merge_high(montgomery(total_even[t][c], m), montgomery(total_odd[t][c], m)));
                }
            }
        }
    }
}

// The same with the factors on the digits, which is cheaper when there are no more rows than components: no sum is reduced but the
// last.
template <int kComponents, int kKeys, int kCiphertexts, bool kPrefetch>
void multiply_accumulate_few_rows(const NttTables& tables, const std::int32_t* digits, std::size_t digit_stride, int rows, int keys,
                                  const std::int32_t* key, std::size_t prefetch, Monomial (*monomials)[kMaxKeys], std::int32_t* out,
                                  std::size_t out_stride) {
    const Modulus m(tables);
    const int n = tables.polynomial_size;
    for (int v = 0; v < n / kWidth; ++v) {
        Vec even[kCiphertexts][kComponents], odds[kCiphertexts][kComponents];
#pragma GCC unroll 2
        for (int t = 0; t < kCiphertexts; ++t) {
#pragma GCC unroll 5
            for (int c = 0; c < kComponents; ++c) even[t][c] = odds[t][c] = zero();
        }
        for (int j = 0; j < (kKeys > 0 ? kKeys : keys); ++j) {
            Vec f_even[kCiphertexts], f_odd[kCiphertexts];
#pragma GCC unroll 2
            for (int t = 0; t < kCiphertexts; ++t) {
                f_even[t] = monomials[t][j].factor(tables, v, m.q);
                f_odd[t] = odd(f_even[t]);
            }
            for (int row = 0; row < rows; ++row) {
                Vec g_even[kCiphertexts], g_odd[kCiphertexts];  // digit * factor, |g| <= 1.1 q
#pragma GCC unroll 2
                for (int t = 0; t < kCiphertexts; ++t) {
                    const Vec d = load_once(digits + t * digit_stride + std::size_t(row) * n + v * kWidth);
                    g_even[t] = odd(montgomery(mul_even(d, f_even[t]), m));
                    g_odd[t] = odd(montgomery(mul_even(odd(d), f_odd[t]), m));
                }
#pragma GCC unroll 5
                for (int c = 0; c < kComponents; ++c) {
                    if constexpr (kPrefetch) __builtin_prefetch(key + prefetch, 0, 2);
                    const Vec k_even = load_once(key);
                    const Vec k_odd = odd(k_even);
                    key += kWidth;
#pragma GCC unroll 2
                    for (int t = 0; t < kCiphertexts; ++t) {
                        accumulate64(even[t][c], mul_even(g_even[t], k_even));
                        accumulate64(odds[t][c], mul_even(g_odd[t], k_odd));
                    }
                }
            }
        }
#pragma GCC unroll 2
        for (int t = 0; t < kCiphertexts; ++t) {
#pragma GCC unroll 5
            for (int c = 0; c < kComponents; ++c) {
                store(out + t * out_stride + std::size_t(c) * n + v * kWidth,
                      merge_high(montgomery(even[t][c], m), montgomery(odds[t][c], m)));
            }
        }
    }
}

template <int kComponents, int kKeys, int kCiphertexts>
auto multiply_accumulate_for(int rows, bool prefetch) {
    if (kKeys != 1 && rows <= kComponents)
        return prefetch ? multiply_accumulate_few_rows<kComponents, kKeys, kCiphertexts, true>
                        : multiply_accumulate_few_rows<kComponents, kKeys, kCiphertexts, false>;
    return prefetch ? multiply_accumulate_rows<kComponents, kKeys, kCiphertexts, true>
                    : multiply_accumulate_rows<kComponents, kKeys, kCiphertexts, false>;
}

// Loops over the keys of a pair and of a block of six are unrolled, which saves 1 to 4 % of a rotation.
template <int kComponents, int kCiphertexts>
void multiply_accumulate(const NttTables& tables, const std::int32_t* digits, std::size_t digit_stride, int rows, int keys,
                         const std::int32_t* key, std::size_t prefetch, Monomial (*monomials)[kMaxKeys], std::int32_t* out,
                         std::size_t out_stride) {
    const auto run = keys == 1   ? multiply_accumulate_for<kComponents, 1, kCiphertexts>(rows, prefetch != 0)
                     : keys == 3 ? multiply_accumulate_for<kComponents, 3, kCiphertexts>(rows, prefetch != 0)
                     : keys == 6 ? multiply_accumulate_for<kComponents, 6, kCiphertexts>(rows, prefetch != 0)
                                 : multiply_accumulate_for<kComponents, 0, kCiphertexts>(rows, prefetch != 0);
    run(tables, digits, digit_stride, rows, keys, key, prefetch, monomials, out, out_stride);
}

}  // namespace
}  // namespace fhe_core::FHE_CORE_ISA
