#include <cstdlib>
#include <string>

#include "cpu/kernels.hpp"
#include "fhe_core/cpu/features.hpp"
#include "fhe_core/errors.hpp"

namespace fhe_core::cpu {
namespace {

bool runs(std::string_view name) {
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (name == "avx2") return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("fma");
    if (name == "avx512") {
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
               __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("bmi2");
    }
#endif
    return name == "baseline";
}

const Kernels& kernels(std::string_view name) {
#if defined(__x86_64__)
    if (name == "avx512") return kernels_avx512();
    if (name == "avx2") return kernels_avx2();
#endif
    return kernels_baseline();
}

}  // namespace

const Kernels& select_kernels() {
    constexpr std::string_view kNames[] = {"avx512", "avx2", "baseline"};
    const char* forced = std::getenv("CLOAKWORK_CPU");
    if (forced != nullptr && *forced != '\0') {
        for (const std::string_view name : kNames) {
            if (name != forced) continue;
            if (!runs(name)) {
                throw ParameterError("CLOAKWORK_CPU asks for " + std::string(name) +
                                     ", which this processor does not have; unset it");
            }
            return kernels(name);
        }
        throw ParameterError("CLOAKWORK_CPU is '" + std::string(forced) + "'; expected baseline, avx2 or avx512, or unset it");
    }
    for (const std::string_view name : kNames) {
        if (runs(name)) return kernels(name);
    }
    return kernels_baseline();
}

std::string_view instruction_set() { return select_kernels().name; }

}  // namespace fhe_core::cpu
