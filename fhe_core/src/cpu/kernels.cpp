// The vector kernels, compiled once per instruction set (FHE_CORE_ISA): key transform, blind rotation, keyswitch.
//
// Blind rotation of a block of ciphertexts, step by step so that one key slice serves the whole block from cache. One step of
// docs/specification.md, section 6: decompose -> forward transforms -> multiply-accumulate with the key and the monomial
// factors -> inverse transforms -> add to the accumulator.

#include "cpu/kernels.hpp"

#include "cpu/simd.hpp"
#include "cpu/transform.hpp"

namespace fhe_core::FHE_CORE_ISA {
namespace {

using cpu::NttTables;
using cpu::RotateJob;

constexpr int kMaxKeys = 3;

// X^e - 1 at the points of one vector register: psi^(e*E) = psi^(e*vector_exponent) * psi^(e*lane_exponent).
struct Monomial {
    std::uint32_t exponent;  // [0, 2N)
    alignas(64) std::int32_t lanes[2 * kWidth];  // roots, companions

    void set(std::uint32_t e, const NttTables& tables) {
        const std::uint32_t mask = 2 * std::uint32_t(tables.polynomial_size) - 1;
        exponent = e & mask;
        for (int l = 0; l < kWidth; ++l) {
            const std::uint32_t at = (exponent * std::uint32_t(tables.lane_exponents[l])) & mask;
            lanes[l] = tables.powers[at];
            lanes[kWidth + l] = tables.power_companions[at];
        }
    }

