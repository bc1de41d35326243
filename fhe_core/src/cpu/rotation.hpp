// Blind rotation of a block of ciphertexts, step by step so that one key slice serves the whole block from cache. One step of
// docs/reference/specification.md, section 6: decompose -> forward transforms -> multiply-accumulate with the key and the monomial
// factors -> inverse transforms -> add to the accumulator.
// Source: [CGGI20], [DM15], [MP21], [BMMP18], [LY23]. Ours: exact transforms, no floating-point FFT; a block of ciphertexts shares
// a key slice, but where each selects its own.
#pragma once

#include <algorithm>
#include <cstddef>
#include <type_traits>

#include "cpu/extended_product.hpp"
#include "cpu/kernels.hpp"
#include "cpu/multiply_accumulate.hpp"
#include "cpu/simd.hpp"
#include "cpu/transform.hpp"

namespace fhe_core::FHE_CORE_ISA {
namespace {

using cpu::RotateJob;

// How to cut the digits of one gadget from offset accumulator words z = x + (Q-1)/2. Digit l is a bit field of one shifted sum (the
// carries of balanced digits are folded into the constant): u = ((x + 2^(drop-1)) >> drop) + sum over lower levels of B/2 * B^i.
struct GadgetConstants {
    std::uint64_t offset;  // added to z; wraps modulo the word
    int drop, base_log, levels;
};

// Two-limb sums are made positive by this, so that a logical shift serves; a multiple of every digit's weight.
constexpr std::uint64_t kPositive = std::uint64_t{1} << 62;

GadgetConstants gadget_constants(const ParameterSet& p, const Gadget& g) {
    GadgetConstants c;
    c.drop = p.gadget_drop_bits(g);
    c.base_log = g.base_log;
    c.levels = g.level_count;
    std::uint64_t carries = 0;
    for (int i = 0; i + 1 < g.level_count; ++i) carries += std::uint64_t{1} << (g.base_log * (i + 1) - 1);
    c.offset = (carries << c.drop) + (std::uint64_t{1} << (c.drop - 1)) - (p.modulus() - 1) / 2;
    if (p.limb_count() == 2) c.offset += kPositive;
    return c;
}

template <class Word>
LoadDigits<Word> load_digits(const Word* z, const GadgetConstants& g, int level) {
    const int shift = g.drop + g.base_log * (g.levels - 1 - level);
    if (level > 0) return {z, static_cast<Word>(g.offset), shift, (1 << g.base_log) - 1, 1 << (g.base_log - 1)};
    const std::int32_t excess = sizeof(Word) == 4 ? 0 : static_cast<std::int32_t>(kPositive >> shift);
    return {z, static_cast<Word>(g.offset), shift, -1, excess};  // the most significant digit keeps its sign
}

// (X^e - 1) * accumulator polynomial, offset representation in and out.
template <class Word>
void rotate_minus_one(const Word* z, int n, std::uint32_t e, Word q, Word* out) {
    const Word half = (q - 1) / 2;
    const bool negate = e >= std::uint32_t(n);
    const int shift = int(negate ? e - n : e);
    // out_i = +-x_(i - shift) - x_i + half; x = z - half.
    for (int i = 0; i < n; ++i) {
        const bool wrapped = i < shift;
        const Word source = z[wrapped ? i - shift + n : i - shift];
        const Word x = wrapped != negate ? Word(2 * half - source) : source;  // offset form of +-x
        const Word value = x + half + (q - z[i]);                             // [0, 3q)
        const Word once = value >= q ? Word(value - q) : value;
        out[i] = once >= q ? Word(once - q) : once;
    }
}

// Where the second limb's inverse transform writes: both limbs are composed, x = r0 + q0 * ((r1 - r0) / q0 mod q1), and added to
// accumulator words in [0, Q). |residues| <= 10 q0 are the first limb's result.
struct StoreComposed {
    std::uint64_t* data;
    const std::int32_t* residues;
    void operator()(std::size_t i, Vec x, Vec prime1) const {
        constexpr std::int32_t q0 = kLimbPrimes[0], q1 = kLimbPrimes[1];
        constexpr std::int64_t inverse = centred(inverse_mod(q0, q1), q1);
        constexpr std::int64_t companion = ((inverse << 32) + (inverse < 0 ? -q1 / 2 : q1 / 2)) / q1;
        const Vec prime0 = set1(q0), w = set1(std::int32_t(inverse)), w_companion = set1(std::int32_t(companion));
        const Vec modulus = set1_64(std::int64_t{q0} * q1);
        const Vec centred0 = reduce(load(residues + i), prime0);                     // |.| < 0.62 q0
        const Vec r0 = min_unsigned(centred0, add(centred0, prime0));                // [0, q0)
        const Vec difference = sub(reduce(x, prime1), r0);                           // (-1.62 q, 0.62 q)
        const Vec product = shoup(difference, w, w_companion, w_companion, prime1);  // (-q1/4, 5 q1/4)
        const Vec positive = min_unsigned(product, add(product, prime1));
        const Vec t = min_unsigned(positive, sub(positive, prime1));  // [0, q1)
        std::int32_t* words = reinterpret_cast<std::int32_t*>(data + i);
        const Vec low = add64(load(words), add64(widen_low(r0), mul_even(widen_low(t), prime0)));  // [0, 2Q)
        const Vec high = add64(load(words + kWidth), add64(widen_high(r0), mul_even(widen_high(t), prime0)));
        store(words, min_unsigned64(low, sub64(low, modulus)));
        store(words + kWidth, min_unsigned64(high, sub64(high, modulus)));
    }
};

// Where the inverse transform modulo P writes, the raising prime of raised sets: products x modulo q0*P are divided by P, rounded
// (docs/reference/specification.md, section 6), x / P = (x0 - c) / P modulo q0 for the centred c = x modulo P, and added to
// accumulator words in [0, q0). |residues| <= 10 q0 are the first limb's result.
struct StoreRaised {
    std::int32_t* data;
    const std::int32_t* residues;
    void operator()(std::size_t i, Vec x, Vec) const {
        constexpr std::int32_t q0 = kLimbPrimes[0], raising = kLimbPrimes[2];
        constexpr std::int64_t inverse = centred(inverse_mod(raising, q0), q0);
        constexpr std::int64_t companion = ((inverse << 32) + (inverse < 0 ? -q0 / 2 : q0 / 2)) / q0;
        const Vec prime0 = set1(q0), prime = set1(raising), half = set1(raising / 2), w = set1(std::int32_t(inverse)),
                  w_companion = set1(std::int32_t(companion));
        const Vec quotient = shift_right<kRaisingBits>(add(x, set1(1 << (kRaisingBits - 1))));
        const Vec lifted = add(sub(x, mul_low(quotient, prime)), half);  // (-0.03 P, 1.03 P)
        const Vec positive = min_unsigned(lifted, add(lifted, prime));
        const Vec c = sub(min_unsigned(positive, sub(positive, prime)), half);
        const Vec product = shoup(sub(load(residues + i), c), w, w_companion, w_companion, prime0);  // (-q0/4, 5 q0/4)
        const Vec sum = add(load(data + i), product);
        const Vec least = min_unsigned(sum, add(sum, prime0));  // [0, 2.25 q0)
        const Vec less = min_unsigned(least, sub(least, prime0));
        store(data + i, min_unsigned(less, sub(less, prime0)));
    }
};

// `small_digits`: at most 2^13 in magnitude, modulo the first prime.
template <int N, class Load>
void forward_any(const Load& in, std::int32_t* out, const NttTables& tables, bool small_digits) {
    if (small_digits) {
        forward_transform<N, true>(in, out, tables);
    } else {
        forward_transform<N, false>(in, out, tables);
    }
}
template <int N>
void inverse_plain(std::int32_t* data, const NttTables& tables) {
    inverse_transform<N>(data, StorePlain{data}, tables);
}
template <int N>
void inverse_composed(std::int32_t* data, const StoreComposed& out, const NttTables& tables) {
    inverse_transform<N>(data, out, tables);
}
template <int N>
void inverse_raised(std::int32_t* data, const StoreRaised& out, const NttTables& tables) {
    inverse_transform<N>(data, out, tables);
}
template <int N>
void inverse_add(std::int32_t* data, std::int32_t* accumulator, const NttTables& tables) {
    inverse_transform<N>(data, StoreAdd{accumulator}, tables);
}

struct TransformFunctions {
    void (*forward_plain)(const LoadPlain&, std::int32_t*, const NttTables&, bool);
    void (*forward_digits)(const LoadDigits<std::uint32_t>&, std::int32_t*, const NttTables&, bool);
    void (*forward_digits_two_limbs)(const LoadDigits<std::uint64_t>&, std::int32_t*, const NttTables&, bool);
    void (*forward_top_digit)(const LoadTopDigit&, std::int32_t*, const NttTables&, bool);
    void (*inverse_plain)(std::int32_t*, const NttTables&);
    void (*inverse_add)(std::int32_t*, std::int32_t*, const NttTables&);
    void (*inverse_composed)(std::int32_t*, const StoreComposed&, const NttTables&);
    void (*inverse_raised)(std::int32_t*, const StoreRaised&, const NttTables&);
};

template <int N>
constexpr TransformFunctions kTransform = {forward_any<N, LoadPlain>,
                                           forward_any<N, LoadDigits<std::uint32_t>>,
                                           forward_any<N, LoadDigits<std::uint64_t>>,
                                           forward_any<N, LoadTopDigit>,
                                           inverse_plain<N>,
                                           inverse_add<N>,
                                           inverse_composed<N>,
                                           inverse_raised<N>};

const TransformFunctions& transform_functions(int n) {
    switch (n) {
        case 256: return kTransform<256>;
        case 512: return kTransform<512>;
        case 1024: return kTransform<1024>;
        case 2048: return kTransform<2048>;
        default: return kTransform<4096>;
    }
}

using MultiplyFunction = void (*)(const NttTables&, const std::int32_t*, std::size_t, int, int, const std::int32_t*, std::size_t,
                                  Monomial (*)[kMaxKeys], std::int32_t*, std::size_t);

template <int kCiphertexts>
MultiplyFunction multiply_function(int components) {
    switch (components) {
        case 1: return multiply_accumulate<1, kCiphertexts>;
        case 2: return multiply_accumulate<2, kCiphertexts>;
        case 3: return multiply_accumulate<3, kCiphertexts>;
        case 4: return multiply_accumulate<4, kCiphertexts>;
        default: return multiply_accumulate<5, kCiphertexts>;
    }
}

// Digits up to 2^13 in magnitude may be multiplied by the small square root of -1 modulo the first prime without reduction.
constexpr int kSmallDigitBits = 14;

constexpr int kTogether = 2;  // ciphertexts that share each key load, where their digits stay in the first-level cache
constexpr std::size_t kTogetherBytes = std::size_t{32} << 10;

using ExtendedFunction = void (*)(const NttTables&, int, int, int, const std::uint32_t*, const std::int32_t*, const std::int32_t*,
                                  std::size_t, std::int32_t*, std::int32_t*);

template <int kComponents>
void multiply_extended(const NttTables& tables, int parts, int rows, int keys, const std::uint32_t* exponents,
                       const std::int32_t* digits, const std::int32_t* key, std::size_t prefetch, std::int32_t* out,
                       std::int32_t* scratch) {
    ExtendedProduct<kComponents>(tables, parts, rows, keys, exponents, scratch).run(digits, key, prefetch, out);
}

ExtendedFunction extended_function(int components) {
    switch (components) {
        case 2: return multiply_extended<2>;
        case 3: return multiply_extended<3>;
        case 4: return multiply_extended<4>;
        default: return multiply_extended<5>;
    }
}

std::size_t rotate_scratch_words(const ParameterSet& p) {
    const std::size_t n = p.polynomial_size(), rows = p.row_count(), components = p.accumulator_components();
    if (p.extension_factor() > 1) {
        const std::size_t parts = p.extension_factor();
        return parts * (rows + components * p.limb_count()) * n + 64 +
               extended_scratch_words(int(parts), int(rows), p.keys_per_step(), int(components));
    }
    const std::size_t transformed = kTogether * rows * n;
    const std::size_t products = kTogether * components * n * p.key_limbs().count, difference = components * n * p.limb_count();
    return transformed + products + difference + 64;
}

template <class Word>
class BlockRotation {
   public:
    explicit BlockRotation(const RotateJob& job)
        : job_(job),
          p_(*job.parameters),
          rotation_(p_.rotation()),
          n_(p_.polynomial_size()),
          components_(p_.accumulator_components()),
          rows_(p_.row_count()),
          parts_(p_.extension_factor()),
          mask_(gadget_constants(p_, p_.shape.mask_gadget)),
          body_(gadget_constants(p_, p_.shape.body_gadget)),
          transform_(transform_functions(n_)),
          transformed_(job.scratch),
          products_(transformed_ + std::size_t(kTogether) * rows_ * n_),
          difference_(reinterpret_cast<Word*>(products_ + std::size_t(kTogether) * components_ * n_ * p_.key_limbs().count)) {}

