// The vector kernels, compiled once per instruction set (FHE_CORE_ISA): key transform, blind rotation, keyswitch.
//
// Blind rotation of a block of ciphertexts, step by step so that one key slice serves the whole block from cache. One step of
// docs/specification.md, section 6: decompose -> forward transforms -> multiply-accumulate with the key and the monomial
// factors -> inverse transforms -> add to the accumulator.

#include "cpu/kernels.hpp"

#include <type_traits>

#include "cpu/simd.hpp"
#include "cpu/transform.hpp"

namespace fhe_core::FHE_CORE_ISA {
namespace {

using cpu::NttTables;
using cpu::RotateJob;

constexpr int kMaxKeys = 3;

// X^e - 1 at the points of one vector register: psi^(e*E) = psi^(e*vector_exponent) * psi^(e*lane_exponent). Vectors 2i and 2i + 1
// differ by psi^(e*N) = (-1)^e, so a product is computed for every other one.
struct Monomial {
    std::uint32_t exponent;                      // [0, 2N)
    alignas(64) std::int32_t lanes[2 * kWidth];  // roots, companions
    alignas(64) std::int32_t power[kWidth];      // X^e at the last even vector, (-q/4, 5q/4)

    void set(std::uint32_t e, const NttTables& tables) {
        const std::uint32_t mask = 2 * std::uint32_t(tables.polynomial_size) - 1;
        exponent = e & mask;
        for (int l = 0; l < kWidth; ++l) {
            const std::uint32_t at = (exponent * std::uint32_t(tables.lane_exponents[l])) & mask;
            lanes[l] = tables.powers[at];
            lanes[kWidth + l] = tables.power_companions[at];
        }
    }

