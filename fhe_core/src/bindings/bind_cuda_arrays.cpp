#include <pybind11/stl.h>

#include <cstring>
#include <memory>
#include <optional>
#include <string>

#include "bindings/arrays.hpp"
#include "bindings/device_arrays.hpp"
#include "bindings/dlpack.hpp"
#include "core/errors.hpp"

namespace fhe_core {
namespace py = pybind11;
using cuda::DeviceArray;
using Extents = DeviceArray::Shape;

namespace {

constexpr std::size_t kWorthPinning = std::size_t{256} << 10;
constexpr cuda::StreamHandle kLegacyStream = 1, kPerThreadStream = 2;

py::dtype word_type(int word_bytes) { return word_bytes == 4 ? py::dtype::of<std::uint32_t>() : py::dtype::of<std::uint64_t>(); }

std::string device_name(int device) { return "cuda:" + std::to_string(device); }

py::tuple shape_tuple(const Extents& shape) {
    py::tuple result(shape.size());
    for (std::size_t i = 0; i < shape.size(); ++i) result[i] = shape[i];
    return result;
}

// The owner of memory of another library: released with the GIL, from any thread.
std::shared_ptr<void> python_owner(py::object object) {
    return {new py::object(std::move(object)), [](void* owner) {
                const py::gil_scoped_acquire gil;
                delete static_cast<py::object*>(owner);
            }};
}

int checked_word_bytes(char kind, std::int64_t bytes) {
    if (kind == 'u' && (bytes == 4 || bytes == 8)) return static_cast<int>(bytes);
    throw ShapeError(std::string("device array: expected dtype uint32 or uint64, got '") + kind + std::to_string(bytes) +
                     "'; convert it first (in torch: x.view(torch.uint32))");
}

void check_contiguous(const Extents& shape, const std::vector<std::int64_t>& strides) {
    std::int64_t expected = 1;
    for (std::size_t i = shape.size(); i-- > 0;) {
        if (shape[i] > 1 && strides[i] != expected)
            throw ShapeError("device array: expected C-contiguous memory, got strides " + shape_text(strides) + " for shape " +
                             shape_text(shape) + "; make it contiguous first (x.contiguous(), cupy.ascontiguousarray)");
        expected *= shape[i];
    }
}

void check_wanted_device(std::optional<int> wanted, int found) {
    if (wanted && *wanted != found)
        throw DeviceError("device array: expected memory of " + device_name(*wanted) + ", got memory of " + device_name(found) +
                          "; move it there first");
}

// Through DLPack: the producer orders its work before our exchange stream.
DeviceArray from_dlpack(const py::object& source, std::optional<int> wanted) {
    const auto place = py::cast<std::pair<int, int>>(source.attr("__dlpack_device__")());
    if (place.first != dlpack::kCuda)
        throw DeviceError("device array: expected CUDA memory, got memory of DLPack device type " + std::to_string(place.first) +
                          "; pass host memory as a numpy array");
    check_wanted_device(wanted, place.second);
    const py::object capsule = source.attr("__dlpack__")(py::arg("stream") = cuda::exchange_stream(place.second));
    auto* managed = static_cast<dlpack::ManagedTensor*>(PyCapsule_GetPointer(capsule.ptr(), dlpack::kFresh));
    if (managed == nullptr) throw py::error_already_set();
    const dlpack::Tensor& tensor = managed->tensor;
    const Extents shape(tensor.shape, tensor.shape + tensor.dimensions);
    if (tensor.type.code != dlpack::kUnsigned || tensor.type.lanes != 1)
        checked_word_bytes(tensor.type.code == 0 ? 'i' : tensor.type.code == 2 ? 'f' : '?', tensor.type.bits / 8);
    const int word_bytes = checked_word_bytes('u', tensor.type.bits / 8);
    if (tensor.strides != nullptr) check_contiguous(shape, {tensor.strides, tensor.strides + tensor.dimensions});
    PyCapsule_SetName(capsule.ptr(), dlpack::kUsed);  // the deleter is ours to call from here on
    const std::shared_ptr<void> owner(managed, [](void* taken) {
        const py::gil_scoped_acquire gil;
        auto* tensor_taken = static_cast<dlpack::ManagedTensor*>(taken);
        if (tensor_taken->deleter != nullptr) tensor_taken->deleter(tensor_taken);
    });
    return DeviceArray::adopt(place.second, static_cast<char*>(tensor.data) + tensor.byte_offset, shape, word_bytes, owner);
}

// Through __cuda_array_interface__ (version 3), whose stream, when named, is waited for.
DeviceArray from_interface(const py::object& source, int device) {
    const py::dict description = source.attr("__cuda_array_interface__");
    const auto shape = py::cast<Extents>(py::list(description["shape"]));
    const auto type = py::cast<std::string>(description["typestr"]);
    if (type.size() < 3 || type[0] == '>')
        throw ShapeError("device array: expected little-endian words, got '" + type + "'; convert it first");
    const int word_bytes = checked_word_bytes(type[1], std::stoi(type.substr(2)));
    if (description.contains("strides") && !description["strides"].is_none()) {
        auto strides = py::cast<Extents>(py::list(description["strides"]));
        for (std::int64_t& stride : strides) stride /= word_bytes;
        check_contiguous(shape, strides);
    }
    const auto data = py::cast<std::uintptr_t>(py::tuple(description["data"])[0]);
    if (description.contains("stream") && !description["stream"].is_none())
        cuda::order_streams(device, cuda::exchange_stream(device), py::cast<std::uintptr_t>(description["stream"]));
    return DeviceArray::adopt(device, reinterpret_cast<void*>(data), shape, word_bytes, python_owner(source));
}

DeviceArray from_external(const py::object& source, std::optional<int> device) {
    if (py::isinstance<DeviceArray>(source)) {
        const auto array = py::cast<DeviceArray>(source);
        check_wanted_device(device, array.device());
        return array;
    }
    if (py::hasattr(source, "__dlpack_device__")) return from_dlpack(source, device);
    if (py::hasattr(source, "__cuda_array_interface__")) return from_interface(source, device.value_or(0));
    throw ShapeError("device array: expected an object with __dlpack__ or __cuda_array_interface__ (torch, CuPy), got " +
                     type_name(source));
}

DeviceArray from_host(const py::object& source, int device) {
    if (!py::isinstance<py::array>(source)) throw ShapeError("device array: expected a numpy array, got " + type_name(source));
    const auto array = py::reinterpret_borrow<py::array>(source);
    const int word_bytes = checked_word_bytes(array.dtype().kind(), array.itemsize());
    if ((array.flags() & py::array::c_style) == 0)
        throw ShapeError("device array: expected a C-contiguous array; use numpy.ascontiguousarray");
    const Extents shape(array.shape(), array.shape() + array.ndim());
    const void* data = array.data();
    const py::gil_scoped_release release;
    return DeviceArray::upload(device, data, shape, word_bytes);
}

py::array to_host(const DeviceArray& array, const py::object& into) {
    py::array result = into.is_none()            ? pinned_array(array.shape(), array.word_bytes())
                       : array.word_bytes() == 4 ? py::array(checked_array<std::uint32_t>(into, "out", array.shape()))
                                                 : py::array(checked_array<std::uint64_t>(into, "out", array.shape()));
    if (!result.writeable()) throw ShapeError("out: expected a writeable array, got a read-only one; pass a copy");
    void* data = result.mutable_data();
    const py::gil_scoped_release release;
    if (array.size() != 0) array.download(data);
    return result;
}

// The consumer's stream waits until the array is written; from now on its release waits for the whole device.
void lend_to(const DeviceArray& array, cuda::StreamHandle stream) {
    cuda::order_streams(array.device(), stream, cuda::exchange_stream(array.device()));
    array.lend();
}

struct Export {
    dlpack::ManagedTensor managed;
    DeviceArray array;
    Extents shape;
};

py::capsule to_dlpack(const DeviceArray& array, const py::object& stream, const py::object& copy) {
    if (!copy.is_none() && py::cast<bool>(copy))
        throw py::buffer_error("DeviceArray gives its memory without a copy only; copy on the consumer's side");
    if (stream.is_none() || py::cast<std::int64_t>(stream) != -1) {  // -1: the consumer orders by itself
        const cuda::StreamHandle handle = stream.is_none() ? kLegacyStream : checked_stream(stream);
        const py::gil_scoped_release release;
        array.wait_in(cuda::exchange_stream(array.device()));
        lend_to(array, handle);
    } else {
        array.lend();
    }
    auto* exported = new Export{{}, array, array.shape()};
    const auto bits = static_cast<std::uint8_t>(8 * array.word_bytes());
    exported->managed = {{array.data(),
                          {dlpack::kCuda, array.device()},
                          static_cast<std::int32_t>(exported->shape.size()),
                          {dlpack::kUnsigned, bits, 1},
                          exported->shape.data(),
                          nullptr,
                          0},
                         exported,
                         [](dlpack::ManagedTensor* managed) { delete static_cast<Export*>(managed->context); }};
    return py::capsule(&exported->managed, dlpack::kFresh, [](PyObject* capsule) {
        if (!PyCapsule_IsValid(capsule, dlpack::kFresh)) return;  // consumed
        auto* managed = static_cast<dlpack::ManagedTensor*>(PyCapsule_GetPointer(capsule, dlpack::kFresh));
        managed->deleter(managed);
    });
}

// The stream of the interface is ours: a consumer of version 3 waits for it.
py::dict to_interface(const DeviceArray& array) {
    const cuda::StreamHandle stream = cuda::exchange_stream(array.device());
    {
        const py::gil_scoped_release release;
        array.wait_in(stream);
        array.lend();
    }
    py::dict description;
    description["shape"] = shape_tuple(array.shape());
    description["typestr"] = "<u" + std::to_string(array.word_bytes());
    description["data"] = py::make_tuple(reinterpret_cast<std::uintptr_t>(array.data()), false);
    description["version"] = 3;
    description["strides"] = py::none();
    description["stream"] = stream;
    return description;
}

DeviceArray reshaped(const DeviceArray& array, const py::sequence& shape) {
    const auto wanted = py::cast<Extents>(py::list(shape));
    std::size_t size = 1;
    for (const std::int64_t extent : wanted) size *= extent < 0 ? 0 : static_cast<std::size_t>(extent);
    if (size != array.size())
        throw ShapeError("reshape: " + std::to_string(array.size()) + " words of shape " + shape_text(array.shape()) +
                         " do not fit shape " + shape_text(wanted));
    return array.view(0, wanted);
}

DeviceArray sliced(const DeviceArray& array, const py::slice& slice) {
    if (array.shape().empty()) throw ShapeError("device array: a single word has no parts");
    std::size_t start = 0, stop = 0, step = 0, length = 0;
    if (!slice.compute(static_cast<std::size_t>(array.shape()[0]), &start, &stop, &step, &length)) throw py::error_already_set();
    if (step != 1) throw ShapeError("device array: expected a slice of step 1; download it, or use Ciphertexts for other parts");
    Extents shape = array.shape();
    const std::size_t item = shape[0] == 0 ? 0 : array.size() / static_cast<std::size_t>(shape[0]);
    shape[0] = static_cast<std::int64_t>(length);
    return array.view(start * item, shape);
}

DeviceArray leading_columns(const DeviceArray& array, std::int64_t count) {
    if (array.shape().empty() || count < 0 || count > array.shape().back())
        throw ShapeError("leading columns: expected at most as many as the last axis has, got " + std::to_string(count) +
                         " of an array of shape " + shape_text(array.shape()));
    return cuda::leading_columns(array, count);
}

// --- arithmetic ------------------------------------------------------------------------------------------------------------------

template <class T>
const T* optional_rows(const py::object& value, const char* name, std::int64_t rows, std::vector<py::array>& kept) {
    if (value.is_none()) return nullptr;
    kept.push_back(checked_array<T>(value, name, {rows}));
    return static_cast<const T*>(kept.back().data());
}

void check_words(const ParameterSet& params, const DeviceArray& array, const char* name) {
    if (array.word_bytes() != static_cast<int>(params.word_bytes()) || array.shape().empty() ||
        array.shape().back() != params.large_words())
        throw ShapeError(std::string(name) + ": expected words of shape [.., " + std::to_string(params.large_words()) +
                         "] of the parameter set on the device, got uint" + std::to_string(8 * array.word_bytes()) + " of shape " +
                         shape_text(array.shape()));
}

struct RowArguments {
    cuda::RowOperand operand;
    DeviceArray array;

