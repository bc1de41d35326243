// Encryption under a public key: docs/reference/specification.md, section 10.
// Source: [LPR10] for rings, [Joy24] for LWE ciphertexts. Ours: k rows for GLWE dimension k; LWE by sample extraction.
#include "client/public_key.hpp"

#include <algorithm>
#include <optional>
#include <vector>

#include "client/ntt.hpp"
#include "client/secret_key.hpp"
#include "core/expand.hpp"
#include "core/words.hpp"

namespace fhe_core {
namespace {

constexpr std::size_t kLanes = NegacyclicNtt::kLanes;

// The streams of the encryptions that are made together: one for all of them, or one each where they follow from a seed.
class LaneStreams {
   public:
    explicit LaneStreams(const EncryptionSeed* randomness) : randomness_(randomness), streams_(randomness ? kLanes : 1) {
        if (randomness == nullptr) streams_[0].emplace();
    }
    void begin(std::size_t start) {
        if (randomness_ == nullptr) return;
        for (std::size_t lane = 0; lane < kLanes; ++lane)
            streams_[lane].emplace(randomness_->seed, randomness_->first + start + lane, kDomainZeros);
    }
    SecretStream& operator[](std::size_t lane) { return *streams_[randomness_ ? lane : 0]; }

   private:
    const EncryptionSeed* randomness_;
    std::vector<std::optional<SecretStream>> streams_;
};

}  // namespace

template <class Word>
TransformedPublicKey::TransformedPublicKey(const ParameterSet& params, const Seed& seed, const Word* bodies) : params_(params) {
    const std::size_t n = params.polynomial_size(), k = params.glwe_dimension(), components = params.component_count();
    std::vector<std::uint32_t> residues(n), lanes(n * kLanes);
    for (int limb = 0; limb < params.limb_count(); ++limb) {
        const NegacyclicNtt& ntt = ntt_.emplace_back(n, kLimbPrimes[limb]);
        std::vector<NegacyclicNtt::Fixed>& factors = factors_.emplace_back();
        for (std::size_t row = 0; row < k; ++row) {
            for (std::size_t c = 0; c < components; ++c) {  // one lane per component, k + r <= kLanes
                if (c < k)
                    expand_uniform(seed, kDomainPublicKey + kDomainLimbStride * limb, row * k + c, kLimbPrimes[limb], n,
                                   residues.data());
                else
                    for (std::size_t j = 0; j < n; ++j)
                        residues[j] = limb_residue(bodies[(row * (components - k) + c - k) * n + j], limb);
                for (std::size_t j = 0; j < n; ++j) lanes[j * kLanes + c] = residues[j];
            }
            ntt.forward(lanes.data());
            for (std::size_t c = 0; c < components; ++c) factors.push_back(ntt.lane(lanes.data(), c));
        }
    }
}

// Encryptions that are made together, one in each lane: u of each, and one component of u times the key at a time.
class PublicProducts {
   public:
    explicit PublicProducts(const TransformedPublicKey& key)
        : key_(key),
          params_(key.params()),
          n_(params_.polynomial_size()),
          k_(params_.glwe_dimension()),
          q_(params_.modulus()),
          u_(kLanes * k_ * n_),
          u_lanes_(params_.limb_count() * k_ * n_ * kLanes),
          product_(params_.limb_count() * n_ * kLanes) {}

    // A new u for each of `count` lanes: as wide as the ring secret, for which glwe_sigma gives the stated security; centred, so
    // that the key's noise leaves no offset.
    void draw(LaneStreams& streams, std::size_t count) {
        const SecretKind kind = params_.glwe_secret == SecretKind::quinary ? SecretKind::quinary : SecretKind::ternary;
        for (std::size_t lane = 0; lane < count; ++lane) sample_secret(streams[lane], kind, k_ * n_, u_.data() + lane * k_ * n_);
        for (int limb = 0; limb < params_.limb_count(); ++limb)
            for (std::size_t row = 0; row < k_; ++row) {
                std::uint32_t* lanes = u_of(limb, row);
                for (std::size_t lane = 0; lane < kLanes; ++lane)
                    for (std::size_t j = 0; j < n_; ++j)
                        lanes[j * kLanes + lane] =
                            static_cast<std::uint32_t>(signed_residue(u_[(lane * k_ + row) * n_ + j], kLimbPrimes[limb]));
                key_.ntt_[limb].forward(lanes);
            }
    }

    // Component c of all lanes.
    void multiply(std::size_t c) {
        for (int limb = 0; limb < params_.limb_count(); ++limb) key_.ntt_[limb].inverse(transformed(limb, c));
    }
    // Its coefficient 0 alone.
    void multiply_constant(std::size_t c) {
        for (int limb = 0; limb < params_.limb_count(); ++limb) key_.ntt_[limb].inverse_constant(transformed(limb, c));
    }

    // Coefficient j of a lane's product, plus noise, in [0, Q).
    std::uint64_t noisy(std::size_t lane, std::size_t j, std::int32_t noise) const {
        const std::uint64_t product = compose(product_.data() + j * kLanes + lane, params_.limbs(), n_ * kLanes);
        return reduce_once(product + signed_residue(noise, q_), q_);
    }

   private:
    std::uint32_t* u_of(int limb, std::size_t row) { return u_lanes_.data() + (limb * k_ + row) * n_ * kLanes; }

    std::uint32_t* transformed(int limb, std::size_t c) {
        std::uint32_t* sum = product_.data() + limb * n_ * kLanes;
        std::fill_n(sum, n_ * kLanes, 0u);
        for (std::size_t row = 0; row < k_; ++row)
            key_.ntt_[limb].multiply_accumulate(u_of(limb, row), key_.factors_[limb][row * params_.component_count() + c], sum);
        return sum;
    }

