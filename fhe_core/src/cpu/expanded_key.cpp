#include "cpu/expanded_key.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <optional>
#include <string>
#include <vector>

#include "core/errors.hpp"
#include "core/expand.hpp"
#include "core/fft.hpp"
#include "core/tables/paper.hpp"
#include "cpu/available_memory.hpp"
#include "cpu/kernels.hpp"
#include "cpu/tables.hpp"

namespace fhe_core::cpu {
namespace {

// What the products are compiled for (multiply_function of rotation.hpp).
static_assert(std::ranges::all_of(kAllSets, [](const ParameterSet& p) { return p.component_count() <= 5; }));

// 64-bit sums of the multiply-accumulate hold this many rows (multiply_accumulate.hpp).
constexpr int kMaxRows = 32;
static_assert(std::ranges::all_of(kAllSets, [](const ParameterSet& p) { return p.row_count() <= kMaxRows; }));

// What the multiply-accumulate gives an inverse transform, in units of q < 2^32 / 32: digits grow by 1.25 q in each forward stage,
// keys are up to q/2 and factors 1.25 q; a Montgomery reduction leaves a thirty-second and q/2. The first three inverse stages make
// it eight times as large before a reduction, which takes 15 q.
constexpr double largest_product(const ParameterSet& p) {
    const double digit = 1.25 * p.log2_polynomial_size() + 0.5, reduced = 1.0 / 32;
    const double terms = p.row_count() * digit / 2 * reduced + 0.5;
    if (p.rotation().selects_key()) return 0.62;            // reduced once more
    if (!p.rotation().factors_on_products()) return terms;  // of one key
    if (p.row_count() > p.accumulator_components()) return p.keys_per_step() * terms * 1.25 * reduced + 0.5;
    return p.keys_per_step() * p.row_count() * (digit * 1.25 * reduced + 0.5) / 2 * reduced + 0.5;  // factors on the digits
}
static_assert(std::ranges::all_of(kAllSets,
                                  [](const ParameterSet& p) { return p.extension_factor() > 1 || 8 * largest_product(p) <= 15; }),
              "products of so many rows and keys want a reduction before the inverse transform");

// Several accumulators as one table (extended_product.hpp): factors go to the keys, whose sums hold this many products.
static_assert(std::ranges::all_of(kAllSets, [](const ParameterSet& p) {
    return p.extension_factor() == 1 ||
           (p.rotation().factors_on_products() && std::has_single_bit(unsigned(p.extension_factor())) &&
            (p.keys_per_step() + 1) * p.row_count() <= 31);
}));

// Rounded products (rounded_rotation.hpp).
static_assert(std::ranges::all_of(kAllSets, [](const ParameterSet& p) {
    return !p.has_rounded_products() ||
           (p.polynomial_size() == fft::kDegree && p.glwe_dimension() == 1 && p.lane_count() == 1 && p.limb_count() == 1 &&
            p.row_count() == 2 && p.shape.cmux == CmuxKind::binary_pair && p.extension_factor() == 1);
}));

constexpr std::size_t kHugePage = std::size_t{2} << 20;
constexpr std::size_t kTileBytes = 128;  // columns of the keyswitch kernels come in tiles of this size

std::size_t step_words(const ParameterSet& p) {
    return std::size_t(p.key_limbs().count) * p.keys_per_step() * p.row_count() * p.accumulator_components() * p.polynomial_size();
}

std::size_t keyswitch_columns(const ParameterSet& p) {
    const std::size_t tile = kTileBytes / (p.keyswitch_modulus_log2 <= 16 ? 2 : 4);
    return (std::size_t(p.small_words()) + tile - 1) / tile * tile;
}

void report(const Progress& progress, std::size_t done, std::size_t total) {
    if (progress && !progress(done, total)) throw CancelledError("the key expansion was cancelled");
}

}  // namespace

Buffer::Buffer(std::size_t bytes) : bytes_((bytes + kHugePage - 1) / kHugePage * kHugePage) {
    const std::optional<std::size_t> available = available_memory();
    void* memory = MAP_FAILED;
    if (!available || bytes_ < *available) {
        memory = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    }
    if (memory == MAP_FAILED) {
        throw DeviceError("not enough memory: needed " + std::to_string(bytes_ >> 20) + " MiB, available " +
                          std::to_string(available.value_or(0) >> 20) +
                          " MiB; free some, use a smaller batch or a smaller parameter set");
    }
    madvise(memory, bytes_, MADV_HUGEPAGE);
    data_ = memory;
}

Buffer::~Buffer() { munmap(data_, bytes_); }

ExpandedKey::ExpandedKey(const SeededEvaluationKeysView& keys, const Progress& progress)
    : parameters_(*keys.params),
      kernels_(select_kernels()),
      step_words_(cpu::step_words(parameters_)),
      keyswitch_columns_(cpu::keyswitch_columns(parameters_)),
      bootstrap_key_(step_words_ * parameters_.key_step_count() * sizeof(std::int32_t)),
      keyswitch_key_(parameters_.keyswitch_key_rows() * keyswitch_columns_ * (keyswitch_is_short() ? 2 : 4)) {
    const Limbs limbs = parameters_.transform_limbs();
    for (int limb = 0; limb < limbs.count; ++limb) {
        tables_[limb] = std::make_unique<TransformTables>(parameters_.polynomial_size(), limbs.number(limb), kernels_.width);
    }
    if (parameters_.has_rounded_products()) {
        expand_rounded_key(keys, progress);
    } else {
        expand_bootstrap_key(keys, progress);
    }
    if (keyswitch_is_short()) {
        expand_keyswitch_key<std::uint16_t>(keys, progress);
    } else {
        expand_keyswitch_key<std::uint32_t>(keys, progress);
    }
}

ExpandedKey::~ExpandedKey() = default;

void require_rounding_to_nearest(const ParameterSet& params) {
    if (!fft::rounds_to_nearest())
        throw ParameterError("parameter set '" + std::string(params.name) +
                             "': its products are rounded to nearest and this thread has another rounding mode; set FE_TONEAREST "
                             "(fesetround), or choose a set with exact products");
}

std::string_view ExpandedKey::instruction_set() const { return kernels_.name; }

void ExpandedKey::expand_bootstrap_key(const SeededEvaluationKeysView& keys, const Progress& progress) {
    const ParameterSet& p = parameters_;
    const int n = p.polynomial_size(), k = p.seeded_components(), components = p.accumulator_components(), rows = p.row_count();
    const Limbs limbs = p.key_limbs();
    // Keys side by side, so that a ciphertext reads those of its products in one go; the others each for itself.
    const int together = p.rotation().products();
    const std::size_t vector_words = std::size_t(together) * rows * components * kernels_.width;
    const std::size_t slice_words = step_words_ / (p.keys_per_step() / together);
    std::vector<std::uint32_t> polynomial(n);
    std::vector<std::int32_t> scratch(2 * n);
    auto* key = static_cast<std::int32_t*>(bootstrap_key_.data());
    std::size_t body = 0;  // words of bodies consumed
    for (int step = 0; step < p.key_step_count(); ++step) {
        for (int j = 0; j < p.keys_per_step(); ++j) {
            for (int row = 0; row < rows; ++row, body += (components - k) * n) {
                for (int limb = 0; limb < limbs.count; ++limb) {
                    const std::uint64_t q = limbs.prime(limb);
                    const std::uint64_t factor = bootstrap_key_scale(p, q);
                    std::int32_t* slice =
                        key + std::size_t(step) * step_words_ + j / together * slice_words + limb * (slice_words / limbs.count);
                    for (int c = 0; c < components; ++c) {
                        if (c < k) {
                            expand_uniform(keys.seed, kDomainBootstrapKey + kDomainLimbStride * limbs.number(limb),
                                           bootstrap_mask_index(p, step, j, row, c), std::uint32_t(q), n, polynomial.data());
                        } else if (limbs.count == 1) {
                            const auto* words = static_cast<const std::uint32_t*>(keys.bootstrap_bodies) + body + (c - k) * n;
                            polynomial.assign(words, words + n);
                        } else {
                            const auto* words = static_cast<const std::uint64_t*>(keys.bootstrap_bodies) + body + (c - k) * n;
                            for (int i = 0; i < n; ++i) polynomial[i] = static_cast<std::uint32_t>(words[i] % q);
                        }
                        kernels_.transform_key(tables_[limb]->view(), polynomial.data(), static_cast<std::uint32_t>(factor),
                                               slice + (std::size_t(j % together * rows + row) * components + c) * kernels_.width,
                                               vector_words, scratch.data());
                    }
                }
            }
        }
        report(progress, step + 1, 2 * std::size_t(p.key_step_count()));
    }
}

void ExpandedKey::expand_rounded_key(const SeededEvaluationKeysView& keys, const Progress& progress) {
    const ParameterSet& p = parameters_;
    const std::size_t n = p.polynomial_size(), rows = p.row_count(), keys_per_step = p.keys_per_step();
    if (kernels_.transform_rounded_key == nullptr)
        throw ParameterError("parameter set '" + std::string(p.name) + "': its products want fused multiply-adds, which the '" +
                             std::string(kernels_.name) +
                             "' kernels lack; use a processor with AVX2 and FMA, or a set with exact products");
    require_rounding_to_nearest(p);
    const auto* bodies = static_cast<const std::uint64_t*>(keys.bootstrap_bodies);
    std::vector<std::uint64_t> mask(n);
    for (int step = 0; step < p.step_count(); ++step) {
        auto* slice = reinterpret_cast<double*>(static_cast<std::int32_t*>(bootstrap_key_.data()) + step * step_words_);
        for (std::size_t j = 0; j < keys_per_step; ++j)
            for (std::size_t row = 0; row < rows; ++row, bodies += n) {
                expand_words(p.key_limbs(), keys.seed, kDomainBootstrapKey, bootstrap_mask_index(p, step, j, row, 0), n,
                             mask.data());
                for (std::size_t out = 0; out < 2; ++out)
                    kernels_.transform_rounded_key(out == 0 ? mask.data() : bodies, p.key_modulus(),
                                                   slice + ((out * rows + row) * keys_per_step + j) * n);
            }
        report(progress, step + 1, 2 * std::size_t(p.step_count()));
    }
}

template <class Word>
void ExpandedKey::expand_keyswitch_key(const SeededEvaluationKeysView& keys, const Progress& progress) {
    const ParameterSet& p = parameters_;
    const int n = p.lwe_dimension, levels = p.keyswitch_gadget.level_count, lanes = p.lane_count();
    std::vector<std::uint32_t> mask(n);
    for (int i = 0; i < p.large_dimension(); ++i) {
        for (int l = 0; l < levels; ++l) {
            const std::size_t row = std::size_t(i) * levels + l;
            Word* out = static_cast<Word*>(keyswitch_key_.data()) + row * keyswitch_columns_;
            expand_power_of_two(keys.seed, kDomainKeyswitchKey, keyswitch_mask_index(p, i, l), p.keyswitch_modulus_log2, n,
                                mask.data());
            for (int j = 0; j < n; ++j) out[j] = static_cast<Word>(mask[j]);
            for (int lane = 0; lane < lanes; ++lane) out[n + lane] = static_cast<Word>(keys.keyswitch_bodies[row * lanes + lane]);
        }
        if (i % 64 == 63) {
            const std::size_t steps = p.key_step_count();
            report(progress, steps + steps * (i + 1) / p.large_dimension(), 2 * steps);
        }
    }
}

}  // namespace fhe_core::cpu
