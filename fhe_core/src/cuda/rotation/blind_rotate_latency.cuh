// Blind rotation with two key bits per step, latency layout: one ciphertext over all warps of a block. Same formula, key, ranges
// and words as blind_rotate_one_limb.cuh; for batches that leave multiprocessors with at most kLatencyCiphertexts each.
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
// Where a digit selects the key there are no factors, ACC_c = X, and steps whose digit is 0 are passed over: `next` is the step
// that follows, for which the key is loaded ahead.
//
// Sums are written again only behind the next step's first barrier, when everyone has read them. Shared memory: powers and
// twiddles as blind_rotate_one_limb.cuh, rows [row][vector][lane] and sums [component][vector][lane] of 16 bytes; a row is also
// its warp's exchange tile. The first rows of the next step's key are loaded before the transforms, which hide them.
//
// Source: as blind_rotate_one_limb.cuh, [BMMP18] and [DM15]; the layout is ours.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/rotation/blind_rotate_one_limb.cuh"

namespace fhe_core::cuda {

template <class OneLimbConfigOf>
struct LatencyConfig {
    using Pair = OneLimbConfigOf;
    using Ntt = typename Pair::Ntt;
    using M = typename Pair::M;
    using Step = typename Pair::Step;
    static constexpr Shape shape = Pair::shape;
    static constexpr int N = Pair::N, k = Pair::k, P = Pair::P, kRows = Pair::kRows, kVectors = Pair::kVectors;
    static constexpr int kLanes = Pair::kLanes, kComponents = Pair::kComponents;
    static constexpr int kMostWarps = 12;  // 168 registers
    static constexpr int vectors_per_warp() {
        int vectors = 1;
        while (kComponents * (kVectors / vectors) > kMostWarps) vectors *= 2;
        return vectors;
    }
    static constexpr int kVectorsPerWarp = vectors_per_warp();
    static constexpr int kParts = kVectors / kVectorsPerWarp;
    static constexpr int kProductWarps = kComponents * kParts;
    static constexpr int kWarps = ((kRows > kProductWarps ? kRows : kProductWarps) + 3) / 4 * 4;
    static constexpr int kThreads = kWarps * 32;
    static constexpr int kPositions = kVectorsPerWarp * kRows;  // rows of the key that a warp reads in a step
    static constexpr int kWordsAhead = P > 16 || kRows > 9 ? 6 : kRows > 6 ? 12 : 18;  // 16 bytes, of all keys of a step
    static constexpr int kWantedDepth = kWordsAhead > Pair::kKeys ? kWordsAhead / Pair::kKeys : 1;
    static constexpr int kKeyDepth = kWantedDepth < kPositions ? kWantedDepth : kPositions;
    static constexpr bool kSmallDigits = Pair::is_small(shape.mask_gadget) && Pair::is_small(shape.body_gadget);
    static constexpr int kPerUnit = 1;
    static constexpr std::size_t kSharedBytes = 4 * (Pair::kPowerWords + Ntt::kTwiddleWords + (kRows + kComponents) * N);

    static_assert(kThreads <= 512 && kSharedBytes <= 227 * 1024, "a block of one multiprocessor");
};

#if defined(__CUDACC__) || defined(CLOAKWORK_EMULATE_WARPS)

// What a warp of the kernel owns: a row, where warp < kRows, and a part of one output component, where warp < kProductWarps.
template <class Config>
struct LatencyWarp {
    using Ntt = typename Config::Ntt;
    using M = typename Config::M;
    static constexpr int N = Config::N, P = Config::P, k = Config::k, kRows = Config::kRows, kKeys = Config::Pair::kKeys;
    static constexpr int kMaskLevels = Config::shape.mask_gadget.level_count, kBodyLevels = Config::shape.body_gadget.level_count;

