// What vector instructions this processor and its operating system run. Asked of the processor itself: __builtin_cpu_supports is a
// function of the compiler's library, and that of clang's in the wheel `ziglang`, which wheels may be built with, says no to all.
#pragma once

#if defined(__x86_64__)
#include <cpuid.h>

#include <cstdint>
#endif

namespace fhe_core {

struct Processor {
    bool avx2 = false;    // with BMI2 and FMA
    bool avx512 = false;  // F, BW, DQ and VL, with BMI2
};

inline Processor processor() {
    Processor found;
#if defined(__x86_64__)
    unsigned a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d)) return found;
    const bool fma = (c >> 12) & 1, saves = (c >> 27) & 1;
    if (!saves || !__get_cpuid_count(7, 0, &a, &b, &c, &d)) return found;
    std::uint32_t low, high;  // which registers the operating system keeps: bits 1, 2 of AVX, 5 to 7 of AVX-512
    asm("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    const auto has = [&](int bit) { return bool((b >> bit) & 1); };
    const bool bmi2 = has(8);
    found.avx2 = (low & 0x06) == 0x06 && has(5) && bmi2 && fma;
    found.avx512 = (low & 0xe6) == 0xe6 && has(16) && has(17) && has(30) && has(31) && bmi2;
#endif
    return found;
}

}  // namespace fhe_core
