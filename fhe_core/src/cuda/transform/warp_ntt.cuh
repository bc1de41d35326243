// The negacyclic transform of one polynomial by one warp, modulo one limb prime. N = 32 * P, P points per lane in registers.
//
//   forward: p = log2 P stages on slots (lane l holds coefficients l + 32*r, r = 0 .. P-1; constants as instruction operands),
//   exchange through shared memory into P rows of 32 points, p stages inside each lane's part of a row, then Z = 5 - p stages (none
//   for N = 1024) that swap a slot bit with a lane bit by shuffles. The inverse runs backwards.
//
// Transform order: bit-reversed; lane l ends with the positions P*l + q, held in slot slot_of(q). Position i is the value at
// root^(2*brv(i) + 1). Stage s multiplies block i by root^brv(2^s + i) (Cooley-Tukey with merged 2N-th roots).
//
// Exchange tile: N words, row r at word 32*r, its 16-byte chunks permuted by r so that a row write (one word per lane) and a
// vector read (one chunk per lane) touch every bank once. __syncwarp separates writing and reading; callers separate reuse.
//
// Ranges: in units of p, forward grows by 5/4 per stage from |digit| << p (static_assert of each kernel's Config); the inverse
// reduces where the plan for its input says so. Specification: NegacyclicNtt (client/ntt.cpp) and schoolbook multiplication.
//
// Source: [LN16] merged twiddles; [Har14] late reduction. Ours: signed, one warp a polynomial, one exchange through shared memory.
#pragma once

#include <cstdint>

#include "cuda/device/bits.cuh"
#include "cuda/device/modulus.cuh"
#include "cuda/device/unrolled.cuh"
#include "cuda/transform/butterfly_stages.cuh"

namespace fhe_core::cuda {

template <int limb, int polynomial_size>
struct WarpNtt {
    using M = Modulus<limb>;
    static constexpr int N = polynomial_size;
    static constexpr int kLogSize = log2_of(N);
    static constexpr int P = N / 32;
    static constexpr int p = log2_of(P);
    static constexpr int Z = 5 - p;
    static_assert(P >= 8 && P <= 32, "one warp transforms 256 to 1024 points");

    static constexpr std::uint32_t root = root_of_unity(M::p, 2 * N, M::sqrt_minus_one);
    static constexpr Twiddle twiddle(int index) { return M::twiddle(pow_mod(root, bit_reverse(index, kLogSize), M::p)); }
    template <int index>
    struct Constant {
        static constexpr Twiddle value = twiddle(index);
    };
    struct ConstantTwiddles {
        template <int index>
        FHE_HD Twiddle operator()(Index<index>) const {
            return Constant<index>::value;
        }
    };

    // --- Coordinates ---

    // Where position P*lane + q is after the forward transform.
    static constexpr int slot_of(int q) { return (q & ((1 << Z) - 1)) << (p - Z) | q >> Z; }

    // Position held by (lane, slot) after the exchange and `swaps` lane stages.
    static constexpr int position(int swaps, int lane, int slot) {
        for (int z = 0; z < swaps; ++z) {
            const int slot_bit = p - 1 - z, lane_bit = Z - 1 - z;
            const int difference = (slot >> slot_bit ^ lane >> lane_bit) & 1;
            slot ^= difference << slot_bit;
            lane ^= difference << lane_bit;
        }
        return 32 * (lane >> Z) + (slot << Z) + (lane & ((1 << Z) - 1));
    }

    // Twiddles of a lane, two per vector: ordinal 2^j + i for block i of row stage j, P + z*P/2 + i for pair i of lane stage z.
    static constexpr int kTwiddleVectors = (P + Z * P / 2) / 2;
    static constexpr int kTwiddleWords = kTwiddleVectors * 32 * 4;  // table [vector][lane]

