// Marks a function whose plain loops the compiler vectorises once per instruction set; the loader picks the variant.
#pragma once

#if defined(__x86_64__) && defined(__gnu_linux__) && defined(__GNUC__) && !defined(__clang__)
#define FHE_CORE_VECTOR_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define FHE_CORE_VECTOR_CLONES
#endif
