// Levelled arithmetic modulo one prime (levelled.hpp), on rows of residues in [0, q). Counts are multiples of the vectors' width.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/large_ntt.hpp"
#include "cpu/kernels.hpp"
#include "cpu/large_transform.hpp"
#include "cpu/simd.hpp"

namespace fhe_core::FHE_CORE_ISA {
namespace {

inline const std::int32_t* signed_words(const std::uint32_t* words) { return reinterpret_cast<const std::int32_t*>(words); }
inline std::int32_t* signed_words(std::uint32_t* words) { return reinterpret_cast<std::int32_t*>(words); }

// (-q, q) -> [0, q)
inline Vec lifted(Vec x, Vec q) { return min_unsigned(x, add(x, q)); }

// (a - b) * factor / 2^32; b may be nullptr.
void levelled_scale(const LargePrime& prime, const std::uint32_t* a, const std::uint32_t* b, std::int32_t factor, std::size_t count,
                    std::uint32_t* out) {
    const LargeModulus m(prime);
    const Vec by = set1(factor);
    for (std::size_t j = 0; j < count; j += kWidth) {
        Vec x = load(signed_words(a) + j);
        if (b != nullptr) x = sub(x, load(signed_words(b) + j));  // (-q, q)
        store(signed_words(out) + j, lifted(m.montgomery_product(x, by), m.q));
    }
}

// a * factor / 2^32, centred.
void levelled_centre(const LargePrime& prime, const std::uint32_t* a, std::int32_t factor, std::size_t count, std::int32_t* out) {
    const LargeModulus m(prime);
    const Vec by = set1(factor), half = set1(std::int32_t(prime.q / 2));
    for (std::size_t j = 0; j < count; j += kWidth) {
        const Vec x = lifted(m.montgomery_product(load(signed_words(a) + j), by), m.q);
        store(out + j, sub(x, bit_and(shift_right<31>(sub(half, x)), m.q)));
    }
}

// out[j] = sum over i of digits[i * stride + j] * row[i] / 2^32, both centred, of at most as many terms as there are primes.
void levelled_change(const LargePrime& prime, const std::int32_t* digits, std::size_t stride, const std::int32_t* row,
                     std::size_t terms, std::size_t count, std::uint32_t* out) {
    const LargeModulus m(prime);
    for (std::size_t j = 0; j < count; j += kWidth) {
        Vec even = zero(), odds = zero();  // |.| < terms * 2^54
        for (std::size_t i = 0; i < terms; ++i) {
            const Vec x = load(digits + i * stride + j), w = set1(row[i]);
            even = add64(even, mul_even(x, w));
            odds = add64(odds, mul_even(odd(x), w));
        }
        store(signed_words(out) + j, m.residue(m.reduced_pair(even, odds)));
    }
}

// out[j] = sum over k of a[k][j] * b[k][j] / 2^32.
void levelled_products(const LargePrime& prime, const std::uint32_t* const* a, const std::uint32_t* const* b, std::size_t terms,
                       std::size_t count, std::uint32_t* out) {
    constexpr std::size_t kTermsAtOnce = 64;  // sums below 2^62, reduced below 2^30 + q / 2
    const LargeModulus m(prime);
    for (std::size_t j = 0; j < count; j += kWidth) {
        Vec total = zero();
        for (std::size_t first = 0; first < terms; first += kTermsAtOnce) {
            const std::size_t last = first + kTermsAtOnce < terms ? first + kTermsAtOnce : terms;
            Vec even = zero(), odds = zero();
            for (std::size_t k = first; k < last; ++k) {
                const Vec x = load(signed_words(a[k]) + j), y = load(signed_words(b[k]) + j);
                even = add64(even, mul_even(x, y));
                odds = add64(odds, mul_even(odd(x), odd(y)));
            }
            const Vec sum = sub(add(total, m.residue(m.reduced_pair(even, odds))), m.q);  // [-q, q)
            total = lifted(sum, m.q);
        }
        store(signed_words(out) + j, total);
    }
}

// out = a + b, or a - b.
void levelled_add(const LargePrime& prime, const std::uint32_t* a, const std::uint32_t* b, bool negative, std::size_t count,
                  std::uint32_t* out) {
    const Vec q = set1(std::int32_t(prime.q));
    for (std::size_t j = 0; j < count; j += kWidth) {
        const Vec x = load(signed_words(a) + j), y = load(signed_words(b) + j);
        store(signed_words(out) + j, lifted(negative ? sub(x, y) : sub(add(x, y), q), q));
    }
}

}  // namespace
}  // namespace fhe_core::FHE_CORE_ISA
