// Blind rotation, several multiprocessors for a ciphertext: the blocks of a cluster share it (cluster.cuh). Same formula, key and
// words as blind_rotate_one_limb.cuh, blind_rotate_two_limbs.cuh and blind_rotate_raised.cuh; for batches that leave
// multiprocessors idle. One limb with any gadgets, or two limbs with one digit, of the key alone where it is raised.
//
// Who does what. A block works modulo one limb prime on one component, by T = N / P threads (block_ntt.cuh). Thread t holds the
// coefficients t + T*j, of both limbs where there are two; it transforms with the others of the block, and in transform order it
// holds the positions P*t + j of everything: of the rows, of the product, of what is transformed back. So what blocks tell each
// other goes from thread t to threads t, and a warp waits for its counterparts alone.
//
//   each step:  digits of ACC_c -> forward transforms -> rows, to all blocks of the limb
//               while they travel: C[row] = montgomery(sum_j (X^e_j - 1) * K_j[row][c]), which needs the key alone
//               the rows of the other components are there
//               X = montgomery(sum over rows of digit * C[row]); inverse transform; ACC_c += X
//               two limbs: the residues of ACC_c, to the block of the other limb and from it; raised: X, and then both add
//               round(X / P) to words modulo q0
//
// or C by warps of the block that do nothing else, a step ahead; or sums over the rows first, as in blind_rotate_one_limb.cuh: what
// is faster. Rows and residues have two buffers: who writes one has received what its readers sent after they had read it. The next
// step's key is loaded as soon as this one's is used up.
//
// Shared memory: powers of the limb's 2N-th root; a tile for each level; rows [buffer][row][unit][T], residues [buffer][unit][T]
// and C, as rows, of 16 bytes, a unit being four positions; an Arrivals for each buffer and warp.
//
// Key: as blind_rotate_one_limb.cuh (one limb) and blind_rotate_two_limbs.cuh have it; sizes in units of p as there, static_assert
// below.
//
// Source: [CGGI20], [BMMP18] as blind_rotate_one_limb.cuh; components, limbs and warps over a cluster are ours.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "cuda/device/cluster.cuh"
#include "cuda/rotation/accumulator.cuh"
#include "cuda/rotation/digits.cuh"
#include "cuda/rotation/kernel_shape.cuh"
#include "cuda/rotation/monomial.cuh"
#include "cuda/rotation/persistent.cuh"
#include "cuda/rotation/product.cuh"
#include "cuda/rotation/rotation_step.cuh"
#include "cuda/transform/block_ntt.cuh"

namespace fhe_core::cuda {

template <int points_of_thread, bool multiply_keys_first, int key_rows_ahead, int combining_warps = 0>
struct ClusterLayout {
    static constexpr int points = points_of_thread;          // P
    static constexpr bool keys_first = multiply_keys_first;  // C before the digits are there
    static constexpr int key_depth = key_rows_ahead;         // rows of the key that a thread holds
    static constexpr int combiners = combining_warps;        // warps of a block that do nothing but C; 0: everyone does its own
};

template <class KernelShapeOf, class LayoutOf>
struct ClusterConfig {
    static constexpr Shape shape = KernelShapeOf::value;
    using Layout = LayoutOf;
    using Step = RotationStep<shape.cmux>;
    static constexpr int N = shape.polynomial_size, k = shape.glwe_dimension, P = Layout::points, T = N / P;
    static constexpr int kLimbs = shape.key_limbs().count, kKeys = Step::kKeys;
    static constexpr int kLanes = shape.lane_count, kComponents = shape.component_count();
    static constexpr bool kRaised = shape.is_raised();
    static constexpr int kWordLimbs = shape.limb_count;       // of ciphertexts
    static constexpr int kSecond = shape.key_limbs().second;  // prime of limb 1, number in kLimbPrimes
    using Word = std::conditional_t<kWordLimbs == 1, std::uint32_t, std::uint64_t>;
    static constexpr int kBlocks = kLimbs * kComponents;  // of a cluster, number limb*kComponents + component
    static constexpr int kWarps = T / 32;                 // that transform
    static constexpr int kCombiners = Layout::combiners;  // warps of C
    static constexpr int kThreads = T + 32 * kCombiners;
    static constexpr bool kHasCombiners = kCombiners > 0;
    static constexpr int kMaskLevels = shape.mask_gadget.level_count, kBodyLevels = shape.body_gadget.level_count;
    static constexpr int kRows = k * kMaskLevels + kLanes * kBodyLevels;
    static constexpr int kMostLevels = kMaskLevels > kBodyLevels ? kMaskLevels : kBodyLevels;
    static constexpr int kUnits = P / 4, kPositions = kUnits * kRows;  // rows of the key that a thread reads in a step
    static constexpr int kKeyDepth = Layout::key_depth < kPositions ? Layout::key_depth : kPositions;
    static constexpr int kDrop = kLimbBits * kWordLimbs - shape.mask_gadget.base_log * kMaskLevels;

