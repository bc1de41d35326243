// Encryption under a public key: section 10 of docs/specification.md.
#pragma once

#include <cstddef>
#include <cstdint>

#include "fhe_core/chacha20.hpp"
#include "fhe_core/parameters.hpp"

namespace fhe_core {

// torus_words [batch][r][N] in [0, Q), bodies [k][r][N] of the public key -> glwe [batch][k + r][N].
template <class Word>
void public_encrypt_glwe(const ParameterSet& params, const Seed& seed, const Word* bodies, const std::uint64_t* torus_words,
                         std::size_t batch, Word* glwe);

}  // namespace fhe_core
