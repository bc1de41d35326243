// Which shapes of the shipped parameter sets have a kernel of their own, found at compile time, and how they are laid out.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>

#include "cuda/blind_rotate.hpp"
#include "fhe_core/parameter_sets.hpp"

namespace fhe_core::cuda {

inline constexpr int kShapedKernelParts = 4;  // translation units that share the instantiations

constexpr bool has_pair_kernel(const Shape& shape) {
    return rotation_of(shape.cmux).factors_on_products() && shape.limb_count == 1 && shape.polynomial_size >= 256 &&
           shape.polynomial_size <= 1024;
}

constexpr bool has_two_limb_kernel(const Shape& shape) {
    return rotation_of(shape.cmux).factors_on_products() && shape.limb_count == 2 && shape.polynomial_size >= 1024 &&
           shape.mask_gadget == shape.body_gadget && shape.mask_gadget.level_count == 1 && shape.mask_gadget.base_log <= 24;
}

constexpr bool is_toy(const ParameterSet& params) { return params.name.starts_with("toy"); }

static_assert(
    std::ranges::all_of(kParameterSets,
                        [](const ParameterSet& params) {
                            return is_toy(params) || has_pair_kernel(params.shape) || has_two_limb_kernel(params.shape);
                        }),
    "a row of the parameter table has a shape that no kernel is made for, and would run on the plain one: give it a shape that "
    "has_pair_kernel or has_two_limb_kernel takes, or write a kernel");

// An emulated build is for tests, which run toy sets; tests/fhe_core/cuda/emulate_kernels.cpp runs other shapes.
constexpr bool is_built(const ParameterSet& params) {
#ifdef CLOAKWORK_EMULATE_CUDA
    return is_toy(params);
#else
    return !params.name.empty();
#endif
}

struct ShapeList {
    std::array<Shape, kParameterSets.size()> shapes{};
    std::size_t count = 0;
};

// Each shape once, in the order of the table.
consteval ShapeList shaped_list(bool (*has_kernel)(const Shape&)) {
    ShapeList list;
    for (const ParameterSet& params : kParameterSets) {
        bool known = !has_kernel(params.shape) || !is_built(params);
        for (std::size_t i = 0; i < list.count; ++i) known = known || list.shapes[i] == params.shape;
        if (!known) list.shapes[list.count++] = params.shape;
    }
    return list;
}

inline constexpr ShapeList kPairShapes = shaped_list(has_pair_kernel);

template <int part>
std::span<const ShapedKernel> pair_kernels();
template <>
std::span<const ShapedKernel> pair_kernels<0>();
template <>
std::span<const ShapedKernel> pair_kernels<1>();
template <>
std::span<const ShapedKernel> pair_kernels<2>();
template <>
std::span<const ShapedKernel> pair_kernels<3>();
static_assert(kShapedKernelParts == 4);

inline constexpr ShapeList kTwoLimbShapes = shaped_list(has_two_limb_kernel);
std::span<const ShapedKernel> two_limb_kernels();

}  // namespace fhe_core::cuda
