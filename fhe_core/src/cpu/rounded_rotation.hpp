// Blind rotation of sets with rounded products: the operations of core/fft.cpp, one for one, with 32 lanes as vectors of doubles.
// A tile is a polynomial, 32 rows of 32 complex numbers: of coefficients, row r and lane l hold l + 32 r as the real part and N/2 +
// l
// + 32 r as the imaginary one; of points, row i and lane l hold position 32 l + i. A transform is five stages between rows, a
// transposition, five stages between rows. Sources: those of core/fft.hpp.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "core/fft.hpp"
#include "cpu/kernels.hpp"

#if defined(FHE_CORE_ISA_avx512) || defined(FHE_CORE_ISA_avx2)
#include <immintrin.h>
#endif

namespace fhe_core::FHE_CORE_ISA {
namespace {

#if defined(FHE_CORE_ISA_avx512)

constexpr int kDoubles = 8;
using Doubles = __m512d;
inline Doubles load_doubles(const double* p) { return _mm512_loadu_pd(p); }
inline void store_doubles(double* p, Doubles a) { _mm512_storeu_pd(p, a); }
inline Doubles all(double a) { return _mm512_set1_pd(a); }
inline Doubles fused(Doubles a, Doubles b, Doubles c) { return _mm512_fmadd_pd(a, b, c); }
inline Doubles fused_negative(Doubles a, Doubles b, Doubles c) { return _mm512_fnmadd_pd(a, b, c); }   // c - a*b
inline Doubles fused_difference(Doubles a, Doubles b, Doubles c) { return _mm512_fmsub_pd(a, b, c); }  // a*b - c
using HalfWords = __m256i;  // as many int32 as a vector has doubles
inline HalfWords load_words(const std::uint32_t* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }
inline void store_words(std::uint32_t* p, HalfWords a) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), a); }
inline HalfWords all_words(std::int32_t a) { return _mm256_set1_epi32(a); }
inline HalfWords add_words(HalfWords a, HalfWords b) { return _mm256_add_epi32(a, b); }
inline HalfWords sub_words(HalfWords a, HalfWords b) { return _mm256_sub_epi32(a, b); }
inline HalfWords least_words(HalfWords a, HalfWords b) { return _mm256_min_epu32(a, b); }
inline HalfWords shift_words(HalfWords a, int count) { return _mm256_sra_epi32(a, _mm_cvtsi32_si128(count)); }
inline Doubles doubles_of(HalfWords a) { return _mm512_cvtepi32_pd(a); }
inline HalfWords low_words(Doubles a) { return _mm512_cvtepi64_epi32(_mm512_castpd_si512(a)); }
#define FHE_CORE_FUSED 1

#elif defined(FHE_CORE_ISA_avx2)

constexpr int kDoubles = 4;
using Doubles = __m256d;
inline Doubles load_doubles(const double* p) { return _mm256_loadu_pd(p); }
inline void store_doubles(double* p, Doubles a) { _mm256_storeu_pd(p, a); }
inline Doubles all(double a) { return _mm256_set1_pd(a); }
inline Doubles fused(Doubles a, Doubles b, Doubles c) { return _mm256_fmadd_pd(a, b, c); }
inline Doubles fused_negative(Doubles a, Doubles b, Doubles c) { return _mm256_fnmadd_pd(a, b, c); }
inline Doubles fused_difference(Doubles a, Doubles b, Doubles c) { return _mm256_fmsub_pd(a, b, c); }
using HalfWords = __m128i;
inline HalfWords load_words(const std::uint32_t* p) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)); }
inline void store_words(std::uint32_t* p, HalfWords a) { _mm_storeu_si128(reinterpret_cast<__m128i*>(p), a); }
inline HalfWords all_words(std::int32_t a) { return _mm_set1_epi32(a); }
inline HalfWords add_words(HalfWords a, HalfWords b) { return _mm_add_epi32(a, b); }
inline HalfWords sub_words(HalfWords a, HalfWords b) { return _mm_sub_epi32(a, b); }
inline HalfWords least_words(HalfWords a, HalfWords b) { return _mm_min_epu32(a, b); }
inline HalfWords shift_words(HalfWords a, int count) { return _mm_sra_epi32(a, _mm_cvtsi32_si128(count)); }
inline Doubles doubles_of(HalfWords a) { return _mm256_cvtepi32_pd(a); }
inline HalfWords low_words(Doubles a) {
    const __m256i even = _mm256_permutevar8x32_epi32(_mm256_castpd_si256(a), _mm256_setr_epi32(0, 2, 4, 6, 0, 2, 4, 6));
    return _mm256_castsi256_si128(even);
}
#define FHE_CORE_FUSED 1

