#include <cstdlib>
#include <string>

#include "core/errors.hpp"
#include "core/processor.hpp"
#include "cpu/features.hpp"
#include "cpu/kernels.hpp"

namespace fhe_core::cpu {
namespace {

// The instruction sets of this build (CLOAKWORK_KERNELS), the best first.
struct Choice {
    std::string_view name;
    const Kernels& (*kernels)();
};
constexpr Choice kChoices[] = {
#ifdef FHE_CORE_WITH_AVX512
    {"avx512", kernels_avx512},
#endif
#ifdef FHE_CORE_WITH_AVX2
    {"avx2", kernels_avx2},
#endif
#ifdef FHE_CORE_WITH_BASELINE
    {"baseline", kernels_baseline},
#endif
};

bool runs(std::string_view name) {
    const Processor has = processor();
    return name == "baseline" || (name == "avx2" && has.avx2) || (name == "avx512" && has.avx512);
}

const Kernels& forced_kernels(std::string_view forced) {
    for (const std::string_view name : {"avx512", "avx2", "baseline"}) {
        if (name != forced) continue;
        if (!runs(name)) {
            throw ParameterError("CLOAKWORK_CPU asks for " + std::string(name) + ", which this processor does not have; unset it");
        }
        for (const Choice& choice : kChoices) {
            if (choice.name == name) return choice.kernels();
        }
        throw ParameterError("CLOAKWORK_CPU asks for " + std::string(name) +
                             ", which this build leaves out (CLOAKWORK_KERNELS=native); unset it, or install cloakwork again");
    }
    throw ParameterError("CLOAKWORK_CPU is '" + std::string(forced) + "'; expected baseline, avx2 or avx512, or unset it");
}

}  // namespace

const Kernels& select_kernels() {
    const char* forced = std::getenv("CLOAKWORK_CPU");
    if (forced != nullptr && *forced != '\0') return forced_kernels(forced);
    for (const Choice& choice : kChoices) {
        if (runs(choice.name)) return choice.kernels();
    }
    throw UnsupportedError(
        "cloakwork was built with kernels for the processor of another machine alone (CLOAKWORK_KERNELS=native); "
        "install it here");
}

std::string_view instruction_set() { return select_kernels().name; }

}  // namespace fhe_core::cpu
