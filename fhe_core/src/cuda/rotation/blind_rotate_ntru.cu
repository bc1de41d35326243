// Instances of the blind rotation of NTRU accumulators for the shapes of the shipped parameter sets.
#include "cuda/rotation/blind_rotate_ntru.cuh"

#include <cstring>
#include <utility>

#include "cuda/rotation/shaped_kernels.hpp"

namespace fhe_core::cuda {
namespace {

// Groups of four warps, twelve at 168 registers; the latency layout has eight warps of a ciphertext. Digits go two or three at a
// time.
constexpr int together(const Shape& shape) {
    return shape.mask_gadget.level_count % 3 == 0 ? 3 : shape.mask_gadget.level_count % 2 == 0 ? 2 : 1;
}
template <Shape s>
using Throughput = NtruConfig<ShapeType<s>, 3, 16, together(s), 2>;
template <Shape s>
using Small = NtruConfig<ShapeType<s>, 1, 16, together(s), 2>;
template <Shape s>
using Latency = NtruConfig<ShapeType<s>, 1, 8, together(s), 2>;

// NtruConfig::kFirstTwiddle
template <Shape s>
std::vector<std::uint8_t> table_bytes() {
    const std::vector<TwiddlePair> table = ntru_twiddles<Throughput<s>>(), latency = ntru_twiddles<Latency<s>>();
    std::vector<std::uint8_t> bytes((table.size() + latency.size()) * sizeof(TwiddlePair));
    std::memcpy(bytes.data(), table.data(), table.size() * sizeof(TwiddlePair));
    std::memcpy(bytes.data() + table.size() * sizeof(TwiddlePair), latency.data(), latency.size() * sizeof(TwiddlePair));
    return bytes;
}

template <Shape s>
std::vector<std::int32_t> powers() {
    return plain_powers<0>(s.polynomial_size);
}

template <Shape s>
ShapedKernel kernel_for() {
    return {s,
            KeyOrder::warp,
            Throughput<s>::kKeyLanes,
            Throughput<s>::kCiphertexts,
            Small<s>::kSharedBytes,
            table_bytes<s>,
            powers<s>,
            launch_fitting<Throughput<s>, Small<s>, Latency<s>>};
}

template <std::size_t... index>
std::vector<ShapedKernel> all_kernels(std::index_sequence<index...>) {
    return {kernel_for<kNtruShapes.shapes[index]>()...};
}

}  // namespace

std::span<const ShapedKernel> ntru_kernels() {
    static const std::vector<ShapedKernel> kernels = all_kernels(std::make_index_sequence<kNtruShapes.count>{});
    return kernels;
}

}  // namespace fhe_core::cuda
