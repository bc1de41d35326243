// Enqueues a kernel, on the device or (CLOAKWORK_CUDA=EMULATE) at once on the CPU.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>

namespace fhe_core::cuda {

#ifdef __CUDACC__

template <class... Parameters, class... Arguments>
cudaError_t enqueue(void (*kernel)(Parameters...), std::size_t blocks, int threads, std::size_t shared_bytes, cudaStream_t stream,
                    const Arguments&... arguments) {
    if (shared_bytes > (48 << 10)) {
        const cudaError_t status =
            cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared_bytes));
        if (status != cudaSuccess) return status;
    }
    kernel<<<static_cast<unsigned>(blocks), threads, shared_bytes, stream>>>(arguments...);
    return cudaGetLastError();
}

#elif defined(CLOAKWORK_EMULATE_WARPS)

template <class... Parameters, class... Arguments>
cudaError_t enqueue(void (*kernel)(Parameters...), std::size_t blocks, int threads, std::size_t shared_bytes, cudaStream_t,
                    const Arguments&... arguments) {
    const bool ended = emulation::run_grid(static_cast<unsigned>(blocks), static_cast<unsigned>(threads), shared_bytes,
                                           [&] { kernel(arguments...); });
    return ended ? cudaSuccess : cudaErrorLaunchFailure;
}

#endif

}  // namespace fhe_core::cuda
