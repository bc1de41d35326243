// The client's secret key: encryption, decryption and the keys derived from it. Sections 1, 5, 9 and 10 of docs/specification.md.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "fhe_core/backend.hpp"
#include "fhe_core/chacha20.hpp"
#include "fhe_core/ntt.hpp"
#include "fhe_core/parameters.hpp"
#include "fhe_core/random.hpp"
#include "fhe_core/secure_memory.hpp"

namespace fhe_core {

// Never copied, erased on destruction. `Word` is uint32 for one limb, uint64 for two; torus words are in [0, Q). Bodies of a
// bootstrap key have as many limbs as its modulus. All methods may run in several threads at once: each call draws its own
// randomness.
class SecretKey {
   public:
    static std::unique_ptr<SecretKey> generate(const ParameterSet& params);
    // Tests only: keys, seeds and noise of the nth call all follow from the entropy.
    static std::unique_ptr<SecretKey> generate_from_entropy(const ParameterSet& params, const Seed& entropy);
    // (lwe_dimension + large_dimension) * lane_count coefficients: the small keys of all lanes, then the large ones, as
    // export_coefficients gives them.
    static std::unique_ptr<SecretKey> restore(const ParameterSet& params, const std::int8_t* coefficients);

    SecretKey(const SecretKey&) = delete;
    SecretKey& operator=(const SecretKey&) = delete;

    const ParameterSet& params() const { return params_; }
    std::size_t coefficient_count() const { return small_key_.size() + large_key_.size(); }
    void export_coefficients(std::int8_t* out) const;

    // A message for each of the r = lane_count bodies of a ciphertext: torus_words and bodies are [batch][r] (LWE) or
    // [batch][r][N] (GLWE). Ciphertext number b uses the masks of index b or b*k + component. Return the fresh seed.
    template <class Word>
    Seed encrypt_lwe_seeded(const std::uint64_t* torus_words, std::size_t batch, Word* bodies) const;
    template <class Word>
    Seed encrypt_glwe_seeded(const std::uint64_t* torus_words, std::size_t batch, Word* bodies) const;

    // Phases: message plus noise, [batch][r] or [batch][r][N].
    template <class Word>
    void phase_lwe(const Word* lwe, std::size_t batch, std::uint64_t* phases) const;
    template <class Word>
    void phase_glwe(const Word* glwe, std::size_t batch, std::uint64_t* phases) const;
    void phase_small(const std::uint32_t* small_lwe, std::size_t batch, std::uint32_t* phases) const;  // modulo 2^w

    // bootstrap_bodies [step][key of step][row][r][N], keyswitch_bodies [large_dimension][level_count][r].
    template <class Word>
    Seed evaluation_keys(Word* bootstrap_bodies, std::uint32_t* keyswitch_bodies, const Progress& progress) const;

    // bodies [k][r][N].
    template <class Word>
    Seed public_key(Word* bodies) const;

   private:
    SecretKey(const ParameterSet& params, SecretVector<std::int8_t> small_key, SecretVector<std::int8_t> large_key);
    static std::unique_ptr<SecretKey> generate(const ParameterSet& params, SecretStream& stream);

    // What ring samples are modulo, and how noisy they are: ciphertexts and the public key, or a bootstrap key that may be raised.
    struct Samples {
        Limbs limbs;
        const GaussianTable& noise;
    };
    Samples ciphertext_samples() const { return {params_.limbs(), glwe_noise_}; }
    Samples key_samples() const { return {params_.key_limbs(), key_noise_}; }

    // The randomness of one call, and the public seed that goes with it.
    struct Randomness {
        SecretStream stream;
        Seed seed;
    };
    Randomness fresh_randomness() const;

    // products [lane][limb][N][kLanes] = sum over c of A_c * S_c of that lane for up to kLanes rows; load(row, c, prime, residues)
    // gives mask A_c of a row modulo that number of kLimbPrimes.
    template <class LoadMask>
    void multiply_masks(Limbs limbs, std::size_t rows, const LoadMask& load, SecretVector<std::uint32_t>& products) const;
    // GLWE encryptions of zero under consecutive masks of one domain: bodies[i][lane] = sum over c of
    // A_{first_row + i, c} * S_c + E.
    template <class Word>
    void encrypt_zero(Randomness& randomness, const Samples& samples, std::uint32_t domain, std::size_t first_row, std::size_t rows,
                      Word* bodies) const;
    template <class Word>
    void make_bootstrap_bodies(Randomness& randomness, Word* bodies, const Progress& progress) const;
    void make_keyswitch_bodies(Randomness& randomness, std::uint32_t* bodies, const Progress& progress) const;

    const std::int8_t* small_key(std::size_t lane) const { return small_key_.data() + lane * params_.lwe_dimension; }
    const std::int8_t* large_key(std::size_t lane) const { return large_key_.data() + lane * params_.large_dimension(); }

    const ParameterSet& params_;
    SecretVector<std::int8_t> small_key_;  // [lane][n]
    SecretVector<std::int8_t> large_key_;  // [lane][k][N]
    GaussianTable glwe_noise_;
    GaussianTable key_noise_;
    GaussianTable lwe_noise_;
    std::vector<NegacyclicNtt> ntt_;                 // [limb] of the bootstrap key, of which ciphertexts have one or all
    std::vector<NegacyclicNtt::Fixed> transformed_;  // [limb][lane][k], the large keys
    std::optional<Seed> test_entropy_;               // empty outside tests
    mutable std::atomic<std::uint64_t> test_calls_ = 1;
};

}  // namespace fhe_core
