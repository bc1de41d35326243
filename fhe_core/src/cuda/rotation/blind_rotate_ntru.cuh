// Blind rotation of an NTRU accumulator (docs/reference/specification.md, section 6; reference::blind_rotate): one polynomial c
// modulo q0, whose phase is -c S. Each step ACC += sum_j (X^e_j - 1) * (digits of ACC . K_j), after an entry that brings 1/S in.
// N = 2048.
//
// Who does what. A group of T = N/P threads owns a ciphertext. There is one component, so that a thread multiplies the points which
// its transforms end with, and nothing is exchanged between digits and products: thread t holds the coefficients t + T*j, j < P,
// and after a transform the positions P*t + j (block_ntt.cuh).
//
//   each step:  digits of ACC -> forward transforms, `together` at a time (one group barrier each) -> the thread's own words
//               S_j = sum over digits of digit * K_j, three 64-bit sums a point; R_j = montgomery(S_j)
//               X = montgomery(sum_j (root^(e_j * (2*brv(i) + 1)) - 1) * R_j); inverse transform (one group barrier); ACC += X
//
// Shared memory: powers of the 2N-th root, word x at x + x/32; twiddles [pair][thread] of 16 bytes; per group digits
// [digit][warp][vector][lane] of 16 bytes. The memory of a digit is the exchange tile of its transform first, that of digit 0 the
// tile of the inverse transform. Why that needs no more barriers: the last exchange of a forward transform and the digits stay
// among the words of a warp (__syncwarp), and the inverse transform's barrier separates the products of all threads from the next
// step.
//
// Key: [step][vector][digit][key of step][lane] of 16 bytes, 128 lanes of 16 positions; step 0 is the entry, whose factor is X^N -
// 1 of its first key. Each word is K * 2^64 / N modulo q0, centred.
//
// Source: [BIP+22] NTRU accumulators, [BMMP18] two key bits per step. Ours: exact transforms, the factors on the products, an entry
// that is a step as all others.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "cuda/rotation/accumulator.cuh"
#include "cuda/rotation/digits.cuh"
#include "cuda/rotation/kernel_shape.cuh"
#include "cuda/rotation/monomial.cuh"
#include "cuda/rotation/persistent.cuh"
#include "cuda/rotation/product.cuh"
#include "cuda/rotation/rotation_step.cuh"
#include "cuda/transform/block_ntt.cuh"
#include "cuda/transform/plain_ntt.cuh"

namespace fhe_core::cuda {

template <class KernelShapeOf, int groups_per_block, int points, int digits_together, int key_rows_ahead>
struct NtruConfig {
    static constexpr Shape shape = KernelShapeOf::value;
    using Ntt = BlockNtt<0, shape.polynomial_size, points>;
    using M = typename Ntt::M;
    using Step = RotationStep<shape.cmux>;
    using PowerTable = Powers<shape.polynomial_size>;
    static constexpr int N = Ntt::N, P = Ntt::P, T = Ntt::T, kLogThreads = Ntt::kLogSize - Ntt::p;
    static constexpr int kGroups = groups_per_block, kThreads = kGroups * T;
    static constexpr int kPerUnit = 1, kCiphertexts = kGroups;  // of a group, of a block
    static constexpr int kRows = shape.mask_gadget.level_count, kKeys = Step::kKeys, kVectors = P / 4;
    static constexpr int kTogether = digits_together, kDepth = key_rows_ahead;
    // Of the key, whatever the threads are: lanes of 16 positions, read by T / kKeyLanes threads each.
    static constexpr int kKeyLanes = N / 16, kReaders = T / kKeyLanes;
    static constexpr int kStepVectors = N / 4 * kRows * kKeys;
    static constexpr bool kPrefetched = kRows > 2;  // a key that does not fit L2 beside all else

    // The tables of both layouts follow one another: of 16 points a thread, of 8.
    static constexpr int kFirstTwiddle = P == 16 ? 0 : BlockNtt<0, N, 16>::SharedTwiddles::kPairs * (N / 16);

    static constexpr int kPowerWords = PowerTable::kWords, kTwiddleWords = Ntt::SharedTwiddles::kWords;
    static constexpr int kGroupWords = kRows * N;
    static constexpr std::size_t kSharedBytes = 4 * (kPowerWords + kTwiddleWords + kGroups * kGroupWords);

    // Units of p.
    static constexpr std::int64_t kDigitBound = (std::int64_t{1} << (shape.mask_gadget.base_log - 1)) + 1;
    static constexpr double kForwardBound =
        static_cast<double>(kDigitBound * (M::sqrt_minus_one + 1)) / M::p + 1.25 * (Ntt::kLogSize - 1);
    static constexpr double kSumBound = kRows * kForwardBound / 2;  // units of p^2
    static constexpr double kProductBound = kSumBound * M::p / 4294967296.0 + 0.5;
    static constexpr int kInverseInput = static_cast<int>(1000 * (kKeys / 2.0 * kProductBound * M::p / 4294967296.0 + 0.5)) + 1;
    static constexpr typename Ntt::InversePlan kInversePlan = Ntt::make_inverse_plan(kInverseInput);

