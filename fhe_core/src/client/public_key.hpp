// Encryption under a public key: section 10 of docs/reference/specification.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "client/ntt.hpp"
#include "core/chacha20.hpp"
#include "core/parameters.hpp"

namespace fhe_core {

// What encryptions are random by, in place of the operating system's entropy: number i of a batch draws from the stream of domain
// kDomainZeros and index first + i, so that they are the same however a batch is divided. Who knows the seed knows the randomness.
struct EncryptionSeed {
    const Seed& seed;
    std::uint64_t first;
};

// A public key, bodies [k][r][N], transformed for products with many small polynomials.
class TransformedPublicKey {
   public:
    template <class Word>
    TransformedPublicKey(const ParameterSet& params, const Seed& seed, const Word* bodies);

    const ParameterSet& params() const { return params_; }

   private:
    friend class PublicProducts;
    const ParameterSet& params_;
    std::vector<NegacyclicNtt> ntt_;                          // by limb
    std::vector<std::vector<NegacyclicNtt::Fixed>> factors_;  // [limb][row (k + r) + component]
};

// Adds an encryption of zero, that of coefficient 0 of a GLWE encryption of zero, to each of lwe [batch][kN + r], in place. Number
// i of a batch is the same however it is divided where `randomness` is given; threads share the key.
template <class Word>
void add_public_zeros(const TransformedPublicKey& key, std::size_t batch, Word* lwe, const EncryptionSeed* randomness = nullptr);

// torus_words [batch][r][N] in [0, Q), bodies [k][r][N] of the public key -> glwe [batch][k + r][N].
template <class Word>
void public_encrypt_glwe(const ParameterSet& params, const Seed& seed, const Word* bodies, const std::uint64_t* torus_words,
                         std::size_t batch, Word* glwe, const EncryptionSeed* randomness = nullptr);

}  // namespace fhe_core
