// Class Backend: the operations of fhe_core::Backend over whatever arrays a back end takes.
#include "bindings/session.hpp"

#include <map>

#include "bindings/bindings.hpp"

namespace fhe_core {
namespace py = pybind11;

namespace {

// numpy arrays.
class HostCall final : public ArrayCall {
   public:
    explicit HostCall(const Backend& backend) : params_(backend.parameters()) {}

    Input words(const py::object& value, const char* name, std::initializer_list<std::int64_t> shape) override {
        return kept(checked_words(params_, value, name, shape).array);
    }
    Input small(const py::object& value, const char* name, std::initializer_list<std::int64_t> shape,
                std::uint64_t bound) override {
        return kept(checked_array_below<std::uint32_t>(value, name, shape, bound));
    }
    void* words_out(const py::object& into, const Shape& shape) override {
        out_ = output_words(params_, into, shape);
        return out_.mutable_data();
    }
    std::uint32_t* small_out(const py::object& into, const Shape& shape) override {
        out_ = into.is_none() ? py::array(py::array_t<std::uint32_t>(shape)) : checked_output<std::uint32_t>(into, shape);
        return static_cast<std::uint32_t*>(out_.mutable_data());
    }
    Progress progress(const py::object& callback) const override { return checked_progress(callback); }
    py::object run(const std::function<void()>& work) override {
        {
            const py::gil_scoped_release release;
            work();
        }
        return out_;
    }

   private:
    Input kept(py::array array) {
        kept_.push_back(array);
        return {array.data(), Shape(array.shape(), array.shape() + array.ndim())};
    }