    const TransformedPublicKey& key_;
    const ParameterSet& params_;
    const std::size_t n_, k_;
    const std::uint64_t q_;
    SecretVector<std::int8_t> u_;          // [lane][row][N]
    SecretVector<std::uint32_t> u_lanes_;  // [limb][row][N][lane]
    SecretVector<std::uint32_t> product_;  // [limb][N][lane]
};

template <class Word>
Seed SecretKey::public_key(Word* bodies) const {
    Randomness randomness = fresh_randomness();
    encrypt_zero(randomness, ciphertext_samples(), kDomainPublicKey, 0, params_.glwe_dimension(), bodies);
    return randomness.seed;
}

// visit(products, noise_of, start, count) for groups of up to kLanes encryptions, each with a u of its own: noise_of(lane, n) draws
// that lane's next n values.
template <class Visit>
void in_groups(const TransformedPublicKey& key, std::size_t batch, const EncryptionSeed* randomness, const Visit& visit) {
    const GaussianTable& table = GaussianTable::kept(key.params().glwe_sigma);
    LaneStreams streams(randomness);
    PublicProducts products(key);
    SecretVector<std::int32_t> noise(key.params().polynomial_size());
    const auto noise_of = [&](std::size_t lane, std::size_t count) {
        sample_gaussian(streams[lane], table, count, noise.data());
        return noise.data();
    };
    for (std::size_t start = 0; start < batch; start += kLanes) {
        const std::size_t count = std::min(kLanes, batch - start);
        streams.begin(start);
        products.draw(streams, count);
        visit(products, noise_of, start, count);
    }
}

template <class Word>
void public_encrypt_glwe(const ParameterSet& params, const Seed& seed, const Word* bodies, const std::uint64_t* torus_words,
                         std::size_t batch, Word* glwe, const EncryptionSeed* randomness) {
    const std::size_t n = params.polynomial_size(), k = params.glwe_dimension(), components = params.component_count();
    const std::uint64_t q = params.modulus();
    const TransformedPublicKey key(params, seed, bodies);
    in_groups(key, batch, randomness, [&](PublicProducts& products, const auto& noise_of, std::size_t start, std::size_t count) {
        for (std::size_t c = 0; c < components; ++c) {
            products.multiply(c);
            for (std::size_t lane = 0; lane < count; ++lane) {
                const std::int32_t* noise = noise_of(lane, n);
                const std::uint64_t* message = c < k ? nullptr : torus_words + ((start + lane) * (components - k) + c - k) * n;
                Word* out = glwe + ((start + lane) * components + c) * n;
                for (std::size_t j = 0; j < n; ++j) {
                    const std::uint64_t sum = products.noisy(lane, j, noise[j]);
                    out[j] = static_cast<Word>(message != nullptr ? reduce_once(sum + message[j], q) : sum);
                }
            }
        }
    });
}

template <class Word>
void add_public_zeros(const TransformedPublicKey& key, std::size_t batch, Word* lwe, const EncryptionSeed* randomness) {
    const ParameterSet& params = key.params();
    const std::size_t n = params.polynomial_size(), k = params.glwe_dimension(), bodies = params.lane_count();
    const std::uint64_t q = params.modulus();
    in_groups(key, batch, randomness, [&](PublicProducts& products, const auto& noise_of, std::size_t start, std::size_t count) {
        for (std::size_t c = 0; c < k; ++c) {
            products.multiply(c);
            for (std::size_t lane = 0; lane < count; ++lane) {
                const std::int32_t* noise = noise_of(lane, n);
                // Section 7 of the specification at coefficient 0: the mask's constant, then its other coefficients backwards,
                // negated.
                Word* mask = lwe + (start + lane) * (k * n + bodies) + c * n;
                mask[0] = static_cast<Word>(reduce_once(mask[0] + products.noisy(lane, 0, noise[0]), q));
                for (std::size_t j = 1; j < n; ++j)
                    mask[n - j] = static_cast<Word>(reduce_once(mask[n - j] + q - products.noisy(lane, j, noise[j]), q));
            }
        }
        for (std::size_t body = 0; body < bodies; ++body) {
            products.multiply_constant(k + body);
            for (std::size_t lane = 0; lane < count; ++lane) {
                // Those of the other coefficients come from the stream too, and nothing after the last body.
                const std::int32_t* noise = noise_of(lane, body + 1 < bodies ? n : 1);
                Word& word = lwe[(start + lane) * (k * n + bodies) + k * n + body];
                word = static_cast<Word>(reduce_once(word + products.noisy(lane, 0, noise[0]), q));
            }
        }
    });
}

#define FHE_CORE_INSTANTIATE(Word)                                                                                             \
    template Seed SecretKey::public_key(Word*) const;                                                                          \
    template TransformedPublicKey::TransformedPublicKey(const ParameterSet&, const Seed&, const Word*);                        \
    template void add_public_zeros(const TransformedPublicKey&, std::size_t, Word*, const EncryptionSeed*);                    \
    template void public_encrypt_glwe(const ParameterSet&, const Seed&, const Word*, const std::uint64_t*, std::size_t, Word*, \
                                      const EncryptionSeed*);
FHE_CORE_INSTANTIATE(std::uint32_t)
FHE_CORE_INSTANTIATE(std::uint64_t)
#undef FHE_CORE_INSTANTIATE

}  // namespace fhe_core