    void run() {
        for (int step = job_.first_step; step < job_.last_step; ++step) {
            const std::int32_t* key = job_.key + std::size_t(step) * job_.key_step_words;
            // The last ciphertexts of a step fetch the next step's key.
            const std::size_t next = step + 1 < p_.key_step_count() ? job_.key_step_words : 0;
            std::size_t i = 0;
            for (; parts_ > 1 && i < job_.batch; ++i) update_extended(step, i, key, i + 1 == job_.batch ? next : 0);
            for (; rotation_.selects_key() && i < job_.batch; ++i) replace(step, i, key);
            const bool together = sizeof(std::int32_t) * kTogether * rows_ * n_ <= kTogetherBytes;
            for (; together && i + kTogether <= job_.batch; i += kTogether)
                update<kTogether>(step, i, key, i + kTogether >= job_.batch ? next : 0);
            for (; i < job_.batch; ++i) update<1>(step, i, key, i + 1 == job_.batch ? next : 0);
        }
    }

   private:
    Word* accumulator(std::size_t i) const { return static_cast<Word*>(job_.accumulators) + i * p_.rotated_words(); }

    // The exponents of the monomial factors of one step of the key, modulo 2 nu N; an entry has one key, whose factor is X^N - 1.
    void exponents(int step, std::size_t i, std::uint32_t (&e)[kMaxKeys]) const {
        if (step < p_.entry_count()) {
            for (int j = 0; j < rotation_.keys; ++j) e[j] = j == 0 ? std::uint32_t(n_) : 0;
            return;
        }
        step -= p_.entry_count();
        const std::uint32_t* words = job_.switched + i * p_.small_words() + rotation_.first_word(step);
        for (int j = 0; j < rotation_.keys; ++j) e[j] = rotation_.exponent(words, j) & (2 * std::uint32_t(parts_ * n_) - 1);
    }

