// One body of a kernel for both widths of words.
#pragma once

#include <cstdint>

#include "core/parameters.hpp"

namespace fhe_core::cuda {

// f(std::uint32_t{}) for sets of one limb, f(std::uint64_t{}) for two.
template <class F>
void with_words(const ParameterSet& params, F&& f) {
    if (params.limb_count() == 1)
        f(std::uint32_t{});
    else
        f(std::uint64_t{});
}

}  // namespace fhe_core::cuda
