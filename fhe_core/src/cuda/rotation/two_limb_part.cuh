// What a warp does with 1024 positions of a transform of N = H * 1024 modulo one limb, for the kernels of two limbs: the stages
// after the first log2 H, which are WarpNtt of 1024 points with other twiddles, and the factors X^e - 1.
//
// Functions on a row of 1024 words marked (a), (b) run in this order with __syncwarp in between. Ranges: TwoLimbTransform. The
// modulus is a run-time value: one code path for both limbs.
//
// Source: as warp_ntt.cuh, [LN16]; parts of a transform are ours.
#pragma once

#include <cstdint>

#include "cuda/rotation/monomial.cuh"
#include "cuda/rotation/two_limb_config.cuh"

namespace fhe_core::cuda {

// Twiddles of the first log2 H stages and of the last of the inverse, modulo prime `number`: w1, small for prime 0, of the first.
template <int number, int N>
struct FoldTwiddles {
    using M = Modulus<number>;
    static constexpr std::uint32_t root = root_of_unity(M::p, 2 * N, M::sqrt_minus_one);
    static constexpr Twiddle w1 = M::twiddle(pow_mod(root, N / 2, M::p)), w2 = M::twiddle(pow_mod(root, N / 4, M::p)),
                             w3 = M::twiddle(pow_mod(root, N / 4 * 3, M::p));
};

// Those stages of the coefficients i, i + 1024, .., and back.
template <int number, int N, int H>
FHE_HD void fold(std::int32_t (&x)[H]) {
    using M = Modulus<number>;
    using Fold = FoldTwiddles<number, N>;
    if constexpr (H == 4) {
        forward_butterfly(M{}, x[0], x[2], Fold::w1);
        forward_butterfly(M{}, x[1], x[3], Fold::w1);
        forward_butterfly(M{}, x[0], x[1], Fold::w2);
        forward_butterfly(M{}, x[2], x[3], Fold::w3);
    } else if constexpr (H == 2) {
        forward_butterfly(M{}, x[0], x[1], Fold::w1);
    }
}
template <int number, int N, int H>
FHE_HD void unfold(std::int32_t (&x)[H]) {
    using M = Modulus<number>;
    using Fold = FoldTwiddles<number, N>;
    if constexpr (H == 4) {
        inverse_butterfly(M{}, x[0], x[1], Fold::w3);
        inverse_butterfly(M{}, x[2], x[3], Fold::w2);
        inverse_butterfly(M{}, x[0], x[2], Fold::w1);
        inverse_butterfly(M{}, x[1], x[3], Fold::w1);
    } else if constexpr (H == 2) {
        inverse_butterfly(M{}, x[0], x[1], Fold::w1);
    }
}

template <class Config>
struct TwoLimbPart {
    using Row = typename Config::Row;
    static constexpr int H = Config::kParts, kLanes = 32 * H;

    int lane, limb, part;
    LimbModulus modulus;
    typename Config::PowerTable powers;  // of this limb; deep: of factors
    const PartTwiddles* table;           // of this part
    const PartTwiddles* mirrored;        // of the mirror part, for the inverse
    std::uint32_t lane_root;             // 2*brv(first position of the lane) + 1

    // tables: of all parts of the limb; powers: of the limb.
    FHE_HD static TwoLimbPart make(int lane, int limb, int part, const std::int32_t* powers, const PartTwiddles* tables) {
        TwoLimbPart p;
        p.lane = lane;
        p.limb = limb;
        p.part = part;
        p.modulus = LimbModulus::of<Config::kSecond>(limb);
        p.powers.words = powers;
        p.table = tables + part;
        p.mirrored = tables + (H - 1 - part);
        p.lane_root = root_of_lane(part * 32 + lane, 5 + log2_of(H));
        return p;
    }

    // --- Transforms of one row ---

