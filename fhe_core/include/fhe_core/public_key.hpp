// Encryption under a public key: section 10 of docs/specification.md.
#pragma once

#include <cstddef>
#include <cstdint>

#include "fhe_core/chacha20.hpp"
#include "fhe_core/parameters.hpp"

namespace fhe_core {

// What encryptions are random by, in place of the operating system's entropy: number i of a batch draws from the stream of domain
// kDomainZeros and index first + i, so that they are the same however a batch is divided. Who knows the seed knows the randomness.
struct EncryptionSeed {
    const Seed& seed;
    std::uint64_t first;
};

// torus_words [batch][r][N] in [0, Q), bodies [k][r][N] of the public key -> glwe [batch][k + r][N].
template <class Word>
void public_encrypt_glwe(const ParameterSet& params, const Seed& seed, const Word* bodies, const std::uint64_t* torus_words,
                         std::size_t batch, Word* glwe, const EncryptionSeed* randomness = nullptr);

}  // namespace fhe_core
