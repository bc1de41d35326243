// Which layout of the rotation kernels a shape takes, by shape and kind of step, measured on an H200 (docs/benchmarks/cuda-log.md).
// Of each shape: Throughput; Small, which takes its place where a multiprocessor has less shared memory (sm_80, sm_89); Latency.
// All read the same key and tables and give the same words.
#pragma once

#include "cuda/rotation/blind_rotate_latency.cuh"
#include "cuda/rotation/blind_rotate_many_digits.cuh"
#include "cuda/rotation/blind_rotate_raised.cuh"
#include "cuda/rotation/blind_rotate_team.cuh"
#include "cuda/rotation/blind_rotate_two_limbs.cuh"

namespace fhe_core::cuda {

namespace layouts {

constexpr int keys_of(const Shape& shape) { return rotation_of(shape.cmux).products(); }
constexpr bool selects_key(const Shape& shape) { return rotation_of(shape.cmux).selects_key(); }
constexpr bool has_blocks(const Shape& shape) { return rotation_of(shape.cmux).key_bits > 2; }
constexpr bool has_lanes(const Shape& shape) { return shape.lane_count > 1; }
constexpr int rows_of(const Shape& shape) {
    return shape.glwe_dimension * shape.mask_gadget.level_count + shape.lane_count * shape.body_gadget.level_count;
}
constexpr int table_bytes(const Shape& shape) { return 4 * (4 * shape.polynomial_size + 4 * shape.polynomial_size); }
constexpr int kSharedLimit = 220 * 1024;

// --- One limb: warps of components (OneLimbLayout) ---

constexpr int kWarps = 12;  // of a block, 168 registers; eight at 255 for N = 1024
constexpr bool is_large(const Shape& shape) { return shape.polynomial_size == 1024; }

// One loop over the digits of both gadgets unless they could share twiddles better apart.
constexpr bool has_one_loop(const Shape& shape) {
    return is_large(shape) || shape.mask_gadget.level_count == shape.body_gadget.level_count;
}
constexpr int digits_of(const Shape& shape) { return is_large(shape) ? 1 : shape.mask_gadget.level_count == 3 ? 3 : 2; }
// Two from three digits on, and of pairs with lanes.
constexpr int buffers_of(const Shape& shape) {
    return !is_large(shape) && (shape.mask_gadget.level_count > 2 || (has_lanes(shape) && !has_blocks(shape))) ? 2 : 1;
}
constexpr int groups_of(const Shape& shape, int buffers) {
    int groups = (is_large(shape) ? 8 : kWarps) / shape.component_count();
    const int group = 4 * buffers * rows_of(shape) * shape.polynomial_size;
    while (groups > 1 && (groups > 8 || table_bytes(shape) + groups * group > kSharedLimit)) --groups;
    return groups;
}
// Rows of the key ahead; of one key that a digit selects all, up to as many words as of the three of a pair. Not measured on a
// card.
constexpr int depth_of(const Shape& shape) {
    if (selects_key(shape)) return rows_of(shape) < 6 ? rows_of(shape) : 6;
    return is_large(shape) || keys_of(shape) > 3 ? 1 : 2;
}

// --- One limb: ciphertexts that share the words of the key (TeamLayout) ---

constexpr int team_size(const Shape& shape) { return kWarps % (2 * shape.component_count()) == 0 ? 2 : 1; }
constexpr int teams_of(const Shape& shape) { return kWarps / team_size(shape) / shape.component_count(); }
constexpr bool in_place(const Shape& shape) { return is_large(shape); }
// Any kind at N = 1024; six keys, or four with many rows.
constexpr bool has_teams(const Shape& shape) {
    const int rows = rows_of(shape) + (in_place(shape) ? 0 : shape.component_count());
    const bool fits = table_bytes(shape) + 4 * teams_of(shape) * team_size(shape) * rows * shape.polynomial_size <= kSharedLimit;
    return fits && !has_lanes(shape) && !selects_key(shape) &&
           (is_large(shape) ? shape.component_count() == 2 : keys_of(shape) >= 6 || (keys_of(shape) >= 4 && rows_of(shape) > 6));
}
constexpr int team_digits(const Shape& shape) { return is_large(shape) ? 1 : shape.mask_gadget.level_count > 2 ? 3 : 2; }
// Two of six or eight keys and up to three rows ahead; three of six keys while the rows are many; else all.
constexpr int keys_at_once(const Shape& shape) {
    return keys_of(shape) < 6 ? keys_of(shape) : rows_of(shape) > 8 && keys_of(shape) % 3 == 0 ? 3 : 2;
}
// Of so few keys at once three rows where they divide what a vector reads.
constexpr int team_depth(const Shape& shape) {
    const int outputs = in_place(shape) ? shape.component_count() : 1;
    const int rows = outputs * keys_of(shape) / keys_at_once(shape) * rows_of(shape);
    return keys_at_once(shape) > 2 ? 1 : rows_of(shape) < 8 && rows % 3 == 0 ? 3 : 2;
}
// The key of blocks of six and more is larger than half of L2, but for a gate's.
constexpr bool is_prefetched(const Shape& shape) { return keys_of(shape) >= 6 && rows_of(shape) > 6; }

// --- One limb, several lanes: groups of pairs; teams of two ciphertexts for six and eight keys of four components ---

constexpr bool has_lane_teams(const Shape& shape) {
    return has_lanes(shape) && shape.polynomial_size == 512 && shape.component_count() == 4 && keys_of(shape) >= 6;
}
// Two teams, sixteen warps at 128 registers, with the sums of one key at a time; one of eight at 255 with those of two where the
// rows are many.
constexpr int lane_teams(const Shape& shape) { return rows_of(shape) <= 8 ? 2 : 1; }
constexpr int lane_keys_at_once(const Shape& shape) { return rows_of(shape) <= 8 ? 1 : 2; }

template <class KernelShapeOf>
struct OfOneLimb {
    static constexpr Shape s = KernelShapeOf::value;
    template <int buffers>
    using Pair =
        OneLimbConfig<KernelShapeOf, OneLimbLayout<groups_of(s, buffers), 1, buffers, digits_of(s), depth_of(s), has_one_loop(s)>>;
    using Team = TeamConfig<KernelShapeOf, TeamLayout<teams_of(s), team_size(s), team_digits(s), team_depth(s), keys_at_once(s),
                                                      in_place(s), has_one_loop(s), is_prefetched(s)>>;

