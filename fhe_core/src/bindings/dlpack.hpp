// The C structures of DLPack (dmlc.github.io/dlpack, version 0.8: an ABI shared by all libraries), as far as contiguous arrays of
// words need them.
#pragma once

#include <cstdint>

namespace fhe_core::dlpack {

inline constexpr std::int32_t kCpu = 1, kCuda = 2;  // DLDeviceType
inline constexpr std::uint8_t kUnsigned = 1;        // DLDataTypeCode
inline constexpr const char* kFresh = "dltensor";
inline constexpr const char* kUsed = "used_dltensor";

struct Device {
    std::int32_t type, number;
};
struct DataType {
    std::uint8_t code, bits;
    std::uint16_t lanes;
};
struct Tensor {
    void* data;
    Device device;
    std::int32_t dimensions;
    DataType type;
    std::int64_t* shape;
    std::int64_t* strides;  // in elements; nullptr: C order
    std::uint64_t byte_offset;
};
struct ManagedTensor {
    Tensor tensor;
    void* context;
    void (*deleter)(ManagedTensor*);
};

}  // namespace fhe_core::dlpack
