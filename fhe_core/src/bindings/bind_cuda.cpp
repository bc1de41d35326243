// CudaKey and CudaSession: the CUDA back end over numpy arrays and device arrays, with the methods of CpuKey and CpuSession.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bindings/arrays.hpp"
#include "bindings/bindings.hpp"
#include "bindings/device_arrays.hpp"
#include "bindings/session.hpp"
#include "core/errors.hpp"
#include "cuda/backend.hpp"

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

using cuda::CudaBackend;
using cuda::DeviceArray;

// The arrays of one call, all on the host or all on the session's device. Large words of the host are checked on the device.
class CudaCall final : public ArrayCall {
   public:
    explicit CudaCall(CudaBackend& session) : session_(session), params_(session.parameters()) {}

    Input words(const py::object& value, const char* name, std::initializer_list<std::int64_t> shape) override {
        const int word_bytes = static_cast<int>(params_.word_bytes());
        if (py::isinstance<DeviceArray>(value)) return device_input(value, name, shape, word_bytes);
        refuse_mixed(name, false);
        return word_bytes == 4 ? host_input(checked_array<std::uint32_t>(value, name, shape))
                               : host_input(checked_array<std::uint64_t>(value, name, shape));
    }

    Input small(const py::object& value, const char* name, std::initializer_list<std::int64_t> shape,
                std::uint64_t bound) override {
        if (!py::isinstance<DeviceArray>(value)) return host_input(checked_array_below<std::uint32_t>(value, name, shape, bound));
        const Input input = device_input(value, name, shape, 4);
        bool inside = true;
        {
            const py::gil_scoped_release release;
            inside = inputs_.back().size() == 0 || cuda::all_below(inputs_.back(), bound);
        }
        if (!inside)
            throw ShapeError(std::string(name) + ": expected every value in [0, " + std::to_string(bound) +
                             "), found a value outside; check that it belongs to this parameter set");
        return input;
    }

    void* words_out(const py::object& into, const Shape& shape) override {
        return output(into, shape, static_cast<int>(params_.word_bytes()));
    }
    std::uint32_t* small_out(const py::object& into, const Shape& shape) override {
        return static_cast<std::uint32_t*>(output(into, shape, 4));
    }

    // A call on the device that nobody watches is enqueued and not waited for.
    Progress progress(const py::object& callback) const override {
        return callback.is_none() && !inputs_.empty() ? Progress() : checked_progress(callback);
    }

    py::object run(const std::function<void()>& work) override {
        {
            const py::gil_scoped_release release;
            session_.before(inputs_);
            work();
            session_.after(inputs_, out_.empty() ? nullptr : &out_);
        }
        return out_.empty() ? py::object(host_out_) : out_object_.is_none() ? py::cast(out_) : out_object_;
    }

   private:
    Input host_input(py::array array) {
        kept_.push_back(array);
        on_host_ = true;
        return {array.data(), Shape(array.shape(), array.shape() + array.ndim())};
    }

    Input device_input(const py::object& value, const char* name, std::initializer_list<std::int64_t> shape, int word_bytes) {
        refuse_mixed(name, true);
        auto array = checked_device_array(value, name, shape, word_bytes);
        inputs_.push_back(array);
        return {array.data(), array.shape()};
    }

    DeviceArray checked_device_array(const py::object& value, const char* name, std::span<const std::int64_t> shape,
                                     int word_bytes) const {
        const auto array = py::cast<DeviceArray>(value);
        bool same = array.word_bytes() == word_bytes && array.shape().size() == shape.size();
        for (std::size_t i = 0; same && i < shape.size(); ++i) same = shape[i] == kAny || shape[i] == array.shape()[i];
        if (!same)
            throw ShapeError(std::string(name) + ": expected uint" + std::to_string(8 * word_bytes) + " of shape " +
                             shape_text(shape) + ", got uint" + std::to_string(8 * array.word_bytes()) + " of shape " +
                             shape_text(array.shape()));
        const int device = session_.key()->device();
        if (array.device() != device)
            throw DeviceError(std::string(name) + ": expected an array on cuda:" + std::to_string(device) + ", got one on cuda:" +
                              std::to_string(array.device()) + "; move it with .to_device('cuda:" + std::to_string(device) + "')");
        return array;
    }

    void refuse_mixed(const char* name, bool device) const {
        if (device ? on_host_ : !inputs_.empty())
            throw ShapeError(std::string(name) +
                             ": expected all arrays of a call on the host or all on the device; move one of them");
    }

