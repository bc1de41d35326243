// A shape as a type, by which kernels are instantiated.
#pragma once

#include "core/parameters.hpp"

namespace fhe_core::cuda {

// Types, not values: nvcc 13 cannot launch kernels with parameters of class type.
template <int polynomial_size, int glwe_dimension, int limb_count, int mask_base_log, int mask_levels, int body_base_log,
          int body_levels, CmuxKind cmux, int extension_factor = 1, Raising raising = Raising::none, int lane_count = 1,
          Accumulator accumulator = Accumulator::glwe>
struct KernelShape {
    static constexpr Shape value{polynomial_size,
                                 glwe_dimension,
                                 limb_count,
                                 {mask_base_log, mask_levels},
                                 {body_base_log, body_levels},
                                 cmux,
                                 extension_factor,
                                 raising,
                                 lane_count,
                                 accumulator};
};

// The type of a constant shape.
template <Shape s>
using ShapeType = KernelShape<s.polynomial_size, s.glwe_dimension, s.limb_count, s.mask_gadget.base_log, s.mask_gadget.level_count,
                              s.body_gadget.base_log, s.body_gadget.level_count, s.cmux, s.extension_factor, s.raising,
                              s.lane_count, s.accumulator>;

}  // namespace fhe_core::cuda
