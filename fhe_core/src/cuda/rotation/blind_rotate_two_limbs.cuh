// Blind rotation with two key bits per step, two limbs, one to four digits per component: ACC += sum_j (X^e_j - 1) * (K_j [x] ACC),
// all steps in one persistent kernel (docs/reference/specification.md, section 6; reference::blind_rotate).
// N = H * 1024, H = 1, 2, 4.
//
// Who does what. A group of 2*H*W warps owns one ciphertext. Warp (w, limb, part) works modulo one limb prime on positions
// part*1024 .. part*1024 + 1023 of the transform: it transforms the digits w, w + W, .. and multiplies the 4-point groups
// w, w + W, .. of a lane. The group's threads share the coefficients of ACC, both limbs in registers: thread t holds i, i + 1024,
// .. (H of them) of component c for every c*1024 + i = t + 64*H*W*r.
//
//   each step, threads:  ACC, both limbs -> digits -> first log2 H stages -> T
//                        group barrier: the digits are there
//              warps:    the other stages, each digit; products in place; each component's inverse transform but for log2 H stages
//                        (W > 1: a barrier of the W warps of a limb and part before and after the products)
//                        group barrier: the updates are there
//              threads:  last log2 H stages of the inverse, ACC += update
//
// Steps whose digits select keys ([DM15]) go the same way with one key, no factors, and ACC = update; a digit of 0 skips the step
// for all warps of the group. Keys of a step of the ciphertexts in flight are on their way to L2 two steps ahead.
//
// What remains of a transform after its first log2 H stages is WarpNtt of 1024 points with other twiddles. A thread reads updates
// from and writes digits to the same words of T, and a lane does so in the parts of a transform, so that only the exchanges inside
// a transform need __syncwarp.
//
// Shared memory: powers of the 2N-th roots of both limbs, word x at x + x/32; twiddles (TwoLimbTables); per group T[limb][part]
// [digit][1024], the digits of a component together, the most significant first; its update lies where that one lay. The modulus is
// a run-time value: one code path for both limbs.
//
// Key: KeyOrder::warp with 32*H lanes (lane part*32 + l of KeyLayout is lane l of that part), selected keys one after the other,
// each word K * 2^64 / N modulo its limb's prime, centred. Sizes as in blind_rotate_one_limb.cuh.
//
// Source: as blind_rotate_one_limb.cuh, [BMMP18]; two limbs and digits of them are ours.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/rotation/accumulator.cuh"
#include "cuda/rotation/digits.cuh"
#include "cuda/rotation/persistent.cuh"
#include "cuda/rotation/product.cuh"
#include "cuda/rotation/two_limb_part.cuh"

namespace fhe_core::cuda {

// One thread's view of its group's work. Functions marked (a), (b), .. run in this order with __syncwarp in between.
template <class Config>
struct TwoLimbThread : TwoLimbPart<Config> {
    using Part = TwoLimbPart<Config>;
    using Row = typename Config::Row;
    using Part::lane, Part::limb, Part::part, Part::modulus, Part::powers, Part::lane_root, Part::factors_at;
    static constexpr int H = Config::kParts, N = Config::N, kComponents = Config::kComponents, kShare = Config::kShare;
    static constexpr int kTileWords = Config::kTileWords, kLevels = Config::kLevels;

    int thread, number;         // number: w
    std::int32_t* group_tiles;  // T[limb][part][digit][1024]
    std::int32_t* tile;         // of this limb and part
    const Vec4* key;            // of this limb, part and lane, first step

