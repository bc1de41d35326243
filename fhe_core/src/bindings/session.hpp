// What the sessions of all back ends share in Python: argument checks and output arrays around fhe_core::Backend.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <limits>
#include <string>
#include <vector>

#include "bindings/arrays.hpp"
#include "fhe_core/backend.hpp"
#include "fhe_core/evaluation_keys.hpp"

namespace fhe_core {

// Validated arguments of an evaluation key in seeded form; keeps the arrays alive.
class SeededKeyArguments {
   public:
    SeededKeyArguments(const ParameterSet& params, const pybind11::object& seed, const pybind11::object& bootstrap_bodies,
                       const pybind11::object& keyswitch_bodies)
        : params_(params),
          seed_(checked_seed(seed)),
          bootstrap_(checked_words(params, bootstrap_bodies, "bootstrap_bodies",
                                   {params.step_count(), params.keys_per_step(), params.row_count(), params.polynomial_size()})),
          keyswitch_(checked_array_below<std::uint32_t>(keyswitch_bodies, "keyswitch_bodies",
                                                        {params.large_dimension(), params.keyswitch_gadget.level_count},
                                                        std::uint64_t{1} << params.keyswitch_modulus_log2)) {}

    SeededEvaluationKeysView view() const { return {&params_, seed_, bootstrap_.data(), keyswitch_.data()}; }

   private:
    const ParameterSet& params_;
    Seed seed_;
    Words bootstrap_;
    pybind11::array_t<std::uint32_t> keyswitch_;
};

// Validated tables [T, N] and the index of each ciphertext's table.
class TableArguments {
   public:
    TableArguments(const ParameterSet& params, const pybind11::object& tables, const pybind11::object& index, std::int64_t batch)
        : tables_(checked_words(params, tables, "tables", {kAny, params.polynomial_size()})) {
        const auto count = static_cast<std::uint64_t>(tables_.shape(0));
        if (count == 0) throw ShapeError("tables: expected at least one table of shape [N], got none");
        if (index.is_none()) {
            if (count != 1) {
                throw ShapeError("table_index: " + std::to_string(count) +
                                 " tables need an index per ciphertext (uint32[batch]), got None");
            }
        } else {
            index_ = checked_array_below<std::uint32_t>(index, "table_index", {batch}, count);
        }
    }

    TableView view() const {
        return {tables_.data(), static_cast<std::size_t>(tables_.shape(0)), index_.size() == 0 ? nullptr : index_.data()};
    }

   private:
    Words tables_;
    pybind11::array_t<std::uint32_t> index_{0};
};

inline pybind11::array_t<std::uint32_t> checked_coefficients(const ParameterSet& params, const pybind11::object& coefficients) {
    if (coefficients.is_none()) {
        pybind11::array_t<std::uint32_t> first(1);
        first.mutable_data()[0] = 0;
        return first;
    }
    auto array = checked_array_below<std::uint32_t>(coefficients, "coefficients", {kAny}, params.polynomial_size());
    check_not_empty(array, "coefficients");
    return array;
}

// The caller's array for a result, which must have the shape, be C-contiguous and writeable.
template <class T>
pybind11::array checked_output(const pybind11::object& into, const std::vector<std::int64_t>& shape) {
    pybind11::array out = checked_array<T>(into, "out", shape);
    if (!out.writeable()) throw ShapeError("out: expected a writeable array, got a read-only one; pass a copy");
    return out;
}

// A new array of words, or the caller's.
inline pybind11::array output_words(const ParameterSet& params, const pybind11::object& into,
                                    const std::vector<std::int64_t>& shape) {
    if (into.is_none()) return new_words(params, shape);
    return params.limb_count() == 1 ? checked_output<std::uint32_t>(into, shape) : checked_output<std::uint64_t>(into, shape);
}

// The arrays of one call of a session over numpy arrays. A back end with memory of its own has a class like it (CudaCall).
class HostCall {
   public:
    using Shape = std::vector<std::int64_t>;
    struct Input {
        const void* data;
        Shape shape;
        std::size_t batch() const { return static_cast<std::size_t>(shape[0]); }
    };