#endif

#ifdef FHE_CORE_FUSED

using cpu::RotateJob;
using fft::Complex, fft::kPoints, fft::kRowPoints;

constexpr int kDoubleVectors = kRowPoints / kDoubles;  // of the lanes

struct Numbers {  // complex, of a vector of lanes
    Doubles re, im;
};
struct Row {
    double re[kRowPoints], im[kRowPoints];
    Numbers at(int v) const { return {load_doubles(re + kDoubles * v), load_doubles(im + kDoubles * v)}; }
    void set(int v, Numbers x) {
        store_doubles(re + kDoubles * v, x.re);
        store_doubles(im + kDoubles * v, x.im);
    }
};
struct Tile {
    Row rows[kRowPoints];
};

inline Numbers everywhere(Complex z) { return {all(z.re), all(z.im)}; }
inline Doubles negative(Doubles a) { return -a; }
inline Numbers sum_of(Numbers a, Numbers b) { return {a.re + b.re, a.im + b.im}; }
// c + a*b
inline Numbers multiply_add(Numbers a, Numbers b, Numbers c) {
    return {fused(a.re, b.re, fused_negative(a.im, b.im, c.re)), fused(a.re, b.im, fused(a.im, b.re, c.im))};
}
inline Numbers multiply(Numbers a, Numbers b) { return {fused(a.re, b.re, negative(a.im * b.im)), fused(a.re, b.im, a.im * b.re)}; }
template <int turn>
inline Numbers turned(Numbers z) {
    if constexpr (turn == 0) return z;
    if constexpr (turn == 1) return {negative(z.im), z.re};
    if constexpr (turn == 2) return {negative(z.re), negative(z.im)};
    if constexpr (turn == 3) return {z.im, negative(z.re)};
}

template <int turn>
inline void butterfly(Numbers& a, Numbers& b, Numbers root) {
    const Numbers sum = multiply_add(turned<turn>(root), b, a);
    b = {fused_difference(all(2.0), a.re, sum.re), fused_difference(all(2.0), a.im, sum.im)};
    a = sum;
}
template <int turn>
inline void unit_butterfly(Numbers& a, Numbers& b) {
    const Numbers product = turned<turn>(b);
    b = {a.re - product.re, a.im - product.im};
    a = sum_of(a, product);
}

// The same lanes' roots, from tables of vectors.
struct RoundedTables {
    Complex first_forward[fft::kPassRoots], first_inverse[7];
    Row second_forward[fft::kPassRoots], second_inverse[fft::kPassRoots], untwist[kRowPoints];
    std::uint32_t lane_exponents[kRowPoints];           // of X at point 32 l: 1 + 4 brv(l)
    double re[2 * fft::kDegree], im[2 * fft::kDegree];  // zeta^y

    RoundedTables() {
        const fft::PassRoots& roots = fft::pass_roots();
        const auto split = [](Row& to, const Complex(&from)[kRowPoints]) {
            for (int lane = 0; lane < kRowPoints; ++lane) to.re[lane] = from[lane].re, to.im[lane] = from[lane].im;
        };
        for (int i = 0; i < fft::kPassRoots; ++i) {
            first_forward[i] = roots.first_forward[i];
            split(second_forward[i], roots.second_forward[i]);
            split(second_inverse[i], roots.second_inverse[i]);
        }
        for (int q = 0; q < 7; ++q) first_inverse[q] = roots.first_inverse[q];
        for (int r = 0; r < kRowPoints; ++r) split(untwist[r], roots.untwist[r]);
        for (int lane = 0; lane < kRowPoints; ++lane) lane_exponents[lane] = fft::point_exponent(kRowPoints * lane);
        for (int y = 0; y < 2 * fft::kDegree; ++y) {
            const Complex z = fft::turned(roots.powers[y % kPoints], static_cast<std::uint32_t>(y / kPoints));
            re[y] = z.re;
            im[y] = z.im;
        }
    }
    static const RoundedTables& get() {
        static const RoundedTables tables;
        return tables;
    }
};

