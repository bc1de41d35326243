// The negacyclic number-theoretic transform modulo q < 2^27, a prime or a multiple of one, vectorised over coefficients. Forward:
// decimation in frequency order of Cooley-Tukey with the 2N-th roots merged; inverse: Gentleman-Sande. Specification: schoolbook
// multiplication.
//
// Signed Shoup products need no exact reduction: with |w| <= q/2 and companion w' = round(w * 2^32 / q),
// shoup(x) = x*w - q*floor(x*w' / 2^32) lies in (-q/4, 5q/4) for every 32-bit x. A forward stage therefore adds at most 1.25 q:
// twelve stages from centred input stay under 15.6 q < 2^31. An inverse stage doubles sums; the sums of stages 3, 6 and 9 are
// reduced.
//
// A block of W^2 coefficients lives in W registers: log2 W stages across registers, a transposition, and log2 W more stages.
//
// Source: [LN16] merged twiddles; [Har14] products by constants and late reduction; [Sei18] algorithm 3, Montgomery with signs.
// Ours: signed throughout, q < 2^27 leaves room for all forward stages without a reduction.
#pragma once

#include <cstddef>

#include "cpu/kernels.hpp"
#include "cpu/simd.hpp"

namespace fhe_core::FHE_CORE_ISA {
namespace {

constexpr int log2_exact(int n) { return n == 1 ? 0 : 1 + log2_exact(n / 2); }
constexpr int kLogWidth = log2_exact(kWidth);
// Stages done together on registers before a block fits; more would spill.
constexpr int kOuterRadixLog = kWidth == 16 ? 3 : 2;

struct Modulus {
    Vec q;
    Vec prime;
    Vec prime_inverse;
    explicit Modulus(const cpu::NttTables& tables)
        : q(set1(tables.q)), prime(set1(tables.prime)), prime_inverse(set1(tables.prime_inverse)) {}
};

// x * w mod q in (-q/4, 5q/4); `companion_odd` = odd(companion).
inline Vec shoup(Vec x, Vec w, Vec companion, Vec companion_odd, Vec q) {
    const Vec quotient = merge_high(mul_even(x, companion), mul_even(odd(x), companion_odd));
    return sub(mul_low(x, w), mul_low(quotient, q));
}

// |x| <= 15 q -> |x| < 0.62 q: subtracts round(x / 2^27) * q.
inline Vec reduce(Vec x, Vec q) {
    const Vec quotient = shift_right<27>(add(x, set1(1 << 26)));
    return sub(x, mul_low(quotient, q));
}

// 64-bit sums -> sum * 2^-32 modulo the prime in the high half of each lane pair.
inline Vec montgomery(Vec sum, const Modulus& m) { return sub64(sum, mul_even(mul_even(sum, m.prime_inverse), m.prime)); }

struct Twiddle {
    Vec w, companion, companion_odd;
    // One root for all lanes.
    static Twiddle broadcast(const std::int32_t* pair) {
        const Vec companion = set1(pair[1]);
        return {set1(pair[0]), companion, companion};
    }
    // A root per lane: [W] roots, [W] companions.
    static Twiddle lanes(const std::int32_t* pair) {
        const Vec companion = load_once(pair + kWidth);
        return {load_once(pair), companion, odd(companion)};
    }
};

inline void forward_butterfly(Vec& a, Vec& b, const Twiddle& t, Vec q) {
    const Vec product = shoup(b, t.w, t.companion, t.companion_odd, q);
    b = sub(a, product);
    a = add(a, product);
}

template <bool reduce_sum>
inline void inverse_butterfly(Vec& a, Vec& b, const Twiddle& t, Vec q) {
    const Vec sum = add(a, b);
    b = shoup(sub(a, b), t.w, t.companion, t.companion_odd, q);
    a = reduce_sum ? reduce(sum, q) : sum;
}

// Stages of the forward transform over registers x[0..2^logs), first group `group` of `groups` of the first stage.
template <int logs, int count, bool small_first>
inline void forward_stages(Vec (&x)[count], const std::int32_t* roots, int groups, int group, Vec q, Vec small_root) {
#pragma GCC unroll 4
    for (int s = 0; s < logs; ++s) {
        const int half = (1 << logs) >> (s + 1);
#pragma GCC unroll 8
        for (int g = 0; g < (1 << s); ++g) {
            if (small_first && s == 0) {  // digits times the small square root of -1 need no reduction
#pragma GCC unroll 8
                for (int r = 0; r < half; ++r) {
                    const Vec product = mul_low(x[r + half], small_root);
                    x[r + half] = sub(x[r], product);
                    x[r] = add(x[r], product);
                }
                continue;
            }
            const Twiddle t = Twiddle::broadcast(roots + 2 * std::size_t((groups + group) * (1 << s) + g));
#pragma GCC unroll 8
            for (int r = 0; r < half; ++r) forward_butterfly(x[g * 2 * half + r], x[g * 2 * half + r + half], t, q);
        }
    }
}

// `done`: inverse stages finished before these, of `all`; after every third stage but the last the sums are reduced.
template <int logs, int done, int all, int count>
inline void inverse_stages(Vec (&x)[count], const std::int32_t* roots, int groups, int group, Vec q) {
#pragma GCC unroll 4
    for (int s = logs - 1; s >= 0; --s) {
        const int half = (1 << logs) >> (s + 1);
        const bool reduce_sum = (done + logs - s) % 3 == 0 && done + logs - s != all;
#pragma GCC unroll 8
        for (int g = 0; g < (1 << s); ++g) {
            const Twiddle t = Twiddle::broadcast(roots + 2 * std::size_t((groups + group) * (1 << s) + g));
#pragma GCC unroll 8
            for (int r = 0; r < half; ++r) {
                Vec& a = x[g * 2 * half + r];
                Vec& b = x[g * 2 * half + r + half];
                if (reduce_sum) {
                    inverse_butterfly<true>(a, b, t, q);
                } else {
                    inverse_butterfly<false>(a, b, t, q);
                }
            }
        }
    }
}

// Where a forward transform reads: a polynomial, or digits cut from accumulator words on the way:
// (((z + offset) >> shift) & mask) - half, the low 32 bits.
struct LoadPlain {
    const std::int32_t* data;
    Vec operator()(std::size_t i) const { return load(data + i); }
};
template <class Word>
struct LoadDigits {
    const Word* data;
    Word offset;
    std::int32_t shift, mask, half;
    Vec operator()(std::size_t i) const {
        const std::int32_t* words = reinterpret_cast<const std::int32_t*>(data + i);
        Vec shifted;
        if constexpr (sizeof(Word) == 4) {
            shifted = shift_right(add(load(words), set1(static_cast<std::int32_t>(offset))), shift);
        } else {
            const Vec add_offset = set1_64(static_cast<std::int64_t>(offset));
            shifted = narrow(shift_right64(add64(load(words), add_offset), shift),
                             shift_right64(add64(load(words + kWidth), add_offset), shift));
        }
        return sub(bit_and(shifted, set1(mask)), set1(half));
    }
};
// The most significant digit of two-limb words where the low 32 bits after the shift are the digit as they stand.
struct LoadTopDigit {
    const std::uint64_t* data;
    std::uint64_t offset;
    std::int32_t shift;
    Vec operator()(std::size_t i) const {
        const std::int32_t* words = reinterpret_cast<const std::int32_t*>(data + i);
        const Vec add_offset = set1_64(static_cast<std::int64_t>(offset));
        return narrow(shift_right64(add64(load(words), add_offset), shift),
                      shift_right64(add64(load(words + kWidth), add_offset), shift));
    }
};

// Where an inverse transform writes: a polynomial, |x| <= 10 q, or added to accumulator words in [0, q).
struct StorePlain {
    std::int32_t* data;
    void operator()(std::size_t i, Vec x, Vec) const { store(data + i, x); }
};
struct StoreAdd {
    std::int32_t* data;
    void operator()(std::size_t i, Vec x, Vec q) const {
        const Vec sum = add(load(data + i), reduce(x, q));  // (-0.62 q, 1.62 q)
        const Vec positive = min_unsigned(sum, add(sum, q));
        store(data + i, min_unsigned(positive, sub(positive, q)));
    }
};

// `logs` stages of all groups of a polynomial, from `in` to `out` (which may be the same).
template <int N, int groups, int logs, bool small_first, class Load>
inline void forward_pass(const Load& in, std::int32_t* out, const cpu::NttTables& tables) {
    const Vec q = set1(tables.q), small_root = set1(tables.sqrt_minus_one);
    constexpr int count = 1 << logs, stride = N / groups / count;  // coefficients
    for (int group = 0; group < groups; ++group) {
        for (int offset = 0; offset < stride; offset += kWidth) {
            Vec x[count];
            const std::size_t base = std::size_t(group) * stride * count + offset;
#pragma GCC unroll 8
            for (int i = 0; i < count; ++i) x[i] = in(base + i * stride);
            forward_stages<logs, count, small_first>(x, tables.forward, groups, group, q, small_root);
#pragma GCC unroll 8
            for (int i = 0; i < count; ++i) store(out + base + i * stride, x[i]);
        }
    }
}

template <int N, int groups, int logs, int done, class Store>
inline void inverse_pass(const std::int32_t* data, const Store& out, const cpu::NttTables& tables) {
    const Vec q = set1(tables.q);
    constexpr int count = 1 << logs, stride = N / groups / count;
    for (int group = 0; group < groups; ++group) {
        for (int offset = 0; offset < stride; offset += kWidth) {
            Vec x[count];
            const std::size_t base = std::size_t(group) * stride * count + offset;
#pragma GCC unroll 8
            for (int i = 0; i < count; ++i) x[i] = load(data + base + i * stride);
            inverse_stages<logs, done, log2_exact(N), count>(x, tables.inverse, groups, group, q);
#pragma GCC unroll 8
            for (int i = 0; i < count; ++i) out(base + i * stride, x[i], q);
        }
    }
}

// The stages before blocks of W^2 coefficients, as passes of up to kOuterRadixLog stages.
template <int N, int groups, bool small_first, class Load>
inline void forward_outer(const Load& in, std::int32_t* out, const cpu::NttTables& tables) {
    constexpr int left = log2_exact(N / groups) - 2 * kLogWidth;
    if constexpr (left > 0) {
        constexpr int logs = left < kOuterRadixLog ? left : kOuterRadixLog;
        forward_pass<N, groups, logs, small_first>(in, out, tables);
        forward_outer<N, (groups << logs), false>(LoadPlain{out}, out, tables);
    }
}

template <int N, int groups_after, class Store>
inline void inverse_outer(std::int32_t* data, const Store& out, const cpu::NttTables& tables) {
    constexpr int left = log2_exact(groups_after);
    if constexpr (left > 0) {
        constexpr int logs = left < kOuterRadixLog ? left : kOuterRadixLog;
        if constexpr (logs == left) {
            inverse_pass<N, 1, logs, log2_exact(N) - left>(data, out, tables);
        } else {
            inverse_pass<N, (groups_after >> logs), logs, log2_exact(N) - left>(data, StorePlain{data}, tables);
            inverse_outer<N, (groups_after >> logs)>(data, out, tables);
        }
    }
}

template <int N, bool small_first, class Load>
inline void forward_block(const Load& in, std::int32_t* out, int block, const cpu::NttTables& tables) {
    const Vec q = set1(tables.q), small_root = set1(tables.sqrt_minus_one);
    constexpr int blocks = N / (kWidth * kWidth);
    Vec x[kWidth];
#pragma GCC unroll 16
    for (int r = 0; r < kWidth; ++r) x[r] = in(r * kWidth);
    forward_stages<kLogWidth, kWidth, small_first>(x, tables.forward, blocks, block, q, small_root);
    transpose(x);
    const std::int32_t* tail = tables.forward_tail + std::size_t(block) * (kWidth - 1) * 2 * kWidth;
#pragma GCC unroll 4
    for (int s = 0; s < kLogWidth; ++s) {
        const int half = kWidth >> (s + 1);
#pragma GCC unroll 8
        for (int g = 0; g < (1 << s); ++g) {
            const Twiddle t = Twiddle::lanes(tail);
            tail += 2 * kWidth;
#pragma GCC unroll 8
            for (int r = 0; r < half; ++r) forward_butterfly(x[g * 2 * half + r], x[g * 2 * half + r + half], t, q);
        }
    }
#pragma GCC unroll 16
    for (int r = 0; r < kWidth; ++r) store(out + r * kWidth, x[r]);
}

template <int N, class Store>
inline void inverse_block(const std::int32_t* data, const Store& out, int block, const cpu::NttTables& tables) {
    const Vec q = set1(tables.q);
    constexpr int blocks = N / (kWidth * kWidth);
    Vec x[kWidth];
#pragma GCC unroll 16
    for (int r = 0; r < kWidth; ++r) x[r] = load(data + r * kWidth);
    const std::int32_t* tail = tables.inverse_tail + std::size_t(block) * (kWidth - 1) * 2 * kWidth;
#pragma GCC unroll 4
    for (int s = kLogWidth - 1; s >= 0; --s) {
        const int half = kWidth >> (s + 1);
        const bool reduce_sum = (kLogWidth - s) % 3 == 0;
#pragma GCC unroll 8
        for (int g = 0; g < (1 << s); ++g) {
            const Twiddle t = Twiddle::lanes(tail);
            tail += 2 * kWidth;
#pragma GCC unroll 8
            for (int r = 0; r < half; ++r) {
                Vec& a = x[g * 2 * half + r];
                Vec& b = x[g * 2 * half + r + half];
                if (reduce_sum) {
                    inverse_butterfly<true>(a, b, t, q);
                } else {
                    inverse_butterfly<false>(a, b, t, q);
                }
            }
        }
    }
    transpose(x);
    inverse_stages<kLogWidth, kLogWidth, log2_exact(N), kWidth>(x, tables.inverse, blocks, block, q);
#pragma GCC unroll 16
    for (int r = 0; r < kWidth; ++r) out(r * kWidth, x[r], q);
}

// Natural order -> transform domain; |in| <= q/2, or |in| <= 2^13 with `small_first`. |out| < 15.6 q.
template <int N, bool small_first, class Load>
void forward_transform(const Load& in, std::int32_t* out, const cpu::NttTables& tables) {
    constexpr int blocks = N / (kWidth * kWidth);
    if constexpr (blocks > 1) {
        forward_outer<N, 1, small_first>(in, out, tables);
        for (int b = 0; b < blocks; ++b) {
            forward_block<N, false>(LoadPlain{out + b * kWidth * kWidth}, out + b * kWidth * kWidth, b, tables);
        }
    } else {
        forward_block<N, small_first>(in, out, 0, tables);
    }
}

// Transform domain -> natural order, times N; |data| <= 1.875 q, the result up to 10 q in magnitude. `data` is overwritten.
template <int N, class Store>
void inverse_transform(std::int32_t* data, const Store& out, const cpu::NttTables& tables) {
    constexpr int blocks = N / (kWidth * kWidth);
    if constexpr (blocks > 1) {
        for (int b = 0; b < blocks; ++b) {
            std::int32_t* block = data + b * kWidth * kWidth;
            inverse_block<N>(block, StorePlain{block}, b, tables);
        }
        inverse_outer<N, blocks>(data, out, tables);
    } else {
        inverse_block<N>(data, out, 0, tables);
    }
}

}  // namespace
}  // namespace fhe_core::FHE_CORE_ISA
