// out[n][m] = sum over k of a[m][k] * b[n][k] on signed bytes, for machines without cuBLAS: tiles of 64 x 64, 64 bytes of k at a
// time in shared memory, 4 x 4 results per thread by dp4a.
#include "cuda/device/block.cuh"
#include "cuda/linear/int8_gemm.hpp"

namespace fhe_core::cuda {
namespace {

constexpr int kTile = 64, kWords = 16;  // k in words of four bytes

__global__ __launch_bounds__(256) void tiled_int8_kernel(const Int8Product product) {
    __shared__ int a_tile[kWords][kTile + 1], b_tile[kWords][kTile + 1];
    const int m_tiles = (product.m + kTile - 1) / kTile;
    const int m0 = static_cast<int>(blockIdx.x) % m_tiles * kTile, n0 = static_cast<int>(blockIdx.x) / m_tiles * kTile;
    const int column = threadIdx.x % 16, row = threadIdx.x / 16, words = product.k / 4;
    int sums[4][4] = {};
    for (int k0 = 0; k0 < words; k0 += kWords) {
        for (int i = threadIdx.x; i < kTile * kWords; i += 256) {
            const int line = i / kWords, word = i % kWords;
            const bool inside = k0 + word < words;
            a_tile[word][line] = inside && m0 + line < product.m
                                     ? reinterpret_cast<const int*>(product.a + std::size_t(m0 + line) * product.k)[k0 + word]
                                     : 0;
            b_tile[word][line] = inside && n0 + line < product.n
                                     ? reinterpret_cast<const int*>(product.b + std::size_t(n0 + line) * product.k)[k0 + word]
                                     : 0;
        }
        __syncthreads();
#pragma unroll
        for (int word = 0; word < kWords; ++word)
#pragma unroll
            for (int i = 0; i < 4; ++i)
#pragma unroll
                for (int j = 0; j < 4; ++j)
                    sums[i][j] = __dp4a(a_tile[word][column + 16 * i], b_tile[word][row + 16 * j], sums[i][j]);
        __syncthreads();
    }
    for (int i = 0; i < 4; ++i)
        for (int j = 0; j < 4; ++j) {
            const int m = m0 + column + 16 * i, n = n0 + row + 16 * j;
            if (m < product.m && n < product.n) product.out[std::size_t(n) * product.m + m] = sums[i][j];
        }
}

}  // namespace

void launch_tiled_int8(const Int8Product& product, cudaStream_t stream) {
    const std::size_t m_tiles = (product.m + kTile - 1) / kTile, n_tiles = (product.n + kTile - 1) / kTile;
    check(enqueue(tiled_int8_kernel, m_tiles * n_tiles, 256, 0, stream, product), "matrix product");
}

}  // namespace fhe_core::cuda
