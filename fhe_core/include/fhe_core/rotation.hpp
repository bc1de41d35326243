// What one step of a blind rotation reads and does (docs/specification.md, section 6), from the lines of rotations.def.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string_view>

namespace fhe_core {

enum class SecretKind : std::uint8_t { binary, ternary, quinary };  // uniform in {0, 1}, {-1, 0, 1}, {-2 .. 2}

constexpr int secret_bound(SecretKind kind) { return kind == SecretKind::quinary ? 2 : 1; }  // of |s|
constexpr int secret_lowest(SecretKind kind) { return kind == SecretKind::binary ? 0 : -secret_bound(kind); }

#define ROTATION(name, ...) name,
enum class CmuxKind : std::uint8_t {
#include "fhe_core/rotations.def"
};
#undef ROTATION

enum class Factors : std::uint8_t { accumulator, products };  // what X^e - 1 multiplies

namespace rotation_table {

using Lines = std::initializer_list<std::initializer_list<int>>;

#define ROTATION(name, secret, factors, ...) static_cast<int>(Lines{__VA_ARGS__}.size()),
inline constexpr int kMostKeys = std::max({
#include "fhe_core/rotations.def"
});
#undef ROTATION
#define ROTATION(name, secret, factors, ...) static_cast<int>(Lines{__VA_ARGS__}.begin()->size()),
inline constexpr int kMostKeyBits = std::max({
#include "fhe_core/rotations.def"
});
#undef ROTATION

}  // namespace rotation_table

struct Rotation {
    static constexpr int kMostKeys = rotation_table::kMostKeys, kMostKeyBits = rotation_table::kMostKeyBits;

    std::string_view name;
    SecretKind small_secret;
    Factors factors;
    int key_bits, keys;  // of a step
    std::int8_t lines[kMostKeys][kMostKeyBits];

    constexpr bool factors_on_products() const { return factors == Factors::products; }
    // Montgomery reductions between a key's word and the sum that is transformed back.
    constexpr int reductions() const { return factors_on_products() ? 2 : 1; }

    // e_j of the `key_bits` words of a step, modulo 2^32 and so modulo 2N.
    constexpr std::uint32_t exponent(const std::uint32_t* words, int key) const {
        std::uint32_t sum = 0;
        for (int i = 0; i < key_bits; ++i) sum += words[i] * static_cast<std::uint32_t>(lines[key][i]);
        return sum;
    }
    // [s = key j] of the `key_bits` coefficients of a step, in {0, 1}; no branch on the secret.
    constexpr std::int8_t message(const std::int8_t* secret, int key) const {
        unsigned difference = 0;
        for (int i = 0; i < key_bits; ++i) difference |= static_cast<unsigned>(secret[i] ^ lines[key][i]) & 0xFF;
        return static_cast<std::int8_t>((difference - 1) >> 31);  // 0 - 1 alone has its top bit
    }
    // Whether the bits of a step are uniform one by one; where they are not, a small key is sampled step by step.
    constexpr bool has_independent_bits() const {
        int values = 1;
        for (int i = 0; i < key_bits; ++i) values *= secret_bound(small_secret) - secret_lowest(small_secret) + 1;
        return keys + 1 == values;
    }
    // Whether the `key_bits` coefficients of a step are zero or one of the keys; no branch on the secret.
    constexpr bool is_step(const std::int8_t* secret) const {
        unsigned any = 0, found = 0;
        for (int i = 0; i < key_bits; ++i) any |= static_cast<unsigned>(secret[i]) & 0xFF;
        for (int j = 0; j < keys; ++j) found |= static_cast<unsigned>(message(secret, j));
        return (found | (any - 1) >> 31) != 0;
    }

    // The values that a step may have are equally likely: mean and mean square of a coefficient of the small key are these sums
    // over their number.
    constexpr int secret_values() const { return keys + 1; }
    constexpr int secret_sum(int bit = 0) const {
        int sum = 0;
        for (int j = 0; j < keys; ++j) sum += lines[j][bit];
        return sum;
    }
    constexpr int secret_square_sum(int bit = 0) const {
        int sum = 0;
        for (int j = 0; j < keys; ++j) sum += lines[j][bit] * lines[j][bit];
        return sum;
    }
    constexpr double secret_variance() const {
        const int values = secret_values(), sum = secret_sum();
        return static_cast<double>(values * secret_square_sum() - sum * sum) / (values * values);
    }
    constexpr bool has_equal_coefficients() const {
        for (int i = 1; i < key_bits; ++i)
            if (secret_sum(i) != secret_sum(0) || secret_square_sum(i) != secret_square_sum(0)) return false;
        return true;
    }

    // The body b of a ciphertext modulo 2^(h + log2(2N)), switched to 2N up to multiples of it: round((b - mean * E) / 2^h), halves
    // up, for the sum E of the rounding errors of the masks (docs/specification.md, section 3).
    constexpr std::int64_t switched_body(std::int64_t b, std::int64_t errors, int h) const {
        const std::int64_t v = secret_values(), u = secret_sum();
        const std::int64_t quotient = (v * (2 * b + (std::int64_t{1} << h)) - 2 * u * errors) >> (h + 1);
        return (quotient < 0 ? quotient - (v - 1) : quotient) / v;  // rounded down
    }
};

namespace rotation_table {

constexpr Rotation rotation(std::string_view name, SecretKind secret, Factors factors, Lines keys) {
    Rotation made{name, secret, factors, static_cast<int>(keys.begin()->size()), static_cast<int>(keys.size()), {}};
    for (std::size_t key = 0; key < keys.size(); ++key)
        std::copy(keys.begin()[key].begin(), keys.begin()[key].end(), made.lines[key]);
    return made;
}

#define ROTATION(name, secret, factors, ...) rotation(#name, SecretKind::secret, Factors::factors, {__VA_ARGS__}),
inline constexpr std::array kRotations = {
#include "fhe_core/rotations.def"
};
#undef ROTATION

static_assert(std::ranges::all_of(kRotations, [](const Rotation& r) { return r.factors_on_products() || r.keys == 1; }),
              "factors on the accumulator go with one key in a step");
static_assert(std::ranges::all_of(kRotations, &Rotation::has_equal_coefficients),
              "the modulus switch has one mean and one variance for all coefficients of a small key");

}  // namespace rotation_table

inline constexpr auto& kRotations = rotation_table::kRotations;

constexpr const Rotation& rotation_of(CmuxKind kind) { return kRotations[static_cast<std::size_t>(kind)]; }

}  // namespace fhe_core