    static_assert(shape.is_ntru() && Step::kFactorsOnProducts && shape.glwe_dimension == 1 && shape.limb_count == 1 &&
                      shape.lane_count == 1,
                  "this kernel takes NTRU accumulators of one limb with factors on the products");
    static_assert(kDigitBound * (M::sqrt_minus_one + 1) < (std::int64_t{1} << 26),
                  "the first stage takes digits without a reduction");
    static_assert(kForwardBound < 16, "digits overflow 31 bits in the forward transform");
    static_assert(kSumBound * M::p * M::p < 4.6e18, "sums over the digits overflow 62 bits");
    static_assert(kInversePlan.result <= 15000, "what is added to the accumulator");
    static_assert(P == 16 || P == 8, "tables are made for these");
    static_assert(kRows % kTogether == 0 && kVectors * kRows >= kDepth && kReaders >= 1);
    static_assert(kGroups <= 15, "a block has 16 named barriers");
    static_assert(kSharedBytes <= 227 * 1024, "shared memory of one multiprocessor");
};

// --- Host side: tables ---

template <class Config>
std::vector<TwiddlePair> ntru_twiddles() {
    using Shared = typename Config::Ntt::SharedTwiddles;
    const std::vector<Twiddle> all = plain_twiddles<0>(Config::N, Config::Ntt::kLogSize);
    std::vector<TwiddlePair> table(Shared::kPairs * Config::T);
    for (int pair = 0; pair < Shared::kPairs; ++pair)
        for (int t = 0; t < Config::T; ++t)
            for (int i = 0; i < 2; ++i) table[pair * Config::T + t].x[i] = Shared::entry(all.data(), t, 2 * pair + i);
    return table;
}

#if defined(__CUDACC__) || defined(CLOAKWORK_EMULATE_WARPS)

// One ciphertext, from the table to the result.
template <class Config>
struct NtruGroup {
    using Ntt = typename Config::Ntt;
    using M = typename Config::M;
    using Factors = MonomialFactors<Ntt>;
    using KeyRows = KeyAhead<Config::kDepth, Config::kKeys, Config::kKeyLanes>;
    static constexpr int N = Config::N, P = Config::P, T = Config::T, kRows = Config::kRows, kKeys = Config::kKeys;

    int group, t;
    std::uint32_t lane_root;
    typename Config::PowerTable powers;
    typename Ntt::SharedTwiddles twiddles;
    std::int32_t* digits;  // of the group

    __device__ __forceinline__ void wait() const { barrier(1 + group, T); }
    // Of this thread in a digit: vector v at 32*v.
    __device__ __forceinline__ Vec4* own_vectors(int row) const {
        return reinterpret_cast<Vec4*>(digits + row * N) + t / 32 * 8 * P + t % 32;
    }

    __device__ __forceinline__ void load(const BlindRotateView& view, int number, std::uint32_t (&accumulator)[P]) const {
        const std::uint32_t rotation = rotation_of_table<typename Config::Step>(view, number);
        const std::uint32_t* table = table_of<std::uint32_t>(view, number, N);
#pragma unroll
        for (int j = 0; j < P; ++j) {
            const std::uint32_t index = (t + T * j + rotation) & (2 * N - 1);
            accumulator[j] = with_half(M{}, rotated_residue(M{}, table[index & (N - 1)], index >= N));
        }
    }

    // All digits, transformed, as the thread's own words.
    __device__ __forceinline__ void transform(const std::uint32_t (&accumulator)[P]) const {
        constexpr int R = Config::kTogether;
        Digits<M, Config::shape.mask_gadget> digit;  // the least significant first, which is the last row
#pragma unroll 1
        for (int first = kRows - R; first >= 0; first -= R) {
            std::int32_t x[R][P];
            static_for<0, R>([&](auto g) {
#pragma unroll
                for (int j = 0; j < P; ++j) x[R - 1 - decltype(g)::value][j] = digit.of(accumulator[j]);
                digit.next();
            });
            Ntt::template forward<true>(x, digits + first * N, twiddles, t, [&] { wait(); });
            __syncwarp();  // all lanes have read the tiles
            static_for<0, R>([&](auto r) {
                Vec4* own = own_vectors(first + decltype(r)::value);
#pragma unroll
                for (int v = 0; v < Config::kVectors; ++v) {
                    const std::int32_t (&p)[P] = x[decltype(r)::value];
                    own[32 * v] = {{p[4 * v], p[4 * v + 1], p[4 * v + 2], p[4 * v + 3]}};
                }
            });
        }
    }

