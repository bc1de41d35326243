// Which shapes of the shipped parameter sets have a kernel of their own, found at compile time, and how they are laid out.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>
#include <vector>

#include "core/tables/paper.hpp"
#include "cuda/rotation/blind_rotate.hpp"

namespace fhe_core::cuda {

inline constexpr int kShapedKernelParts = 4;  // translation units that share the instantiations

constexpr bool has_one_limb_kernel(const Shape& shape) {
    const Rotation& rotation = rotation_of(shape.cmux);
    return shape.extension_factor == 1 && (rotation.factors_on_products() || rotation.selects_key()) && shape.limb_count == 1 &&
           !shape.is_raised() && !shape.is_ntru() && shape.polynomial_size >= 256 && shape.polynomial_size <= 1024;
}

// Of the key; raised sets, whose ciphertexts have one, among them.
constexpr bool has_two_limb_kernel(const Shape& shape) {
    const Rotation& rotation = rotation_of(shape.cmux);
    const int digits = shape.mask_gadget.level_count;
    const bool holds_digits =
        digits == 1 ||
        (!shape.is_raised() && (digits == 2 || (digits <= 4 && shape.polynomial_size == 2048 && shape.mask_gadget.base_log > 7)));
    return shape.extension_factor == 1 && (rotation.factors_on_products() || rotation.selects_key()) &&
           shape.key_limbs().count == 2 && shape.lane_count == 1 && shape.polynomial_size >= 1024 &&
           shape.mask_gadget == shape.body_gadget && shape.mask_gadget.base_log <= 24 && holds_digits &&
           !shape.has_rounded_products();
}

// NTRU accumulators have this kernel alone.
constexpr bool has_ntru_kernel(const Shape& shape) {
    return shape.is_ntru() && rotation_of(shape.cmux).factors_on_products() && shape.polynomial_size == 2048 &&
           shape.glwe_dimension == 1 && shape.limb_count == 1 && shape.lane_count == 1 && shape.extension_factor == 1 &&
           shape.mask_gadget.level_count <= 8;
}

// Sets of rounded products have this kernel alone.
constexpr bool has_rounded_kernel(const Shape& shape) { return shape.has_rounded_products() && shape.lane_count == 1; }

constexpr bool has_extended_kernel(const Shape& shape) {
    return shape.extension_factor > 1 && shape.extension_factor <= 32 && rotation_of(shape.cmux).factors_on_products() &&
           shape.polynomial_size == 2048 && shape.glwe_dimension == 1 && shape.limb_count == 2 && shape.lane_count == 1 &&
           shape.mask_gadget.level_count == 1 && shape.body_gadget.level_count == 1 && shape.mask_gadget.base_log <= 25 &&
           shape.body_gadget.base_log <= 25;
}

// More digits than a multiprocessor holds whole transforms of: a part of a transform at a time.
constexpr bool has_many_digits_kernel(const Shape& shape) {
    const Gadget& gadget = shape.mask_gadget;
    return shape.extension_factor == 1 && rotation_of(shape.cmux).factors_on_products() && rotation_of(shape.cmux).keys <= 3 &&
           (shape.polynomial_size == 2048 || shape.polynomial_size == 4096) && shape.glwe_dimension == 1 && shape.limb_count == 2 &&
           shape.lane_count == 1 && gadget == shape.body_gadget && gadget.level_count > 2 && gadget.level_count <= 9 &&
           gadget.base_log <= 7 && !shape.has_rounded_products();
}

constexpr bool is_toy(const ParameterSet& params) { return params.name.starts_with("toy"); }

static_assert(
    std::ranges::all_of(kAllSets,
                        [](const ParameterSet& params) {
                            return is_toy(params) || has_one_limb_kernel(params.shape) || has_two_limb_kernel(params.shape) ||
                                   has_extended_kernel(params.shape) || has_rounded_kernel(params.shape) ||
                                   has_many_digits_kernel(params.shape) || has_ntru_kernel(params.shape);
                        }),
    "a row of the parameter table has a shape that no kernel is made for, and would run on the plain one: give it a shape that "
    "has_one_limb_kernel, has_two_limb_kernel, has_many_digits_kernel, has_extended_kernel, has_rounded_kernel or has_ntru_kernel "
    "takes, or write a "
    "kernel");

// An emulated build is for tests, which run toy sets; tests/fhe_core/cuda/emulate_kernels.cpp runs other shapes. A wheel has those
// of shipped sets: others run on the plain kernel there, or are refused.
constexpr bool is_built(const ParameterSet& params) {
#if defined(CLOAKWORK_EMULATE_CUDA)
    return is_toy(params);
#elif defined(CLOAKWORK_SHIPPED_KERNELS)
    return !is_toy(params) && !params.is_published();
#else
    return !params.name.empty();
#endif
}

struct ShapeList {
    std::array<Shape, kAllSets.size()> shapes{};
    std::size_t count = 0;
};

// Each shape once, in the order of the tables.
consteval ShapeList shaped_list(bool (*has_kernel)(const Shape&), std::span<const ParameterSet> sets = kAllSets) {
    ShapeList list;
    for (const ParameterSet& params : sets) {
        bool known = !has_kernel(params.shape) || !is_built(params);
        for (std::size_t i = 0; i < list.count; ++i) known = known || list.shapes[i] == params.shape;
        if (!known) list.shapes[list.count++] = params.shape;
    }
    return list;
}

// How many shapes part `part` has.
constexpr std::size_t count_of_part(const ShapeList& list, int part) {
    return (list.count + kShapedKernelParts - 1 - part) / kShapedKernelParts;
}

inline constexpr ShapeList kOneLimbShapes = shaped_list(has_one_limb_kernel);
inline constexpr ShapeList kTwoLimbShapes =
    shaped_list([](const Shape& shape) { return has_two_limb_kernel(shape) || has_many_digits_kernel(shape); });
inline constexpr ShapeList kExtendedShapes = shaped_list(has_extended_kernel);
inline constexpr ShapeList kRoundedShapes = shaped_list(has_rounded_kernel);
inline constexpr ShapeList kNtruShapes = shaped_list(has_ntru_kernel);

// Layouts over clusters, of the same shapes but those of papers/ sets alone, which are measured in batches; none yet of steps whose
// digits select keys.
struct ClusterKernels {
    Shape shape;
    std::vector<ClusterKernel> kernels;
};
inline constexpr ShapeList kClusterShapes = shaped_list(
    [](const Shape& shape) {
        if (rotation_of(shape.cmux).selects_key()) return false;
        return has_one_limb_kernel(shape) || (has_two_limb_kernel(shape) && shape.mask_gadget.level_count == 1);
    },
    kParameterSets);

std::span<const ShapedKernel> rounded_kernels();  // not in parts: they are few
std::span<const ShapedKernel> ntru_kernels();
// Of one part: shapes part, part + kShapedKernelParts, .. of each list.
template <int part>
std::span<const ShapedKernel> one_limb_kernels();
template <int part>
std::span<const ShapedKernel> two_limb_kernels();
template <int part>
std::span<const ShapedKernel> extended_kernels();
template <int part>
std::span<const ClusterKernels> cluster_kernels();
#define FHE_CORE_DECLARE_PART(part)                         \
    template <>                                             \
    std::span<const ShapedKernel> one_limb_kernels<part>(); \
    template <>                                             \
    std::span<const ShapedKernel> two_limb_kernels<part>(); \
    template <>                                             \
    std::span<const ShapedKernel> extended_kernels<part>(); \
    template <>                                             \
    std::span<const ClusterKernels> cluster_kernels<part>();
FHE_CORE_DECLARE_PART(0)
FHE_CORE_DECLARE_PART(1)
FHE_CORE_DECLARE_PART(2)
FHE_CORE_DECLARE_PART(3)
#undef FHE_CORE_DECLARE_PART
static_assert(kShapedKernelParts == 4);

}  // namespace fhe_core::cuda
