// Bodies of the seeded evaluation keys: sections 2, 5 and 6 of docs/reference/specification.md.
// Source: [BBC+25] rows of several bodies under one mask; [DM15] powers of X as messages, in keys that a digit selects.
#include <algorithm>

#include "client/secret_key.hpp"
#include "core/errors.hpp"
#include "core/expand.hpp"
#include "core/words.hpp"

namespace fhe_core {
namespace {

constexpr std::size_t kRowsPerSlice = 64;  // rows between two progress calls

// body += bit * weight * coefficients, |coefficients| <= 2 and weight < q/3, so |bit * weight * coefficient| < q.
template <class Word>
void add_scaled(Word* body, const std::int8_t* coefficients, std::size_t count, std::int8_t bit, std::uint64_t weight,
                std::uint64_t q) {
    for (std::size_t j = 0; j < count; ++j) {
        const std::int64_t value = static_cast<std::int64_t>(weight) * (coefficients[j] * bit);
        body[j] = static_cast<Word>(reduce_once(body[j] + signed_residue(value, q), q));
    }
}

// X^exponent * polynomial modulo X^N + 1, exponent modulo 2N; N = polynomial.size() is a power of two, `scratch` has its length.
// Each bit of the secret exponent turns by its power of two or not, by masks: no address and no branch depends on it.
void turn(SecretVector<std::int8_t>& polynomial, SecretVector<std::int8_t>& scratch, std::uint32_t exponent) {
    const std::size_t n = polynomial.size();
    for (std::size_t shift = 1; shift <= n; shift *= 2, exponent >>= 1) {
        const auto turned = static_cast<std::int8_t>(-static_cast<int>(exponent & 1));
        std::copy_n(polynomial.data(), n, scratch.data());
        for (std::size_t j = 0; j < n; ++j) {
            const std::int8_t moved = j < shift ? static_cast<std::int8_t>(-scratch[j + n - shift]) : scratch[j - shift];
            polynomial[j] = static_cast<std::int8_t>((moved & turned) | (scratch[j] & ~turned));
        }
    }
}

std::size_t bootstrap_row_total(const ParameterSet& params) {
    return params.bootstrap_key_body_words() / (std::size_t(params.row_bodies()) * params.polynomial_size());
}

void report(const Progress& progress, std::size_t done, std::size_t total) {
    if (progress && !progress(done, total))
        throw CancelledError("evaluation keys: generation was cancelled by the progress callback; nothing was returned");
}

}  // namespace

template <class Constant>
void SecretKey::divide_noise(Randomness& randomness, std::size_t rows, const Constant& constant, std::uint32_t* polynomials) const {
    constexpr std::size_t lanes = NegacyclicNtt::kLanes;
    const std::size_t n = params_.polynomial_size();
    const std::uint64_t q = params_.modulus();
    SecretVector<std::int32_t> noise(n);
    SecretVector<std::uint32_t> block(n * lanes), quotients(n * lanes);
    for (std::size_t start = 0; start < rows; start += lanes) {
        const std::size_t count = std::min(lanes, rows - start);
        std::fill_n(block.data(), block.size(), 0u);
        std::fill_n(quotients.data(), quotients.size(), 0u);
        for (std::size_t row = 0; row < count; ++row) {
            sample_gaussian(randomness.stream, key_noise_, n, noise.data());
            for (std::size_t j = 0; j < n; ++j) block[j * lanes + row] = static_cast<std::uint32_t>(signed_residue(noise[j], q));
            block[row] = static_cast<std::uint32_t>(reduce_once(block[row] + constant(start + row), q));
        }
        ntt_[0].forward(block.data());
        ntt_[0].multiply_accumulate(block.data(), reciprocal_, quotients.data());
        ntt_[0].inverse(quotients.data());
        for (std::size_t row = 0; row < count; ++row)
            for (std::size_t j = 0; j < n; ++j) polynomials[(start + row) * n + j] = quotients[j * lanes + row];
    }
}

// Source: [BIP+22] keys G/S + m g_l; [XZD+23] (G + g_l)/S of the first one. Ours: the first is halved and has g_l added, so that a
// step like all others, whose factor is X^N - 1 = -2, puts an accumulator of phase v in the place of v; S has the sign of an LWE
// key.
void SecretKey::make_ntru_rows(Randomness& randomness, std::size_t first, std::size_t count, std::uint32_t* polynomials) const {
    const std::size_t n = params_.polynomial_size(), row_count = params_.row_count(), keys = params_.keys_per_step();
    const Rotation& rotation = params_.rotation();
    const Gadget& gadget = params_.shape.mask_gadget;
    const std::uint64_t q = params_.modulus();
    constexpr std::uint64_t half = (kLimbPrimes[0] + 1) / 2;  // 1/2
    const auto weight = [&](std::size_t flat) {
        const int level = static_cast<int>(flat % row_count);
        return std::uint64_t{1} << (params_.gadget_drop_bits(gadget) + gadget.base_log * (gadget.level_count - 1 - level));
    };
    const std::size_t entry_rows = keys * row_count;
    const auto is_entry = [&](std::size_t flat) { return flat < row_count; };
    divide_noise(randomness, count, [&](std::size_t i) { return is_entry(first + i) ? weight(first + i) : 0; }, polynomials);
    for (std::size_t flat = first; flat < first + count; ++flat, polynomials += n) {
        std::uint32_t& constant = polynomials[0];
        if (is_entry(flat)) {
            constant = static_cast<std::uint32_t>(reduce_once(constant + weight(flat), q));
            for (std::size_t j = 0; j < n; ++j) polynomials[j] = limb_residue(polynomials[j] * half, 0);
        } else if (flat < entry_rows) {  // the entry has one key
            std::fill_n(polynomials, n, 0u);
        } else {
            const std::size_t key = flat / row_count % keys, step = flat / entry_rows - 1;
            const std::int8_t bit = rotation.message(small_key(0) + step * rotation.key_bits, static_cast<int>(key));
            const std::uint64_t message = weight(flat) & (~std::uint64_t{0} * static_cast<std::uint64_t>(bit));
            constant = static_cast<std::uint32_t>(reduce_once(constant + message, q));
        }
    }
}

template <class Word>
void SecretKey::make_bootstrap_rows(Randomness& randomness, std::size_t first, std::size_t count, Word* bodies) const {
    if constexpr (sizeof(Word) == sizeof(std::uint32_t)) {
        if (params_.is_ntru()) return make_ntru_rows(randomness, first, count, bodies);
    }
    const std::size_t n = params_.polynomial_size(), k = params_.glwe_dimension(), row_count = params_.row_count();
    const std::size_t lanes = params_.lane_count(), keys = params_.keys_per_step();
    const Rotation& rotation = params_.rotation();
    const Gadget &mask_gadget = params_.shape.mask_gadget, &body_gadget = params_.shape.body_gadget;
    const std::size_t mask_rows = k * mask_gadget.level_count;
    const std::uint64_t q = params_.key_modulus();
    const std::uint64_t raising = params_.is_raised() ? kLimbPrimes[2] : 1;  // P, by which messages of a raised key are larger
    encrypt_zero(randomness, key_samples(), kDomainBootstrapKey, first, count, bodies);
    SecretVector<std::int8_t> message(rotation.selects_key() ? n : 0), scratch(message.size());
    for (std::size_t flat = first; flat < first + count; ++flat, bodies += lanes * n) {  // bodies [lane][N]
        const std::size_t row = flat % row_count, key = flat / row_count % keys, step = flat / (row_count * keys);
        const auto bit_of = [&](std::size_t lane) {
            return rotation.message(small_key(lane) + step * rotation.key_bits, static_cast<int>(key));
        };
        const bool is_mask = row < mask_rows;
        const Gadget& gadget = is_mask ? mask_gadget : body_gadget;
        const int level = static_cast<int>((is_mask ? row : row - mask_rows) % gadget.level_count);
        const int shift = params_.gadget_drop_bits(gadget) + gadget.base_log * (gadget.level_count - 1 - level);
        const std::uint64_t weight = raising << shift;
        if (rotation.selects_key()) {  // phase E - X^m g_l S_i or E + X^m g_l, of one lane
            const std::int8_t* secret = large_key(0) + (is_mask ? row / mask_gadget.level_count * n : 0);
            for (std::size_t j = 0; j < n; ++j) message[j] = is_mask ? secret[j] : static_cast<std::int8_t>(j == 0);
            turn(message, scratch, rotation.message_exponent(small_key(0), static_cast<int>(step), static_cast<int>(key)));
            add_scaled(bodies, message.data(), n, static_cast<std::int8_t>(is_mask ? -1 : 1), weight, q);
        } else if (is_mask) {  // phase E - m * g_l * S_i of each lane
            for (std::size_t lane = 0; lane < lanes; ++lane)
                add_scaled(bodies + lane * n, large_key(lane) + row / mask_gadget.level_count * n, n,
                           static_cast<std::int8_t>(-bit_of(lane)), weight, q);
        } else {  // phase E + m * g_l of one lane, E of the others
            const std::size_t lane = (row - mask_rows) / gadget.level_count;
            Word& constant = bodies[lane * n];
            const std::uint64_t message = weight & (~std::uint64_t{0} * static_cast<std::uint64_t>(bit_of(lane)));
            constant = static_cast<Word>(reduce_once(constant + message, q));
        }
    }
}

void SecretKey::make_keyswitch_rows(Randomness& randomness, std::size_t first, std::size_t count, std::uint32_t* bodies) const {
    const std::size_t n = params_.lwe_dimension, levels = params_.keyswitch_gadget.level_count, lanes = params_.lane_count();
    const int w = params_.keyswitch_modulus_log2, base_log = params_.keyswitch_gadget.base_log;
    const std::uint32_t low_bits = 0xFFFFFFFFu >> (32 - w);
    std::vector<std::uint32_t> mask(n);
    SecretVector<std::int32_t> noise(levels * lanes);  // [level][lane]
    for (std::size_t i = first; i < first + count; ++i) {
        sample_gaussian(randomness.stream, lwe_noise_, noise.size(), noise.data());
        for (std::size_t level = 0; level < levels; ++level) {
            expand_power_of_two(randomness.seed, kDomainKeyswitchKey, keyswitch_mask_index(params_, i, level), w, n, mask.data());
            for (std::size_t lane = 0; lane < lanes; ++lane) {
                const std::uint32_t message = static_cast<std::uint32_t>(std::int32_t{large_key(lane)[i]})
                                              << (w - base_log * static_cast<int>(level + 1));
                const std::uint32_t product = static_cast<std::uint32_t>(inner_product(mask.data(), small_key(lane), n));
                const std::uint32_t error = static_cast<std::uint32_t>(noise[level * lanes + lane]);
                *bodies++ = (product + error + message) & low_bits;
            }
        }
    }
}

SecretKey::EvaluationKeyMaker::EvaluationKeyMaker(const SecretKey& key)
    : key_(key),
      randomness_(key.fresh_randomness()),
      bootstrap_rows_(bootstrap_row_total(key.params_)),
      keyswitch_rows_(key.params_.large_dimension()) {}

template <class Word>
void SecretKey::EvaluationKeyMaker::bootstrap(std::size_t count, Word* bodies) {
    const std::size_t left = bootstrap_rows_ - made_;
    if (made_ > bootstrap_rows_ || count > left) throw ShapeError("evaluation keys: expected as many bootstrap rows as are left");
    key_.make_bootstrap_rows(randomness_, made_, count, bodies);
    made_ += count;
}

void SecretKey::EvaluationKeyMaker::keyswitch(std::size_t count, std::uint32_t* bodies) {
    if (made_ < bootstrap_rows_ || count > bootstrap_rows_ + keyswitch_rows_ - made_)
        throw ShapeError("evaluation keys: expected as many keyswitch rows as are left, all bootstrap rows made before them");
    key_.make_keyswitch_rows(randomness_, made_ - bootstrap_rows_, count, bodies);
    made_ += count;
}

template <class Word>
Seed SecretKey::evaluation_keys(Word* bootstrap_bodies, std::uint32_t* keyswitch_bodies, const Progress& progress) const {
    EvaluationKeyMaker maker(*this);
    const std::size_t row_words = params_.lane_count() * params_.polynomial_size();
    const std::size_t keyswitch_words = params_.keyswitch_gadget.level_count * params_.lane_count();
    const std::size_t bootstrap_rows = bootstrap_row_total(params_), keyswitch_rows = params_.large_dimension();
    for (std::size_t start = 0; start < bootstrap_rows; start += kRowsPerSlice) {
        const std::size_t slice = std::min(kRowsPerSlice, bootstrap_rows - start);
        maker.bootstrap(slice, bootstrap_bodies + start * row_words);
        report(progress, start + slice, bootstrap_rows + keyswitch_rows);
    }
    for (std::size_t start = 0; start < keyswitch_rows; start += kRowsPerSlice) {
        const std::size_t slice = std::min(kRowsPerSlice, keyswitch_rows - start);
        maker.keyswitch(slice, keyswitch_bodies + start * keyswitch_words);
        report(progress, bootstrap_rows + start + slice, bootstrap_rows + keyswitch_rows);
    }
    return maker.seed();
}

#define FHE_CORE_INSTANTIATE(Word)                                              \
    template void SecretKey::EvaluationKeyMaker::bootstrap(std::size_t, Word*); \
    template Seed SecretKey::evaluation_keys(Word*, std::uint32_t*, const Progress&) const;
FHE_CORE_INSTANTIATE(std::uint32_t)
FHE_CORE_INSTANTIATE(std::uint64_t)
#undef FHE_CORE_INSTANTIATE

}  // namespace fhe_core