    // |factor| <= 5q/4 + 1; to be called for vectors 0, 1, 2, .. in order.
    Vec factor(const NttTables& tables, int vector, Vec q) {
        if (vector % 2 == 1) {
            const Vec negative = set1(-static_cast<std::int32_t>(exponent & 1));
            return sub(sub(bit_xor(load(power), negative), negative), set1(1));
        }
        const std::uint32_t mask = 2 * std::uint32_t(tables.polynomial_size) - 1;
        const Vec scalar = set1(tables.powers[(exponent * std::uint32_t(tables.vector_exponents[vector])) & mask]);
        const Vec companion = load(lanes + kWidth);
        const Vec product = shoup(scalar, load(lanes), companion, odd(companion), q);
        store(power, product);
        return sub(product, set1(1));
    }
};

// out[c] = sum over keys j of factor_j * sum over rows of digits[row] * key[j][row][c], in the transform domain, for `kCiphertexts`
// ciphertexts at once. The key slice `prefetch` words further on (the next step's) is brought to the second-level cache meanwhile.
// |digits| < 15.6 q < 2^31, |key| <= q/2: sums of up to 15 rows stay under 2^62. |out| <= q.
template <int kComponents, int kKeys, int kCiphertexts, bool kPrefetch>
void multiply_accumulate_rows(const NttTables& tables, const std::int32_t* digits, std::size_t digit_stride, int rows,
                              const std::int32_t* key, std::size_t prefetch, Monomial (*monomials)[kMaxKeys], std::int32_t* out,
                              std::size_t out_stride) {
    const Modulus m(tables);
    const int n = tables.polynomial_size;
    for (int v = 0; v < n / kWidth; ++v) {
        Vec total_even[kCiphertexts][kComponents], total_odd[kCiphertexts][kComponents];
#pragma GCC unroll 3
        for (int j = 0; j < kKeys; ++j) {
            Vec even[kCiphertexts][kComponents], odds[kCiphertexts][kComponents];
#pragma GCC unroll 2
            for (int t = 0; t < kCiphertexts; ++t) {
#pragma GCC unroll 5
                for (int c = 0; c < kComponents; ++c) even[t][c] = odds[t][c] = zero();
            }
            for (int row = 0; row < rows; ++row) {
                Vec d_even[kCiphertexts], d_odd[kCiphertexts];
#pragma GCC unroll 2
                for (int t = 0; t < kCiphertexts; ++t) {
                    d_even[t] = load_once(digits + t * digit_stride + std::size_t(row) * n + v * kWidth);
                    d_odd[t] = odd(d_even[t]);
                }
#pragma GCC unroll 5
                for (int c = 0; c < kComponents; ++c) {
                    if constexpr (kPrefetch) __builtin_prefetch(key + prefetch, 0, 2);
                    const Vec k_even = load_once(key);
                    const Vec k_odd = odd(k_even);
                    key += kWidth;
#pragma GCC unroll 2
                    for (int t = 0; t < kCiphertexts; ++t) {
                        accumulate64(even[t][c], mul_even(d_even[t], k_even));
                        accumulate64(odds[t][c], mul_even(d_odd[t], k_odd));
                    }
                }
            }
#pragma GCC unroll 2
            for (int t = 0; t < kCiphertexts; ++t) {
                if constexpr (kKeys == 1) {
#pragma GCC unroll 5
                    for (int c = 0; c < kComponents; ++c) {
                        store(out + t * out_stride + std::size_t(c) * n + v * kWidth,
                              merge_high(montgomery(even[t][c], m), montgomery(odds[t][c], m)));
                    }
                } else {
                    const Vec f_even = monomials[t][j].factor(tables, v, m.q);
                    const Vec f_odd = odd(f_even);
#pragma GCC unroll 5
                    for (int c = 0; c < kComponents; ++c) {
                        const Vec p_even = mul_even(odd(montgomery(even[t][c], m)), f_even);
                        const Vec p_odd = mul_even(odd(montgomery(odds[t][c], m)), f_odd);
                        total_even[t][c] = j == 0 ? p_even : add64(total_even[t][c], p_even);
                        total_odd[t][c] = j == 0 ? p_odd : add64(total_odd[t][c], p_odd);
                    }
                }
            }
        }
        if constexpr (kKeys > 1) {
#pragma GCC unroll 2
            for (int t = 0; t < kCiphertexts; ++t) {
#pragma GCC unroll 5
                for (int c = 0; c < kComponents; ++c) {
                    store(out + t * out_stride + std::size_t(c) * n + v * kWidth,
                          merge_high(montgomery(total_even[t][c], m), montgomery(total_odd[t][c], m)));
                }
            }
        }
    }
}

// The same with the factors on the digits, which is cheaper when there are no more rows than components: no sum is reduced but the
// last.
template <int kComponents, int kKeys, int kCiphertexts, bool kPrefetch>
void multiply_accumulate_few_rows(const NttTables& tables, const std::int32_t* digits, std::size_t digit_stride, int rows,
                                  const std::int32_t* key, std::size_t prefetch, Monomial (*monomials)[kMaxKeys], std::int32_t* out,
                                  std::size_t out_stride) {
    const Modulus m(tables);
    const int n = tables.polynomial_size;
    for (int v = 0; v < n / kWidth; ++v) {
        Vec even[kCiphertexts][kComponents], odds[kCiphertexts][kComponents];
#pragma GCC unroll 2
        for (int t = 0; t < kCiphertexts; ++t) {
#pragma GCC unroll 5
            for (int c = 0; c < kComponents; ++c) even[t][c] = odds[t][c] = zero();
        }
        for (int j = 0; j < kKeys; ++j) {
            Vec f_even[kCiphertexts], f_odd[kCiphertexts];
#pragma GCC unroll 2
            for (int t = 0; t < kCiphertexts; ++t) {
                f_even[t] = monomials[t][j].factor(tables, v, m.q);
                f_odd[t] = odd(f_even[t]);
            }
            for (int row = 0; row < rows; ++row) {
                Vec g_even[kCiphertexts], g_odd[kCiphertexts];  // digit * factor, |g| <= 1.1 q
#pragma GCC unroll 2
                for (int t = 0; t < kCiphertexts; ++t) {
                    const Vec d = load_once(digits + t * digit_stride + std::size_t(row) * n + v * kWidth);
                    g_even[t] = odd(montgomery(mul_even(d, f_even[t]), m));
                    g_odd[t] = odd(montgomery(mul_even(odd(d), f_odd[t]), m));
                }
#pragma GCC unroll 5
                for (int c = 0; c < kComponents; ++c) {
                    if constexpr (kPrefetch) __builtin_prefetch(key + prefetch, 0, 2);
                    const Vec k_even = load_once(key);
                    const Vec k_odd = odd(k_even);
                    key += kWidth;
#pragma GCC unroll 2
                    for (int t = 0; t < kCiphertexts; ++t) {
                        accumulate64(even[t][c], mul_even(g_even[t], k_even));
                        accumulate64(odds[t][c], mul_even(g_odd[t], k_odd));
                    }
                }
            }
        }
#pragma GCC unroll 2
        for (int t = 0; t < kCiphertexts; ++t) {
#pragma GCC unroll 5
            for (int c = 0; c < kComponents; ++c) {
                store(out + t * out_stride + std::size_t(c) * n + v * kWidth,
                      merge_high(montgomery(even[t][c], m), montgomery(odds[t][c], m)));
            }
        }
    }
}

template <int kComponents, int kKeys, int kCiphertexts>
void multiply_accumulate(const NttTables& tables, const std::int32_t* digits, std::size_t digit_stride, int rows,
                         const std::int32_t* key, std::size_t prefetch, Monomial (*monomials)[kMaxKeys], std::int32_t* out,
                         std::size_t out_stride) {
    auto run = prefetch == 0 ? multiply_accumulate_rows<kComponents, kKeys, kCiphertexts, false>
                             : multiply_accumulate_rows<kComponents, kKeys, kCiphertexts, true>;
    if (kKeys > 1 && rows <= kComponents) {
        run = prefetch == 0 ? multiply_accumulate_few_rows<kComponents, kKeys, kCiphertexts, false>
                            : multiply_accumulate_few_rows<kComponents, kKeys, kCiphertexts, true>;
    }
    run(tables, digits, digit_stride, rows, key, prefetch, monomials, out, out_stride);
}

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
};

template <int N>
constexpr TransformFunctions kTransform = {forward_any<N, LoadPlain>,
                                           forward_any<N, LoadDigits<std::uint32_t>>,
                                           forward_any<N, LoadDigits<std::uint64_t>>,
                                           forward_any<N, LoadTopDigit>,
                                           inverse_plain<N>,
                                           inverse_add<N>,
                                           inverse_composed<N>};

const TransformFunctions& transform_functions(int n) {
    switch (n) {
        case 256: return kTransform<256>;
        case 512: return kTransform<512>;
        case 1024: return kTransform<1024>;
        case 2048: return kTransform<2048>;
        default: return kTransform<4096>;
    }
}

using MultiplyFunction = void (*)(const NttTables&, const std::int32_t*, std::size_t, int, const std::int32_t*, std::size_t,
                                  Monomial (*)[kMaxKeys], std::int32_t*, std::size_t);

template <int kComponents, int kCiphertexts>
MultiplyFunction multiply_function_keys(int keys) {
    switch (keys) {
        case 1: return multiply_accumulate<kComponents, 1, kCiphertexts>;
        case 2: return multiply_accumulate<kComponents, 2, kCiphertexts>;
        default: return multiply_accumulate<kComponents, 3, kCiphertexts>;
    }
}

template <int kCiphertexts>
MultiplyFunction multiply_function(int components, int keys) {
    switch (components) {
        case 2: return multiply_function_keys<2, kCiphertexts>(keys);
        case 3: return multiply_function_keys<3, kCiphertexts>(keys);
        case 4: return multiply_function_keys<4, kCiphertexts>(keys);
        default: return multiply_function_keys<5, kCiphertexts>(keys);
    }
}

// Digits up to 2^13 in magnitude may be multiplied by the small square root of -1 modulo the first prime without reduction.
constexpr int kSmallDigitBits = 14;

constexpr int kTogether = 2;  // ciphertexts that share each key load, where their digits stay in the first-level cache
constexpr std::size_t kTogetherBytes = std::size_t{32} << 10;

std::size_t rotate_scratch_words(const ParameterSet& p) {
    const std::size_t n = p.polynomial_size(), rows = p.row_count(), components = p.glwe_dimension() + 1;
    const std::size_t transformed = kTogether * rows * n;
    const std::size_t products = kTogether * components * n * p.limb_count(), difference = components * n * p.limb_count();
    return transformed + products + difference + 64;
}

template <class Word>
class Rotation {
   public:
    explicit Rotation(const RotateJob& job)
        : job_(job),
          p_(*job.parameters),
          n_(p_.polynomial_size()),
          components_(p_.glwe_dimension() + 1),
          rows_(p_.row_count()),
          keys_(p_.keys_per_step()),
          mask_(gadget_constants(p_, p_.shape.mask_gadget)),
          body_(gadget_constants(p_, p_.shape.body_gadget)),
          transform_(transform_functions(n_)),
          transformed_(job.scratch),
          products_(transformed_ + std::size_t(kTogether) * rows_ * n_),
          difference_(reinterpret_cast<Word*>(products_ + std::size_t(kTogether) * components_ * n_ * p_.limb_count())) {}

