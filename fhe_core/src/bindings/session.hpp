// What the sessions of all back ends share in Python: argument checks and output arrays around fhe_core::Backend, for back ends
// whose methods take host memory.
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

// A new array of words, or the caller's, which must have the shape, be C-contiguous and writeable.
inline pybind11::array output_words(const ParameterSet& params, const pybind11::object& into,
                                    const std::vector<std::int64_t>& shape) {
    namespace py = pybind11;
    if (into.is_none()) return new_words(params, shape);
    py::array out = params.limb_count() == 1 ? py::array(checked_array<std::uint32_t>(into, "out", shape))
                                             : py::array(checked_array<std::uint64_t>(into, "out", shape));
    if (!out.writeable()) throw ShapeError("out: expected a writeable array, got a read-only one; pass a copy");
    return out;
}

// Methods over numpy arrays of a class derived from Backend.
template <class Session>
void bind_host_operations(pybind11::class_<Session>& session) {
    namespace py = pybind11;
    const auto large = [](const Session& s) { return std::int64_t{s.parameters().large_dimension()} + 1; };
    const auto small = [](const Session& s) { return std::int64_t{s.parameters().lwe_dimension} + 1; };

    session.def(
        "keyswitch",
        [=](Session& s, const py::object& lwe) {
            const Words in = checked_words(s.parameters(), lwe, "lwe", {kAny, large(s)});
            py::array_t<std::uint32_t> out({in.shape(0), small(s)});
            const void* source = in.data();
            std::uint32_t* target = out.mutable_data();
            const std::size_t batch = in.shape(0);
            const py::gil_scoped_release release;
            s.keyswitch(source, batch, target);
            return out;
        },
        py::arg("lwe"), "words[B, kN+1] modulo Q -> uint32[B, n+1] modulo 2^w (specification, section 2).");

    session.def(
        "modulus_switch",
        [=](Session& s, const py::object& small_lwe) {
            const auto in = checked_array_below<std::uint32_t>(small_lwe, "small_lwe", {kAny, small(s)},
                                                               std::uint64_t{1} << s.parameters().keyswitch_modulus_log2);
            py::array_t<std::uint32_t> out({std::int64_t{in.shape(0)}, small(s)});
            const std::uint32_t* source = in.data();
            std::uint32_t* target = out.mutable_data();
            const std::size_t batch = in.shape(0);
            const py::gil_scoped_release release;
            s.modulus_switch(source, batch, target);
            return out;
        },
        py::arg("small_lwe"), "uint32[B, n+1] modulo 2^w -> uint32[B, n+1] in [0, 2N) (section 3).");

    session.def(
        "blind_rotate",
        [=](Session& s, const py::object& switched, const py::object& tables, const py::object& table_index,
            const py::object& progress) {
            const ParameterSet& p = s.parameters();
            const auto in = checked_array_below<std::uint32_t>(switched, "switched", {kAny, small(s)}, 2 * p.polynomial_size());
            const TableArguments table(p, tables, table_index, in.shape(0));
            py::array out = new_words(p, {in.shape(0), p.glwe_dimension() + 1, p.polynomial_size()});
            const TableView view = table.view();
            const std::uint32_t* source = in.data();
            void* target = out.mutable_data();
            const std::size_t batch = in.shape(0);
            const Progress report = checked_progress(progress);
            const py::gil_scoped_release release;
            s.blind_rotate(source, batch, view, target, report);
            return out;
        },
        py::arg("switched"), py::arg("tables"), py::arg("table_index") = py::none(), py::arg("progress") = py::none(),
        "uint32[B, n+1], tables words[T, N] -> GLWE words[B, k+1, N] (section 6).");

    session.def(
        "sample_extract",
        [=](Session& s, const py::object& glwe, const py::object& coefficients) {
            const ParameterSet& p = s.parameters();
            const Words in = checked_words(p, glwe, "glwe", {kAny, p.glwe_dimension() + 1, p.polynomial_size()});
            const auto chosen = checked_coefficients(p, coefficients);
            py::array out = new_words(p, {in.shape(0), chosen.shape(0), large(s)});
            const ExtractView view{chosen.data(), static_cast<std::size_t>(chosen.shape(0))};
            const void* source = in.data();
            void* target = out.mutable_data();
            const std::size_t batch = in.shape(0);
            const py::gil_scoped_release release;
            s.sample_extract(source, batch, view, target);
            return out;
        },
        py::arg("glwe"), py::arg("coefficients") = py::none(), "words[B, k+1, N] -> words[B, J, kN+1] (section 7).");

    session.def(
        "bootstrap",
        [=](Session& s, const py::object& lwe, const py::object& tables, const py::object& table_index,
            const py::object& coefficients, const py::object& progress, const py::object& into) {
            const ParameterSet& p = s.parameters();
            const Words in = checked_words(p, lwe, "lwe", {kAny, large(s)});
            const TableArguments table(p, tables, table_index, in.shape(0));
            const auto chosen = checked_coefficients(p, coefficients);
            py::array out = output_words(p, into, {in.shape(0), chosen.shape(0), large(s)});
            const TableView view = table.view();
            const ExtractView extract{chosen.data(), static_cast<std::size_t>(chosen.shape(0))};
            const void* source = in.data();
            void* target = out.mutable_data();
            const std::size_t batch = in.shape(0);
            const Progress report = checked_progress(progress);
            const py::gil_scoped_release release;
            s.bootstrap(source, batch, view, extract, target, report);
            return out;
        },
        py::arg("lwe"), py::arg("tables"), py::arg("table_index") = py::none(), py::arg("coefficients") = py::none(),
        py::arg("progress") = py::none(), py::arg("out") = py::none(),
        "words[B, kN+1], tables words[T, N] -> words[B, J, kN+1]: the four stages in order; written to `out` when given.");

    session.def(
        "linear",
        [=](Session& s, const py::object& weights, const py::object& lwe) {
            const auto matrix = checked_array<std::int32_t>(weights, "weights", {kAny, kAny});
            const Words in = checked_words(s.parameters(), lwe, "lwe", {kAny, matrix.shape(1), large(s)});
            py::array out = new_words(s.parameters(), {in.shape(0), matrix.shape(0), large(s)});
            const std::int32_t* rows = matrix.data();
            const std::size_t row_count = matrix.shape(0), column_count = matrix.shape(1), samples = in.shape(0);
            const void* source = in.data();
            void* target = out.mutable_data();
            const py::gil_scoped_release release;
            s.linear(rows, row_count, column_count, source, samples, target);
            return out;
        },
        py::arg("weights"), py::arg("lwe"), "int32[R, C] times words[S, C, kN+1] -> words[S, R, kN+1], exact modulo Q.");

    session.def(
        "combine",
        [=](Session& s, const py::object& x, std::int64_t scale_x, const py::object& y, std::int64_t scale_y,
            std::uint64_t constant) {
            const Words first = checked_words(s.parameters(), x, "x", {kAny, large(s)});
            const void* second = nullptr;
            Words other;
            if (!y.is_none()) {
                other = checked_words(s.parameters(), y, "y", {first.shape(0), large(s)});
                second = other.data();
            }
            py::array out = new_words(s.parameters(), {first.shape(0), large(s)});
            const void* source = first.data();
            void* target = out.mutable_data();
            const std::size_t batch = first.shape(0);
            const py::gil_scoped_release release;
            s.combine(source, scale_x, second, scale_y, constant, batch, target);
            return out;
        },
        py::arg("x"), py::arg("scale_x"), py::arg("y") = py::none(), py::arg("scale_y") = 0, py::arg("constant") = 0,
        "scale_x * x + scale_y * y + constant on the bodies, modulo Q.");
}

}  // namespace fhe_core
