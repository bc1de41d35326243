// The part of the CUDA runtime that the back end's host code uses, on the CPU and in order: CLOAKWORK_CUDA=EMULATE builds the back
// end against it, so that its tests run where there is no device. Kernels run as loops (cuda/block.cuh).
#pragma once

#include <cstddef>
#include <cstdlib>
#include <cstring>

using cudaStream_t = struct CudaStream*;
using cudaEvent_t = struct CudaEvent*;
enum cudaError_t {
    cudaSuccess,
    cudaErrorMemoryAllocation,
    cudaErrorNoDevice,
    cudaErrorInsufficientDriver,
    cudaErrorNoKernelImageForDevice,
    cudaErrorInvalidDevice,
};
enum cudaMemcpyKind { cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost, cudaMemcpyDeviceToDevice };
enum { cudaEventDefault = 0, cudaStreamNonBlocking = 1, cudaEventDisableTiming = 2 };
struct cudaDeviceProp {
    char name[256];
    int major, minor, multiProcessorCount;
    std::size_t totalGlobalMem, sharedMemPerBlockOptin;
};

inline constexpr std::size_t kEmulatedMemory = std::size_t{4} << 30;

inline const char* cudaGetErrorString(cudaError_t) { return "an error of the emulated device"; }
inline cudaError_t cudaGetLastError() { return cudaSuccess; }
inline cudaError_t cudaGetDeviceCount(int* count) { return *count = 1, cudaSuccess; }
inline cudaError_t cudaGetDevice(int* device) { return *device = 0, cudaSuccess; }
inline cudaError_t cudaSetDevice(int device) { return device == 0 ? cudaSuccess : cudaErrorInvalidDevice; }
inline cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
    *properties = {"emulated on the CPU", 0, 0, 2, kEmulatedMemory, std::size_t{227} << 10};
    return cudaSuccess;
}
inline cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) { return *free = *total = kEmulatedMemory, cudaSuccess; }
inline cudaError_t cudaMalloc(void** data, std::size_t bytes) {
    *data = bytes <= kEmulatedMemory ? std::malloc(bytes) : nullptr;
    if (*data == nullptr) return cudaErrorMemoryAllocation;
    std::memset(*data, 0xa5, bytes);
    return cudaSuccess;
}
inline cudaError_t cudaFree(void* data) { return std::free(data), cudaSuccess; }
inline cudaError_t cudaMallocHost(void** data, std::size_t bytes) { return cudaMalloc(data, bytes); }
inline cudaError_t cudaFreeHost(void* data) { return cudaFree(data); }
inline cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind) {
    return std::memcpy(to, from, bytes), cudaSuccess;
}
inline cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t) {
    return cudaMemcpy(to, from, bytes, kind);
}
inline cudaError_t cudaMemsetAsync(void* data, int byte, std::size_t bytes, cudaStream_t) {
    return std::memset(data, byte, bytes), cudaSuccess;
}
inline cudaError_t cudaStreamCreateWithFlags(cudaStream_t*, int) { return cudaSuccess; }
inline cudaError_t cudaStreamDestroy(cudaStream_t) { return cudaSuccess; }
inline cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }
inline cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, int) { return cudaSuccess; }
inline cudaError_t cudaEventCreateWithFlags(cudaEvent_t*, int) { return cudaSuccess; }
inline cudaError_t cudaEventDestroy(cudaEvent_t) { return cudaSuccess; }
inline cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t) { return cudaSuccess; }
inline cudaError_t cudaEventSynchronize(cudaEvent_t) { return cudaSuccess; }
inline cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t, cudaEvent_t) { return *milliseconds = 0, cudaSuccess; }
