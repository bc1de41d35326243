// Secret randomness: operating-system entropy into ChaCha20, and samplers without secret-dependent branches or addresses.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "core/chacha20.hpp"
#include "core/parameters.hpp"

namespace fhe_core {

// 32 bytes of operating-system entropy. Throws FheError when the system has none to give.
Seed random_seed();

// Tests only: replaces the operating system's entropy in this process by what follows from a seed, until it is called with none.
void replace_entropy(const std::optional<Seed>& seed);

// How often this process asked the operating system for entropy.
std::uint64_t entropy_requests();

// A stream of secret words. Each object is freshly keyed and lives for one call, or for the making of one key where there are no
// forks; so a fork never shares one. Erased on destruction.
class SecretStream {
    friend struct SecretStreamProbe;  // tests: what a stream leaves behind

   public:
    SecretStream();
    // The same entropy, index and domain give the same stream: tests, and with kDomainZeros re-randomisation from a seed.
    SecretStream(const Seed& entropy, std::uint64_t index, std::uint32_t domain = kDomainSecret);
    ~SecretStream();
    SecretStream(const SecretStream&) = delete;
    SecretStream& operator=(const SecretStream&) = delete;

    void fill(std::uint32_t* words, std::size_t count);
    Seed seed();

   private:
    void refill();

    static constexpr std::uint32_t kDomainSecret = 0;  // any constant: the key is fresh
    static constexpr std::size_t kBufferBlocks = 64;
    static constexpr std::size_t kBufferWords = kBufferBlocks * ChaCha20::kWordsPerBlock;
    Seed key_;
    std::uint64_t index_;
    std::uint32_t domain_;
    std::uint32_t next_block_ = 0;
    std::size_t used_ = kBufferWords;
    std::uint32_t buffer_[kBufferWords];
};

// Discrete Gaussian on the integers with weight exp(-x^2 / (2 sigma^2)), as a cumulative table of the magnitude:
// thresholds[i] = round(2^63 * P(|x| > i)), so |x| = number of thresholds above a uniform 63-bit u.
class GaussianTable {
   public:
    // sigma in [0.5, 2000]: the tail beyond the table (|x| > about 9.4 sigma) has probability below 2^-63.
    explicit GaussianTable(double sigma);
    // The table of a parameter set's sigma: made once and kept for the life of the program, for any number of threads. It is
    // public.
    static const GaussianTable& kept(double sigma);
    const std::vector<std::int64_t>& thresholds() const { return thresholds_; }

   private:
    std::vector<std::int64_t> thresholds_;
};

void sample_gaussian(SecretStream& stream, const GaussianTable& table, std::size_t count, std::int32_t* out);

// Uniform over the values of the kind; Gaussian secrets of kGaussianSecretSigma. A rejected draw says nothing about the accepted
// ones.
void sample_secret(SecretStream& stream, SecretKind kind, std::size_t count, std::int8_t* out);

// A small key step by step: zero or a key of the rotation's line, each as likely as the others. out [steps][key_bits].
// Source: [LMSS23] blocks of the small key with at most one 1.
void sample_steps(SecretStream& stream, const Rotation& rotation, std::size_t steps, std::int8_t* out);

}  // namespace fhe_core
