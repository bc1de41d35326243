#include "cuda/shaped_kernels.hpp"

#include <utility>

namespace fhe_core::cuda {

template <int... part>
static const ShapedKernel* find_in(const Shape& shape, std::integer_sequence<int, part...>) {
    for (const std::span<const ShapedKernel> kernels : {pair_kernels<part>()..., two_limb_kernels()})
        for (const ShapedKernel& kernel : kernels)
            if (kernel.shape == shape) return &kernel;
    return nullptr;
}

const ShapedKernel* find_shaped_kernel(const Shape& shape) {
    return find_in(shape, std::make_integer_sequence<int, kShapedKernelParts>{});
}

}  // namespace fhe_core::cuda
