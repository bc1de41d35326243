// Instances of the two-limb blind rotation for the shapes of the shipped parameter sets.
#include "cuda/blind_rotate_two_limbs.cuh"

#include <cstring>

#include "cuda/shaped_kernels.hpp"

namespace fhe_core::cuda {
namespace {

// Measured on an H200 (docs/benchmarks/cuda-log.md). Throughput: sixteen warps at 128 registers, or twelve at 168 where three
// components make six of a ciphertext; latency: one ciphertext over as many warps as there is work for.
constexpr bool has_three_components(const Shape& shape) { return shape.polynomial_size == 1024 && shape.glwe_dimension == 2; }
constexpr int groups_of(const Shape& shape) {
    return shape.polynomial_size == 4096 ? 1 : shape.polynomial_size == 2048 ? 2 : has_three_components(shape) ? 2 : 4;
}
constexpr int warps_of(const Shape& shape) { return has_three_components(shape) ? 3 : 2; }
constexpr int latency_warps_of(const Shape& shape) { return shape.polynomial_size == 4096 ? 2 : 4; }

template <std::size_t index>
struct ShapeAt {
    static constexpr Shape s = kTwoLimbShapes.shapes[index];
    using type = ShapeType<s>;
    using Throughput = TwoLimbConfig<type, groups_of(s), warps_of(s)>;
    using Latency = TwoLimbConfig<type, 1, latency_warps_of(s)>;
};

template <class At>
cudaError_t launch_rotation(const BlindRotateView& view, int multiprocessors, cudaStream_t stream) {
    return launch_by_batch<typename At::Throughput, typename At::Latency>(view, multiprocessors, stream);
}

template <class Config>
std::vector<std::uint8_t> table_bytes() {
    const std::vector<PartTwiddles> tables = two_limb_tables<Config>();
    std::vector<std::uint8_t> bytes(tables.size() * sizeof(PartTwiddles));
    std::memcpy(bytes.data(), tables.data(), bytes.size());
    return bytes;
}

template <std::size_t index>
ShapedKernel kernel_at() {
    using At = ShapeAt<index>;
    using Config = typename At::Throughput;
    return {At::s,
            KeyOrder::warp,
            32 * Config::kParts,
            Config::kCiphertexts,
            Config::kSharedBytes,
            table_bytes<Config>,
            two_limb_powers<Config>,
            launch_rotation<At>};
}

template <std::size_t... index>
std::vector<ShapedKernel> all_kernels(std::index_sequence<index...>) {
    return {kernel_at<index>()...};
}

}  // namespace

std::span<const ShapedKernel> two_limb_kernels() {
    static const std::vector<ShapedKernel> kernels = all_kernels(std::make_index_sequence<kTwoLimbShapes.count>{});
    return kernels;
}

}  // namespace fhe_core::cuda
