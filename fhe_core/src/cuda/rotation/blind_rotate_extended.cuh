// Blind rotation with nu accumulators of N = 2048 as one table (docs/reference/specification.md, section 6, extended tables;
// reference::blind_rotate): two limbs, k = 1, one digit, nu = 2, 4, 8, 16. All steps in one persistent kernel; a cluster of nu/4
// blocks for a ciphertext, and one block for two of nu = 2.
//
// With Y = X^nu and e_j = nu a_j + b_j, part i of the accumulator grows by
//
//     sum over keys j of D(i - b_j) * (Y^a_j K_j)  -  D(i) * (sum over j of K_j),    D(i) for i < 0: Y D(i + nu),
//
// D(i) the digits of part i. So a factor is worked out once for all parts: at a point of the transform, a thread holds the digits
// of all parts, multiplies a key's words by their power once, and adds the products of all parts, shifted by b_j.
//
// Who does what. Four parts of two components modulo two limb primes are sixteen polynomials of a block: a warp each.
//
//   each step, warps:   digits of 2048 coefficients (the two warps of a polynomial, one of each limb, share them: pair barriers)
//                       -> forward transform -> T of the block that owns the points
//              cluster: the digits are there
//              threads: products at their points, of all parts and in place: nobody else reads or writes these words
//              cluster: the products are there
//              warps:   T -> inverse transform, ACC += update
//
// The polynomials of a transform have two parts of 1024 points, as in blind_rotate_two_limbs.cuh: a slice is a limb and a part, and
// a block owns all points of 4 / (blocks of the cluster) slices. What a warp writes to T are columns that only it has read before,
// so that two cluster barriers a step suffice. Words of other blocks are stored where they are needed, and loaded from where they
// are, while the other warps compute.
//
// Memory. T[slice][polynomial][1024] is 128 KiB. Exchanges inside a transform: in T where it is the block's own, else a tile of a
// warp. Coefficients do not fit beside it: scratch[block][warp][16][32] of 16 bytes in device memory, which stays in the
// second-level cache, is read and written once a step by the lane that owns it. Powers of the 2N-th roots: shared memory for one
// block, else device memory.
//
// Key: KeyOrder::extended; each word K * 2^64 / N modulo its limb's prime, centred. Sizes in units of p: static_assert below.
//
// Source: [LY23], with the steps of [LMSS23] and [BMMP18]. Ours: exact transforms, factors once for all parts, the layout.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "cuda/device/cluster.cuh"
#include "cuda/rotation/accumulator.cuh"
#include "cuda/rotation/digits.cuh"
#include "cuda/rotation/extended_config.cuh"
#include "cuda/rotation/extended_product.cuh"
#include "cuda/rotation/persistent.cuh"

namespace fhe_core::cuda {

#if defined(__CUDACC__) || defined(CLOAKWORK_EMULATE_WARPS)

// Scratch is read where it was written, by another warp or a step later: not through the first-level cache.
__device__ __forceinline__ Vec4 load_scratch(const Vec4* address) {
#ifdef __CUDA_ARCH__
    const int4 four = __ldcg(reinterpret_cast<const int4*>(address));
    return {{four.x, four.y, four.z, four.w}};
#else
    return *address;
#endif
}
__device__ __forceinline__ void store_scratch(Vec4* address, const Vec4& four) {
#ifdef __CUDA_ARCH__
    __stcg(reinterpret_cast<int4*>(address), make_int4(four.x[0], four.x[1], four.x[2], four.x[3]));
#else
    *address = four;
#endif
}

// The words of T that a warp's polynomial has in one slice, in this block or another one of the cluster.
template <class Config>
struct ExtendedColumn {
    Vec4* place;  // at the same place in this block
    Peer owner;

