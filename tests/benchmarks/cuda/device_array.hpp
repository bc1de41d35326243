// Arrays of a device, errors that end the program, and times by events, for the benchmarks.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace fhe_core::cuda {

inline void require(cudaError_t status, const char* what) {
    if (status == cudaSuccess) return;
    std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(status));
    std::exit(EXIT_FAILURE);
}

template <class T>
class DeviceArray {
   public:
    explicit DeviceArray(std::size_t count) : count_(count) { require(cudaMalloc(&data_, count * sizeof(T)), "cudaMalloc"); }
    explicit DeviceArray(const std::vector<T>& host) : DeviceArray(host.size()) {
        require(cudaMemcpy(data_, host.data(), count_ * sizeof(T), cudaMemcpyHostToDevice), "copy to the device");
    }
    ~DeviceArray() { cudaFree(data_); }
    DeviceArray(const DeviceArray&) = delete;
    DeviceArray& operator=(const DeviceArray&) = delete;
    T* data() const { return data_; }
    std::size_t size() const { return count_; }
    void fill(int byte) { require(cudaMemset(data_, byte, count_ * sizeof(T)), "memset"); }
    std::vector<T> host() const {
        std::vector<T> out(count_);
        require(cudaMemcpy(out.data(), data_, count_ * sizeof(T), cudaMemcpyDeviceToHost), "copy from the device");
        return out;
    }

   private:
    T* data_ = nullptr;
    std::size_t count_;
};

inline int device_multiprocessors() {
    int device = 0, count = 0;
    require(cudaGetDevice(&device), "device");
    require(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device), "multiprocessors");
    return count;
}

// Of `repetitions` calls after one that warms up.
template <class F>
float median_milliseconds(int repetitions, F&& enqueue) {
    std::vector<float> times;
    cudaEvent_t start, stop;
    require(cudaEventCreate(&start), "event");
    require(cudaEventCreate(&stop), "event");
    for (int i = 0; i <= repetitions; ++i) {
        require(cudaEventRecord(start), "event");
        enqueue();
        require(cudaEventRecord(stop), "event");
        require(cudaEventSynchronize(stop), "kernel");
        float milliseconds = 0;
        require(cudaEventElapsedTime(&milliseconds, start, stop), "event");
        if (i > 0) times.push_back(milliseconds);
    }
    cudaEventDestroy(start);
    cudaEventDestroy(stop);
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
}

}  // namespace fhe_core::cuda
