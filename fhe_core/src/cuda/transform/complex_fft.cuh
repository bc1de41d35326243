// The transform of rounded products on the device: the operations of core/fft.hpp, each an intrinsic that nothing may fuse or
// reorder, and the passes of 32 points that a lane does in registers. Host code (emulation) has the same; it is built with
// -ffp-contract=off. Zeros may differ in sign, which no conversion to an integer shows.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <vector>

#include "core/fft.hpp"
#include "cuda/device/bits.cuh"
#include "cuda/device/unrolled.cuh"

namespace fhe_core::cuda {

using fft::Complex, fft::kPassRoots, fft::kRowPoints;

namespace fixed {

#ifdef __CUDA_ARCH__
FHE_HD double add(double a, double b) { return __dadd_rn(a, b); }
FHE_HD double subtract(double a, double b) { return __dsub_rn(a, b); }
FHE_HD double multiply(double a, double b) { return __dmul_rn(a, b); }
FHE_HD double multiply_add(double a, double b, double c) { return __fma_rn(a, b, c); }
FHE_HD double from_integer(std::int32_t x) { return __int2double_rn(x); }
// -x for top_bit = 2^31, x for 0.
FHE_HD double flip_sign(double x, std::uint32_t top_bit) {
    return __hiloint2double(__double2hiint(x) ^ static_cast<int>(top_bit), __double2loint(x));
}
FHE_HD std::uint32_t low_bits(double x) { return static_cast<std::uint32_t>(__double2loint(x)); }
#else
FHE_HD double add(double a, double b) { return a + b; }
FHE_HD double subtract(double a, double b) { return a - b; }
FHE_HD double multiply(double a, double b) { return a * b; }
FHE_HD double multiply_add(double a, double b, double c) { return std::fma(a, b, c); }
FHE_HD double from_integer(std::int32_t x) { return x; }
FHE_HD double flip_sign(double x, std::uint32_t top_bit) {
    return std::bit_cast<double>(std::bit_cast<std::uint64_t>(x) ^ std::uint64_t{top_bit} << 32);
}
FHE_HD std::uint32_t low_bits(double x) { return static_cast<std::uint32_t>(std::bit_cast<std::uint64_t>(x)); }
#endif

// fft::word_of_turns, as a word modulo 2^32.
FHE_HD std::uint32_t word_of_turns(double x) {
    constexpr double kInteger = 0x1.8p52, kModulus = kLimbPrimes[0];
    const double fraction = subtract(x, subtract(add(x, kInteger), kInteger));
    return low_bits(multiply_add(fraction, kModulus, kInteger));
}

}  // namespace fixed

// i^turn * z without rounding, turn known to the compiler.
template <int turn>
FHE_HD Complex turned(Complex z) {
    if constexpr (turn == 0) return z;
    if constexpr (turn == 1) return {-z.im, z.re};
    if constexpr (turn == 2) return {-z.re, -z.im};
    if constexpr (turn == 3) return {z.im, -z.re};
}
// The same for any turn, modulo 4.
FHE_HD Complex turned_by(Complex z, std::uint32_t turn) {
    const bool odd = turn & 1;
    const double re = odd ? z.im : z.re, im = odd ? z.re : z.im;
    return {fixed::flip_sign(re, (turn + 1) << 30 & 0x80000000u), fixed::flip_sign(im, turn << 30 & 0x80000000u)};
}

// c + a*b
FHE_HD Complex multiply_add(Complex a, Complex b, Complex c) {
    return {fixed::multiply_add(a.re, b.re, fixed::multiply_add(-a.im, b.im, c.re)),
            fixed::multiply_add(a.re, b.im, fixed::multiply_add(a.im, b.re, c.im))};
}
FHE_HD Complex multiply(Complex a, Complex b) {
    return {fixed::multiply_add(a.re, b.re, fixed::multiply(-a.im, b.im)),
            fixed::multiply_add(a.re, b.im, fixed::multiply(a.im, b.re))};
}
FHE_HD Complex add(Complex a, Complex b) { return {fixed::add(a.re, b.re), fixed::add(a.im, b.im)}; }

// (a, b) -> (a + w b, a - w b), w = i^turn * root
template <int turn>
FHE_HD void butterfly(Complex& a, Complex& b, Complex root) {
    const Complex sum = multiply_add(turned<turn>(root), b, a);
    b = {fixed::multiply_add(2.0, a.re, -sum.re), fixed::multiply_add(2.0, a.im, -sum.im)};
    a = sum;
}
// The same for w = i^turn: four additions.
template <int turn>
FHE_HD void unit_butterfly(Complex& a, Complex& b) {
    const Complex product = turned<turn>(b);
    b = {fixed::subtract(a.re, product.re), fixed::subtract(a.im, product.im)};
    a = add(a, product);
}

// Stages u = 0 .. 4 of 32 points forward: 2^u blocks, whose roots `root(number)` gives.
template <class RootOf>
FHE_HD void forward_pass(Complex (&x)[kRowPoints], const RootOf& root) {
    static_for<1, kRowPoints>([&](auto ordinal) {
        constexpr int stage = log2_floor(decltype(ordinal)::value), block = decltype(ordinal)::value - (1 << stage);
        constexpr int half = kRowPoints >> (stage + 1), turn = fft::root_turn(stage, block, true);
        const Complex w = root(Index<fft::root_number(stage, block, true)>{});
        static_for<0, half>([&](auto i) {
            constexpr int a = block * 2 * half + decltype(i)::value;
            butterfly<turn>(x[a], x[a + half], w);
        });
    });
}

// The first five stages backward, on 32 neighbours: roots are powers q of exp(-2 pi i / 32), `root(q - 1)`, 0 < q < 8.
template <class RootOf>
FHE_HD void inverse_row_pass(Complex (&x)[kRowPoints], const RootOf& root) {
    static_for<0, 5>([&](auto stage_index) {
        constexpr int stage = decltype(stage_index)::value, half = 1 << stage;
        static_for<0, half>([&](auto offset) {
            constexpr int k = decltype(offset)::value, quarter = half / 2, turn = quarter > 0 && k >= quarter ? 3 : 0;
            constexpr int q = (turn == 0 ? k : k - quarter) << (4 - stage);
            static_for<0, kRowPoints / 2 / half>([&](auto block) {
                constexpr int a = decltype(block)::value * 2 * half + k;
                if constexpr (q == 0)
                    unit_butterfly<turn>(x[a], x[a + half]);
                else
                    butterfly<turn>(x[a], x[a + half], root(Index<q - 1>{}));
            });
        });
    });
}

// The last five backward, on every 32nd point of a lane.
template <class RootOf>
FHE_HD void inverse_column_pass(Complex (&x)[kRowPoints], const RootOf& root) {
    static_for<0, 5>([&](auto stage_index) {
        constexpr int stage = decltype(stage_index)::value, half = 1 << stage;
        static_for<0, half>([&](auto offset) {
            constexpr int k = decltype(offset)::value, turn = fft::root_turn(stage, k, false);
            const Complex w = root(Index<fft::root_number(stage, k, false)>{});
            static_for<0, kRowPoints / 2 / half>([&](auto block) {
                constexpr int a = decltype(block)::value * 2 * half + k;
                butterfly<turn>(x[a], x[a + half], w);
            });
        });
    });
}

// --- Tables ---

// Roots that all lanes share: kernel arguments, and so operands from the constant bank.
struct SharedRoots {
    Complex forward[kPassRoots];
    Complex inverse[7];