    using LaneTeam =
        TeamConfig<KernelShapeOf,
                   TeamLayout<lane_teams(s), 2, team_digits(s), 2, lane_keys_at_once(s), false, has_one_loop(s), true>>;

    using Throughput = std::conditional_t<has_teams(s), Team, std::conditional_t<has_lane_teams(s), LaneTeam, Pair<buffers_of(s)>>>;
    using Small = Pair<1>;
    using Latency = LatencyConfig<Small>;
};

// --- Two limbs ---

// Sixteen warps at 128 registers, or twelve at 168 where three components make six of a ciphertext.
constexpr bool has_three_components(const Shape& shape) { return shape.polynomial_size == 1024 && shape.glwe_dimension == 2; }
constexpr int two_limb_groups(const Shape& shape) {
    if (shape.mask_gadget.level_count > 3) return 1;  // whose transforms fit once
    return shape.polynomial_size == 4096 ? 1 : shape.polynomial_size == 2048 || has_three_components(shape) ? 2 : 4;
}
constexpr int two_limb_warps(const Shape& shape) {
    return has_three_components(shape) ? 3 : shape.mask_gadget.level_count > 3 ? 4 : 2;
}

// Key after key for blocks, and for three components; the sums of several digits would not fit.
constexpr TwoLimbProduct product_of(const Shape& shape) {
    const bool one_digit = shape.mask_gadget.level_count == 1;
    return one_digit && (has_blocks(shape) || has_three_components(shape)) ? TwoLimbProduct::deep : TwoLimbProduct::keys;
}
// Of a multiprocessor with less shared memory: as many warps in fewer groups where a ciphertext has more digits.
constexpr int small_groups(const Shape& shape) {
    const int groups = two_limb_groups(shape) / shape.mask_gadget.level_count;
    return groups > 1 ? groups : 1;
}
constexpr int small_warps(const Shape& shape) { return two_limb_groups(shape) / small_groups(shape) * two_limb_warps(shape); }

template <class KernelShapeOf>
struct OfTwoLimbs {
    static constexpr Shape s = KernelShapeOf::value;

    using Throughput = TwoLimbConfig<KernelShapeOf, two_limb_groups(s), two_limb_warps(s), product_of(s)>;
    using Small = TwoLimbConfig<KernelShapeOf, small_groups(s), small_warps(s)>;
    using Latency = TwoLimbConfig<KernelShapeOf, 1, s.polynomial_size == 4096 ? 2 : 4>;
};

// --- Raised keys: as two limbs; three components take two warps of a ciphertext each, eight at 255 registers ---

template <class KernelShapeOf>
struct OfRaised {
    static constexpr Shape s = KernelShapeOf::value;
    static constexpr int groups = has_three_components(s) ? 4 : two_limb_groups(s), warps = has_three_components(s) ? 1 : 2;

    using Throughput = RaisedConfig<KernelShapeOf, groups, warps>;
    using Small = RaisedConfig<KernelShapeOf, has_three_components(s) ? 2 : groups, warps>;
    using Latency = RaisedConfig<KernelShapeOf, 1, s.polynomial_size == 4096 ? 2 : 4>;
};

// --- Two limbs, more digits than whole transforms fit: ciphertexts of a block, which share the words of the key ---

template <class KernelShapeOf>
struct OfManyDigits {
    using Throughput = ManyDigitsConfig<KernelShapeOf, 2>;
    using Small = ManyDigitsConfig<KernelShapeOf, 1>;
    using Latency = Small;
};

template <class KernelShapeOf>
constexpr auto layouts_of() {
    constexpr Shape s = KernelShapeOf::value;
    if constexpr (s.is_raised())
        return OfRaised<KernelShapeOf>{};
    else if constexpr (s.limb_count == 1)
        return OfOneLimb<KernelShapeOf>{};
    else if constexpr (s.mask_gadget.level_count > 4 || (s.mask_gadget.level_count > 2 && s.mask_gadget.base_log <= 7))
        return OfManyDigits<KernelShapeOf>{};
    else
        return OfTwoLimbs<KernelShapeOf>{};
}

}  // namespace layouts

template <class KernelShapeOf>
using LayoutsOf = decltype(layouts::layouts_of<KernelShapeOf>());

}  // namespace fhe_core::cuda