    // (-q/4 - 1, 5q/4)
    Vec factor(const NttTables& tables, int vector, Vec q) const {
        const std::uint32_t mask = 2 * std::uint32_t(tables.polynomial_size) - 1;
        const Vec scalar = set1(tables.powers[(exponent * std::uint32_t(tables.vector_exponents[vector])) & mask]);
        const Vec companion = load(lanes + kWidth);
        return sub(shoup(scalar, load(lanes), companion, odd(companion), q), set1(1));
    }
};

// out[c] = sum over keys j of factor_j * sum over rows of digits[row] * key[j][row][c], in the transform domain, for `kCiphertexts`
// ciphertexts at once. |digits| < 15.6 q < 2^31, |key| <= q/2: sums of up to 15 rows stay under 2^62. |out| <= q.
template <int kComponents, int kKeys, int kCiphertexts>
void multiply_accumulate(const NttTables& tables, const std::int32_t* digits, std::size_t digit_stride, int rows,
                         const std::int32_t* key, const Monomial (*monomials)[kMaxKeys], std::int32_t* out, std::size_t out_stride) {
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
                    d_even[t] = load(digits + t * digit_stride + std::size_t(row) * n + v * kWidth);
                    d_odd[t] = odd(d_even[t]);
                }
#pragma GCC unroll 5
                for (int c = 0; c < kComponents; ++c) {
                    const Vec k_even = load(key);
                    const Vec k_odd = odd(k_even);
                    key += kWidth;
#pragma GCC unroll 2
                    for (int t = 0; t < kCiphertexts; ++t) {
                        even[t][c] = add64(even[t][c], mul_even(d_even[t], k_even));
                        odds[t][c] = add64(odds[t][c], mul_even(d_odd[t], k_odd));
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

// Offset accumulator words -> digits of all rows. Digit l is a bit field of one shifted sum (the carries of balanced digits are folded
// into the constant): u = ((z - (Q-1)/2 + 2^(drop-1)) >> drop) + sum over lower levels of B/2 * B^i.
struct GadgetConstants {
    std::uint64_t offset;  // added to z; wraps modulo the word
    int drop, base_log, levels;
};

GadgetConstants gadget_constants(const ParameterSet& p, const Gadget& g) {
    GadgetConstants c;
    c.drop = p.gadget_drop_bits(g);
    c.base_log = g.base_log;
    c.levels = g.level_count;
    std::uint64_t carries = 0;
    for (int i = 0; i + 1 < g.level_count; ++i) carries += std::uint64_t{1} << (g.base_log * (i + 1) - 1);
    c.offset = (carries << c.drop) + (std::uint64_t{1} << (c.drop - 1)) - (p.modulus() - 1) / 2;
    return c;
}

template <class Word>
void decompose_polynomial(const Word* z, int n, const GadgetConstants& g, std::int32_t* digits) {
    using Signed = std::make_signed_t<Word>;
    const Word offset = static_cast<Word>(g.offset);
    for (int l = 0; l < g.levels; ++l) {
        const int shift = g.drop + g.base_log * (g.levels - 1 - l);
        std::int32_t* out = digits + std::size_t(l) * n;
        if (l == 0) {
            for (int i = 0; i < n; ++i) out[i] = static_cast<std::int32_t>(static_cast<Signed>(z[i] + offset) >> shift);
        } else {
            const std::int32_t mask = (1 << g.base_log) - 1, half = 1 << (g.base_log - 1);
            for (int i = 0; i < n; ++i) {
                out[i] = (static_cast<std::int32_t>(static_cast<Signed>(z[i] + offset) >> shift) & mask) - half;
            }
        }
    }
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
        const Word value = x + half + (q - z[i]);                            // [0, 3q)
        const Word once = value >= q ? Word(value - q) : value;
        out[i] = once >= q ? Word(once - q) : once;
    }
}

// accumulator += inverse transform output, one limb: |delta| <= 10 q.
void accumulate(std::uint32_t* z, const std::int32_t* delta, int n, const NttTables& tables) {
    const Vec q = set1(tables.q);
    std::int32_t* words = reinterpret_cast<std::int32_t*>(z);
    for (int i = 0; i < n; i += kWidth) {
        const Vec sum = add(load(words + i), reduce(load(delta + i), q));  // (-0.62 q, 1.62 q)
        const Vec positive = min_unsigned(sum, add(sum, q));
        store(words + i, min_unsigned(positive, sub(positive, q)));
    }
}

// The same for two limbs: the residues are composed, x = r0 + q0 * ((r1 - r0) / q0 mod q1).
void accumulate_two_limbs(std::uint64_t* z, const std::int32_t* delta0, const std::int32_t* delta1, int n) {
    constexpr std::uint32_t q0 = kLimbPrimes[0], q1 = kLimbPrimes[1];
    constexpr std::uint64_t modulus = std::uint64_t{q0} * q1;
    constexpr std::uint32_t q0_inverse = std::uint32_t(inverse_mod(q0, q1));
    constexpr std::uint32_t companion = std::uint32_t((std::uint64_t{q0_inverse} << 32) / q1);
    for (int i = 0; i < n; ++i) {
        const std::int32_t k0 = (delta0[i] + (1 << 26)) >> 27, k1 = (delta1[i] + (1 << 26)) >> 27;
        std::int32_t a = delta0[i] - k0 * std::int32_t(q0), b = delta1[i] - k1 * std::int32_t(q1);
        a += a < 0 ? std::int32_t(q0) : 0;                                                  // [0, q0)
        const std::uint32_t difference = std::uint32_t(b - a + 2 * std::int32_t(q1));       // (0, 3 q1)
        const std::uint32_t quotient = std::uint32_t((std::uint64_t{difference} * companion) >> 32);
        std::uint32_t t = difference * q0_inverse - quotient * q1;                          // [0, 2 q1)
        t = t >= q1 ? t - q1 : t;
        const std::uint64_t sum = z[i] + std::uint32_t(a) + std::uint64_t{q0} * t;          // [0, 2Q)
        z[i] = sum >= modulus ? sum - modulus : sum;
    }
}

template <int N>
void forward_any(const std::int32_t* in, std::int32_t* out, const NttTables& tables, bool small_digits) {
    if (small_digits) {
        forward_transform<N, true>(in, out, tables);
    } else {
        forward_transform<N, false>(in, out, tables);
    }
}

using ForwardFunction = void (*)(const std::int32_t*, std::int32_t*, const NttTables&, bool);
using InverseFunction = void (*)(std::int32_t*, const NttTables&);
using MultiplyFunction = void (*)(const NttTables&, const std::int32_t*, std::size_t, int, const std::int32_t*,
                                  const Monomial (*)[kMaxKeys], std::int32_t*, std::size_t);

ForwardFunction forward_function(int n) {
    switch (n) {
        case 256: return forward_any<256>;
        case 512: return forward_any<512>;
        case 1024: return forward_any<1024>;
        case 2048: return forward_any<2048>;
        default: return forward_any<4096>;
    }
}

InverseFunction inverse_function(int n) {
    switch (n) {
        case 256: return inverse_transform<256>;
        case 512: return inverse_transform<512>;
        case 1024: return inverse_transform<1024>;
        case 2048: return inverse_transform<2048>;
        default: return inverse_transform<4096>;
    }
}

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

constexpr int kTogether = 1;  // ciphertexts that share each key load

std::size_t rotate_scratch_words(const ParameterSet& p) {
    const std::size_t n = p.polynomial_size(), rows = p.row_count(), components = p.glwe_dimension() + 1;
    const std::size_t digits = rows * n, transformed = kTogether * rows * n;
    const std::size_t products = kTogether * components * n * p.limb_count(), difference = components * n * p.limb_count();
    return digits + transformed + products + difference + 64;
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
          forward_(forward_function(n_)),
          inverse_(inverse_function(n_)),
          digits_(job.scratch),
          transformed_(digits_ + std::size_t(rows_) * n_),
          products_(transformed_ + std::size_t(kTogether) * rows_ * n_),
          difference_(reinterpret_cast<Word*>(products_ + std::size_t(kTogether) * components_ * n_ * p_.limb_count())) {}

    void run() {
        for (int step = job_.first_step; step < job_.last_step; ++step) {
            const std::int32_t* key = job_.key + std::size_t(step) * job_.key_step_words;
            std::size_t i = 0;
            for (; i + kTogether <= job_.batch; i += kTogether) update<kTogether>(step, i, key);
            for (; i < job_.batch; ++i) update<1>(step, i, key);
        }
    }

   private:
    Word* accumulator(std::size_t i) const {
        return static_cast<Word*>(job_.accumulators) + i * components_ * n_;
    }

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

    // Digit polynomials of ciphertext i, natural order.
    void decompose(std::size_t i, std::uint32_t exponent) {
        const Word* z = accumulator(i);
        if (keys_ == 1) {
            for (int c = 0; c < components_; ++c) {
                rotate_minus_one<Word>(z + std::size_t(c) * n_, n_, exponent, Word(p_.modulus()), difference_ + std::size_t(c) * n_);
            }
            z = difference_;
        }
        std::int32_t* out = digits_;
        for (int c = 0; c < components_; ++c) {
            const GadgetConstants& g = c + 1 < components_ ? mask_ : body_;
            decompose_polynomial(z + std::size_t(c) * n_, n_, g, out);
            out += std::size_t(g.levels) * n_;
        }
    }

    void transform_digits(int limb, std::int32_t* out) {
        const int mask_rows = p_.glwe_dimension() * p_.shape.mask_gadget.level_count;
        for (int row = 0; row < rows_; ++row) {
            const int base_log = row < mask_rows ? mask_.base_log : body_.base_log;
            forward_(digits_ + std::size_t(row) * n_, out + std::size_t(row) * n_, *job_.tables[limb],
                     limb == 0 && base_log <= kSmallDigitBits);
        }
    }

    template <int count>
    void update(int step, std::size_t first, const std::int32_t* key) {
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
                if (limb == 0 || count > 1) decompose(first + t, e[0]);
                transform_digits(limb, transformed_ + t * row_words);
            }
            std::int32_t* products = products_ + std::size_t(limb) * count * product_words;
            multiply(tables, transformed_, row_words, rows_, key, monomials, products, product_words);
            for (int t = 0; t < count * components_; ++t) inverse_(products + std::size_t(t) * n_, tables);
            key += std::size_t(keys_) * rows_ * product_words;
        }
        for (int t = 0; t < count; ++t) {
            Word* z = accumulator(first + t);
            const std::int32_t* delta = products_ + t * product_words;
            if constexpr (sizeof(Word) == 4) {
                accumulate(z, delta, components_ * n_, *job_.tables[0]);
            } else {
                accumulate_two_limbs(z, delta, delta + count * product_words, components_ * n_);
            }
        }
    }