    static SharedRoots make() {
        SharedRoots roots;
        std::copy(std::begin(fft::pass_roots().first_forward), std::end(fft::pass_roots().first_forward), roots.forward);
        std::copy(std::begin(fft::pass_roots().first_inverse), std::end(fft::pass_roots().first_inverse), roots.inverse);
        return roots;
    }
};

// Powers zeta^y of the first quarter: word y lies at `power_word(y)`, so that lanes whose y are apart by multiples of 16 touch all
// banks.
FHE_HD std::uint32_t power_word(std::uint32_t y) { return y ^ (y >> 4 & 7) ^ (y >> 7 & 7); }

// What a block keeps in shared memory; of fft::PassRoots.
struct LaneRoots {
    Complex forward[kPassRoots][kRowPoints];  // second pass, row = lane
    Complex inverse[kPassRoots][kRowPoints];  // second pass, column = lane
    Complex untwist[kRowPoints][kRowPoints];  // zeta^-(lane + 32 r)
    Complex powers[fft::kPoints];

    // zeta^y
    FHE_HD Complex power(std::uint32_t y) const {
        return turned_by(powers[power_word(y & (fft::kPoints - 1))], y >> fft::kLogPoints);
    }
    static std::vector<LaneRoots> make() {
        const fft::PassRoots& roots = fft::pass_roots();
        std::vector<LaneRoots> tables(1);
        std::memcpy(tables[0].forward, roots.second_forward, sizeof roots.second_forward);
        std::memcpy(tables[0].inverse, roots.second_inverse, sizeof roots.second_inverse);
        std::memcpy(tables[0].untwist, roots.untwist, sizeof roots.untwist);
        for (std::uint32_t y = 0; y < fft::kPoints; ++y) tables[0].powers[power_word(y)] = roots.powers[y];
        return tables;
    }
};

}  // namespace fhe_core::cuda
