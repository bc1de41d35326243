// The specification, written to be read. Section numbers are those of docs/reference/specification.md, keys of sources those of
// docs/reference/bibliography.md; nothing here is constant time or fast.
#include "reference/reference.hpp"

#include <algorithm>
#include <cassert>

#include "core/expand.hpp"
#include "core/fft.hpp"
#include "core/modular.hpp"

namespace fhe_core::reference {
namespace {

// floor(value / 2^shift), also for negative values.
std::int64_t floor_shift(std::int64_t value, int shift) { return value >> shift; }

// floor(value / divisor), divisor > 0, also for negative values.
std::int64_t floor_divide(std::int64_t value, std::int64_t divisor) {
    const std::int64_t remainder = value % divisor;
    return value / divisor - (remainder < 0);
}

// value mod 2^bits in [0, 2^bits).
std::uint64_t low_bits(std::uint64_t value, int bits) { return value & ((std::uint64_t{1} << bits) - 1); }

Words add(WordsView a, WordsView b, std::uint64_t q) {
    Words sum(a.size());
    for (std::size_t i = 0; i < a.size(); ++i) sum[i] = add_mod(a[i], b[i], q);
    return sum;
}

Words subtract(WordsView a, WordsView b, std::uint64_t q) {
    Words difference(a.size());
    for (std::size_t i = 0; i < a.size(); ++i) difference[i] = sub_mod(a[i], b[i], q);
    return difference;
}

// X^exponent * the extended ciphertext [nu][k + r][N] modulo q, exponent taken modulo 2 nu N: coefficient nu*j + i of a long
// polynomial is coefficient j of its part i.
Words multiply_by_monomial(const ParameterSet& params, std::int64_t exponent, WordsView accumulators, std::uint64_t q) {
    const std::size_t n = params.polynomial_size(), nu = params.extension_factor(), size = nu * n;
    const std::size_t glwe_words = accumulators.size() / nu;
    const std::uint64_t shift = static_cast<std::uint64_t>(exponent) % (2 * size);
    Words rotated(accumulators.size());
    for (std::size_t word = 0; word < accumulators.size(); ++word) {
        const std::size_t i = word / glwe_words, polynomial = word % glwe_words / n, j = word % n;
        const std::size_t degree = (nu * j + i + shift) % (2 * size), place = degree % size;  // X^(nu N) = -1
        rotated[place % nu * glwe_words + polynomial * n + place / nu] =
            degree < size ? accumulators[word] : sub_mod(0, accumulators[word], q);
    }
    return rotated;
}

// (X^exponent - 1) * accumulators modulo q
Words monomial_minus_one(const ParameterSet& params, std::int64_t exponent, WordsView accumulators, std::uint64_t q) {
    return subtract(multiply_by_monomial(params, exponent, accumulators, q), accumulators, q);
}

// ggsw [x] each of the nu accumulators: the key encrypts a constant, which has one part.
Words external_products(const ParameterSet& params, WordsView ggsw, WordsView accumulators) {
    const std::size_t glwe_words = accumulators.size() / params.extension_factor();
    Words products;
    for (std::size_t first = 0; first < accumulators.size(); first += glwe_words) {
        const Words product = external_product(params, ggsw, accumulators.subspan(first, glwe_words));
        products.insert(products.end(), product.begin(), product.end());
    }
    return products;
}

// accumulator += digits * polynomial modulo X^N + 1, as exact integers: |digit| < 2^27, word < 2^54, N <= 4096.
void multiply_accumulate(const std::vector<std::int64_t>& digits, WordsView polynomial, std::span<int128> accumulator) {
    const std::size_t n = digits.size();
    for (std::size_t i = 0; i < n; ++i) {
        for (std::size_t j = 0; j < n - i; ++j) accumulator[i + j] += int128{digits[i]} * polynomial[j];
        for (std::size_t j = n - i; j < n; ++j) accumulator[i + j - n] -= int128{digits[i]} * polynomial[j];
    }
}

std::uint64_t reduce(int128 value, std::uint64_t q) {
    const int128 r = value % static_cast<int128>(q);
    return static_cast<std::uint64_t>(r < 0 ? r + static_cast<int128>(q) : r);
}

}  // namespace

// --- Section 1 ------------------------------------------------------------------------------------------------------------------

Words polynomial_multiply(const ParameterSet& params, WordsView a, WordsView b) {
    const std::size_t n = params.polynomial_size();
    std::vector<std::int64_t> centred_a(n);
    std::transform(a.begin(), a.end(), centred_a.begin(), [&](std::uint64_t x) { return centred(x, params.modulus()); });
    std::vector<int128> product(n);
    multiply_accumulate(centred_a, b, product);  // below 2^53 * 2^54 * 4096 < 2^127
    Words reduced(n);
    std::transform(product.begin(), product.end(), reduced.begin(), [&](int128 x) { return reduce(x, params.modulus()); });
    return reduced;
}

// --- Section 9 ------------------------------------------------------------------------------------------------------------------

// Source: [RFC8439] for the keystream. A stream for each polynomial, and rejection in rounds, are ours.

SmallWords expand_keyswitch_key(const ParameterSet& params, const Seed& seed, SmallWordsView bodies) {
    const std::size_t n = params.lwe_dimension, levels = params.keyswitch_gadget.level_count;
    const std::size_t words = params.small_words(), lanes = params.lane_count();
    SmallWords key(params.keyswitch_key_rows() * words);
    for (std::size_t i = 0; i < static_cast<std::size_t>(params.large_dimension()); ++i)
        for (std::size_t level = 0; level < levels; ++level) {
            std::uint32_t* row = key.data() + (i * levels + level) * words;
            expand_power_of_two(seed, kDomainKeyswitchKey, keyswitch_mask_index(params, i, level), params.keyswitch_modulus_log2, n,
                                row);
            std::copy_n(bodies.begin() + (i * levels + level) * lanes, lanes, row + n);
        }
    return key;
}

Words expand_bootstrap_key(const ParameterSet& params, const Seed& seed, WordsView bodies) {
    const std::size_t n = params.polynomial_size();
    const std::size_t masks = params.seeded_components(), body_words = params.row_bodies() * n;
    const std::size_t components = params.accumulator_components();
    const std::size_t rows = params.bootstrap_key_body_words() / body_words;  // [step][key][row] flattened
    Words key(rows * components * n);
    const Limbs limbs = params.key_limbs();
    SmallWords one_limb(n);
    for (std::size_t row = 0; row < rows; ++row) {
        std::uint64_t* polynomials = key.data() + row * components * n;
        for (std::size_t component = 0; component < masks; ++component) {
            const std::uint64_t index = row * masks + component;
            if (limbs.count == 1) {
                expand_words(limbs, seed, kDomainBootstrapKey, index, n, one_limb.data());
                std::copy(one_limb.begin(), one_limb.end(), polynomials + component * n);
            } else {
                expand_words(limbs, seed, kDomainBootstrapKey, index, n, polynomials + component * n);
            }
        }
        std::copy_n(bodies.begin() + row * body_words, body_words, polynomials + masks * n);
    }
    return key;
}

// --- Section 2 ------------------------------------------------------------------------------------------------------------------

// Source: [Joy21] digits of least Euclidean norm. Ours: the last carry is dropped; the lowest bit breaks the top digit's tie.
std::vector<std::int64_t> keyswitch_digits(const Gadget& gadget, std::uint64_t v) {
    const std::uint64_t base = std::uint64_t{1} << gadget.base_log;
    const bool lowest_bit = v & 1;
    std::vector<std::int64_t> digits(gadget.level_count);
    for (int level = gadget.level_count - 1; level >= 0; --level) {
        const std::uint64_t r = v % base;
        v /= base;
        // A tie goes down when the next residue is in its upper half, so that the digits have mean zero.
        const bool tie_down = level > 0 ? v >> (gadget.base_log - 1) & 1 : lowest_bit;
        const bool carry = r > base / 2 || (r == base / 2 && tie_down);
        digits[level] = static_cast<std::int64_t>(r) - (carry ? static_cast<std::int64_t>(base) : 0);
        v += carry;  // dropped after the most significant digit
    }
    return digits;
}

// Source: [CGGI20] keyswitch, before the bootstrap as in [BMMP18]. Ours: Q is no power of two, so words are switched to 2^w first.
SmallWords keyswitch(const ParameterSet& params, SmallWordsView keyswitch_key, WordsView lwe) {
    const std::size_t n = params.lwe_dimension, dimension = params.large_dimension(), words = params.small_words();
    const int w = params.keyswitch_modulus_log2;
    const Gadget& gadget = params.keyswitch_gadget;
    const int kept_bits = gadget.level_count * gadget.base_log;  // T
    const std::uint64_t q = params.modulus();

    // Step 1: modulus Q to 2^w.
    const auto switch_modulus = [&](std::uint64_t x) {
        return low_bits(static_cast<std::uint64_t>(((static_cast<uint128>(x) << w) + q / 2) / q), w);
    };
    SmallWords out(words);
    for (std::size_t lane = 0; n + lane < words; ++lane)
        out[n + lane] = static_cast<std::uint32_t>(switch_modulus(lwe[dimension + lane]));
    for (std::size_t i = 0; i < dimension; ++i) {
        // Step 2: the top T bits.
        const std::uint64_t y = switch_modulus(lwe[i]);
        const std::uint64_t half = kept_bits == w ? 0 : std::uint64_t{1} << (w - kept_bits - 1);
        const std::uint64_t v = low_bits((y + half) >> (w - kept_bits), kept_bits);
        // Steps 3 and 4.
        const std::vector<std::int64_t> digits = keyswitch_digits(gadget, v);
        for (int level = 0; level < gadget.level_count; ++level) {
            const std::uint32_t digit = static_cast<std::uint32_t>(digits[level]);  // modulo 2^32, hence modulo 2^w
            const SmallWordsView row = keyswitch_key.subspan((i * gadget.level_count + level) * words, words);
            for (std::size_t j = 0; j < words; ++j) out[j] -= digit * row[j];
        }
    }
    for (std::uint32_t& word : out) word = static_cast<std::uint32_t>(low_bits(word, w));
    return out;
}

// --- Section 3 ------------------------------------------------------------------------------------------------------------------

// Source: [CGGI20] rounding; [RDV25] the mean of its error, taken off the body. Ours: it joins the body before its one rounding,
// for small keys of any mean.
SmallWords modulus_switch(const ParameterSet& params, SmallWordsView small_lwe) {
    const std::size_t n = params.lwe_dimension;
    const int log2_steps = params.log2_twice_table_size();  // of the 2 nu N of a turn
    const int h = params.keyswitch_modulus_log2 - log2_steps;
    assert(h >= 1);
    const std::int64_t half = std::int64_t{1} << (h - 1);
    SmallWords out(params.small_words());
    std::int64_t error_sum = 0;  // E
    for (std::size_t i = 0; i < n; ++i) {
        const std::int64_t a = small_lwe[i];
        const std::int64_t t = floor_shift(a + half, h);
        error_sum += a - (t << h);
        out[i] = static_cast<std::uint32_t>(low_bits(static_cast<std::uint64_t>(t), log2_steps));
    }
    // The mean of a coefficient of the small key: u / v.
    const std::int64_t u = params.rotation().secret_sum(), v = params.rotation().secret_values();
    for (std::size_t body = n; body < out.size(); ++body) {
        const std::int64_t b = small_lwe[body];
        const std::int64_t t_b = floor_divide(2 * v * b - 2 * u * error_sum + (v << h), v << (h + 1));
        out[body] = static_cast<std::uint32_t>(low_bits(static_cast<std::uint64_t>(t_b), log2_steps));
    }
    return out;
}

// --- Section 4 ------------------------------------------------------------------------------------------------------------------

// Source: [CGGI20] approximate gadget decomposition. Ours: Q is no power of two, and the top digit takes what is left.
std::vector<std::int64_t> decompose(const ParameterSet& params, const Gadget& gadget, std::int64_t centred_value) {
    const int drop = params.gadget_drop_bits(gadget);
    const std::int64_t half_base = std::int64_t{1} << (gadget.base_log - 1);
    std::int64_t y = floor_shift(centred_value + (std::int64_t{1} << (drop - 1)), drop);
    std::vector<std::int64_t> digits(gadget.level_count);
    for (int level = gadget.level_count - 1; level > 0; --level) {
        digits[level] = static_cast<std::int64_t>(low_bits(static_cast<std::uint64_t>(y + half_base), gadget.base_log)) - half_base;
        y = floor_shift(y - digits[level], gadget.base_log);
    }
    digits[0] = y;
    return digits;
}

// --- Section 5 ------------------------------------------------------------------------------------------------------------------

// Source: [CGGI20] external product, [BBC+25] several bodies under one mask, [BIP+22] of NTRU accumulators: the bodies stay zero.
// Ours: masks and body have a gadget each; sums are exact integers, reduced once.
Words external_product(const ParameterSet& params, WordsView ggsw, WordsView glwe) {
    const std::size_t n = params.polynomial_size(), k = params.glwe_dimension(), components = params.accumulator_components();
    std::vector<int128> sums(components * n);
    std::size_t row = 0;
    for (std::size_t component = 0; component < components; ++component) {
        const Gadget& gadget = component < k ? params.shape.mask_gadget : params.shape.body_gadget;
        std::vector<std::vector<std::int64_t>> digits(gadget.level_count, std::vector<std::int64_t>(n));
        for (std::size_t j = 0; j < n; ++j) {
            const std::vector<std::int64_t> levels = decompose(params, gadget, centred(glwe[component * n + j], params.modulus()));
            for (int level = 0; level < gadget.level_count; ++level) digits[level][j] = levels[level];
        }
        for (int level = 0; level < gadget.level_count; ++level, ++row)
            for (std::size_t out = 0; out < components; ++out)
                multiply_accumulate(digits[level], ggsw.subspan((row * components + out) * n, n),
                                    std::span(sums).subspan(out * n, n));
    }
    Words product(glwe.size(), 0);
    std::transform(sums.begin(), sums.end(), product.begin(), [&](int128 x) { return reduce(x, params.key_modulus()); });
    return product;
}

// Source: [SYL+25] modulus raising. Ours: one rounding for all products of a step.
Words divide_by_raising(const ParameterSet& params, WordsView raised) {
    const std::uint64_t raising = kLimbPrimes[2];  // P
    Words rounded(raised.size());
    std::transform(raised.begin(), raised.end(), rounded.begin(),
                   [&](std::uint64_t x) { return (x + (raising - 1) / 2) / raising % params.modulus(); });
    return rounded;
}

// --- Section 6 ------------------------------------------------------------------------------------------------------------------

// Source: [CGGI20] external products by a floating-point transform. Ours: one order of roundings, which makes words reproducible.
std::vector<double> rounded_update(const ParameterSet& params, WordsView step_key, SmallWordsView exponents,
                                   WordsView accumulator) {
    constexpr std::size_t rows = 2, n = fft::kDegree;
    std::vector<fft::Points> digits(rows, fft::Points(fft::kPoints));
    for (std::size_t row = 0; row < rows; ++row) {
        const Gadget& gadget = row == 0 ? params.shape.mask_gadget : params.shape.body_gadget;
        const auto digit = [&](std::size_t j) {
            return static_cast<double>(decompose(params, gadget, centred(accumulator[row * n + j], params.modulus()))[0]);
        };
        for (std::size_t j = 0; j < fft::kPoints; ++j) digits[row][j] = {digit(j), digit(j + fft::kPoints)};
        fft::forward(digits[row]);
    }
    std::vector<double> turns(accumulator.size());
    for (std::size_t out = 0; out < 2; ++out) {
        std::vector<fft::Points> keys;  // [row][key]
        for (std::size_t row = 0; row < rows; ++row)
            for (std::size_t j = 0; j < exponents.size(); ++j)
                keys.push_back(fft::key_points(step_key.subspan(((j * rows + row) * 2 + out) * n, n), params.key_modulus()));
        const fft::Points update = fft::update(keys, digits, exponents);
        for (std::size_t j = 0; j < fft::kPoints; ++j) {
            turns[out * n + j] = update[j].re;
            turns[out * n + j + fft::kPoints] = update[j].im;
        }
    }
    return turns;
}

// Source: [CGGI20] blind rotation with binary keys; [MP21] with ternary ones; [DM15] keys selected by digits; [ZYL+18] and [BMMP18]
// two key bits per step; [LMSS23] blocks with at most one 1 (the lines of rotations.def); [LY23] several accumulators as one long
// table. Ours: with several keys in a step, the factors X^e - 1 multiply the products, not the keys; the products share the digits.
Words blind_rotate(const ParameterSet& params, WordsView bootstrap_key, SmallWordsView switched, WordsView lookup_table) {
    const std::size_t n = params.polynomial_size(), k = params.glwe_dimension(), nu = params.extension_factor();
    const std::size_t components = params.component_count();
    const Rotation& rotation = params.rotation();
    const std::size_t ggsw_words = params.row_count() * params.accumulator_components() * n, entries = params.entry_count();
    const auto key = [&](std::size_t step, std::size_t j) {
        return bootstrap_key.subspan((step * rotation.keys + j) * ggsw_words, ggsw_words);
    };

    Words accumulators(nu * components * n, 0);
    for (std::size_t body = k; body < components; ++body) {
        Words table(accumulators.size(), 0);
        const std::size_t place = params.is_ntru() ? 0 : body;
        for (std::size_t c = 0; c < lookup_table.size(); ++c) table[((c % nu) * components + place) * n + c / nu] = lookup_table[c];
        const std::int64_t b = switched[params.lwe_dimension + body - k];
        accumulators = add(accumulators, multiply_by_monomial(params, -b, table, params.modulus()), params.modulus());
    }

    // Source: [XZD+23] the first key of an NTRU accumulator encrypts 1/S. Ours: as a step like the others, whose factor is X^N - 1.
    if (params.is_ntru())
        accumulators =
            add(accumulators, monomial_minus_one(params, n, external_products(params, key(0, 0), accumulators), params.modulus()),
                params.modulus());

    for (std::size_t step = 0; step < static_cast<std::size_t>(params.step_count()); ++step) {
        if (rotation.selects_key()) {
            const std::uint32_t digit = rotation.digit(switched.data(), static_cast<int>(step));
            if (digit == 0) continue;
            accumulators = external_products(params, key(step, digit - 1), accumulators);
            if (params.is_raised()) accumulators = divide_by_raising(params, accumulators);
            continue;
        }
        if (params.has_rounded_products()) {
            std::uint32_t exponents[Rotation::kMostKeys];
            for (int j = 0; j < rotation.keys; ++j) exponents[j] = rotation.exponent(&switched[step * rotation.key_bits], j);
            const std::vector<double> turns =
                rounded_update(params, bootstrap_key.subspan(step * rotation.keys * ggsw_words, rotation.keys * ggsw_words),
                               {exponents, static_cast<std::size_t>(rotation.keys)}, accumulators);
            for (std::size_t i = 0; i < turns.size(); ++i)
                accumulators[i] =
                    add_mod(accumulators[i], residue(fft::word_of_turns(turns[i]), params.modulus()), params.modulus());
            continue;
        }
        Words update(accumulators.size(), 0);
        for (int j = 0; j < rotation.keys; ++j) {
            const std::uint32_t exponent = rotation.exponent(&switched[step * rotation.key_bits], j);
            const Words product =
                rotation.factors_on_products()
                    ? monomial_minus_one(params, exponent, external_products(params, key(entries + step, j), accumulators),
                                         params.key_modulus())
                    : external_products(params, key(step, j), monomial_minus_one(params, exponent, accumulators, params.modulus()));
            update = add(update, product, params.key_modulus());
        }
        accumulators = add(accumulators, params.is_raised() ? divide_by_raising(params, update) : update, params.modulus());
    }
    return accumulators;
}

// --- Section 7 ------------------------------------------------------------------------------------------------------------------

// Source: [CGGI20] sample extraction; ours at any coefficient.
Words sample_extract(const ParameterSet& params, WordsView glwe, std::size_t coefficient) {
    const std::size_t n = params.polynomial_size(), k = params.glwe_dimension();
    Words lwe(params.large_words());
    for (std::size_t i = 0; i < k; ++i)
        for (std::size_t j = 0; j < n; ++j)
            lwe[i * n + j] =
                j <= coefficient ? glwe[i * n + coefficient - j] : sub_mod(0, glwe[i * n + n + coefficient - j], params.modulus());
    for (std::size_t lane = 0; k * n + lane < lwe.size(); ++lane) lwe[k * n + lane] = glwe[(k + lane) * n + coefficient];
    return lwe;
}

// --- A bootstrap -----------------------------------------------------------------------------------------------------------------

// Source: [CGGI20] gate bootstrapping; with the keyswitch first as in [BMMP18].
Words bootstrap(const ParameterSet& params, const EvaluationKeys& keys, WordsView lwe, WordsView lookup_table,
                std::size_t coefficient) {
    const SmallWords small_lwe = keyswitch(params, keys.keyswitch_key, lwe);
    const SmallWords switched = modulus_switch(params, small_lwe);
    const Words rotated = blind_rotate(params, keys.bootstrap_key, switched, lookup_table);
    const std::size_t nu = params.extension_factor(), glwe_words = rotated.size() / nu;
    return sample_extract(params, WordsView(rotated).subspan(coefficient % nu * glwe_words, glwe_words), coefficient / nu);
}

}  // namespace fhe_core::reference