    int warp, lane;
    int component, level;  // of the row
    RunTimeDigits<M> digit;
    int output, first_vector;  // of the product
    std::uint32_t lane_root;
    Powers<N> powers;
    const TwiddlePair* twiddles;
    std::int32_t *rows, *sums;

    // Of warps without a row the last.
    __device__ __forceinline__ static int component_of_row(int row) {
        if (row < k * kMaskLevels) return row / kMaskLevels;
        const int lane = (row - k * kMaskLevels) / kBodyLevels;
        return k + (lane < Config::kLanes ? lane : Config::kLanes - 1);
    }
    __device__ __forceinline__ static LatencyWarp make(std::int32_t* shared) {
        LatencyWarp w;
        w.warp = threadIdx.x / 32;
        w.lane = threadIdx.x % 32;
        w.component = component_of_row(w.warp);
        w.level = w.warp - Config::Pair::first_row(w.component);
        w.digit = RunTimeDigits<M>::make(Config::shape.mask_gadget, Config::shape.body_gadget, w.component >= k);
        for (int lower = (w.component >= k ? kBodyLevels : kMaskLevels) - 1; lower > w.level; --lower) w.digit.next();
        w.output = w.warp / Config::kParts;
        w.first_vector = w.warp % Config::kParts * Config::kVectorsPerWarp;
        w.lane_root = root_of_lane(w.lane, 5);
        w.powers.words = shared;
        w.twiddles = reinterpret_cast<const TwiddlePair*>(shared + Config::Pair::kPowerWords);
        w.rows = shared + Config::Pair::kPowerWords + Ntt::kTwiddleWords;
        w.sums = w.rows + kRows * N;
        return w;
    }
    __device__ __forceinline__ bool owns_row() const { return warp < kRows; }
    __device__ __forceinline__ bool multiplies() const { return warp < Config::kProductWarps; }
    __device__ __forceinline__ std::int32_t* tile() const { return rows + warp * N; }
    // First vector of this warp's part of the key, first step.
    __device__ __forceinline__ const Vec4* key_of(const BlindRotateView& view) const {
        return static_cast<const Vec4*>(view.key) + std::size_t(output) * Config::Pair::kStepVectors +
               first_vector * kRows * kKeys * 32 + lane;
    }

    // The digit of this row, transformed.
    __device__ __forceinline__ void write_row(const std::uint32_t (&accumulator)[P]) const {
        std::int32_t x[1][P];
#pragma unroll
        for (int r = 0; r < P; ++r) x[0][r] = digit.of(accumulator[r]);
        Ntt::template forward<Config::kSmallDigits>(x, tile(), 0, twiddles, lane);
        __syncwarp();  // all lanes have read the tile
        Ntt::store_points(x[0], tile(), lane);
    }

    // Positions of vector `vector`, as MonomialFactors::at.
    __device__ __forceinline__ void factors_at(std::uint32_t reversed, std::uint32_t exponent, std::int32_t (&factor)[4]) const {
#pragma unroll
        for (int pair = 0; pair < 2; ++pair) {
            const std::uint32_t turns = lane_root + 64 * (reversed + (pair << (Ntt::p - 2)));
            neighbour_factors(powers[exponent * turns], neighbour_sign(exponent), factor[2 * pair], factor[2 * pair + 1]);
        }
    }

    // This warp's part of the products of all rows, times the factors.
    template <class KeyRows>
    __device__ __forceinline__ void multiply(KeyRows& ahead, const std::uint32_t (&exponents)[kKeys]) const {
#pragma unroll
        for (int v = 0; v < Config::kVectorsPerWarp; ++v) {
            const int vector = first_vector + v;
            std::int64_t products[kKeys][4] = {};
#pragma unroll
            for (int row = 0; row < kRows; ++row) {
                const Vec4 four = reinterpret_cast<const Vec4*>(rows + row * N)[vector * 32 + lane];
                ahead.multiply(v * kRows + row, four, products);
                ahead.refill(v * kRows + row, Config::kPositions);
            }
            const std::uint32_t reversed = reverse_position(4 * vector, Ntt::p);
            std::int64_t total[4] = {};
            if constexpr (!Config::Step::kSelectsKey) {
#pragma unroll
                for (int j = 0; j < kKeys; ++j) {
                    std::int32_t factor[4];
                    factors_at(reversed, exponents[j], factor);
                    multiply_reduced(M{}, total, factor, products[j]);
                }
            }
            reinterpret_cast<Vec4*>(sums + output * N)[vector * 32 + lane] =
                montgomery(M{}, Config::Step::kSelectsKey ? products[0] : total);
        }
    }

