// Instances of the two-bit blind rotation for the shapes of the shipped parameter sets. Compiled kShapedKernelParts times: of
// their list, unit FHE_CORE_PART makes every kShapedKernelParts-th shape, beginning with the one of its own number.
#include "cuda/rotation/rotation_layouts.cuh"

#include <cstring>

#include "cuda/rotation/shaped_kernels.hpp"
#include "cuda/transform/transform_tables.hpp"

namespace fhe_core::cuda {
namespace {

constexpr int kThisPart = FHE_CORE_PART;

template <class Ntt>
std::vector<std::uint8_t> twiddle_bytes() {
    const std::vector<TwiddlePair> table = twiddle_table<Ntt>();
    std::vector<std::uint8_t> bytes(table.size() * sizeof(TwiddlePair));
    std::memcpy(bytes.data(), table.data(), bytes.size());
    return bytes;
}

template <Shape s>
ShapedKernel kernel_for() {
    using Layouts = LayoutsOf<ShapeType<s>>;
    using Ntt = typename Layouts::Throughput::Ntt;
    return {s,
            KeyOrder::warp,
            32,
            Layouts::Throughput::kCiphertexts,
            Layouts::Small::kSharedBytes,
            twiddle_bytes<Ntt>,
            power_table<Ntt>,
            launch_fitting<typename Layouts::Throughput, typename Layouts::Small, typename Layouts::Latency>};
}

template <std::size_t... index>
std::vector<ShapedKernel> kernels_of_part(std::index_sequence<index...>) {
    return {kernel_for<kOneLimbShapes.shapes[index * kShapedKernelParts + kThisPart]>()...};
}

}  // namespace

template <>
std::span<const ShapedKernel> one_limb_kernels<kThisPart>() {
    static const std::vector<ShapedKernel> kernels =
        kernels_of_part(std::make_index_sequence<count_of_part(kOneLimbShapes, kThisPart)>{});
    return kernels;
}

}  // namespace fhe_core::cuda
