// Expansion of a public seed: section 9 of docs/reference/specification.md.
#include "core/expand.hpp"

#include <algorithm>
#include <bit>
#include <cassert>
#include <vector>

#include "core/errors.hpp"
#include "core/modular.hpp"
#include "core/vector_clones.hpp"
#include "core/words.hpp"

namespace fhe_core {
namespace {

constexpr std::size_t kWords = ChaCha20::kWordsPerBlock;
constexpr std::size_t kChunkBlocks = 64;  // a chunk of keystream stays in the first-level cache

// Writes word mod q for every word (the caller repairs the rejected ones) and returns how many words were at least `bound`.
FHE_CORE_VECTOR_CLONES
std::size_t reduce_words(const std::uint32_t* words, std::size_t count, std::uint32_t q, std::uint64_t bound, std::uint32_t* out) {
    // q in [2^(b-1), 2^b): multiplier <= 2^31 and floor(word * multiplier / 2^shift) is the quotient or one less.
    const int shift = 30 + std::bit_width(q);
    const std::uint64_t multiplier = (std::uint64_t{1} << shift) / q;
    const std::uint32_t last_accepted = static_cast<std::uint32_t>(bound - 1);
    std::uint32_t rejected = 0;
    for (std::size_t j = 0; j < count; ++j) {
        const std::uint32_t word = words[j];
        const std::uint32_t quotient = static_cast<std::uint32_t>(word * multiplier >> shift);
        const std::uint32_t r = word - quotient * q;  // [0, 2q)
        out[j] = std::min(r, r - q);
        rejected += word > last_accepted;
    }
    return rejected;
}

// Rounds 1, 2, .. for the coefficients whose word of round 0 was rejected.
void resolve_rejected(const ChaCha20& stream, std::uint32_t q, std::uint64_t bound, std::vector<std::uint32_t>& rejected,
                      std::uint32_t* out) {
    std::vector<std::uint32_t> counters, words;
    for (std::uint32_t round = 1; !rejected.empty(); ++round) {
        if (round == kMaxRounds)
            throw FheError(
                "expansion of a seed rejected the same coefficient 256 times; the generator or the memory is faulty, run again on "
                "sound hardware");
        counters.resize(rejected.size());
        words.resize(rejected.size() * kWords);
        for (std::size_t i = 0; i < rejected.size(); ++i)
            counters[i] = round * kBlocksPerRound + rejected[i] / static_cast<std::uint32_t>(kWords);
        stream.blocks(counters.data(), counters.size(), words.data());
        std::size_t kept = 0;
        for (std::size_t i = 0; i < rejected.size(); ++i) {
            const std::uint32_t word = words[i * kWords + rejected[i] % kWords];
            if (word < bound)
                out[rejected[i]] = word % q;
            else
                rejected[kept++] = rejected[i];
        }
        rejected.resize(kept);
    }
}

}  // namespace

void expand_uniform(const Seed& seed, std::uint32_t domain, std::uint64_t index, std::uint32_t q, std::size_t count,
                    std::uint32_t* out) {
    assert(count <= kMaxExpandedCount && q > 1 && q < (1u << 31));
    const ChaCha20 stream(seed, domain, index);
    const std::uint64_t bound = (std::uint64_t{1} << 32) / q * q;
    alignas(64) std::uint32_t words[kChunkBlocks * kWords];
    std::vector<std::uint32_t> rejected;
    for (std::size_t start = 0; start < count; start += kChunkBlocks * kWords) {
        const std::size_t part = std::min(count - start, kChunkBlocks * kWords);
        stream.keystream(static_cast<std::uint32_t>(start / kWords), (part + kWords - 1) / kWords, words);
        if (reduce_words(words, part, q, bound, out + start) == 0) continue;
        for (std::size_t j = 0; j < part; ++j)
            if (words[j] >= bound) rejected.push_back(static_cast<std::uint32_t>(start + j));
    }
    resolve_rejected(stream, q, bound, rejected, out);
}

void expand_power_of_two(const Seed& seed, std::uint32_t domain, std::uint64_t index, int w, std::size_t count,
                         std::uint32_t* out) {
    assert(count <= kMaxExpandedCount && w >= 1 && w <= 32);
    const ChaCha20 stream(seed, domain, index);
    const std::size_t whole = count / kWords;
    const std::uint32_t mask = 0xFFFFFFFFu >> (32 - w);
    stream.keystream(0, whole, out);
    if (count % kWords != 0) {
        std::uint32_t last[kWords];
        stream.keystream(static_cast<std::uint32_t>(whole), 1, last);
        std::copy_n(last, count % kWords, out + whole * kWords);
    }
    for (std::size_t j = 0; j < count; ++j) out[j] &= mask;
}

template <class Word>
void expand_words(Limbs limbs, const Seed& seed, std::uint32_t domain, std::uint64_t index, std::size_t count, Word* out) {
    assert(limbs.word_bytes() == sizeof(Word));
    if constexpr (sizeof(Word) == 4) {
        expand_uniform(seed, domain, index, limbs.prime(0), count, out);
    } else {
        std::vector<std::uint32_t> residues(2 * count);
        for (int limb = 0; limb < 2; ++limb)
            expand_uniform(seed, domain + kDomainLimbStride * limbs.number(limb), index, limbs.prime(limb), count,
                           residues.data() + limb * count);
        for (std::size_t j = 0; j < count; ++j) out[j] = compose(residues.data() + j, limbs, count);
    }
}

template <class Word>
void expand_lwe(const ParameterSet& params, const Seed& seed, const Word* bodies, std::size_t batch, Word* lwe) {
    const std::size_t dimension = params.large_dimension(), lanes = params.lane_count();
    for (std::size_t b = 0; b < batch; ++b, lwe += dimension + lanes) {
        expand_words(params.limbs(), seed, kDomainLwe, b, dimension, lwe);
        std::copy_n(bodies + b * lanes, lanes, lwe + dimension);
    }
}

template <class Word>
void expand_glwe(const ParameterSet& params, const Seed& seed, const Word* bodies, std::size_t batch, Word* glwe) {
    const std::size_t n = params.polynomial_size(), k = params.glwe_dimension(), body_words = params.lane_count() * n;
    for (std::size_t b = 0; b < batch; ++b, glwe += k * n + body_words) {
        for (std::size_t c = 0; c < k; ++c) expand_words(params.limbs(), seed, kDomainGlwe, b * k + c, n, glwe + c * n);
        std::copy_n(bodies + b * body_words, body_words, glwe + k * n);
    }
}

#define FHE_CORE_INSTANTIATE(Word)                                                                    \
    template void expand_words(Limbs, const Seed&, std::uint32_t, std::uint64_t, std::size_t, Word*); \
    template void expand_lwe(const ParameterSet&, const Seed&, const Word*, std::size_t, Word*);      \
    template void expand_glwe(const ParameterSet&, const Seed&, const Word*, std::size_t, Word*);
FHE_CORE_INSTANTIATE(std::uint32_t)
FHE_CORE_INSTANTIATE(std::uint64_t)
#undef FHE_CORE_INSTANTIATE

}  // namespace fhe_core