    static constexpr int pair_slot(int z, int pair) {  // the lower slot of pair `pair` of lane stage z
        const int bit = p - 1 - z;
        return (pair >> bit) << (bit + 1) | (pair & ((1 << bit) - 1));
    }
    static constexpr int twiddle_index(int lane, int ordinal) {
        if (ordinal == 0) return 1;  // padding
        if (ordinal < P) {
            const int stage = log2_floor(ordinal), block = ordinal - (1 << stage);
            return (1 << (p + stage)) + ((position(0, lane, 0) >> 5) << stage) + block;
        }
        const int z = (ordinal - P) / (P / 2), pair = (ordinal - P) % (P / 2), stage = 2 * p + z;
        return (1 << stage) + (position(z + 1, lane, pair_slot(z, pair)) >> (kLogSize - stage));
    }

    FHE_HD static int row_word(int row, int lane) {  // coefficient lane + 32*row
        const int column = (lane & ((1 << Z) - 1)) * P + (lane >> Z);
        return 32 * row + (column ^ ((row & (P / 4 - 1)) << 2));
    }
    FHE_HD static int row_chunk(int lane, int vector) {  // words of slots 4*vector .. +3 of this lane's row
        const int row = lane >> Z, chunk = (lane & ((1 << Z) - 1)) * (P / 4) + vector;
        return 32 * row + ((chunk ^ (row & (P / 4 - 1))) << 2);
    }

    // --- Forward ---

    // small_digits: |x| * sqrt(-1) fits 31 bits, so the first stage needs no reduction.
    template <bool small_digits>
    FHE_HD static void forward_slots(std::int32_t (&x)[P]) {
        if constexpr (small_digits) {
            static_for<0, P / 2>([&](auto pair) {
                constexpr int a = decltype(pair)::value;
                const std::int32_t sum = wrap_add(x[a], x[a + P / 2] * M::sqrt_minus_one);
                x[a + P / 2] = wrap_sub(wrap_add(x[a], x[a]), sum);
                x[a] = sum;
            });
        }
        forward_stages<P, small_digits ? 1 : 0>(M{}, x, ConstantTwiddles{});
    }

    FHE_HD static void store_slots(const std::int32_t (&x)[P], std::int32_t* tile, int lane) {
#pragma unroll
        for (int r = 0; r < P; ++r) tile[row_word(r, lane)] = x[r];
    }
    FHE_HD static void load_slots(std::int32_t (&x)[P], const std::int32_t* tile, int lane) {
#pragma unroll
        for (int r = 0; r < P; ++r) x[r] = tile[row_word(r, lane)];
    }
    FHE_HD static void store_row(const std::int32_t (&x)[P], std::int32_t* tile, int lane) {
#pragma unroll
        for (int v = 0; v < P / 4; ++v)
            *reinterpret_cast<Vec4*>(tile + row_chunk(lane, v)) = {{x[4 * v], x[4 * v + 1], x[4 * v + 2], x[4 * v + 3]}};
    }
    FHE_HD static void load_row(std::int32_t (&x)[P], const std::int32_t* tile, int lane) {
#pragma unroll
        for (int v = 0; v < P / 4; ++v) {
            const Vec4 four = *reinterpret_cast<const Vec4*>(tile + row_chunk(lane, v));
#pragma unroll
            for (int i = 0; i < 4; ++i) x[4 * v + i] = four.x[i];
        }
    }

    // Points in transform order: 4*vector .. +3 of lane l are chunk vector*32 + l of `words`.
    FHE_HD static void store_points(const std::int32_t (&x)[P], std::int32_t* words, int lane) {
        static_for<0, P / 4>([&](auto vector) {
            constexpr int q = 4 * decltype(vector)::value;
            reinterpret_cast<Vec4*>(words)[decltype(vector)::value * 32 + lane] = {
                {x[slot_of(q)], x[slot_of(q + 1)], x[slot_of(q + 2)], x[slot_of(q + 3)]}};
        });
    }
    FHE_HD static void load_points(std::int32_t (&x)[P], const std::int32_t* words, int lane) {
        static_for<0, P / 4>([&](auto vector) {
            const Vec4 four = reinterpret_cast<const Vec4*>(words)[decltype(vector)::value * 32 + lane];
            static_for<0, 4>(
                [&](auto i) { x[slot_of(4 * decltype(vector)::value + decltype(i)::value)] = four.x[decltype(i)::value]; });
        });
    }

