// LargeNtt: transforms of many primes on the CPU (large_ntt.hpp).
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <cstring>
#include <memory>
#include <vector>

#include "bindings/arrays.hpp"
#include "bindings/bindings.hpp"
#include "bindings/session.hpp"
#include "core/large_ntt.hpp"
#include "cpu/large_ntt.hpp"

namespace py = pybind11;

namespace fhe_core {
namespace {

py::array transform(const LargeNttTables& tables, const py::object& value, bool inverse, int threads, const py::object& callback,
                    const py::object& into) {
    const auto primes = static_cast<std::int64_t>(tables.prime_count()), size = static_cast<std::int64_t>(tables.polynomial_size());
    const auto words = checked_array<std::uint32_t>(value, "words", {kAny, primes, size});
    check_not_empty(words, "words");
    check_thread_count(threads);
    const Progress progress = checked_progress(callback);
    const auto batch = static_cast<std::size_t>(words.shape(0)), count = static_cast<std::size_t>(size);
    const std::vector<std::int64_t> shape{words.shape(0), primes, size};
    py::array result = into.is_none() ? py::array(py::array_t<std::uint32_t>(shape)) : checked_output<std::uint32_t>(into, shape);
    const std::uint32_t* in = words.data();
    auto* out = static_cast<std::uint32_t*>(result.mutable_data());
    for (std::size_t i = 0; i < batch * tables.prime_count(); ++i)
        check_below(in + i * count, count, tables.prime(i % tables.prime_count()).q, "words");
    const py::gil_scoped_release release;
    if (out != in) std::memmove(out, in, batch * tables.prime_count() * count * sizeof *out);
    cpu::large_ntt(tables, out, batch, inverse, threads, progress);
    return result;
}

std::vector<std::uint32_t> fields(const LargeNttTables& tables, std::uint32_t LargePrime::* field) {
    std::vector<std::uint32_t> values;
    for (const LargePrime& prime : tables.all_primes()) values.push_back(prime.*field);
    return values;
}

}  // namespace

void bind_large_ntt(py::module_& m) {
    m.def("large_ntt_primes", &large_ntt_primes, py::arg("log_size"), py::arg("count"));
    py::class_<LargeNttTables, std::shared_ptr<LargeNttTables>>(m, "LargeNtt")
        .def(py::init([](int log_size, const std::vector<std::uint32_t>& primes) {
                 const py::gil_scoped_release release;
                 return std::make_shared<LargeNttTables>(log_size, primes);
             }),
             py::arg("log_size"), py::arg("primes"))
        .def_property_readonly("log_size", &LargeNttTables::log_size)
        .def_property_readonly("primes", [](const LargeNttTables& t) { return fields(t, &LargePrime::q); })
        .def_property_readonly("roots", [](const LargeNttTables& t) { return fields(t, &LargePrime::psi); })
        .def_property_readonly("table_bytes", [](const LargeNttTables& t) { return t.layout().root_count() * sizeof(Root); })
        .def("transform", &transform, py::arg("words"), py::arg("inverse"), py::arg("threads") = 1,
             py::arg("progress") = py::none(), py::arg("out") = py::none());
}

}  // namespace fhe_core