// --- Transforms ---

struct SharedRoots {
    const Complex* roots;
    Numbers operator()(int number, int) const { return everywhere(roots[number]); }
};
struct LaneRoots {
    const Row* roots;
    Numbers operator()(int number, int v) const { return roots[number].at(v); }
};

// Five stages between the rows of a vector of lanes: three of every fourth row, two of neighbours.
template <class Roots>
inline void forward_pass(Tile& tile, const Roots& root) {
    for (int v = 0; v < kDoubleVectors; ++v) {
        for (int first = 0; first < 4; ++first) {
            Numbers x[8];
            for (int m = 0; m < 8; ++m) x[m] = tile.rows[first + 4 * m].at(v);
            const Numbers w0 = root(0, v), w1 = root(1, v), w2 = root(2, v), w3 = root(3, v);
            for (int m = 0; m < 4; ++m) butterfly<0>(x[m], x[m + 4], w0);
            for (int m = 0; m < 2; ++m) butterfly<0>(x[m], x[m + 2], w1), butterfly<1>(x[m + 4], x[m + 6], w1);
            butterfly<0>(x[0], x[1], w2), butterfly<1>(x[2], x[3], w2);
            butterfly<0>(x[4], x[5], w3), butterfly<1>(x[6], x[7], w3);
            for (int m = 0; m < 8; ++m) tile.rows[first + 4 * m].set(v, x[m]);
        }
        for (int pair = 0; pair < 4; ++pair) {
            const Numbers w = root(4 + pair, v);
            for (int side = 0; side < 2; ++side) {
                const int group = 2 * pair + side;
                Numbers x[4];
                for (int m = 0; m < 4; ++m) x[m] = tile.rows[4 * group + m].at(v);
                const Numbers own = side == 0 ? w : turned<1>(w), last = root(8 + group, v);
                butterfly<0>(x[0], x[2], own), butterfly<0>(x[1], x[3], own);
                butterfly<0>(x[0], x[1], last), butterfly<1>(x[2], x[3], last);
                for (int m = 0; m < 4; ++m) tile.rows[4 * group + m].set(v, x[m]);
            }
        }
    }
}

// Stages of halves 4, 8, 16 of the rows first + 4 m; roots of offsets first, first + 4 (m % 2), first + 4 (m % 4).
template <int first>
inline void inverse_first_rows(Tile& tile, const Complex* roots, int v) {
    Numbers x[8];
    for (int m = 0; m < 8; ++m) x[m] = tile.rows[first + 4 * m].at(v);
    const auto combine = [&]<int k, int half>(Numbers& a, Numbers& b) {
        constexpr int turn = 2 * k >= half ? 3 : 0, q = (turn == 0 ? k : k - half / 2) * (kRowPoints / 2 / half);
        if constexpr (q == 0)
            unit_butterfly<turn>(a, b);
        else
            butterfly<turn>(a, b, everywhere(roots[q - 1]));
    };
    for (int m = 0; m < 8; m += 2) combine.template operator()<first, 4>(x[m], x[m + 1]);
    for (int m = 0; m < 8; m += 4) {
        combine.template operator()<first, 8>(x[m], x[m + 2]);
        combine.template operator()<first + 4, 8>(x[m + 1], x[m + 3]);
    }
    combine.template operator()<first, 16>(x[0], x[4]);
    combine.template operator()<first + 4, 16>(x[1], x[5]);
    combine.template operator()<first + 8, 16>(x[2], x[6]);
    combine.template operator()<first + 12, 16>(x[3], x[7]);
    for (int m = 0; m < 8; ++m) tile.rows[first + 4 * m].set(v, x[m]);
}

inline void inverse_first_pass(Tile& tile, const Complex* roots) {
    for (int v = 0; v < kDoubleVectors; ++v) {
        for (int group = 0; group < 8; ++group) {
            Numbers x[4];
            for (int m = 0; m < 4; ++m) x[m] = tile.rows[4 * group + m].at(v);
            unit_butterfly<0>(x[0], x[1]), unit_butterfly<0>(x[2], x[3]);
            unit_butterfly<0>(x[0], x[2]), unit_butterfly<3>(x[1], x[3]);
            for (int m = 0; m < 4; ++m) tile.rows[4 * group + m].set(v, x[m]);
        }
        inverse_first_rows<0>(tile, roots, v);
        inverse_first_rows<1>(tile, roots, v);
        inverse_first_rows<2>(tile, roots, v);
        inverse_first_rows<3>(tile, roots, v);
    }
}

