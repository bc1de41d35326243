// The stages of a transform that stay inside a lane: P points in registers, twiddles from wherever they are. Shared by the
// transforms of one limb (warp_ntt.cuh: constants, a table in shared memory) and of either limb (blind_rotate_two_limbs.cuh).
//
// Source: [LN16] algorithms 1 and 2.
#pragma once

#include <cstdint>

#include "cuda/device/bits.cuh"
#include "cuda/device/modulus.cuh"
#include "cuda/device/unrolled.cuh"

namespace fhe_core::cuda {

struct alignas(16) TwiddlePair {
    Twiddle x[2];
};

// Butterflies of one polynomial or of G at once, which share the factor.
template <int a, int b, class M, int P>
FHE_HD void forward_pair(M m, std::int32_t (&x)[P], Twiddle w) {
    forward_butterfly(m, x[a], x[b], w);
}
template <int a, int b, class M, int G, int P>
FHE_HD void forward_pair(M m, std::int32_t (&x)[G][P], Twiddle w) {
    static_for<0, G>([&](auto g) { forward_butterfly(m, x[decltype(g)::value][a], x[decltype(g)::value][b], w); });
}
template <int a, int b, class M, int P>
FHE_HD void inverse_pair(M m, std::int32_t (&x)[P], Twiddle w) {
    inverse_butterfly(m, x[a], x[b], w);
}
template <int a, int b, class M, int G, int P>
FHE_HD void inverse_pair(M m, std::int32_t (&x)[G][P], Twiddle w) {
    static_for<0, G>([&](auto g) { inverse_butterfly(m, x[decltype(g)::value][a], x[decltype(g)::value][b], w); });
}

// The stages from `first_stage` on of P points in a lane's registers. Block i of stage s has the factor twiddle(Index<2^s + i>{}).
template <int P, int first_stage, class M, class Points, class TwiddleOf>
FHE_HD void forward_stages(M m, Points& x, const TwiddleOf& twiddle) {
    static_for<1 << first_stage, P>([&](auto number) {
        constexpr int ordinal = decltype(number)::value, stage = log2_floor(ordinal);
        constexpr int half = P >> (stage + 1), block = ordinal - (1 << stage);
        const Twiddle w = twiddle(number);
        static_for<0, half>([&](auto i) {
            constexpr int a = block * 2 * half + decltype(i)::value;
            forward_pair<a, a + half>(m, x, w);
        });
    });
}

// One stage backwards. Blocks are mirrored: the inverse of block i's factor is minus the factor of the last block but i.
template <int P, int stage, class M, class Points, class TwiddleOf>
FHE_HD void inverse_stage(M m, Points& x, const TwiddleOf& twiddle) {
    constexpr int blocks = 1 << stage, half = P >> (stage + 1);
    static_for<0, blocks>([&](auto block) {
        const Twiddle w = twiddle(Index<2 * blocks - 1 - decltype(block)::value>{});
        static_for<0, half>([&](auto i) {
            constexpr int a = decltype(block)::value * 2 * half + decltype(i)::value;
            inverse_pair<a, a + half>(m, x, w);
        });
    });
}

// The slots that `chosen` says.
template <const auto& chosen, class M, int P>
FHE_HD void reduce_slots(const M& m, std::int32_t (&x)[P]) {
    static_for<0, P>([&](auto slot) {
        constexpr int s = decltype(slot)::value;
        if constexpr (chosen[s]) x[s] = reduce(m, x[s]);
    });
}

// Twiddle number `ordinal` of a lane in a table [vector][lane], and of its mirror image, lane 31 - lane.
struct LaneTwiddles {
    const TwiddlePair* table;
    int lane;

    template <int ordinal>
    FHE_HD Twiddle operator()(Index<ordinal>) const {
        return table[(ordinal >> 1) * 32 + lane].x[ordinal & 1];
    }
};
struct MirroredTwiddles {
    const TwiddlePair* table;
    int lane;

    template <int ordinal>
    FHE_HD Twiddle operator()(Index<ordinal>) const {
        return table[(ordinal >> 1) * 32 + 31 - lane].x[ordinal & 1];
    }
};

}  // namespace fhe_core::cuda
