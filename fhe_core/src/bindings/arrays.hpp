// Checked views of Python arguments: dtype, C order, shape and range are verified here, so that the engine may assert.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/backend.hpp"
#include "core/chacha20.hpp"
#include "core/errors.hpp"
#include "core/parameters.hpp"

namespace fhe_core {

// Any extent of an array argument; a dimension given as kAny is read from the array.
inline constexpr std::int64_t kAny = -1;

inline std::string shape_text(std::span<const std::int64_t> shape) {
    std::string text = "[";
    for (std::size_t i = 0; i < shape.size(); ++i)
        text += (i ? ", " : "") + (shape[i] == kAny ? std::string("*") : std::to_string(shape[i]));
    return text + "]";
}

// The shape of something that every body of a ciphertext has one of: with several lanes they are an axis after `before`.
inline std::vector<std::int64_t> lane_shape(const ParameterSet& params, std::vector<std::int64_t> before,
                                            std::initializer_list<std::int64_t> after = {}) {
    if (params.lane_count() > 1) before.push_back(params.lane_count());
    before.insert(before.end(), after);
    return before;
}

// What of a row its seed does not give: a body, or with several lanes or without masks to expand an axis of polynomials.
inline std::vector<std::int64_t> bootstrap_bodies_shape(const ParameterSet& params) {
    std::vector<std::int64_t> shape{params.key_step_count(), params.keys_per_step(), params.row_count(), params.polynomial_size()};
    if (params.row_bodies() > 1) shape.insert(shape.end() - 1, params.row_bodies());
    return shape;
}
inline std::vector<std::int64_t> keyswitch_bodies_shape(const ParameterSet& params) {
    return lane_shape(params, {params.large_dimension(), params.keyswitch_gadget.level_count});
}

// What a blind rotation gives: [B, k + r, N], and where several accumulators are one table [B, nu, k + r, N].
inline std::vector<std::int64_t> rotated_shape(const ParameterSet& params, std::int64_t batch) {
    std::vector<std::int64_t> shape{batch, params.component_count(), params.polynomial_size()};
    if (params.extension_factor() > 1) shape.insert(shape.begin() + 1, params.extension_factor());
    return shape;
}

inline std::string type_name(const pybind11::handle& value) {
    return pybind11::str(pybind11::type::handle_of(value).attr("__name__"));
}

// A C-contiguous array of exactly this dtype and shape; never a silent copy or cast.
template <class T>
pybind11::array_t<T> checked_array(const pybind11::object& value, const char* name, std::span<const std::int64_t> shape) {
    namespace py = pybind11;
    const std::string wanted = std::string(name) + ": expected a C-contiguous array of " +
                               std::string(py::str(py::dtype::of<T>())) + " and shape " + shape_text(shape);
    if (!py::isinstance<py::array>(value)) throw ShapeError(wanted + ", got " + type_name(value) + "; pass a numpy array");
    const auto array = py::reinterpret_borrow<py::array>(value);
    if (!array.dtype().is(py::dtype::of<T>()) && !array.dtype().equal(py::dtype::of<T>()))
        throw ShapeError(wanted + ", got dtype " + std::string(py::str(array.dtype())) + "; convert it with .astype()");
    const std::vector<std::int64_t> found(array.shape(), array.shape() + array.ndim());
    bool same = found.size() == shape.size();
    for (std::size_t i = 0; same && i < shape.size(); ++i) same = shape[i] == kAny || shape[i] == found[i];
    if (!same) throw ShapeError(wanted + ", got shape " + shape_text(found));
    if (!(array.flags() & py::array::c_style))
        throw ShapeError(wanted + ", got an array that is not C-contiguous; use numpy.ascontiguousarray");
    return py::reinterpret_borrow<py::array_t<T>>(value);
}

template <class T>
pybind11::array_t<T> checked_array(const pybind11::object& value, const char* name, std::initializer_list<std::int64_t> shape) {
    return checked_array<T>(value, name, std::span<const std::int64_t>(shape.begin(), shape.size()));
}

// Every entry below `bound`.
template <class T>
void check_below(const T* values, std::size_t count, std::uint64_t bound, const char* name) {
    T largest = 0;
    {
        constexpr std::size_t kWorthAnotherThread = 1 << 14;
        std::optional<pybind11::gil_scoped_release> release;
        if (count > kWorthAnotherThread) release.emplace();
        for (std::size_t i = 0; i < count; ++i) largest = values[i] > largest ? values[i] : largest;
    }
    if (count != 0 && largest >= bound)
        throw ShapeError(std::string(name) + ": expected every value in [0, " + std::to_string(bound) +
                         "), found a value outside; reduce the input, or check that it belongs to this parameter set");
}

template <class T>
pybind11::array_t<T> checked_array_below(const pybind11::object& value, const char* name, const std::vector<std::int64_t>& shape,
                                         std::uint64_t bound) {
    auto array = checked_array<T>(value, name, shape);
    check_below(array.data(), static_cast<std::size_t>(array.size()), bound, name);
    return array;
}

inline void check_thread_count(int threads) {
    constexpr int kMostThreads = 1024;
    if (threads < 1 || threads > kMostThreads)
        throw ParameterError("threads: expected 1 to " + std::to_string(kMostThreads) + ", got " + std::to_string(threads));
}

// A batch has at least one item.
inline void check_not_empty(const pybind11::array& array, const char* name) {
    if (array.size() == 0)
        throw ShapeError(std::string(name) +
                         ": expected a batch of at least one item, got an empty array; skip the call for empty batches");
}

// Words modulo one limb (uint32) or two (uint64): of a parameter set's ciphertexts, or of its bootstrap key. The pointer stays
// valid while the array lives.
struct Words {
    pybind11::array array;
    const void* data() const { return array.data(); }
    std::int64_t shape(int i) const { return array.shape(i); }
};

inline Words checked_words(Limbs limbs, const pybind11::object& value, const char* name, const std::vector<std::int64_t>& shape) {
    if (limbs.count == 1) return {checked_array_below<std::uint32_t>(value, name, shape, limbs.modulus())};
    return {checked_array_below<std::uint64_t>(value, name, shape, limbs.modulus())};
}
inline Words checked_words(const ParameterSet& params, const pybind11::object& value, const char* name,
                           const std::vector<std::int64_t>& shape) {
    return checked_words(params.limbs(), value, name, shape);
}

// An uninitialised array of words.
inline pybind11::array new_words(Limbs limbs, const std::vector<std::int64_t>& shape) {
    if (limbs.count == 1) return pybind11::array_t<std::uint32_t>(shape);
    return pybind11::array_t<std::uint64_t>(shape);
}
inline pybind11::array new_words(const ParameterSet& params, const std::vector<std::int64_t>& shape) {
    return new_words(params.limbs(), shape);
}

// Calls f with a value of the word type.
template <class F>
decltype(auto) with_word(Limbs limbs, F&& f) {
    if (limbs.count == 1) return f(std::uint32_t{});
    return f(std::uint64_t{});
}
template <class F>
decltype(auto) with_word(const ParameterSet& params, F&& f) {
    return with_word(params.limbs(), static_cast<F&&>(f));
}

inline void checked_seed_into(Seed& seed, const pybind11::object& value, const char* name) {
    namespace py = pybind11;
    if (!py::isinstance<py::bytes>(value)) throw ShapeError(std::string(name) + ": expected 32 bytes, got " + type_name(value));
    const std::string_view bytes = py::reinterpret_borrow<py::bytes>(value);
    if (bytes.size() != seed.size())
        throw ShapeError(std::string(name) + ": expected 32 bytes, got " + std::to_string(bytes.size()));
    std::memcpy(seed.data(), bytes.data(), seed.size());
}

inline Seed checked_seed(const pybind11::object& value, const char* name = "seed") {
    Seed seed;
    checked_seed_into(seed, value, name);
    return seed;
}

// Fixed entropy, which tests alone may give: None is none.
inline std::optional<Seed> fixed_entropy(const pybind11::object& value) {
    if (value.is_none()) return std::nullopt;
    const char* allowed = std::getenv("CLOAKWORK_ALLOW_TOY");
    if (allowed == nullptr || std::string_view(allowed) != "1")
        throw ParameterError(
            "entropy: expected None, got a fixed value, which makes every key and noise predictable; leave it out, or set "
            "CLOAKWORK_ALLOW_TOY=1 in tests");
    return checked_seed(value, "entropy");
}

inline pybind11::bytes seed_bytes(const Seed& seed) { return {reinterpret_cast<const char*>(seed.data()), seed.size()}; }

// Wraps progress(done, total) -> bool | None (None counts as "go on"). To be called without the GIL, from the thread that entered
// the engine; also notices Ctrl-C. Copies may be dropped without the GIL.
inline Progress checked_progress(const pybind11::object& callback) {
    namespace py = pybind11;
    if (!callback.is_none() && !PyCallable_Check(callback.ptr()))
        throw ShapeError("progress: expected a function of (done, total) or None, got " + type_name(callback));
    const std::shared_ptr<py::object> shared(new py::object(callback), [](py::object* object) {
        py::gil_scoped_acquire gil;
        delete object;
    });
    return [shared](std::size_t done, std::size_t total) {
        py::gil_scoped_acquire gil;
        if (PyErr_CheckSignals() != 0) throw py::error_already_set();
        if (shared->is_none()) return true;
        const py::object answer = (*shared)(done, total);
        return answer.is_none() || py::cast<bool>(answer);
    };
}

}  // namespace fhe_core
