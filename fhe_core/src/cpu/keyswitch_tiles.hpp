// The integer matrix product of a keyswitch: signed digits times key rows, in wrap-around arithmetic.
#pragma once

#include <cstddef>
#include <type_traits>

#include "cpu/simd.hpp"

namespace fhe_core::FHE_CORE_ISA {
namespace {

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

}  // namespace
}  // namespace fhe_core::FHE_CORE_ISA
