// Blind rotation with two key bits per step, latency layout: one ciphertext over all warps of a block. Same formula, key, ranges
// and words as blind_rotate_pair.cuh; for batches that leave multiprocessors with at most kLatencyCiphertexts each.
//
// Who does what. Warp w < rows owns row w of the product (component, level): it keeps a copy of its component's coefficients
// (registers, lane l holds l + 32*r), cuts and transforms its digit. All warps share the products: warp w takes output component
// w / parts and kVectorsPerWarp of its 4-point groups. Every row's warp then transforms its component's sum back by itself, so that
// copies stay equal and nothing is exchanged.
//
//   each step:  digit of ACC_c -> forward transform -> rows         (warps of rows)
//               block barrier: all rows are written
//               X = montgomery(sum_j factor_j * montgomery(sum over rows of digit * K_j[row][c])) -> sums     (all warps)
//               block barrier: all sums are written, all rows are read
//               inverse transform of the component's sums; ACC_c += X                      (warps of rows)
//
// Sums are written again only behind the next step's first barrier, when everyone has read them. Shared memory: powers and
// twiddles as blind_rotate_pair.cuh, rows [row][vector][lane] and sums [component][vector][lane] of 16 bytes; a row is also
// its warp's exchange tile. The first rows of the next step's key are loaded before the transforms, which hide them.
//
// Source: as blind_rotate_pair.cuh, [BMMP18]; the layout is ours.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/blind_rotate_pair.cuh"

namespace fhe_core::cuda {

template <class PairConfigOf>
struct LatencyConfig {
    using Pair = PairConfigOf;
    using Ntt = typename Pair::Ntt;
    using M = typename Pair::M;
    static constexpr Shape shape = Pair::shape;
    static constexpr int N = Pair::N, k = Pair::k, P = Pair::P, kRows = Pair::kRows, kVectors = Pair::kVectors;
    static constexpr int kMostWarps = 12;  // 168 registers
    static constexpr int vectors_per_warp() {
        int vectors = 1;
        while ((k + 1) * (kVectors / vectors) > kMostWarps) vectors *= 2;
        return vectors;
    }
    static constexpr int kVectorsPerWarp = vectors_per_warp();
    static constexpr int kParts = kVectors / kVectorsPerWarp;
    static constexpr int kProductWarps = (k + 1) * kParts;
    static constexpr int kWarps = ((kRows > kProductWarps ? kRows : kProductWarps) + 3) / 4 * 4;
    static constexpr int kThreads = kWarps * 32;
    static constexpr int kPositions = kVectorsPerWarp * kRows;  // rows of the key that a warp reads in a step
    static constexpr int kKeyDepth = P > 16 || kRows > 9 ? 2 : kRows > 6 ? 4 : 6;
    static constexpr bool kSmallDigits = Pair::is_small(shape.mask_gadget) && Pair::is_small(shape.body_gadget);
    static constexpr std::size_t kSharedBytes = 4 * (Pair::kPowerWords + Ntt::kTwiddleWords + (kRows + k + 1) * N);

    static_assert(kPositions >= kKeyDepth, "the key is loaded ahead within a step");
    static_assert(kThreads <= 384 && kSharedBytes <= 227 * 1024, "a block of one multiprocessor");
};

// Digit `level` of the centred x = y - (p-1)/2, as Digits, for a gadget chosen at run time.
template <class M>
struct RowDigit {
    std::int32_t offset, mask, half_base;
    int shift;