    // G polynomials at once share the loads of twiddles.
    template <int G>
    FHE_HD static void forward_row(std::int32_t (&x)[G][P], const TwiddlePair* table, int lane) {
        forward_stages<P, 0>(M{}, x, LaneTwiddles{table, lane});
    }

    template <int z, int G>
    FHE_HD static void forward_lane_stage(std::int32_t (&x)[G][P], const TwiddlePair* table, int lane) {
        static_for<0, P / 2>([&](auto pair) {
            constexpr int ordinal = P + z * P / 2 + decltype(pair)::value;
            constexpr int a = pair_slot(z, decltype(pair)::value), b = a | 1 << (p - 1 - z);
            const Twiddle w = LaneTwiddles{table, lane}(Index<ordinal>{});
#pragma unroll
            for (int g = 0; g < G; ++g) forward_butterfly(M{}, x[g][a], x[g][b], w);
        });
    }

    // --- Inverse ---

    // Sizes of the values, in thousandths of p: before which stage which slot is reduced, so that |a| + |b| < 15p everywhere, and
    // the largest result. Stages 0 .. Z-1: lane stages backwards; then p row stages, then p slot stages.
    struct InversePlan {
        bool reduces[Z + 2 * p + 1][P];
        int result;
    };
    static constexpr int kInverseInput = 700, kReduced = 690, kProduct = 1250, kPairLimit = 15000;
    static constexpr InversePlan make_inverse_plan(int input) {
        InversePlan plan{};
        int bound[P] = {};
        for (int& b : bound) b = input;
        for (int step = 0; step < Z + 2 * p; ++step) {
            const bool slots = step >= Z + p;
            const int bit = step < Z ? p - Z + step : (step - Z) % p;
            if (step == Z + p) {  // the exchange mixes all slots
                int largest = 0;
                for (int s = 0; s < P; ++s) {
                    if (bound[s] > 2600) plan.reduces[step][s] = true, bound[s] = kReduced;
                    largest = bound[s] > largest ? bound[s] : largest;
                }
                for (int& b : bound) b = largest;
            }
            for (int a = 0; a < P; ++a) {
                const int b = a | 1 << bit;
                if (b == a) continue;
                if (bound[a] + bound[b] > kPairLimit) {
                    for (const int s : {a, b})
                        if (bound[s] > kProduct + 50) plan.reduces[step + slots][s] = true, bound[s] = kReduced;
                }
                bound[a] += bound[b];
                bound[b] = kProduct;
                if (step < Z) {  // the swap that follows mixes a and b over lanes
                    bound[b] = bound[a];
                }
            }
        }
        for (int s = 0; s < P; ++s) plan.result = bound[s] > plan.result ? bound[s] : plan.result;
        return plan;
    }
    // The least input, a multiple of 50 from kInverseInput on, for which a plan is made, that covers `bound` (units of p).
    static constexpr int planned_input(double bound) {
        int input = kInverseInput;
        while (input < bound * 1000) input += 50;
        return input;
    }
    template <int input>
    static constexpr InversePlan kInversePlan = make_inverse_plan(input);

    template <int input, int step>
    FHE_HD static void reduce_planned(std::int32_t (&x)[P]) {
        static_assert(kInversePlan<input>.result <= 15000, "accumulate_exact takes results up to 15 p");
        reduce_slots<kInversePlan<input>.reduces[step]>(M{}, x);
    }

    template <int input, int z, int G>
    FHE_HD static void inverse_lane_stage(std::int32_t (&x)[G][P], const TwiddlePair* table, int lane) {
#pragma unroll
        for (int g = 0; g < G; ++g) reduce_planned<input, Z - 1 - z>(x[g]);
        static_for<0, P / 2>([&](auto pair) {
            constexpr int ordinal = P + z * P / 2 + P / 2 - 1 - decltype(pair)::value;
            constexpr int a = pair_slot(z, decltype(pair)::value), b = a | 1 << (p - 1 - z);
            const Twiddle w = MirroredTwiddles{table, lane}(Index<ordinal>{});
#pragma unroll
            for (int g = 0; g < G; ++g) inverse_butterfly(M{}, x[g][a], x[g][b], w);
        });
    }

