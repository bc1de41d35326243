// Blind rotation with two key bits per step, two limbs, one digit per component: ACC += sum_j (X^e_j - 1) * (K_j [x] ACC), all
// steps in one persistent kernel (docs/specification.md, section 6; reference::blind_rotate). N = H * 1024, H = 1, 2, 4.
//
// Who does what. A group of 2*H*W warps owns one ciphertext. Warp (w, limb, part) works modulo one limb prime on positions
// part*1024
// .. +1023 of the transform: it transforms the components w, w + W, .. and multiplies the 4-point groups w, w + W, .. of a lane.
// The group's threads share the coefficients of ACC, both limbs in registers: thread t holds i, i + 1024, .. (H of them) of
// component c for every c*1024 + i = t + 64*H*W*r.
//
//   each step: threads: ACC, both limbs -> digits -> first log2 H stages -> T             barrier: the digits are there
//              warps: the other stages, each component; products in place; inverse        (W > 1: a barrier of the W warps of a
//              transforms but for log2 H stages                                            limb and part around the products)
//                                                                                         barrier: the updates are there
//              threads: last log2 H stages of the inverse, ACC += update
//
// What remains of a transform after its first log2 H stages is WarpNtt of 1024 points with other twiddles. A thread reads updates
// from and writes digits to the same words of T, and a lane does so in the parts of a transform, so that only the exchanges inside
// a transform need __syncwarp.
//
// Shared memory: powers of the 2N-th roots of both limbs, word x at x + x/32; twiddles (TwoLimbTables); per group T[limb][part]
// [component][1024]. The modulus is a run-time value: one code path for both limbs.
//
// Key: KeyOrder::warp with 32*H lanes (lane part*32 + l of KeyLayout is lane l of that part), each word K * 2^64 / N modulo its
// limb's prime, centred. Sizes as in blind_rotate_pair.cuh.
//
// Source: as blind_rotate_pair.cuh, [BMMP18]; two limbs and one digit are ours.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "cuda/blind_rotate_pair.cuh"

namespace fhe_core::cuda {

// Modulus<limb> as run-time values, and its operations on them (modulus.cuh says the ranges).
struct LimbModulus {
    std::uint32_t p, negated, p_inverse;

    FHE_HD static LimbModulus of(int limb) {
        const std::uint32_t p = limb == 0 ? Modulus<0>::p : Modulus<1>::p;
        return {p, 0u - p, limb == 0 ? Modulus<0>::p_inverse : Modulus<1>::p_inverse};
    }
    FHE_HD std::int32_t multiply_add(std::int32_t a, std::int32_t x, Twiddle w) const {
        const auto quotient = static_cast<std::uint32_t>(multiply_high(x, w.companion));
        const std::uint32_t sum =
            static_cast<std::uint32_t>(a) + static_cast<std::uint32_t>(x) * static_cast<std::uint32_t>(w.value);
        return wrap(sum + quotient * negated);
    }
    FHE_HD void forward_butterfly(std::int32_t& a, std::int32_t& b, Twiddle w) const {
        const std::int32_t sum = multiply_add(a, b, w);
        b = wrap_sub(wrap_add(a, a), sum);
        a = sum;
    }
    FHE_HD void inverse_butterfly(std::int32_t& a, std::int32_t& b, Twiddle w_mirror) const {
        const std::int32_t difference = wrap_sub(b, a);
        a = wrap_add(a, b);
        b = multiply_add(0, difference, w_mirror);
    }
    FHE_HD std::int32_t reduce(std::int32_t x) const {
        const auto quotient = static_cast<std::uint32_t>(wrap_add(x, 1 << 26) >> 27);
        return wrap(static_cast<std::uint32_t>(x) + quotient * negated);
    }
    FHE_HD std::int32_t montgomery(std::int64_t sum) const { return cuda::montgomery(sum, p, p_inverse); }
};

// Twiddles of one part of one limb's transform.
struct alignas(16) PartTwiddles {
    TwiddlePair row[16 * 32];  // [vector][lane], WarpNtt<0, 1024>::twiddle_index
    Twiddle slot[32];
};

template <class KernelShapeOf, int groups_per_block, int warps_per_part, bool keys_first = true>
struct TwoLimbConfig {
    static constexpr Shape shape = KernelShapeOf::value;
    using Row = WarpNtt<0, 1024>;  // coordinates and ranges, which do not depend on the limb
    static constexpr int N = shape.polynomial_size, k = shape.glwe_dimension;
    static constexpr int kParts = N / 1024, kComponents = k + 1, kRows = kComponents, kKeys = 3, kVectors = 8;
    static constexpr int kLogSize = log2_of(N), kGroups = groups_per_block;
    static constexpr int kWarpsPerPart = warps_per_part;  // W
    static constexpr int kWarpsPerGroup = 2 * kParts * kWarpsPerPart;
    static constexpr int kGroupThreads = kWarpsPerGroup * 32, kThreads = kGroupThreads * kGroups;
    static constexpr int kShare = kComponents * 1024 / kGroupThreads;  // coefficients of a thread, times kParts
    static constexpr int kDrop = 2 * kLimbBits - shape.mask_gadget.base_log;

