// Instances of the blind rotation of extended tables for the shapes of the shipped parameter sets. Compiled kShapedKernelParts
// times, as blind_rotate_one_limb.cu.
#include "cuda/rotation/blind_rotate_extended.cuh"

#include <utility>

#include "cuda/rotation/shaped_kernels.hpp"

namespace fhe_core::cuda {
namespace {

constexpr int kThisPart = FHE_CORE_PART;

template <std::size_t index>
ShapedKernel kernel_at() {
    constexpr Shape shape = kExtendedShapes.shapes[index];
    using Config = ExtendedConfig<ShapeType<shape>>;
    return {shape,
            KeyOrder::extended,
            32,
            Config::kCiphertexts,
            Config::kSharedBytes,
            extended_tables<Config>,
            two_limb_powers<typename Config::Transform>,
            launch_extended<Config>,
            4 * Config::kScratchWords * Config::kBlocks,
            extended_at_once<Config>};
}

template <std::size_t... index>
std::vector<ShapedKernel> kernels_of_part(std::index_sequence<index...>) {
    return {kernel_at<index * kShapedKernelParts + kThisPart>()...};
}

constexpr std::size_t kCount = (kExtendedShapes.count + kShapedKernelParts - 1 - kThisPart) / kShapedKernelParts;

}  // namespace

template <>
std::span<const ShapedKernel> extended_kernels<kThisPart>() {
    static const std::vector<ShapedKernel> kernels = kernels_of_part(std::make_index_sequence<kCount>{});
    return kernels;
}

}  // namespace fhe_core::cuda
