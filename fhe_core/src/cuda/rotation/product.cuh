// The product of a row of digits with the key, four points at a time: 64-bit sums over rows, one Montgomery reduction each, factors
// X^e - 1, one reduction more. Ranges: static_asserts of each kernel's Config.
//
// Source: [Sei18] signed Montgomery reduction. Ours: on the sum of a whole row.
#pragma once

#include <cstdint>

#include "cuda/device/modulus.cuh"
#include "cuda/device/unrolled.cuh"

namespace fhe_core::cuda {

FHE_HD Vec4 load_key(const Vec4* address) {
#ifdef __CUDA_ARCH__
    const int4 four = __ldg(reinterpret_cast<const int4*>(address));
    return {{four.x, four.y, four.z, four.w}};
#else
    return *address;
#endif
}

// sum += a * b
FHE_HD void multiply_accumulate(std::int64_t (&sum)[4], const std::int32_t (&a)[4], const std::int32_t (&b)[4]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) sum[i] += multiply_wide(a[i], b[i]);
}

// sum += factor * montgomery(product)
template <class M>
FHE_HD void multiply_reduced(M m, std::int64_t (&sum)[4], const std::int32_t (&factor)[4], const std::int64_t (&product)[4]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) sum[i] += multiply_wide(factor[i], montgomery(m, product[i]));
}

template <class M>
FHE_HD Vec4 montgomery(M m, const std::int64_t (&sum)[4]) {
    return {{montgomery(m, sum[0]), montgomery(m, sum[1]), montgomery(m, sum[2]), montgomery(m, sum[3])}};
}

// The next `depth` rows of the key. Rows follow one another in memory, key of step by key of step, `lanes` vectors apart.
template <int depth, int keys, int lanes = 32>
struct KeyAhead {
    const Vec4* words;  // of row 0
    Vec4 rows[depth][keys];

    FHE_HD explicit KeyAhead(const Vec4* first_row) : words(first_row) {}  // rows are left as they are until `fill`
    FHE_HD void fill() {
#pragma unroll
        for (int i = 0; i < depth * keys; ++i) rows[i / keys][i % keys] = load_key(words + i * lanes);
    }
    // sums[j] += digit * word of key j in row `position`.
    FHE_HD void multiply(int position, Vec4 digit, std::int64_t (&sums)[keys][4]) const {
#pragma unroll
        for (int j = 0; j < keys; ++j) multiply_accumulate(sums[j], digit.x, rows[position % depth][j].x);
    }
    // sum += factor of key j * word of key j in row `position`, over all j.
    FHE_HD void multiply_factors(int position, const std::int32_t (&factor)[keys][4], std::int64_t (&sum)[4]) const {
#pragma unroll
        for (int j = 0; j < keys; ++j) multiply_accumulate(sum, factor[j], rows[position % depth][j].x);
    }
    // In the place of row `position` the one `depth` later, of `positions`.
    FHE_HD void refill(int position, int positions) {
        if (position + depth >= positions) return;
#pragma unroll
        for (int j = 0; j < keys; ++j) rows[position % depth][j] = load_key(words + ((position + depth) * keys + j) * lanes);
    }
};

}  // namespace fhe_core::cuda
