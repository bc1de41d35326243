// Instances of the two-limb blind rotation for the shapes of the shipped parameter sets.
#include "cuda/blind_rotate_two_limbs.cuh"

#include <cstring>

#include "cuda/shaped_kernels.hpp"

namespace fhe_core::cuda {
namespace {

// Twelve warps at 168 registers for N = 2048, eight at 255 for N = 1024 (more coefficients each) and 4096 (shared memory).
constexpr int groups_of(const Shape& shape) { return shape.polynomial_size == 2048 ? 3 : shape.polynomial_size == 1024 ? 4 : 1; }

template <std::size_t index>
struct ConfigAt {
    static constexpr Shape s = kTwoLimbShapes.shapes[index];
    using type = TwoLimbConfig<KernelShape<s.polynomial_size, s.glwe_dimension, s.limb_count, s.mask_gadget.base_log,
                                           s.mask_gadget.level_count, s.body_gadget.base_log, s.body_gadget.level_count, s.cmux>,
                               groups_of(s)>;
};

template <class Config>
std::vector<std::uint8_t> table_bytes() {
    const std::vector<PartTwiddles> tables = two_limb_tables<Config>();
    std::vector<std::uint8_t> bytes(tables.size() * sizeof(PartTwiddles));
    std::memcpy(bytes.data(), tables.data(), bytes.size());
    return bytes;
}

template <std::size_t... index>
std::vector<ShapedKernel> all_kernels(std::index_sequence<index...>) {
    return {ShapedKernel{ConfigAt<index>::type::shape, KeyOrder::warp, 32 * ConfigAt<index>::type::kParts,
                         ConfigAt<index>::type::kGroups, ConfigAt<index>::type::kSharedBytes,
                         table_bytes<typename ConfigAt<index>::type>, two_limb_powers<typename ConfigAt<index>::type>,
                         launch_blind_rotate_two_limbs<typename ConfigAt<index>::type>}...};
}

}  // namespace

std::span<const ShapedKernel> two_limb_kernels() {
    static const std::vector<ShapedKernel> kernels = all_kernels(std::make_index_sequence<kTwoLimbShapes.count>{});
    return kernels;
}

}  // namespace fhe_core::cuda