// `done(row, v, x)` takes the results.
template <class Done>
inline void inverse_second_pass(Tile& tile, const Row* roots, const Done& done) {
    for (int v = 0; v < kDoubleVectors; ++v) {
        const Numbers w0 = roots[0].at(v), w1 = roots[1].at(v);
        for (int group = 0; group < 8; ++group) {
            Numbers x[4];
            for (int m = 0; m < 4; ++m) x[m] = tile.rows[4 * group + m].at(v);
            butterfly<0>(x[0], x[1], w0), butterfly<0>(x[2], x[3], w0);
            butterfly<0>(x[0], x[2], w1), butterfly<3>(x[1], x[3], w1);
            for (int m = 0; m < 4; ++m) tile.rows[4 * group + m].set(v, x[m]);
        }
        for (int first = 0; first < 4; ++first) {
            Numbers x[8];
            for (int m = 0; m < 8; ++m) x[m] = tile.rows[first + 4 * m].at(v);
            // Offset k of half h takes root h/2 + k % (h/2), a quarter turn back from h/2 on.
            Numbers w = roots[2 + first % 2].at(v);
            if (first >= 2) w = turned<3>(w);
            for (int m = 0; m < 8; m += 2) butterfly<0>(x[m], x[m + 1], w);
            const Numbers w8 = roots[4 + first].at(v);
            for (int m = 0; m < 8; m += 4) butterfly<0>(x[m], x[m + 2], w8), butterfly<3>(x[m + 1], x[m + 3], w8);
            const Numbers low = roots[8 + first].at(v), high = roots[12 + first].at(v);
            butterfly<0>(x[0], x[4], low), butterfly<0>(x[1], x[5], high);
            butterfly<3>(x[2], x[6], low), butterfly<3>(x[3], x[7], high);
            for (int m = 0; m < 8; ++m) done(first + 4 * m, v, x[m]);
        }
    }
}

// Squares of kDoubles x kDoubles, in place: elements `apart` are exchanged, then the rest. Numbers count the elements of a, then of
// b.
template <int apart, std::size_t... i>
inline void transpose_by(Doubles (&x)[kDoubles], std::index_sequence<i...> lanes) {
    for (int row = 0; row < kDoubles; ++row) {
        if (row & apart) continue;
        const Doubles a = x[row], b = x[row + apart];
        x[row] = __builtin_shufflevector(a, b, (int(i) & apart ? int(i) - apart + kDoubles : int(i))...);
        x[row + apart] = __builtin_shufflevector(a, b, (int(i) & apart ? int(i) + kDoubles : int(i) + apart)...);
    }
    if constexpr (2 * apart < kDoubles) transpose_by<2 * apart>(x, lanes);
}
inline void transpose(Doubles (&x)[kDoubles]) { transpose_by<1>(x, std::make_index_sequence<kDoubles>{}); }
template <double (Row::*part)[kRowPoints]>
inline void transpose(Tile& tile) {
    for (int up = 0; up < kRowPoints; up += kDoubles)
        for (int left = 0; left <= up; left += kDoubles) {
            Doubles below[kDoubles], above[kDoubles];
            for (int i = 0; i < kDoubles; ++i) {
                below[i] = load_doubles((tile.rows[up + i].*part) + left);
                above[i] = load_doubles((tile.rows[left + i].*part) + up);
            }
            transpose(below);
            transpose(above);
            for (int i = 0; i < kDoubles; ++i) {
                store_doubles((tile.rows[up + i].*part) + left, above[i]);
                store_doubles((tile.rows[left + i].*part) + up, below[i]);
            }
        }
}
inline void transpose(Tile& tile) {
    transpose<&Row::re>(tile);
    transpose<&Row::im>(tile);
}

inline void forward_transform_rounded(Tile& tile, const RoundedTables& tables) {
    forward_pass(tile, SharedRoots{tables.first_forward});
    transpose(tile);
    forward_pass(tile, LaneRoots{tables.second_forward});
}