    // Of eight blocks: of the half of the slice that has this lane's rows.
    __device__ __forceinline__ static ExtendedColumn make(std::int32_t* digits, int slice, int polynomial, int lane) {
        constexpr int kSlices = Config::kSlices, kHalves = Config::kHalves;
        const int half = kHalves == 2 ? lane / 16 : 0;
        ExtendedColumn column;
        column.place =
            reinterpret_cast<Vec4*>(digits + (slice % kSlices * Config::kPolynomials + polynomial - half) * Config::kSliceWords);
        if constexpr (!Config::kOneBlock) column.owner = Peer(digits, slice / kSlices * kHalves + half);
        return column;
    }
    __device__ __forceinline__ Vec4 load(int word) const {
        if constexpr (Config::kOneBlock) return place[word >> 2];
        return owner.load(place + (word >> 2));
    }
    __device__ __forceinline__ void store(int word, const Vec4& four) const {
        if constexpr (Config::kOneBlock)
            place[word >> 2] = four;
        else
            owner.store(place + (word >> 2), four);
    }
};

// A warp's polynomial: of a part, component and limb; lane l holds the coefficients l + 32*r + 1024*h.
template <class Config>
struct ExtendedWarp {
    using Row = typename Config::Row;
    using Transform = typename Config::Transform;
    static constexpr int N = Config::N, kParts = Config::kParts;

    int lane, limb, component, ciphertext, part, pair;  // pair: of warps, the two limbs of a polynomial
    LimbModulus modulus;
    Twiddle fold;                // of the transform's first stage
    const PartTwiddles* tables;  // of this limb
    const Quotient* quotients;   // of this limb, [part][32]
    Quotient fold_quotient;
    ExtendedColumn<Config> column[2];
    std::int32_t *tile[2], *other_tile;  // of the parts of the transform; of the other limb
    Vec4* scratch;

    __device__ __forceinline__ static ExtendedWarp make(const BlindRotateView& view, std::int32_t* digits, std::int32_t* tiles,
                                                        const PartTwiddles* tables, const Quotient* quotients) {
        ExtendedWarp w;
        const int warp = threadIdx.x / 32;
        w.lane = threadIdx.x % 32;
        w.limb = warp & 1;
        w.component = warp >> 1 & 1;
        w.pair = warp >> 1;
        const int own = warp >> 2, first = cluster_rank() * Config::kOwnParts;
        w.ciphertext = own / kParts;  // 0 but for nu = 2
        w.part = (first + own) % kParts;
        w.modulus = LimbModulus::of(w.limb);
        using Fold = FoldTwiddles<0, Transform::N>;
        using OtherFold = FoldTwiddles<1, Transform::N>;
        w.fold = w.limb == 0 ? Fold::w1 : OtherFold::w1;
        w.tables = tables + w.limb * 2;
        w.quotients = quotients + w.limb * 64;
        constexpr Quotient first_fold = Quotient::of(Fold::w1.value, Modulus<0>::p),
                           second_fold = Quotient::of(OtherFold::w1.value, Modulus<1>::p);
        w.fold_quotient = w.limb == 0 ? first_fold : second_fold;
        const int polynomial = 2 * (first + own) + w.component;
        for (int h = 0; h < 2; ++h) {
            w.column[h] = ExtendedColumn<Config>::make(digits, 2 * w.limb + h, polynomial, w.lane);
            w.tile[h] = Config::kOneBlock ? reinterpret_cast<std::int32_t*>(w.column[h].place) : tiles + warp * 1024;
        }
        w.other_tile =
            Config::kOneBlock ? digits + (2 * (1 - w.limb) * Config::kPolynomials + polynomial) * 1024 : tiles + (warp ^ 1) * 1024;
        w.scratch = reinterpret_cast<Vec4*>(static_cast<std::int32_t*>(view.scratch) + blockIdx.x * Config::kScratchWords) +
                    warp * 512 + w.lane;
        return w;
    }

    // --- Coefficients, in offset form (accumulator.cuh) ---

    using Coefficients = std::int32_t[2][32];  // [h][r]

