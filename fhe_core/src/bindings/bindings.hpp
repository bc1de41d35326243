// One function per binding file; module.cpp calls them all.
#pragma once

#include <pybind11/pybind11.h>

namespace fhe_core {

void bind_parameters(pybind11::module_& m);
void bind_client(pybind11::module_& m);
void bind_threshold(pybind11::module_& m);
void bind_large_ntt(pybind11::module_& m);
void bind_levelled(pybind11::module_& m);
void bind_reference(pybind11::module_& m);
void bind_testing(pybind11::module_& m);
void bind_backend(pybind11::module_& m);
void bind_cpu(pybind11::module_& m);
#ifdef CLOAKWORK_WITH_CUDA
void bind_cuda(pybind11::module_& m);
void bind_cuda_large_ntt(pybind11::module_& m);
void bind_cuda_levelled(pybind11::module_& m);
#endif

}  // namespace fhe_core
