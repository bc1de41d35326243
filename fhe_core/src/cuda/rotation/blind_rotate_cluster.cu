// Instances of the blind rotation over clusters for the shapes of the shipped parameter sets, and up to how many ciphertexts they
// are chosen. Compiled kShapedKernelParts times, as blind_rotate_one_limb.cu.
#include "cuda/rotation/blind_rotate_cluster.cuh"

#include <utility>

#include "cuda/rotation/shaped_kernels.hpp"

namespace fhe_core::cuda {
namespace {

constexpr int kThisPart = FHE_CORE_PART;

template <class Layout, int waves = 1>
struct Tier {};
template <class... TierOf>
struct Tiers {};

constexpr int rows_of(const Shape& shape) {
    return shape.glwe_dimension * shape.mask_gadget.level_count + shape.lane_count * shape.body_gadget.level_count;
}

// Layouts of a shape; vectors: of the key, that a thread holds.
template <Shape s>
struct LayoutsOfShape {
    static constexpr int rows = rows_of(s);
    static constexpr int at_most(int a, int b) { return a < b ? a : b; }
    static constexpr int depth(int vectors) {
        const int held = vectors / rotation_of(s.cmux).keys;
        return s.key_limbs().count == 1 ? at_most(rows, held) : held;
    }

    template <int points, int vectors>  // keys combined by warps of their own
    using Apart = ClusterLayout<points, true, depth(vectors), at_most(4, s.polynomial_size / points / 32)>;
    template <int points, int vectors>
    using Together = ClusterLayout<points, true, depth(vectors)>;
    template <int points, int vectors>
    using RowsFirst = ClusterLayout<points, false, depth(vectors)>;
};

// Measured on an H200 (docs/benchmarks/cuda-log.md); kinds of steps with other numbers of keys take the layout of the pair.
template <Shape s>
constexpr auto tiers_of() {
    using Of = LayoutsOfShape<s>;
    constexpr int rows = Of::rows;
    if constexpr (s.key_limbs().count == 1 && s.polynomial_size <= 512 && rows <= 6)
        return Tiers<Tier<typename Of::template Apart<8, 18>>>{};
    else if constexpr (s.key_limbs().count == 1 && s.polynomial_size <= 512 && rows <= 9)
        return Tiers<Tier<typename Of::template Apart<4, 27>>, Tier<typename Of::template Apart<8, 27>>>{};
    else if constexpr (s.key_limbs().count == 1 && s.polynomial_size <= 512)
        return Tiers<Tier<typename Of::template Apart<4, 18>>, Tier<typename Of::template RowsFirst<4, 33>>>{};
    else if constexpr (s.key_limbs().count == 1)
        return Tiers<Tier<typename Of::template Apart<8, 21>>>{};
    else if constexpr (s.polynomial_size == 1024 && s.glwe_dimension == 2)
        return Tiers<Tier<typename Of::template Apart<8, 18>>, Tier<typename Of::template Together<8, 18>, 2>>{};
    else if constexpr (s.polynomial_size <= 2048)
        return Tiers<Tier<typename Of::template Apart<16, 12>>, Tier<typename Of::template Together<16, 24>>>{};
    else
        return Tiers<Tier<typename Of::template Apart<16, 12>, 3>>{};
}

template <class Config>
cudaError_t count_clusters(int* clusters) {
    return clusters_at_once(clusters, kernel_of(Config{}), Config::kBlocks, Config::kThreads, Config::kSharedBytes);
}

template <class ShapeOf, class Layout, int waves>
ClusterKernel kernel_of_tier(Tier<Layout, waves>) {
    using Config = ClusterConfig<ShapeOf, Layout>;
    return {count_clusters<Config>, waves, launch_clusters<Config>};
}

template <class ShapeOf, class... TierOf>
ClusterKernels kernels_of(Tiers<TierOf...>) {
    return {ShapeOf::value, {kernel_of_tier<ShapeOf>(TierOf{})...}};
}

template <std::size_t index>
ClusterKernels kernels_at() {
    constexpr Shape shape = kClusterShapes.shapes[index];
    return kernels_of<ShapeType<shape>>(tiers_of<shape>());
}

template <std::size_t... index>
std::vector<ClusterKernels> kernels_of_part(std::index_sequence<index...>) {
    return {kernels_at<index * kShapedKernelParts + kThisPart>()...};
}

}  // namespace

template <>
std::span<const ClusterKernels> cluster_kernels<kThisPart>() {
    static const std::vector<ClusterKernels> kernels =
        kernels_of_part(std::make_index_sequence<count_of_part(kClusterShapes, kThisPart)>{});
    return kernels;
}

}  // namespace fhe_core::cuda