    void run() {
        for (int step = job_.first_step; step < job_.last_step; ++step) {
            const std::int32_t* key = job_.key + std::size_t(step) * job_.key_step_words;
            // The last ciphertexts of a step fetch the next step's key.
            const std::size_t next = step + 1 < p_.step_count() ? job_.key_step_words : 0;
            std::size_t i = 0;
            const bool together = sizeof(std::int32_t) * kTogether * rows_ * n_ <= kTogetherBytes;
            for (; together && i + kTogether <= job_.batch; i += kTogether)
                update<kTogether>(step, i, key, i + kTogether >= job_.batch ? next : 0);
            for (; i < job_.batch; ++i) update<1>(step, i, key, i + 1 == job_.batch ? next : 0);
        }
    }

   private:
    Word* accumulator(std::size_t i) const { return static_cast<Word*>(job_.accumulators) + i * components_ * n_; }

    // The exponents of the monomial factors of one step.
    void exponents(int step, std::size_t i, std::uint32_t (&e)[kMaxKeys]) const {
        const std::uint32_t* t = job_.switched + i * (p_.lwe_dimension + 1);
        const std::uint32_t modulus = 2 * std::uint32_t(n_);
        if (p_.shape.cmux == CmuxKind::binary_pair) {
            e[0] = t[2 * step];
            e[1] = t[2 * step + 1];
            e[2] = (e[0] + e[1]) & (modulus - 1);
        } else {
            e[0] = t[step];
            e[1] = (modulus - e[0]) & (modulus - 1);
            e[2] = 0;
        }
    }