    static constexpr int kLimbPowerWords = 2 * N + 2 * N / 32;
    static constexpr bool kPowersShared = N < 4096;  // else they do not fit
    static constexpr int kPowerWords = kPowersShared ? 2 * kLimbPowerWords : 0;
    static constexpr int kTableWords = 2 * kParts * static_cast<int>(sizeof(PartTwiddles) / 4);
    static constexpr int kTileWords = kComponents * 1024;  // of a limb and part
    static constexpr int kGroupWords = 2 * kParts * kTileWords;
    static constexpr int kBarriers = 1 + (kWarpsPerPart > 1 ? 2 * kParts : 0);  // named, of a group
    // Few rows: factors times keys, then one reduction and one product per row; else sums over the rows, reduced and times factors.
    static constexpr bool kKeysFirst = keys_first && kRows == 2;
    static constexpr std::size_t kSharedBytes = 4 * (kPowerWords + kTableWords + kGroups * kGroupWords);
    static constexpr std::size_t kOutputVectors = std::size_t(kVectors) * kRows * kKeys * 32 * kParts;  // one output of one limb

    // Units of p.
    static constexpr double kForwardBound = 0.07 + 1.25 * kLogSize;
    static constexpr double kRatio = Modulus<1>::p / 4294967296.0;  // p / 2^32
    static constexpr double kProductBound = (kKeysFirst ? 0.75 : kRows * kForwardBound / 2) * kRatio + 0.5;
    static constexpr double kInputBound = (kKeysFirst ? kRows * kForwardBound : 1.5) * kProductBound * kRatio + 0.5;
    static constexpr int kInverseInput = kInputBound <= 0.7 ? 700 : 1000;
    static constexpr typename Row::InversePlan kInversePlan = Row::make_inverse_plan(kInverseInput);

    // The inverse as WarpNtt plans it; then the slots whose H-fold would be too much for accumulate_exact are reduced.
    static constexpr std::array<bool, 32> reduced_slots() {
        int bound[32] = {};
        for (int& b : bound) b = kInverseInput;
        for (int stage = 0; stage < 10; ++stage) {
            const int index = stage + (stage >= 5), bit = stage % 5;
            if (stage == 5) {
                int largest = 0;
                for (int s = 0; s < 32; ++s) {
                    if (kInversePlan.reduces[5][s]) bound[s] = Row::kReduced;
                    largest = bound[s] > largest ? bound[s] : largest;
                }
                for (int& b : bound) b = largest;
            }
            for (int s = 0; s < 32; ++s)
                if (kInversePlan.reduces[index][s]) bound[s] = Row::kReduced;
            for (int a = 0; a < 32; ++a)
                if (const int b = a | 1 << bit; b != a) bound[a] += bound[b], bound[b] = Row::kProduct;
        }
        std::array<bool, 32> reduced{};
        for (int s = 0; s < 32; ++s) reduced[s] = bound[s] * kParts > Row::kPairLimit;
        return reduced;
    }
    static constexpr std::array<bool, 32> kReducedSlots = reduced_slots();