    // The key: lanes of its layout, 16-byte vectors of one output and of a step.
    static constexpr int kKeyLanes = kLimbs == 1 ? 32 : N / 32;
    static constexpr int kVectorsPerLane = N / 4 / kKeyLanes;
    static constexpr std::size_t kOutputVectors = std::size_t(N) / 4 * kRows * kKeys;
    static constexpr std::size_t kStepVectors = kLimbs * kComponents * kOutputVectors;

    using PowerTable = Powers<N>;
    static constexpr int kTileWords = (kMostLevels > kWordLimbs ? kMostLevels : kWordLimbs) * N;  // at last words modulo Q
    static constexpr int kBufferVectors = kRows * N / 4;
    static constexpr int kResidueVectors = kLimbs == 1 ? 0 : N / 4;              // of a buffer
    static constexpr int kCombinedVectors = kHasCombiners ? kBufferVectors : 0;  // of a buffer
    static constexpr int kArrivals = 4 * kWarps * (kHasCombiners ? 2 : 1);       // rows, residues, C full, C empty
    static constexpr int kArrivalWord =
        PowerTable::kWords + kTileWords + 2 * 4 * (kBufferVectors + kResidueVectors + kCombinedVectors);
    static constexpr std::size_t kSharedBytes = 4 * kArrivalWord + 8 * kArrivals;
    static constexpr int kPerUnit = 1, kCiphertexts = 1;

    // Units of q, as OneLimbConfig and TwoLimbConfig have them.
    static constexpr std::uint32_t kLargestModulus = kLimbs == 1 ? kLimbPrimes[0] : Modulus<kSecond>::q;
    static constexpr std::int64_t digit_bound(Gadget g) { return (std::int64_t{1} << (g.base_log - 1)) + 1; }
    static constexpr bool is_small(Gadget g) {
        return kLimbs == 1 && digit_bound(g) * (kLimbSqrtMinusOne[0] + 1) < (std::int64_t{1} << 26);
    }
    static constexpr double forward_bound(Gadget g) {
        const std::int64_t first = is_small(g) ? digit_bound(g) * (kLimbSqrtMinusOne[0] + 1) : digit_bound(g);
        return static_cast<double>(first) / kLimbPrimes[0] + 1.25 * (log2_of(N) - is_small(g));
    }
    static constexpr double kForwardBound = forward_bound(shape.mask_gadget) > forward_bound(shape.body_gadget)
                                                ? forward_bound(shape.mask_gadget)
                                                : forward_bound(shape.body_gadget);
    static constexpr double kRatio = kLargestModulus / 4294967296.0;                                          // q / 2^32
    static constexpr double kFirstSum = Layout::keys_first ? kKeys / 4.0 + 0.01 : kRows * kForwardBound / 2;  // units of q^2
    static constexpr double kReducedSum = kFirstSum * kRatio + 0.5;
    static constexpr double kSecondSum = (Layout::keys_first ? kRows * kForwardBound : kKeys / 2.0 + 0.01) * kReducedSum;
    static constexpr int kInverseInput = static_cast<int>(1000 * (kSecondSum * kRatio + 0.5)) + 1;

