// Blind rotation of one limb, throughput layout whose ciphertexts share the words of the key: same formula, key, ranges and words
// as blind_rotate_one_limb.cuh.
//
// Who does what. A team of C*(k+r) warps owns C ciphertexts. Warp (m, c) owns component c of ciphertext m: its coefficients
// (registers: lane l holds l + 32*r), the transforms of its digits, and the inverse transform of its sum. The 4-point groups of a
// lane are dealt out for the product, so that a word of the key, once loaded, serves all C ciphertexts: warp (m, c) takes output
// component c and the groups m, m + C, ..; or, in place, every warp takes all output components of its groups.
//
//   each step, warp (m, c): digits of ACC_mc -> forward transforms -> rows
//                           team barrier: the rows are written
//                           sums over rows and keys, of all C ciphertexts -> sums (in place: over the rows of digits)
//                           team barrier: the sums are written, the rows are read
//                           inverse transform of sum mc; ACC_mc += it
//
// The loop over groups is rolled: a step fits the instruction cache. Exponents wait in one register, lane m*keys + j holding e_j of
// ciphertext m. Shared memory: powers and twiddles as blind_rotate_one_limb.cuh; per team rows [ciphertext][row][vector][lane] of
// 16 bytes, and unless in place sums [ciphertext][component][vector][lane]. A warp's first row is its exchange tile.
//
// Source: as blind_rotate_one_limb.cuh, and [LMSS23] block-binary steps; the layout is ours.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/rotation/blind_rotate_one_limb.cuh"

namespace fhe_core::cuda {

template <int teams_per_block, int ciphertexts_per_team, int digits_together, int key_rows_ahead, int keys_at_once,
          bool products_in_place = false, bool one_digit_loop = true, bool next_key_prefetched = false>
struct TeamLayout {
    static constexpr int teams = teams_per_block;
    static constexpr int per_team = ciphertexts_per_team;  // C
    static constexpr int digits = digits_together;         // at most so many transforms share their twiddles
    static constexpr int key_depth = key_rows_ahead;       // rows of the key loaded ahead
    static constexpr int keys = keys_at_once;              // whose sums are in registers together
    static constexpr bool in_place = products_in_place;
    static constexpr bool one_loop = one_digit_loop;         // as OneLimbLayout
    static constexpr bool prefetched = next_key_prefetched;  // L2 is asked for the key of the next step
};

template <class TeamOf>
using OneLimbLayoutOf = OneLimbLayout<TeamOf::teams * TeamOf::per_team, 1, 1, TeamOf::digits, TeamOf::key_depth, TeamOf::one_loop>;

template <class KernelShapeOf, class TeamOf>
struct TeamConfig : OneLimbConfig<KernelShapeOf, OneLimbLayoutOf<TeamOf>> {
    using Team = TeamOf;
    using Pair = OneLimbConfig<KernelShapeOf, OneLimbLayoutOf<TeamOf>>;
    using Pair::k, Pair::kComponents, Pair::kKeys, Pair::kRows, Pair::kVectors, Pair::N;
    static constexpr int C = Team::per_team;
    static constexpr int kTeamWarps = C * kComponents, kTeamThreads = 32 * kTeamWarps;
    static constexpr int kPerUnit = C;
    static constexpr int kOutputs = Team::in_place ? kComponents : 1;  // of a warp's product
    static constexpr int kVectorStride = Team::in_place ? kTeamWarps : C;
    static constexpr int kKeysAtOnce = Team::keys, kChunks = kKeys / kKeysAtOnce;
    static constexpr int kPositions = kOutputs * kChunks * kRows;  // rows of the key that one vector reads
    static constexpr int kRowWords = C * kRows * N, kTeamWords = kRowWords + (Team::in_place ? 0 : C * kComponents * N);
    static constexpr std::uint32_t kStepBytes = 16 * kComponents * Pair::kStepVectors;
    static constexpr std::size_t kSharedBytes = 4 * (Pair::kPowerWords + Pair::Ntt::kTwiddleWords + Team::teams * kTeamWords);

    static_assert(kVectors % kVectorStride == 0, "the warps share the vectors evenly");
    static_assert(kKeys % kKeysAtOnce == 0, "the keys come in equal parts");
    static_assert(kPositions % Team::key_depth == 0, "rows of the key ahead return to their places");
    static_assert(C * kKeys <= 32, "a lane holds one exponent");
    static_assert(kSharedBytes <= 227 * 1024, "shared memory of one multiprocessor");
};

#if defined(__CUDACC__) || defined(CLOAKWORK_EMULATE_WARPS)

// The rows of the key that a warp's product reads, `key_depth` of them loaded ahead.
template <class Config>
struct TeamKey {
    static constexpr int kDepth = Config::Team::key_depth, kAtOnce = Config::kKeysAtOnce;
    static constexpr int kStride = Config::kVectorStride * Config::kRows * Config::kKeys * 32;  // to the next vector of the warp

