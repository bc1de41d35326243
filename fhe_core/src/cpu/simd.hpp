// The vector vocabulary of the CPU kernels: int32 lanes, and 64-bit products of the even lanes. One of three spellings is chosen by
// the instruction set that the translation unit is compiled for; everything has internal linkage, because the same source is
// compiled several times with different flags and must never be merged by the linker.
#pragma once

#include <cstdint>

#if defined(FHE_CORE_ISA_avx512) || defined(FHE_CORE_ISA_avx2)
#include <immintrin.h>
#endif

namespace fhe_core::FHE_CORE_ISA {
namespace {

#if defined(FHE_CORE_ISA_avx512)

constexpr int kWidth = 16;
using Vec = __m512i;

inline Vec load(const std::int32_t* p) { return _mm512_loadu_si512(p); }
inline void store(std::int32_t* p, Vec a) { _mm512_storeu_si512(p, a); }
inline Vec set1(std::int32_t a) { return _mm512_set1_epi32(a); }
inline Vec add(Vec a, Vec b) { return _mm512_add_epi32(a, b); }
inline Vec sub(Vec a, Vec b) { return _mm512_sub_epi32(a, b); }
inline Vec mul_low(Vec a, Vec b) { return _mm512_mullo_epi32(a, b); }
inline Vec min_unsigned(Vec a, Vec b) { return _mm512_min_epu32(a, b); }
inline Vec bit_and(Vec a, Vec b) { return _mm512_and_si512(a, b); }
inline Vec bit_xor(Vec a, Vec b) { return _mm512_xor_si512(a, b); }
inline Vec shift_right(Vec a, int count) { return _mm512_sra_epi32(a, _mm_cvtsi32_si128(count)); }
template <int count>
inline Vec shift_right(Vec a) {
    return _mm512_srai_epi32(a, count);
}
inline Vec zero() { return _mm512_setzero_si512(); }
inline Vec sub16(Vec a, Vec b) { return _mm512_sub_epi16(a, b); }
inline Vec mul_low16(Vec a, Vec b) { return _mm512_mullo_epi16(a, b); }
// Signed 64-bit products of lanes 0, 2, 4, ..
inline Vec mul_even(Vec a, Vec b) { return _mm512_mul_epi32(a, b); }
// Moves lanes 1, 3, 5, .. down to 0, 2, 4, ..
inline Vec odd(Vec a) { return _mm512_srli_epi64(a, 32); }
inline Vec add64(Vec a, Vec b) { return _mm512_add_epi64(a, b); }
// sum += x in place: GCC would rotate loop-carried sums through register copies.
inline void accumulate64(Vec& sum, Vec x) { asm("vpaddq %1, %0, %0" : "+v"(sum) : "v"(x)); }
// A load that stays one load: otherwise every use becomes a memory operand, and the load ports bound the loop.
inline Vec load_once(const std::int32_t* p) {
    Vec a = load(p);
    asm("" : "+v"(a));
    return a;
}
inline Vec set1_once(std::int32_t x) {
    Vec a = set1(x);
    asm("" : "+v"(a));
    return a;
}
// 64-bit lanes: the low or high half of the int32 lanes, zero-extended; unsigned minimum.
inline Vec widen_low(Vec a) { return _mm512_cvtepu32_epi64(_mm512_castsi512_si256(a)); }
inline Vec widen_high(Vec a) { return _mm512_cvtepu32_epi64(_mm512_extracti64x4_epi64(a, 1)); }
inline Vec set1_64(std::int64_t a) { return _mm512_set1_epi64(a); }
inline Vec shift_right64(Vec a, int count) { return _mm512_srl_epi64(a, _mm_cvtsi32_si128(count)); }
// The low halves of the 64-bit lanes of `a`, then of `b`.
inline Vec narrow(Vec a, Vec b) {
    const Vec even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    return _mm512_permutex2var_epi32(a, even, b);
}
inline Vec min_unsigned64(Vec a, Vec b) { return _mm512_min_epu64(a, b); }

inline Vec sub64(Vec a, Vec b) { return _mm512_sub_epi64(a, b); }
// The high halves of 64-bit values: of `even` into lanes 0, 2, .., of `odd` into lanes 1, 3, ..
inline Vec merge_high(Vec even, Vec odd) { return _mm512_mask_shuffle_epi32(odd, 0x5555, even, static_cast<_MM_PERM_ENUM>(0xF5)); }

inline void transpose(Vec (&x)[16]) {
    Vec y[16];
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) {
        y[2 * i] = _mm512_unpacklo_epi32(x[2 * i], x[2 * i + 1]);
        y[2 * i + 1] = _mm512_unpackhi_epi32(x[2 * i], x[2 * i + 1]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
        x[4 * i] = _mm512_unpacklo_epi64(y[4 * i], y[4 * i + 2]);
        x[4 * i + 1] = _mm512_unpackhi_epi64(y[4 * i], y[4 * i + 2]);
        x[4 * i + 2] = _mm512_unpacklo_epi64(y[4 * i + 1], y[4 * i + 3]);
        x[4 * i + 3] = _mm512_unpackhi_epi64(y[4 * i + 1], y[4 * i + 3]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
        y[i] = _mm512_shuffle_i32x4(x[i], x[4 + i], 0x88);
        y[4 + i] = _mm512_shuffle_i32x4(x[i], x[4 + i], 0xDD);
        y[8 + i] = _mm512_shuffle_i32x4(x[8 + i], x[12 + i], 0x88);
        y[12 + i] = _mm512_shuffle_i32x4(x[8 + i], x[12 + i], 0xDD);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
        x[i] = _mm512_shuffle_i32x4(y[i], y[8 + i], 0x88);
        x[8 + i] = _mm512_shuffle_i32x4(y[i], y[8 + i], 0xDD);
        x[4 + i] = _mm512_shuffle_i32x4(y[4 + i], y[12 + i], 0x88);
        x[12 + i] = _mm512_shuffle_i32x4(y[4 + i], y[12 + i], 0xDD);
    }
}

#elif defined(FHE_CORE_ISA_avx2)

constexpr int kWidth = 8;
using Vec = __m256i;

inline Vec load(const std::int32_t* p) { return _mm256_loadu_si256(reinterpret_cast<const Vec*>(p)); }
inline void store(std::int32_t* p, Vec a) { _mm256_storeu_si256(reinterpret_cast<Vec*>(p), a); }
inline Vec set1(std::int32_t a) { return _mm256_set1_epi32(a); }
inline Vec add(Vec a, Vec b) { return _mm256_add_epi32(a, b); }
inline Vec sub(Vec a, Vec b) { return _mm256_sub_epi32(a, b); }
inline Vec mul_low(Vec a, Vec b) { return _mm256_mullo_epi32(a, b); }
inline Vec min_unsigned(Vec a, Vec b) { return _mm256_min_epu32(a, b); }
inline Vec bit_and(Vec a, Vec b) { return _mm256_and_si256(a, b); }
inline Vec bit_xor(Vec a, Vec b) { return _mm256_xor_si256(a, b); }
inline Vec shift_right(Vec a, int count) { return _mm256_sra_epi32(a, _mm_cvtsi32_si128(count)); }
template <int count>
inline Vec shift_right(Vec a) {
    return _mm256_srai_epi32(a, count);
}
inline Vec zero() { return _mm256_setzero_si256(); }
inline Vec sub16(Vec a, Vec b) { return _mm256_sub_epi16(a, b); }
inline Vec mul_low16(Vec a, Vec b) { return _mm256_mullo_epi16(a, b); }
inline Vec mul_even(Vec a, Vec b) { return _mm256_mul_epi32(a, b); }
inline Vec odd(Vec a) { return _mm256_srli_epi64(a, 32); }
inline Vec add64(Vec a, Vec b) { return _mm256_add_epi64(a, b); }
inline void accumulate64(Vec& sum, Vec x) { asm("vpaddq %1, %0, %0" : "+x"(sum) : "x"(x)); }
inline Vec load_once(const std::int32_t* p) {
    Vec a = load(p);
    asm("" : "+x"(a));
    return a;
}
inline Vec set1_once(std::int32_t x) {
    Vec a = set1(x);
    asm("" : "+x"(a));
    return a;
}
inline Vec widen_low(Vec a) { return _mm256_cvtepu32_epi64(_mm256_castsi256_si128(a)); }
inline Vec widen_high(Vec a) { return _mm256_cvtepu32_epi64(_mm256_extracti128_si256(a, 1)); }
inline Vec set1_64(std::int64_t a) { return _mm256_set1_epi64x(a); }
inline Vec shift_right64(Vec a, int count) { return _mm256_srl_epi64(a, _mm_cvtsi32_si128(count)); }
inline Vec narrow(Vec a, Vec b) {
    const Vec mixed = _mm256_castps_si256(_mm256_shuffle_ps(_mm256_castsi256_ps(a), _mm256_castsi256_ps(b), 0x88));
    return _mm256_permute4x64_epi64(mixed, 0xD8);
}
inline Vec min_unsigned64(Vec a, Vec b) {  // compared as signed after flipping the top bit
    const Vec top = set1_64(INT64_MIN);
    return _mm256_blendv_epi8(a, b, _mm256_cmpgt_epi64(_mm256_xor_si256(a, top), _mm256_xor_si256(b, top)));
}

inline Vec sub64(Vec a, Vec b) { return _mm256_sub_epi64(a, b); }
inline Vec merge_high(Vec even, Vec odd) { return _mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xAA); }

inline void transpose(Vec (&x)[8]) {
    Vec y[8];
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
        y[2 * i] = _mm256_unpacklo_epi32(x[2 * i], x[2 * i + 1]);
        y[2 * i + 1] = _mm256_unpackhi_epi32(x[2 * i], x[2 * i + 1]);
    }
#pragma GCC unroll 2
    for (int i = 0; i < 2; ++i) {
        x[4 * i] = _mm256_unpacklo_epi64(y[4 * i], y[4 * i + 2]);
        x[4 * i + 1] = _mm256_unpackhi_epi64(y[4 * i], y[4 * i + 2]);
        x[4 * i + 2] = _mm256_unpacklo_epi64(y[4 * i + 1], y[4 * i + 3]);
        x[4 * i + 3] = _mm256_unpackhi_epi64(y[4 * i + 1], y[4 * i + 3]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
        const Vec low = _mm256_permute2x128_si256(x[i], x[4 + i], 0x20);
        const Vec high = _mm256_permute2x128_si256(x[i], x[4 + i], 0x31);
        x[i] = low;
        x[4 + i] = high;
    }
}

#else  // GCC and Clang vector extensions: SSE2 on baseline x86-64, NEON on AArch64, plain code elsewhere.

constexpr int kWidth = 4;
typedef std::int32_t Vec __attribute__((vector_size(16)));
typedef std::uint32_t VecUnsigned __attribute__((vector_size(16)));
typedef std::int64_t Vec64 __attribute__((vector_size(16)));
typedef std::uint16_t Vec16 __attribute__((vector_size(16)));

inline Vec load(const std::int32_t* p) {
    Vec a;
    __builtin_memcpy(&a, p, sizeof a);
    return a;
}
inline void store(std::int32_t* p, Vec a) { __builtin_memcpy(p, &a, sizeof a); }
inline Vec set1(std::int32_t a) { return Vec{a, a, a, a}; }
inline Vec add(Vec a, Vec b) { return (Vec)((VecUnsigned)a + (VecUnsigned)b); }
inline Vec sub(Vec a, Vec b) { return (Vec)((VecUnsigned)a - (VecUnsigned)b); }
inline Vec mul_low(Vec a, Vec b) { return (Vec)((VecUnsigned)a * (VecUnsigned)b); }
inline Vec min_unsigned(Vec a, Vec b) {
    const Vec less = (Vec)((VecUnsigned)a < (VecUnsigned)b);
    return (a & less) | (b & ~less);
}
inline Vec bit_and(Vec a, Vec b) { return a & b; }
inline Vec bit_xor(Vec a, Vec b) { return a ^ b; }
inline Vec shift_right(Vec a, int count) { return a >> count; }
template <int count>
inline Vec shift_right(Vec a) {
    return a >> count;
}
inline Vec zero() { return Vec{0, 0, 0, 0}; }
inline Vec sub16(Vec a, Vec b) { return (Vec)((Vec16)a - (Vec16)b); }
inline Vec mul_low16(Vec a, Vec b) { return (Vec)((Vec16)a * (Vec16)b); }
inline Vec mul_even(Vec a, Vec b) {
    const Vec64 product = {std::int64_t{a[0]} * b[0], std::int64_t{a[2]} * b[2]};
    return (Vec)product;
}
inline Vec odd(Vec a) { return Vec{a[1], 0, a[3], 0}; }
inline Vec add64(Vec a, Vec b) { return (Vec)((Vec64)a + (Vec64)b); }
inline void accumulate64(Vec& sum, Vec x) { sum = add64(sum, x); }
inline Vec load_once(const std::int32_t* p) { return load(p); }
inline Vec set1_once(std::int32_t x) { return set1(x); }
inline Vec widen_low(Vec a) { return Vec{a[0], 0, a[1], 0}; }
inline Vec widen_high(Vec a) { return Vec{a[2], 0, a[3], 0}; }
inline Vec set1_64(std::int64_t a) { return (Vec)Vec64{a, a}; }
inline Vec shift_right64(Vec a, int count) {
    typedef std::uint64_t VecUnsigned64 __attribute__((vector_size(16)));
    return (Vec)((VecUnsigned64)a >> count);
}
inline Vec narrow(Vec a, Vec b) { return Vec{a[0], a[2], b[0], b[2]}; }
inline Vec min_unsigned64(Vec a, Vec b) {
    typedef std::uint64_t VecUnsigned64 __attribute__((vector_size(16)));
    const Vec less = (Vec)((VecUnsigned64)a < (VecUnsigned64)b);
    return (a & less) | (b & ~less);
}
inline Vec sub64(Vec a, Vec b) { return (Vec)((Vec64)a - (Vec64)b); }
inline Vec merge_high(Vec even, Vec odd) { return Vec{even[1], odd[1], even[3], odd[3]}; }

inline void transpose(Vec (&x)[4]) {
    Vec y[4];
    for (int i = 0; i < 4; ++i) y[i] = Vec{x[0][i], x[1][i], x[2][i], x[3][i]};
    for (int i = 0; i < 4; ++i) x[i] = y[i];
}

#endif

}  // namespace
}  // namespace fhe_core::FHE_CORE_ISA