    __device__ __forceinline__ void start(Coefficients& y, const BlindRotateView& view, int number) const {
        if (limb == 0)
            start_of(Modulus<0>{}, y, view, number);
        else
            start_of(Modulus<1>{}, y, view, number);
    }
    template <class M>
    __device__ __forceinline__ void start_of(M m, Coefficients& y, const BlindRotateView& view, int number) const {
        const std::uint32_t rotation = rotation_of_table<typename Config::Step>(view, number);
        const std::uint64_t* table = table_of<std::uint64_t>(view, number, Config::kTableSize);
#pragma unroll
        for (int h = 0; h < 2; ++h)
#pragma unroll
            for (int r = 0; r < 32; ++r) {
                const std::uint32_t index = (kParts * (lane + 32 * r + 1024 * h) + part + rotation) & (2 * Config::kTableSize - 1);
                const std::uint64_t word = component == 1 ? table[index & (Config::kTableSize - 1)] : 0;
                y[h][r] = wrap(with_half(m, rotated_residue(m, word, index >= Config::kTableSize)));
            }
    }

    __device__ __forceinline__ void keep(const Coefficients& y) const {
#pragma unroll
        for (int i = 0; i < 16; ++i) {
            const std::int32_t* four = y[i / 8] + i % 8 * 4;
            store_scratch(scratch + i * 32, {{four[0], four[1], four[2], four[3]}});
        }
    }
    // y: the update; then the coefficients, which are kept.
    __device__ __forceinline__ void accumulate(Coefficients& y) const {
#pragma unroll
        for (int i = 0; i < 16; ++i) {
            const Vec4 kept = load_scratch(scratch + i * 32);
            std::int32_t* four = y[i / 8] + i % 8 * 4;
#pragma unroll
            for (int n = 0; n < 4; ++n) four[n] = wrap(accumulate_exact(modulus, static_cast<std::uint32_t>(kept.x[n]), four[n]));
        }
        keep(y);
    }

    // --- Digits: limb 0 cuts those of h = 0, limb 1 those of h = 1 ---

    __device__ __forceinline__ void pair_barrier() const { barrier(1 + pair, 64); }
    __device__ __forceinline__ static Vec4* vectors(std::int32_t* tile, int lane) { return reinterpret_cast<Vec4*>(tile) + lane; }

    __device__ __forceinline__ void decompose(Coefficients& y) const {
        const int drop = component == 0 ? Config::kMaskDrop : Config::kBodyDrop;
        Vec4* const own = vectors(tile[0], lane);
        Vec4* const other = vectors(other_tile, lane);
        const auto chosen = [&](int other_half, int i) { return other_half == limb ? y[0][i] : y[1][i]; };
        const auto put = [&](int h, int i, std::int32_t digit) {
            y[0][i] = h == 0 ? digit : y[0][i];
            y[1][i] = h == 0 ? y[1][i] : digit;
        };
#pragma unroll
        for (int v = 0; v < 8; ++v)
            own[v * 32] = {{chosen(1, 4 * v), chosen(1, 4 * v + 1), chosen(1, 4 * v + 2), chosen(1, 4 * v + 3)}};
        pair_barrier();  // the other limb's residues are there
#pragma unroll
        for (int v = 0; v < 8; ++v) {
            Vec4 four = other[v * 32];
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const std::int32_t mine = chosen(0, 4 * v + i), theirs = four.x[i];
                const std::int64_t x =
                    compose_centred((limb == 0 ? mine : theirs) - Modulus<0>::half, (limb == 0 ? theirs : mine) - Modulus<1>::half);
                four.x[i] = static_cast<std::int32_t>((x + (std::int64_t{1} << (drop - 1))) >> drop);
                put(limb, 4 * v + i, four.x[i]);
            }
            other[v * 32] = four;
        }
        pair_barrier();  // the other half's digits are there
#pragma unroll
        for (int v = 0; v < 8; ++v) {
            const Vec4 four = own[v * 32];
#pragma unroll
            for (int i = 0; i < 4; ++i) put(1 - limb, 4 * v + i, four.x[i]);
        }
        __syncwarp();  // the tile is free
    }

