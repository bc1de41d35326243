// The extension module cloakwork.fhe_core._engine. Every argument is validated in the bind_* files; the engine below only asserts.
#include "bindings/bindings.hpp"

#include <exception>

#include "core/errors.hpp"

namespace py = pybind11;

namespace fhe_core {
namespace {

// Looked up when an error happens, so that errors.py and this module may be imported in any order.
void raise_python(const char* class_name, const char* message) {
    try {
        const py::object cls = py::module_::import("cloakwork.fhe_core.errors").attr(class_name);
        PyErr_SetString(cls.ptr(), message);
    } catch (py::error_already_set& error) {
        error.restore();
    }
}

void translate_errors(std::exception_ptr pointer) {
    try {
        if (pointer) std::rethrow_exception(pointer);
    } catch (const ParameterError& e) {
        raise_python("ParameterError", e.what());
    } catch (const ShapeError& e) {
        raise_python("ShapeError", e.what());
    } catch (const KeyMismatchError& e) {
        raise_python("KeyMismatchError", e.what());
    } catch (const SerializationError& e) {
        raise_python("SerializationError", e.what());
    } catch (const OutOfDeviceMemory& e) {
        raise_python("OutOfDeviceMemory", e.what());
    } catch (const DeviceError& e) {
        raise_python("DeviceError", e.what());
    } catch (const UnsupportedError& e) {
        raise_python("UnsupportedError", e.what());
    } catch (const CancelledError& e) {
        raise_python("CancelledError", e.what());
    } catch (const FheError& e) {
        raise_python("FheError", e.what());
    }
}

}  // namespace
}  // namespace fhe_core

PYBIND11_MODULE(_engine, m) {
    m.doc() = "The TFHE engine: parameters, client side, slow reference, CPU back end and, when built with it, CUDA.";
    py::register_exception_translator(&fhe_core::translate_errors);
    fhe_core::bind_parameters(m);
    fhe_core::bind_client(m);
    fhe_core::bind_threshold(m);
    fhe_core::bind_large_ntt(m);
    fhe_core::bind_levelled(m);
    fhe_core::bind_reference(m);
    fhe_core::bind_testing(m);
    fhe_core::bind_backend(m);
    fhe_core::bind_cpu(m);
#ifdef CLOAKWORK_WITH_CUDA
    fhe_core::bind_cuda(m);
    fhe_core::bind_cuda_large_ntt(m);
    fhe_core::bind_cuda_levelled(m);
    m.attr("without_cuda") = "";
#ifdef CLOAKWORK_SHIPPED_KERNELS
    m.attr("kernel_sets") = "shipped";
#else
    m.attr("kernel_sets") = "all";
#endif
#else
    m.attr("kernel_sets") = "all";
    m.attr("without_cuda") = CLOAKWORK_WITHOUT_CUDA;
#endif
}
