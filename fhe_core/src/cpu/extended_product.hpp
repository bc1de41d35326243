// Digits times key where nu accumulators are one table (docs/reference/specification.md, section 6), in the transform domain. With
// Y = X^nu and e_j = nu a_j + b_j, the product of part i is
//
//     sum over keys j of D(i - b_j) * (Y^a_j K_j)  -  D(i) * (sum over j of K_j),    D(i) for i < 0: Y D(i + nu),
//
// for digits D: the keys are multiplied by their powers once for all parts, and a digit is multiplied by Y once for all keys.
//
// Source: [LY23] extended tables, [LMSS23] and [BMMP18] steps with several keys. Ours: which factor goes to the keys, which to the
// digits.
#pragma once

#include <cstddef>

#include "cpu/kernels.hpp"
#include "cpu/multiply_accumulate.hpp"
#include "cpu/simd.hpp"
#include "cpu/transform.hpp"

namespace fhe_core::FHE_CORE_ISA {
namespace {

// Words of `ExtendedProduct`, of a vector at a time: keys and minus their sum, digits and Y times digits; halves of even and odd
// lanes.
inline std::size_t extended_scratch_words(int parts, int rows, int keys, int components) {
    return std::size_t(2) * kWidth * rows * ((keys + 1) * components + 2 * parts);
}

// |digits| < 15.6 q, |Y^a K| and |sum of K| < 0.53 q: (keys + 1) * rows up to 31 (expanded_key.cpp) stay under 2^62, and
// their reductions under 9 q.
template <int kComponents>
class ExtendedProduct {
   public:
    ExtendedProduct(const NttTables& tables, int parts, int rows, int keys, const std::uint32_t* exponents, std::int32_t* scratch)
        : tables_(tables), m_(tables), parts_(parts), rows_(rows), keys_(keys), scaled_keys_(scratch) {
        negative_sum_ = scaled_keys_ + std::size_t(keys) * rows * kComponents * 2 * kWidth;
        digits_ = negative_sum_ + std::size_t(rows) * kComponents * 2 * kWidth;
        for (int j = 0; j < keys; ++j) {
            powers_[j].set(exponents[j] / parts, tables);
            shifts_[j] = int(exponents[j] % parts);
        }
    }

    // digits [part][row][N] -> out [part][component][N], |out| < 0.62 q. `prefetch` as in multiply_accumulate.
    void run(const std::int32_t* digits, const std::int32_t* key, std::size_t prefetch, std::int32_t* out) {
        for (int v = 0; v < tables_.polynomial_size / kWidth; ++v) {
            scale_keys(v, key + std::size_t(v) * keys_ * rows_ * kComponents * kWidth, prefetch);
            spread_digits(v, digits);
            for (int part = 0; part < parts_; part += 2) multiply_two(part, v, out);
        }
    }

   private:
    // Y^a_j K_j, and minus the sum of K_j.
    void scale_keys(int v, const std::int32_t* key, std::size_t prefetch) {
        for (int j = 0; j < keys_; ++j) {
            const Vec f_even = powers_[j].power_at(tables_, v, m_.q), f_odd = odd(f_even);
            for (int i = 0; i < rows_ * kComponents; ++i, key += kWidth) {
                if (prefetch != 0) __builtin_prefetch(key + prefetch, 0, 2);
                const Vec k = load_once(key);
                std::int32_t* scaled = scaled_keys_ + std::size_t(j * rows_ * kComponents + i) * 2 * kWidth;
                store(scaled, odd(montgomery(mul_even(k, f_even), m_)));
                store(scaled + kWidth, odd(montgomery(mul_even(odd(k), f_odd), m_)));
                std::int32_t* sum = negative_sum_ + std::size_t(i) * 2 * kWidth;
                store(sum, sub(j == 0 ? zero() : load(sum), k));
            }
        }
        for (int i = 0; i < rows_ * kComponents; ++i) {
            std::int32_t* sum = negative_sum_ + std::size_t(i) * 2 * kWidth;
            const Vec all = load(sum), one = set1(1);
            store(sum, odd(montgomery(mul_even(all, one), m_)));
            store(sum + kWidth, odd(montgomery(mul_even(odd(all), one), m_)));
        }
    }

    // Digit vectors of a position and row: part -nu .. -1 is Y times part 0 .. nu - 1.
    std::int32_t* digit(int part, int row) const { return digits_ + std::size_t((parts_ + part) * rows_ + row) * 2 * kWidth; }
    void spread_digits(int v, const std::int32_t* digits) {
        const Twiddle y = Twiddle::lanes(tables_.unit_roots + std::size_t(v) * 2 * kWidth);
        for (int part = 0; part < parts_; ++part) {
            for (int row = 0; row < rows_; ++row) {
                const Vec d = load_once(digits + std::size_t(part * rows_ + row) * tables_.polynomial_size + v * kWidth);
                const Vec wrapped = shoup(d, y.w, y.companion, y.companion_odd, m_.q);
                store(digit(part, row), d);
                store(digit(part, row) + kWidth, odd(d));
                store(digit(part - parts_, row), wrapped);
                store(digit(part - parts_, row) + kWidth, odd(wrapped));
            }
        }
    }

    struct Sums {
        Vec even[2][kComponents], odds[2][kComponents];
    };
    // sums of two neighbouring parts += digit of parts `part` and `part + 1` * keys of a row.
    void add_row(Sums& sums, int part, int row, const std::int32_t* keys) const {
        const std::int32_t *first = digit(part, row), *second = digit(part + 1, row);
        const Vec d_even[2] = {load_once(first), load_once(second)};
        const Vec d_odd[2] = {load_once(first + kWidth), load_once(second + kWidth)};
#pragma GCC unroll 5
        for (int c = 0; c < kComponents; ++c, keys += 2 * kWidth) {
            const Vec k_even = load_once(keys), k_odd = load_once(keys + kWidth);
#pragma GCC unroll 2
            for (int t = 0; t < 2; ++t) {
                accumulate64(sums.even[t][c], mul_even(d_even[t], k_even));
                accumulate64(sums.odds[t][c], mul_even(d_odd[t], k_odd));
            }
        }
    }
    void multiply_two(int part, int v, std::int32_t* out) const {
        Sums sums;
#pragma GCC unroll 2
        for (int t = 0; t < 2; ++t) {
#pragma GCC unroll 5
            for (int c = 0; c < kComponents; ++c) sums.even[t][c] = sums.odds[t][c] = zero();
        }
        const std::size_t row_words = std::size_t(kComponents) * 2 * kWidth;
        for (int row = 0; row < rows_; ++row) add_row(sums, part, row, negative_sum_ + row * row_words);
        for (int j = 0; j < keys_; ++j)
            for (int row = 0; row < rows_; ++row)
                add_row(sums, part - shifts_[j], row, scaled_keys_ + std::size_t(j * rows_ + row) * row_words);
#pragma GCC unroll 2
        for (int t = 0; t < 2; ++t) {
#pragma GCC unroll 5
            for (int c = 0; c < kComponents; ++c)
                store(out + std::size_t((part + t) * kComponents + c) * tables_.polynomial_size + v * kWidth,
                      reduce(merge_high(montgomery(sums.even[t][c], m_), montgomery(sums.odds[t][c], m_)), m_.q));
        }
    }

    const NttTables& tables_;
    Modulus m_;
    int parts_, rows_, keys_;
    std::int32_t *scaled_keys_, *negative_sum_, *digits_;
    Monomial powers_[kMaxKeys];
    int shifts_[kMaxKeys];
};

}  // namespace
}  // namespace fhe_core::FHE_CORE_ISA
