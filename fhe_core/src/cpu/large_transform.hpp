// Large negacyclic transforms of one polynomial modulo one prime (large_ntt.hpp), vectorised over sixteen columns, then over
// sixteen rows: every root of a stage is common to all lanes. Ranges are in quarters of q, at most 32.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "core/bit_reverse.hpp"
#include "core/large_ntt.hpp"
#include "cpu/kernels.hpp"
#include "cpu/simd.hpp"
#include "cpu/transform.hpp"

namespace fhe_core::FHE_CORE_ISA {
namespace {

constexpr int kColumns = cpu::kLargeNttColumns, kVectors = kColumns / kWidth;
// Independent chains of powers: enough to hide the latency of a product.
constexpr int kChains = 8;

// |x| < b -> |x| <= max(c, b - c)
inline Vec fold(Vec x, Vec c) {
    const Vec sign = shift_right<31>(x);
    return sub(x, sub(bit_xor(c, sign), sign));
}

struct LargeModulus {
    Vec q, q2, q4, q_inverse;
    explicit LargeModulus(const LargePrime& prime)
        : q(set1(std::int32_t(prime.q))),
          q2(set1(std::int32_t(2 * prime.q))),
          q4(set1(std::int32_t(4 * prime.q))),
          q_inverse(set1(std::int32_t(prime.q_inverse))) {}

    Vec folded(Vec x, int mask) const {
        if (mask & 4) x = fold(x, q4);
        if (mask & 2) x = fold(x, q2);
        if (mask & 1) x = fold(x, q);
        return x;
    }
    // |x| < 8 q -> the residue in [0, q)
    Vec residue(Vec x) const {
        x = folded(x, 7);  // [-q, q)
        return min_unsigned(x, add(x, q));
    }
    // x * y / 2^32, within q/2 + |x y| / 2^32
    Vec montgomery_product(Vec x, Vec y) const { return reduced_pair(mul_even(x, y), mul_even(odd(x), odd(y))); }
    // Sums of 64 bits in even and in odd lanes / 2^32, within q/2 + |sum| / 2^32
    Vec reduced_pair(Vec even, Vec odds) const { return merge_high(reduced(even), reduced(odds)); }

