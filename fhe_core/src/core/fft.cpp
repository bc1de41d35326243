#include "core/fft.hpp"

#include <bit>
#include <cfenv>
#include <cmath>
#include <memory>

namespace fhe_core::fft {
namespace {

constexpr int kCircle = 2 * kDegree;

Complex add(Complex a, Complex b) { return {a.re + b.re, a.im + b.im}; }
Complex multiply(Complex a, Complex b) { return {std::fma(a.re, b.re, -a.im * b.im), std::fma(a.re, b.im, a.im * b.re)}; }
// c + a*b
Complex multiply_add(Complex a, Complex b, Complex c) {
    return {std::fma(a.re, b.re, std::fma(-a.im, b.im, c.re)), std::fma(a.re, b.im, std::fma(a.im, b.re, c.im))};
}

// (a, b) -> (a + w b, a - w b)
void butterfly(Complex& a, Complex& b, Complex w) {
    const Complex sum = multiply_add(w, b, a);
    b = {std::fma(2.0, a.re, -sum.re), std::fma(2.0, a.im, -sum.im)};
    a = sum;
}
// The same for w = i^turn: four additions.
void unit_butterfly(Complex& a, Complex& b, std::uint32_t turn) {
    const Complex product = turned(b, turn);
    b = {a.re - product.re, a.im - product.im};
    a = add(a, product);
}

// cos and sin of 2 pi k / 4096 for k up to an eighth of the circle, by their series in integers of 62 bits after the point: the
// same words on every machine, within 2^-58 before they are rounded to doubles.
Complex root_of_first_octant(int k) {
    constexpr std::uint64_t pi = 0x3243F6A8885A308Du, one = std::uint64_t{1} << 62;  // pi * 2^60
    const auto angle = static_cast<std::uint64_t>(uint128{pi} * static_cast<unsigned>(k) >> 9);
    std::uint64_t term = one, sums[4] = {one, 0, 0, 0};  // of the terms of degree 0, 1, 2, 3 modulo 4
    for (unsigned degree = 1; degree < 24; ++degree) {
        term = static_cast<std::uint64_t>(uint128{term} * angle >> 62) / degree;
        sums[degree % 4] += term;
    }
    return {static_cast<double>(sums[0] - sums[2]) * 0x1p-62, static_cast<double>(sums[1] - sums[3]) * 0x1p-62};
}

// zeta^exponent from a table of the whole circle.
Complex root(int exponent) {
    static const std::vector<Complex> table = [] {
        std::vector<Complex> all(kCircle);
        for (int k = 0; k < kCircle; ++k) all[k] = root_of_unity(k);
        return all;
    }();
    return table[exponent & (kCircle - 1)];
}

}  // namespace

Complex root_of_unity(int k) {
    constexpr int quarter = kCircle / 4, octant = kCircle / 8;
    const int place = (k % kCircle + kCircle) % kCircle, rest = place % quarter;
    Complex z = root_of_first_octant(rest <= octant ? rest : quarter - rest);
    if (rest > octant) z = {z.im, z.re};
    if (rest == octant) z.im = z.re;
    return turned(z, static_cast<std::uint32_t>(place / quarter));
}

const PassRoots& pass_roots() {
    static const std::unique_ptr<const PassRoots> made = [] {
        auto roots = std::make_unique<PassRoots>();
        for (int stage = 0; stage < 5; ++stage)
            for (int i = 0; i < 1 << stage; ++i) {
                const bool keeps_forward = root_turn(stage, i, true) == 0, keeps_inverse = root_turn(stage, i, false) == 0;
                if (keeps_forward) roots->first_forward[root_number(stage, i, true)] = root(forward_exponent(stage, i));
                for (int lane = 0; lane < kRowPoints; ++lane) {
                    if (keeps_forward)
                        roots->second_forward[root_number(stage, i, true)][lane] =
                            root(forward_exponent(5 + stage, (lane << stage) + i));
                    if (keeps_inverse)
                        roots->second_inverse[root_number(stage, i, false)][lane] =
                            root(inverse_exponent(5 + stage, lane + 32 * i));
                }
            }
        for (int q = 1; q < 8; ++q) roots->first_inverse[q - 1] = root(-q * (kCircle / 32));
        for (int r = 0; r < kRowPoints; ++r)
            for (int lane = 0; lane < kRowPoints; ++lane) roots->untwist[r][lane] = root(-(lane + 32 * r));
        for (int y = 0; y < kPoints; ++y) roots->powers[y] = root(y);
        return roots;
    }();
    return *made;
}

void forward(Points& x) {
    for (int stage = 0; stage < kLogPoints; ++stage) {
        const int half = kPoints >> (stage + 1);
        for (int block = 0; block < 1 << stage; ++block)
            for (int i = 0; i < half; ++i)
                butterfly(x[2 * half * block + i], x[2 * half * block + i + half], root(forward_exponent(stage, block)));
    }
}

void inverse(Points& x) {
    for (int stage = 0; stage < kLogPoints; ++stage) {
        const int half = 1 << stage;
        for (int start = 0; start < kPoints; start += 2 * half)
            for (int k = 0; k < half; ++k) {
                Complex &a = x[start + k], &b = x[start + k + half];
                if (stage < 5 && k == 0)  // a root of 1 or -i in the first pass
                    unit_butterfly(a, b, 0);
                else if (stage < 5 && 2 * k == half)
                    unit_butterfly(a, b, 3);
                else
                    butterfly(a, b, root(inverse_exponent(stage, k)));
            }
    }
    for (int j = 0; j < kPoints; ++j) x[j] = multiply(root(-j), x[j]);
}

Points key_points(std::span<const std::uint64_t> polynomial, std::uint64_t key_modulus) {
    const auto value = [&](int j) { return static_cast<double>(centred(polynomial[j], key_modulus)); };
    Points x(kPoints);
    for (int j = 0; j < kPoints; ++j) x[j] = {value(j), value(j + kPoints)};
    forward(x);
    const double scale = key_scale(key_modulus);
    for (Complex& z : x) z = {z.re * scale, z.im * scale};
    return x;
}

Points update(std::span<const Points> key_points, std::span<const Points> digits, std::span<const std::uint32_t> exponents) {
    const std::size_t keys = exponents.size();
    Points sum(kPoints);
    for (int p = 0; p < kPoints; ++p)
        for (std::size_t row = 0; row < digits.size(); ++row) {
            const Points* own = key_points.data() + row * keys;
            Complex total = own[0][p];
            for (std::size_t j = 1; j < keys; ++j) total = add(total, own[j][p]);
            Complex factored = turned(total, 2);
            for (std::size_t j = 0; j < keys; ++j) {
                const std::uint32_t exponent = exponents[j] * point_exponent(p) % kCircle;
                factored = multiply_add(root(static_cast<int>(exponent)), own[j][p], factored);
            }
            sum[p] = row == 0 ? multiply(factored, digits[0][p]) : multiply_add(factored, digits[row][p], sum[p]);
        }
    inverse(sum);
    return sum;
}

std::int32_t word_of_turns(double x) {
    constexpr double kInteger = 0x1.8p52;  // added to a number below 2^51, it leaves an integer
    const double fraction = x - ((x + kInteger) - kInteger);
    const double word = std::fma(fraction, static_cast<double>(kLimbPrimes[0]), kInteger);
    return static_cast<std::int32_t>(static_cast<std::uint32_t>(std::bit_cast<std::uint64_t>(word)));
}

bool rounds_to_nearest() { return std::fegetround() == FE_TONEAREST; }

}  // namespace fhe_core::fft