    void* output(const py::object& into, const Shape& shape, int word_bytes) {
        if (inputs_.empty()) {
            if (into.is_none())
                host_out_ = pinned_array(shape, word_bytes);
            else
                host_out_ =
                    word_bytes == 4 ? checked_output<std::uint32_t>(into, shape) : checked_output<std::uint64_t>(into, shape);
            return host_out_.mutable_data();
        }
        if (into.is_none()) {
            const py::gil_scoped_release release;
            out_ = session_.allocate(shape, word_bytes, "result of a call");
        } else {
            if (!py::isinstance<DeviceArray>(into))
                throw ShapeError("out: expected a DeviceArray for operands on the device, got " + type_name(into));
            out_object_ = into;
            out_ = checked_device_array(into, "out", shape, word_bytes);
            inputs_.push_back(out_);  // earlier readers and writers come first
        }
        return out_.data();
    }

    CudaBackend& session_;
    const ParameterSet& params_;
    std::vector<py::array> kept_;
    std::vector<DeviceArray> inputs_;
    bool on_host_ = false;
    py::array host_out_;
    DeviceArray out_;
    py::object out_object_ = py::none();
};

using Weights = std::shared_ptr<const cuda::CachedWeights>;

// Weights on the device: made once, used by any session of that device.
struct CudaWeights {
    Weights weights;
};

std::vector<std::int32_t> checked_gather(const py::object& gather, std::int64_t columns, std::int64_t sample_rows) {
    const auto array = checked_array<std::int32_t>(gather, "gather", {kAny, columns});
    for (py::ssize_t i = 0; i < array.size(); ++i)
        if (array.data()[i] < -1 || array.data()[i] >= sample_rows)
            throw ShapeError("gather: expected rows in [-1, " + std::to_string(sample_rows) + "), got " +
                             std::to_string(array.data()[i]));
    return {array.data(), array.data() + array.size()};
}

// words[S, W, kN+r] -> words[S, O, kN+r] where position p writes rows out_rows[p] .. + R.
py::object gathered_linear(CudaBackend& s, const CudaWeights& weights, const py::object& lwe, const py::object& gather,
                           const py::object& bias, const py::object& out_rows, std::int64_t out_sample_rows,
                           const py::object& into) {
    const auto width = std::int64_t{s.parameters().large_words()};
    const auto rows = static_cast<std::int64_t>(weight_rows(*weights.weights)),
               columns = static_cast<std::int64_t>(weight_columns(*weights.weights));
    if (weight_device(*weights.weights) != s.key()->device())
        throw DeviceError("weights: expected weights on cuda:" + std::to_string(s.key()->device()) + ", got weights on cuda:" +
                          std::to_string(weight_device(*weights.weights)) + "; upload them with this session");
    CudaCall call(s);
    const auto in = call.words(lwe, "lwe", {kAny, gather.is_none() ? columns : kAny, width});
    std::vector<std::int32_t> chosen;
    if (!gather.is_none()) chosen = checked_gather(gather, columns, in.shape[1]);
    const std::size_t positions = gather.is_none() ? 1 : chosen.size() / static_cast<std::size_t>(columns);
    std::vector<std::int32_t> places;
    if (!out_rows.is_none()) {
        if (!py::isinstance<DeviceArray>(lwe)) throw ShapeError("out_rows: expected operands on the device");
        const auto array = checked_array<std::int32_t>(out_rows, "out_rows", {static_cast<std::int64_t>(positions)});
        places.assign(array.data(), array.data() + array.size());
        for (const std::int32_t place : places)
            if (place < 0 || place + rows > out_sample_rows)
                throw ShapeError("out_rows: expected rows in [0, " + std::to_string(out_sample_rows - rows + 1) + "), got " +
                                 std::to_string(place));
    } else {
        out_sample_rows = static_cast<std::int64_t>(positions) * rows;
    }
    py::array_t<std::uint64_t> added;
    if (!bias.is_none()) added = checked_array_below<std::uint64_t>(bias, "bias", {rows}, s.parameters().modulus());
    cuda::GatheredLinear layer{weights.weights,
                               in.data,
                               in.batch(),
                               static_cast<std::size_t>(in.shape[1]),
                               chosen.empty() ? nullptr : chosen.data(),
                               positions,
                               bias.is_none() ? nullptr : added.data(),
                               nullptr,
                               static_cast<std::size_t>(out_sample_rows),
                               places.empty() ? nullptr : places.data()};
    layer.out = call.words_out(into, {in.shape[0], out_sample_rows, width});
    return call.run([&] { s.linear(layer); });
}