   private:
    Vec reduced(Vec sum) const { return sub64(sum, mul_even(mul_even(sum, q_inverse), q)); }
};

// body(x, group) on 2^logs vectors at a time of `size` vectors of sixteen lanes, those of one group's butterflies.
template <int logs, class Body>
void large_pass(std::int32_t* lanes, int size, int groups, const Body& body) {
    constexpr int count = 1 << logs;
    const int stride = size / groups / count;
    for (int group = 0; group < groups; ++group)
        for (int offset = 0; offset < stride; ++offset)
            for (int v = 0; v < kVectors; ++v) {
                std::int32_t* first = lanes + (std::size_t(group) * stride * count + offset) * kColumns + v * kWidth;
                Vec x[count];
#pragma GCC unroll 8
                for (int i = 0; i < count; ++i) x[i] = load(first + std::size_t(i) * stride * kColumns);
                body(x, group);
#pragma GCC unroll 8
                for (int i = 0; i < count; ++i) store(first + std::size_t(i) * stride * kColumns, x[i]);
            }
}

// `mask`: folds before the stages.
template <int logs>
void large_forward_pass(std::int32_t* lanes, const std::int32_t* roots, int size, int groups, const LargeModulus& m, int mask) {
    constexpr int count = 1 << logs;
    large_pass<logs>(lanes, size, groups, [&](Vec(&x)[count], int group) {
#pragma GCC unroll 8
        for (int i = 0; i < count; ++i) x[i] = m.folded(x[i], mask);
        forward_stages<logs, count, false>(x, roots, groups, group, m.q, m.q);
    });
}

template <int logs>
inline constexpr InversePlan<logs> kLargeInversePlan{kProductQuarters, kProductQuarters};

template <int logs>
void large_inverse_pass(std::int32_t* lanes, const std::int32_t* roots, int size, int groups, const LargeModulus& m) {
    constexpr int count = 1 << logs;
    large_pass<logs>(lanes, size, groups, [&](Vec(&x)[count], int group) {
#pragma GCC unroll 4
        for (int s = logs - 1; s >= 0; --s) {
            const int half = count >> (s + 1);
#pragma GCC unroll 8
            for (int i = 0; i < count; ++i) x[i] = m.folded(x[i], kLargeInversePlan<logs>.folds[s][i]);
#pragma GCC unroll 8
            for (int g = 0; g < (1 << s); ++g) {
                const Twiddle t = Twiddle::broadcast(roots + 2 * std::size_t((groups + group) * (1 << s) + g));
#pragma GCC unroll 8
                for (int r = 0; r < half; ++r) inverse_butterfly<false>(x[g * 2 * half + r], x[g * 2 * half + r + half], t, m.q);
            }
        }
#pragma GCC unroll 8
        for (int i = 0; i < count; ++i) x[i] = m.folded(x[i], kLargeInversePlan<logs>.folds[logs][i]);
    });
}

// All stages over `size` vectors, which are within `bound` before and 8q after.
inline void large_forward_stages(std::int32_t* lanes, const std::int32_t* roots, int size, int bound, const LargeModulus& m) {
    for (int groups = 1; groups < size;) {
        const int left = log2_exact(size / groups), logs = left % kOuterRadixLog == 0 ? kOuterRadixLog : left % kOuterRadixLog;
        int mask = 0;
        if (bound + kProductQuarters * logs > kMostQuarters || bound > 16) {
            const int by = bound > 24 ? 16 : 8;
            mask = by / 4;
            bound = folded(bound, by);
        }
        bound += kProductQuarters * logs;
        if (logs == 1) large_forward_pass<1>(lanes, roots, size, groups, m, mask);
        if (logs == 2) large_forward_pass<2>(lanes, roots, size, groups, m, mask);
        if (logs == 3) large_forward_pass<3>(lanes, roots, size, groups, m, mask);
        groups <<= logs;
    }
}

inline void large_inverse_stages(std::int32_t* lanes, const std::int32_t* roots, int size, const LargeModulus& m) {
    for (int groups = size; groups > 1;) {
        const int left = log2_exact(groups), logs = std::min(left, kOuterRadixLog);
        groups >>= logs;
        if (logs == 1) large_inverse_pass<1>(lanes, roots, size, groups, m);
        if (logs == 2) large_inverse_pass<2>(lanes, roots, size, groups, m);
        if (logs == 3) large_inverse_pass<3>(lanes, roots, size, groups, m);
    }
}

// Sixteen columns of [N1][256] words and back.
inline void large_columns(const cpu::LargeNttJob& job, bool inverse, const LargeModulus& m) {
    const LargeNttLayout layout{job.n1};
    const int size = int(layout.column_count());
    for (int column = 0; column < kRowSize; column += kColumns) {
        std::int32_t* words = reinterpret_cast<std::int32_t*>(job.words) + column;
        for (int r = 0; r < size; ++r)
            for (int v = 0; v < kColumns; v += kWidth)
                store(job.scratch + r * kColumns + v, load(words + std::size_t(r) * kRowSize + v));
        if (inverse) {
            large_inverse_stages(job.scratch, &job.roots[layout.columns_inverse()].value, size, m);
        } else {
            large_forward_stages(job.scratch, &job.roots[layout.columns()].value, size, 4, m);
        }
        for (int r = 0; r < size; ++r)
            for (int v = 0; v < kColumns; v += kWidth) {
                const Vec x = load(job.scratch + r * kColumns + v);
                store(words + std::size_t(r) * kRowSize + v, inverse ? m.residue(x) : x);
            }
    }
}

// powers[j][16]: psi^(j R) of the sixteen rows from `first` on, or psi^(-j R) / N, times 2^32.
inline void large_row_powers(const cpu::LargeNttJob& job, int first, bool inverse, const LargeModulus& m, std::int32_t* powers) {
    const LargeNttLayout layout{job.n1};
    const std::uint64_t q = job.prime->q, order = std::uint64_t{2 * kRowSize} << job.n1;
    alignas(64) std::int32_t lanes[kColumns];
    for (int lane = 0; lane < kColumns; ++lane) {
        const std::uint64_t reversed = bit_reverse(std::size_t(first + lane), job.n1);
        const std::uint64_t e = inverse ? order - (2 * reversed + 1) : 2 * reversed + 1;
        const auto lifted = [&](std::size_t root) {
            const std::int32_t value = job.roots[root].value;
            return std::uint64_t(value < 0 ? value + std::int64_t(q) : value);
        };
        const std::uint64_t power = lifted(layout.low() + e % (1 << kLowLog)) * lifted(layout.high() + (e >> kLowLog)) % q;
        const std::uint64_t word = (power << 32) % q;
        lanes[lane] = std::int32_t(word) - (word > q / 2 ? std::int32_t(q) : 0);
    }
    const Vec one = set1(inverse ? job.prime->one_over_n : job.prime->montgomery);
    for (int v = 0; v < kColumns; v += kWidth) {
        const Vec base = load(lanes + v);
        Vec chain[kChains], step = base;
        chain[0] = one;
        for (int i = 1; i < kChains; ++i) {
            chain[i] = m.montgomery_product(chain[i - 1], base);
            step = m.montgomery_product(step, base);
        }
        for (int j = 0; j < kRowSize; j += kChains)
#pragma GCC unroll 8
            for (int i = 0; i < kChains; ++i) {
                store(powers + (j + i) * kColumns + v, chain[i]);
                chain[i] = m.montgomery_product(chain[i], step);
            }
    }
}

// Sixteen rows: twist and row stages, or back.
inline void large_rows(const cpu::LargeNttJob& job, bool inverse, const LargeModulus& m) {
    const LargeNttLayout layout{job.n1};
    std::int32_t* lanes = job.scratch;
    std::int32_t* powers = job.scratch + kRowSize * kColumns;
    for (int first = 0; first < int(layout.column_count()); first += kColumns) {
        large_row_powers(job, first, inverse, m, powers);
        std::int32_t* words = reinterpret_cast<std::int32_t*>(job.words) + std::size_t(first) * kRowSize;
        for (int row = 0; row < kColumns; row += kWidth)
            for (int j = 0; j < kRowSize; j += kWidth) {
                Vec x[kWidth];
#pragma GCC unroll 16
                for (int i = 0; i < kWidth; ++i) x[i] = load(words + std::size_t(row + i) * kRowSize + j);
                transpose(x);
#pragma GCC unroll 16
                for (int i = 0; i < kWidth; ++i) {
                    const std::size_t place = std::size_t(j + i) * kColumns + row;
                    store(lanes + place, inverse ? x[i] : m.montgomery_product(x[i], load(powers + place)));
                }
            }
        if (inverse) {
            large_inverse_stages(lanes, &job.roots[layout.rows_inverse()].value, kRowSize, m);
        } else {
            large_forward_stages(lanes, &job.roots[layout.rows()].value, kRowSize, kProductQuarters, m);
        }
        for (int row = 0; row < kColumns; row += kWidth)
            for (int j = 0; j < kRowSize; j += kWidth) {
                Vec x[kWidth];
#pragma GCC unroll 16
                for (int i = 0; i < kWidth; ++i) {
                    const std::size_t place = std::size_t(j + i) * kColumns + row;
                    const Vec y = load(lanes + place);
                    x[i] = inverse ? m.montgomery_product(y, load(powers + place)) : m.residue(y);
                }
                transpose(x);
#pragma GCC unroll 16
                for (int i = 0; i < kWidth; ++i) store(words + std::size_t(row + i) * kRowSize + j, x[i]);
            }
    }
}

void large_ntt(const cpu::LargeNttJob& job, bool inverse) {
    const LargeModulus m(*job.prime);
    if (inverse) {
        large_rows(job, true, m);
        large_columns(job, true, m);
    } else {
        large_columns(job, false, m);
        large_rows(job, false, m);
    }
}

}  // namespace
}  // namespace fhe_core::FHE_CORE_ISA
