#include "client/secret_key.hpp"

#include <algorithm>
#include <cstdlib>
#include <string>
#include <utility>

#include "core/errors.hpp"
#include "core/expand.hpp"
#include "core/words.hpp"

namespace fhe_core {
namespace {

constexpr std::size_t kLanes = NegacyclicNtt::kLanes;
constexpr int kMinSecurityBits = 128;

bool is_set(const char* variable) {
    const char* value = std::getenv(variable);
    return value != nullptr && std::string(value) == "1";
}

void refuse_insecure(const ParameterSet& params) {
    if (params.is_published()) {
        if (is_set("CLOAKWORK_MEASURE_PAPERS")) return;
        throw ParameterError(
            "parameter set '" + std::string(params.name) +
            "': it has the parameters of a publication, most of which are insecure; 'cloakwork bench methods' alone makes "
            "keys of it (CLOAKWORK_MEASURE_PAPERS=1)");
    }
    if (params.security_bits >= kMinSecurityBits || is_set("CLOAKWORK_ALLOW_TOY")) return;
    throw ParameterError(
        "parameter set '" + std::string(params.name) + "': expected at least " + std::to_string(kMinSecurityBits) +
        " bits of security, it has " + std::to_string(params.security_bits) +
        "; choose another set, or set the environment variable CLOAKWORK_ALLOW_TOY=1 in tests that need no secrecy");
}

void refuse_joint(const ParameterSet& params) {
    if (params.is_joint())
        throw ParameterError(
            "parameter set '" + std::string(params.name) + "': its keys belong to " + std::to_string(params.party_count) +
            " parties and nobody has them whole; each makes its share (cloakwork.engine.Party), or choose a set of one owner");
}

// Every step has a value that key generation gives it; all steps are looked at, whatever is found.
void check_steps(const ParameterSet& params, const SecretVector<std::int8_t>& small_key) {
    const Rotation& rotation = params.rotation();
    bool all = true;
    const std::size_t steps = small_key.size() / rotation.key_bits;  // of all lanes
    for (std::size_t step = 0; step < steps; ++step) all &= rotation.is_step(small_key.data() + step * rotation.key_bits);
    if (!all)
        throw SerializationError("small key: expected blocks of " + std::to_string(rotation.key_bits) +
                                 " coefficients that are zero or a key of '" + std::string(rotation.name) +
                                 "', found another block; the data is damaged or belongs to another parameter set");
}

}  // namespace

SecretKey::SecretKey(const ParameterSet& params, SecretVector<std::int8_t> small_key, SecretVector<std::int8_t> large_key)
    : params_(params),
      small_key_(std::move(small_key)),
      large_key_(std::move(large_key)),
      glwe_noise_(GaussianTable::kept(params.glwe_sigma)),
      key_noise_(GaussianTable::kept(params.key_sigma())),
      lwe_noise_(GaussianTable::kept(params.lwe_sigma)) {
    const std::size_t n = params.polynomial_size();
    const Limbs limbs = params.key_limbs();
    for (int limb = 0; limb < limbs.count; ++limb) {
        ntt_.emplace_back(n, limbs.prime(limb));
        for (std::size_t first = 0; first < large_key_.size(); first += n)
            transformed_.push_back(ntt_[limb].transform_small(large_key_.data() + first));
    }
    if (params.is_ntru()) reciprocal_ = ntt_[0].reciprocal(transformed_[0]);
}

bool SecretKey::is_complete() const { return !params_.is_ntru() || reciprocal_.size() > 0; }

std::unique_ptr<SecretKey> SecretKey::generate(const ParameterSet& params, SecretStream& stream) {
    refuse_joint(params);
    refuse_insecure(params);
    const std::size_t lanes = params.lane_count();
    SecretVector<std::int8_t> small_key(lanes * params.lwe_dimension), large_key(lanes * params.large_dimension());
    if (params.rotation().has_independent_bits()) {
        sample_secret(stream, params.lwe_secret(), small_key.size(), small_key.data());
    } else {
        sample_steps(stream, params.rotation(), lanes * params.step_count(), small_key.data());
    }
    for (;;) {  // one S in 65,000 has no inverse
        sample_secret(stream, params.glwe_secret, large_key.size(), large_key.data());
        SecretVector<std::int8_t> small(small_key.size()), large(large_key.size());
        std::copy_n(small_key.data(), small.size(), small.data());
        std::copy_n(large_key.data(), large.size(), large.data());
        std::unique_ptr<SecretKey> key(new SecretKey(params, std::move(small), std::move(large)));
        if (key->is_complete()) return key;
    }
}

std::unique_ptr<SecretKey> SecretKey::generate(const ParameterSet& params) {
    SecretStream stream;
    return generate(params, stream);
}

std::unique_ptr<SecretKey> SecretKey::generate_from_entropy(const ParameterSet& params, const Seed& entropy) {
    SecretStream stream(entropy, 0);
    std::unique_ptr<SecretKey> key = generate(params, stream);
    key->test_entropy_ = entropy;
    return key;
}

std::unique_ptr<SecretKey> SecretKey::restore(const ParameterSet& params, const std::int8_t* coefficients) {
    refuse_joint(params);
    const std::size_t lanes = params.lane_count();
    SecretVector<std::int8_t> small_key(lanes * params.lwe_dimension), large_key(lanes * params.large_dimension());
    std::copy_n(coefficients, small_key.size(), small_key.data());
    std::copy_n(coefficients + small_key.size(), large_key.size(), large_key.data());
    return checked(params, std::move(small_key), std::move(large_key));
}

std::unique_ptr<SecretKey> SecretKey::checked(const ParameterSet& params, SecretVector<std::int8_t> small_key,
                                              SecretVector<std::int8_t> large_key) {
    refuse_insecure(params);
    const auto check = [](const SecretVector<std::int8_t>& key, SecretKind kind, const char* name) {
        const int lowest = secret_lowest(kind), highest = secret_bound(kind);
        int outside = 0;
        for (std::size_t i = 0; i < key.size(); ++i) outside |= (key[i] < lowest) | (key[i] > highest);
        if (outside)
            throw SerializationError(std::string(name) + " key: expected coefficients in [" + std::to_string(lowest) + ", " +
                                     std::to_string(highest) +
                                     "], found another value; the data is damaged or belongs to another parameter set");
    };
    check(small_key, params.lwe_secret(), "small");
    check(large_key, params.glwe_secret, "large");
    check_steps(params, small_key);
    std::unique_ptr<SecretKey> key(new SecretKey(params, std::move(small_key), std::move(large_key)));
    if (!key->is_complete())
        throw SerializationError(
            "large key: expected an invertible polynomial; the data is damaged or belongs to another parameter set");
    return key;
}

void SecretKey::export_coefficients(std::int8_t* out) const {
    std::copy_n(small_key_.data(), small_key_.size(), out);
    std::copy_n(large_key_.data(), large_key_.size(), out + small_key_.size());
}

SecretKey::Randomness SecretKey::fresh_randomness() const {
    if (!test_entropy_) return {SecretStream(), random_seed()};
    const std::uint64_t call = test_calls_++;
    return {SecretStream(*test_entropy_, 2 * call), SecretStream(*test_entropy_, 2 * call + 1).seed()};
}

template <class LoadMask>
void SecretKey::multiply_masks(Limbs limbs, std::size_t rows, const LoadMask& load, SecretVector<std::uint32_t>& products) const {
    const std::size_t n = params_.polynomial_size(), k = params_.glwe_dimension(), lanes = params_.lane_count();
    std::vector<std::uint32_t> mask(n), masks(n * kLanes);
    std::fill_n(products.data(), products.size(), 0u);
    for (int limb = 0; limb < limbs.count; ++limb) {
        const auto product = [&](std::size_t lane) { return products.data() + (lane * limbs.count + limb) * n * kLanes; };
        for (std::size_t c = 0; c < k; ++c) {
            for (std::size_t row = 0; row < rows; ++row) {
                load(row, c, limbs.number(limb), mask.data());
                for (std::size_t j = 0; j < n; ++j) masks[j * kLanes + row] = mask[j];
            }
            ntt_[limb].forward(masks.data());
            for (std::size_t lane = 0; lane < lanes; ++lane)
                ntt_[limb].multiply_accumulate(masks.data(), transformed_[(limb * lanes + lane) * k + c], product(lane));
        }
        for (std::size_t lane = 0; lane < lanes; ++lane) ntt_[limb].inverse(product(lane));
    }
}

template <class Word>
void SecretKey::encrypt_zero(Randomness& randomness, const Samples& samples, std::uint32_t domain, std::size_t first_row,
                             std::size_t rows, Word* bodies) const {
    const std::size_t n = params_.polynomial_size(), k = params_.glwe_dimension(), lanes = params_.lane_count();
    const Limbs limbs = samples.limbs;
    const std::uint64_t q = limbs.modulus();
    const std::size_t lane_words = limbs.count * n * kLanes;
    SecretVector<std::uint32_t> products(lanes * lane_words);
    SecretVector<std::int32_t> noise(n);
    for (std::size_t start = 0; start < rows; start += kLanes) {
        const std::size_t count = std::min(kLanes, rows - start);
        const auto load_mask = [&](std::size_t row, std::size_t c, int prime, std::uint32_t* mask) {
            expand_uniform(randomness.seed, domain + kDomainLimbStride * prime, (first_row + start + row) * k + c,
                           kLimbPrimes[prime], n, mask);
        };
        multiply_masks(limbs, count, load_mask, products);
        for (std::size_t i = 0; i < count * lanes; ++i) {
            const std::size_t row = i / lanes, lane = i % lanes;
            sample_gaussian(randomness.stream, samples.noise, n, noise.data());
            Word* body = bodies + (start * lanes + i) * n;
            for (std::size_t j = 0; j < n; ++j) {
                const std::uint64_t product = compose(products.data() + lane * lane_words + j * kLanes + row, limbs, n * kLanes);
                body[j] = static_cast<Word>(reduce_once(product + signed_residue(noise[j], q), q));
            }
        }
    }
}

template <class Word>
Seed SecretKey::encrypt_glwe_seeded(const std::uint64_t* torus_words, std::size_t batch, Word* bodies) const {
    const std::uint64_t q = params_.modulus();
    Randomness randomness = fresh_randomness();
    encrypt_zero(randomness, ciphertext_samples(), kDomainGlwe, 0, batch, bodies);
    const std::size_t count = batch * params_.lane_count() * params_.polynomial_size();
    for (std::size_t j = 0; j < count; ++j) bodies[j] = static_cast<Word>(reduce_once(bodies[j] + torus_words[j], q));
    return randomness.seed;
}

template <class Word>
Seed SecretKey::encrypt_lwe_seeded(const std::uint64_t* torus_words, std::size_t batch, Word* bodies) const {
    const std::size_t dimension = params_.large_dimension(), lanes = params_.lane_count();
    const Limbs limbs = params_.limbs();
    const std::uint64_t q = params_.modulus();
    Randomness randomness = fresh_randomness();
    std::vector<std::uint32_t> mask(dimension);
    SecretVector<std::int32_t> noise(batch * lanes);
    sample_gaussian(randomness.stream, glwe_noise_, noise.size(), noise.data());
    SecretVector<std::uint32_t> products(lanes * limbs.count);  // of the masks with the secrets
    for (std::size_t b = 0; b < batch; ++b) {
        for (int limb = 0; limb < limbs.count; ++limb) {
            expand_uniform(randomness.seed, kDomainLwe + kDomainLimbStride * limbs.number(limb), b, limbs.prime(limb), dimension,
                           mask.data());
            for (std::size_t lane = 0; lane < lanes; ++lane)
                products[lane * limbs.count + limb] =
                    inner_product_residue(mask.data(), large_key(lane), dimension, limbs.number(limb));
        }
        for (std::size_t lane = 0, i = b * lanes; lane < lanes; ++lane, ++i) {
            const std::uint64_t message = reduce_once(torus_words[i] + signed_residue(noise[i], q), q);
            bodies[i] = static_cast<Word>(reduce_once(compose(products.data() + lane * limbs.count, limbs, 1) + message, q));
        }
    }
    return randomness.seed;
}

template <class Word>
void SecretKey::phase_lwe(const Word* lwe, std::size_t batch, std::uint64_t* phases) const {
    const std::size_t dimension = params_.large_dimension(), lanes = params_.lane_count();
    const Limbs limbs = params_.limbs();
    const std::uint64_t q = params_.modulus();
    std::vector<std::uint32_t> mask(dimension);
    SecretVector<std::uint32_t> products(lanes * limbs.count);
    for (std::size_t b = 0; b < batch; ++b, lwe += dimension + lanes) {
        for (int limb = 0; limb < limbs.count; ++limb) {
            for (std::size_t j = 0; j < dimension; ++j) mask[j] = limb_residue(lwe[j], limbs.number(limb));
            for (std::size_t lane = 0; lane < lanes; ++lane)
                products[lane * limbs.count + limb] =
                    inner_product_residue(mask.data(), large_key(lane), dimension, limbs.number(limb));
        }
        for (std::size_t lane = 0; lane < lanes; ++lane)
            *phases++ = reduce_once(lwe[dimension + lane] + q - compose(products.data() + lane * limbs.count, limbs, 1), q);
    }
}

template <class Word>
void SecretKey::phase_glwe(const Word* glwe, std::size_t batch, std::uint64_t* phases) const {
    const std::size_t n = params_.polynomial_size(), k = params_.glwe_dimension(), lanes = params_.lane_count();
    const std::size_t size = params_.component_count() * n;
    const Limbs limbs = params_.limbs();
    const std::uint64_t q = params_.modulus();
    const std::size_t lane_words = limbs.count * n * kLanes;
    SecretVector<std::uint32_t> products(lanes * lane_words);
    for (std::size_t start = 0; start < batch; start += kLanes) {
        const std::size_t count = std::min(kLanes, batch - start);
        const auto load_mask = [&](std::size_t row, std::size_t c, int prime, std::uint32_t* residues) {
            const Word* mask = glwe + (start + row) * size + c * n;
            for (std::size_t j = 0; j < n; ++j) residues[j] = limb_residue(mask[j], prime);
        };
        multiply_masks(limbs, count, load_mask, products);
        for (std::size_t i = 0; i < count * lanes; ++i) {
            const std::size_t row = i / lanes, lane = i % lanes;
            const Word* body = glwe + (start + row) * size + (k + lane) * n;
            std::uint64_t* phase = phases + (start * lanes + i) * n;
            const std::uint32_t* product = products.data() + lane * lane_words + row;
            for (std::size_t j = 0; j < n; ++j)
                phase[j] = reduce_once(body[j] + q - compose(product + j * kLanes, limbs, n * kLanes), q);
        }
    }
}

void SecretKey::phase_small(const std::uint32_t* small_lwe, std::size_t batch, std::uint32_t* phases) const {
    const std::size_t n = params_.lwe_dimension, lanes = params_.lane_count();
    const std::uint32_t low_bits = 0xFFFFFFFFu >> (32 - params_.keyswitch_modulus_log2);
    for (std::size_t b = 0; b < batch; ++b, small_lwe += n + lanes)
        for (std::size_t lane = 0; lane < lanes; ++lane)
            *phases++ = (small_lwe[n + lane] - static_cast<std::uint32_t>(inner_product(small_lwe, small_key(lane), n))) & low_bits;
}

#define FHE_CORE_INSTANTIATE(Word)                                                                                            \
    template void SecretKey::encrypt_zero(Randomness&, const Samples&, std::uint32_t, std::size_t, std::size_t, Word*) const; \
    template Seed SecretKey::encrypt_lwe_seeded(const std::uint64_t*, std::size_t, Word*) const;                              \
    template Seed SecretKey::encrypt_glwe_seeded(const std::uint64_t*, std::size_t, Word*) const;                             \
    template void SecretKey::phase_lwe(const Word*, std::size_t, std::uint64_t*) const;                                       \
    template void SecretKey::phase_glwe(const Word*, std::size_t, std::uint64_t*) const;
FHE_CORE_INSTANTIATE(std::uint32_t)
FHE_CORE_INSTANTIATE(std::uint64_t)
#undef FHE_CORE_INSTANTIATE

}  // namespace fhe_core