    // What is decomposed: the accumulator, or its difference with a rotated copy where that is what the factors multiply.
    const Word* decomposed(std::size_t i, std::uint32_t exponent) {
        const Word* z = accumulator(i);
        if (rotation_.factors_on_products()) return z;
        for (int c = 0; c < components_; ++c) {
            rotate_minus_one<Word>(z + std::size_t(c) * n_, n_, exponent, Word(p_.modulus()), difference_ + std::size_t(c) * n_);
        }
        return difference_;
    }

    const GadgetConstants& gadget(int component) const { return component < p_.glwe_dimension() ? mask_ : body_; }

    // All digit polynomials in the transform domain of one limb.
    void transform_digits(const Word* z, int limb, std::int32_t* out) {
        for (int c = 0; c < components_; ++c) {
            const GadgetConstants& g = gadget(c);
            const bool small_digits = limb == 0 && g.base_log <= kSmallDigitBits;
            for (int l = 0; l < g.levels; ++l, out += n_) {
                const LoadDigits<Word> digits = load_digits(z + std::size_t(c) * n_, g, l);
                if constexpr (sizeof(Word) == 4) {
                    transform_.forward_digits(digits, out, *job_.tables[limb], small_digits);
                } else if (digits.mask == -1 && digits.half == 0) {
                    transform_.forward_top_digit({digits.data, digits.offset, digits.shift}, out, *job_.tables[limb], small_digits);
                } else {
                    transform_.forward_digits_two_limbs(digits, out, *job_.tables[limb], small_digits);
                }
            }
        }
    }