    static_assert(shape.cmux == CmuxKind::binary_pair && shape.limb_count == 2 && shape.mask_gadget == shape.body_gadget &&
                      shape.mask_gadget.level_count == 1 && shape.mask_gadget.base_log <= 24,
                  "this kernel takes two key bits per step, two limbs and one digit");
    static_assert(kParts == 1 || kParts == 2 || kParts == 4, "N is 1024, 2048 or 4096");
    static_assert(kForwardBound < 16, "digits overflow 31 bits in the forward transform");
    static_assert(kRows * kForwardBound / 2 < 256, "sums over the rows overflow 62 bits");  // 2^8 * p^2 < 2^62
    static_assert(kInputBound * 1000 <= kInverseInput && kInversePlan.result <= 15000,
                  "the inverse transform plans for its inputs");
    static_assert(kComponents * 1024 % kGroupThreads == 0 && kShare > 0, "threads share the coefficients evenly");
    static_assert(kGroups * kBarriers <= 15, "a block has 16 named barriers");
    static_assert(kSharedBytes <= 227 * 1024, "shared memory of one multiprocessor");
};

FHE_HD Vec4 load_two_limb_key(const Vec4* address) {
#ifdef __CUDA_ARCH__
    return load_key(address);
#else
    return *address;
#endif
}

// One thread's view of its group's work. Functions marked (a), (b), .. run in this order with __syncwarp in between.
template <class Config>
struct TwoLimbThread {
    using Row = typename Config::Row;
    static constexpr int H = Config::kParts, N = Config::N, kComponents = Config::kComponents, kShare = Config::kShare;
    static constexpr int kTileWords = Config::kTileWords;

    int thread, lane, limb, part, number;  // number: w
    LimbModulus modulus;
    const std::int32_t* powers;    // of this limb
    const PartTwiddles* table;     // of this part
    const PartTwiddles* mirrored;  // of the mirror part, for the inverse
    std::int32_t* group_tiles;     // T[limb][part][component][1024]
    std::int32_t* tile;            // of this limb and part
    std::uint32_t lane_root;       // 2*brv(first position of the lane) + 1
    const Vec4* key;               // of this limb, part and lane, first step

    FHE_HD static TwoLimbThread make(int thread, const std::int32_t* powers, const PartTwiddles* tables, std::int32_t* group_words,
                                     const Vec4* key) {
        TwoLimbThread t;
        const int warp = thread / 32;
        t.thread = thread;
        t.lane = thread % 32;
        t.limb = warp / H % 2;  // warps of one w are neighbours, so that the four schedulers share them evenly
        t.part = warp % H;
        t.number = warp / (2 * H);
        t.modulus = LimbModulus::of(t.limb);
        t.powers = powers + t.limb * (Config::kPowersShared ? Config::kLimbPowerWords : 2 * N);
        t.table = tables + t.limb * H + t.part;
        t.mirrored = tables + t.limb * H + (H - 1 - t.part);
        t.group_tiles = group_words;
        t.tile = group_words + (t.limb * H + t.part) * kTileWords;
        t.lane_root = 2 * reverse(static_cast<std::uint32_t>(t.part * 32 + t.lane), 5 + log2_of(H)) + 1;
        t.key = key + std::size_t(t.limb) * kComponents * Config::kOutputVectors + t.part * 32 + t.lane;
        return t;
    }
    FHE_HD static std::uint32_t reverse(std::uint32_t value, int bits) {
#ifdef __CUDA_ARCH__
        return __brev(value) >> (32 - bits);
#else
        return static_cast<std::uint32_t>(bit_reverse(static_cast<int>(value), bits));
#endif
    }

    // --- Coefficients: words y[r][h][limb] = x + (p-1)/2 in [0, p) for the centred x ---

    using Share = std::uint32_t[kShare][H][2];

    FHE_HD int place(int r) const { return thread + Config::kGroupThreads * r; }  // component*1024 + i

