#include "cuda/device/runtime.hpp"

#include "core/errors.hpp"
#include "cuda/device/device_memory.hpp"
#include "cuda/device/host_memory.hpp"

namespace fhe_core::cuda {
namespace {

const char* remedy(cudaError_t status) {
    switch (status) {
        case cudaErrorNoDevice: return "no CUDA device is visible; check nvidia-smi and CUDA_VISIBLE_DEVICES, or use device='cpu'";
        case cudaErrorInsufficientDriver:
            return "the NVIDIA driver is missing or older than this build's CUDA; install or update it, or use device='cpu'";
        case cudaErrorNoKernelImageForDevice:
            return "this build has no code for the device's architecture; rebuild with CMAKE_CUDA_ARCHITECTURES set to it";
        case cudaErrorInvalidDevice: return "no such device; 'cloakwork devices' lists them";
        default: return "make a new session, in a new process if this repeats; 'cloakwork devices' shows the state of the device";
    }
}

std::string mebibytes(std::size_t bytes) { return std::to_string((bytes + (1 << 20) - 1) >> 20) + " MiB"; }

}  // namespace

void check(cudaError_t status, const char* what) {
    if (status == cudaSuccess) return;
    cudaGetLastError();  // clears an error that is not sticky
    if (status == cudaErrorMemoryAllocation)
        throw OutOfDeviceMemory(std::string(what) + ": the device has no memory left; use a smaller batch or free other sessions");
    throw DeviceError(std::string(what) + ": CUDA reports '" + cudaGetErrorString(status) + "'; " + remedy(status));
}

OutOfDeviceMemory out_of_device_memory(const std::string& what, std::size_t bytes) {
    cudaGetLastError();
    std::size_t free = 0, total = 0;
    cudaMemGetInfo(&free, &total);
    return OutOfDeviceMemory(what + ": needed " + mebibytes(bytes) + ", free " + mebibytes(free) + " of " + mebibytes(total) +
                             "; use a smaller batch, free other sessions, keys and arrays, or use a device with more memory");
}

DeviceGuard::DeviceGuard(int device) {
    check(cudaGetDevice(&previous_), "current device");
    check(cudaSetDevice(device), "selection of the device");
}

DeviceGuard::~DeviceGuard() { cudaSetDevice(previous_); }

void DeviceBuffer::reserve(std::size_t bytes, const char* what) {
    if (bytes <= bytes_) return;
    release();
    cudaError_t status = cudaMalloc(&data_, bytes);
    if (status == cudaErrorMemoryAllocation) {  // the pool of arrays may hold idle memory
        cudaGetLastError();
        int device = 0;
        check(cudaGetDevice(&device), what);
        DevicePool::of(device).trim();
        status = cudaMalloc(&data_, bytes);
    }
    if (status == cudaErrorMemoryAllocation) {
        data_ = nullptr;
        throw out_of_device_memory(what, bytes);
    }
    check(status, what);
    bytes_ = bytes;
}

void DeviceBuffer::release() noexcept {
    if (data_ != nullptr) cudaFree(data_);
    data_ = nullptr;
    bytes_ = 0;
}

PinnedBuffer::~PinnedBuffer() { free_locked(data_); }

void PinnedBuffer::reserve(std::size_t bytes) {
    if (bytes <= bytes_) return;
    free_locked(std::exchange(data_, nullptr));
    bytes_ = 0;
    data_ = allocate_locked(bytes);
    if (data_ == nullptr) check(cudaErrorMemoryAllocation, "page-locked host memory");
    bytes_ = bytes;
}

Stream::Stream() { check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "creation of a stream"); }
Stream::~Stream() {
    if (owned_) cudaStreamDestroy(stream_);
}
void Stream::synchronize() const { check(cudaStreamSynchronize(stream_), "work on the device"); }

Event::Event(bool timed) {
    check(cudaEventCreateWithFlags(&event_, timed ? cudaEventDefault : cudaEventDisableTiming), "creation of an event");
}
Event::~Event() { cudaEventDestroy(event_); }
void Event::record(cudaStream_t stream) const { check(cudaEventRecord(event_, stream), "recording of an event"); }
void Event::wait_in(cudaStream_t stream) const { check(cudaStreamWaitEvent(stream, event_, 0), "waiting for an event"); }
void Event::synchronize() const { check(cudaEventSynchronize(event_), "work on the device"); }
bool Event::passed() const {
    const cudaError_t status = cudaEventQuery(event_);
    if (status == cudaErrorNotReady) return cudaGetLastError(), false;
    return true;  // or the device failed, and nothing runs any more
}
double Event::seconds_since(const Event& earlier) const {
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, earlier.event_, event_), "timing of an event");
    return milliseconds * 1e-3;
}

}  // namespace fhe_core::cuda
