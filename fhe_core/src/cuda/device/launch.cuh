// Enqueues a kernel, on the device or (CLOAKWORK_CUDA=EMULATE) at once on the CPU; in clusters of blocks where it asks for them.
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

// A launch of `blocks` blocks, a multiple of `cluster`, sm_90 and later; refers to `attribute`.
inline cudaLaunchConfig_t cluster_launch(std::size_t blocks, int cluster, int threads, std::size_t shared_bytes,
                                         cudaStream_t stream, cudaLaunchAttribute& attribute) {
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim.x = static_cast<unsigned>(cluster);
    attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(static_cast<unsigned>(blocks));
    config.blockDim = dim3(static_cast<unsigned>(threads));
    config.dynamicSmemBytes = shared_bytes;
    config.stream = stream;
    config.attrs = &attribute;
    config.numAttrs = 1;
    return config;
}

template <class... Parameters, class... Arguments>
cudaError_t enqueue_clusters(void (*kernel)(Parameters...), std::size_t blocks, int cluster, int threads, std::size_t shared_bytes,
                             cudaStream_t stream, const Arguments&... arguments) {
    const cudaError_t status =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared_bytes));
    if (status != cudaSuccess) return status;
    cudaLaunchAttribute attribute;
    const cudaLaunchConfig_t config = cluster_launch(blocks, cluster, threads, shared_bytes, stream, attribute);
    return cudaLaunchKernelEx(&config, kernel, arguments...);
}

// How many such clusters the device holds at once; 0 where it has none.
template <class... Parameters>
cudaError_t clusters_at_once(int* clusters, void (*kernel)(Parameters...), int cluster, int threads, std::size_t shared_bytes) {
    *clusters = 0;
    int device = 0, has_clusters = 0;
    int most_bytes = 0;
    cudaError_t status = cudaGetDevice(&device);
    if (status == cudaSuccess) status = cudaDeviceGetAttribute(&has_clusters, cudaDevAttrClusterLaunch, device);
    if (status == cudaSuccess) status = cudaDeviceGetAttribute(&most_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    if (status != cudaSuccess || has_clusters == 0) return status;
    if (shared_bytes > static_cast<std::size_t>(most_bytes)) return cudaSuccess;
    status = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared_bytes));
    if (status != cudaSuccess) return status;
    cudaLaunchAttribute attribute;
    const cudaLaunchConfig_t config =
        cluster_launch(static_cast<std::size_t>(cluster), cluster, threads, shared_bytes, nullptr, attribute);
    return cudaOccupancyMaxActiveClusters(clusters, kernel, &config);
}

#elif defined(CLOAKWORK_EMULATE_WARPS)

template <class... Parameters, class... Arguments>
cudaError_t enqueue_clusters(void (*kernel)(Parameters...), std::size_t blocks, int cluster, int threads, std::size_t shared_bytes,
                             cudaStream_t, const Arguments&... arguments) {
    const bool ended = emulation::run_grid(static_cast<unsigned>(blocks), static_cast<unsigned>(cluster),
                                           static_cast<unsigned>(threads), shared_bytes, [&] { kernel(arguments...); });
    return ended ? cudaSuccess : cudaErrorLaunchFailure;
}

template <class... Parameters, class... Arguments>
cudaError_t enqueue(void (*kernel)(Parameters...), std::size_t blocks, int threads, std::size_t shared_bytes, cudaStream_t stream,
                    const Arguments&... arguments) {
    return enqueue_clusters(kernel, blocks, 1, threads, shared_bytes, stream, arguments...);
}

template <class... Parameters>
cudaError_t clusters_at_once(int* clusters, void (*)(Parameters...), int, int, std::size_t) {
    *clusters = 1;
    return cudaSuccess;
}

#endif

}  // namespace fhe_core::cuda