    FHE_HD void start(Share& y, const std::uint64_t* test_table, std::uint32_t rotation) const {
#pragma unroll
        for (int r = 0; r < kShare; ++r)
#pragma unroll
            for (int h = 0; h < H; ++h) {
                const bool is_body = place(r) >> 10 == kComponents - 1;
                const std::uint32_t index = ((place(r) & 1023) + 1024 * h + rotation) & (2 * N - 1);
                const std::uint64_t word = is_body ? test_table[index & (N - 1)] : 0;
                y[r][h][0] = with_half<Modulus<0>>(word, index >= N);
                y[r][h][1] = with_half<Modulus<1>>(word, index >= N);
            }
    }
    template <class M>
    FHE_HD static std::uint32_t with_half(std::uint64_t word, bool negative) {
        std::uint32_t x = static_cast<std::uint32_t>(word % M::p);
        if (negative && x != 0) x = M::p - x;
        return x + M::half < M::p ? x + M::half : x + M::half - M::p;
    }

    // Section 4 for one level: with centred x0 and t = (x1 - x0) / q0 mod q1, x0 + q0*t is the centred representative. Then the
    // first log2 H stages of the transform.
    FHE_HD void decompose(const Share& y) const {
        using M0 = Modulus<0>;
        using M1 = Modulus<1>;
        constexpr Twiddle inverse = M1::twiddle(inverse_mod(M0::p, M1::p));
#pragma unroll
        for (int r = 0; r < kShare; ++r) {
            std::int32_t digit[H];
#pragma unroll
            for (int h = 0; h < H; ++h) {
                const std::int32_t x0 = wrap(y[r][h][0]) - M0::half, x1 = wrap(y[r][h][1]) - M1::half;
                std::int32_t t = multiply_add<M1>(0, x1 - x0, inverse);  // [-q1/4, 5*q1/4)
                if (t > M1::half) t -= static_cast<std::int32_t>(M1::p);
                const std::int64_t x = std::int64_t{t} * static_cast<std::int32_t>(M0::p) + x0;
                digit[h] = static_cast<std::int32_t>((x + (std::int64_t{1} << (Config::kDrop - 1))) >> Config::kDrop);
            }
            std::int32_t* const word = words_of(r);
            fold_limb<0>(digit, word);
            fold_limb<1>(digit, word + H * kTileWords);
        }
    }
    // Coefficient i of a component in a limb's first part.
    FHE_HD std::int32_t* words_of(int r) const {
        const int i = place(r) & 1023;
        return group_tiles + (place(r) - i) + Row::row_word(i >> 5, i & 31);
    }
    template <int number>
    struct FoldTwiddles {
        using M = Modulus<number>;
        static constexpr std::uint32_t root = root_of_unity(M::p, 2 * N, M::sqrt_minus_one);
        static constexpr Twiddle w1 = M::twiddle(pow_mod(root, N / 2, M::p)), w2 = M::twiddle(pow_mod(root, N / 4, M::p)),
                                 w3 = M::twiddle(pow_mod(root, N / 4 * 3, M::p));
    };
    template <int number>
    FHE_HD static void fold_limb(const std::int32_t (&digit)[H], std::int32_t* word) {
        using M = Modulus<number>;
        using Fold = FoldTwiddles<number>;
        std::int32_t x[H];
#pragma unroll
        for (int h = 0; h < H; ++h) x[h] = digit[h];
        if constexpr (H == 4) {
            forward_butterfly<M>(x[0], x[2], Fold::w1);
            forward_butterfly<M>(x[1], x[3], Fold::w1);
            forward_butterfly<M>(x[0], x[1], Fold::w2);
            forward_butterfly<M>(x[2], x[3], Fold::w3);
        } else if constexpr (H == 2) {
            forward_butterfly<M>(x[0], x[1], Fold::w1);
        }
#pragma unroll
        for (int h = 0; h < H; ++h) word[h * kTileWords] = x[h];
    }