// --- Key ---

void transform_rounded_key(const std::uint64_t* polynomial, std::uint64_t key_modulus, double* out) {
    auto& tile = *reinterpret_cast<Tile*>(out);
    for (int j = 0; j < kPoints; ++j) {
        tile.rows[j / kRowPoints].re[j % kRowPoints] = static_cast<double>(centred(polynomial[j], key_modulus));
        tile.rows[j / kRowPoints].im[j % kRowPoints] = static_cast<double>(centred(polynomial[j + kPoints], key_modulus));
    }
    forward_transform_rounded(tile, RoundedTables::get());
    const Doubles scale = all(fft::key_scale(key_modulus));
    for (Row& row : tile.rows)
        for (int v = 0; v < kDoubleVectors; ++v) {
            const Numbers x = row.at(v);
            row.set(v, {x.re * scale, x.im * scale});
        }
}

// --- Steps ---

struct RoundedScratch {
    Tile digits[2], sums[2];
    double re[Rotation::kMostKeys][kRowPoints],
        im[Rotation::kMostKeys][kRowPoints];  // zeta^(e_j) at a row of every fourth lane's points
};

// Words z = x + (Q-1)/2 of an accumulator polynomial -> the digits of x, transformed.
inline void transform_digits_rounded(const std::uint32_t* z, int base_log, Tile& tile, const RoundedTables& tables) {
    constexpr std::int32_t half = (kLimbPrimes[0] - 1) / 2;
    const int drop = kLimbBits - base_log;
    const HalfWords offset = all_words((1 << (drop - 1)) - half);
    const auto digits = [&](const std::uint32_t* words) {
        return doubles_of(shift_words(add_words(load_words(words), offset), drop));
    };
    for (int r = 0; r < kRowPoints; ++r)
        for (int v = 0; v < kDoubleVectors; ++v) {
            const std::uint32_t* words = z + kRowPoints * r + kDoubles * v;
            tile.rows[r].set(v, {digits(words), digits(words + kPoints)});
        }
    forward_transform_rounded(tile, tables);
}

// Both outputs at the points of a row: sums over rows of (sum over j of (zeta^(e_j) - 1) K_j) D. `turns`: of e_j's powers here.
template <int keys>
inline void multiply_row(const Tile* key, const std::uint32_t (&turns)[keys], int i, RoundedScratch& scratch) {
    const double* re[keys];
    const double* im[keys];
    Doubles sign_re[keys], sign_im[keys];
    for (int j = 0; j < keys; ++j) {
        const bool odd = turns[j] & 1;
        re[j] = odd ? scratch.im[j] : scratch.re[j];
        im[j] = odd ? scratch.re[j] : scratch.im[j];
        sign_re[j] = all((turns[j] + 1) & 2 ? -1.0 : 1.0);  // a product with a sign is exact
        sign_im[j] = all(turns[j] & 2 ? -1.0 : 1.0);
    }
    for (int v = 0; v < kDoubleVectors; ++v) {
        Numbers factor[keys];
        for (int j = 0; j < keys; ++j)
            factor[j] = {load_doubles(re[j] + kDoubles * v) * sign_re[j], load_doubles(im[j] + kDoubles * v) * sign_im[j]};
        const Numbers digits[2] = {scratch.digits[0].rows[i].at(v), scratch.digits[1].rows[i].at(v)};
        for (int out = 0; out < 2; ++out) {
            Numbers total;
            for (int row = 0; row < 2; ++row) {
                const Tile* own = key + (2 * out + row) * keys;
                Numbers words[keys], sum;
                for (int j = 0; j < keys; ++j) words[j] = own[j].rows[i].at(v);
                sum = words[0];
                for (int j = 1; j < keys; ++j) sum = sum_of(sum, words[j]);
                sum = turned<2>(sum);
                for (int j = 0; j < keys; ++j) sum = multiply_add(factor[j], words[j], sum);
                total = row == 0 ? multiply(sum, digits[0]) : multiply_add(sum, digits[1], total);
            }
            scratch.sums[out].rows[i].set(v, total);
        }
    }
}

