// What sm_90a adds, one function for an instruction: barriers in shared memory that also count bytes (mbarrier), the copy engine
// (cp.async.bulk), byte products by a warpgroup of four warps (wgmma), registers that a warpgroup gives to another (setmaxnreg).
//
// Operands of products are tiles of rows of 64 bytes (K runs fastest) in shared memory, 512 bytes aligned: the 16-byte chunk c of
// row r lies at c ^ (r/2 % 4), the swizzle of 64 bytes.
// Source: [PTX25] sections on mbarrier, cp.async.bulk, wgmma, setmaxnreg.
#pragma once

#include <cstdint>

#include "cuda/device/modulus.cuh"

namespace fhe_core::cuda {

inline constexpr int kOperandColumns = 64;  // bytes of a row of a tile
inline constexpr int kProductColumns = 32;  // of one wgmma

// Where chunk c of 16 bytes of a row lies in its tile.
FHE_HD int operand_offset(int row, int chunk) { return row * kOperandColumns + ((chunk ^ (row >> 1 & 3)) << 4); }

}  // namespace fhe_core::cuda

#if defined(__CUDACC__)

namespace fhe_core::cuda {

__device__ __forceinline__ std::uint32_t shared_space(const void* pointer) {
    return static_cast<std::uint32_t>(__cvta_generic_to_shared(pointer));
}

// --- barriers in shared memory: a phase ends when `count` threads have arrived and all announced bytes are there ---

using MemoryBarrier = std::uint64_t;

__device__ __forceinline__ void barrier_init(MemoryBarrier* barrier, int count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_space(barrier)), "r"(count) : "memory");
}
// Behind it, and a barrier of the block, other threads and the copy engine may use barriers that this thread made.
__device__ __forceinline__ void barrier_init_done() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
__device__ __forceinline__ void barrier_arrive(MemoryBarrier* barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_space(barrier)) : "memory");
}
__device__ __forceinline__ void barrier_arrive_with_bytes(MemoryBarrier* barrier, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_space(barrier)), "r"(bytes) : "memory");
}
// Until the phase of this parity (0 for the first) has ended; the one before the first counts as ended.
__device__ __forceinline__ void barrier_wait(MemoryBarrier* barrier, int parity) {
    std::uint32_t ended = 0;
    while (ended == 0)
        asm volatile(
            "{\n .reg .pred ended;\n mbarrier.try_wait.parity.shared::cta.b64 ended, [%1], %2;\n selp.u32 %0, 1, 0, ended;\n}"
            : "=r"(ended)
            : "r"(shared_space(barrier)), "r"(parity)
            : "memory");
}

// `bytes` (a multiple of 16, as the addresses) by the copy engine; the barrier counts them.
__device__ __forceinline__ void bulk_copy(std::int8_t* to, const std::int8_t* from, int bytes, MemoryBarrier* barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(shared_space(to)),
                 "l"(from), "r"(bytes), "r"(shared_space(barrier))
                 : "memory");
}

// What this thread wrote to shared memory is there for the tensor cores.
__device__ __forceinline__ void fence_written_operands() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// --- registers ---

template <int count>
__device__ __forceinline__ void keep_registers() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(count));
}
template <int count>
__device__ __forceinline__ void take_registers() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(count));
}

// --- products ---

// The descriptor of a tile: address and, between groups of 8 rows, 512 bytes, in units of 16; swizzle of 64 bytes.
using Operand = std::uint64_t;

__device__ __forceinline__ Operand operand_of(const std::int8_t* tile) {
    return std::uint64_t{2} << 62 | std::uint64_t{(8 * kOperandColumns) >> 4} << 32 | std::uint64_t{1} << 16 |
           ((shared_space(tile) & 0x3ffff) >> 4);
}
__device__ __forceinline__ Operand next_columns(Operand operand) { return operand + (kProductColumns >> 4); }

// Registers of sums may have been written by the threads: products come after that.
__device__ __forceinline__ void begin_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void end_products() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// All but the last `pending` groups are done.
template <int pending>
__device__ __forceinline__ void wait_products() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(pending) : "memory");
}
// Sums are not read before this line, nor written behind it.
template <int count>
__device__ __forceinline__ void settle(std::int32_t (&sums)[count]) {
#pragma unroll
    for (int i = 0; i < count; ++i) asm volatile("" : "+r"(sums[i])::"memory");
}

#define FHE_SUMS_8(i)                                                                                             \
    "+r"(sums[i]), "+r"(sums[i + 1]), "+r"(sums[i + 2]), "+r"(sums[i + 3]), "+r"(sums[i + 4]), "+r"(sums[i + 5]), \
        "+r"(sums[i + 6]), "+r"(sums[i + 7])
#define FHE_SUMS_16(i) FHE_SUMS_8(i), FHE_SUMS_8(i + 8)

// clang-format off
#define FHE_NAMES_112 \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
    "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
    "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, " \
    "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, " \
    "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, " \
    "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111"
#define FHE_NAMES_128 FHE_NAMES_112 \
    ", %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
// clang-format on

// sums (+)= rows . columns over 32 bytes: signed bytes of 64 rows, unsigned bytes of 2 * `count` columns. Thread t of the warpgroup
// has rows 16 * (t/32) + t%32/4 (i%4 = 0, 1) and 8 more (2, 3), columns 8 * (i/4) + 2 * (t%4) + i%2, for register i.
template <int count>
__device__ __forceinline__ void multiply(std::int32_t (&sums)[count], Operand rows, Operand columns, bool add) {
    static_assert(count == 128 || count == 112);
    if constexpr (count == 128)
        asm volatile(
            "{\n .reg .pred add;\n setp.ne.b32 add, %130, 0;\n wgmma.mma_async.sync.aligned.m64n256k32.s32.s8.u8 {" FHE_NAMES_128
            "}, %128, %129, add;\n}"
            : FHE_SUMS_16(0), FHE_SUMS_16(16), FHE_SUMS_16(32), FHE_SUMS_16(48), FHE_SUMS_16(64), FHE_SUMS_16(80), FHE_SUMS_16(96),
              FHE_SUMS_16(112)
            : "l"(rows), "l"(columns), "r"(static_cast<int>(add)));
    else
        asm volatile(
            "{\n .reg .pred add;\n setp.ne.b32 add, %114, 0;\n wgmma.mma_async.sync.aligned.m64n224k32.s32.s8.u8 {" FHE_NAMES_112
            "}, %112, %113, add;\n}"
            : FHE_SUMS_16(0), FHE_SUMS_16(16), FHE_SUMS_16(32), FHE_SUMS_16(48), FHE_SUMS_16(64), FHE_SUMS_16(80), FHE_SUMS_16(96)
            : "l"(rows), "l"(columns), "r"(static_cast<int>(add)));
}

}  // namespace fhe_core::cuda

#elif defined(CLOAKWORK_EMULATE_WARPS)
#include "cuda/emulation/hopper.hpp"
#endif
