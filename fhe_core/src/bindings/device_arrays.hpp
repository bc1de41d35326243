// cuda::DeviceArray in Python: class DeviceArray (numpy's shape and dtype, DLPack, the CUDA array interface) and page-locked
// results.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <vector>

#include "cuda/device/device_array.hpp"

namespace fhe_core {

void bind_device_arrays(pybind11::module_& m);

// An uninitialised numpy array in page-locked memory when it is large, in ordinary memory else.
pybind11::array pinned_array(const std::vector<std::int64_t>& shape, int word_bytes);

// The handle of an integer, or of an object with __cuda_stream__ or cuda_stream or ptr; 0 is the legacy default stream.
cuda::StreamHandle checked_stream(const pybind11::object& stream);

}  // namespace fhe_core
