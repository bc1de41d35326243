// Rounded products: the negacyclic transform of N = 2048 real coefficients by 1024 complex points in double precision, in one order
// of additions, products and fused multiply-adds, each rounded to nearest. IEEE 754 defines their results, so that every processor
// gives the same words (docs/reference/specification.md, section 6; docs/decisions/fft-opt-in.md). What is declared here is that
// order as loops; cpu/rounded_rotation.hpp and cuda/transform/complex_fft.cuh have the same operations as vectors and in registers.
//
// With zeta = exp(i pi / N) and z_j = a_j + i a_{j + N/2}, forward: the values of z modulo X^(N/2) - i at zeta^(4t + 1), position p
// of the result being t = brv(p). Block b of stage s multiplies by zeta^(2^(9-s) (1 + 4 brv(b))), so the twist of the negacyclic
// product costs nothing. Backward: the inverse DFT from bit-reversed order, then zeta^-j; the scale 2/N is in the key.
//
// A butterfly is six fused multiply-adds: a + w b, and a - w b as 2 a - (a + w b). Blocks 2b and 2b + 1 forward, and k and k +
// half/2 backward, share a root up to a quarter turn, which is exact.
//
// Source: [LN16] the tree of the forward transform; six fused multiply-adds a butterfly and the order are ours.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/modular.hpp"

#ifdef __FAST_MATH__
#error "sets of rounded products are defined by the order of their roundings, which -ffast-math changes: build without it"
#endif

namespace fhe_core::fft {

struct alignas(16) Complex {
    double re, im;
};

inline constexpr int kDegree = 2048;         // N
inline constexpr int kPoints = kDegree / 2;  // complex
inline constexpr int kLogPoints = 10;
inline constexpr int kRowPoints = 32;  // a pass: five stages on 32 points; 1024 = 32 rows of 32
inline constexpr int kPassRoots = 16;  // that a pass takes

constexpr int reversed_bits(int value, int bits) {
    int reversed = 0;
    for (int i = 0; i < bits; ++i) reversed |= (value >> i & 1) << (bits - 1 - i);
    return reversed;
}

// Exponent of zeta of block b of stage s, forward; of offset k of stage s, backward; of X at position p.
constexpr int forward_exponent(int stage, int block) {
    return (1 << (kLogPoints - 1 - stage)) * (1 + 4 * reversed_bits(block, stage));
}
constexpr int inverse_exponent(int stage, int k) { return -k * (2 * kDegree >> (stage + 1)); }
constexpr std::uint32_t point_exponent(int p) { return static_cast<std::uint32_t>(1 + 4 * reversed_bits(p, kLogPoints)); }

// Which root of a pass its stage takes for block (forward) or offset (backward) i, and after how many quarter turns.
constexpr int root_number(int stage, int i, bool forward) {
    return stage == 0 ? 0 : (1 << (stage - 1)) + (forward ? i / 2 : i % (1 << (stage - 1)));
}
constexpr int root_turn(int stage, int i, bool forward) {
    if (stage == 0) return 0;
    return forward ? i % 2 : 3 * (i >> (stage - 1));
}

// i^turn * z without rounding, turn modulo 4.
constexpr Complex turned(Complex z, std::uint32_t turn) {
    switch (turn & 3) {
        case 0: return z;
        case 1: return {-z.im, z.re};
        case 2: return {-z.re, -z.im};
        default: return {z.im, -z.re};
    }
}

// zeta^k as all back ends have it, by integers and not by a library's sine; the eight-fold symmetry of the circle holds exactly.
Complex root_of_unity(int k);

// Roots in the order of the passes: of the first one every lane takes the same, of the second lane l those of row or column l.
struct PassRoots {
    Complex first_forward[kPassRoots], second_forward[kPassRoots][kRowPoints];
    Complex first_inverse[7];  // powers q = 1 .. 7 of exp(-2 pi i / 32)
    Complex second_inverse[kPassRoots][kRowPoints];
    Complex untwist[kRowPoints][kRowPoints];  // zeta^-(lane + 32 r)
    Complex powers[kPoints];                  // zeta^y of the first quarter
};
const PassRoots& pass_roots();

using Points = std::vector<Complex>;

void forward(Points& x);
void inverse(Points& x);  // but for the scale

// What words of a key, centred modulo its modulus < 2^53, are multiplied by once transformed: 2/N, and turns of the torus in place
// of the words.
inline double key_scale(std::uint64_t key_modulus) { return (1.0 / kPoints) / static_cast<double>(key_modulus); }
// A polynomial of the key, transformed and scaled.
Points key_points(std::span<const std::uint64_t> polynomial, std::uint64_t key_modulus);

// Sum over rows r and keys j of (zeta^(e_j) - 1) * K_rj * D_r at every point, transformed back: the update of one output component
// in turns of the torus. key_points [row][key], digits [row].
Points update(std::span<const Points> key_points, std::span<const Points> digits, std::span<const std::uint32_t> exponents);

// x turns of the torus in units of 1/q0, rounded; |x| < 2^51, the result in [-(q0 + 1)/2, (q0 + 1)/2].
std::int32_t word_of_turns(double x);

// Whether this thread rounds to nearest, as all of this takes for granted.
bool rounds_to_nearest();

}  // namespace fhe_core::fft
