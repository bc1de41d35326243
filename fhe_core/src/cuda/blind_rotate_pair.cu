// Instances of the two-bit blind rotation for the shapes of the shipped parameter sets. Compiled kShapedKernelParts times: of
// their list, unit FHE_CORE_PART makes every kShapedKernelParts-th shape, beginning with the one of its own number.
#include "cuda/blind_rotate_latency.cuh"
#include "cuda/blind_rotate_pair.cuh"

#include <cstring>

#include "cuda/shaped_kernels.hpp"
#include "cuda/transform_tables.hpp"

namespace fhe_core::cuda {
namespace {

constexpr int kThisPart = FHE_CORE_PART;

template <std::size_t index>
struct ShapeAt {
    static constexpr Shape s = kPairShapes.shapes[index];
    using type = ShapeType<s>;
};

// Measured on an H200 (docs/benchmarks/cuda-log.md): twelve warps at 168 registers, eight at 255 for N = 1024. One loop over the
// digits of both gadgets unless they could share twiddles better apart; two buffers from three digits on.
constexpr bool has_one_loop(const Shape& shape) {
    return shape.polynomial_size == 1024 || shape.mask_gadget.level_count == shape.body_gadget.level_count;
}
constexpr int digits_of(const Shape& shape) {
    return shape.polynomial_size == 1024 ? 1 : shape.mask_gadget.level_count == 3 ? 3 : 2;
}
constexpr int buffers_of(const Shape& shape) { return shape.polynomial_size < 1024 && shape.mask_gadget.level_count > 2 ? 2 : 1; }
constexpr int groups_of(const Shape& shape, int buffers) {
    const int warps = shape.polynomial_size == 1024 ? 8 : 12;
    const int rows = shape.glwe_dimension * shape.mask_gadget.level_count + shape.body_gadget.level_count;
    const int tables = 4 * (4 * shape.polynomial_size + 4 * shape.polynomial_size);
    const int group = 4 * buffers * rows * shape.polynomial_size;
    int groups = warps / (shape.glwe_dimension + 1);
    while (groups > 1 && (groups > 8 || tables + groups * group > 220 * 1024)) --groups;
    return groups;
}

template <std::size_t index, int buffers>
using ConfigAt = PairConfig<typename ShapeAt<index>::type,
                            PairLayout<groups_of(ShapeAt<index>::s, buffers), 1, buffers, digits_of(ShapeAt<index>::s),
                                       ShapeAt<index>::s.polynomial_size == 1024 ? 1 : 2, has_one_loop(ShapeAt<index>::s)>>;

template <class Ntt>
std::vector<std::uint8_t> twiddle_bytes() {
    const std::vector<TwiddlePair> table = twiddle_table<Ntt>();
    std::vector<std::uint8_t> bytes(table.size() * sizeof(TwiddlePair));
    std::memcpy(bytes.data(), table.data(), bytes.size());
    return bytes;
}

// Two buffers where a multiprocessor has the memory for them (sm_89 has not).
template <std::size_t index>
cudaError_t launch_rotation(const BlindRotateView& view, int multiprocessors, cudaStream_t stream) {
    using Config = ConfigAt<index, buffers_of(ShapeAt<index>::s)>;
    using Single = ConfigAt<index, 1>;
    if constexpr (Config::kSharedBytes > Single::kSharedBytes) {
        int device = 0, most = 0;
        cudaError_t status = cudaGetDevice(&device);
        if (status == cudaSuccess) status = cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
        if (status != cudaSuccess) return status;
        if (Config::kSharedBytes > static_cast<std::size_t>(most))
            return launch_by_batch<Single, LatencyConfig<Single>>(view, multiprocessors, stream);
    }
    return launch_by_batch<Config, LatencyConfig<Config>>(view, multiprocessors, stream);
}

template <std::size_t index>
ShapedKernel kernel_at() {
    using Config = ConfigAt<index, 1>;
    return {Config::shape,
            KeyOrder::warp,
            32,
            Config::kCiphertexts,
            Config::kSharedBytes,
            twiddle_bytes<typename Config::Ntt>,
            power_table<typename Config::Ntt>,
            launch_rotation<index>};
}

template <std::size_t... index>
std::vector<ShapedKernel> kernels_of_part(std::index_sequence<index...>) {
    return {kernel_at<index * kShapedKernelParts + kThisPart>()...};
}

constexpr std::size_t kCount = (kPairShapes.count + kShapedKernelParts - 1 - kThisPart) / kShapedKernelParts;

}  // namespace

template <>
std::span<const ShapedKernel> pair_kernels<kThisPart>() {
    static const std::vector<ShapedKernel> kernels = kernels_of_part(std::make_index_sequence<kCount>{});
    return kernels;
}

}  // namespace fhe_core::cuda