    const Vec4* words;  // of the vector at work
    Vec4 rows[kDepth][kAtOnce];

    static constexpr int offset(int position) {
        const int row = position % Config::kRows, chunk = position / Config::kRows % Config::kChunks,
                  output = position / Config::kRows / Config::kChunks;
        return output * Config::kStepVectors + (row * Config::kKeys + chunk * kAtOnce) * 32;
    }
    template <int position>
    __device__ __forceinline__ void load(const Vec4* from) {
#pragma unroll
        for (int j = 0; j < kAtOnce; ++j) rows[position % kDepth][j] = load_key(from + offset(position) + 32 * j);
    }
    __device__ __forceinline__ void fill() {
        static_for<0, kDepth>([&](auto position) { load<decltype(position)::value>(words); });
    }
    template <int position>
    __device__ __forceinline__ void refill(bool last) {
        if constexpr (position + kDepth < Config::kPositions)
            load<position + kDepth>(words);
        else if (!last)
            load<position + kDepth - Config::kPositions>(words + kStride);
    }
};

template <class Config>
struct TeamWarp {
    using Ntt = typename Config::Ntt;
    using M = typename Config::M;
    using Step = typename Config::Step;
    static constexpr int N = Config::N, P = Config::P, C = Config::C, kRows = Config::kRows, kKeys = Config::kKeys;
    static constexpr int kComponents = Config::kComponents;
    static constexpr int kAtOnce = Config::kKeysAtOnce;
    static constexpr bool kInPlace = Config::Team::in_place;

    int lane, number, component;  // number: of the ciphertext
    int first_vector;
    std::uint32_t lane_root;
    FactorTable<N> factors;
    const TwiddlePair* twiddles;
    std::int32_t *rows, *sums;  // of the team

    __device__ __forceinline__ static TeamWarp make(std::int32_t* shared, int team, int warp) {
        TeamWarp w;
        w.lane = threadIdx.x % 32;
        w.number = warp / kComponents;
        w.component = warp % kComponents;
        w.first_vector = kInPlace ? warp : w.number;
        w.lane_root = root_of_lane(w.lane, 5);
        w.factors.words = shared;
        w.twiddles = reinterpret_cast<const TwiddlePair*>(shared + Config::kPowerWords);
        w.rows = shared + Config::kPowerWords + Ntt::kTwiddleWords + team * Config::kTeamWords;
        w.sums = w.rows + Config::kRowWords;
        return w;
    }
    __device__ __forceinline__ std::int32_t* own_rows() const { return rows + (number * kRows + Config::first_row(component)) * N; }
    // Of output component c of ciphertext m.
    __device__ __forceinline__ std::int32_t* sum_of(int m, int c) const {
        return kInPlace ? rows + (m * kRows + Config::first_row(c)) * N : sums + (m * kComponents + c) * N;
    }
    __device__ __forceinline__ const Vec4* key_of(const BlindRotateView& view) const {
        return static_cast<const Vec4*>(view.key) + (kInPlace ? 0 : std::size_t(component) * Config::kStepVectors) +
               first_vector * kRows * kKeys * 32 + lane;
    }

    // The factors X^e - 1 at the four points of a vector; `turns`: 2*brv(first of them) + 1.
    __device__ __forceinline__ void factors_at(std::uint32_t turns, std::uint32_t exponent, std::int32_t (&factor)[4]) const {
        const std::uint32_t at = exponent * turns;
        const std::int32_t sign = factors.sign(exponent);
        factors.neighbours(at, sign, factor[0], factor[1]);
        factors.neighbours(at + exponent * (64u << (Ntt::p - 2)), sign, factor[2], factor[3]);
    }

    // One vector of one output component, of all C ciphertexts: sums over rows and keys.
    template <int output>
    __device__ __forceinline__ void multiply_output(int vector, TeamKey<Config>& key, bool last, std::uint32_t exponent,
                                                    Vec4 (&product)[C]) const {
        const std::uint32_t turns = lane_root + 64 * reverse_position(static_cast<std::uint32_t>(4 * vector), Ntt::p);
        std::int64_t total[C][4] = {};
        static_for<0, Config::kChunks>([&](auto chunk_index) {
            constexpr int chunk = decltype(chunk_index)::value;
            std::int64_t partial[C][kAtOnce][4] = {};
            static_for<0, kRows>([&](auto row_index) {
                constexpr int row = decltype(row_index)::value, position = (output * Config::kChunks + chunk) * kRows + row;
#pragma unroll
                for (int m = 0; m < C; ++m) {
                    const Vec4 digit = reinterpret_cast<const Vec4*>(rows + (m * kRows + row) * N)[vector * 32 + lane];
#pragma unroll
                    for (int j = 0; j < kAtOnce; ++j)
                        multiply_accumulate(partial[m][j], digit.x, key.rows[position % TeamKey<Config>::kDepth][j].x);
                }
                key.template refill<position>(last);
            });
#pragma unroll
            for (int m = 0; m < C; ++m)
#pragma unroll
                for (int j = 0; j < kAtOnce; ++j) {
                    std::int32_t factor[4];
                    factors_at(turns, __shfl_sync(0xffffffffu, exponent, m * kKeys + chunk * kAtOnce + j), factor);
                    multiply_reduced(M{}, total[m], factor, partial[m][j]);
                }
        });
#pragma unroll
        for (int m = 0; m < C; ++m) product[m] = montgomery(M{}, total[m]);
    }

