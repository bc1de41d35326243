// The part of the CUDA runtime that the back end's host code uses, on the CPU and in order: CLOAKWORK_CUDA=EMULATE builds the back
// end against it, so that its tests run where there is no device. Kernels run as they are (threads.hpp). There are two devices,
// which know their own memory, so that a wrong device is noticed.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

#include "threads.hpp"

using cudaStream_t = struct CudaStream*;
using cudaEvent_t = struct CudaEvent*;
using cudaMemPool_t = struct CudaPool*;
enum cudaError_t {
    cudaSuccess,
    cudaErrorMemoryAllocation,
    cudaErrorNoDevice,
    cudaErrorInsufficientDriver,
    cudaErrorNoKernelImageForDevice,
    cudaErrorInvalidDevice,
    cudaErrorNotReady,
    cudaErrorInvalidResourceHandle,
    cudaErrorLaunchFailure,
};
enum cudaMemcpyKind { cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost, cudaMemcpyDeviceToDevice };
enum cudaMemoryType { cudaMemoryTypeUnregistered, cudaMemoryTypeHost, cudaMemoryTypeDevice, cudaMemoryTypeManaged };
enum cudaDeviceAttr {
    cudaDevAttrMemoryPoolsSupported,
    cudaDevAttrMaxSharedMemoryPerBlockOptin,
    cudaDevAttrMultiProcessorCount,
    cudaDevAttrComputeCapabilityMajor,
    cudaDevAttrComputeCapabilityMinor,
};
enum cudaMemAllocationType { cudaMemAllocationTypePinned };
enum cudaMemLocationType { cudaMemLocationTypeDevice };
enum cudaMemPoolAttr { cudaMemPoolAttrReleaseThreshold, cudaMemPoolAttrReservedMemCurrent, cudaMemPoolAttrUsedMemCurrent };
enum { cudaEventDefault = 0, cudaStreamNonBlocking = 1, cudaEventDisableTiming = 2, cudaHostRegisterPortable = 1 };
struct cudaDeviceProp {
    char name[256];
    int major, minor, multiProcessorCount;
    std::size_t totalGlobalMem, sharedMemPerBlockOptin;
};
struct cudaPointerAttributes {
    cudaMemoryType type;
    int device;
};
struct cudaMemPoolProps {
    cudaMemAllocationType allocType;
    struct {
        cudaMemLocationType type;
        int id;
    } location;
};

inline constexpr std::size_t kEmulatedMemory = std::size_t{4} << 30;  // of each device
inline constexpr int kEmulatedDevices = 2;

struct EmulatedMemory {
    struct Block {
        std::size_t bytes;
        int device;  // -1: page-locked host memory
    };
    std::mutex mutex;
    std::map<const char*, Block> blocks;
    std::size_t used[kEmulatedDevices]{};

    static EmulatedMemory& all() {
        static auto* memory = new EmulatedMemory;
        return *memory;
    }
    static int& current() {
        static thread_local int device = 0;
        return device;
    }
};