    const ParameterSet& params_;
    std::vector<py::array> kept_;
    py::array out_;
};

std::map<std::string_view, MakeArrayCall>& other_arrays() {  // written when the module is loaded
    static std::map<std::string_view, MakeArrayCall> makers;
    return makers;
}

std::unique_ptr<ArrayCall> arrays_of(Backend& backend) {
    const auto found = other_arrays().find(backend.name());
    return found == other_arrays().end() ? std::make_unique<HostCall>(backend) : found->second(backend);
}

std::int64_t large(const Backend& s) { return s.parameters().large_words(); }
std::int64_t small(const Backend& s) { return s.parameters().small_words(); }

// A list of methods, longer than a screen.
void bind_bootstrap(py::class_<Backend>& backend) {
    backend.def(
        "keyswitch",
        [](Backend& s, const py::object& lwe, const py::object& into) {
            const auto call = arrays_of(s);
            const auto in = call->words(lwe, "lwe", {kAny, large(s)});
            std::uint32_t* out = call->small_out(into, {in.shape[0], small(s)});
            return call->run([&] { s.keyswitch(in.data, in.batch(), out); });
        },
        py::arg("lwe"), py::arg("out") = py::none(),
        "words[B, kN+r] modulo Q -> uint32[B, n+r] modulo 2^w (specification, section 2).");

    backend.def(
        "modulus_switch",
        [](Backend& s, const py::object& small_lwe, const py::object& into) {
            const auto call = arrays_of(s);
            const auto in =
                call->small(small_lwe, "small_lwe", {kAny, small(s)}, std::uint64_t{1} << s.parameters().keyswitch_modulus_log2);
            std::uint32_t* out = call->small_out(into, {in.shape[0], small(s)});
            return call->run([&] { s.modulus_switch(static_cast<const std::uint32_t*>(in.data), in.batch(), out); });
        },
        py::arg("small_lwe"), py::arg("out") = py::none(),
        "uint32[B, n+r] modulo 2^w -> uint32[B, n+r] in [0, 2 nu N) (section 3).");

    backend.def(
        "blind_rotate",
        [](Backend& s, const py::object& switched, const py::object& tables, const py::object& table_index,
           const py::object& progress, const py::object& into) {
            const ParameterSet& p = s.parameters();
            const auto call = arrays_of(s);
            const auto in = call->small(switched, "switched", {kAny, small(s)}, 2 * p.table_size());
            const TableArguments table(p, tables, table_index, in.shape[0]);
            void* out = call->words_out(into, rotated_shape(p, in.shape[0]));
            const Progress report = call->progress(progress);
            return call->run(
                [&] { s.blind_rotate(static_cast<const std::uint32_t*>(in.data), in.batch(), table.view(), out, report); });
        },
        py::arg("switched"), py::arg("tables"), py::arg("table_index") = py::none(), py::arg("progress") = py::none(),
        py::arg("out") = py::none(),
        "uint32[B, n+r], tables words[T, nu N] -> GLWE words[B, k+r, N], nu > 1: [B, nu, k+r, N] (section 6).");

    backend.def(
        "sample_extract",
        [](Backend& s, const py::object& glwe, const py::object& coefficients, const py::object& into) {
            const ParameterSet& p = s.parameters();
            const auto call = arrays_of(s);
            const auto in = call->words(glwe, "glwe", {kAny, p.component_count(), p.polynomial_size()});
            const auto chosen = checked_coefficients(coefficients, p.polynomial_size());
            void* out = call->words_out(into, {in.shape[0], chosen.shape(0), large(s)});
            const ExtractView view{chosen.data(), static_cast<std::size_t>(chosen.shape(0))};
            return call->run([&] { s.sample_extract(in.data, in.batch(), view, out); });
        },
        py::arg("glwe"), py::arg("coefficients") = py::none(), py::arg("out") = py::none(),
        "words[B, k+r, N] -> words[B, J, kN+r] (section 7).");

    backend.def(
        "bootstrap",
        [](Backend& s, const py::object& lwe, const py::object& tables, const py::object& table_index,
           const py::object& coefficients, const py::object& progress, const py::object& into) {
            const ParameterSet& p = s.parameters();
            const auto call = arrays_of(s);
            const auto in = call->words(lwe, "lwe", {kAny, large(s)});
            const TableArguments table(p, tables, table_index, in.shape[0]);
            const auto chosen = checked_coefficients(coefficients, p.table_size());
            void* out = call->words_out(into, {in.shape[0], chosen.shape(0), large(s)});
            const ExtractView extract{chosen.data(), static_cast<std::size_t>(chosen.shape(0))};
            const Progress report = call->progress(progress);
            return call->run([&] { s.bootstrap(in.data, in.batch(), table.view(), extract, out, report); });
        },
        py::arg("lwe"), py::arg("tables"), py::arg("table_index") = py::none(), py::arg("coefficients") = py::none(),
        py::arg("progress") = py::none(), py::arg("out") = py::none(),
        "words[B, kN+r], tables words[T, nu N] -> words[B, J, kN+r]: the four stages in order; written to `out` when given.");
}

void bind_sums(py::class_<Backend>& backend) {
    backend.def(
        "linear",
        [](Backend& s, const py::object& weights, const py::object& lwe, const py::object& into) {
            const auto matrix = checked_array<std::int32_t>(weights, "weights", {kAny, kAny});
            const auto call = arrays_of(s);
            const auto in = call->words(lwe, "lwe", {kAny, matrix.shape(1), large(s)});
            void* out = call->words_out(into, {in.shape[0], matrix.shape(0), large(s)});
            const std::size_t rows = matrix.shape(0), columns = matrix.shape(1);
            return call->run([&] { s.linear(matrix.data(), rows, columns, in.data, in.batch(), out); });
        },
        py::arg("weights"), py::arg("lwe"), py::arg("out") = py::none(),
        "int32[R, C] times words[S, C, kN+r] -> words[S, R, kN+r], exact modulo Q.");

    backend.def(
        "combine",
        [](Backend& s, const py::object& x, std::int64_t scale_x, const py::object& y, std::int64_t scale_y, std::uint64_t constant,
           const py::object& into) {
            const auto call = arrays_of(s);
            const auto first = call->words(x, "x", {kAny, large(s)});
            const void* second = y.is_none() ? nullptr : call->words(y, "y", {first.shape[0], large(s)}).data;
            void* out = call->words_out(into, {first.shape[0], large(s)});
            return call->run([&] { s.combine(first.data, scale_x, second, scale_y, constant, first.batch(), out); });
        },
        py::arg("x"), py::arg("scale_x"), py::arg("y") = py::none(), py::arg("scale_y") = 0, py::arg("constant") = 0,
        py::arg("out") = py::none(), "scale_x * x + scale_y * y + constant on the bodies, modulo Q.");
}

}  // namespace

void use_arrays(std::string_view backend, MakeArrayCall make) { other_arrays()[backend] = make; }

void bind_backend(py::module_& m) {
    py::class_<Backend> backend(m, "Backend", "The batched operations that every back end has (core/backend.hpp).");
    backend.def_property_readonly("name", [](const Backend& b) { return std::string(b.name()); })
        .def_property_readonly("params", &Backend::parameters);
    bind_bootstrap(backend);
    bind_sums(backend);
}

}  // namespace fhe_core
