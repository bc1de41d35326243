// Instances of the blind rotation with rounded products for the shapes of the shipped parameter sets.
#include "cuda/rotation/blind_rotate_rounded.cuh"

#include <cstring>
#include <utility>

#include "cuda/rotation/shaped_kernels.hpp"

namespace fhe_core::cuda {
namespace {

static_assert(std::ranges::all_of(kAllSets, [](const ParameterSet& params) {
    return !params.has_rounded_products() || params.lwe_dimension <= kMostRoundedDimension;
}));

// Measured on an H200 (docs/benchmarks/fft.md): four ciphertexts share a word of the key, which is called to L2 two steps ahead.
template <Shape s>
using Throughput = RoundedConfig<ShapeType<s>, 4, 2, 2>;
template <Shape s>
using Small = RoundedConfig<ShapeType<s>, 1, 2, 2>;

std::vector<std::uint8_t> table_bytes() {
    const std::vector<LaneRoots> tables = LaneRoots::make();
    std::vector<std::uint8_t> bytes(sizeof(LaneRoots));
    std::memcpy(bytes.data(), tables.data(), bytes.size());
    return bytes;
}

template <Shape s>
ShapedKernel kernel_for() {
    return {s,
            KeyOrder::rounded,
            32,
            Throughput<s>::kCiphertexts,
            Small<s>::kSharedBytes,
            table_bytes,
            nullptr,
            launch_rounded_fitting<Throughput<s>, Small<s>>};
}

template <std::size_t... index>
std::vector<ShapedKernel> all_kernels(std::index_sequence<index...>) {
    return {kernel_for<kRoundedShapes.shapes[index]>()...};
}

}  // namespace

std::span<const ShapedKernel> rounded_kernels() {
    static const std::vector<ShapedKernel> kernels = all_kernels(std::make_index_sequence<kRoundedShapes.count>{});
    return kernels;
}

}  // namespace fhe_core::cuda
