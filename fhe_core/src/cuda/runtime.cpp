#include "cuda/runtime.hpp"

#include "fhe_core/errors.hpp"

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

DeviceGuard::DeviceGuard(int device) {
    check(cudaGetDevice(&previous_), "current device");
    check(cudaSetDevice(device), "selection of the device");
}

DeviceGuard::~DeviceGuard() { cudaSetDevice(previous_); }

void DeviceBuffer::reserve(std::size_t bytes, const char* what) {
    if (bytes <= bytes_) return;
    release();
    const cudaError_t status = cudaMalloc(&data_, bytes);
    if (status == cudaErrorMemoryAllocation) {
        cudaGetLastError();
        data_ = nullptr;
        std::size_t free = 0, total = 0;
        cudaMemGetInfo(&free, &total);
        throw OutOfDeviceMemory(std::string(what) + ": needed " + mebibytes(bytes) + ", free " + mebibytes(free) + " of " +
                                mebibytes(total) +
                                "; free other sessions and keys, use a smaller parameter set or a device with more memory");
    }
    check(status, what);
    bytes_ = bytes;
}

void DeviceBuffer::release() noexcept {
    if (data_ != nullptr) cudaFree(data_);
    data_ = nullptr;
    bytes_ = 0;
}

PinnedBuffer::~PinnedBuffer() {
    if (data_ != nullptr) cudaFreeHost(data_);
}

void PinnedBuffer::reserve(std::size_t bytes) {
    if (bytes <= bytes_) return;
    if (data_ != nullptr) cudaFreeHost(data_);
    data_ = nullptr;
    bytes_ = 0;
    check(cudaMallocHost(&data_, bytes), "page-locked host memory");
    bytes_ = bytes;
}

Stream::Stream() { check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "creation of a stream"); }
Stream::~Stream() { cudaStreamDestroy(stream_); }
void Stream::synchronize() const { check(cudaStreamSynchronize(stream_), "work on the device"); }

Event::Event(bool timed) {
    check(cudaEventCreateWithFlags(&event_, timed ? cudaEventDefault : cudaEventDisableTiming), "creation of an event");
}
Event::~Event() { cudaEventDestroy(event_); }
void Event::record(cudaStream_t stream) const { check(cudaEventRecord(event_, stream), "recording of an event"); }
void Event::wait_in(cudaStream_t stream) const { check(cudaStreamWaitEvent(stream, event_, 0), "waiting for an event"); }
void Event::synchronize() const { check(cudaEventSynchronize(event_), "work on the device"); }
double Event::seconds_since(const Event& earlier) const {
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, earlier.event_, event_), "timing of an event");
    return milliseconds * 1e-3;
}

}  // namespace fhe_core::cuda