    template <int count>
    void update(int step, std::size_t first, const std::int32_t* key, std::size_t prefetch) {
        const std::size_t row_words = std::size_t(rows_) * n_, product_words = std::size_t(components_) * n_;
        const MultiplyFunction multiply = multiply_function<count>(components_);
        const int limbs = p_.key_limbs().count;
        for (int limb = 0; limb < limbs; ++limb) {
            const NttTables& tables = *job_.tables[limb];
            Monomial monomials[count][kMaxKeys];
            for (int t = 0; t < count; ++t) {
                std::uint32_t e[kMaxKeys];
                exponents(step, first + t, e);
                if (rotation_.factors_on_products()) {
                    for (int j = 0; j < rotation_.keys; ++j) monomials[t][j].set(e[j], tables);
                }
                transform_digits(decomposed(first + t, e[0]), limb, transformed_ + t * row_words);
            }
            std::int32_t* products = products_ + std::size_t(limb) * count * product_words;
            multiply(tables, transformed_, row_words, rows_, rotation_.keys, key, prefetch, monomials, products, product_words);
            for (int t = 0; t < count; ++t)
                add_products(accumulator(first + t), components_, limb, products + t * product_words, count * product_words,
                             tables);
            key += std::size_t(rotation_.keys) * rows_ * product_words;
        }
    }

