// Large transforms on one CUDA device.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "core/large_ntt.hpp"
#include "cuda/device/device_array.hpp"

namespace fhe_core::cuda {

// Tables in a device's memory, and calls in the order of its exchange stream.
class LargeNtt {
   public:
    LargeNtt(const LargeNttTables& tables, int device);
    ~LargeNtt();
    LargeNtt(const LargeNtt&) = delete;
    LargeNtt& operator=(const LargeNtt&) = delete;

    int device() const;
    // words [batch][prime][N], uint32, of this device. ShapeError: a word that is not below its prime.
    DeviceArray transform(const DeviceArray& words, bool inverse) const;
    // Seconds of a transform of these words, `repeats` times: the mean of `calls` that follow each other, by events of the device.
    std::vector<double> seconds(const DeviceArray& words, bool inverse, int calls, int repeats) const;

   private:
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace fhe_core::cuda