    struct SlotTwiddles {
        const PartTwiddles* table;
        template <int ordinal>
        FHE_HD Twiddle operator()(Index<ordinal>) const {
            return table->slot[ordinal];
        }
    };
    template <int first_step, class Twiddles>
    FHE_HD void inverse(const Twiddles& twiddles, std::int32_t (&x)[32]) const {
        static_for<0, 5>([&](auto step) {
            reduce_slots<Config::kInversePlan.reduces[first_step + decltype(step)::value]>(modulus, x);
            inverse_stage<32, 4 - decltype(step)::value>(modulus, x, twiddles);
        });
    }

    FHE_HD void forward_a(std::int32_t* tile, std::int32_t (&x)[32]) const {
        Row::load_slots(x, tile, lane);
        forward_stages<32, 0>(modulus, x, SlotTwiddles{table});
        Row::store_slots(x, tile, lane);
    }
    // The stages with twiddles of a lane are written out here and below, and in warp_ntt.cuh backwards: through forward_stages and
    // inverse_stage the same instructions come in an order that costs nn2_wide and lut2_64 2 to 3 % (docs/benchmarks/cuda-log.md).
    FHE_HD void forward_b(std::int32_t* tile, std::int32_t (&x)[32]) const {
        Row::load_row(x, tile, lane);
        static_for<1, 32>([&](auto number) {
            constexpr int ordinal = decltype(number)::value, stage = log2_floor(ordinal);
            constexpr int half = 32 >> (stage + 1), block = ordinal - (1 << stage);
            const Twiddle w = table->row[(ordinal >> 1) * 32 + lane].x[ordinal & 1];
            static_for<0, half>([&](auto i) {
                constexpr int a = block * 2 * half + decltype(i)::value;
                forward_butterfly(modulus, x[a], x[a + half], w);
            });
        });
        Row::store_row(x, tile, lane);
    }
    FHE_HD void inverse_a(std::int32_t* tile, std::int32_t (&x)[32]) const {
        Row::load_row(x, tile, lane);
        static_for<0, 5>([&](auto step) {
            constexpr int stage = 4 - decltype(step)::value, blocks = 1 << stage, half = 32 >> (stage + 1);
            reduce_slots<Config::kInversePlan.reduces[decltype(step)::value]>(modulus, x);
            static_for<0, blocks>([&](auto block) {
                constexpr int ordinal = 2 * blocks - 1 - decltype(block)::value;
                const Twiddle w = mirrored->row[(ordinal >> 1) * 32 + 31 - lane].x[ordinal & 1];
                static_for<0, half>([&](auto i) {
                    constexpr int a = decltype(block)::value * 2 * half + decltype(i)::value;
                    inverse_pair<a, a + half>(modulus, x, w);
                });
            });
        });
        reduce_slots<Config::kInversePlan.reduces[5]>(modulus, x);
        Row::store_row(x, tile, lane);
    }
    // (b) The update, lane + 32*r in slot r.
    FHE_HD void inverse_slots(const std::int32_t* tile, std::int32_t (&x)[32]) const {
        Row::load_slots(x, tile, lane);
        inverse<6>(SlotTwiddles{mirrored}, x);
        reduce_slots<Config::kReducedSlots>(modulus, x);
    }

    // --- Factors ---

    // As MonomialFactors::at, of a part's lanes.
    FHE_HD void factors_at(int vector, std::uint32_t exponent, std::int32_t (&factor)[4]) const {
        const std::uint32_t reversed = reverse_position(static_cast<std::uint32_t>(vector), 3);
        const std::uint32_t at = exponent * (lane_root + 2 * kLanes * reversed);
#pragma unroll
        for (int pair = 0; pair < 2; ++pair)
            neighbour_factors(powers[at + exponent * (16 * kLanes * pair)], neighbour_sign(exponent), factor[2 * pair],
                              factor[2 * pair + 1]);
    }
};

}  // namespace fhe_core::cuda