py::object take(CudaBackend& s, const py::object& x, const py::object& rows) {
    const auto width = std::int64_t{s.parameters().large_words()};
    CudaCall call(s);
    const auto in = call.words(x, "x", {kAny, kAny, width});
    const auto chosen = checked_array<std::int32_t>(rows, "rows", {kAny});
    for (py::ssize_t i = 0; i < chosen.size(); ++i)
        if (chosen.data()[i] < -1 || chosen.data()[i] >= in.shape[1])
            throw ShapeError("rows: expected rows in [-1, " + std::to_string(in.shape[1]) + "), got " +
                             std::to_string(chosen.data()[i]));
    void* out = call.words_out(py::none(), {in.shape[0], chosen.size(), width});
    return call.run([&] {
        s.take(in.data, in.batch(), static_cast<std::size_t>(in.shape[1]), chosen.data(), static_cast<std::size_t>(chosen.size()),
               out);
    });
}

std::unique_ptr<CudaBackend> make_session(const std::shared_ptr<cuda::ExpandedKey>& key, std::size_t memory_limit,
                                          const py::object& stream) {
    std::optional<cuda::StreamHandle> handle;
    if (!stream.is_none()) handle = checked_stream(stream);
    const py::gil_scoped_release release;
    return std::make_unique<CudaBackend>(key, memory_limit, handle);
}

}  // namespace

// A list of methods, longer than a screen.
void bind_cuda(py::module_& m) {
    bind_device_arrays(m);
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

    py::class_<CudaWeights>(m, "CudaWeights", "A matrix of weights on a CUDA device, in the linear layer's form.")
        .def_property_readonly(
            "shape", [](const CudaWeights& w) { return py::make_tuple(weight_rows(*w.weights), weight_columns(*w.weights)); })
        .def_property_readonly("device", [](const CudaWeights& w) { return weight_device(*w.weights); });

    use_arrays("cuda", [](Backend& backend) -> std::unique_ptr<ArrayCall> {
        return std::make_unique<CudaCall>(static_cast<CudaBackend&>(backend));
    });
    py::class_<CudaBackend, Backend> session(m, "CudaSession",
                                             "Batched operations on a CUDA device; thread-safe, calls on one session take turns.");
    session
        .def(py::init(&make_session), py::arg("key"), py::arg("memory_limit") = 0, py::arg("stream") = py::none(),
             "memory_limit: bytes on the device that batches may use; 0: what is free. Larger batches are cut into pieces. stream: "
             "the "
             "caller's (an integer or an object with __cuda_stream__), which orders all work of the session.")
        .def_property_readonly("device", [](const CudaBackend& backend) { return backend.key()->device(); })
        .def_property_readonly("stream", &CudaBackend::stream)
        .def_property_readonly("cached_bytes", &CudaBackend::cached_bytes)
        .def("synchronize", &CudaBackend::synchronize, py::call_guard<py::gil_scoped_release>())
        .def(
            "upload_weights",
            [](CudaBackend& s, const py::object& weights) {
                const auto matrix = checked_array<std::int32_t>(weights, "weights", {kAny, kAny});
                check_not_empty(matrix, "weights");
                const std::size_t rows = matrix.shape(0), columns = matrix.shape(1);
                const py::gil_scoped_release release;
                return CudaWeights{s.upload_weights(matrix.data(), rows, columns)};
            },
            py::arg("weights"))
        .def("gathered_linear", &gathered_linear, py::arg("weights"), py::arg("lwe"), py::arg("gather") = py::none(),
             py::arg("bias") = py::none(), py::arg("out_rows") = py::none(), py::arg("out_sample_rows") = 0,
             py::arg("out") = py::none(),
             "words[S, W, kN+r] -> words[S, P R, kN+r]: position p of a sample is weights times the rows gather[p] (-1: zero) plus "
             "bias; "
             "with out_rows, rows out_rows[p] .. of words[S, out_sample_rows, kN+r].")
        .def("take", &take, py::arg("x"), py::arg("rows"),
             "words[S, W, kN+r] -> words[S, E, kN+r]: rows of each sample, -1 for zeros.")
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
}

}  // namespace fhe_core
