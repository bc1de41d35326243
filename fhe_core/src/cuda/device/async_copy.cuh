// cp.async: copies from device to shared memory that a thread starts and waits for later.
#pragma once

#include <cstdint>

#if defined(CLOAKWORK_EMULATE_CUDA)
#include "cuda/emulation/tensor_core.hpp"
#endif

namespace fhe_core::cuda {

#if defined(__CUDACC__)

__device__ __forceinline__ std::uint32_t shared_address(const void* pointer) {
    return static_cast<std::uint32_t>(__cvta_generic_to_shared(pointer));
}
// 4, 8 or 16 aligned bytes; of 16 past L1.
template <int bytes = 16>
__device__ __forceinline__ void copy_async(void* to, const void* from) {
    if constexpr (bytes == 16)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(to)), "l"(from) : "memory");
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(shared_address(to)), "l"(from), "n"(bytes) : "memory");
}
__device__ __forceinline__ void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// All but the last `pending` groups of this thread are there.
template <int pending>
__device__ __forceinline__ void wait_copies() {
    asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory");
}

#endif

}  // namespace fhe_core::cuda
