// Owner of the transform tables of one (polynomial size, prime, vector width); layout in kernels.hpp.
#pragma once

#include <cstdint>
#include <vector>

#include "cpu/kernels.hpp"

namespace fhe_core::cpu {

class TransformTables {
   public:
    TransformTables(int polynomial_size, int limb, int width);
    const NttTables& view() const { return view_; }

   private:
    void fill_twiddles(int polynomial_size, int width);

    std::vector<std::int32_t> forward_, inverse_, forward_tail_, inverse_tail_, powers_, power_companions_, lane_exponents_,
        vector_exponents_;
    NttTables view_{};
};

}  // namespace fhe_core::cpu