    // Written out: through inverse_stage the same instructions come in an order that costs lut2_64 2 %
    // (docs/benchmarks/cuda-log.md).
    template <int input, int G>
    FHE_HD static void inverse_row(std::int32_t (&x)[G][P], const TwiddlePair* table, int lane) {
        static_for<0, p>([&](auto step) {
            static_for<0, G>([&](auto g) { reduce_planned<input, Z + decltype(step)::value>(x[decltype(g)::value]); });
            constexpr int stage = p - 1 - decltype(step)::value, blocks = 1 << stage, half = P >> (stage + 1);
            static_for<0, blocks>([&](auto block) {
                constexpr int ordinal = 2 * blocks - 1 - decltype(block)::value;
                const Twiddle w = table[(ordinal >> 1) * 32 + 31 - lane].x[ordinal & 1];
                static_for<0, half>([&](auto i) {
                    constexpr int a = decltype(block)::value * 2 * half + decltype(i)::value;
                    inverse_pair<a, a + half>(M{}, x, w);
                });
            });
        });
        static_for<0, G>([&](auto g) { reduce_planned<input, Z + p>(x[decltype(g)::value]); });  // before the exchange
    }

    template <int input>
    FHE_HD static void inverse_slots(std::int32_t (&x)[P]) {
        static_for<0, p>([&](auto step) {
            reduce_planned<input, Z + p + 1 + decltype(step)::value>(x);
            inverse_stage<P, p - 1 - decltype(step)::value>(M{}, x, ConstantTwiddles{});
        });
    }

    // --- Whole transforms on the device ---

#if defined(__CUDACC__) || defined(CLOAKWORK_EMULATE_WARPS)
    template <int z>
    __device__ __forceinline__ static void swap_with_lanes(std::int32_t (&x)[P], int lane) {
        constexpr int mask = 1 << (Z - 1 - z), bit = 1 << (p - 1 - z);
        const bool upper = lane & mask;
#pragma unroll
        for (int a = 0; a < P; ++a) {
            if (a & bit) continue;
            const std::int32_t received = __shfl_xor_sync(0xffffffffu, upper ? x[a] : x[a | bit], mask);
            x[a] = upper ? received : x[a];
            x[a | bit] = upper ? x[a | bit] : received;
        }
    }

    // tiles: one per polynomial, `tile_stride` words apart; free on entry for this warp, read by it until the next __syncwarp.
    template <bool small_digits, int G>
    __device__ __forceinline__ static void forward(std::int32_t (&x)[G][P], std::int32_t* tiles, int tile_stride,
                                                   const TwiddlePair* table, int lane) {
#pragma unroll
        for (int g = 0; g < G; ++g) {
            forward_slots<small_digits>(x[g]);
            store_slots(x[g], tiles + g * tile_stride, lane);
        }
        __syncwarp();
#pragma unroll
        for (int g = 0; g < G; ++g) load_row(x[g], tiles + g * tile_stride, lane);
        forward_row(x, table, lane);
        static_for<0, Z>([&](auto z) {
#pragma unroll
            for (int g = 0; g < G; ++g) swap_with_lanes<decltype(z)::value>(x[g], lane);
            forward_lane_stage<decltype(z)::value>(x, table, lane);
        });
    }

    // |x| <= input thousandths of p.
    template <int input, int G>
    __device__ __forceinline__ static void inverse(std::int32_t (&x)[G][P], std::int32_t* tiles, int tile_stride,
                                                   const TwiddlePair* table, int lane) {
        static_for<0, Z>([&](auto step) {
            constexpr int z = Z - 1 - decltype(step)::value;
            inverse_lane_stage<input, z>(x, table, lane);
#pragma unroll
            for (int g = 0; g < G; ++g) swap_with_lanes<z>(x[g], lane);
        });
        inverse_row<input>(x, table, lane);
#pragma unroll
        for (int g = 0; g < G; ++g) store_row(x[g], tiles + g * tile_stride, lane);
        __syncwarp();
#pragma unroll
        for (int g = 0; g < G; ++g) {
            load_slots(x[g], tiles + g * tile_stride, lane);
            inverse_slots<input>(x[g]);
        }
    }
#endif
};

}  // namespace fhe_core::cuda