// All points. The exponent of X at point 32 l + i is that of 32 l and 128 brv(i), whose upper two bits of five turn by quarters.
template <int keys>
inline void multiply_rounded(const Tile* key, const std::uint32_t* exponents, RoundedScratch& scratch,
                             const RoundedTables& tables) {
    for (int group = 0; group < kRowPoints; group += 4) {
        const std::uint32_t of_group = 4u * kRowPoints * static_cast<std::uint32_t>(fft::reversed_bits(group, 5));
        for (int j = 0; j < keys; ++j)
            for (int lane = 0; lane < kRowPoints; ++lane) {
                const std::uint32_t y = exponents[j] * (tables.lane_exponents[lane] + of_group) & (2 * fft::kDegree - 1);
                scratch.re[j][lane] = tables.re[y];
                scratch.im[j][lane] = tables.im[y];
            }
        for (int i = 0; i < 4; ++i) {
            std::uint32_t turns[keys];
            for (int j = 0; j < keys; ++j) turns[j] = exponents[j] * static_cast<std::uint32_t>(fft::reversed_bits(i, 2)) & 3;
            multiply_row<keys>(key, turns, group + i, scratch);
        }
    }
}

// Transforms back and adds to words z = x + (Q-1)/2, which stay in [0, Q).
inline void accumulate_rounded(Tile& tile, std::uint32_t* z, const RoundedTables& tables) {
    inverse_first_pass(tile, tables.first_inverse);
    transpose(tile);
    const Doubles integer = all(0x1.8p52), modulus = all(kLimbPrimes[0]);
    const HalfWords q = all_words(kLimbPrimes[0]);
    const auto add_to = [&](std::uint32_t* words, Doubles turns) {
        const Doubles fraction = turns - ((turns + integer) - integer);  // fft::word_of_turns
        const HalfWords sum = add_words(load_words(words), low_words(fused(fraction, modulus, integer)));
        const HalfWords positive = least_words(sum, add_words(sum, q));
        store_words(words, least_words(positive, sub_words(positive, q)));
    };
    inverse_second_pass(tile, tables.second_inverse, [&](int r, int v, Numbers x) {
        const Numbers update = multiply(tables.untwist[r].at(v), x);
        add_to(z + kRowPoints * r + kDoubles * v, update.re);
        add_to(z + kPoints + kRowPoints * r + kDoubles * v, update.im);
    });
}

template <int keys>
void rotate_rounded_steps(const RotateJob& job, RoundedScratch& scratch) {
    const ParameterSet& p = *job.parameters;
    const RoundedTables& tables = RoundedTables::get();
    const Rotation& rotation = p.rotation();
    for (int step = job.first_step; step < job.last_step; ++step) {
        const auto* key = reinterpret_cast<const Tile*>(job.key + std::size_t(step) * job.key_step_words);
        for (std::size_t i = 0; i < job.batch; ++i) {
            std::uint32_t* z = static_cast<std::uint32_t*>(job.accumulators) + i * 2 * fft::kDegree;
            const std::uint32_t* words = job.switched + i * p.small_words() + step * rotation.key_bits;
            std::uint32_t exponents[keys];
            for (int j = 0; j < keys; ++j) exponents[j] = rotation.exponent(words, j);
            transform_digits_rounded(z, p.shape.mask_gadget.base_log, scratch.digits[0], tables);
            transform_digits_rounded(z + fft::kDegree, p.shape.body_gadget.base_log, scratch.digits[1], tables);
            multiply_rounded<keys>(key, exponents, scratch, tables);
            accumulate_rounded(scratch.sums[0], z, tables);
            accumulate_rounded(scratch.sums[1], z + fft::kDegree, tables);
        }
    }
}

void rotate_rounded(const RotateJob& job) {
    auto& scratch = *reinterpret_cast<RoundedScratch*>(job.scratch);
    rotate_rounded_steps<rotation_of(CmuxKind::binary_pair).keys>(job, scratch);
}

constexpr std::size_t kRoundedScratchWords = sizeof(RoundedScratch) / sizeof(std::int32_t);

#else  // ExpandedKey refuses sets of rounded products where there are no fused multiply-adds

constexpr void (*transform_rounded_key)(const std::uint64_t*, std::uint64_t, double*) = nullptr;
constexpr void (*rotate_rounded)(const cpu::RotateJob&) = nullptr;
constexpr std::size_t kRoundedScratchWords = 0;

#endif

}  // namespace
}  // namespace fhe_core::FHE_CORE_ISA