    // --- Transforms ---

    // Whether butterfly `number` of those with a factor that all lanes share is one by FP64.
    static constexpr bool by_fp64(int number) { return number % 12 < Config::kFp64; }

    // a + x*w, as multiply_add (modulus.cuh), the quotient by high product or by FP64.
    template <bool fp64>
    __device__ __forceinline__ std::int32_t multiply_add(std::int32_t a, std::int32_t x, Twiddle w,
                                                         const Quotient& quotient) const {
        if constexpr (fp64) {
            const std::uint32_t q = low_word_of_product(x, quotient);
            const std::uint32_t sum =
                static_cast<std::uint32_t>(a) + static_cast<std::uint32_t>(x) * static_cast<std::uint32_t>(w.value);
            return wrap(sum + q * modulus.q_negated);
        } else {
            return cuda::multiply_add(modulus, a, x, w);
        }
    }
    __device__ __forceinline__ static std::uint32_t low_word_of_product(std::int32_t x, const Quotient& quotient) {
        const std::uint32_t low = static_cast<std::uint32_t>(x) ^ 0x80000000u;
#ifdef __CUDA_ARCH__
        return static_cast<std::uint32_t>(
            __double2loint(__fma_rn(__hiloint2double(0x43300000, static_cast<int>(low)), quotient.ratio, quotient.shift)));
#else
        const double sum = std::fma(std::bit_cast<double>(std::uint64_t{0x43300000} << 32 | low), quotient.ratio, quotient.shift);
        return static_cast<std::uint32_t>(std::bit_cast<std::uint64_t>(sum));
#endif
    }
    template <bool fp64>
    __device__ __forceinline__ void forward_one(std::int32_t& a, std::int32_t& b, Twiddle w, const Quotient& quotient) const {
        const std::int32_t sum = multiply_add<fp64>(a, b, w, quotient);
        b = wrap_sub(wrap_add(a, a), sum);
        a = sum;
    }
    template <bool fp64>
    __device__ __forceinline__ void inverse_one(std::int32_t& a, std::int32_t& b, Twiddle w_mirror,
                                                const Quotient& quotient) const {
        const std::int32_t difference = wrap_sub(b, a);
        a = wrap_add(a, b);
        b = multiply_add<fp64>(0, difference, w_mirror, quotient);
    }
    // Of the slots' stages, forward_stages and inverse_stage (butterfly_stages.cuh).
    __device__ __forceinline__ void forward_slots(std::int32_t (&x)[32], int h) const {
        static_for<1, 32>([&](auto number) {
            constexpr int ordinal = decltype(number)::value, stage = log2_floor(ordinal);
            constexpr int distance = 32 >> (stage + 1), block = ordinal - (1 << stage);
            const Twiddle w = tables[h].slot[ordinal];
            Quotient quotient{};
            if constexpr (Config::kFp64 != 0) quotient = quotients[h * 32 + ordinal];
            static_for<0, distance>([&](auto i) {
                constexpr int a = block * 2 * distance + decltype(i)::value;
                forward_one<by_fp64(block * distance + decltype(i)::value)>(x[a], x[a + distance], w, quotient);
            });
        });
    }
    template <int stage>
    __device__ __forceinline__ void inverse_slots(std::int32_t (&x)[32], int h) const {
        constexpr int blocks = 1 << stage, distance = 32 >> (stage + 1);
        static_for<0, blocks>([&](auto number) {
            constexpr int block = decltype(number)::value, ordinal = 2 * blocks - 1 - block;
            const Twiddle w = tables[h].slot[ordinal];
            Quotient quotient{};
            if constexpr (Config::kFp64 != 0) quotient = quotients[h * 32 + ordinal];
            static_for<0, distance>([&](auto i) {
                constexpr int a = block * 2 * distance + decltype(i)::value;
                inverse_one<by_fp64(block * distance + decltype(i)::value)>(x[a], x[a + distance], w, quotient);
            });
        });
    }

