// What the sessions of all back ends share in Python: argument checks and arrays around fhe_core::Backend.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "bindings/arrays.hpp"
#include "core/backend.hpp"
#include "core/evaluation_keys.hpp"

namespace fhe_core {

// Validated arguments of an evaluation key in seeded form; keeps the arrays alive.
class SeededKeyArguments {
   public:
    SeededKeyArguments(const ParameterSet& params, const pybind11::object& seed, const pybind11::object& bootstrap_bodies,
                       const pybind11::object& keyswitch_bodies)
        : params_(params),
          seed_(checked_seed(seed)),
          bootstrap_(checked_words(params.key_limbs(), bootstrap_bodies, "bootstrap_bodies", bootstrap_bodies_shape(params))),
          keyswitch_(checked_array_below<std::uint32_t>(keyswitch_bodies, "keyswitch_bodies", keyswitch_bodies_shape(params),
                                                        std::uint64_t{1} << params.keyswitch_modulus_log2)) {}

    SeededEvaluationKeysView view() const { return {&params_, seed_, bootstrap_.data(), keyswitch_.data()}; }

   private:
    const ParameterSet& params_;
    Seed seed_;
    Words bootstrap_;
    pybind11::array_t<std::uint32_t> keyswitch_;
};

// Validated tables [T, nu N] and the index of each ciphertext's table.
class TableArguments {
   public:
    TableArguments(const ParameterSet& params, const pybind11::object& tables, const pybind11::object& index, std::int64_t batch)
        : tables_(checked_words(params, tables, "tables", {kAny, params.table_size()})) {
        const auto count = static_cast<std::uint64_t>(tables_.shape(0));
        if (count == 0)
            throw ShapeError("tables: expected at least one table of shape [" + std::to_string(params.table_size()) +
                             "], got none");
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

// `size`: of the polynomial, or of the table.
inline pybind11::array_t<std::uint32_t> checked_coefficients(const pybind11::object& coefficients, int size) {
    if (coefficients.is_none()) {
        pybind11::array_t<std::uint32_t> first(1);
        first.mutable_data()[0] = 0;
        return first;
    }
    auto array = checked_array_below<std::uint32_t>(coefficients, "coefficients", {kAny}, size);
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

// The arrays of one call of a session: what comes in, what goes out, and where they lie.
class ArrayCall {
   public:
    using Shape = std::vector<std::int64_t>;
    struct Input {
        const void* data;
        Shape shape;
        std::size_t batch() const { return static_cast<std::size_t>(shape[0]); }
    };

    virtual ~ArrayCall() = default;
    virtual Input words(const pybind11::object& value, const char* name, std::initializer_list<std::int64_t> shape) = 0;
    virtual Input small(const pybind11::object& value, const char* name, std::initializer_list<std::int64_t> shape,
                        std::uint64_t bound) = 0;
    virtual void* words_out(const pybind11::object& into, const Shape& shape) = 0;
    virtual std::uint32_t* small_out(const pybind11::object& into, const Shape& shape) = 0;
    virtual Progress progress(const pybind11::object& callback) const = 0;
    // The output, when `work` is done or enqueued; without the GIL.
    virtual pybind11::object run(const std::function<void()>& work) = 0;
};

// Whose arrays are not numpy's alone says so, by Backend::name.
using MakeArrayCall = std::unique_ptr<ArrayCall> (*)(Backend& backend);
void use_arrays(std::string_view backend, MakeArrayCall make);

}  // namespace fhe_core