    // What is decomposed: the accumulator, or for the binary CMUX its difference with a rotated copy.
    const Word* decomposed(std::size_t i, std::uint32_t exponent) {
        const Word* z = accumulator(i);
        if (keys_ > 1) return z;
        for (int c = 0; c < components_; ++c) {
            rotate_minus_one<Word>(z + std::size_t(c) * n_, n_, exponent, Word(p_.modulus()), difference_ + std::size_t(c) * n_);
        }
        return difference_;
    }

    const GadgetConstants& gadget(int component) const { return component + 1 < components_ ? mask_ : body_; }

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
        const MultiplyFunction multiply = multiply_function<count>(components_, keys_);
        for (int limb = 0; limb < p_.limb_count(); ++limb) {
            const NttTables& tables = *job_.tables[limb];
            Monomial monomials[count][kMaxKeys];
            for (int t = 0; t < count; ++t) {
                std::uint32_t e[kMaxKeys];
                exponents(step, first + t, e);
                if (keys_ > 1) {
                    for (int j = 0; j < keys_; ++j) monomials[t][j].set(e[j], tables);
                }
                transform_digits(decomposed(first + t, e[0]), limb, transformed_ + t * row_words);
            }
            std::int32_t* products = products_ + std::size_t(limb) * count * product_words;
            multiply(tables, transformed_, row_words, rows_, key, prefetch, monomials, products, product_words);
            for (int t = 0; t < count; ++t) {
                for (int c = 0; c < components_; ++c) {
                    std::int32_t* product = products + t * product_words + std::size_t(c) * n_;
                    Word* z = accumulator(first + t) + std::size_t(c) * n_;
                    if constexpr (sizeof(Word) == 4) {
                        transform_.inverse_add(product, reinterpret_cast<std::int32_t*>(z), tables);
                    } else if (limb == 0) {
                        transform_.inverse_plain(product, tables);
                    } else {
                        transform_.inverse_composed(product, {z, product - count * product_words}, tables);
                    }
                }
            }
            key += std::size_t(keys_) * rows_ * product_words;
        }
    }

    const RotateJob& job_;
    const ParameterSet& p_;
    int n_, components_, rows_, keys_;
    GadgetConstants mask_, body_;
    const TransformFunctions& transform_;
    std::int32_t* transformed_;
    std::int32_t* products_;
    Word* difference_;
};

void rotate(const RotateJob& job) {
    if (job.parameters->limb_count() == 1) {
        Rotation<std::uint32_t>(job).run();
    } else {
        Rotation<std::uint64_t>(job).run();
    }
}