    // The last log2 H stages of the inverse transform, and ACC += update.
    FHE_HD void accumulate(Share& y) const {
#pragma unroll
        for (int r = 0; r < kShare; ++r) {
            const std::int32_t* word = words_of(r);
            accumulate_limb<0>(y[r], word);
            accumulate_limb<1>(y[r], word + H * kTileWords);
        }
    }
    template <int number>
    FHE_HD static void accumulate_limb(std::uint32_t (&y)[H][2], const std::int32_t* word) {
        using M = Modulus<number>;
        using Fold = FoldTwiddles<number>;
        std::int32_t delta[H];
#pragma unroll
        for (int h = 0; h < H; ++h) delta[h] = word[h * kTileWords];
        if constexpr (H == 4) {
            inverse_butterfly<M>(delta[0], delta[1], Fold::w3);
            inverse_butterfly<M>(delta[2], delta[3], Fold::w2);
            inverse_butterfly<M>(delta[0], delta[2], Fold::w1);
            inverse_butterfly<M>(delta[1], delta[3], Fold::w1);
        } else if constexpr (H == 2) {
            inverse_butterfly<M>(delta[0], delta[1], Fold::w1);
        }
#pragma unroll
        for (int h = 0; h < H; ++h) y[h][number] = accumulate_exact<M>(y[h][number], delta[h]);
    }

    // [component][N] words in [0, Q) in place of T.
    FHE_HD void store_words(const Share& y) const {
        auto* words = reinterpret_cast<std::uint64_t*>(group_tiles);
#pragma unroll
        for (int r = 0; r < kShare; ++r)
#pragma unroll
            for (int h = 0; h < H; ++h)
                words[(place(r) >> 10) * N + 1024 * h + (place(r) & 1023)] =
                    compose_limbs(without_half<Modulus<0>>(y[r][h][0]), without_half<Modulus<1>>(y[r][h][1]));
    }
    template <class M>
    FHE_HD static std::uint32_t without_half(std::uint32_t y) {
        return y < M::half ? y + (M::p - M::half) : y - M::half;
    }

    // --- Transforms of one component ---

    FHE_HD void forward_a(int component, std::int32_t (&x)[32]) const {
        Row::load_slots(x, tile + component * 1024, lane);
        static_for<0, 5>([&](auto stage) {
            static_for<0, 16>([&](auto pair) {
                constexpr int half = 16 >> decltype(stage)::value, block = decltype(pair)::value / half;
                constexpr int a = block * 2 * half + decltype(pair)::value % half;
                modulus.forward_butterfly(x[a], x[a + half], table->slot[(1 << decltype(stage)::value) + block]);
            });
        });
        Row::store_slots(x, tile + component * 1024, lane);
    }
    FHE_HD void forward_b(int component, std::int32_t (&x)[32]) const {
        Row::load_row(x, tile + component * 1024, lane);
        static_for<1, 32>([&](auto number) {
            constexpr int ordinal = decltype(number)::value, stage = Row::log2_floor(ordinal);
            constexpr int half = 32 >> (stage + 1), block = ordinal - (1 << stage);
            const Twiddle w = table->row[(ordinal >> 1) * 32 + lane].x[ordinal & 1];
            static_for<0, half>([&](auto i) {
                constexpr int a = block * 2 * half + decltype(i)::value;
                modulus.forward_butterfly(x[a], x[a + half], w);
            });
        });
        Row::store_row(x, tile + component * 1024, lane);
    }

    template <int step>
    FHE_HD void reduce_planned(std::int32_t (&x)[32]) const {
        static_for<0, 32>([&](auto slot) {
            constexpr int s = decltype(slot)::value;
            if constexpr (Config::kInversePlan.reduces[step][s]) x[s] = modulus.reduce(x[s]);
        });
    }
    FHE_HD void inverse_a(int component, std::int32_t (&x)[32]) const {
        Row::load_row(x, tile + component * 1024, lane);
        static_for<0, 5>([&](auto step) {
            constexpr int stage = 4 - decltype(step)::value, blocks = 1 << stage, half = 32 >> (stage + 1);
            reduce_planned<decltype(step)::value>(x);
            static_for<0, blocks>([&](auto block) {
                constexpr int ordinal = 2 * blocks - 1 - decltype(block)::value;
                const Twiddle w = mirrored->row[(ordinal >> 1) * 32 + 31 - lane].x[ordinal & 1];
                static_for<0, half>([&](auto i) {
                    constexpr int a = decltype(block)::value * 2 * half + decltype(i)::value;
                    modulus.inverse_butterfly(x[a], x[a + half], w);
                });
            });
        });
        reduce_planned<5>(x);
        Row::store_row(x, tile + component * 1024, lane);
    }
    FHE_HD void inverse_b(int component, std::int32_t (&x)[32]) const {
        Row::load_slots(x, tile + component * 1024, lane);
        static_for<0, 5>([&](auto step) {
            constexpr int stage = 4 - decltype(step)::value, half = 32 >> (stage + 1);
            reduce_planned<6 + decltype(step)::value>(x);
            static_for<0, 16>([&](auto pair) {
                constexpr int block = decltype(pair)::value / half, a = block * 2 * half + decltype(pair)::value % half;
                modulus.inverse_butterfly(x[a], x[a + half], mirrored->slot[(2 << stage) - 1 - block]);
            });
        });
        static_for<0, 32>([&](auto slot) {
            constexpr int s = decltype(slot)::value;
            if constexpr (Config::kReducedSlots[s]) x[s] = modulus.reduce(x[s]);
        });
        Row::store_slots(x, tile + component * 1024, lane);
    }