    // Digits to T.
    __device__ __forceinline__ void forward(Coefficients& x) const {
        static_for<0, 32>([&](auto r) {
            forward_one<by_fp64(decltype(r)::value)>(x[0][decltype(r)::value], x[1][decltype(r)::value], fold, fold_quotient);
        });
        static_for<0, 2>([&](auto half) {
            constexpr int h = decltype(half)::value;
            const PartTwiddles* const table = tables + h;
            forward_slots(x[h], h);
            Row::store_slots(x[h], tile[h], lane);
            __syncwarp();
            Row::load_row(x[h], tile[h], lane);
            static_for<1, 32>([&](auto number) {
                constexpr int ordinal = decltype(number)::value, stage = log2_floor(ordinal);
                constexpr int distance = 32 >> (stage + 1), block = ordinal - (1 << stage);
                const Twiddle w = table->row[(ordinal >> 1) * 32 + lane].x[ordinal & 1];
                static_for<0, distance>([&](auto i) {
                    constexpr int a = block * 2 * distance + decltype(i)::value;
                    forward_butterfly(modulus, x[h][a], x[h][a + distance], w);
                });
            });
#pragma unroll
            for (int v = 0; v < 8; ++v)
                column[h].store(Row::row_chunk(lane, v), {{x[h][4 * v], x[h][4 * v + 1], x[h][4 * v + 2], x[h][4 * v + 3]}});
            if constexpr (!Config::kOneBlock && h == 0) __syncwarp();  // the tile is free
        });
    }

    // T to updates of the coefficients, before they are added.
    __device__ __forceinline__ void inverse(Coefficients& x) const {
        static_for<0, 2>([&](auto half) {
            constexpr int h = decltype(half)::value;
            const PartTwiddles* const table = tables + (1 - h);  // mirrored
#pragma unroll
            for (int v = 0; v < 8; ++v) {
                const Vec4 four = column[h].load(Row::row_chunk(lane, v));
#pragma unroll
                for (int i = 0; i < 4; ++i) x[h][4 * v + i] = four.x[i];
            }
            static_for<0, 5>([&](auto step) {
                constexpr int stage = 4 - decltype(step)::value, blocks = 1 << stage, distance = 32 >> (stage + 1);
                reduce_slots<Transform::kInversePlan.reduces[decltype(step)::value]>(modulus, x[h]);
                static_for<0, blocks>([&](auto block) {
                    constexpr int ordinal = 2 * blocks - 1 - decltype(block)::value;
                    const Twiddle w = table->row[(ordinal >> 1) * 32 + 31 - lane].x[ordinal & 1];
                    static_for<0, distance>([&](auto i) {
                        constexpr int a = decltype(block)::value * 2 * distance + decltype(i)::value;
                        inverse_pair<a, a + distance>(modulus, x[h], w);
                    });
                });
            });
            reduce_slots<Transform::kInversePlan.reduces[5]>(modulus, x[h]);
            Row::store_row(x[h], tile[h], lane);
            __syncwarp();
            Row::load_slots(x[h], tile[h], lane);
            __syncwarp();  // the tile is free
            static_for<0, 5>([&](auto step) {
                reduce_slots<Transform::kInversePlan.reduces[6 + decltype(step)::value]>(modulus, x[h]);
                inverse_slots<4 - decltype(step)::value>(x[h], 1 - h);
            });
            reduce_slots<Transform::kReducedSlots>(modulus, x[h]);
        });
        static_for<0, 32>([&](auto r) {
            inverse_one<by_fp64(decltype(r)::value)>(x[0][decltype(r)::value], x[1][decltype(r)::value], fold, fold_quotient);
        });
    }
};

// A block's parts of the results, from the residues that its warps kept: whole GLWE ciphertexts, or the LWE ciphertexts of
// section 7.
template <class Config>
struct ExtendedResult {
    static constexpr int N = Config::N, kParts = Config::kParts;
    static constexpr std::uint64_t q = std::uint64_t{kLimbPrimes[0]} * kLimbPrimes[1];
    const std::int32_t* scratch;  // of this block

