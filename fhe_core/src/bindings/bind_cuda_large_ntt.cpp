// CudaLargeNtt: transforms of many primes on a CUDA device.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <memory>

#include "bindings/arrays.hpp"
#include "bindings/bindings.hpp"
#include "bindings/device_arrays.hpp"
#include "cuda/transform/large_ntt.hpp"

namespace py = pybind11;

namespace fhe_core {
namespace {

using cuda::DeviceArray;

// One device's tables beside those of the host, which know sizes.
struct CudaLargeNtt {
    std::shared_ptr<LargeNttTables> tables;
    cuda::LargeNtt device;

    void check(const DeviceArray& words) const {
        const DeviceArray::Shape expected{kAny, static_cast<std::int64_t>(tables->prime_count()),
                                          static_cast<std::int64_t>(tables->polynomial_size())};
        const auto& found = words.shape();
        const bool same =
            words.word_bytes() == 4 && found.size() == 3 && found[0] > 0 && found[1] == expected[1] && found[2] == expected[2];
        if (!same)
            throw ShapeError("words: expected uint32 of shape " + shape_text(expected) + ", got uint" +
                             std::to_string(8 * words.word_bytes()) + " of shape " + shape_text(found));
        if (words.device() != device.device())
            throw DeviceError("words: expected memory of cuda:" + std::to_string(device.device()) +
                              ", got memory of cuda:" + std::to_string(words.device()) + "; move it there first");
    }
};

}  // namespace

void bind_cuda_large_ntt(py::module_& m) {
    py::class_<CudaLargeNtt>(m, "CudaLargeNtt")
        .def(py::init([](std::shared_ptr<LargeNttTables> tables, int device) {
                 const py::gil_scoped_release release;
                 return std::unique_ptr<CudaLargeNtt>(new CudaLargeNtt{tables, {*tables, device}});
             }),
             py::arg("tables"), py::arg("device") = 0)
        .def_property_readonly("device", [](const CudaLargeNtt& ntt) { return ntt.device.device(); })
        .def(
            "transform",
            [](const CudaLargeNtt& ntt, const DeviceArray& words, bool inverse) {
                ntt.check(words);
                const py::gil_scoped_release release;
                return ntt.device.transform(words, inverse);
            },
            py::arg("words"), py::arg("inverse"))
        .def(
            "seconds",
            [](const CudaLargeNtt& ntt, const DeviceArray& words, bool inverse, int calls, int repeats) {
                ntt.check(words);
                if (calls < 1 || repeats < 1) throw ParameterError("calls and repeats: expected at least 1");
                const py::gil_scoped_release release;
                return ntt.device.seconds(words, inverse, calls, repeats);
            },
            py::arg("words"), py::arg("inverse"), py::arg("calls"), py::arg("repeats"));
}

}  // namespace fhe_core