    FHE_HD static TwoLimbThread make(int thread, const std::int32_t* powers, const PartTwiddles* tables, std::int32_t* group_words,
                                     const Vec4* key) {
        // Warps of one w are neighbours, so that the four schedulers share them evenly.
        const int warp = thread / 32, limb = warp / H % 2, part = warp % H;
        TwoLimbThread t{Part::make(thread % 32, limb, part, powers + limb * Config::PowerTable::kWords, tables + limb * H)};
        t.thread = thread;
        t.number = warp / (2 * H);
        t.group_tiles = group_words;
        t.tile = group_words + (limb * H + part) * kTileWords;
        t.key = key + std::size_t(limb) * kComponents * Config::kOutputVectors + part * 32 + t.lane;
        return t;
    }
    FHE_HD std::int32_t* tile_of(int row) const { return tile + row * 1024; }
    // Updates lie where a component's first digit lay.
    FHE_HD std::int32_t* update_of(int component) const { return tile_of(component * kLevels); }

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
                y[r][h][0] = with_half(Modulus<0>{}, rotated_residue(Modulus<0>{}, word, index >= N));
                y[r][h][1] = with_half(Modulus<1>{}, rotated_residue(Modulus<1>{}, word, index >= N));
            }
    }

    using Digits = WideDigits<Config::shape.mask_gadget, Config::kModulusBits>;

    // The digits of both limbs' coefficients; then the first log2 H stages of the transform.
    FHE_HD void decompose(const Share& y) const {
#pragma unroll
        for (int r = 0; r < kShare; ++r) {
            Digits digits[H];
#pragma unroll
            for (int h = 0; h < H; ++h)
                digits[h] = Digits::of(compose_centred(wrap(y[r][h][0]) - Modulus<0>::half, wrap(y[r][h][1]) - Modulus<1>::half));
            static_for<0, kLevels>([&](auto level) {
                std::int32_t digit[H];
#pragma unroll
                for (int h = 0; h < H; ++h) digit[h] = digits[h].template at<decltype(level)::value>();
                std::int32_t* const word = words_of(r) + decltype(level)::value * 1024;
                fold_limb<0>(digit, word);
                fold_limb<1>(digit, word + H * kTileWords);
            });
        }
    }
    // Coefficient i of a component in a limb's first part: its first digit, and its update.
    FHE_HD std::int32_t* words_of(int r) const {
        const int i = place(r) & 1023;
        return group_tiles + (place(r) - i) * kLevels + Row::row_word(i >> 5, i & 31);
    }
    template <int number>
    FHE_HD static void fold_limb(const std::int32_t (&digit)[H], std::int32_t* word) {
        std::int32_t x[H];
#pragma unroll
        for (int h = 0; h < H; ++h) x[h] = digit[h];
        fold<number, N>(x);
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
        std::int32_t delta[H];
#pragma unroll
        for (int h = 0; h < H; ++h) delta[h] = word[h * kTileWords];
        unfold<number, N>(delta);
#pragma unroll
        for (int h = 0; h < H; ++h)
            y[h][number] = accumulate_exact(Modulus<number>{}, kept(Modulus<number>{}, y[h][number]), delta[h]);
    }

    // What an update is added to: the word, or zero where the product replaces it.
    template <class M>
    FHE_HD static std::uint32_t kept(M, std::uint32_t y) {
        return Config::Step::kSelectsKey ? M::half : y;
    }

    static constexpr std::uint64_t kModulus = std::uint64_t{kLimbPrimes[0]} * kLimbPrimes[1];
    // [component][N] words in [0, Q) in place of T.
    FHE_HD std::uint64_t* words() const { return reinterpret_cast<std::uint64_t*>(group_tiles); }
    FHE_HD void store_words(const Share& y) const {
#pragma unroll
        for (int r = 0; r < kShare; ++r)
#pragma unroll
            for (int h = 0; h < H; ++h)
                words()[(place(r) >> 10) * N + 1024 * h + (place(r) & 1023)] =
                    compose_limbs(without_half(Modulus<0>{}, y[r][h][0]), without_half(Modulus<1>{}, y[r][h][1]));
    }

    // --- Product, in place ---

    static constexpr int kLanes = Part::kLanes, kRows = Config::kRows, kKeys = Config::kKeys;
    static constexpr int kVectorWords = kRows * kKeys * kLanes;  // of the key, one output
    static constexpr int kAhead = Config::kAhead;

    // The next kAhead vectors of the key, in the order in which the products of a vector take them: output by output, each row by
    // row with all its keys, or (rows first) key by key with all its rows.
    struct Ahead {
        static constexpr int kOutput = kRows * kKeys, kVector = kComponents * kOutput;  // vectors of the key

        const Vec4* words;  // of the vector's first output
        Vec4 held[kAhead];

        FHE_HD explicit Ahead(const Vec4* first) : words(first) {}  // held is left as it is until `fill`
        FHE_HD void fill() {
#pragma unroll
            for (int position = 0; position < kAhead; ++position) held[position] = load_key(words + place_of(position));
        }
        FHE_HD static constexpr int place_of(int position) {
            const int output = position / kOutput, i = position % kOutput;
            return output * static_cast<int>(Config::kOutputVectors) +
                   (Config::kKeysFirst ? i : i % kRows * kKeys + i / kRows) * kLanes;
        }
        FHE_HD const Vec4& at(int position) const { return held[position % kAhead]; }
        // In its place the one kAhead later, of the warp's next vector after the last. Behind the last vector lies the second
        // output: read, not used.
        FHE_HD void refill(int position) {
            const int next = position + kAhead;
            const Vec4* const from = next < kVector ? words : words + Config::kWarpsPerPart * kVectorWords;
            held[position % kAhead] = load_key(from + place_of(next % kVector));
        }
    };

    // Of the warp's first vector.
    FHE_HD const Vec4* key_of(std::size_t slice) const { return key + slice * Config::kSliceVectors + number * kVectorWords; }

    // Sums over the keys of factor times key, reduced, times digits.
    FHE_HD void multiply_keys_first(const Vec4 (&digit)[kRows], const std::int32_t (&factor)[kKeys][4], Ahead& ahead, int output,
                                    std::int64_t (&total)[4]) const {
#pragma unroll
        for (int row = 0; row < kRows; ++row) {
            std::int64_t sum[4] = {};
#pragma unroll
            for (int j = 0; j < kKeys; ++j) {
                const int position = (output * kRows + row) * kKeys + j;
                multiply_accumulate(sum, factor[j], ahead.at(position).x);
                ahead.refill(position);
            }
            multiply_reduced(modulus, total, digit[row].x, sum);
        }
    }
    // Sums over the rows of digit times key, reduced, times factors; of a selected key the sums.
    FHE_HD void multiply_rows_first(const Vec4 (&digit)[kRows], const std::int32_t (&factor)[kKeys][4], Ahead& ahead, int output,
                                    std::int64_t (&total)[4]) const {
#pragma unroll
        for (int j = 0; j < kKeys; ++j) {
            std::int64_t sum[4] = {};
#pragma unroll
            for (int row = 0; row < kRows; ++row) {
                const int position = (output * kKeys + j) * kRows + row;
                multiply_accumulate(sum, digit[row].x, ahead.at(position).x);
                ahead.refill(position);
            }
            if constexpr (Config::Step::kSelectsKey) {
#pragma unroll
                for (int i = 0; i < 4; ++i) total[i] = sum[i];
            } else {
                multiply_reduced(modulus, total, factor[j], sum);
            }
        }
    }

    // --- The same, key after key ---

    using Factors = FactorTable<N, Config::kPowersShared>;

    // The words of one key of one vector, all rows and outputs, loaded one key ahead.
    struct DeepKey {
        static constexpr int kStride = Config::kWarpsPerPart * kVectorWords;  // to the next vector of the warp

        const Vec4* words;
        Vec4 rows[kComponents][kRows];

        FHE_HD void load(const Vec4* from) {
#pragma unroll
            for (int output = 0; output < kComponents; ++output)
#pragma unroll
                for (int row = 0; row < kRows; ++row)
                    rows[output][row] = load_key(from + output * static_cast<int>(Config::kOutputVectors) + row * kKeys * kLanes);
        }
        // What comes after key j.
        template <int j>
        FHE_HD void refill(bool last) {
            if constexpr (j + 1 < kKeys)
                load(words + (j + 1) * kLanes);
            else if (!last)
                load(words + kStride);
        }
    };
    FHE_HD DeepKey deep_key(std::size_t slice) const {
        DeepKey ahead;
        ahead.words = key_of(slice);
        ahead.load(ahead.words);
        return ahead;
    }

    // `exponent_of(j)`: raised e_j.
    template <class ExponentOf>
    FHE_HD void deep_product(DeepKey ahead, const ExponentOf& exponent_of) const {
        const Factors factors{powers.words};
#pragma unroll 1
        for (int vector = number; vector < Config::kVectors; vector += Config::kWarpsPerPart) {
            const bool last = vector + Config::kWarpsPerPart >= Config::kVectors;
            const std::uint32_t turns = lane_root + 2 * kLanes * reverse_position(static_cast<std::uint32_t>(vector), 3);
            std::int32_t* const word = tile + Row::row_chunk(lane, vector);
            std::int64_t sums[kComponents][kRows][4] = {};
            static_for<0, kKeys>([&](auto key_index) {
                constexpr int j = decltype(key_index)::value;
                const std::uint32_t exponent = exponent_of(j), at = exponent * turns;
                const std::int32_t sign = Factors::sign(exponent);
                std::int32_t factor[4];
                factors.neighbours(at, sign, factor[0], factor[1]);
                factors.neighbours(at + exponent * (16 * kLanes), sign, factor[2], factor[3]);
#pragma unroll
                for (int output = 0; output < kComponents; ++output)
#pragma unroll
                    for (int row = 0; row < kRows; ++row) multiply_accumulate(sums[output][row], factor, ahead.rows[output][row].x);
                ahead.template refill<j>(last);
            });
            Vec4 products[kComponents];
            std::int64_t totals[kComponents][4] = {};
#pragma unroll
            for (int row = 0; row < kRows; ++row) {
                const Vec4 digit = *reinterpret_cast<const Vec4*>(word + row * 1024);
#pragma unroll
                for (int output = 0; output < kComponents; ++output)
                    multiply_reduced(modulus, totals[output], digit.x, sums[output][row]);
            }
#pragma unroll
            for (int output = 0; output < kComponents; ++output) products[output] = montgomery(modulus, totals[output]);
#pragma unroll
            for (int output = 0; output < kComponents; ++output)
                *reinterpret_cast<Vec4*>(word + output * (kLevels * 1024)) = products[output];
            ahead.words += DeepKey::kStride;
        }
    }

    // --- Coefficients in shared memory ---

    FHE_HD void load_share(Share& y, const Vec4* memory) const {
        auto* words = &y[0][0][0];
#pragma unroll
        for (int v = 0; v < Config::kShareVectors; ++v) {
            const Vec4 four = memory[v * Config::kGroupThreads + thread];
#pragma unroll
            for (int i = 0; i < 4; ++i) words[4 * v + i] = static_cast<std::uint32_t>(four.x[i]);
        }
    }
    FHE_HD void store_share(const Share& y, Vec4* memory) const {
        const auto* words = &y[0][0][0];
#pragma unroll
        for (int v = 0; v < Config::kShareVectors; ++v)
            memory[v * Config::kGroupThreads + thread] = {
                {wrap(words[4 * v]), wrap(words[4 * v + 1]), wrap(words[4 * v + 2]), wrap(words[4 * v + 3])}};
    }

    FHE_HD void product(Ahead& ahead, const std::uint32_t (&exponents)[kKeys]) const {
#pragma unroll 1
        for (int vector = number; vector < Config::kVectors; vector += Config::kWarpsPerPart) {
            std::int32_t* const word = tile + Row::row_chunk(lane, vector);
            Vec4 digit[kRows];
#pragma unroll
            for (int row = 0; row < kRows; ++row) digit[row] = *reinterpret_cast<const Vec4*>(word + row * 1024);
            std::int32_t factor[kKeys][4];
#pragma unroll
            for (int j = 0; j < kKeys && !Config::Step::kSelectsKey; ++j) factors_at(vector, exponents[j], factor[j]);
#pragma unroll
            for (int output = 0; output < kComponents; ++output) {
                std::int64_t total[4] = {};
                if constexpr (Config::kKeysFirst)
                    multiply_keys_first(digit, factor, ahead, output, total);
                else
                    multiply_rows_first(digit, factor, ahead, output, total);
                *reinterpret_cast<Vec4*>(word + output * (kLevels * 1024)) = montgomery(modulus, total);
            }
            ahead.words += Config::kWarpsPerPart * kVectorWords;
        }
    }
};

