// The client's secret key: encryption, decryption and the keys derived from it. Sections 1, 5, 9 and 10 of
// docs/reference/specification.md.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "client/ntt.hpp"
#include "client/random.hpp"
#include "core/backend.hpp"
#include "core/chacha20.hpp"
#include "core/parameters.hpp"
#include "core/secure_memory.hpp"

namespace fhe_core {

// Never copied, erased on destruction. `Word` is uint32 for one limb, uint64 for two; torus words are in [0, Q). Bodies of a
// bootstrap key have as many limbs as its modulus. All methods may run in several threads at once: each call draws its own
// randomness.
class SecretKey {
    friend class PartyKey;  // threshold.hpp: a share of a joint key, made of the same parts

   public:
    // Not of a joint set (PartyKey).
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

    // Evaluation keys some rows at a time, for who passes them on and keeps none.
    class EvaluationKeyMaker;

    // bodies [k][r][N].
    template <class Word>
    Seed public_key(Word* bodies) const;

   private:
    SecretKey(const ParameterSet& params, SecretVector<std::int8_t> small_key, SecretVector<std::int8_t> large_key);
    // Of a secure set, with coefficients as it wants them.
    static std::unique_ptr<SecretKey> checked(const ParameterSet& params, SecretVector<std::int8_t> small_key,
                                              SecretVector<std::int8_t> large_key);
    static std::unique_ptr<SecretKey> generate(const ParameterSet& params, SecretStream& stream);
    bool is_complete() const;  // the ring key of an NTRU accumulator has an inverse

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
    // The same of an NTRU accumulator: rows (G + constant) / S of fresh noise G, load(row) giving the constant in [0, q).
    template <class Constant>
    void divide_noise(Randomness& randomness, std::size_t rows, const Constant& constant, std::uint32_t* polynomials) const;
    void make_ntru_rows(Randomness& randomness, std::size_t first, std::size_t count, std::uint32_t* polynomials) const;
    // `count` rows of [step][key of step][row] from number `first` on, [count][r][N]; rows of one call's randomness in order.
    template <class Word>
    void make_bootstrap_rows(Randomness& randomness, std::size_t first, std::size_t count, Word* bodies) const;
    // `count` of [large_dimension], [count][level_count][r].
    void make_keyswitch_rows(Randomness& randomness, std::size_t first, std::size_t count, std::uint32_t* bodies) const;

    const std::int8_t* small_key(std::size_t lane) const { return small_key_.data() + lane * params_.lwe_dimension; }
    const std::int8_t* large_key(std::size_t lane) const { return large_key_.data() + lane * params_.large_dimension(); }

    const ParameterSet& params_;
    SecretVector<std::int8_t> small_key_;  // [lane][n]
    SecretVector<std::int8_t> large_key_;  // [lane][k][N]
    const GaussianTable& glwe_noise_;
    const GaussianTable& key_noise_;
    const GaussianTable& lwe_noise_;
    std::vector<NegacyclicNtt> ntt_;                 // [limb] of the bootstrap key, of which ciphertexts have one or all
    std::vector<NegacyclicNtt::Fixed> transformed_;  // [limb][lane][k], the large keys
    NegacyclicNtt::Fixed reciprocal_{0};             // 1/S of NTRU accumulators
    std::optional<Seed> test_entropy_;               // empty outside tests
    mutable std::atomic<std::uint64_t> test_calls_ = 1;
};

// The rows of one `evaluation_keys` call, in order, however they are divided. For one thread; the key outlives it. Throws
// ShapeError beyond the last row, and for keyswitch rows before the last bootstrap row.
class SecretKey::EvaluationKeyMaker {
   public:
    explicit EvaluationKeyMaker(const SecretKey& key);
    const SecretKey& key() const { return key_; }
    const Seed& seed() const { return randomness_.seed; }
    // The next `count` rows of [step][key of step][row]: bodies [count][r][N].
    template <class Word>
    void bootstrap(std::size_t count, Word* bodies);
    // The next `count` of [large_dimension]: bodies [count][level_count][r].
    void keyswitch(std::size_t count, std::uint32_t* bodies);

   private:
    const SecretKey& key_;
    Randomness randomness_;
    std::size_t bootstrap_rows_;
    std::size_t keyswitch_rows_;
    std::size_t made_ = 0;
};

}  // namespace fhe_core