    // Coefficient j of component c of the block's part `own`, in [0, Q).
    __device__ __forceinline__ std::uint64_t word(int own, int c, int j) const {
        const int h = j >> 10, r = j >> 5 & 31, lane = j & 31, vector = h * 8 + r / 4;
        const auto residue = [&](int limb) {
            const std::int32_t* from = scratch + (((own * 4 + c * 2 + limb) * 16 + vector) * 32 + lane) * 4 + r % 4;
#ifdef __CUDA_ARCH__
            return static_cast<std::uint32_t>(__ldcg(from));
#else
            return static_cast<std::uint32_t>(*from);
#endif
        };
        return compose_limbs(without_half(Modulus<0>{}, residue(0)), without_half(Modulus<1>{}, residue(1)));
    }
    __device__ __forceinline__ void store(const BlindRotateView& view, int own, int number, int part) const {
        auto* const out = static_cast<std::uint64_t*>(view.out);
        if (view.coefficients == nullptr) {
            std::uint64_t* const glwe = out + (std::size_t(number) * kParts + part) * 2 * N;
            for (int i = threadIdx.x; i < 2 * N; i += Config::kThreads) glwe[i] = word(own, i / N, i % N);
            return;
        }
        for (int i = 0; i < view.coefficient_count; ++i) {
            const int c = static_cast<int>(view.coefficients[i]) / kParts;
            if (static_cast<int>(view.coefficients[i]) % kParts != part) continue;
            std::uint64_t* const lwe = out + (std::size_t(number) * view.coefficient_count + i) * (N + 1);
            for (int j = threadIdx.x; j < N; j += Config::kThreads) {
                const std::uint64_t x = word(own, 0, (c - j) & (N - 1));
                lwe[j] = j <= c || x == 0 ? x : q - x;
            }
            if (threadIdx.x == 0) lwe[N] = word(own, 1, c);
        }
    }
};

template <class Config>
__device__ __forceinline__ void cluster_barrier() {
    if constexpr (Config::kOneBlock) {
        __syncthreads();
    } else {
        arrive_at_cluster();
        wait_for_cluster();
    }
}

template <class Config>
__global__ __launch_bounds__(Config::kThreads, 1) void blind_rotate_extended_kernel(const BlindRotateView view) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900  // earlier ones have too little shared memory
    using Step = typename Config::Step;
    using PowerTable = typename Config::PowerTable;
    constexpr int kKeys = Config::kKeys, kCiphertexts = Config::kCiphertexts;
    extern __shared__ __align__(16) std::int32_t shared[];
    std::int32_t* const digits = own_memory(shared);
    std::int32_t* const tiles = digits + Config::kDigitWords;
    std::int32_t* const twiddles = tiles + Config::kTileWords;
    std::int32_t* const powers_here = twiddles + Config::Transform::kTableWords;
    copy_table<Config::kThreads>(twiddles, view.twiddles, Config::Transform::kTableWords);
    if constexpr (Config::kOneBlock) {
        copy_powers<Config::kThreads, PowerTable>(powers_here, view.powers);
        copy_powers<Config::kThreads, PowerTable>(powers_here + PowerTable::kWords, view.powers + PowerTable::kSize);
    }
    const auto* const roots = reinterpret_cast<const Twiddle*>(static_cast<const PartTwiddles*>(view.twiddles) + 4);
    auto* const quotients = reinterpret_cast<Quotient*>(powers_here + Config::kPowerWords);
    if constexpr (Config::kFp64 != 0) copy_table<Config::kThreads>(quotients, roots + 4 * 1024, 4 * 32);
    cluster_barrier<Config>();  // the tables are there, and all blocks
    const std::int32_t* const powers_at = Config::kOneBlock ? powers_here : view.powers;
    const PowerTable powers[2] = {{powers_at}, {powers_at + PowerTable::kWords}};

    const auto warp = ExtendedWarp<Config>::make(view, digits, tiles, reinterpret_cast<const PartTwiddles*>(twiddles), quotients);
    const int number_of_warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int cluster = blockIdx.x / Config::kBlocks, clusters = gridDim.x / Config::kBlocks;
    const auto of_batch = [&](int number) { return number < view.batch ? number : view.batch - 1; };

