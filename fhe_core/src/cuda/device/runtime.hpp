// Errors, memory, streams of one device as C++ values.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <string>
#include <utility>

#include "core/errors.hpp"

namespace fhe_core::cuda {

// DeviceError, or OutOfDeviceMemory, with what to do; `what` names the operation.
void check(cudaError_t status, const char* what);

// The error for `bytes` that the current device does not have: needed, free, what to change.
OutOfDeviceMemory out_of_device_memory(const std::string& what, std::size_t bytes);

// Makes a device current for a scope.
class DeviceGuard {
   public:
    explicit DeviceGuard(int device);
    ~DeviceGuard();
    DeviceGuard(const DeviceGuard&) = delete;
    DeviceGuard& operator=(const DeviceGuard&) = delete;

   private:
    int previous_ = 0;
};

// Memory of the current device; its size only grows. Contents are lost when it does.
class DeviceBuffer {
   public:
    DeviceBuffer() = default;
    DeviceBuffer(std::size_t bytes, const char* what) { reserve(bytes, what); }
    ~DeviceBuffer() { release(); }
    DeviceBuffer(DeviceBuffer&& other) noexcept
        : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
    DeviceBuffer& operator=(DeviceBuffer&& other) noexcept {
        std::swap(data_, other.data_);
        std::swap(bytes_, other.bytes_);
        return *this;
    }

    void reserve(std::size_t bytes, const char* what);
    void release() noexcept;
    std::size_t bytes() const { return bytes_; }
    void* data() const { return data_; }
    template <class T>
    T* as() const {
        return static_cast<T*>(data_);
    }

   private:
    void* data_ = nullptr;
    std::size_t bytes_ = 0;
};

// Page-locked host memory; its size only grows.
class PinnedBuffer {
   public:
    PinnedBuffer() = default;
    ~PinnedBuffer();
    PinnedBuffer(const PinnedBuffer&) = delete;
    PinnedBuffer& operator=(const PinnedBuffer&) = delete;
    void reserve(std::size_t bytes);
    void* data() const { return data_; }

   private:
    void* data_ = nullptr;
    std::size_t bytes_ = 0;
};

class Stream {
   public:
    Stream();
    explicit Stream(cudaStream_t borrowed) : stream_(borrowed), owned_(false) {}  // of the caller, who keeps it alive
    ~Stream();
    Stream(const Stream&) = delete;
    Stream& operator=(const Stream&) = delete;
    operator cudaStream_t() const { return stream_; }
    void synchronize() const;

   private:
    cudaStream_t stream_ = nullptr;
    bool owned_ = true;
};

class Event {
   public:
    explicit Event(bool timed = false);
    ~Event();
    Event(const Event&) = delete;
    Event& operator=(const Event&) = delete;
    void record(cudaStream_t stream) const;
    void wait_in(cudaStream_t stream) const;           // the stream waits
    void synchronize() const;                          // the caller waits
    bool passed() const;                               // without waiting
    double seconds_since(const Event& earlier) const;  // both timed and passed

   private:
    cudaEvent_t event_ = nullptr;
};

}  // namespace fhe_core::cuda
