// Encryption under a public key: docs/specification.md, section 10.
// Source: [LPR10] for rings, [Joy24] for LWE ciphertexts. Ours: k rows for GLWE dimension k; LWE by sample extraction.
#include "fhe_core/public_key.hpp"

#include <algorithm>
#include <optional>
#include <vector>

#include "common/words.hpp"
#include "fhe_core/expand.hpp"
#include "fhe_core/ntt.hpp"
#include "fhe_core/secret_key.hpp"

namespace fhe_core {
namespace {

constexpr std::size_t kLanes = NegacyclicNtt::kLanes;

// The public key modulo one limb prime, transformed: [row][component], the bodies after the masks.
template <class Word>
std::vector<NegacyclicNtt::Fixed> transform_public_key(const ParameterSet& params, const Seed& seed, const Word* bodies,
                                                       const NegacyclicNtt& ntt, int limb) {
    const std::size_t n = params.polynomial_size(), k = params.glwe_dimension(), components = params.component_count();
    std::vector<std::uint32_t> residues(n), lanes(n * kLanes);
    std::vector<NegacyclicNtt::Fixed> transformed;
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
        for (std::size_t c = 0; c < components; ++c) transformed.push_back(ntt.lane(lanes.data(), c));
    }
    return transformed;
}

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
Seed SecretKey::public_key(Word* bodies) const {
    Randomness randomness = fresh_randomness();
    encrypt_zero(randomness, ciphertext_samples(), kDomainPublicKey, 0, params_.glwe_dimension(), bodies);
    return randomness.seed;
}

template <class Word>
void public_encrypt_glwe(const ParameterSet& params, const Seed& seed, const Word* bodies, const std::uint64_t* torus_words,
                         std::size_t batch, Word* glwe, const EncryptionSeed* randomness) {
    const std::size_t n = params.polynomial_size(), k = params.glwe_dimension(), components = params.component_count();
    const int limbs = params.limb_count();
    const std::uint64_t q = params.modulus();
    std::vector<NegacyclicNtt> ntt;
    std::vector<std::vector<NegacyclicNtt::Fixed>> key;
    for (int limb = 0; limb < limbs; ++limb) {
        ntt.emplace_back(n, kLimbPrimes[limb]);
        key.push_back(transform_public_key(params, seed, bodies, ntt[limb], limb));
    }

    const GaussianTable& noise_table = GaussianTable::kept(params.glwe_sigma);
    LaneStreams streams(randomness);
    SecretVector<std::int8_t> u(kLanes * k * n);  // [lane][row][N]
    SecretVector<std::int32_t> noise(n);
    SecretVector<std::uint32_t> u_lanes(limbs * k * n * kLanes),
        product(limbs * n * kLanes);  // [limb][row][N][lane], [limb][N][lane]
    for (std::size_t start = 0; start < batch; start += kLanes) {
        const std::size_t count = std::min(kLanes, batch - start);
        // As wide as the ring secret, for which glwe_sigma gives the stated security; centred, so that the key's noise leaves no
        // offset.
        const SecretKind kind = params.glwe_secret == SecretKind::quinary ? SecretKind::quinary : SecretKind::ternary;
        streams.begin(start);
        for (std::size_t lane = 0; lane < count; ++lane) sample_secret(streams[lane], kind, k * n, u.data() + lane * k * n);
        for (int limb = 0; limb < limbs; ++limb)
            for (std::size_t row = 0; row < k; ++row) {
                std::uint32_t* lanes = u_lanes.data() + (limb * k + row) * n * kLanes;
                for (std::size_t lane = 0; lane < kLanes; ++lane)
                    for (std::size_t j = 0; j < n; ++j)
                        lanes[j * kLanes + lane] =
                            static_cast<std::uint32_t>(signed_residue(u[(lane * k + row) * n + j], kLimbPrimes[limb]));
                ntt[limb].forward(lanes);
            }
        for (std::size_t c = 0; c < components; ++c) {
            std::fill_n(product.data(), product.size(), 0u);
            for (int limb = 0; limb < limbs; ++limb) {
                std::uint32_t* sum = product.data() + limb * n * kLanes;
                for (std::size_t row = 0; row < k; ++row)
                    ntt[limb].multiply_accumulate(u_lanes.data() + (limb * k + row) * n * kLanes, key[limb][row * components + c],
                                                  sum);
                ntt[limb].inverse(sum);
            }
            for (std::size_t lane = 0; lane < count; ++lane) {
                sample_gaussian(streams[lane], noise_table, n, noise.data());
                const std::uint64_t* message = c < k ? nullptr : torus_words + ((start + lane) * (components - k) + c - k) * n;
                Word* out = glwe + ((start + lane) * components + c) * n;
                for (std::size_t j = 0; j < n; ++j) {
                    const std::uint64_t sum = reduce_once(
                        compose(product.data() + j * kLanes + lane, params.limbs(), n * kLanes) + signed_residue(noise[j], q), q);
                    out[j] = static_cast<Word>(message != nullptr ? reduce_once(sum + message[j], q) : sum);
                }
            }
        }
    }
}

#define FHE_CORE_INSTANTIATE(Word)                                                                                             \
    template Seed SecretKey::public_key(Word*) const;                                                                          \
    template void public_encrypt_glwe(const ParameterSet&, const Seed&, const Word*, const std::uint64_t*, std::size_t, Word*, \
                                      const EncryptionSeed*);
FHE_CORE_INSTANTIATE(std::uint32_t)
FHE_CORE_INSTANTIATE(std::uint64_t)
#undef FHE_CORE_INSTANTIATE

}  // namespace fhe_core