#pragma unroll 1
    for (int unit = cluster; unit * kCiphertexts < view.batch; unit += clusters) {
        const int first = unit * kCiphertexts;
        const std::uint32_t* const lane_switched =
            switched_of<Step>(view, of_batch(first + (kCiphertexts > 1 ? lane / kKeys % kCiphertexts : 0)));
        typename ExtendedWarp<Config>::Coefficients x;
        warp.start(x, view, of_batch(first + warp.ciphertext));
        warp.keep(x);
        const std::int32_t* step_key = static_cast<const std::int32_t*>(view.key);
#pragma unroll 1
        for (int step = 0; step < view.steps; ++step, step_key += Config::kStepWords) {
            std::uint32_t exponents[kKeys], exponent = 0;
            Step::load_exponents(lane_switched, step, exponents);
            static_for<0, kKeys>(
                [&](auto key) { exponent = lane % kKeys == decltype(key)::value ? exponents[decltype(key)::value] : exponent; });
            exponent &= 2 * Config::kTableSize - 1;
            prefetch_key<Config::kStepBytes>(view, step + 1);
            warp.decompose(x);
            warp.forward(x);
            cluster_barrier<Config>();  // the digits are there
#pragma unroll 1
            for (int task = number_of_warp; task < Config::kTasks; task += Config::kWarps)
                multiply_task<Config>(task, step_key, powers, roots, exponent, digits);
            cluster_barrier<Config>();  // the products are there
            warp.inverse(x);
            warp.accumulate(x);
        }
        __syncthreads();  // the residues of all warps are there
        const ExtendedResult<Config> result{static_cast<const std::int32_t*>(view.scratch) + blockIdx.x * Config::kScratchWords};
        for (int own = 0; own < Config::kOwnParts; ++own) {
            const int part = cluster_rank() * Config::kOwnParts + own, number = first + part / Config::kParts;
            if (number < view.batch) result.store(view, own, number, part % Config::kParts);
        }
        __syncthreads();  // scratch is free
    }
    cluster_barrier<Config>();  // nobody reads this block's memory any more
#endif
}

template <class KernelShapeOf, class Layout>
RotationKernel kernel_of(ExtendedConfig<KernelShapeOf, Layout>) {
    return blind_rotate_extended_kernel<ExtendedConfig<KernelShapeOf, Layout>>;
}

// Clusters that the current device holds, or blocks where a cluster is one.
template <class Config>
cudaError_t extended_at_once(int* clusters) {
    if constexpr (!Config::kOneBlock) {
        return clusters_at_once(clusters, kernel_of(Config{}), Config::kBlocks, Config::kThreads, Config::kSharedBytes);
    } else {
        int device = 0;
        const cudaError_t status = cudaGetDevice(&device);
        return status == cudaSuccess ? cudaDeviceGetAttribute(clusters, cudaDevAttrMultiProcessorCount, device) : status;
    }
}

// view.batch >= 1
template <class Config>
cudaError_t launch_extended(const BlindRotateView& view, int at_once, cudaStream_t stream) {
    const int units = (view.batch + Config::kCiphertexts - 1) / Config::kCiphertexts;
    const std::size_t blocks = std::size_t(units < at_once ? units : at_once) * Config::kBlocks;
    if constexpr (Config::kOneBlock)
        return enqueue(kernel_of(Config{}), blocks, Config::kThreads, Config::kSharedBytes, stream, view);
    else
        return enqueue_clusters(kernel_of(Config{}), blocks, Config::kBlocks, Config::kThreads, Config::kSharedBytes, stream, view);
}

#endif

}  // namespace fhe_core::cuda