void transform_key(const NttTables& tables, const std::uint32_t* polynomial, std::uint32_t factor, std::int32_t* out,
                   std::size_t vector_stride, std::int32_t* scratch) {
    const int n = tables.polynomial_size;
    const std::int32_t q = tables.q, half = q / 2;
    for (int i = 0; i < n; ++i) {
        const std::int32_t x = std::int32_t(polynomial[i]);
        scratch[i] = x > half ? x - q : x;
    }
    transform_functions(n).forward_plain({scratch}, scratch + n, tables, false);
    const std::uint32_t companion = std::uint32_t((std::uint64_t{factor} << 32) / std::uint32_t(q));
    for (int v = 0; v < n / kWidth; ++v) {
        for (int l = 0; l < kWidth; ++l) {
            const std::uint32_t x = std::uint32_t(scratch[n + v * kWidth + l] + std::int64_t{16} * q);  // (0, 32 q) < 2^32
            const std::uint32_t quotient = std::uint32_t((std::uint64_t{x} * companion) >> 32);
            std::uint32_t y = x * factor - quotient * std::uint32_t(q);  // [0, 2q)
            y = y >= std::uint32_t(q) ? y - q : y;
            out[v * vector_stride + l] = std::int32_t(y) > half ? std::int32_t(y) - q : std::int32_t(y);
        }
    }
}

// Lanes of the keyswitch accumulators: 16-bit or 32-bit wrap-around arithmetic.
template <class Word>
inline Vec subtract_product(Vec sum, Vec digit, Vec key) {
    return sizeof(Word) == 2 ? sub16(sum, mul_low16(digit, key)) : sub(sum, mul_low(digit, key));
}

// A tile of two vectors of columns for `count` ciphertexts: the key is read once for all of them.
template <class Word, int count>
void keyswitch_tile(const std::int32_t* digits, std::size_t digit_stride, std::size_t rows, const Word* key, std::size_t columns,
                    Word* out) {
    constexpr int kVectors = 2;
    constexpr std::size_t kLanes = kWidth * 4 / sizeof(Word);
    Vec sum[count][kVectors];
    const auto at = [](auto* p) {
        return reinterpret_cast<
            std::conditional_t<std::is_const_v<std::remove_pointer_t<decltype(p)>>, const std::int32_t, std::int32_t>*>(p);
    };
#pragma GCC unroll 8
    for (int t = 0; t < count; ++t) {
#pragma GCC unroll 2
        for (int v = 0; v < kVectors; ++v) sum[t][v] = load(at(out + t * columns + v * kLanes));
    }
    for (std::size_t row = 0; row < rows; ++row) {
        Vec k[kVectors];
#pragma GCC unroll 2
        for (int v = 0; v < kVectors; ++v) k[v] = load_once(at(key + row * columns + v * kLanes));
#pragma GCC unroll 8
        for (int t = 0; t < count; ++t) {
            const Vec digit = set1_once(digits[t * digit_stride + row]);
#pragma GCC unroll 2
            for (int v = 0; v < kVectors; ++v) sum[t][v] = subtract_product<Word>(sum[t][v], digit, k[v]);
        }
    }
#pragma GCC unroll 8
    for (int t = 0; t < count; ++t) {
#pragma GCC unroll 2
        for (int v = 0; v < kVectors; ++v) store(at(out + t * columns + v * kLanes), sum[t][v]);
    }
}

// A block of key rows over all columns. The next block is fetched in reading order meanwhile, since tiles read the key in strides.
template <class Word, int count>
void keyswitch_ciphertexts(const std::int32_t* digits, std::size_t digit_stride, std::size_t rows, const Word* key,
                           const Word* next_key, std::size_t columns, Word* out) {
    constexpr std::size_t kTile = 2 * kWidth * 4 / sizeof(Word), kLine = 64 / sizeof(Word);
    for (std::size_t column = 0; column < columns; column += kTile) {  // columns are padded to whole tiles
        if (next_key != nullptr) {
            for (std::size_t i = 0; i < rows * kTile; i += kLine) __builtin_prefetch(next_key + rows * column + i, 0, 2);
        }
        keyswitch_tile<Word, count>(digits, digit_stride, rows, key + column, columns, out + column);
    }
}