inline const char* cudaGetErrorString(cudaError_t status) {
    return status == cudaErrorLaunchFailure ? "a barrier that not all threads reach, or too much shared memory"
                                            : "an error of the emulated device";
}
inline cudaError_t cudaGetLastError() { return cudaSuccess; }
inline cudaError_t cudaGetDeviceCount(int* count) { return *count = kEmulatedDevices, cudaSuccess; }
inline cudaError_t cudaGetDevice(int* device) { return *device = EmulatedMemory::current(), cudaSuccess; }
inline cudaError_t cudaSetDevice(int device) {
    if (device < 0 || device >= kEmulatedDevices) return cudaErrorInvalidDevice;
    return EmulatedMemory::current() = device, cudaSuccess;
}
inline cudaError_t cudaDeviceSynchronize() { return cudaSuccess; }
inline cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
    switch (attribute) {  // every kernel is emulated, those of 9.0 too
        case cudaDevAttrMaxSharedMemoryPerBlockOptin: return *value = emulation::kSharedBytes, cudaSuccess;
        case cudaDevAttrComputeCapabilityMajor: return *value = 9, cudaSuccess;
        case cudaDevAttrComputeCapabilityMinor: return *value = 0, cudaSuccess;
        default: return *value = 1, cudaSuccess;
    }
}
inline cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
    *properties = {"emulated on the CPU", 0, 0, 2, kEmulatedMemory, emulation::kSharedBytes};
    return cudaSuccess;
}
inline cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
    const std::lock_guard lock(EmulatedMemory::all().mutex);
    *free = kEmulatedMemory - EmulatedMemory::all().used[EmulatedMemory::current()];
    return *total = kEmulatedMemory, cudaSuccess;
}
inline cudaError_t emulatedAllocate(void** data, std::size_t bytes, int device) {
    EmulatedMemory& memory = EmulatedMemory::all();
    const std::lock_guard lock(memory.mutex);
    if (bytes > kEmulatedMemory || (device >= 0 && memory.used[device] + bytes > kEmulatedMemory)) return cudaErrorMemoryAllocation;
    *data = std::malloc(bytes);
    if (*data == nullptr) return cudaErrorMemoryAllocation;
    std::memset(*data, 0xa5, bytes);
    memory.blocks[static_cast<const char*>(*data)] = {bytes, device};
    if (device >= 0) memory.used[device] += bytes;
    return cudaSuccess;
}
inline cudaError_t cudaMalloc(void** data, std::size_t bytes) { return emulatedAllocate(data, bytes, EmulatedMemory::current()); }
inline cudaError_t cudaFree(void* data) {
    EmulatedMemory& memory = EmulatedMemory::all();
    const std::lock_guard lock(memory.mutex);
    const auto found = memory.blocks.find(static_cast<const char*>(data));
    if (found == memory.blocks.end()) std::abort();  // freed twice
    if (found->second.device >= 0) memory.used[found->second.device] -= found->second.bytes;
    std::memset(data, 0x5a, found->second.bytes);
    memory.blocks.erase(found);
    return std::free(data), cudaSuccess;
}
inline cudaError_t cudaMallocHost(void** data, std::size_t bytes) { return emulatedAllocate(data, bytes, -1); }
inline cudaError_t cudaFreeHost(void* data) { return cudaFree(data); }
inline cudaError_t cudaHostRegister(void* data, std::size_t bytes, unsigned) {
    const std::lock_guard lock(EmulatedMemory::all().mutex);
    EmulatedMemory::all().blocks[static_cast<const char*>(data)] = {bytes, -1};
    return cudaSuccess;
}
inline cudaError_t cudaHostUnregister(void* data) {
    const std::lock_guard lock(EmulatedMemory::all().mutex);
    if (EmulatedMemory::all().blocks.erase(static_cast<const char*>(data)) != 1) std::abort();  // unknown
    return cudaSuccess;
}
inline cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* data) {
    EmulatedMemory& memory = EmulatedMemory::all();
    const std::lock_guard lock(memory.mutex);
    *attributes = {cudaMemoryTypeUnregistered, -1};
    auto found = memory.blocks.upper_bound(static_cast<const char*>(data));
    if (found == memory.blocks.begin()) return cudaSuccess;
    --found;
    if (static_cast<const char*>(data) >= found->first + found->second.bytes) return cudaSuccess;
    const int device = found->second.device;
    *attributes = {device < 0 ? cudaMemoryTypeHost : cudaMemoryTypeDevice, device};
    return cudaSuccess;
}
inline cudaError_t cudaMemPoolCreate(cudaMemPool_t* pool, const cudaMemPoolProps* properties) {
    *pool = reinterpret_cast<cudaMemPool_t>(static_cast<std::size_t>(properties->location.id) + 1);
    return cudaSuccess;
}
inline cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t, cudaMemPoolAttr, void*) { return cudaSuccess; }
inline cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t, cudaMemPoolAttr, void* value) {
    return *static_cast<unsigned long long*>(value) = 0, cudaSuccess;
}
inline cudaError_t cudaMemPoolTrimTo(cudaMemPool_t, std::size_t) { return cudaSuccess; }
inline cudaError_t cudaMallocFromPoolAsync(void** data, std::size_t bytes, cudaMemPool_t pool, cudaStream_t) {
    return emulatedAllocate(data, bytes, static_cast<int>(reinterpret_cast<std::size_t>(pool)) - 1);
}
inline cudaError_t cudaFreeAsync(void* data, cudaStream_t) { return cudaFree(data); }
inline cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind) {
    return std::memcpy(to, from, bytes), cudaSuccess;
}
inline cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t) {
    return cudaMemcpy(to, from, bytes, kind);
}
inline cudaError_t cudaMemcpyPeerAsync(void* to, int, const void* from, int, std::size_t bytes, cudaStream_t) {
    return cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToDevice);
}
inline cudaError_t cudaMemcpy2DAsync(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch, std::size_t width,
                                     std::size_t height, cudaMemcpyKind, cudaStream_t) {
    for (std::size_t row = 0; row < height; ++row)
        std::memcpy(static_cast<char*>(to) + row * to_pitch, static_cast<const char*>(from) + row * from_pitch, width);
    return cudaSuccess;
}
inline cudaError_t cudaMemsetAsync(void* data, int byte, std::size_t bytes, cudaStream_t) {
    return std::memset(data, byte, bytes), cudaSuccess;
}
inline cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, int) {  // distinct, so that other streams are other streams
    static std::mutex mutex;
    static std::size_t count = 0;
    const std::lock_guard lock(mutex);
    return *stream = reinterpret_cast<cudaStream_t>(0x1000 + 16 * ++count), cudaSuccess;
}
inline cudaError_t cudaStreamDestroy(cudaStream_t) { return cudaSuccess; }
inline cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }
inline cudaError_t cudaStreamQuery(cudaStream_t) { return cudaSuccess; }
inline cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, int) { return cudaSuccess; }
inline cudaError_t cudaEventCreateWithFlags(cudaEvent_t*, int) { return cudaSuccess; }
inline cudaError_t cudaEventDestroy(cudaEvent_t) { return cudaSuccess; }
inline cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t) { return cudaSuccess; }
inline cudaError_t cudaEventQuery(cudaEvent_t) { return cudaSuccess; }
inline cudaError_t cudaEventSynchronize(cudaEvent_t) { return cudaSuccess; }
inline cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t, cudaEvent_t) { return *milliseconds = 0, cudaSuccess; }