    static_assert(Step::kFactorsOnProducts, "this kernel takes factors on the products");
    static_assert(kLimbs == 1 ||
                      (shape.mask_gadget == shape.body_gadget && kMaskLevels == 1 && shape.mask_gadget.base_log <= 24 && N >= 1024),
                  "two limbs have one digit, and N is 1024, 2048 or 4096");
    static_assert(kLanes == 1 || kLimbs == 1, "several lanes have one limb");
    static_assert(kBlocks <= 8, "clusters of at most eight blocks run on every device that has them");
    static_assert(!kHasCombiners || (Layout::keys_first && kWarps % kCombiners == 0),
                  "combining warps serve equally many others, and combine before the digits are there");
    static_assert(kForwardBound < 16, "digits overflow 31 bits in the forward transform");
    static_assert(kFirstSum < 256 && kSecondSum < 256, "sums overflow 62 bits");  // 2^8 * q^2 < 2^62
    static_assert(kThreads <= 1024 && kSharedBytes <= 227 * 1024, "a block of one multiprocessor");
};

#if defined(__CUDACC__) || defined(CLOAKWORK_EMULATE_WARPS)

// One thread of a block of limb `limb`.
template <class Config, int limb>
struct ClusterThread {
    using Ntt = BlockNtt<limb == 0 ? 0 : Config::kSecond, Config::N, Config::P>;
    using M = typename Ntt::M;
    static constexpr int N = Config::N, P = Config::P, T = Config::T, k = Config::k, kUnits = Config::kUnits;
    static constexpr int kRows = Config::kRows, kKeys = Config::kKeys, kLimbs = Config::kLimbs;
    static constexpr int kComponents = Config::kComponents;
    static constexpr bool kRaised = Config::kRaised;
    using Word = typename Config::Word;
    static constexpr typename Ntt::InversePlan kInversePlan = Ntt::make_inverse_plan(Config::kInverseInput);
    static_assert(Config::kInverseInput <= 7500 && kInversePlan.result <= 15000, "the inverse transform plans for its inputs");
    using Ahead = KeyAhead<Config::kKeyDepth, kKeys, Config::kKeyLanes>;

    int t, warp, component;
    typename Config::PowerTable powers;
    std::int32_t* tile;
    Vec4 *rows, *residues;                           // of this thread: rows[(buffer*kRows + row)*kUnits*T + unit*T]
    Vec4* combined_in;                               // as rows
    Arrivals *rows_in, *residues_in, *full, *empty;  // of this warp, buffer 0
    Peer others[kComponents - 1], other_limb;

    using Twiddles = typename Ntt::KeptTwiddles;

    // Residues of the thread's coefficients t + T*j in offset form (accumulator.cuh); limbs: this block's, the other one. Raised:
    // words modulo q0 in every block; this block's update of the step.
    struct Accumulator {
        std::uint32_t own[P], other[kLimbs == 1 ? 1 : P];
    };

    // index: of the block's transforming threads.
    __device__ __forceinline__ static ClusterThread make(std::int32_t* shared, int index) {
        ClusterThread x;
        x.t = index;
        x.warp = index / 32;
        x.component = cluster_rank() % kComponents;
        x.powers.words = shared;
        x.tile = shared + Config::PowerTable::kWords;
        x.rows = reinterpret_cast<Vec4*>(x.tile + Config::kTileWords) + x.t;
        x.residues = x.rows + 2 * Config::kBufferVectors;
        x.combined_in = x.residues + 2 * Config::kResidueVectors;
        x.rows_in = reinterpret_cast<Arrivals*>(shared + Config::kArrivalWord) + x.warp;
        x.residues_in = x.rows_in + 2 * Config::kWarps;
        x.full = x.residues_in + 2 * Config::kWarps;
        x.empty = x.full + 2 * Config::kWarps;
#pragma unroll
        for (int i = 0; i + 1 < kComponents; ++i)
            x.others[i] = Peer(shared, limb * kComponents + (x.component + 1 + i) % kComponents);
        if constexpr (kLimbs == 2) x.other_limb = Peer(shared, (1 - limb) * kComponents + x.component);
        return x;
    }

