// CudaLevelled: levelled arithmetic on a CUDA device, on words that lie there (CudaLevelledWords).
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bindings/bindings.hpp"
#include "bindings/device_arrays.hpp"
#include "bindings/levelled_arrays.hpp"
#include "cuda/levelled/levelled.hpp"

namespace py = pybind11;

namespace fhe_core {
namespace {

using cuda::DeviceArray;

// Words of one object: checked when they were uploaded, or its results. Nobody else reaches their memory.
struct DeviceWords {
    enum class Kind : std::uint8_t { plain, table, key };

    std::shared_ptr<const LevelledTables> tables;
    DeviceArray array;
    Kind kind = Kind::plain;

    std::int64_t level() const { return array.shape()[array.shape().size() - 2]; }
};

struct CudaLevelled {
    SharedLevelled host;
    cuda::Levelled device;

    std::shared_ptr<const LevelledTables> tables() const { return {host, &host->tables()}; }

    void check_own(const DeviceWords& words, const char* name) const {
        if (words.tables.get() != &host->tables())
            throw ShapeError(std::string(name) + ": expected words of this object, got another's; upload them here");
        if (words.array.device() != device.device())
            throw DeviceError(std::string(name) + ": expected memory of cuda:" + std::to_string(device.device()) +
                              ", got memory of cuda:" + std::to_string(words.array.device()) + "; upload them there");
    }
    // Ordinary words, of so many dimensions (kAny: three or four).
    void check(const DeviceWords& words, std::size_t dimensions, const char* name) const {
        check_own(words, name);
        if (words.kind != DeviceWords::Kind::plain) throw ShapeError(std::string(name) + ": expected words, got prepared ones");
        if (words.array.shape().size() != dimensions)
            throw ShapeError(std::string(name) + ": expected " + std::to_string(dimensions) + " dimensions, got " +
                             shape_text(words.array.shape()));
    }
    template <class F>
    DeviceWords result(DeviceWords::Kind kind, F&& call) const {
        const py::gil_scoped_release release;
        return {tables(), call(), kind};
    }
    template <class F>
    DeviceWords result(F&& call) const {
        return result(DeviceWords::Kind::plain, std::forward<F>(call));
    }
};

constexpr auto kTable = DeviceWords::Kind::table;

DeviceWords upload(const CudaLevelled& levelled, const py::array& value) {
    const auto words = checked_words32(levelled.host->tables(), value, "words", Extents(value.ndim() == 4 ? 2 : 1, kAny));
    const std::uint32_t* data = words.data();
    Extents shape(words.shape(), words.shape() + words.ndim());
    return levelled.result([&] { return DeviceArray::upload(levelled.device.device(), data, std::move(shape), 4); });
}

DeviceWords upload_prepared(const CudaLevelled& levelled, const LevelledPrepared& prepared) {
    check_prepared(prepared.tables.get() == &levelled.host->tables(), prepared.is_key, prepared.is_key);
    return levelled.result(prepared.is_key ? DeviceWords::Kind::key : kTable,
                           [&] { return DeviceArray::upload(levelled.device.device(), prepared.words.data(), prepared.shape, 4); });
}

py::array to_host(const DeviceWords& words) {
    py::array result = pinned_array(words.array.shape(), 4);
    void* out = result.mutable_data();
    const py::gil_scoped_release release;
    words.array.download(out);
    return result;
}

DeviceWords reshaped(const DeviceWords& words, const Extents& before) {
    Extents shape = before;
    std::int64_t rows = 1, found = 1;
    for (const std::int64_t extent : before) {
        if (extent < 1 || extent > (std::int64_t{1} << 31) || rows > (std::int64_t{1} << 40) / extent)
            throw ShapeError("shape: expected extents of at least 1, got " + shape_text(before));
        rows *= extent;
    }
    const Extents& old = words.array.shape();
    for (std::size_t i = 0; i + 2 < old.size(); ++i) found *= old[i];
    if (rows != found || before.empty() || before.size() > 2)
        throw ShapeError("shape: expected one or two extents of " + std::to_string(found) + " polynomials, got " +
                         shape_text(before));
    shape.insert(shape.end(), old.end() - 2, old.end());
    return {words.tables, words.array.view(0, shape), words.kind};
}

DeviceWords taken(const DeviceWords& words, std::int64_t first, std::int64_t last) {
    const Extents& old = words.array.shape();
    if (first < 0 || first >= last || last > old[0])
        throw ShapeError("first, last: expected a range within 0 to " + std::to_string(old[0]) + ", got " + std::to_string(first) +
                         " to " + std::to_string(last));
    Extents shape = old;
    shape[0] = last - first;
    const std::size_t row = words.array.size() / static_cast<std::size_t>(old[0]);
    return {words.tables, words.array.view(static_cast<std::size_t>(first) * row, std::move(shape)), words.kind};
}

DeviceWords add(const CudaLevelled& levelled, const DeviceWords& a, const DeviceWords& b, bool negative) {
    levelled.check(a, a.array.shape().size(), "a");
    levelled.check(b, b.array.shape().size(), "b");
    check_same_shape(a.array.shape(), b.array.shape());
    return levelled.result([&] { return levelled.device.add(a.array, b.array, negative); });
}

DeviceWords products(const CudaLevelled& levelled, const DeviceWords& words, const DeviceWords& prepared) {
    levelled.check(words, 4, "words");
    levelled.check_own(prepared, "prepared");
    check_prepared(true, prepared.kind == DeviceWords::Kind::key, false);
    if (prepared.kind != kTable) throw ShapeError("prepared: expected prepared words, got others");
    check_table_shape(prepared.array.shape(), words.array.shape());
    return levelled.result([&] { return levelled.device.products(words.array, prepared.array); });
}

DeviceWords multiply(const CudaLevelled& levelled, const DeviceWords& a, const DeviceWords& b) {
    levelled.check(a, 4, "a");
    levelled.check(b, 4, "b");
    check_same_shape(a.array.shape(), b.array.shape());
    if (a.array.shape()[1] != 2) throw ShapeError("a: expected two parts, got " + shape_text(a.array.shape()));
    return levelled.result([&] { return levelled.device.multiply(a.array, b.array); });
}

DeviceWords keyswitch(const CudaLevelled& levelled, const DeviceWords& words, const DeviceWords& key) {
    levelled.check(words, 3, "words");
    levelled.check_own(key, "key");
    check_prepared(true, key.kind == DeviceWords::Kind::key, true);
    return levelled.result([&] { return levelled.device.keyswitch(words.array, key.array); });
}

// Joined along the first axis, or (of [batch][level][N]) as parts of one array [batch][parts][level][N].
DeviceWords joined(const CudaLevelled& levelled, const std::vector<DeviceWords>& words, bool as_parts) {
    if (words.empty()) throw ShapeError("words: expected at least one array");
    const Extents& first = words[0].array.shape();
    std::vector<DeviceArray> arrays;
    std::int64_t rows = 0;
    for (const DeviceWords& each : words) {
        levelled.check_own(each, "words");
        const Extents& shape = each.array.shape();
        const bool same = each.kind == words[0].kind && shape.size() == first.size() &&
                          std::equal(shape.begin() + (as_parts ? 0 : 1), shape.end(), first.begin() + (as_parts ? 0 : 1));
        if (!same || each.kind == DeviceWords::Kind::key || (as_parts && shape.size() != 3))
            throw ShapeError("words: expected arrays that fit " + shape_text(first) + ", got " + shape_text(shape));
        arrays.push_back(each.array);
        rows += shape[0];
    }
    Extents shape = first;
    if (as_parts)
        shape.insert(shape.begin() + 1, static_cast<std::int64_t>(words.size()));
    else
        shape[0] = rows;
    const std::size_t outer = as_parts ? static_cast<std::size_t>(first[0]) : 1;
    return levelled.result(words[0].kind, [&] { return cuda::concatenate(arrays, outer, std::move(shape)); });
}

}  // namespace

void bind_cuda_levelled(py::module_& m) {
    py::class_<DeviceWords>(m, "CudaLevelledWords")
        .def_property_readonly("shape", [](const DeviceWords& w) { return py::tuple(py::cast(w.array.shape())); })
        .def_property_readonly("nbytes", [](const DeviceWords& w) { return w.array.bytes(); })
        .def_property_readonly("device", [](const DeviceWords& w) { return w.array.device(); })
        .def("to_host", &to_host)
        .def("synchronize",
             [](const DeviceWords& w) {
                 const py::gil_scoped_release release;
                 w.array.synchronize();
             })
        .def("reshape", &reshaped, py::arg("before"))
        .def("take", &taken, py::arg("first"), py::arg("last"));
    py::class_<CudaLevelled>(m, "CudaLevelled")
        .def(py::init([](const SharedLevelled& levelled, int device) {
                 const py::gil_scoped_release release;
                 return std::unique_ptr<CudaLevelled>(
                     new CudaLevelled{levelled, {std::shared_ptr<const LevelledTables>(levelled, &levelled->tables()), device}});
             }),
             py::arg("levelled"), py::arg("device") = 0)
        .def_property_readonly("device", [](const CudaLevelled& l) { return l.device.device(); })
        .def("upload", &upload, py::arg("words"))
        .def("upload_prepared", &upload_prepared, py::arg("prepared"))
        .def(
            "transform",
            [](const CudaLevelled& l, const DeviceWords& words, bool inverse) {
                l.check(words, words.array.shape().size(), "words");
                return l.result([&] { return l.device.transform(words.array, inverse); });
            },
            py::arg("words"), py::arg("inverse"))
        .def(
            "prepare",
            [](const CudaLevelled& l, const DeviceWords& words) {
                l.check(words, 4, "words");
                return l.result(kTable, [&] { return l.device.prepare(words.array); });
            },
            py::arg("words"))
        .def("add", &add, py::arg("a"), py::arg("b"), py::arg("negative") = false)
        .def(
            "scale",
            [](const CudaLevelled& l, const DeviceWords& words, std::int64_t factor) {
                l.check(words, words.array.shape().size(), "words");
                return l.result([&] { return l.device.scale(words.array, factor); });
            },
            py::arg("words"), py::arg("factor"))
        .def("products", &products, py::arg("words"), py::arg("prepared"))
        .def("multiply", &multiply, py::arg("a"), py::arg("b"))
        .def(
            "automorphism",
            [](const CudaLevelled& l, const DeviceWords& words, std::uint64_t g) {
                l.check(words, words.array.shape().size(), "words");
                check_automorphism(l.host->tables(), g);
                return l.result([&] { return l.device.automorphism(words.array, g); });
            },
            py::arg("words"), py::arg("g"))
        .def("keyswitch", &keyswitch, py::arg("words"), py::arg("key"))
        .def(
            "modulus_switch",
            [](const CudaLevelled& l, const DeviceWords& words, int keep) {
                l.check(words, 3, "words");
                check_keep(words.level(), keep);
                return l.result([&] { return l.device.modulus_switch(words.array, keep); });
            },
            py::arg("words"), py::arg("keep"))
        .def(
            "part",
            [](const CudaLevelled& l, const DeviceWords& words, int number) {
                l.check(words, 4, "words");
                if (number < 0 || number >= words.array.shape()[1])
                    throw ShapeError("number: expected 0 to " + std::to_string(words.array.shape()[1] - 1) + ", got " +
                                     std::to_string(number));
                return l.result([&] { return l.device.part(words.array, number); });
            },
            py::arg("words"), py::arg("number"))
        .def("joined", &joined, py::arg("words"), py::arg("as_parts"));
}

}  // namespace fhe_core
