// docs/reference/specification.md as slow C++: one function per section, schoolbook multiplication, 64-bit words for every
// parameter set. The fast back ends are tested against it word for word.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/chacha20.hpp"
#include "core/parameters.hpp"

namespace fhe_core::reference {

using Words = std::vector<std::uint64_t>;       // in [0, Q), of bootstrap keys in [0, their modulus)
using SmallWords = std::vector<std::uint32_t>;  // in [0, 2^w) or [0, 2 nu N)
using WordsView = std::span<const std::uint64_t>;
using SmallWordsView = std::span<const std::uint32_t>;

// Section 1: a * b modulo X^N + 1 and Q.
Words polynomial_multiply(const ParameterSet& params, WordsView a, WordsView b);

// Section 9: whole keys from their seeds. [large_dimension][level_count][n + r] and [step][key][row][k + r][N], r
// bodies, one for each lane.
SmallWords expand_keyswitch_key(const ParameterSet& params, const Seed& seed, SmallWordsView bodies);
Words expand_bootstrap_key(const ParameterSet& params, const Seed& seed, WordsView bodies);

// Section 2: one LWE ciphertext [large_dimension + r] -> [n + r] modulo 2^w.
SmallWords keyswitch(const ParameterSet& params, SmallWordsView keyswitch_key, WordsView lwe);
// Step 3 of it: the signed digits of v < 2^T, most significant first.
std::vector<std::int64_t> keyswitch_digits(const Gadget& gadget, std::uint64_t v);

// Section 3: [n + r] modulo 2^w -> [n + r] modulo 2 nu N.
SmallWords modulus_switch(const ParameterSet& params, SmallWordsView small_lwe);

// Section 4: the digits of a centred coefficient, most significant first.
std::vector<std::int64_t> decompose(const ParameterSet& params, const Gadget& gadget, std::int64_t centred_value);

// Section 5: ggsw [row][k + r][N] modulo the key's modulus, glwe [k + r][N] modulo Q -> modulo the key's.
Words external_product(const ParameterSet& params, WordsView ggsw, WordsView glwe);
// Words modulo Q*P -> modulo Q: floor((x + (P - 1)/2) / P).
Words divide_by_raising(const ParameterSet& params, WordsView raised);

// Section 6, sets of rounded products: sum over j of (X^e_j - 1) * (K_j [x] ACC) in turns of the torus, in the order of roundings
// that fft.hpp says. step_key [key][row][k + 1][N], exponents [key], accumulator [k + 1][N].
std::vector<double> rounded_update(const ParameterSet& params, WordsView step_key, SmallWordsView exponents, WordsView accumulator);

// Section 6: bootstrap key as expand_bootstrap_key gives it, switched [n + r], lookup_table [nu N] -> [nu][k + r][N].
Words blind_rotate(const ParameterSet& params, WordsView bootstrap_key, SmallWordsView switched, WordsView lookup_table);

// Section 7: glwe [k + r][N] -> [large_dimension + r].
Words sample_extract(const ParameterSet& params, WordsView glwe, std::size_t coefficient);

// The four calls in order: one LWE ciphertext [large_dimension + r] -> one with fresh noise, the table applied, at an entry below
// nu N of the rotated table. Keys as the two expansions above give them.
struct EvaluationKeys {
    SmallWordsView keyswitch_key;
    WordsView bootstrap_key;
};
Words bootstrap(const ParameterSet& params, const EvaluationKeys& keys, WordsView lwe, WordsView lookup_table,
                std::size_t coefficient);

}  // namespace fhe_core::reference