    __device__ __forceinline__ bool is_body() const { return component >= k; }
    // Of the warps that transform.
    __device__ __forceinline__ static auto component_barrier() {
        return [] { barrier(1, T); };
    }
    __device__ __forceinline__ int first_row() const {  // as OneLimbConfig
        if constexpr (Config::kLanes == 1) return component * Config::kMaskLevels;
        return is_body() ? k * Config::kMaskLevels + (component - k) * Config::kBodyLevels : component * Config::kMaskLevels;
    }
    __device__ __forceinline__ int own_rows() const { return is_body() ? Config::kBodyLevels : Config::kMaskLevels; }

    // First vector of this thread's part of the key, first step.
    __device__ __forceinline__ const Vec4* key_of(const BlindRotateView& view) const {
        const int unit = t * kUnits, lane = unit / Config::kVectorsPerLane, vector = unit % Config::kVectorsPerLane;
        return static_cast<const Vec4*>(view.key) + (limb * kComponents + component) * Config::kOutputVectors +
               vector * (kRows * kKeys * Config::kKeyLanes) + lane;
    }

    // --- Coefficients ---

    __device__ __forceinline__ void start(Accumulator& acc, const BlindRotateView& view, int number) const {
        using Own = std::conditional_t<kRaised, Modulus<0>, M>;
        const std::uint32_t rotation =
            rotation_of_table<typename Config::Step, Config::kLanes>(view, number, is_body() ? component - k : 0);
        const Word* table = table_of<Word>(view, number, N);
#pragma unroll
        for (int j = 0; j < P; ++j) {
            const std::uint32_t index = (t + T * j + rotation) & (2 * N - 1);
            const Word word = is_body() ? table[index & (N - 1)] : 0;
            acc.own[j] = with_half(Own{}, rotated_residue(Own{}, word, index >= N));
            if constexpr (Config::kWordLimbs == 2) {
                using Other = Modulus<1 - limb>;
                acc.other[j] = with_half(Other{}, rotated_residue(Other{}, word, index >= N));
            }
        }
    }

    // The result, from a tile of whole words: the GLWE ciphertext, or the LWE ciphertexts of section 7. Two limbs: a half each.
    __device__ __forceinline__ void store(const Accumulator& acc, const BlindRotateView& view, int number) const {
        constexpr Word q =
            Config::kWordLimbs == 1 ? Word{kLimbPrimes[0]} : static_cast<Word>(std::uint64_t{kLimbPrimes[0]} * kLimbPrimes[1]);
        auto* const words = reinterpret_cast<Word*>(tile);
        component_barrier()();  // everyone has read the tile
#pragma unroll
        for (int j = 0; j < P; ++j) {
            if constexpr (Config::kWordLimbs == 1) {
                words[t + T * j] = without_half(Modulus<0>{}, acc.own[j]);
            } else {
                const std::uint32_t own_residue = without_half(M{}, acc.own[j]);
                const std::uint32_t other = without_half(Modulus<1 - limb>{}, acc.other[j]);
                words[t + T * j] = limb == 0 ? compose_limbs(own_residue, other) : compose_limbs(other, own_residue);
            }
        }
        component_barrier()();  // the words are there
        auto* const out = static_cast<Word*>(view.out);
        const int first = t + limb * T;
        if (view.coefficients == nullptr) {
            Word* const polynomial = out + (std::size_t(number) * kComponents + component) * N;
            for (int j = first; j < N; j += kLimbs * T) polynomial[j] = words[j];
        } else {
            for (int i = 0; i < view.coefficient_count; ++i) {
                const int coefficient = view.coefficients[i];
                Word* const lwe = out + (std::size_t(number) * view.coefficient_count + i) * (k * N + Config::kLanes);
                if (is_body()) {
                    if (first == 0) lwe[k * N + component - k] = words[coefficient];
                } else {
                    for (int j = first; j < N; j += kLimbs * T)
                        lwe[component * N + j] = extracted_word(words, N, coefficient, j, q);
                }
            }
        }
        component_barrier()();  // the tile is free
    }

    // --- Rows ---

