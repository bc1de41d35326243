// Instances of the two-limb blind rotations, many digits among them, for the shapes of the shipped parameter sets, in parts as
// blind_rotate_one_limb.cu.
#include "cuda/rotation/rotation_layouts.cuh"

#include "cuda/rotation/shaped_kernels.hpp"

namespace fhe_core::cuda {
namespace {

constexpr int kThisPart = FHE_CORE_PART;

template <Shape s>
ShapedKernel kernel_for() {
    using Layouts = LayoutsOf<ShapeType<s>>;
    using Config = typename Layouts::Throughput;
    return {s,
            KeyOrder::warp,
            32 * Config::kParts,
            Config::kCiphertexts,
            Layouts::Small::kSharedBytes,
            two_limb_table_bytes<Config>,
            two_limb_powers<Config>,
            launch_fitting<Config, typename Layouts::Small, typename Layouts::Latency>,
            scratch_bytes<Config>()};
}

template <std::size_t... index>
std::vector<ShapedKernel> kernels_of_part(std::index_sequence<index...>) {
    return {kernel_for<kTwoLimbShapes.shapes[index * kShapedKernelParts + kThisPart]>()...};
}

}  // namespace

template <>
std::span<const ShapedKernel> two_limb_kernels<kThisPart>() {
    static const std::vector<ShapedKernel> kernels =
        kernels_of_part(std::make_index_sequence<count_of_part(kTwoLimbShapes, kThisPart)>{});
    return kernels;
}

}  // namespace fhe_core::cuda
