// Bodies of the seeded evaluation keys: sections 2, 5 and 6 of docs/specification.md.
// Source: [BBC+25] rows of several bodies under one mask.
#include <algorithm>

#include "common/words.hpp"
#include "fhe_core/errors.hpp"
#include "fhe_core/expand.hpp"
#include "fhe_core/secret_key.hpp"

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

void report(const Progress& progress, std::size_t done, std::size_t total) {
    if (progress && !progress(done, total))
        throw CancelledError("evaluation keys: generation was cancelled by the progress callback; nothing was returned");
}

}  // namespace

template <class Word>
void SecretKey::make_bootstrap_bodies(Randomness& randomness, Word* bodies, const Progress& progress) const {
    const std::size_t n = params_.polynomial_size(), k = params_.glwe_dimension(), row_count = params_.row_count();
    const std::size_t lanes = params_.lane_count();
    const std::size_t keys = params_.keys_per_step(), total = params_.step_count() * keys * row_count;
    const Rotation& rotation = params_.rotation();
    const Gadget &mask_gadget = params_.shape.mask_gadget, &body_gadget = params_.shape.body_gadget;
    const std::size_t mask_rows = k * mask_gadget.level_count;
    const std::uint64_t q = params_.key_modulus();
    const std::uint64_t raising = params_.is_raised() ? kLimbPrimes[2] : 1;  // P, by which messages of a raised key are larger
    for (std::size_t start = 0; start < total; start += kRowsPerSlice) {
        const std::size_t slice = std::min(kRowsPerSlice, total - start);
        encrypt_zero(randomness, key_samples(), kDomainBootstrapKey, start, slice, bodies + start * lanes * n);
        for (std::size_t flat = start; flat < start + slice; ++flat) {
            const std::size_t row = flat % row_count, key = flat / row_count % keys, step = flat / (row_count * keys);
            const auto bit_of = [&](std::size_t lane) {
                return rotation.message(small_key(lane) + step * rotation.key_bits, static_cast<int>(key));
            };
            const bool is_mask = row < mask_rows;
            const Gadget& gadget = is_mask ? mask_gadget : body_gadget;
            const int level = static_cast<int>((is_mask ? row : row - mask_rows) % gadget.level_count);
            const int shift = params_.gadget_drop_bits(gadget) + gadget.base_log * (gadget.level_count - 1 - level);
            const std::uint64_t weight = raising << shift;
            Word* row_bodies = bodies + flat * lanes * n;  // [lane][N]
            if (is_mask) {                                 // phase E - m * g_l * S_i of each lane
                for (std::size_t lane = 0; lane < lanes; ++lane)
                    add_scaled(row_bodies + lane * n, large_key(lane) + row / mask_gadget.level_count * n, n,
                               static_cast<std::int8_t>(-bit_of(lane)), weight, q);
            } else {  // phase E + m * g_l of one lane, E of the others
                const std::size_t lane = (row - mask_rows) / gadget.level_count;
                Word& constant = row_bodies[lane * n];
                const std::uint64_t message = weight & (~std::uint64_t{0} * static_cast<std::uint64_t>(bit_of(lane)));
                constant = static_cast<Word>(reduce_once(constant + message, q));
            }
        }
        report(progress, start + slice, total + params_.large_dimension());
    }
}

void SecretKey::make_keyswitch_bodies(Randomness& randomness, std::uint32_t* bodies, const Progress& progress) const {
    const std::size_t n = params_.lwe_dimension, levels = params_.keyswitch_gadget.level_count;
    const std::size_t dimension = params_.large_dimension(), lanes = params_.lane_count();
    const int w = params_.keyswitch_modulus_log2, base_log = params_.keyswitch_gadget.base_log;
    const std::uint32_t low_bits = 0xFFFFFFFFu >> (32 - w);
    const std::size_t bootstrap_rows = params_.bootstrap_key_body_words() / (lanes * params_.polynomial_size());
    std::vector<std::uint32_t> mask(n);
    SecretVector<std::int32_t> noise(levels * lanes);  // [level][lane]
    for (std::size_t i = 0; i < dimension; ++i) {
        sample_gaussian(randomness.stream, lwe_noise_, noise.size(), noise.data());
        for (std::size_t level = 0; level < levels; ++level) {
            expand_power_of_two(randomness.seed, kDomainKeyswitchKey, keyswitch_mask_index(params_, i, level), w, n, mask.data());
            for (std::size_t lane = 0; lane < lanes; ++lane) {
                const std::uint32_t message = static_cast<std::uint32_t>(std::int32_t{large_key(lane)[i]})
                                              << (w - base_log * static_cast<int>(level + 1));
                const std::uint32_t product = static_cast<std::uint32_t>(inner_product(mask.data(), small_key(lane), n));
                const std::uint32_t error = static_cast<std::uint32_t>(noise[level * lanes + lane]);
                bodies[(i * levels + level) * lanes + lane] = (product + error + message) & low_bits;
            }
        }
        if ((i + 1) % kRowsPerSlice == 0 || i + 1 == dimension)
            report(progress, bootstrap_rows + i + 1, bootstrap_rows + dimension);
    }
}

template <class Word>
Seed SecretKey::evaluation_keys(Word* bootstrap_bodies, std::uint32_t* keyswitch_bodies, const Progress& progress) const {
    Randomness randomness = fresh_randomness();
    make_bootstrap_bodies(randomness, bootstrap_bodies, progress);
    make_keyswitch_bodies(randomness, keyswitch_bodies, progress);
    return randomness.seed;
}

template Seed SecretKey::evaluation_keys(std::uint32_t*, std::uint32_t*, const Progress&) const;
template Seed SecretKey::evaluation_keys(std::uint64_t*, std::uint32_t*, const Progress&) const;

}  // namespace fhe_core