    template <Gadget gadget>
    __device__ __forceinline__ void cut(const Accumulator& acc, std::int32_t (&x)[gadget.level_count][P]) const {
        if constexpr (kLimbs == 1) {
            Digits<M, gadget> digits;
#pragma unroll
            for (int level = gadget.level_count - 1; level >= 0; --level) {
#pragma unroll
                for (int j = 0; j < P; ++j) x[level][j] = digits.of(acc.own[j]);
                digits.next();
            }
        } else if constexpr (kRaised) {
#pragma unroll
            for (int j = 0; j < P; ++j) x[0][j] = only_digit<Config::kDrop>(wrap(acc.own[j]) - Modulus<0>::half);
        } else {
#pragma unroll
            for (int j = 0; j < P; ++j) {
                const std::int32_t mine = wrap(acc.own[j]) - M::half, other = wrap(acc.other[j]) - Modulus<1 - limb>::half;
                x[0][j] = only_digit<Config::kDrop>(limb == 0 ? compose_centred(mine, other) : compose_centred(other, mine));
            }
        }
    }

    template <bool small_digits, int levels>
    __device__ __forceinline__ void send_transforms(std::int32_t (&x)[levels][P], const Twiddles& twiddles, int first_row,
                                                    int buffer) const {
        Ntt::template forward<small_digits, levels>(x, tile, twiddles, t, component_barrier());
        Vec4* const first = rows + (buffer * kRows + first_row) * (kUnits * T);
#pragma unroll
        for (int level = 0; level < levels; ++level)
#pragma unroll
            for (int unit = 0; unit < kUnits; ++unit) {
                const std::int32_t* const four = x[level] + 4 * unit;
                const Vec4 points{{four[0], four[1], four[2], four[3]}};
                Vec4* const place = first + (level * kUnits + unit) * T;
                *place = points;
#pragma unroll
                for (const Peer& peer : others) peer.send(place, points, rows_in + buffer * Config::kWarps);
            }
    }
    template <Gadget gadget>
    __device__ __forceinline__ void send_rows_of(const Accumulator& acc, const Twiddles& twiddles, int buffer) const {
        std::int32_t x[gadget.level_count][P];
        cut<gadget>(acc, x);
        send_transforms<Config::is_small(gadget)>(x, twiddles, first_row(), buffer);
    }
    __device__ __forceinline__ void send_rows(const Accumulator& acc, const Twiddles& twiddles, int buffer) const {
        constexpr Gadget mask = Config::shape.mask_gadget, body = Config::shape.body_gadget;
        if (t % 32 == 0) expect_bytes(rows_in + buffer * Config::kWarps, (kRows - own_rows()) * kUnits * 32 * 16);
        if (mask == body || !is_body())
            send_rows_of<mask>(acc, twiddles, buffer);
        else
            send_rows_of<body>(acc, twiddles, buffer);
    }
    __device__ __forceinline__ void receive_rows(int buffer, int parity) const {
        wait_for_bytes(rows_in + buffer * Config::kWarps, parity);
    }

    // --- Products ---

    // (X^e_j - 1) at the positions of a unit, as MonomialFactors::at.
    __device__ __forceinline__ void factors_at(int unit, const std::uint32_t (&exponents)[kKeys],
                                               std::int32_t (&factor)[kKeys][4]) const {
        const std::uint32_t turns = 2 * reverse_position(4 * (t * kUnits + unit), Ntt::kLogSize) + 1;
#pragma unroll
        for (int j = 0; j < kKeys; ++j) {
            const std::uint32_t exponent = exponents[j], at = exponent * turns;
            const std::int32_t sign = neighbour_sign(exponent);
            neighbour_factors(powers[at], sign, factor[j][0], factor[j][1]);
            neighbour_factors(powers[at + exponent * (N / 2)], sign, factor[j][2], factor[j][3]);
        }
    }

    using Combined = Vec4[kUnits][kRows];

    // C: keep(unit, row, four positions).
    template <class Keep>
    __device__ __forceinline__ void combine(Ahead& ahead, const std::uint32_t (&exponents)[kKeys], Keep&& keep) const {
#pragma unroll
        for (int unit = 0; unit < kUnits; ++unit) {
            std::int32_t factor[kKeys][4];
            factors_at(unit, exponents, factor);
#pragma unroll
            for (int row = 0; row < kRows; ++row) {
                std::int64_t sum[4] = {};
                ahead.multiply_factors(unit * kRows + row, factor, sum);
                ahead.refill(unit * kRows + row, Config::kPositions);
                keep(unit, row, montgomery(M{}, sum));
            }
        }
    }
    __device__ __forceinline__ void combine(Ahead& ahead, const std::uint32_t (&exponents)[kKeys], Combined& combined) const {
        combine(ahead, exponents, [&](int unit, int row, const Vec4& four) { combined[unit][row] = four; });
    }

