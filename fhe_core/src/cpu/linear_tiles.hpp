// The integer matrix product of a linear layer, exact in 64 bits.
#pragma once

#include <cstddef>

#include "cpu/kernels.hpp"
#include "cpu/simd.hpp"

namespace fhe_core::FHE_CORE_ISA {
namespace {

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

}  // namespace
}  // namespace fhe_core::FHE_CORE_ISA