    FHE_HD static RowDigit make(int base_log, int level_count, int level) {
        RowDigit d;
        d.half_base = 1 << (base_log - 1);
        d.shift = kLimbBits - base_log * level_count;
        d.offset = (1 << (d.shift - 1)) - M::half + (d.half_base << d.shift);
        for (int lower = level_count - 1; lower > level; --lower) {
            d.shift += base_log;
            d.offset += d.half_base << d.shift;
        }
        d.mask = level == 0 ? -1 : 2 * d.half_base - 1;
        return d;
    }
    FHE_HD std::int32_t of(std::uint32_t y) const {
        return ((wrap(y + static_cast<std::uint32_t>(offset)) >> shift) & mask) - half_base;
    }
};

#if defined(__CUDACC__) || defined(CLOAKWORK_EMULATE_WARPS)

// X^-rotation * table for the body, zero for the mask, plus (p-1)/2.
template <class Config>
__device__ __forceinline__ void load_accumulator(const BlindRotateView& view, int number, int component, int lane,
                                                 std::uint32_t (&accumulator)[Config::P]) {
    using M = typename Config::M;
    constexpr int N = Config::N;
    const std::uint32_t rotation = view.switched[std::size_t(number) * (2 * view.steps + 1) + 2 * view.steps];
    const std::uint32_t* table =
        static_cast<const std::uint32_t*>(view.tables) + std::size_t(view.table_index ? view.table_index[number] : 0) * N;
#pragma unroll
    for (int r = 0; r < Config::P; ++r) {
        std::uint32_t word = 0;
        if (component == Config::k) {
            const std::uint32_t index = (lane + 32 * r + rotation) & (2 * N - 1);
            word = table[index & (N - 1)];
            if (index >= N && word != 0) word = M::p - word;
        }
        accumulator[r] = word + M::half < M::p ? word + M::half : word + M::half - M::p;
    }
}

// One component of the result: whole, or its part of the extracted LWE ciphertexts (section 7) through the warp's tile.
template <class Config>
__device__ __forceinline__ void store_accumulator(const BlindRotateView& view, int number, int component, int lane,
                                                  const std::uint32_t (&accumulator)[Config::P], std::uint32_t* tile) {
    using M = typename Config::M;
    constexpr int N = Config::N, k = Config::k;
    const bool whole = view.coefficients == nullptr;
    std::uint32_t* polynomial =
        whole ? static_cast<std::uint32_t*>(view.out) + (std::size_t(number) * (k + 1) + component) * N : tile;
#pragma unroll
    for (int r = 0; r < Config::P; ++r) {
        const std::uint32_t y = accumulator[r];
        polynomial[lane + 32 * r] = y < M::half ? y + (M::p - M::half) : y - M::half;
    }
    if (whole) return;
    __syncwarp();
    for (int i = 0; i < view.coefficient_count; ++i) {
        const int coefficient = view.coefficients[i];
        std::uint32_t* lwe = static_cast<std::uint32_t*>(view.out) +
                             (std::size_t(number) * view.coefficient_count + i) * (k * N + 1) + component * N;
        if (component == k) {
            if (lane == 0) *lwe = polynomial[coefficient];
            continue;
        }
        for (int j = lane; j < N; j += 32) {
            const std::uint32_t word = polynomial[(coefficient - j) & (N - 1)];
            lwe[j] = j <= coefficient || word == 0 ? word : M::p - word;
        }
    }
    __syncwarp();
}

template <class Config>
__global__ __launch_bounds__(Config::kThreads, 1) void blind_rotate_latency_kernel(const BlindRotateView view) {
    constexpr Shape shape = Config::shape;
    using Ntt = typename Config::Ntt;
    using Mod = typename Config::M;
    constexpr int N = Config::N, P = Config::P, k = Config::k, kRows = Config::kRows, kDepth = Config::kKeyDepth;
    constexpr int kMaskLevels = shape.mask_gadget.level_count, kBodyLevels = shape.body_gadget.level_count;
    constexpr int kMaskLog = shape.mask_gadget.base_log, kBodyLog = shape.body_gadget.base_log;

    extern __shared__ __align__(16) std::int32_t shared[];
    std::int32_t* const powers = shared;
    TwiddlePair* const twiddles = reinterpret_cast<TwiddlePair*>(powers + Config::Pair::kPowerWords);
    std::int32_t* const rows = shared + Config::Pair::kPowerWords + Ntt::kTwiddleWords;
    std::int32_t* const sums = rows + kRows * N;
    for (int x = threadIdx.x; x < 2 * N; x += Config::kThreads) powers[x + (x >> 5)] = view.powers[x];
    for (int i = threadIdx.x; i < Ntt::kTwiddleVectors * 32; i += Config::kThreads)
        twiddles[i] = static_cast<const TwiddlePair*>(view.twiddles)[i];
    __syncthreads();

    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const bool owns_row = warp < kRows, multiplies = warp < Config::kProductWarps;
    const int component = warp < k * kMaskLevels ? warp / kMaskLevels : k;  // of the row
    const int level = warp - component * kMaskLevels;
    const RowDigit<Mod> digit =
        RowDigit<Mod>::make(component < k ? kMaskLog : kBodyLog, component < k ? kMaskLevels : kBodyLevels, level);
    std::int32_t* const tile = rows + warp * N;

    const int output = warp / Config::kParts, first_vector = warp % Config::kParts * Config::kVectorsPerWarp;
    const std::uint32_t lane_root = 2 * reverse_position(lane, 5) + 1;
    const Vec4* const own_key = static_cast<const Vec4*>(view.key) + std::size_t(output) * Config::Pair::kStepVectors +
                                first_vector * kRows * 3 * 32 + lane;

    for (int number = blockIdx.x; number < view.batch; number += gridDim.x) {
        const std::uint32_t* const switched = view.switched + std::size_t(number) * (2 * view.steps + 1);
        std::uint32_t accumulator[P];  // x + (p-1)/2 in [0, p) for the centred x
        load_accumulator<Config>(view, number, component, lane, accumulator);

        const Vec4* key = own_key;
        Vec4 ahead[kDepth][3];
        if (multiplies) {
#pragma unroll
            for (int i = 0; i < kDepth * 3; ++i) ahead[i / 3][i % 3] = load_key(key + i * 32);
        }
#pragma unroll 1
        for (int step = 0; step < view.steps; ++step) {
            if (owns_row) {
                std::int32_t x[1][P];
#pragma unroll
                for (int r = 0; r < P; ++r) x[0][r] = digit.of(accumulator[r]);
                Ntt::template forward<Config::kSmallDigits>(x, tile, 0, twiddles, lane);
                __syncwarp();  // all lanes have read the tile
                static_for<0, Config::kVectors>([&](auto vector) {
                    constexpr int q = 4 * decltype(vector)::value;
                    reinterpret_cast<Vec4*>(tile)[decltype(vector)::value * 32 + lane] = {
                        {x[0][Ntt::slot_of(q)], x[0][Ntt::slot_of(q + 1)], x[0][Ntt::slot_of(q + 2)], x[0][Ntt::slot_of(q + 3)]}};
                });
            }
            __syncthreads();  // the rows are written

            if (multiplies) {
                const std::uint32_t first = __ldg(switched + 2 * step), second = __ldg(switched + 2 * step + 1);
                const std::uint32_t exponents[3] = {first, second, first + second};
#pragma unroll
                for (int v = 0; v < Config::kVectorsPerWarp; ++v) {
                    const int vector = first_vector + v;
                    std::int64_t sum[3][4] = {};
#pragma unroll
                    for (int row = 0; row < kRows; ++row) {
                        const int position = v * kRows + row, slot = position % kDepth;
                        const Vec4 four = reinterpret_cast<const Vec4*>(rows + row * N)[vector * 32 + lane];
#pragma unroll
                        for (int j = 0; j < 3; ++j)
#pragma unroll
                            for (int i = 0; i < 4; ++i) sum[j][i] += std::int64_t{four.x[i]} * ahead[slot][j].x[i];
                        if (position + kDepth < Config::kPositions) {
#pragma unroll
                            for (int j = 0; j < 3; ++j) ahead[slot][j] = load_key(key + ((position + kDepth) * 3 + j) * 32);
                        }
                    }
                    const std::uint32_t reversed = reverse_position(4 * vector, Ntt::p);
                    std::int64_t total[4] = {};
#pragma unroll
                    for (int j = 0; j < 3; ++j) {
                        const std::int32_t sign = -static_cast<std::int32_t>(exponents[j] & 1);
#pragma unroll
                        for (int pair = 0; pair < 2; ++pair) {  // as MonomialFactors::at
                            const std::uint32_t turns = lane_root + 64 * (reversed + (pair << (Ntt::p - 2)));
                            const std::uint32_t x = exponents[j] * turns & (2 * N - 1);
                            const std::int32_t power = powers[x + (x >> 5)];
                            total[2 * pair] += std::int64_t{power - 1} * montgomery<Mod>(sum[j][2 * pair]);
                            total[2 * pair + 1] += std::int64_t{(power ^ sign) - sign - 1} * montgomery<Mod>(sum[j][2 * pair + 1]);
                        }
                    }
                    reinterpret_cast<Vec4*>(sums + output * N)[vector * 32 + lane] = {
                        {montgomery<Mod>(total[0]), montgomery<Mod>(total[1]), montgomery<Mod>(total[2]),
                         montgomery<Mod>(total[3])}};
                }
                key += std::size_t(k + 1) * Config::Pair::kStepVectors;
                if (step + 1 < view.steps) {
#pragma unroll
                    for (int i = 0; i < kDepth * 3; ++i) ahead[i / 3][i % 3] = load_key(key + i * 32);
                }
            }
            __syncthreads();  // the sums are written, the rows are read

            if (owns_row) {
                std::int32_t x[1][P];
                static_for<0, Config::kVectors>([&](auto vector) {
                    const Vec4 four = reinterpret_cast<const Vec4*>(sums + component * N)[decltype(vector)::value * 32 + lane];
                    static_for<0, 4>([&](auto i) {
                        x[0][Ntt::slot_of(4 * decltype(vector)::value + decltype(i)::value)] = four.x[decltype(i)::value];
                    });
                });
                Ntt::inverse(x, tile, 0, twiddles, lane);
#pragma unroll
                for (int r = 0; r < P; ++r) accumulator[r] = accumulate_exact<Mod>(accumulator[r], x[0][r]);
                __syncwarp();  // the tile is free
            }
        }
        if (owns_row && level == 0)
            store_accumulator<Config>(view, number, component, lane, accumulator, reinterpret_cast<std::uint32_t*>(tile));
    }
}

// Enqueues the kernel, one block per multiprocessor at most; view.batch >= 1.
template <class Config>
cudaError_t launch_blind_rotate_latency(const BlindRotateView& view, int multiprocessors, cudaStream_t stream) {
    const int blocks = view.batch < multiprocessors ? view.batch : multiprocessors;
    return enqueue(blind_rotate_latency_kernel<Config>, blocks, Config::kThreads, Config::kSharedBytes, stream, view);
}

#endif

}  // namespace fhe_core::cuda