    // C by a combining warp, for the transforming warp of this thread's number, and there. Two buffers: a warp says when one is
    // full, the other when it is empty.
    __device__ __forceinline__ void send_combined(Ahead& ahead, const std::uint32_t (&exponents)[kKeys], int buffer,
                                                  int parity) const {
        wait_for_bytes(empty + buffer * Config::kWarps, parity ^ 1);
        combine(ahead, exponents, [&](int unit, int row, const Vec4& four) {
            combined_in[buffer * Config::kCombinedVectors + (row * kUnits + unit) * T] = four;
        });
        __syncwarp();
        if (t % 32 == 0) expect_bytes(full + buffer * Config::kWarps, 0);
    }
    __device__ __forceinline__ void receive_combined(Combined& combined, int buffer, int parity) const {
        wait_for_bytes(full + buffer * Config::kWarps, parity);
#pragma unroll
        for (int unit = 0; unit < kUnits; ++unit)
#pragma unroll
            for (int row = 0; row < kRows; ++row)
                combined[unit][row] = combined_in[buffer * Config::kCombinedVectors + (row * kUnits + unit) * T];
        __syncwarp();
        if (t % 32 == 0) expect_bytes(empty + buffer * Config::kWarps, 0);
    }
    __device__ __forceinline__ void multiply_combined(const Combined& combined, int buffer, std::int32_t (&x)[P]) const {
#pragma unroll
        for (int unit = 0; unit < kUnits; ++unit) {
            std::int64_t total[4] = {};
#pragma unroll
            for (int row = 0; row < kRows; ++row) multiply_accumulate(total, row_at(buffer, row, unit).x, combined[unit][row].x);
            put(x, unit, montgomery(M{}, total));
        }
    }
    // Sums over the rows first.
    __device__ __forceinline__ void multiply_rows(Ahead& ahead, const std::uint32_t (&exponents)[kKeys], int buffer,
                                                  std::int32_t (&x)[P]) const {
#pragma unroll
        for (int unit = 0; unit < kUnits; ++unit) {
            std::int64_t products[kKeys][4] = {};
#pragma unroll
            for (int row = 0; row < kRows; ++row) {
                ahead.multiply(unit * kRows + row, row_at(buffer, row, unit), products);
                ahead.refill(unit * kRows + row, Config::kPositions);
            }
            std::int32_t factor[kKeys][4];
            factors_at(unit, exponents, factor);
            std::int64_t total[4] = {};
#pragma unroll
            for (int j = 0; j < kKeys; ++j) multiply_reduced(M{}, total, factor[j], products[j]);
            put(x, unit, montgomery(M{}, total));
        }
    }
    __device__ __forceinline__ const Vec4& row_at(int buffer, int row, int unit) const {
        return rows[((buffer * kRows + row) * kUnits + unit) * T];
    }
    __device__ __forceinline__ static void put(std::int32_t (&x)[P], int unit, const Vec4& four) {
#pragma unroll
        for (int i = 0; i < 4; ++i) x[4 * unit + i] = four.x[i];
    }

    // ACC_c += what x transforms back to; raised: once the other limb's is there.
    __device__ __forceinline__ void add(Accumulator& acc, const Twiddles& twiddles, std::int32_t (&x)[1][P]) const {
        Ntt::template inverse<kInversePlan>(x, tile, twiddles, t, component_barrier());
#pragma unroll
        for (int j = 0; j < P; ++j) {
            if constexpr (kRaised)
                acc.other[j] = static_cast<std::uint32_t>(x[0][j]);
            else
                acc.own[j] = accumulate_exact(M{}, acc.own[j], x[0][j]);
        }
    }

    // --- Residues of both limbs, or updates ---