#if defined(__CUDACC__) || defined(CLOAKWORK_EMULATE_WARPS)

template <class Config>
__device__ __forceinline__ void load_two_limb_tables(const BlindRotateView& view, std::int32_t* shared) {
    using Powers = typename Config::PowerTable;
    copy_table<Config::kThreads>(shared + Config::kPowerWords, view.twiddles, Config::kTableWords);
    if constexpr (Config::kPowersShared && Config::kDeep) {
        using Factors = FactorTable<Config::N>;
        copy_factors<Config::kThreads, Factors>(shared, view.powers);
        copy_factors<Config::kThreads, Factors>(shared + Factors::kWords, view.powers + Factors::kSize);
    } else if constexpr (Config::kPowersShared) {
        copy_powers<Config::kThreads, Powers>(shared, view.powers);
        copy_powers<Config::kThreads, Powers>(shared + Powers::kWords, view.powers + Powers::kSize);
    }
    __syncthreads();
}

template <class Config>
__global__ __launch_bounds__(Config::kThreads, 1) void blind_rotate_two_limbs_kernel(const BlindRotateView view) {
    using Thread = TwoLimbThread<Config>;
    using Step = typename Config::Step;
    constexpr int kKeys = Config::kKeys;
    extern __shared__ __align__(16) std::int32_t shared[];
    load_two_limb_tables<Config>(view, shared);

    const int group = threadIdx.x / Config::kGroupThreads;
    std::int32_t* const group_words = shared + Config::kPowerWords + Config::kTableWords + group * Config::kGroupWords;
    const auto thread = Thread::make(threadIdx.x % Config::kGroupThreads, Config::kPowersShared ? shared : view.powers,
                                     reinterpret_cast<PartTwiddles*>(shared + Config::kPowerWords), group_words,
                                     static_cast<const Vec4*>(view.key));
    auto* const memory = reinterpret_cast<Vec4*>(shared + Config::kPowerWords + Config::kTableWords +
                                                 Config::kGroups * Config::kGroupWords + group * Config::kShareWords);
    const auto group_barrier = [&] { barrier(1 + group, Config::kGroupThreads); };
    const auto part_barrier = [&] {
        if constexpr (Config::kWarpsPerPart > 1)
            barrier(1 + Config::kGroups + group * 2 * Config::kParts + thread.limb * Config::kParts + thread.part,
                    32 * Config::kWarpsPerPart);
    };

    for (int number = group * gridDim.x + blockIdx.x; number < view.batch; number += gridDim.x * Config::kGroups) {
        const std::uint32_t* switched = switched_of<Step>(view, number);
        typename Thread::Share y;
        thread.start(y, table_of<std::uint64_t>(view, number, Config::N), rotation_of_table<Step>(view, number));
        if constexpr (Config::kInMemory) thread.store_share(y, memory);
#pragma unroll 1
        for (int step = 0; step < view.steps; ++step) {
            std::uint32_t exponents[Config::kDeep ? 1 : kKeys];  // deep: lane j holds e_j
            if constexpr (Config::kDeep)
                exponents[0] = Thread::Factors::raised(Step::load_exponent(switched, step, thread.lane % kKeys));
            else if constexpr (!Step::kSelectsKey)
                Step::load_exponents(switched, step, exponents);
            if constexpr (Config::kPrefetched) prefetch_key<Config::kStepBytes>(view, step + (Step::kSelectsKey ? 2 : 1));
            if constexpr (Step::kSelectsKey) {
                if (Step::load_digit(switched, step) == 0) continue;  // all warps of the group
            }
            if constexpr (Config::kInMemory) thread.load_share(y, memory);
            thread.decompose(y);
            group_barrier();  // the digits are there
#pragma unroll 1
            for (int row = thread.number; row < Config::kRows; row += Config::kWarpsPerPart) {
                std::int32_t x[32];
                thread.forward_a(thread.tile_of(row), x);
                __syncwarp();
                thread.forward_b(thread.tile_of(row), x);
            }
            if constexpr (Config::kDeep) {
                const typename Thread::DeepKey ahead = thread.deep_key(step);
                part_barrier();
                thread.deep_product(ahead, [&](int j) { return __shfl_sync(0xffffffffu, exponents[0], j); });
            } else {
                typename Thread::Ahead ahead(thread.key_of(Step::slice_of(switched, step)));
                ahead.fill();    // earlier would cost registers that the transforms need
                part_barrier();  // all components are there
                thread.product(ahead, exponents);
            }
            part_barrier();
#pragma unroll 1
            for (int component = thread.number; component < Config::kComponents; component += Config::kWarpsPerPart) {
                std::int32_t x[32];
                thread.inverse_a(thread.update_of(component), x);
                __syncwarp();
                thread.inverse_slots(thread.update_of(component), x);
                Thread::Row::store_slots(x, thread.update_of(component), thread.lane);
            }
            group_barrier();  // the updates are there
            if constexpr (Config::kInMemory) thread.load_share(y, memory);
            thread.accumulate(y);
            if constexpr (Config::kInMemory) thread.store_share(y, memory);
        }

        group_barrier();  // everyone has read the updates
        thread.store_words(y);
        group_barrier();  // the words are there
        store_result<Config::N, Config::kComponents>(view, number, thread.words(), Thread::kModulus, thread.thread,
                                                     Config::kGroupThreads);
        group_barrier();  // T is free
    }
}

template <class KernelShapeOf, int groups, int warps, TwoLimbProduct product>
RotationKernel kernel_of(TwoLimbConfig<KernelShapeOf, groups, warps, product>) {
    return blind_rotate_two_limbs_kernel<TwoLimbConfig<KernelShapeOf, groups, warps, product>>;
}

#endif

}  // namespace fhe_core::cuda
