// Shares of a joint key: docs/reference/specification.md, section 12.
// Source: [AJL+12] additive ring keys, and evaluation keys made of shares; [CCS19] small keys side by side. Ours: each step of a
// blind rotation belongs to one party, which encrypts its own bits under the joint public key.
#include "client/threshold.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <utility>

#include "client/public_key.hpp"
#include "core/errors.hpp"
#include "core/expand.hpp"
#include "core/words.hpp"

namespace fhe_core {
namespace {

constexpr std::size_t kRowsAtOnce = 64;

// Flooding noise in base 32: 256 = 8 * 32 is beyond the smoothing parameter of 32 Z for 2^-128 (about 2.2 * 32), so that sums of
// digits have the distribution of one draw.
constexpr double kDigitSigma = 256.0;
constexpr int kDigitLog2 = 5;

constexpr std::uint32_t kDomainNoiseKey = 7;  // + purpose: apart from the domains of expand.hpp

void require_party(const ParameterSet& params, int index) {
    if (!params.is_joint())
        throw ParameterError(
            "parameter set '" + std::string(params.name) +
            "': expected a set of several parties, this one has keys of one owner; choose a set such as 'lut3_2p'");
    if (index < 0 || index >= params.party_count)
        throw ParameterError("party: expected a number in [0, " + std::to_string(params.party_count) + ") for parameter set '" +
                             std::string(params.name) + "', got " + std::to_string(index));
}

// 32 bytes of a stream, which leave no copy behind.
SecretVector<Seed> seed_of(SecretStream& stream) {
    SecretVector<std::uint32_t> words(sizeof(Seed) / sizeof(std::uint32_t));
    SecretVector<Seed> seed(1);
    stream.fill(words.data(), words.size());
    std::memcpy(seed[0].data(), words.data(), sizeof(Seed));
    return seed;
}

}  // namespace

PartyKey::PartyKey(std::unique_ptr<SecretKey> key, int index, const SecretVector<Seed>& noise_key)
    : key_(std::move(key)), index_(index), noise_key_(1) {
    noise_key_[0] = noise_key[0];
}

std::unique_ptr<PartyKey> PartyKey::make(const ParameterSet& params, int index, const SecretVector<Seed>& noise_key,
                                         const SecretVector<std::int8_t>& small_key, SecretVector<std::int8_t> large_key) {
    SecretVector<std::int8_t> placed(params.lwe_dimension);
    std::fill_n(placed.data(), placed.size(), std::int8_t{0});
    std::copy_n(small_key.data(), small_key.size(), placed.data() + std::size_t(index) * small_key.size());
    return std::unique_ptr<PartyKey>(
        new PartyKey(SecretKey::checked(params, std::move(placed), std::move(large_key)), index, noise_key));
}

std::unique_ptr<PartyKey> PartyKey::generate(const ParameterSet& params, int index, SecretStream& stream) {
    require_party(params, index);
    SecretVector<std::int8_t> small_key(params.party_dimension()), large_key(params.large_dimension());
    sample_secret(stream, params.lwe_secret(), small_key.size(), small_key.data());
    sample_secret(stream, params.glwe_secret, large_key.size(), large_key.data());
    SecretVector<Seed> noise_key = seed_of(stream);
    return make(params, index, noise_key, small_key, std::move(large_key));
}

std::unique_ptr<PartyKey> PartyKey::generate(const ParameterSet& params, int index) {
    SecretStream stream;
    return generate(params, index, stream);
}

std::unique_ptr<PartyKey> PartyKey::generate_from_entropy(const ParameterSet& params, int index, const Seed& entropy) {
    SecretStream stream(entropy, static_cast<std::uint64_t>(index));
    std::unique_ptr<PartyKey> key = generate(params, index, stream);
    key->test_entropy_ = entropy;
    return key;
}

std::unique_ptr<PartyKey> PartyKey::restore(const ParameterSet& params, int index, const std::uint8_t* secret) {
    require_party(params, index);
    SecretVector<Seed> noise_key(1);
    std::memcpy(noise_key[0].data(), secret, sizeof(Seed));
    const auto* coefficients = reinterpret_cast<const std::int8_t*>(secret + sizeof(Seed));
    SecretVector<std::int8_t> small_key(params.party_dimension()), large_key(params.large_dimension());
    std::copy_n(coefficients, small_key.size(), small_key.data());
    std::copy_n(coefficients + small_key.size(), large_key.size(), large_key.data());
    return make(params, index, noise_key, small_key, std::move(large_key));
}

void PartyKey::export_secret(std::uint8_t* out) const {
    SecretVector<std::int8_t> coefficients(key_->coefficient_count());
    key_->export_coefficients(coefficients.data());
    const std::size_t own = params().party_dimension(), others = params().lwe_dimension;
    std::memcpy(out, noise_key_[0].data(), sizeof(Seed));
    std::memcpy(out + sizeof(Seed), coefficients.data() + index_ * own, own);
    std::memcpy(out + sizeof(Seed) + own, coefficients.data() + others, params().large_dimension());
}

// A cascade of ChaCha20 over the input, eight bytes at a time: of inputs of one length a pseudorandom function.
// Source: [GGM86] the cascade.
SecretVector<Seed> PartyKey::derived(Purpose purpose, const Seed& input) const {
    SecretVector<Seed> link(1);
    link[0] = noise_key_[0];
    for (std::size_t at = 0; at < input.size(); at += sizeof(std::uint64_t)) {
        std::uint64_t chunk = 0;
        for (std::size_t byte = 0; byte < sizeof chunk; ++byte) chunk |= std::uint64_t{input[at + byte]} << (8 * byte);
        SecretStream stream(link[0], chunk, kDomainNoiseKey + static_cast<std::uint32_t>(purpose));
        link = seed_of(stream);
    }
    return link;
}

Seed PartyKey::contribution() const { return derived(Purpose::contribution, Seed{})[0]; }

void PartyKey::public_share(const Seed& seed, std::uint64_t* bodies) const {
    SecretKey::Randomness randomness{SecretStream(derived(Purpose::public_share, seed)[0], 0), seed};
    key_->encrypt_zero(randomness, key_->ciphertext_samples(), kDomainPublicKey, 0, params().glwe_dimension(), bodies);
}

void PartyKey::keyswitch_share(const Seed& seed, std::uint32_t* bodies) const {
    SecretKey::Randomness randomness{SecretStream(derived(Purpose::keyswitch_share, seed)[0], 0), seed};
    key_->make_keyswitch_rows(randomness, 0, params().large_dimension(), bodies);
}

// Row (i, l) of a key for m is an encryption of zero with m g_l added to its component i: of a mask, that takes m g_l z_i off its
// phase, as section 5 of the specification wants, and asks for no z.
void PartyKey::bootstrap_share(const Seed& public_seed, const std::uint64_t* public_bodies, std::uint64_t* rows,
                               const Progress& progress) const {
    const ParameterSet& p = params();
    const std::size_t n = p.polynomial_size(), k = p.glwe_dimension(), components = p.component_count(), row_count = p.row_count();
    const std::size_t keys = p.keys_per_step(), total = std::size_t(p.party_steps()) * keys * row_count;
    const std::size_t mask_levels = p.shape.mask_gadget.level_count;
    const Rotation& rotation = p.rotation();
    SecretVector<std::int8_t> coefficients(key_->coefficient_count());
    key_->export_coefficients(coefficients.data());
    const std::int8_t* own = coefficients.data() + std::size_t(index_) * p.party_dimension();
    const std::vector<std::uint64_t> zeros(std::min(kRowsAtOnce, total) * n);
    for (std::size_t first = 0; first < total; first += kRowsAtOnce) {
        const std::size_t count = std::min(kRowsAtOnce, total - first);
        std::optional<EncryptionSeed> fixed;
        if (test_entropy_) fixed.emplace(EncryptionSeed{*test_entropy_, (std::uint64_t(index_) + 1) * total + first});
        public_encrypt_glwe(p, public_seed, public_bodies, zeros.data(), count, rows + first * components * n,
                            fixed ? &*fixed : nullptr);
        for (std::size_t flat = first; flat < first + count; ++flat) {
            const std::size_t row = flat % row_count, key = flat / row_count % keys, step = flat / (row_count * keys);
            const bool is_mask = row < k * mask_levels;
            const Gadget& gadget = is_mask ? p.shape.mask_gadget : p.shape.body_gadget;
            const std::size_t component = is_mask ? row / mask_levels : k;
            const int level = static_cast<int>(is_mask ? row % mask_levels : row - k * mask_levels);
            const int shift = p.gadget_drop_bits(gadget) + gadget.base_log * (gadget.level_count - 1 - level);
            const std::int8_t bit = rotation.message(own + step * rotation.key_bits, static_cast<int>(key));
            const std::uint64_t message = (std::uint64_t{1} << shift) & (~std::uint64_t{0} * static_cast<std::uint64_t>(bit));
            std::uint64_t& constant = rows[(flat * components + component) * n];
            constant = reduce_once(constant + message, p.modulus());
        }
        if (progress && !progress(first + count, total))
            throw CancelledError("evaluation share: cancelled by the progress callback; nothing was returned");
    }
}

void PartyKey::partial_phases(const std::uint64_t* masks, const Seed* tags, std::size_t batch, double flooding,
                              std::uint64_t* out) const {
    const std::size_t dimension = params().large_dimension();
    const std::uint64_t q = params().modulus();
    std::vector<std::uint64_t> ciphertext(dimension + 1, 0);
    for (std::size_t b = 0; b < batch; ++b) {
        std::copy_n(masks + b * dimension, dimension, ciphertext.data());
        SecretVector<std::uint64_t> phase(1);  // 0 - <mask, z_i>
        key_->phase_lwe(ciphertext.data(), 1, phase.data());
        SecretStream stream(derived(Purpose::flooding, tags[b])[0], 0);
        SecretVector<std::int64_t> noise(1);
        sample_flooding(stream, flooding, 1, noise.data());
        out[b] = reduce_once(reduce_once(q - phase[0], q) + signed_residue(noise[0], q), q);
    }
}

// Source: [MW17] sums of discrete Gaussians on multiples.
void sample_flooding(SecretStream& stream, double sigma, std::size_t count, std::int64_t* out) {
    if (!(sigma >= kLeastFlooding && sigma <= kMostFlooding))
        throw ParameterError("flooding: expected a standard deviation in [2^8, 2^50] units, got " + std::to_string(sigma));
    SecretVector<std::int32_t> digit(count);
    std::fill_n(out, count, std::int64_t{0});
    double left = sigma * sigma;  // variance that is still to come, in units of the digit
    int shift = 0;
    for (; left >= 4.0 * kDigitSigma * kDigitSigma; shift += kDigitLog2) {
        sample_gaussian(stream, GaussianTable::kept(kDigitSigma), count, digit.data());
        for (std::size_t i = 0; i < count; ++i) out[i] += std::int64_t{digit[i]} * (std::int64_t{1} << shift);
        left = (left - kDigitSigma * kDigitSigma) / (1 << (2 * kDigitLog2));
    }
    const GaussianTable last(std::sqrt(left));
    sample_gaussian(stream, last, count, digit.data());
    for (std::size_t i = 0; i < count; ++i) out[i] += std::int64_t{digit[i]} * (std::int64_t{1} << shift);
}

}  // namespace fhe_core