    __device__ __forceinline__ void send_residues(const Accumulator& acc, int buffer) const {
        if (t % 32 == 0) expect_bytes(residues_in + buffer * Config::kWarps, kUnits * 32 * 16);
#pragma unroll
        for (int unit = 0; unit < kUnits; ++unit) {
            const std::uint32_t* const four = (kRaised ? acc.other : acc.own) + 4 * unit;
            other_limb.send(residues + buffer * Config::kResidueVectors + unit * T,
                            {{wrap(four[0]), wrap(four[1]), wrap(four[2]), wrap(four[3])}}, residues_in + buffer * Config::kWarps);
        }
    }
    __device__ __forceinline__ void receive_residues(Accumulator& acc, int buffer, int parity) const {
        wait_for_bytes(residues_in + buffer * Config::kWarps, parity);
#pragma unroll
        for (int unit = 0; unit < kUnits; ++unit) {
            const Vec4 four = residues[buffer * Config::kResidueVectors + unit * T];
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                std::uint32_t& other = acc.other[4 * unit + i];
                if constexpr (kRaised) {
                    std::uint32_t& word = acc.own[4 * unit + i];
                    const std::int32_t mine = wrap(other);
                    word = limb == 0 ? accumulate_raised(word, mine, four.x[i]) : accumulate_raised(word, four.x[i], mine);
                } else {
                    other = static_cast<std::uint32_t>(four.x[i]);
                }
            }
        }
    }
};

// C of all steps of the ciphertexts of this cluster, for the transforming warps.
template <class Config, int limb>
__device__ __forceinline__ void combine_in_cluster(const BlindRotateView& view, std::int32_t* shared, int index) {
    using Thread = ClusterThread<Config, limb>;
    constexpr int kStride = 32 * Config::kCombiners, kServed = Config::T / kStride;
    Thread served[kServed];
#pragma unroll
    for (int i = 0; i < kServed; ++i) served[i] = Thread::make(shared, index + i * kStride);
    int turn = 0;
    for (int number = blockIdx.x / Config::kBlocks; number < view.batch; number += gridDim.x / Config::kBlocks) {
        const std::uint32_t* const switched = switched_of<typename Config::Step, Config::kLanes>(view, number);
        std::uint32_t exponents[Config::kKeys];
        Config::Step::load_exponents(switched, 0, exponents);
        typename Thread::Ahead ahead(served[0].key_of(view));
        ahead.fill();
#pragma unroll 1
        for (int step = 0; step < view.steps; ++step, ++turn) {
            const bool is_last = step + 1 == view.steps;
            std::uint32_t next_exponents[Config::kKeys];
            Config::Step::load_exponents(switched, is_last ? step : step + 1, next_exponents);
#pragma unroll
            for (int i = 0; i < kServed; ++i) {
                served[i].send_combined(ahead, exponents, turn & 1, turn >> 1 & 1);
                const bool next_step = i + 1 == kServed;
                ahead.words =
                    served[next_step ? 0 : i + 1].key_of(view) + (next_step && !is_last ? step + 1 : step) * Config::kStepVectors;
                ahead.fill();
            }
#pragma unroll
            for (int j = 0; j < Config::kKeys; ++j) exponents[j] = next_exponents[j];
        }
    }
}

