// Keyswitch: docs/reference/specification.md, section 2.
// Source: [CGGI20] keyswitch; [Joy21] digits. Ours: one integer matrix product for a batch.
#include <vector>

#include "cpu/kernels.hpp"
#include "cpu/stages.hpp"

namespace fhe_core::cpu {
namespace {

constexpr std::size_t kBatch = 64;    // ciphertexts per pass over the keyswitch key
constexpr std::size_t kPadding = 48;  // digits between ciphertexts, so that their streams do not meet in one cache set

// floor((x * 2^w + floor(Q/2)) / Q) by a reciprocal and a correction.
class ModulusRounding {
   public:
    ModulusRounding(std::uint64_t modulus, int w)
        : modulus_(modulus), w_(w), reciprocal_(static_cast<std::uint64_t>((static_cast<uint128>(1) << (64 + w)) / modulus)) {}

    std::uint32_t operator()(std::uint64_t x) const {
        std::uint64_t quotient = static_cast<std::uint64_t>((static_cast<uint128>(x) * reciprocal_) >> 64);
        std::uint64_t remainder = (x << w_) + modulus_ / 2 - quotient * modulus_;  // exact modulo 2^64, in [0, 3Q)
        while (remainder >= modulus_) {
            remainder -= modulus_;
            ++quotient;
        }
        return static_cast<std::uint32_t>(quotient) & ((1u << w_) - 1);
    }

   private:
    std::uint64_t modulus_;
    int w_;
    std::uint64_t reciprocal_;
};

// Signed digits of one rounded mask word, most significant level first, ties broken by the next residue's top bit.
template <class KeyWord>
void decompose(std::uint32_t v, const Gadget& gadget, std::int32_t* digits) {
    const int base_log = gadget.base_log;
    const std::uint32_t base = 1u << base_log, half = base / 2, lowest = v & 1;
    for (int l = gadget.level_count - 1; l >= 0; --l) {
        const std::uint32_t r = v & (base - 1);
        v >>= base_log;
        const std::uint32_t tie = l == 0 ? lowest : (v >> (base_log - 1)) & 1;
        const std::uint32_t carry = (r > half) | ((r == half) & tie);
        const std::uint32_t digit = r - (carry << base_log);
        digits[l] = static_cast<std::int32_t>(sizeof(KeyWord) == 2 ? (digit & 0xFFFF) * 0x10001u : digit);
        v += carry;
    }
}

template <class LweWord, class KeyWord>
void keyswitch_words(const ExpandedKey& key, const LweWord* lwe, std::size_t batch, std::uint32_t* small_lwe) {
    const ParameterSet& p = key.parameters();
    const int w = p.keyswitch_modulus_log2, kept = p.keyswitch_gadget.base_log * p.keyswitch_gadget.level_count;
    const std::size_t d = p.large_dimension(), rows = p.keyswitch_key_rows(), columns = key.keyswitch_columns(),
                      n = p.lwe_dimension, lanes = p.lane_count(), small_words = p.small_words();
    const ModulusRounding round(p.modulus(), w);
    const std::size_t block = batch < kBatch ? batch : kBatch;
    const std::size_t stride = rows + kPadding;
    std::vector<std::int32_t> digits(block * stride);
    std::vector<KeyWord> sums(block * columns);
    for (std::size_t first = 0; first < batch; first += block) {
        const std::size_t count = batch - first < block ? batch - first : block;
        std::fill(sums.begin(), sums.end(), KeyWord{0});
        for (std::size_t i = 0; i < count; ++i) {
            const LweWord* words = lwe + (first + i) * (d + lanes);
            for (std::size_t j = 0; j < d; ++j) {
                const std::uint32_t y = round(words[j]);
                const std::uint32_t v = w == kept ? y : ((y + (1u << (w - kept - 1))) >> (w - kept)) & ((1u << kept) - 1);
                decompose<KeyWord>(v, p.keyswitch_gadget, digits.data() + i * stride + j * p.keyswitch_gadget.level_count);
            }
            for (std::size_t lane = 0; lane < lanes; ++lane)
                sums[i * columns + n + lane] = static_cast<KeyWord>(round(words[d + lane]));
        }
        if constexpr (sizeof(KeyWord) == 2) {
            key.kernels().keyswitch16(digits.data(), stride, rows, static_cast<const KeyWord*>(key.keyswitch_key()), columns, count,
                                      sums.data());
        } else {
            key.kernels().keyswitch32(digits.data(), stride, rows, static_cast<const KeyWord*>(key.keyswitch_key()), columns, count,
                                      sums.data());
        }
        const std::uint32_t mask = (1u << w) - 1;
        for (std::size_t i = 0; i < count; ++i) {
            for (std::size_t j = 0; j < small_words; ++j) small_lwe[(first + i) * small_words + j] = sums[i * columns + j] & mask;
        }
    }
}

}  // namespace

void keyswitch(const ExpandedKey& key, const void* lwe, std::size_t batch, std::uint32_t* small_lwe) {
    const bool one_limb = key.parameters().limb_count() == 1, is_short = key.keyswitch_is_short();
    if (one_limb && is_short)
        keyswitch_words<std::uint32_t, std::uint16_t>(key, static_cast<const std::uint32_t*>(lwe), batch, small_lwe);
    if (one_limb && !is_short)
        keyswitch_words<std::uint32_t, std::uint32_t>(key, static_cast<const std::uint32_t*>(lwe), batch, small_lwe);
    if (!one_limb && is_short)
        keyswitch_words<std::uint64_t, std::uint16_t>(key, static_cast<const std::uint64_t*>(lwe), batch, small_lwe);
    if (!one_limb && !is_short)
        keyswitch_words<std::uint64_t, std::uint32_t>(key, static_cast<const std::uint64_t*>(lwe), batch, small_lwe);
}

}  // namespace fhe_core::cpu
