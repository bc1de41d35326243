// Instances of the two-limb blind rotation for the shapes of the shipped parameter sets, in parts as blind_rotate_pair.cu.
#include "cuda/rotation_layouts.cuh"

#include <cstring>

#include "cuda/shaped_kernels.hpp"

namespace fhe_core::cuda {
namespace {

constexpr int kThisPart = FHE_CORE_PART;

template <class Config>
std::vector<std::uint8_t> table_bytes() {
    const std::vector<PartTwiddles> tables = two_limb_tables<Config>();
    std::vector<std::uint8_t> bytes(tables.size() * sizeof(PartTwiddles));
    std::memcpy(bytes.data(), tables.data(), bytes.size());
    return bytes;
}

template <Shape s>
ShapedKernel kernel_for() {
    using Layouts = LayoutsOf<ShapeType<s>>;
    using Config = typename Layouts::Throughput;
    return {s,
            KeyOrder::warp,
            32 * Config::kParts,
            Config::kCiphertexts,
            Layouts::Small::kSharedBytes,
            table_bytes<Config>,
            two_limb_powers<Config>,
            launch_fitting<Config, typename Layouts::Small, typename Layouts::Latency>};
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
