// A party's share of a key that nobody has: docs/reference/specification.md, section 12.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "client/secret_key.hpp"
#include "core/chacha20.hpp"
#include "core/parameters.hpp"

namespace fhe_core {

// Standard deviations of flooding noise, in units of 1/Q.
inline constexpr double kLeastFlooding = 256.0;
inline constexpr double kMostFlooding = 1125899906842624.0;  // 2^50

// Never copied, erased on destruction. Torus words are in [0, Q), of two limbs. The joint ring key is the sum of the parties', the
// joint small key stands side by side. All methods may run in several threads at once.
//
// A share whose masks follow from a public seed draws its noise from the party's noise key and that seed (`derived`): two shares
// under the same masks are the same words, so that making one again tells nothing. Likewise the flooding of a ciphertext.
class PartyKey {
   public:
    // Party number `index` of the set's party_count.
    static std::unique_ptr<PartyKey> generate(const ParameterSet& params, int index);
    // Tests only: the keys, and all that they make, follow from the entropy.
    static std::unique_ptr<PartyKey> generate_from_entropy(const ParameterSet& params, int index, const Seed& entropy);
    // As export_secret gives it.
    static std::unique_ptr<PartyKey> restore(const ParameterSet& params, int index, const std::uint8_t* secret);

    static std::size_t secret_bytes(const ParameterSet& params) {
        return sizeof(Seed) + params.party_dimension() + params.large_dimension();
    }
    // The noise key, the small key, the ring key.
    void export_secret(std::uint8_t* out) const;

    const ParameterSet& params() const { return key_->params(); }
    int index() const { return index_; }
    // Zeros in the places of the other parties' small keys: the phases of joint ciphertexts lack the others' parts.
    const SecretKey& key() const { return *key_; }

    // 32 bytes that may be shown; they tell nothing of the key.
    Seed contribution() const;

    // b_i = A z_i + e_i under the masks of a public key's seed: bodies [k][N].
    void public_share(const Seed& seed, std::uint64_t* bodies) const;

    // GGSW rows of this party's steps under the joint public key: rows [party_steps][key of step][row][k + 1][N].
    void bootstrap_share(const Seed& public_seed, const std::uint64_t* public_bodies, std::uint64_t* rows,
                         const Progress& progress) const;

    // What this party adds to the keyswitch key under the masks of a seed: bodies [large_dimension][level_count].
    void keyswitch_share(const Seed& seed, std::uint32_t* bodies) const;

    // <mask, z_i> plus flooding noise of that standard deviation (units of 1/Q) for each of `masks` [batch][large_dimension]; tags
    // [batch], 32 public bytes each, are different wherever masks or deviations are.
    void partial_phases(const std::uint64_t* masks, const Seed* tags, std::size_t batch, double flooding, std::uint64_t* out) const;

   private:
    PartyKey(std::unique_ptr<SecretKey> key, int index, const SecretVector<Seed>& noise_key);
    static std::unique_ptr<PartyKey> make(const ParameterSet& params, int index, const SecretVector<Seed>& noise_key,
                                          const SecretVector<std::int8_t>& small_key, SecretVector<std::int8_t> large_key);
    static std::unique_ptr<PartyKey> generate(const ParameterSet& params, int index, SecretStream& stream);
    // A pseudorandom function of the noise key: 32 secret bytes for a purpose and 32 public bytes.
    enum class Purpose : std::uint32_t { contribution, public_share, keyswitch_share, flooding };
    SecretVector<Seed> derived(Purpose purpose, const Seed& input) const;

    std::unique_ptr<SecretKey> key_;
    int index_;
    SecretVector<Seed> noise_key_;      // one
    std::optional<Seed> test_entropy_;  // empty outside tests
};

// `count` draws of standard deviation `sigma` in [kLeastFlooding, kMostFlooding], in constant time: sum over j of 32^j x_j with
// discrete Gaussians x_j of deviation 256, the last of what is left of sigma.
void sample_flooding(SecretStream& stream, double sigma, std::size_t count, std::int64_t* out);

}  // namespace fhe_core