    __device__ __forceinline__ void multiply(KeyRows& ahead, const Factors (&factors)[kKeys], std::int32_t (&x)[P]) const {
        static_for<0, Config::kVectors>([&](auto vector_index) {
            constexpr int vector = decltype(vector_index)::value;
            std::int64_t sums[kKeys][4] = {};
#pragma unroll
            for (int row = 0; row < kRows; ++row) {
                const int position = vector * kRows + row;
                ahead.multiply(position, own_vectors(row)[32 * vector], sums);
                ahead.refill(position, Config::kVectors * kRows);
            }
            std::int64_t total[4] = {};
#pragma unroll
            for (int j = 0; j < kKeys; ++j) {
                std::int32_t factor[4];
                factors[j].template at<vector>(powers, factor);
                multiply_reduced(M{}, total, factor, sums[j]);
            }
            const Vec4 product = montgomery(M{}, total);
#pragma unroll
            for (int i = 0; i < 4; ++i) x[4 * vector + i] = product.x[i];
        });
    }

    // The mask of a ciphertext whose body is zero: whole, or its extracted LWE ciphertexts.
    __device__ __forceinline__ void store(const BlindRotateView& view, int number, std::uint32_t (&accumulator)[P]) const {
        auto* const out = static_cast<std::uint32_t*>(view.out);
        auto* const tile = reinterpret_cast<std::uint32_t*>(digits);
        wait();  // all have read the inverse transform's tile
#pragma unroll
        for (int j = 0; j < P; ++j) tile[t + T * j] = without_half(M{}, accumulator[j]);
        wait();
        if (view.coefficients == nullptr) {
            for (int i = t; i < 2 * N; i += T) out[std::size_t(number) * 2 * N + i] = i < N ? tile[i] : 0;
        }
        for (int i = 0; view.coefficients != nullptr && i < view.coefficient_count; ++i) {
            const int coefficient = view.coefficients[i];
            std::uint32_t* lwe = out + (std::size_t(number) * view.coefficient_count + i) * (N + 1);
            for (int j = t; j < N; j += T) lwe[j] = extracted_word(tile, N, coefficient, j, M::p);
            if (t == 0) lwe[N] = 0;
        }
        wait();  // before the next ciphertext's digits
    }
};

template <class Config>
__global__ __launch_bounds__(Config::kThreads, 1) void blind_rotate_ntru_kernel(const BlindRotateView view) {
    using Group = NtruGroup<Config>;
    using Step = typename Config::Step;
    using Factors = typename Group::Factors;
    constexpr int P = Config::P, T = Config::T, kKeys = Config::kKeys;

    extern __shared__ __align__(16) std::int32_t shared[];
    auto* const twiddles = reinterpret_cast<TwiddlePair*>(shared + Config::kPowerWords);
    copy_powers<Config::kThreads, typename Config::PowerTable>(shared, view.powers);
    copy_table<Config::kThreads>(twiddles, static_cast<const TwiddlePair*>(view.twiddles) + Config::kFirstTwiddle,
                                 Config::kTwiddleWords / 4);
    __syncthreads();

    Group own;
    own.group = threadIdx.x / T;
    own.t = threadIdx.x % T;
    own.lane_root = root_of_lane(own.t, Config::kLogThreads);
    own.powers.words = shared;
    own.twiddles = {twiddles, own.t};
    own.digits = shared + Config::kPowerWords + Config::kTwiddleWords + own.group * Config::kGroupWords;
    const Vec4* const own_key = static_cast<const Vec4*>(view.key) +
                                own.t % Config::kReaders * Config::kVectors * Config::kRows * kKeys * Config::kKeyLanes +
                                own.t / Config::kReaders;

    for (int number = own.group * gridDim.x + blockIdx.x; number < view.batch; number += gridDim.x * Config::kGroups) {
        const std::uint32_t* const switched = switched_of<Step>(view, number);
        std::uint32_t accumulator[P];
        own.load(view, number, accumulator);
        const Vec4* key = own_key;
#pragma unroll 1
        for (int step = -1; step < view.steps; ++step, key += Config::kStepVectors) {  // -1: the entry
            if constexpr (Config::kPrefetched) prefetch_key<16 * Config::kStepVectors>(view, step + 3);
            std::uint32_t exponents[kKeys] = {Config::N};
            if (step >= 0) Step::load_exponents(switched, step, exponents);
            Factors factors[kKeys];
#pragma unroll
            for (int j = 0; j < kKeys; ++j)
                factors[j] = {exponents[j] * own.lane_root, exponents[j] * (2 * T), neighbour_sign(exponents[j])};
            typename Group::KeyRows ahead(key);
            own.transform(accumulator);
            ahead.fill();
            std::int32_t x[1][P];
            own.multiply(ahead, factors, x[0]);
            __syncwarp();  // all lanes have read their digits
            Config::Ntt::template inverse<Config::kInversePlan>(x, own.digits, own.twiddles, own.t, [&] { own.wait(); });
#pragma unroll
            for (int j = 0; j < P; ++j) accumulator[j] = accumulate_exact(typename Config::M{}, accumulator[j], x[0][j]);
        }
        own.store(view, number, accumulator);
    }
}

template <class KernelShapeOf, int... layout>
RotationKernel kernel_of(NtruConfig<KernelShapeOf, layout...>) {
    return blind_rotate_ntru_kernel<NtruConfig<KernelShapeOf, layout...>>;
}

#endif

}  // namespace fhe_core::cuda