    // The accumulator becomes its product with the key that the ciphertext's digit selects. No factor reduces sums of many rows.
    void replace(int step, std::size_t i, const std::int32_t* key) {
        const std::uint32_t digit = rotation_.digit(job_.switched + i * p_.small_words(), step);
        if (digit == 0) return;
        const std::size_t product_words = std::size_t(components_) * n_;
        const int limbs = p_.key_limbs().count;
        key += (digit - 1) * limbs * rows_ * product_words;
        Word* z = accumulator(i);
        for (int limb = 0; limb < limbs; ++limb, key += rows_ * product_words) {
            const NttTables& tables = *job_.tables[limb];
            std::int32_t* const products = products_ + limb * product_words;
            transform_digits(z, limb, transformed_);
            if (limb + 1 == limbs) std::fill_n(z, product_words, static_cast<Word>((p_.modulus() - 1) / 2));  // zero
            multiply_function<1>(components_)(tables, transformed_, std::size_t(rows_) * n_, rows_, 1, key, 0, nullptr, products,
                                              product_words);
            reduce_words(products, product_words, tables);
            add_products(z, components_, limb, products, product_words, tables);
        }
    }

    static void reduce_words(std::int32_t* words, std::size_t count, const NttTables& tables) {
        const Vec q = set1(tables.q);
        for (std::size_t i = 0; i < count; i += kWidth) store(words + i, reduce(load(words + i), q));
    }

    // All parts of one ciphertext, which share the key.
    void update_extended(int step, std::size_t i, const std::int32_t* key, std::size_t prefetch) {
        const std::size_t row_words = std::size_t(rows_) * n_, product_words = std::size_t(components_) * n_;
        std::int32_t* const products = transformed_ + parts_ * row_words;
        std::int32_t* const scratch = products + p_.limb_count() * parts_ * product_words;
        std::uint32_t e[kMaxKeys];
        exponents(step, i, e);
        for (int limb = 0; limb < p_.limb_count(); ++limb) {
            const NttTables& tables = *job_.tables[limb];
            for (int part = 0; part < parts_; ++part)
                transform_digits(accumulator(i) + part * product_words, limb, transformed_ + part * row_words);
            std::int32_t* product = products + limb * parts_ * product_words;
            extended_function(components_)(tables, parts_, rows_, rotation_.keys, e, transformed_, key, prefetch, product, scratch);
            add_products(accumulator(i), parts_ * components_, limb, product, parts_ * product_words, tables);
            key += std::size_t(rotation_.keys) * rows_ * product_words;
        }
    }

    // Transforms back and adds; two limbs of the key are added when the second one is there, `limb_words` behind the first.
    void add_products(Word* z, int polynomials, int limb, std::int32_t* product, std::size_t limb_words, const NttTables& tables) {
        for (int c = 0; c < polynomials; ++c, product += n_, z += n_) {
            if (limb + 1 < p_.key_limbs().count) {
                transform_.inverse_plain(product, tables);
            } else if constexpr (sizeof(Word) == 8) {
                transform_.inverse_composed(product, {z, product - limb_words}, tables);
            } else if (p_.is_raised()) {
                transform_.inverse_raised(product, {reinterpret_cast<std::int32_t*>(z), product - limb_words}, tables);
            } else {
                transform_.inverse_add(product, reinterpret_cast<std::int32_t*>(z), tables);
            }
        }
    }

    const RotateJob& job_;
    const ParameterSet& p_;
    const Rotation& rotation_;
    int n_, components_, rows_, parts_;
    GadgetConstants mask_, body_;
    const TransformFunctions& transform_;
    std::int32_t* transformed_;
    std::int32_t* products_;
    Word* difference_;
};

void rotate(const RotateJob& job) {
    if (job.parameters->limb_count() == 1) {
        BlockRotation<std::uint32_t>(job).run();
    } else {
        BlockRotation<std::uint64_t>(job).run();
    }
}

}  // namespace
}  // namespace fhe_core::FHE_CORE_ISA
