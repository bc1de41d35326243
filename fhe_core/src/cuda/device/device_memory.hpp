// Device memory in stream order, its uses, and the pools of a process. Streams and events: cuda/device/runtime.hpp.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "cuda/device/runtime.hpp"

namespace fhe_core::cuda {

// What a pointer that the back end was given points to.
enum class Place : std::uint8_t { pageable, pinned, device };
// DeviceError when it is memory of another device than `device`.
Place place_of(const void* data, int device);

// One allocation. Reads and writes are recorded by whoever enqueues them.
class DeviceMemory {
   public:
    DeviceMemory(int device, std::size_t bytes, cudaStream_t stream, const char* what);
    DeviceMemory(int device, void* data, std::shared_ptr<void> owner);
    ~DeviceMemory();
    DeviceMemory(const DeviceMemory&) = delete;
    DeviceMemory& operator=(const DeviceMemory&) = delete;

    int device() const { return device_; }
    void* data() const { return data_; }

    // The device of the stream is current.
    void wait_in(cudaStream_t stream) const;
    void record_read(cudaStream_t stream);
    void record_write(cudaStream_t stream);
    void synchronize() const;
    void lend() { lent_ = true; }

   private:
    struct Use {
        explicit Use(cudaStream_t s) : stream(s) {}
        cudaStream_t stream;
        Event event;
    };
    const int device_;
    void* data_ = nullptr;
    std::shared_ptr<void> owner_;  // of memory of another library; empty: ours
    bool lent_ = false;
    mutable std::mutex mutex_;
    std::unique_ptr<Use> written_;
    std::vector<std::unique_ptr<Use>> reads_;

    friend class DevicePool;
};

// What a process keeps for one device: a pool of stream-ordered memory, a stream for copies and arithmetic, one for releases.
// Pools live as long as the process: arrays may be released while it ends.
class DevicePool {
   public:
    static DevicePool& of(int device);

    void* allocate(std::size_t bytes, cudaStream_t stream, const char* what);
    void release(DeviceMemory& memory);
    // Host memory of any kind, free for the caller at once, without waiting for the stream; the device is current.
    void copy_in(void* data, const void* host, std::size_t bytes, cudaStream_t stream, const char* what);
    std::size_t idle_bytes() const;  // held for reuse
    void trim() noexcept;            // gives idle memory back to the device
    cudaStream_t exchange() const { return exchange_; }

   private:
    explicit DevicePool(int device);
    bool has_room(std::size_t bytes) const;
    void sweep();

    const int device_;
    cudaMemPool_t pool_ = nullptr;  // nullptr: the device has none, memory is allocated and freed at once
    Stream exchange_, releases_;
    // Memory of other libraries, or staged copies, that our streams may still read.
    struct Grave {
        std::shared_ptr<void> owner;
        std::vector<std::unique_ptr<DeviceMemory::Use>> uses;
    };
    std::mutex mutex_;
    std::vector<Grave> graves_;
};

}  // namespace fhe_core::cuda