    explicit HostCall(const Backend& session) : params_(session.parameters()) {}

    Input words(const pybind11::object& value, const char* name, std::initializer_list<std::int64_t> shape) {
        return kept(checked_words(params_, value, name, shape).array);
    }
    Input small(const pybind11::object& value, const char* name, std::initializer_list<std::int64_t> shape, std::uint64_t bound) {
        return kept(checked_array_below<std::uint32_t>(value, name, shape, bound));
    }
    void* words_out(const pybind11::object& into, const Shape& shape) {
        out_ = output_words(params_, into, shape);
        return out_.mutable_data();
    }
    std::uint32_t* small_out(const pybind11::object& into, const Shape& shape) {
        out_ =
            into.is_none() ? pybind11::array(pybind11::array_t<std::uint32_t>(shape)) : checked_output<std::uint32_t>(into, shape);
        return static_cast<std::uint32_t*>(out_.mutable_data());
    }
    Progress progress(const pybind11::object& callback) const { return checked_progress(callback); }
    template <class F>
    pybind11::object run(F&& work) {
        {
            const pybind11::gil_scoped_release release;
            work();
        }
        return out_;
    }

   private:
    Input kept(pybind11::array array) {
        kept_.push_back(array);
        return {array.data(), Shape(array.shape(), array.shape() + array.ndim())};
    }

