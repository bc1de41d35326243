// Which vector kernels this process uses.
#pragma once

#include <string_view>

namespace fhe_core::cpu {

// baseline, avx2 or avx512; ParameterError when CLOAKWORK_CPU names one that cannot run here.
std::string_view instruction_set();

}  // namespace fhe_core::cpu