    // --- Product, in place ---

    FHE_HD std::int32_t power(std::uint32_t exponent) const {
        const std::uint32_t x = exponent & (2 * N - 1);
        return powers[Config::kPowersShared ? x + (x >> 5) : x];
    }

    // Key words of three products (output, j), the ones to come.
    static constexpr int kLanes = 32 * H, kRows = Config::kRows;
    using Ahead = Vec4[3][kRows];

    // Of the warp's first vector.
    FHE_HD const Vec4* key_of(int step) const {
        return key + std::size_t(step) * 2 * kComponents * Config::kOutputVectors + number * kRows * 3 * kLanes;
    }

    // Key j of one row and output, `vectors` after the vector at `words`.
    FHE_HD static Vec4 load_word(const Vec4* words, int vectors, int output, int row, int j) {
        return load_two_limb_key(words + output * static_cast<int>(Config::kOutputVectors) +
                                 ((vectors * kRows + row) * 3 + j) * kLanes);
    }
    FHE_HD void load_ahead(int step, Ahead& ahead) const {
#pragma unroll
        for (int row = 0; row < kRows; ++row)
#pragma unroll
            for (int j = 0; j < 3; ++j) ahead[j][row] = load_word(key_of(step), 0, 0, row, j);
    }

    FHE_HD void product(int step, Ahead& ahead, std::uint32_t first, std::uint32_t second) const {
        const Vec4* words = key_of(step);
        const std::uint32_t exponents[3] = {first, second, first + second};
#pragma unroll 1
        for (int vector = number; vector < Config::kVectors; vector += Config::kWarpsPerPart) {
            std::int32_t* const word = tile + Row::row_chunk(lane, vector);
            Vec4 digit[kRows];
#pragma unroll
            for (int row = 0; row < kRows; ++row) digit[row] = *reinterpret_cast<const Vec4*>(word + row * 1024);
            std::int32_t factor[3][4];
            const std::uint32_t reversed = reverse(static_cast<std::uint32_t>(vector), 3);
#pragma unroll
            for (int j = 0; j < 3; ++j) {
                const std::uint32_t at = exponents[j] * (lane_root + 2 * kLanes * reversed);
                const std::int32_t sign = -static_cast<std::int32_t>(exponents[j] & 1);
#pragma unroll
                for (int pair = 0; pair < 2; ++pair) {
                    const std::int32_t value = power(at + exponents[j] * (16 * kLanes * pair));
                    factor[j][2 * pair] = value - 1;
                    factor[j][2 * pair + 1] = (value ^ sign) - sign - 1;
                }
            }
#pragma unroll
            for (int output = 0; output < kComponents; ++output) {
                // After the last vector of the first output lies the second output: read, not used.
                const int next_vector = output + 1 == kComponents ? Config::kWarpsPerPart : 0;
                const int next_output = output + 1 < kComponents ? output + 1 : 0;
                std::int64_t total[4] = {};
                if constexpr (Config::kKeysFirst) {
#pragma unroll
                    for (int row = 0; row < kRows; ++row) {
                        std::int64_t sum[4] = {};
#pragma unroll
                        for (int j = 0; j < 3; ++j) {
#pragma unroll
                            for (int i = 0; i < 4; ++i) sum[i] += multiply_wide(factor[j][i], ahead[j][row].x[i]);
                            ahead[j][row] = load_word(words, next_vector, next_output, row, j);
                        }
#pragma unroll
                        for (int i = 0; i < 4; ++i) total[i] += multiply_wide(digit[row].x[i], modulus.montgomery(sum[i]));
                    }
                } else {
#pragma unroll
                    for (int j = 0; j < 3; ++j) {
                        std::int64_t sum[4] = {};
#pragma unroll
                        for (int row = 0; row < kRows; ++row) {
#pragma unroll
                            for (int i = 0; i < 4; ++i) sum[i] += multiply_wide(digit[row].x[i], ahead[j][row].x[i]);
                            ahead[j][row] = load_word(words, next_vector, next_output, row, j);
                        }
#pragma unroll
                        for (int i = 0; i < 4; ++i) total[i] += multiply_wide(factor[j][i], modulus.montgomery(sum[i]));
                    }
                }
                *reinterpret_cast<Vec4*>(word + output * 1024) = {{modulus.montgomery(total[0]), modulus.montgomery(total[1]),
                                                                   modulus.montgomery(total[2]), modulus.montgomery(total[3])}};
            }
            words += kRows * 3 * kLanes * Config::kWarpsPerPart;
        }
    }
};

#if defined(__CUDACC__) || defined(CLOAKWORK_EMULATE_WARPS)

template <class Config>
__global__ __launch_bounds__(Config::kThreads, 1) void blind_rotate_two_limbs_kernel(const BlindRotateView view) {
    constexpr int N = Config::N, k = Config::k, kComponents = Config::kComponents;
    extern __shared__ __align__(16) std::int32_t shared[];
    auto* twiddles = reinterpret_cast<PartTwiddles*>(shared + Config::kPowerWords);
    for (int i = threadIdx.x; i < Config::kTableWords; i += Config::kThreads)
        shared[Config::kPowerWords + i] = static_cast<const std::int32_t*>(view.twiddles)[i];
    if constexpr (Config::kPowersShared) {
        for (int x = threadIdx.x; x < 4 * N; x += Config::kThreads) {
            const int at = x & (2 * N - 1);
            shared[(x >= 2 * N ? Config::kLimbPowerWords : 0) + at + (at >> 5)] = view.powers[x];
        }
    }
    __syncthreads();

    const int group = threadIdx.x / Config::kGroupThreads, lwe_size = 2 * view.steps + 1;
    const auto thread = TwoLimbThread<Config>::make(
        threadIdx.x % Config::kGroupThreads, Config::kPowersShared ? shared : view.powers, twiddles,
        shared + Config::kPowerWords + Config::kTableWords + group * Config::kGroupWords, static_cast<const Vec4*>(view.key));
    const auto group_barrier = [&] { barrier(1 + group, Config::kGroupThreads); };
    const auto part_barrier = [&] {
        if constexpr (Config::kWarpsPerPart > 1)
            barrier(1 + Config::kGroups + group * 2 * Config::kParts + thread.limb * Config::kParts + thread.part,
                    32 * Config::kWarpsPerPart);
    };

    for (int number = group * gridDim.x + blockIdx.x; number < view.batch; number += gridDim.x * Config::kGroups) {
        const std::uint32_t* switched = view.switched + std::size_t(number) * lwe_size;
        typename TwoLimbThread<Config>::Share y;
        thread.start(
            y, static_cast<const std::uint64_t*>(view.tables) + std::size_t(view.table_index ? view.table_index[number] : 0) * N,
            switched[lwe_size - 1]);
#pragma unroll 1
        for (int step = 0; step < view.steps; ++step) {
            const std::uint32_t first = __ldg(switched + 2 * step), second = __ldg(switched + 2 * step + 1);
            thread.decompose(y);
            group_barrier();  // the digits are there
#pragma unroll 1
            for (int component = thread.number; component < kComponents; component += Config::kWarpsPerPart) {
                std::int32_t x[32];
                thread.forward_a(component, x);
                __syncwarp();
                thread.forward_b(component, x);
            }
            typename TwoLimbThread<Config>::Ahead ahead;
            thread.load_ahead(step, ahead);  // earlier would cost registers that the transforms need
            part_barrier();                  // all components are there
            thread.product(step, ahead, first, second);
            part_barrier();
#pragma unroll 1
            for (int component = thread.number; component < kComponents; component += Config::kWarpsPerPart) {
                std::int32_t x[32];
                thread.inverse_a(component, x);
                __syncwarp();
                thread.inverse_b(component, x);
            }
            group_barrier();  // the updates are there
            thread.accumulate(y);
        }

        group_barrier();  // everyone has read the updates
        thread.store_words(y);
        group_barrier();
        const auto* words = reinterpret_cast<const std::uint64_t*>(thread.group_tiles);
        auto* out = static_cast<std::uint64_t*>(view.out);
        if (view.coefficients == nullptr) {
            for (int i = thread.thread; i < kComponents * N; i += Config::kGroupThreads)
                out[std::size_t(number) * kComponents * N + i] = words[i];
        } else {
            constexpr std::uint64_t modulus = std::uint64_t{kLimbPrimes[0]} * kLimbPrimes[1];
            for (int i = 0; i < view.coefficient_count; ++i) {  // section 7
                const int coefficient = view.coefficients[i];
                std::uint64_t* lwe = out + (std::size_t(number) * view.coefficient_count + i) * (k * N + 1);
                for (int j = thread.thread; j < k * N; j += Config::kGroupThreads) {
                    const int at = j & (N - 1);
                    const std::uint64_t word = words[(j - at) + ((coefficient - at) & (N - 1))];
                    lwe[j] = at <= coefficient || word == 0 ? word : modulus - word;
                }
                if (thread.thread == 0) lwe[k * N] = words[k * N + coefficient];
            }
        }
        group_barrier();  // T is free
    }
}

// Enqueues the kernel over all multiprocessors; view.batch >= 1.
template <class Config>
cudaError_t launch_blind_rotate_two_limbs(const BlindRotateView& view, int multiprocessors, cudaStream_t stream) {
    const int blocks = view.batch < multiprocessors ? view.batch : multiprocessors;
    return enqueue(blind_rotate_two_limbs_kernel<Config>, blocks, Config::kThreads, Config::kSharedBytes, stream, view);
}

#endif

// --- Host side: tables ---

template <class Config, int limb>
void append_part_twiddles(std::vector<PartTwiddles>& tables) {
    constexpr int H = Config::kParts;
    const std::vector<Twiddle> all = plain_twiddles<limb>(Config::N, Config::kLogSize);
    for (int part = 0; part < H; ++part) {
        // Block b of t in the part's own transform is block part*t + b of H*t in the whole one.
        const auto of_part = [&](int index) {
            const int t = 1 << Config::Row::log2_floor(index);
            return all[index + t * (H + part - 1)];
        };
        PartTwiddles table{};
        for (int vector = 0; vector < 16; ++vector)
            for (int lane = 0; lane < 32; ++lane)
                for (int i = 0; i < 2; ++i)
                    table.row[vector * 32 + lane].x[i] = of_part(Config::Row::twiddle_index(lane, 2 * vector + i));
        for (int ordinal = 1; ordinal < 32; ++ordinal) table.slot[ordinal] = of_part(ordinal);
        tables.push_back(table);
    }
}

// [limb][part]
template <class Config>
std::vector<PartTwiddles> two_limb_tables() {
    std::vector<PartTwiddles> tables;
    append_part_twiddles<Config, 0>(tables);
    append_part_twiddles<Config, 1>(tables);
    return tables;
}

// [limb][2N]
template <class Config>
std::vector<std::int32_t> two_limb_powers() {
    std::vector<std::int32_t> powers = plain_powers<0>(Config::N);
    const std::vector<std::int32_t> second = plain_powers<1>(Config::N);
    powers.insert(powers.end(), second.begin(), second.end());
    return powers;
}

}  // namespace fhe_core::cuda
