// What one step of a blind rotation reads and does (docs/reference/specification.md, section 6), from the lines of rotations.def.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string_view>

namespace fhe_core {

// Uniform in {0, 1}, {-1, 0, 1}, {-2 .. 2}; discrete Gaussian, of small keys alone.
enum class SecretKind : std::uint8_t { binary, ternary, quinary, gaussian };

// Of a Gaussian small key, and what its coefficients stay within: beyond it the sampler's table has no entry (random.cpp).
inline constexpr double kGaussianSecretSigma = 1.0;
inline constexpr int kGaussianSecretBound = 9;

constexpr int secret_bound(SecretKind kind) {  // of |s|
    return kind == SecretKind::gaussian ? kGaussianSecretBound : kind == SecretKind::quinary ? 2 : 1;
}
constexpr int secret_lowest(SecretKind kind) { return kind == SecretKind::binary ? 0 : -secret_bound(kind); }

#define ROTATION(name, ...) name,
enum class CmuxKind : std::uint8_t {
#include "core/rotations.def"
};
#undef ROTATION

// What X^e - 1 multiplies; selected: no factors, a digit of the mask selects the key.
enum class Factors : std::uint8_t { accumulator, products, selected };

namespace rotation_table {

using Lines = std::initializer_list<std::initializer_list<int>>;

#define ROTATION(name, secret, factors, ...) static_cast<int>(Lines{__VA_ARGS__}.size()),
inline constexpr int kMostKeys = std::max({
#include "core/rotations.def"
});
#undef ROTATION
#define ROTATION(name, secret, factors, ...) static_cast<int>(Lines{__VA_ARGS__}.begin()->size()),
inline constexpr int kMostKeyBits = std::max({
#include "core/rotations.def"
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
    int digits = 1, digit_bits = 0;  // of a word of the mask, a step each; their width where they select a key

    constexpr bool factors_on_products() const { return factors == Factors::products; }
    constexpr bool selects_key() const { return factors == Factors::selected; }
    // Keys that one ciphertext multiplies with in a step: all of the step's, or the one that its digit selects.
    constexpr int products() const { return selects_key() ? 1 : keys; }
    // Montgomery reductions between a key's word and the sum that is transformed back.
    constexpr int reductions() const { return factors_on_products() ? 2 : 1; }

    // Of n coefficients of the small key, and back.
    constexpr int steps_of(int lwe_dimension) const { return lwe_dimension / key_bits * digits; }
    constexpr int lwe_dimension_of(int steps) const { return steps / digits * key_bits; }
    // The first of the words, and of the coefficients, of a step.
    constexpr int first_word(int step) const { return step / digits * key_bits; }

    // The digit of a step in its word, a number below 2^digit_bits: key digit - 1 is selected, none for 0.
    constexpr std::uint32_t digit(const std::uint32_t* words, int step) const {
        return words[first_word(step)] >> (digit_bits * (step % digits)) & ((1u << digit_bits) - 1);
    }
    // The m of the X^m that key `key` of a step encrypts, modulo 2^32 and so modulo 2N; no branch on the secret.
    constexpr std::uint32_t message_exponent(const std::int8_t* secret, int step, int key) const {
        const std::uint32_t digit_value = static_cast<std::uint32_t>(key + 1) << (digit_bits * (step % digits));
        return digit_value * static_cast<std::uint32_t>(std::int32_t{secret[first_word(step)]});
    }

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
        if (selects_key()) return true;
        int values = 1;
        for (int i = 0; i < key_bits; ++i) values *= secret_bound(small_secret) - secret_lowest(small_secret) + 1;
        return keys + 1 == values;
    }
    // Whether the `key_bits` coefficients of a step are zero or one of the keys; no branch on the secret.
    constexpr bool is_step(const std::int8_t* secret) const {
        if (selects_key()) return true;
        unsigned any = 0, found = 0;
        for (int i = 0; i < key_bits; ++i) any |= static_cast<unsigned>(secret[i]) & 0xFF;
        for (int j = 0; j < keys; ++j) found |= static_cast<unsigned>(message(secret, j));
        return (found | (any - 1) >> 31) != 0;
    }

    // The values that a step may have are equally likely: mean and mean square of a coefficient of the small key are these sums
    // over their number. Where keys are selected any small key serves: that of small_secret, whose mean is 0.
    constexpr int secret_values() const { return selects_key() ? 1 : keys + 1; }
    constexpr int secret_sum(int bit = 0) const {
        if (selects_key()) return 0;
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
        if (small_secret == SecretKind::gaussian) return kGaussianSecretSigma * kGaussianSecretSigma;
        if (const int bound = secret_bound(small_secret); selects_key())
            return bound * (bound + 1) / 3.0;  // uniform in -bound .. bound
        const int values = secret_values(), sum = secret_sum();
        return static_cast<double>(values * secret_square_sum() - sum * sum) / (values * values);
    }
    constexpr bool has_equal_coefficients() const {
        if (selects_key()) return true;
        for (int i = 1; i < key_bits; ++i)
            if (secret_sum(i) != secret_sum(0) || secret_square_sum(i) != secret_square_sum(0)) return false;
        return true;
    }

    // The body b of a ciphertext modulo 2^(h + log2(2N)), switched to 2N up to multiples of it: round((b - mean * E) / 2^h), halves
    // up, for the sum E of the rounding errors of the masks (docs/reference/specification.md, section 3).
    constexpr std::int64_t switched_body(std::int64_t b, std::int64_t errors, int h) const {
        const std::int64_t v = secret_values(), u = secret_sum();
        const std::int64_t quotient = (v * (2 * b + (std::int64_t{1} << h)) - 2 * u * errors) >> (h + 1);
        return (quotient < 0 ? quotient - (v - 1) : quotient) / v;  // rounded down
    }
};

namespace rotation_table {

constexpr Rotation rotation(std::string_view name, SecretKind secret, Factors factors, Lines keys) {
    if (factors == Factors::selected) {
        const int width = *keys.begin()->begin(), digits = static_cast<int>(keys.begin()->size());
        return {name, secret, factors, 1, (1 << width) - 1, {}, digits, width};
    }
    Rotation made{name, secret, factors, static_cast<int>(keys.begin()->size()), static_cast<int>(keys.size()), {}};
    for (std::size_t key = 0; key < keys.size(); ++key)
        std::copy(keys.begin()[key].begin(), keys.begin()[key].end(), made.lines[key]);
    return made;
}

#define ROTATION(name, secret, factors, ...) rotation(#name, SecretKind::secret, Factors::factors, {__VA_ARGS__}),
inline constexpr std::array kRotations = {
#include "core/rotations.def"
};
#undef ROTATION

static_assert(std::ranges::all_of(kRotations, [](const Rotation& r) { return r.factors != Factors::accumulator || r.keys == 1; }),
              "factors on the accumulator go with one key in a step");
static_assert(std::ranges::all_of(kRotations, &Rotation::has_equal_coefficients),
              "the modulus switch has one mean and one variance for all coefficients of a small key");
static_assert(std::ranges::all_of(kRotations,
                                  [](const Rotation& r) { return r.selects_key() || r.small_secret != SecretKind::gaussian; }),
              "a Gaussian small key goes with selected keys");
static_assert(std::ranges::all_of(kRotations,
                                  [](const Rotation& r) { return !r.selects_key() || r.small_secret != SecretKind::binary; }),
              "selected keys go with a small key of mean 0");

}  // namespace rotation_table

inline constexpr auto& kRotations = rotation_table::kRotations;

constexpr const Rotation& rotation_of(CmuxKind kind) { return kRotations[static_cast<std::size_t>(kind)]; }

}  // namespace fhe_core