    RowArguments(const ParameterSet& params, const py::object& words, const py::object& rows, const py::object& factors,
                 std::int64_t count, const char* name, std::vector<py::array>& kept) {
        if (words.is_none()) return;
        array = py::cast<DeviceArray>(words);
        check_words(params, array, name);
        const auto held = static_cast<std::int64_t>(array.size()) / array.shape().back();
        operand.words = &array;
        operand.rows = optional_rows<std::int32_t>(rows, "rows", count, kept);
        for (std::int64_t i = 0; operand.rows != nullptr && i < count; ++i)
            if (operand.rows[i] < -1 || operand.rows[i] >= held)
                throw ShapeError(std::string("rows: expected numbers in [-1, ") + std::to_string(held) + "), got " +
                                 std::to_string(operand.rows[i]));
        if (operand.rows == nullptr && held != count)
            throw ShapeError(std::string(name) + ": expected " + std::to_string(count) + " rows, got " + std::to_string(held));
        if (py::isinstance<py::int_>(factors))
            operand.factor = py::cast<std::int64_t>(factors);
        else
            operand.factors = optional_rows<std::int64_t>(factors, "factors", count, kept);
    }
};

DeviceArray combine(const ParameterSet& params, std::int64_t count, const py::object& x, const py::object& x_rows,
                    const py::object& x_factors, const py::object& y, const py::object& y_rows, const py::object& y_factors,
                    const py::object& constants) {
    std::vector<py::array> kept;
    const RowArguments first(params, x, x_rows, x_factors, count, "x", kept),
        second(params, y, y_rows, y_factors, count, "y", kept);
    if (first.operand.words == nullptr) throw ShapeError("x: expected a device array, got None");
    if (second.operand.words != nullptr) check_wanted_device(first.array.device(), second.array.device());
    const std::uint64_t* added = optional_rows<std::uint64_t>(constants, "constants", count, kept);
    const py::gil_scoped_release release;
    return cuda::combine_rows(params, first.operand, second.operand, added, static_cast<std::size_t>(count));
}

DeviceArray concatenate(const py::sequence& arrays, std::int64_t outer, const py::sequence& shape) {
    std::vector<DeviceArray> parts;
    std::size_t size = 0;
    for (const py::handle part : arrays) {
        parts.push_back(py::cast<DeviceArray>(part));
        check_wanted_device(parts.front().device(), parts.back().device());
        size += parts.back().size();
        if (parts.back().word_bytes() != parts.front().word_bytes() || outer < 1 || parts.back().size() % outer != 0)
            throw ShapeError("concatenate: the parts do not fit each other");
    }
    const auto whole = py::cast<Extents>(py::list(shape));
    std::size_t wanted = 1;
    for (const std::int64_t extent : whole) wanted *= static_cast<std::size_t>(extent);
    if (parts.empty() || wanted != size) throw ShapeError("concatenate: the parts do not make shape " + shape_text(whole));
    const py::gil_scoped_release release;
    return cuda::concatenate(parts, static_cast<std::size_t>(outer), whole);
}

DeviceArray expand(const ParameterSet& params, const std::string& kind, const py::object& seed, const py::object& bodies,
                   int device, std::size_t first) {
    const bool lwe = kind == "lwe";
    if (!lwe && kind != "glwe") throw ParameterError("kind: expected 'lwe' or 'glwe', got '" + kind + "'");
    const Seed checked = checked_seed(seed);
    const Words words = checked_words(params, bodies, "bodies",
                                      lwe ? lane_shape(params, {kAny}) : lane_shape(params, {kAny}, {params.polynomial_size()}));
    const auto batch = static_cast<std::size_t>(words.shape(0));
    const void* data = words.data();
    const py::gil_scoped_release release;
    return cuda::expand_ciphertexts(params, lwe ? cuda::CiphertextKind::lwe : cuda::CiphertextKind::glwe, checked, data, first,
                                    batch, device);
}

}  // namespace

py::array pinned_array(const Extents& shape, int word_bytes) {
    std::size_t bytes = static_cast<std::size_t>(word_bytes);
    for (const std::int64_t extent : shape) bytes *= static_cast<std::size_t>(extent);
    std::shared_ptr<void> memory;
    if (bytes >= kWorthPinning) {
        const py::gil_scoped_release release;
        memory = cuda::pinned_memory(bytes);
    }
    if (memory == nullptr) return {word_type(word_bytes), shape};
    void* data = memory.get();
    const py::capsule owner(new std::shared_ptr<void>(std::move(memory)),
                            [](void* held) { delete static_cast<std::shared_ptr<void>*>(held); });
    return {word_type(word_bytes), shape, data, owner};
}

cuda::StreamHandle checked_stream(const py::object& stream) {
    py::object value = stream;
    if (py::hasattr(stream, "__cuda_stream__")) {
        const py::object protocol = stream.attr("__cuda_stream__");  // (version, handle), as a method or a property
        value = py::tuple(PyCallable_Check(protocol.ptr()) != 0 ? protocol() : protocol)[1];
    } else {
        for (const char* name : {"cuda_stream", "ptr"})  // torch, CuPy
            if (py::hasattr(value, name)) value = value.attr(name);
    }
    if (!py::isinstance<py::int_>(value))
        throw ParameterError("stream: expected an integer cudaStream_t or an object with __cuda_stream__, got " +
                             type_name(stream));
    const auto handle = py::cast<std::int64_t>(value);
    if (handle == static_cast<std::int64_t>(kPerThreadStream) || handle < 0)
        throw ParameterError(
            "stream: the per-thread default stream differs between the threads of a session; pass a stream of its own");
    return handle == 0 ? kLegacyStream : static_cast<cuda::StreamHandle>(handle);
}

// A list of methods, longer than a screen.
void bind_device_arrays(py::module_& m) {
    py::class_<DeviceArray>(
        m, "DeviceArray",
        "C-contiguous words (uint32 or uint64) in the memory of a CUDA device, reference counted. torch and CuPy "
        "read it without a copy through DLPack or __cuda_array_interface__.")
        .def_static("from_host", &from_host, py::arg("array"), py::arg("device") = 0)
        .def_static("from_external", &from_external, py::arg("array"), py::arg("device") = py::none(),
                    "Memory of torch, CuPy, .. without a copy; work that they have enqueued on the current stream comes first.")
        .def_property_readonly("shape", [](const DeviceArray& a) { return shape_tuple(a.shape()); })
        .def_property_readonly("dtype", [](const DeviceArray& a) { return word_type(a.word_bytes()); })
        .def_property_readonly("ndim", [](const DeviceArray& a) { return a.shape().size(); })
        .def_property_readonly("size", &DeviceArray::size)
        .def_property_readonly("itemsize", &DeviceArray::word_bytes)
        .def_property_readonly("nbytes", &DeviceArray::bytes)
        .def_property_readonly("device", [](const DeviceArray& a) { return device_name(a.device()); })
        .def_property_readonly("device_number", &DeviceArray::device)
        .def_property_readonly("ptr", [](const DeviceArray& a) { return reinterpret_cast<std::uintptr_t>(a.data()); })
        .def("__len__",
             [](const DeviceArray& a) {
                 if (a.shape().empty()) throw py::type_error("a single word has no length");
                 return a.shape()[0];
             })
        .def("__repr__",
             [](const DeviceArray& a) {
                 return "<DeviceArray uint" + std::to_string(8 * a.word_bytes()) + shape_text(a.shape()) + " on " +
                        device_name(a.device()) + ">";
             })
        .def("reshape", &reshaped, py::arg("shape"))
        .def("__getitem__", &sliced, py::arg("slice"))
        .def("to_host", &to_host, py::arg("out") = py::none())
        .def("to_device", &DeviceArray::to_device, py::arg("device"), py::call_guard<py::gil_scoped_release>())
        .def("synchronize", &DeviceArray::synchronize, py::call_guard<py::gil_scoped_release>())
        .def("leading_columns", &leading_columns, py::arg("count"), py::call_guard<py::gil_scoped_release>(),
             "The first words of every row, [.., W] to [rows, count], copied on the device.")
        .def("all_below", &cuda::all_below, py::arg("bound"), py::call_guard<py::gil_scoped_release>())
        .def("__dlpack_device__", [](const DeviceArray& a) { return py::make_tuple(dlpack::kCuda, a.device()); })
        .def(
            "__dlpack__",
            [](const DeviceArray& a, const py::object& stream, const py::object&, const py::object& dl_device,
               const py::object& copy) {
                if (!dl_device.is_none() &&
                    py::cast<std::pair<int, int>>(dl_device) != std::pair<int, int>(dlpack::kCuda, a.device()))
                    throw py::buffer_error("DeviceArray stays on its device; use to_host() or to_device()");
                return to_dlpack(a, stream, copy);
            },
            py::kw_only(), py::arg("stream") = py::none(), py::arg("max_version") = py::none(), py::arg("dl_device") = py::none(),
            py::arg("copy") = py::none())
        .def_property_readonly("__cuda_array_interface__", &to_interface);

    m.def("device_combine", &combine, py::arg("params"), py::arg("rows"), py::arg("x"), py::arg("x_rows") = py::none(),
          py::arg("x_factors") = 1, py::arg("y") = py::none(), py::arg("y_rows") = py::none(), py::arg("y_factors") = 1,
          py::arg("constants") = py::none(), "x_factors * x[x_rows] + y_factors * y[y_rows] + constants on the bodies, modulo Q.");
    m.def("device_concatenate", &concatenate, py::arg("parts"), py::arg("outer"), py::arg("shape"));
    m.def("device_expand", &expand, py::arg("params"), py::arg("kind"), py::arg("seed"), py::arg("bodies"), py::arg("device") = 0,
          py::arg("first") = 0,
          "Seeded ciphertexts `first`, .. of their seed on the device: 'lwe' words[B, kN+r], 'glwe' words[B, k+r, N].");
    m.def(
        "device_memory",
        [](int device) {
            const cuda::MemoryInfo info = cuda::memory_info(device);
            return py::make_tuple(info.free_bytes, info.total_bytes);
        },
        py::arg("device") = 0, "(free, total) bytes; free counts what this process keeps for reuse.");
    m.def(
        "pinned_empty",
        [](const py::sequence& shape, const py::object& dtype) {
            const py::dtype wanted = py::dtype::from_args(dtype);
            return pinned_array(py::cast<Extents>(py::list(shape)), checked_word_bytes(wanted.kind(), wanted.itemsize()));
        },
        py::arg("shape"), py::arg("dtype"),
        "An uninitialised array in page-locked memory of a pool, or ordinary memory where that is full.");
}

}  // namespace fhe_core
