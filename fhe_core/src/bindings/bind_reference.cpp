// _engine.reference: the slow specification, ciphertext by ciphertext.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <algorithm>
#include <vector>

#include "bindings/arrays.hpp"
#include "bindings/bindings.hpp"
#include "reference/reference.hpp"

namespace py = pybind11;

namespace fhe_core {
namespace {

using reference::SmallWordsView;
using reference::WordsView;

// Words of either width as the 64-bit words of the reference.
reference::Words wide(Limbs limbs, const Words& words) {
    return with_word(limbs, [&]<class Word>(Word) {
        const Word* data = static_cast<const Word*>(words.data());
        return reference::Words(data, data + words.array.size());
    });
}

// and back, as an array of this shape.
py::array narrow(Limbs limbs, const reference::Words& words, const std::vector<std::int64_t>& shape) {
    py::array out = new_words(limbs, shape);
    with_word(limbs, [&]<class Word>(Word) {
        std::transform(words.begin(), words.end(), static_cast<Word*>(out.mutable_data()),
                       [](std::uint64_t x) { return static_cast<Word>(x); });
    });
    return out;
}

py::array small_array(const reference::SmallWords& words, const std::vector<std::int64_t>& shape) {
    py::array_t<std::uint32_t> out(shape);
    std::copy(words.begin(), words.end(), out.mutable_data());
    return out;
}

SmallWordsView view(const py::array_t<std::uint32_t>& array) { return {array.data(), static_cast<std::size_t>(array.size())}; }

// Applies f to each of the `batch` equal parts of `input`, without the GIL, and joins the results.
template <class Out, class View, class F>
std::vector<Out> for_each_part(View input, std::size_t batch, F f) {
    const py::gil_scoped_release release;
    std::vector<Out> joined;
    const std::size_t part = input.size() / batch;
    for (std::size_t b = 0; b < batch; ++b) {
        const auto result = f(input.subspan(b * part, part), b);
        joined.insert(joined.end(), result.begin(), result.end());
    }
    return joined;
}

py::array polynomial_multiply(const ParameterSet& params, const py::object& a, const py::object& b) {
    const std::int64_t n = params.polynomial_size();
    const auto left = wide(params.limbs(), checked_words(params, a, "a", {n})),
               right = wide(params.limbs(), checked_words(params, b, "b", {n}));
    return narrow(params.limbs(), reference::polynomial_multiply(params, left, right), {n});
}

py::array expand_keyswitch_key(const ParameterSet& params, const py::object& seed, const py::object& bodies) {
    const std::int64_t levels = params.keyswitch_gadget.level_count;
    const auto checked = checked_array_below<std::uint32_t>(bodies, "bodies", keyswitch_bodies_shape(params),
                                                            std::uint64_t{1} << params.keyswitch_modulus_log2);
    return small_array(reference::expand_keyswitch_key(params, checked_seed(seed), view(checked)),
                       {params.large_dimension(), levels, params.small_words()});
}

std::vector<std::int64_t> bootstrap_key_shape(const ParameterSet& params) {
    return {params.key_step_count(), params.keys_per_step(), params.row_count(), params.accumulator_components(),
            params.polynomial_size()};
}

py::array expand_bootstrap_key(const ParameterSet& params, const py::object& seed, const py::object& bodies) {
    const Limbs limbs = params.key_limbs();
    const Words checked = checked_words(limbs, bodies, "bodies", bootstrap_bodies_shape(params));
    return narrow(limbs, reference::expand_bootstrap_key(params, checked_seed(seed), wide(limbs, checked)),
                  bootstrap_key_shape(params));
}

py::array keyswitch(const ParameterSet& params, const py::object& key_value, const py::object& lwe_value) {
    const std::uint64_t small_modulus = std::uint64_t{1} << params.keyswitch_modulus_log2;
    const auto key = checked_array_below<std::uint32_t>(
        key_value, "keyswitch_key", {params.large_dimension(), params.keyswitch_gadget.level_count, params.small_words()},
        small_modulus);
    const Words lwe = checked_words(params, lwe_value, "lwe", {kAny, params.large_words()});
    check_not_empty(lwe.array, "lwe");
    const auto result =
        for_each_part<std::uint32_t>(WordsView(wide(params.limbs(), lwe)), lwe.shape(0),
                                     [&](WordsView one, std::size_t) { return reference::keyswitch(params, view(key), one); });
    return small_array(result, {lwe.shape(0), params.small_words()});
}

py::array modulus_switch(const ParameterSet& params, const py::object& small_value) {
    const auto small = checked_array_below<std::uint32_t>(small_value, "small_lwe", {kAny, params.small_words()},
                                                          std::uint64_t{1} << params.keyswitch_modulus_log2);
    check_not_empty(small, "small_lwe");
    const auto result = for_each_part<std::uint32_t>(
        view(small), small.shape(0), [&](SmallWordsView one, std::size_t) { return reference::modulus_switch(params, one); });
    return small_array(result, {small.shape(0), params.small_words()});
}

py::array blind_rotate(const ParameterSet& params, const py::object& key_value, const py::object& switched_value,
                       const py::object& tables_value, const py::object& index_value) {
    const std::int64_t entries = params.table_size();
    const std::vector<std::int64_t> key_shape = bootstrap_key_shape(params);
    const Words key = checked_words(params.key_limbs(), key_value, "bootstrap_key",
                                    {key_shape[0], key_shape[1], key_shape[2], key_shape[3], key_shape[4]});
    const auto switched = checked_array_below<std::uint32_t>(switched_value, "switched", {kAny, params.small_words()}, 2 * entries);
    check_not_empty(switched, "switched");
    const Words tables = checked_words(params, tables_value, "tables", {kAny, entries});
    check_not_empty(tables.array, "tables");
    const auto index = checked_array_below<std::uint32_t>(index_value, "table_index", {switched.shape(0)}, tables.shape(0));
    const reference::Words key_words = wide(params.key_limbs(), key), table_words = wide(params.limbs(), tables);
    const auto result = for_each_part<std::uint64_t>(view(switched), switched.shape(0), [&](SmallWordsView one, std::size_t b) {
        return reference::blind_rotate(params, key_words, one, WordsView(table_words).subspan(index.data()[b] * entries, entries));
    });
    return narrow(params.limbs(), result, rotated_shape(params, switched.shape(0)));
}

py::array_t<double> rounded_update(const ParameterSet& params, const py::object& key_value, const py::object& exponents_value,
                                   const py::object& accumulator_value) {
    const std::vector<std::int64_t> shape = bootstrap_key_shape(params);
    const Words key = checked_words(params.key_limbs(), key_value, "step_key", {shape[1], shape[2], shape[3], shape[4]});
    const auto exponents =
        checked_array_below<std::uint32_t>(exponents_value, "exponents", {shape[1]}, 2 * std::uint64_t(params.table_size()));
    const Words accumulator = checked_words(params, accumulator_value, "accumulator", {shape[3], shape[4]});
    const std::vector<double> turns =
        reference::rounded_update(params, wide(params.key_limbs(), key), view(exponents), wide(params.limbs(), accumulator));
    py::array_t<double> out(std::vector<std::int64_t>{shape[3], shape[4]});
    std::copy(turns.begin(), turns.end(), out.mutable_data());
    return out;
}

py::array sample_extract(const ParameterSet& params, const py::object& glwe_value, const py::object& coefficients_value) {
    const Words glwe = checked_words(params, glwe_value, "glwe", {kAny, params.component_count(), params.polynomial_size()});
    check_not_empty(glwe.array, "glwe");
    const auto coefficients =
        checked_array_below<std::uint32_t>(coefficients_value, "coefficients", {kAny}, params.polynomial_size());
    check_not_empty(coefficients, "coefficients");
    const auto result =
        for_each_part<std::uint64_t>(WordsView(wide(params.limbs(), glwe)), glwe.shape(0), [&](WordsView one, std::size_t) {
            reference::Words extracted;
            for (const std::uint32_t coefficient : view(coefficients)) {
                const reference::Words lwe = reference::sample_extract(params, one, coefficient);
                extracted.insert(extracted.end(), lwe.begin(), lwe.end());
            }
            return extracted;
        });
    return narrow(params.limbs(), result, {glwe.shape(0), coefficients.shape(0), params.large_words()});
}

py::array bootstrap(const ParameterSet& params, const py::object& keyswitch_value, const py::object& bootstrap_value,
                    const py::object& lwe_value, const py::object& table_value, std::size_t coefficient) {
    const std::vector<std::int64_t> key_shape = bootstrap_key_shape(params);
    const auto keyswitch_key = checked_array_below<std::uint32_t>(
        keyswitch_value, "keyswitch_key", {params.large_dimension(), params.keyswitch_gadget.level_count, params.small_words()},
        std::uint64_t{1} << params.keyswitch_modulus_log2);
    const Words bootstrap_key = checked_words(params.key_limbs(), bootstrap_value, "bootstrap_key",
                                              {key_shape[0], key_shape[1], key_shape[2], key_shape[3], key_shape[4]});
    const Words lwe = checked_words(params, lwe_value, "lwe", {kAny, params.large_words()});
    check_not_empty(lwe.array, "lwe");
    const Words table = checked_words(params, table_value, "table", {params.table_size()});
    if (coefficient >= static_cast<std::size_t>(params.table_size()))
        throw ShapeError("coefficient: expected a number below " + std::to_string(params.table_size()) + ", got " +
                         std::to_string(coefficient));
    const reference::Words key_words = wide(params.key_limbs(), bootstrap_key), table_words = wide(params.limbs(), table);
    const auto result =
        for_each_part<std::uint64_t>(WordsView(wide(params.limbs(), lwe)), lwe.shape(0), [&](WordsView one, std::size_t) {
            return reference::bootstrap(params, {view(keyswitch_key), key_words}, one, table_words, coefficient);
        });
    return narrow(params.limbs(), result, {lwe.shape(0), params.large_words()});
}

}  // namespace

void bind_reference(py::module_& parent) {
    py::module_ m = parent.def_submodule(
        "reference", "docs/reference/specification.md as slow code; what the fast back ends are compared with.");
    const auto params = py::arg("params");
    m.def("polynomial_multiply", &polynomial_multiply, params, py::arg("a"), py::arg("b"),
          "Schoolbook product modulo X^N + 1 and Q.");
    m.def("expand_keyswitch_key", &expand_keyswitch_key, params, py::arg("seed"), py::arg("bodies"),
          "-> uint32 [large_dimension, level_count, n + r].");
    m.def("expand_bootstrap_key", &expand_bootstrap_key, params, py::arg("seed"), py::arg("bodies"),
          "-> words [step, key, row, k + r, N].");
    m.def("keyswitch", &keyswitch, params, py::arg("keyswitch_key"), py::arg("lwe"),
          "words [B, large_dimension + r] -> uint32 [B, n + r].");
    m.def("modulus_switch", &modulus_switch, params, py::arg("small_lwe"), "uint32 [B, n + r] modulo 2^w -> modulo 2 nu N.");
    m.def("blind_rotate", &blind_rotate, params, py::arg("bootstrap_key"), py::arg("switched"), py::arg("tables"),
          py::arg("table_index"),
          "uint32 [B, n + r], words [T, nu N], uint32 [B] -> words [B, k + r, N], nu > 1: [B, nu, k + r, N].");
    m.def("rounded_update", &rounded_update, params, py::arg("step_key"), py::arg("exponents"), py::arg("accumulator"),
          "words [key, row, k + r, N], uint32 [key], words [k + r, N] -> double [k + r, N], turns of the torus; sets of rounded "
          "products.");
    m.def("sample_extract", &sample_extract, params, py::arg("glwe"), py::arg("coefficients"),
          "words [B, k + r, N], uint32 [J] -> words [B, J, large_dimension + r].");
    m.def("bootstrap", &bootstrap, params, py::arg("keyswitch_key"), py::arg("bootstrap_key"), py::arg("lwe"), py::arg("table"),
          py::arg("coefficient") = 0, "words [B, large_dimension + r], table [nu N] -> words [B, large_dimension + r].");
}

}  // namespace fhe_core