    __device__ __forceinline__ void multiply(TeamKey<Config> key, std::uint32_t exponent) const {
#pragma unroll 1
        for (int vector = first_vector; vector < Config::kVectors; vector += Config::kVectorStride) {
            const bool last = vector + Config::kVectorStride >= Config::kVectors;
            Vec4 products[Config::kOutputs][C];
            static_for<0, Config::kOutputs>([&](auto output) {
                multiply_output<decltype(output)::value>(vector, key, last, exponent, products[decltype(output)::value]);
            });
#pragma unroll
            for (int output = 0; output < Config::kOutputs; ++output)
#pragma unroll
                for (int m = 0; m < C; ++m)
                    reinterpret_cast<Vec4*>(sum_of(m, kInPlace ? output : component))[vector * 32 + lane] = products[output][m];
            key.words += TeamKey<Config>::kStride;
        }
    }

    __device__ __forceinline__ void add_sum(std::uint32_t (&accumulator)[P]) const {
        std::int32_t x[1][P];
        Ntt::load_points(x[0], sum_of(number, component), lane);
        if constexpr (kInPlace) __syncwarp();  // all lanes have read the sum
        Ntt::template inverse<Config::kInverseInput>(x, own_rows(), 0, twiddles, lane);
#pragma unroll
        for (int r = 0; r < P; ++r) accumulator[r] = accumulate_exact(M{}, accumulator[r], x[0][r]);
        __syncwarp();  // the exchange tile is free
    }
};

template <class Config>
__global__ __launch_bounds__(Config::kThreads, 1) void blind_rotate_team_kernel(const BlindRotateView view) {
    using Warp = TeamWarp<Config>;
    using Ntt = typename Config::Ntt;
    using Step = typename Config::Step;
    constexpr int C = Config::C, kKeys = Config::kKeys;

    extern __shared__ __align__(16) std::int32_t shared[];
    copy_factors<Config::kThreads, FactorTable<Config::N>>(shared, view.powers);
    copy_table<Config::kThreads>(reinterpret_cast<TwiddlePair*>(shared + Config::kPowerWords), view.twiddles,
                                 Ntt::kTwiddleVectors * 32);
    __syncthreads();

    const int team = threadIdx.x / Config::kTeamThreads;
    const Warp warp = Warp::make(shared, team, threadIdx.x / 32 % Config::kTeamWarps);
    const auto of_batch = [&](int number) { return number < view.batch ? number : view.batch - 1; };

    for (int unit = team * gridDim.x + blockIdx.x; unit * C < view.batch; unit += gridDim.x * Config::Team::teams) {
        const int number = unit * C + warp.number;
        std::uint32_t accumulator[Config::P];
        load_accumulator<Config>(view, of_batch(number), warp.component, warp.lane, accumulator);
        const std::uint32_t* const switched =
            switched_of<Step, Config::kLanes>(view, of_batch(unit * C + (warp.lane < C * kKeys ? warp.lane / kKeys : 0)));

        TeamKey<Config> key;
        key.words = warp.key_of(view);
#pragma unroll 1
        for (int step = 0; step < view.steps; ++step) {
            const std::uint32_t exponent = FactorTable<Config::N>::raised(Step::load_exponent(switched, step, warp.lane % kKeys));
            if constexpr (Config::Team::prefetched) prefetch_key<Config::kStepBytes>(view, step + 1);
            transform_component<Config>(accumulator, warp.component >= Config::k, warp.own_rows(), warp.twiddles, warp.lane);
            key.fill();
            barrier(1 + 2 * team, Config::kTeamThreads);  // the rows are written
            warp.multiply(key, exponent);
            key.words += std::size_t(Config::kComponents) * Config::kStepVectors;
            barrier(2 + 2 * team, Config::kTeamThreads);  // the sums are written, the rows are read
            warp.add_sum(accumulator);
        }
        if (number < view.batch)
            store_accumulator<Config>(view, number, warp.component, warp.lane, accumulator,
                                      reinterpret_cast<std::uint32_t*>(warp.own_rows()));
    }
}

template <class KernelShapeOf, class TeamOf>
RotationKernel kernel_of(TeamConfig<KernelShapeOf, TeamOf>) {
    return blind_rotate_team_kernel<TeamConfig<KernelShapeOf, TeamOf>>;
}

#endif

}  // namespace fhe_core::cuda
