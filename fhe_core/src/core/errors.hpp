// The error tree of the engine; the bindings map each class to the Python class of the same name.
#pragma once

#include <stdexcept>
#include <string>

namespace fhe_core {

class FheError : public std::runtime_error {
   public:
    using std::runtime_error::runtime_error;
};

class ParameterError : public FheError {
    using FheError::FheError;
};
class ShapeError : public FheError {
    using FheError::FheError;
};
class KeyMismatchError : public FheError {
    using FheError::FheError;
};
class SerializationError : public FheError {
    using FheError::FheError;
};
class DeviceError : public FheError {
    using FheError::FheError;
};
// The key or one item of a batch does not fit the device's memory; the process may go on.
class OutOfDeviceMemory : public DeviceError {
    using DeviceError::DeviceError;
};
class UnsupportedError : public FheError {
    using FheError::FheError;
};
// A long call was stopped on request (Ctrl-C or a progress callback that returned false).
class CancelledError : public FheError {
    using FheError::FheError;
};

}  // namespace fhe_core