    const ParameterSet& params_;
    std::vector<pybind11::array> kept_;
    pybind11::array out_;
};

// The batched operations of a class derived from Backend; Call owns the arrays of one call.
template <class Call, class Session>
void bind_operations(pybind11::class_<Session>& session) {
    namespace py = pybind11;
    const auto large = [](const Session& s) { return std::int64_t{s.parameters().large_dimension()} + 1; };
    const auto small = [](const Session& s) { return std::int64_t{s.parameters().lwe_dimension} + 1; };

    session.def(
        "keyswitch",
        [=](Session& s, const py::object& lwe, const py::object& into) {
            Call call(s);
            const auto in = call.words(lwe, "lwe", {kAny, large(s)});
            std::uint32_t* out = call.small_out(into, {in.shape[0], small(s)});
            return call.run([&] { s.keyswitch(in.data, in.batch(), out); });
        },
        py::arg("lwe"), py::arg("out") = py::none(),
        "words[B, kN+1] modulo Q -> uint32[B, n+1] modulo 2^w (specification, section 2).");

    session.def(
        "modulus_switch",
        [=](Session& s, const py::object& small_lwe, const py::object& into) {
            Call call(s);
            const auto in =
                call.small(small_lwe, "small_lwe", {kAny, small(s)}, std::uint64_t{1} << s.parameters().keyswitch_modulus_log2);
            std::uint32_t* out = call.small_out(into, {in.shape[0], small(s)});
            return call.run([&] { s.modulus_switch(static_cast<const std::uint32_t*>(in.data), in.batch(), out); });
        },
        py::arg("small_lwe"), py::arg("out") = py::none(), "uint32[B, n+1] modulo 2^w -> uint32[B, n+1] in [0, 2N) (section 3).");

    session.def(
        "blind_rotate",
        [=](Session& s, const py::object& switched, const py::object& tables, const py::object& table_index,
            const py::object& progress, const py::object& into) {
            const ParameterSet& p = s.parameters();
            Call call(s);
            const auto in = call.small(switched, "switched", {kAny, small(s)}, 2 * p.polynomial_size());
            const TableArguments table(p, tables, table_index, in.shape[0]);
            void* out = call.words_out(into, {in.shape[0], p.glwe_dimension() + 1, p.polynomial_size()});
            const Progress report = call.progress(progress);
            return call.run(
                [&] { s.blind_rotate(static_cast<const std::uint32_t*>(in.data), in.batch(), table.view(), out, report); });
        },
        py::arg("switched"), py::arg("tables"), py::arg("table_index") = py::none(), py::arg("progress") = py::none(),
        py::arg("out") = py::none(), "uint32[B, n+1], tables words[T, N] -> GLWE words[B, k+1, N] (section 6).");

    session.def(
        "sample_extract",
        [=](Session& s, const py::object& glwe, const py::object& coefficients, const py::object& into) {
            const ParameterSet& p = s.parameters();
            Call call(s);
            const auto in = call.words(glwe, "glwe", {kAny, p.glwe_dimension() + 1, p.polynomial_size()});
            const auto chosen = checked_coefficients(p, coefficients);
            void* out = call.words_out(into, {in.shape[0], chosen.shape(0), large(s)});
            const ExtractView view{chosen.data(), static_cast<std::size_t>(chosen.shape(0))};
            return call.run([&] { s.sample_extract(in.data, in.batch(), view, out); });
        },
        py::arg("glwe"), py::arg("coefficients") = py::none(), py::arg("out") = py::none(),
        "words[B, k+1, N] -> words[B, J, kN+1] (section 7).");

    session.def(
        "bootstrap",
        [=](Session& s, const py::object& lwe, const py::object& tables, const py::object& table_index,
            const py::object& coefficients, const py::object& progress, const py::object& into) {
            const ParameterSet& p = s.parameters();
            Call call(s);
            const auto in = call.words(lwe, "lwe", {kAny, large(s)});
            const TableArguments table(p, tables, table_index, in.shape[0]);
            const auto chosen = checked_coefficients(p, coefficients);
            void* out = call.words_out(into, {in.shape[0], chosen.shape(0), large(s)});
            const ExtractView extract{chosen.data(), static_cast<std::size_t>(chosen.shape(0))};
            const Progress report = call.progress(progress);
            return call.run([&] { s.bootstrap(in.data, in.batch(), table.view(), extract, out, report); });
        },
        py::arg("lwe"), py::arg("tables"), py::arg("table_index") = py::none(), py::arg("coefficients") = py::none(),
        py::arg("progress") = py::none(), py::arg("out") = py::none(),
        "words[B, kN+1], tables words[T, N] -> words[B, J, kN+1]: the four stages in order; written to `out` when given.");

    session.def(
        "linear",
        [=](Session& s, const py::object& weights, const py::object& lwe, const py::object& into) {
            const auto matrix = checked_array<std::int32_t>(weights, "weights", {kAny, kAny});
            Call call(s);
            const auto in = call.words(lwe, "lwe", {kAny, matrix.shape(1), large(s)});
            void* out = call.words_out(into, {in.shape[0], matrix.shape(0), large(s)});
            const std::size_t rows = matrix.shape(0), columns = matrix.shape(1);
            return call.run([&] { s.linear(matrix.data(), rows, columns, in.data, in.batch(), out); });
        },
        py::arg("weights"), py::arg("lwe"), py::arg("out") = py::none(),
        "int32[R, C] times words[S, C, kN+1] -> words[S, R, kN+1], exact modulo Q.");

    session.def(
        "combine",
        [=](Session& s, const py::object& x, std::int64_t scale_x, const py::object& y, std::int64_t scale_y,
            std::uint64_t constant, const py::object& into) {
            Call call(s);
            const auto first = call.words(x, "x", {kAny, large(s)});
            const void* second = y.is_none() ? nullptr : call.words(y, "y", {first.shape[0], large(s)}).data;
            void* out = call.words_out(into, {first.shape[0], large(s)});
            return call.run([&] { s.combine(first.data, scale_x, second, scale_y, constant, first.batch(), out); });
        },
        py::arg("x"), py::arg("scale_x"), py::arg("y") = py::none(), py::arg("scale_y") = 0, py::arg("constant") = 0,
        py::arg("out") = py::none(), "scale_x * x + scale_y * y + constant on the bodies, modulo Q.");
}

}  // namespace fhe_core