    // The sum of this row's component, transformed back and added; of a selected key put in the accumulator's place.
    __device__ __forceinline__ void add_sum(std::uint32_t (&accumulator)[P]) const {
        std::int32_t x[1][P];
        Ntt::load_points(x[0], sums + component * N, lane);
        Ntt::template inverse<Config::Pair::kInverseInput>(x, tile(), 0, twiddles, lane);
#pragma unroll
        for (int r = 0; r < P; ++r)
            accumulator[r] = accumulate_exact(M{}, Config::Step::kSelectsKey ? M::half : accumulator[r], x[0][r]);
        __syncwarp();  // the tile is free
    }
};

template <class Config>
__global__ __launch_bounds__(Config::kThreads, 1) void blind_rotate_latency_kernel(const BlindRotateView view) {
    using Warp = LatencyWarp<Config>;
    using Step = typename Config::Step;
    extern __shared__ __align__(16) std::int32_t shared[];
    copy_powers<Config::kThreads, Powers<Config::N>>(shared, view.powers);
    copy_table<Config::kThreads>(reinterpret_cast<TwiddlePair*>(shared + Config::Pair::kPowerWords), view.twiddles,
                                 Config::Ntt::kTwiddleVectors * 32);
    __syncthreads();

    const Warp warp = Warp::make(shared);
    const bool owns_row = warp.owns_row(), multiplies = warp.multiplies();
    for (int number = blockIdx.x; number < view.batch; number += gridDim.x) {
        const std::uint32_t* const switched = switched_of<Step, Config::kLanes>(view, number);
        int step = Step::next_taken(switched, 0, view.steps);
        std::uint32_t accumulator[Config::P];
        load_accumulator<Config>(view, number, warp.component, warp.lane, accumulator);
        const Vec4* const key = warp.key_of(view);
        KeyAhead<Config::kKeyDepth, Config::Pair::kKeys> ahead(key);
        if (step < view.steps) ahead.words += Step::slice_of(switched, step) * Config::Pair::kSliceVectors;
        if (multiplies && step < view.steps) ahead.fill();
#pragma unroll 1
        while (step < view.steps) {
            const int next = Step::next_taken(switched, step + 1, view.steps);  // the same for all threads
            if (owns_row) warp.write_row(accumulator);
            __syncthreads();  // the rows are written

            if (multiplies) {
                std::uint32_t exponents[Config::Pair::kKeys];
                Step::load_exponents(switched, step, exponents);
                warp.multiply(ahead, exponents);
                if (next < view.steps) {
                    ahead.words = key + Step::slice_of(switched, next) * Config::Pair::kSliceVectors;
                    ahead.fill();
                }
            }
            __syncthreads();  // the sums are written, the rows are read

            if (owns_row) warp.add_sum(accumulator);
            step = next;
        }
        if (owns_row && warp.level == 0)
            store_accumulator<Config>(view, number, warp.component, warp.lane, accumulator,
                                      reinterpret_cast<std::uint32_t*>(warp.tile()));
    }
}

template <class Pair>
RotationKernel kernel_of(LatencyConfig<Pair>) {
    return blind_rotate_latency_kernel<LatencyConfig<Pair>>;
}

#endif

}  // namespace fhe_core::cuda
