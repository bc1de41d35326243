// The vector kernels, compiled once per instruction set (FHE_CORE_ISA).

#include "cpu/kernels.hpp"

#include "cpu/keyswitch_tiles.hpp"
#include "cpu/large_transform.hpp"
#include "cpu/levelled_words.hpp"
#include "cpu/linear_tiles.hpp"
#include "cpu/rotation.hpp"
#include "cpu/rounded_rotation.hpp"
#include "cpu/transform.hpp"

namespace fhe_core::FHE_CORE_ISA {
namespace {

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

void multiply_polynomials(const NttTables& tables, const std::int32_t* a, const std::int32_t* w, std::int32_t* scratch,
                          std::int32_t* out) {
    const Modulus m(tables);
    const int n = tables.polynomial_size;
    for (int v = 0; v < n; v += kWidth) {
        const Vec x = load(a + v), y = load(w + v);
        store(scratch + v, merge_high(montgomery(mul_even(x, y), m), montgomery(mul_even(odd(x), odd(y)), m)));
    }
    transform_functions(n).inverse_add(scratch, out, tables);
}

std::size_t scratch_words(const ParameterSet& p) {
    return p.has_rounded_products() ? kRoundedScratchWords : rotate_scratch_words(p);
}

#define FHE_CORE_STRING_(x) #x
#define FHE_CORE_STRING(x) FHE_CORE_STRING_(x)
constexpr cpu::Kernels kKernels = {FHE_CORE_STRING(FHE_CORE_ISA),
                                   kWidth,
                                   transform_key,
                                   transform_rounded_key,
                                   rotate,
                                   rotate_rounded,
                                   scratch_words,
                                   keyswitch<std::uint16_t>,
                                   keyswitch<std::uint32_t>,
                                   linear,
                                   multiply_polynomials,
                                   large_ntt,
                                   {levelled_scale, levelled_centre, levelled_change, levelled_products, levelled_add}};

}  // namespace
}  // namespace fhe_core::FHE_CORE_ISA

namespace fhe_core::cpu {

#define FHE_CORE_CONCAT_(a, b) a##b
#define FHE_CORE_CONCAT(a, b) FHE_CORE_CONCAT_(a, b)
const Kernels& FHE_CORE_CONCAT(kernels_, FHE_CORE_ISA)() { return fhe_core::FHE_CORE_ISA::kKernels; }

}  // namespace fhe_core::cpu