    const RotateJob& job_;
    const ParameterSet& p_;
    int n_, components_, rows_, keys_;
    GadgetConstants mask_, body_;
    ForwardFunction forward_;
    InverseFunction inverse_;
    std::int32_t* digits_;
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
    forward_function(n)(scratch, scratch + n, tables, false);
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

template <class Word>
void keyswitch(const std::int8_t* digits, std::size_t digit_stride, std::size_t rows, const Word* key, std::size_t columns,
               std::size_t batch, Word* out) {
    constexpr std::size_t kTile = 64 / sizeof(Word) * 2;  // two 64-byte vectors of columns
    constexpr std::size_t kCiphertexts = 4;
    std::size_t i = 0;
    for (; i < batch; i += kCiphertexts) {
        const std::size_t count = batch - i < kCiphertexts ? batch - i : kCiphertexts;
        const std::int8_t* d[kCiphertexts];
        for (std::size_t t = 0; t < kCiphertexts; ++t) d[t] = digits + (i + (t < count ? t : 0)) * digit_stride;
        for (std::size_t column = 0; column < columns; column += kTile) {  // columns are padded to whole tiles
            Word sum[kCiphertexts][kTile] = {};
            for (std::size_t row = 0; row < rows; ++row) {
                const Word* k = key + row * columns + column;
                for (std::size_t t = 0; t < kCiphertexts; ++t) {
                    const Word digit = static_cast<Word>(static_cast<std::make_signed_t<Word>>(d[t][row]));
                    for (std::size_t j = 0; j < kTile; ++j) sum[t][j] = static_cast<Word>(sum[t][j] + digit * k[j]);
                }
            }
            for (std::size_t t = 0; t < count; ++t) {
                Word* o = out + (i + t) * columns + column;
                for (std::size_t j = 0; j < kTile; ++j) o[j] = static_cast<Word>(o[j] - sum[t][j]);
            }
        }
    }
}

// One tile of kLinearTile words, `count` rows at once: x is read once for all of them.
template <int count>
void linear_rows(const std::int32_t* weights, std::size_t weight_stride, std::size_t columns, const std::int32_t* x, std::size_t words,
                 std::int64_t* out) {
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
constexpr cpu::Kernels kKernels = {FHE_CORE_STRING(FHE_CORE_ISA), kWidth,         transform_key,           rotate,
                                   rotate_scratch_words,          keyswitch<std::uint16_t>, keyswitch<std::uint32_t>, linear};

}  // namespace
}  // namespace fhe_core::FHE_CORE_ISA

namespace fhe_core::cpu {

#define FHE_CORE_CONCAT_(a, b) a##b
#define FHE_CORE_CONCAT(a, b) FHE_CORE_CONCAT_(a, b)
const Kernels& FHE_CORE_CONCAT(kernels_, FHE_CORE_ISA)() { return fhe_core::FHE_CORE_ISA::kKernels; }

}  // namespace fhe_core::cpu
