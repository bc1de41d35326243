// CudaKey and CudaSession: the CUDA back end over numpy arrays, with the methods of CpuKey and CpuSession.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <memory>
#include <string>

#include "bindings/arrays.hpp"
#include "bindings/bindings.hpp"
#include "bindings/session.hpp"
#include "fhe_core/cuda/backend.hpp"
#include "fhe_core/errors.hpp"

namespace fhe_core {
namespace py = pybind11;

namespace {

// The folders of Python's nvidia packages, where pip puts libcublas.so (with and without torch).
void add_python_folders() {
    static bool added = false;  // under the GIL
    if (added) return;
    added = true;
    for (const py::handle entry : py::module_::import("sys").attr("path")) {
        if (!py::isinstance<py::str>(entry)) continue;
        const std::string folder = py::cast<std::string>(entry);
        for (const char* package : {"/nvidia/cu13/lib", "/nvidia/cublas/lib"}) cuda::add_cublas_folder(folder + package);
    }
}

cuda::KernelChoice checked_choice(const std::string& kernel) {
    if (kernel == "shaped") return cuda::KernelChoice::shaped;
    if (kernel == "plain") return cuda::KernelChoice::plain;
    throw ParameterError("kernel: expected 'shaped' or 'plain', got '" + kernel + "'");
}

std::shared_ptr<cuda::ExpandedKey> expand_key(const ParameterSet& params, const py::object& seed,
                                              const py::object& bootstrap_bodies, const py::object& keyswitch_bodies, int device,
                                              const std::string& kernel, const py::object& progress) {
    const SeededKeyArguments arguments(params, seed, bootstrap_bodies, keyswitch_bodies);
    const cuda::KernelChoice choice = checked_choice(kernel);
    const Progress report = checked_progress(progress);
    add_python_folders();
    const py::gil_scoped_release release;
    return std::make_shared<cuda::ExpandedKey>(arguments.view(), device, choice, report);
}

py::list device_list() {
    add_python_folders();
    py::list list;
    for (const cuda::DeviceInfo& device : cuda::devices()) {
        py::dict entry;
        entry["device"] = "cuda:" + std::to_string(device.number);
        entry["name"] = device.name;
        entry["compute_capability"] = device.compute_capability;
        entry["total_bytes"] = device.total_bytes;
        entry["free_bytes"] = device.free_bytes;
        entry["multiprocessors"] = device.multiprocessors;
        entry["usable"] = device.usable;
        entry["details"] = device.details;
        list.append(entry);
    }
    return list;
}

}  // namespace

void bind_cuda(py::module_& m) {
    m.def("cuda_device_count", &cuda::device_count, "Visible CUDA devices; 0 without a driver.");
    m.def("cuda_devices", &device_list,
          "A dict per visible device: device, name, compute_capability, total_bytes, free_bytes, multiprocessors, usable, details. "
          "DeviceError where CUDA cannot start.");

    py::class_<cuda::ExpandedKey, std::shared_ptr<cuda::ExpandedKey>>(m, "CudaKey", "Evaluation keys expanded on a CUDA device.")
        .def(py::init(&expand_key), py::arg("params"), py::arg("seed"), py::arg("bootstrap_bodies"), py::arg("keyswitch_bodies"),
             py::arg("device") = 0, py::arg("kernel") = "shaped", py::arg("progress") = py::none())
        .def_property_readonly("params", &cuda::ExpandedKey::parameters)
        .def_property_readonly("device", &cuda::ExpandedKey::device)
        .def_property_readonly("kernel", &cuda::ExpandedKey::kernel)
        .def_property_readonly("nbytes", &cuda::ExpandedKey::memory_bytes);

    py::class_<cuda::CudaBackend> session(m, "CudaSession",
                                          "Batched operations on a CUDA device; thread-safe, calls on one session take turns.");
    session
        .def(py::init([](const std::shared_ptr<cuda::ExpandedKey>& key, std::size_t memory_limit) {
                 const py::gil_scoped_release release;
                 return std::make_unique<cuda::CudaBackend>(key, memory_limit);
             }),
             py::arg("key"), py::arg("memory_limit") = 0,
             "memory_limit: bytes on the device that batches may use; 0: what is free. Larger batches are cut into pieces.")
        .def_property_readonly("params", &cuda::CudaBackend::parameters)
        .def_property_readonly("matrix_products", &cuda::CudaBackend::matrix_products)
        .def_property_readonly(
            "last_bootstrap",
            [](const cuda::CudaBackend& backend) {
                cuda::StageSeconds seconds;
                {
                    const py::gil_scoped_release release;
                    seconds = backend.last_bootstrap();
                }
                py::dict entry;
                entry["keyswitch_seconds"] = seconds.keyswitch;
                entry["blind_rotate_seconds"] = seconds.blind_rotate;
                return entry;
            },
            "Seconds of the device in the stages of the last bootstrap, copies not included.");
    bind_host_operations(session);
}

}  // namespace fhe_core
