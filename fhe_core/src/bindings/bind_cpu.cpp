// CpuKey and CpuSession: the CPU back end over numpy arrays. Bootstraps release the GIL; keys are immutable and shared.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <memory>
#include <optional>
#include <vector>

#include "bindings/arrays.hpp"
#include "bindings/bindings.hpp"
#include "bindings/session.hpp"
#include "core/errors.hpp"
#include "cpu/backend.hpp"
#include "cpu/features.hpp"

namespace fhe_core {
namespace py = pybind11;

namespace {

std::shared_ptr<cpu::ExpandedKey> expand_key(const ParameterSet& params, const py::object& seed, const py::object& bootstrap_bodies,
                                             const py::object& keyswitch_bodies, const py::object& progress) {
    const SeededKeyArguments arguments(params, seed, bootstrap_bodies, keyswitch_bodies);
    const Progress report = checked_progress(progress);
    const py::gil_scoped_release release;
    return std::make_shared<cpu::ExpandedKey>(arguments.view(), report);
}

cpu::CpuBackend make_session(std::shared_ptr<cpu::ExpandedKey> key, int threads) {
    check_thread_count(threads);
    return {std::move(key), threads};
}

}  // namespace

void bind_cpu(py::module_& m) {
    m.def(
        "cpu_features", [] { return std::string(cpu::instruction_set()); },
        "The instruction set that the CPU kernels use: baseline, avx2 or avx512 (CLOAKWORK_CPU forces one).");

    py::class_<cpu::ExpandedKey, std::shared_ptr<cpu::ExpandedKey>>(m, "CpuKey", "Evaluation keys expanded for the CPU back end.")
        .def(py::init(&expand_key), py::arg("params"), py::arg("seed"), py::arg("bootstrap_bodies"), py::arg("keyswitch_bodies"),
             py::arg("progress") = py::none())
        .def_property_readonly("params", &cpu::ExpandedKey::parameters)
        .def_property_readonly("instruction_set", [](const cpu::ExpandedKey& key) { return std::string(key.instruction_set()); })
        .def_property_readonly("nbytes", &cpu::ExpandedKey::memory_bytes);

    py::class_<cpu::CpuBackend, Backend> session(m, "CpuSession", "Batched operations on the CPU; thread-safe.");
    session.def(py::init(&make_session), py::arg("key"), py::arg("threads") = 1)
        .def_property_readonly("threads", &cpu::CpuBackend::threads);
    session.def(
        "linear_packed",
        [](cpu::CpuBackend& s, const py::object& weights, const py::object& glwe, std::int64_t samples) {
            const ParameterSet& p = s.parameters();
            const auto matrix = checked_array<std::int32_t>(weights, "weights", {kAny, kAny});
            check_not_empty(matrix, "weights");
            if (samples < 1 || samples > (std::int64_t{1} << 40) / matrix.shape(1)) {
                throw ShapeError("samples: expected at least one and at most 2^40 values, got " + std::to_string(samples));
            }
            const std::int64_t n = p.polynomial_size(), groups = (samples * matrix.shape(1) + n - 1) / n;
            const Words in = checked_words(p, glwe, "glwe", {groups, p.component_count(), n});
            py::array out = new_words(p, {samples, matrix.shape(0), p.large_words()});
            const std::int32_t* rows = matrix.data();
            const std::size_t row_count = matrix.shape(0), column_count = matrix.shape(1);
            const void* source = in.data();
            void* target = out.mutable_data();
            const py::gil_scoped_release release;
            s.linear_packed(rows, row_count, column_count, source, samples, target);
            return out;
        },
        py::arg("weights"), py::arg("glwe"), py::arg("samples"),
        "int32[R, C] times S C values packed in words[G, k+r, N] -> words[S, R, kN+r]: linear after sample_extract, word for "
        "word.");
}

}  // namespace fhe_core
