// The client's secret key of levelled arithmetic (levelled.hpp): encryption, decryption, key-switching keys.
//
// S is ternary, noise is Gaussian of kLevelledSigma. Of a seed come c_1 of ciphertexts (domain kDomainLevelled, index: number of
// the ciphertext) and the second halves of key rows (domain kDomainLevelledKey, index: the digit), a stream for each prime,
// transformed already: uniform words are uniform in either form.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "client/random.hpp"
#include "core/chacha20.hpp"
#include "core/secure_memory.hpp"
#include "cpu/levelled.hpp"

namespace fhe_core {

inline constexpr double kLevelledSigma = 3.19;

// Never copied, erased on destruction. Methods may run in several threads at once.
class LevelledKey {
   public:
    static std::unique_ptr<LevelledKey> generate(std::shared_ptr<const cpu::Levelled> levelled, const std::optional<Seed>& entropy);
    // N coefficients, each -1, 0 or 1: SerializationError otherwise.
    static std::unique_ptr<LevelledKey> restore(std::shared_ptr<const cpu::Levelled> levelled, const std::int8_t* coefficients);
    LevelledKey(const LevelledKey&) = delete;
    LevelledKey& operator=(const LevelledKey&) = delete;

    const LevelledTables& tables() const { return levelled_->tables(); }
    std::size_t coefficient_count() const { return secret_.size(); }
    void export_coefficients(std::int8_t* out) const;

    // messages [batch][N] in [0, t) -> bodies [batch][level][N], transformed.
    Seed encrypt(const std::uint32_t* messages, std::size_t batch, int level, std::uint32_t* bodies) const;

    // ciphertexts [batch][parts][level][N] -> phases, coefficients [batch][level][N].
    void phase(const std::uint32_t* ciphertexts, std::size_t batch, int parts, int level, std::uint32_t* phases) const;

    // The key that switches from S^2 (g = 0) or S(X^g): bodies [digit][every prime][N].
    Seed switch_key(std::uint64_t g, std::uint32_t* bodies) const;

    // The key that switches from another secret, of N small coefficients.
    Seed switch_key_of(const std::int8_t* coefficients, std::uint32_t* bodies) const;

   private:
    LevelledKey(std::shared_ptr<const cpu::Levelled> levelled, SecretVector<std::int8_t> secret,
                const std::optional<Seed>& entropy);
    struct Randomness {
        SecretStream stream;
        Seed seed;
    };
    Randomness fresh_randomness() const;
    // Of small coefficients [N]: [every prime][N], transformed, times 2^32.
    SecretVector<std::uint32_t> prepared(const std::int8_t* coefficients) const;
    Seed switch_key_from(const SecretVector<std::uint32_t>& source, std::uint32_t* bodies) const;

    std::shared_ptr<const cpu::Levelled> levelled_;
    SecretVector<std::int8_t> secret_;
    SecretVector<std::uint32_t> prepared_;  // of it
    std::optional<Seed> test_entropy_;
    mutable std::atomic<std::uint64_t> test_calls_ = 1;
};

// Phases modulo Q_level to messages modulo t: [batch][level][N] -> [batch][N].
void levelled_messages(const LevelledTables& tables, const std::uint32_t* phases, std::size_t batch, int level,
                       std::uint32_t* messages);

// Seeded ciphertexts in full: number b of the batch has the mask of index first + b. bodies [batch][level][N] ->
// [batch][2][level][N].
void expand_levelled(const LevelledTables& tables, const Seed& seed, std::uint64_t first, const std::uint32_t* bodies,
                     std::size_t batch, int level, std::uint32_t* out);

// A key in full and prepared: bodies [digit][every prime][N] -> [digit][2][every prime][N].
void expand_levelled_key(const cpu::Levelled& levelled, const Seed& seed, const std::uint32_t* bodies, std::uint32_t* out,
                         int threads);

}  // namespace fhe_core