template <class Word>
void keyswitch(const std::int32_t* digits, std::size_t digit_stride, std::size_t rows, const Word* key, std::size_t columns,
               std::size_t batch, Word* out) {
    constexpr int kTogetherKeyswitch = kWidth == 16 ? 8 : 4;
    constexpr std::size_t kRows = 32;  // serve the whole batch from cache
    for (std::size_t row = 0; row < rows; row += kRows) {
        const std::size_t block = rows - row < kRows ? rows - row : kRows;
        const Word* k = key + row * columns;
        const Word* next = row + 2 * kRows <= rows ? k + kRows * columns : nullptr;
        std::size_t i = 0;
        for (; i + kTogetherKeyswitch <= batch; i += kTogetherKeyswitch) {
            keyswitch_ciphertexts<Word, kTogetherKeyswitch>(digits + i * digit_stride + row, digit_stride, block, k,
                                                            i == 0 ? next : nullptr, columns, out + i * columns);
        }
        for (; i < batch; ++i) {
            keyswitch_ciphertexts<Word, 1>(digits + i * digit_stride + row, digit_stride, block, k, i == 0 ? next : nullptr,
                                           columns, out + i * columns);
        }
    }
}

// One tile of kLinearTile words, `count` rows at once: x is read once for all of them.
template <int count>
void linear_rows(const std::int32_t* weights, std::size_t weight_stride, std::size_t columns, const std::int32_t* x,
                 std::size_t words, std::int64_t* out) {
    constexpr int kVectors = kWidth == 16 ? 2 : 1;
    for (std::size_t j = 0; j < words; j += kVectors * kWidth) {
        Vec even[count][kVectors], odds[count][kVectors];
#pragma GCC unroll 4
        for (int r = 0; r < count; ++r) {
#pragma GCC unroll 2
            for (int v = 0; v < kVectors; ++v) even[r][v] = odds[r][v] = zero();
        }
        for (std::size_t c = 0; c < columns; ++c) {
            Vec x_even[kVectors], x_odd[kVectors];
#pragma GCC unroll 2
            for (int v = 0; v < kVectors; ++v) {
                x_even[v] = load(x + c * words + j + v * kWidth);
                x_odd[v] = odd(x_even[v]);
            }
#pragma GCC unroll 4
            for (int r = 0; r < count; ++r) {
                const Vec w = set1(weights[r * weight_stride + c]);
#pragma GCC unroll 2
                for (int v = 0; v < kVectors; ++v) {
                    even[r][v] = add64(even[r][v], mul_even(x_even[v], w));
                    odds[r][v] = add64(odds[r][v], mul_even(x_odd[v], w));
                }
            }
        }
        for (int r = 0; r < count; ++r) {
            for (int v = 0; v < kVectors; ++v) {
                std::int64_t e[kWidth / 2], o[kWidth / 2];
                store(reinterpret_cast<std::int32_t*>(e), even[r][v]);
                store(reinterpret_cast<std::int32_t*>(o), odds[r][v]);
                for (int l = 0; l < kWidth / 2; ++l) {
                    out[r * words + j + v * kWidth + 2 * l] = e[l];
                    out[r * words + j + v * kWidth + 2 * l + 1] = o[l];
                }
            }
        }
    }
}

void linear(const std::int32_t* weights, std::size_t weight_stride, std::size_t rows, std::size_t columns, const std::int32_t* x,
            std::size_t words, std::int64_t* out) {
    std::size_t r = 0;
    for (; r + 4 <= rows; r += 4) linear_rows<4>(weights + r * weight_stride, weight_stride, columns, x, words, out + r * words);
    for (; r < rows; ++r) linear_rows<1>(weights + r * weight_stride, weight_stride, columns, x, words, out + r * words);
}

#define FHE_CORE_STRING_(x) #x
#define FHE_CORE_STRING(x) FHE_CORE_STRING_(x)
constexpr cpu::Kernels kKernels = {
    FHE_CORE_STRING(FHE_CORE_ISA), kWidth, transform_key, rotate, rotate_scratch_words, keyswitch<std::uint16_t>,
    keyswitch<std::uint32_t>,      linear};

}  // namespace
}  // namespace fhe_core::FHE_CORE_ISA

namespace fhe_core::cpu {

#define FHE_CORE_CONCAT_(a, b) a##b
#define FHE_CORE_CONCAT(a, b) FHE_CORE_CONCAT_(a, b)
const Kernels& FHE_CORE_CONCAT(kernels_, FHE_CORE_ISA)() { return fhe_core::FHE_CORE_ISA::kKernels; }

}  // namespace fhe_core::cpu