// The rest of all steps. Sixty lines: as blind_rotate_one_limb_kernel.
template <class Config, int limb>
__device__ __forceinline__ void transform_in_cluster(const BlindRotateView& view, std::int32_t* shared, int index) {
    using Thread = ClusterThread<Config, limb>;
    using Layout = typename Config::Layout;
    const auto thread = Thread::make(shared, index);
    const auto twiddles = Thread::Ntt::KeptTwiddles::load(static_cast<const Twiddle*>(view.plain_twiddles[limb]), thread.t);
    int turn = 0;  // exchanges of each kind so far
    for (int number = blockIdx.x / Config::kBlocks; number < view.batch; number += gridDim.x / Config::kBlocks) {
        const std::uint32_t* const switched = switched_of<typename Config::Step, Config::kLanes>(view, number);
        typename Thread::Accumulator acc;
        thread.start(acc, view, number);
        typename Thread::Ahead ahead(thread.key_of(view));
        std::uint32_t exponents[Config::kKeys];
        if constexpr (!Config::kHasCombiners) {
            ahead.fill();
            Config::Step::load_exponents(switched, 0, exponents);
        }
        [[maybe_unused]] typename Thread::Combined combined;
#pragma unroll 1
        for (int step = 0; step < view.steps; ++step, ++turn) {
            const int buffer = turn & 1, parity = turn >> 1 & 1;
            [[maybe_unused]] const bool is_last = step + 1 == view.steps;
            std::uint32_t next_exponents[Config::kKeys];
            if constexpr (!Config::kHasCombiners) Config::Step::load_exponents(switched, is_last ? step : step + 1, next_exponents);
            [[maybe_unused]] const auto next_key = [&] {
                ahead.words += is_last ? 0 : Config::kStepVectors;
                ahead.fill();
            };

            thread.send_rows(acc, twiddles, buffer);
            if constexpr (Config::kHasCombiners) {
                thread.receive_combined(combined, buffer, parity);
            } else if constexpr (Layout::keys_first) {
                thread.combine(ahead, exponents, combined);
                next_key();
            }
            thread.receive_rows(buffer, parity);
            std::int32_t x[1][Config::P];
            if constexpr (Layout::keys_first) {
                thread.multiply_combined(combined, buffer, x[0]);
            } else {
                thread.multiply_rows(ahead, exponents, buffer, x[0]);
                next_key();
            }
            if constexpr (!Config::kHasCombiners)
#pragma unroll
                for (int j = 0; j < Config::kKeys; ++j) exponents[j] = next_exponents[j];

            thread.add(acc, twiddles, x);
            if constexpr (Config::kLimbs == 2) thread.send_residues(acc, buffer);
            if constexpr (Config::kLimbs == 2) thread.receive_residues(acc, buffer, parity);
        }
        thread.store(acc, view, number);
    }
}

// By the blocks of one limb.
template <class Config, int limb>
__device__ __forceinline__ void rotate_in_cluster(const BlindRotateView& view, std::int32_t* shared) {
    copy_powers<Config::kThreads, typename Config::PowerTable>(shared, view.powers + limb * Config::PowerTable::kSize);
    auto* const arrivals = reinterpret_cast<Arrivals*>(shared + Config::kArrivalWord);
    for (int i = threadIdx.x; i < Config::kArrivals; i += Config::kThreads) begin_arrivals(arrivals + i);
    __syncthreads();
    arrive_at_cluster();
    wait_for_cluster();  // everyone's arrivals have begun
    const int index = static_cast<int>(threadIdx.x);
    if (!Config::kHasCombiners || index < Config::T) {
        transform_in_cluster<Config, limb>(view, shared, index);
    } else if constexpr (Config::kHasCombiners) {
        combine_in_cluster<Config, limb>(view, shared, index - Config::T);
    }
    arrive_at_cluster();
    wait_for_cluster();  // a block stays while others write into it
}

template <class Config>
__global__ __launch_bounds__(Config::kThreads, 1) void blind_rotate_cluster_kernel(const BlindRotateView view) {
#if !defined(__CUDA_ARCH__) || defined(CLOAKWORK_HAS_CLUSTERS)  // elsewhere never launched
    extern __shared__ __align__(16) std::int32_t shared[];
    std::int32_t* const memory = own_memory(shared);
    if constexpr (Config::kLimbs == 1)
        rotate_in_cluster<Config, 0>(view, memory);
    else if (cluster_rank() < Config::kComponents)
        rotate_in_cluster<Config, 0>(view, memory);
    else
        rotate_in_cluster<Config, 1>(view, memory);
#endif
}

template <class KernelShapeOf, class LayoutOf>
RotationKernel kernel_of(ClusterConfig<KernelShapeOf, LayoutOf>) {
    return blind_rotate_cluster_kernel<ClusterConfig<KernelShapeOf, LayoutOf>>;
}

// Enqueues it over `clusters` clusters at most.
template <class Config>
cudaError_t launch_clusters(const BlindRotateView& view, int clusters, cudaStream_t stream) {
    const int count = view.batch < clusters ? view.batch : clusters;
    return enqueue_clusters(kernel_of(Config{}), static_cast<std::size_t>(count) * Config::kBlocks, Config::kBlocks,
                            Config::kThreads, Config::kSharedBytes, stream, view);
}

#endif

}  // namespace fhe_core::cuda
