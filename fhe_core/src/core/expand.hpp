// Expansion of a public seed into uniform words: section 9 of docs/reference/specification.md.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/chacha20.hpp"
#include "core/parameters.hpp"

namespace fhe_core {

inline constexpr std::uint32_t kDomainBootstrapKey = 1;
inline constexpr std::uint32_t kDomainKeyswitchKey = 2;
inline constexpr std::uint32_t kDomainPublicKey = 3;
inline constexpr std::uint32_t kDomainLwe = 4;
inline constexpr std::uint32_t kDomainGlwe = 5;
inline constexpr std::uint32_t kDomainZeros = 6;      // secret streams: encryptions of zero from a seed
inline constexpr std::uint32_t kDomainLevelled = 32;  // ciphertexts of levelled arithmetic; threshold.cpp has domains from 7 on
inline constexpr std::uint32_t kDomainLevelledKey = 33;
inline constexpr std::uint32_t kDomainLimbStride =
    256;  // prime number l of kLimbPrimes, or of a levelled set, uses domain + 256 * l

inline constexpr std::size_t kMaxExpandedCount = std::size_t{1} << 20;
inline constexpr std::uint32_t kBlocksPerRound = 1u << 16;
inline constexpr std::uint32_t kMaxRounds = 256;

// count <= 2^20 residues in [0, q), q an odd prime below 2^31. One prime: the caller adds kDomainLimbStride times its number to the
// domain.
void expand_uniform(const Seed& seed, std::uint32_t domain, std::uint64_t index, std::uint32_t q, std::size_t count,
                    std::uint32_t* out);

// count <= 2^20 words in [0, 2^w), 1 <= w <= 32.
void expand_power_of_two(const Seed& seed, std::uint32_t domain, std::uint64_t index, int w, std::size_t count, std::uint32_t* out);

// count words in [0, Q): uint32 for one limb, uint64 (both limbs composed) for two.
template <class Word>
void expand_words(Limbs limbs, const Seed& seed, std::uint32_t domain, std::uint64_t index, std::size_t count, Word* out);

// Seeded ciphertexts in full: number b of the batch has the masks of index b (LWE) or b*k + component (GLWE).
// bodies [batch][r] -> [batch][large_dimension + r]; bodies [batch][r][N] -> [batch][k + r][N].
template <class Word>
void expand_lwe(const ParameterSet& params, const Seed& seed, const Word* bodies, std::size_t batch, Word* lwe);
template <class Word>
void expand_glwe(const ParameterSet& params, const Seed& seed, const Word* bodies, std::size_t batch, Word* glwe);

// Index of a bootstrap key polynomial in domain 1; masks are components 0 .. k-1.
constexpr std::uint64_t bootstrap_mask_index(const ParameterSet& params, std::uint64_t step, std::uint64_t key, std::uint64_t row,
                                             std::uint64_t component) {
    return ((step * params.keys_per_step() + key) * params.row_count() + row) * params.glwe_dimension() + component;
}

// What a bootstrap key's words are multiplied by in the transform domain, modulo a limb prime: 1/N for the inverse transform, and
// 2^32 for each Montgomery reduction that follows.
constexpr std::uint64_t bootstrap_key_scale(const ParameterSet& params, std::uint64_t prime) {
    std::uint64_t scale = inverse_mod(params.polynomial_size(), prime);
    for (int i = 0; i < params.rotation().reductions(); ++i) scale = mul_mod(scale, (std::uint64_t{1} << 32) % prime, prime);
    return scale;
}

// Index of a keyswitch key row in domain 2: large-key coefficient i, level l.
constexpr std::uint64_t keyswitch_mask_index(const ParameterSet& params, std::uint64_t coefficient, std::uint64_t level) {
    return coefficient * params.keyswitch_gadget.level_count + level;
}

}  // namespace fhe_core
