// Levelled, LevelledKey: levelled arithmetic on the CPU (levelled.hpp). Words are [..][level][N], each below its prime.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "bindings/bindings.hpp"
#include "bindings/levelled_arrays.hpp"
#include "client/levelled_key.hpp"

namespace py = pybind11;

namespace fhe_core {
namespace {

std::int64_t size_of(const LevelledTables& tables) { return static_cast<std::int64_t>(tables.polynomial_size()); }

void check_level(const LevelledTables& tables, std::int64_t level, const char* name) {
    if (level < 1 || level > tables.level_count())
        throw ShapeError(std::string(name) + ": expected 1 to " + std::to_string(tables.level_count()) + " primes, got " +
                         std::to_string(level));
}

}  // namespace

Words32 checked_words32(const LevelledTables& tables, const py::object& value, const char* name, Extents before) {
    before.push_back(kAny);
    before.push_back(size_of(tables));
    const auto words = checked_array<std::uint32_t>(value, name, before);
    check_not_empty(words, name);
    const std::int64_t level = words.shape(words.ndim() - 2);
    check_level(tables, level, name);
    const std::size_t n = tables.polynomial_size(), rows = static_cast<std::size_t>(words.size()) / n;
    for (std::size_t i = 0; i < rows; ++i)
        check_below(words.data() + i * n, n, tables.prime(static_cast<int>(i % static_cast<std::size_t>(level))).q, name);
    return words;
}

void check_prepared(bool of_this_object, bool found_key, bool wants_key) {
    if (!of_this_object) throw ShapeError("prepared: expected words that were prepared by this object, got another's");
    if (found_key != wants_key)
        throw ShapeError(wants_key ? "key: expected a key-switching key, got other words"
                                   : "prepared: expected prepared words, got a key");
}

void check_table_shape(const Extents& prepared, const Extents& words) {
    if (prepared[1] != words[0] || prepared[2] != words[2])
        throw ShapeError("words: expected [" + std::to_string(prepared[1]) + ", parts, " + std::to_string(prepared[2]) +
                         ", N] for these prepared words, got " + shape_text(words));
}

void check_same_shape(const Extents& a, const Extents& b) {
    if (a != b) throw ShapeError("b: expected the shape of a, " + shape_text(a) + ", got " + shape_text(b));
}

void check_automorphism(const LevelledTables& tables, std::uint64_t g) {
    if (g % 2 == 0 || g >= 2 * tables.polynomial_size())
        throw ParameterError("g: expected an odd number below " + std::to_string(2 * tables.polynomial_size()) + ", got " +
                             std::to_string(g));
}

void check_keep(std::int64_t level, int keep) {
    if (keep < 1 || keep >= level)
        throw ParameterError("keep: expected 1 to " + std::to_string(level - 1) + " primes, got " + std::to_string(keep));
}

namespace {

using Shared = SharedLevelled;
using Prepared = LevelledPrepared;

Extents shape_of(const Words32& words) { return Extents(words.shape(), words.shape() + words.ndim()); }
int level_of(const Words32& words) { return static_cast<int>(words.shape(words.ndim() - 2)); }
std::size_t extent(const Words32& words, int axis) { return static_cast<std::size_t>(words.shape(axis)); }
std::size_t polynomials(const Words32& words) {
    return static_cast<std::size_t>(words.size()) /
           static_cast<std::size_t>(words.shape(words.ndim() - 2) * words.shape(words.ndim() - 1));
}
Words32 like(const Words32& words) { return Words32(shape_of(words)); }

// --- public ---------------------------------------------------------------------------------------------------------------------

Words32 transform(const Shared& levelled, const py::object& value, bool inverse, int threads) {
    const auto words = checked_words32(levelled->tables(), value, "words", {kAny});
    check_thread_count(threads);
    Words32 result = like(words);
    std::uint32_t* out = result.mutable_data();
    const std::uint32_t* in = words.data();
    const auto count = static_cast<std::size_t>(words.size());
    const py::gil_scoped_release release;
    std::memcpy(out, in, count * sizeof *out);
    levelled->transform(out, polynomials(words), level_of(words), inverse, threads);
    return result;
}

std::shared_ptr<Prepared> prepare(const Shared& levelled, const py::object& value, int threads) {
    const auto words = checked_words32(levelled->tables(), value, "words", {kAny, kAny});
    check_thread_count(threads);
    auto prepared = std::make_shared<Prepared>(Prepared{std::shared_ptr<const LevelledTables>(levelled, &levelled->tables()),
                                                        std::vector<std::uint32_t>(static_cast<std::size_t>(words.size())),
                                                        shape_of(words), false});
    const std::uint32_t* in = words.data();
    const py::gil_scoped_release release;
    levelled->prepare(in, polynomials(words), level_of(words), prepared->words.data(), threads);
    return prepared;
}

Words32 add(const Shared& levelled, const py::object& a_value, const py::object& b_value, bool negative, int threads) {
    const auto a = checked_words32(levelled->tables(), a_value, "a", {kAny}),
               b = checked_words32(levelled->tables(), b_value, "b", {kAny});
    check_thread_count(threads);
    check_same_shape(shape_of(a), shape_of(b));
    Words32 result = like(a);
    std::uint32_t* out = result.mutable_data();
    const py::gil_scoped_release release;
    levelled->add(a.data(), b.data(), negative, extent(a, 0), level_of(a), out, threads);
    return result;
}

Words32 scale(const Shared& levelled, const py::object& value, std::int64_t factor, int threads) {
    const auto words = checked_words32(levelled->tables(), value, "words", {kAny});
    check_thread_count(threads);
    Words32 result = like(words);
    std::uint32_t* out = result.mutable_data();
    const py::gil_scoped_release release;
    levelled->scale(words.data(), factor, extent(words, 0), level_of(words), out, threads);
    return result;
}

Words32 products(const Shared& levelled, const py::object& value, const Prepared& prepared, int threads,
                 const py::object& callback) {
    const auto words = checked_words32(levelled->tables(), value, "words", {kAny, kAny});
    check_prepared(prepared.tables.get() == &levelled->tables(), prepared.is_key, false);
    check_thread_count(threads);
    const Progress progress = checked_progress(callback);
    check_table_shape(prepared.shape, shape_of(words));
    Words32 result(Extents{prepared.shape[0], words.shape(1), words.shape(2), words.shape(3)});
    std::uint32_t* out = result.mutable_data();
    const py::gil_scoped_release release;
    levelled->products(words.data(), prepared.words.data(), static_cast<std::size_t>(prepared.shape[0]), extent(words, 0),
                       extent(words, 1), level_of(words), out, threads, progress);
    return result;
}

Words32 multiply(const Shared& levelled, const py::object& a_value, const py::object& b_value, int threads) {
    const auto a = checked_words32(levelled->tables(), a_value, "a", {kAny, 2}),
               b = checked_words32(levelled->tables(), b_value, "b", {kAny, 2});
    check_thread_count(threads);
    check_same_shape(shape_of(a), shape_of(b));
    Words32 result(Extents{a.shape(0), 3, a.shape(2), a.shape(3)});
    std::uint32_t* out = result.mutable_data();
    const py::gil_scoped_release release;
    levelled->multiply(a.data(), b.data(), extent(a, 0), level_of(a), out, threads);
    return result;
}

Words32 automorphism(const Shared& levelled, const py::object& value, std::uint64_t g, int threads) {
    const auto words = checked_words32(levelled->tables(), value, "words", {kAny});
    check_thread_count(threads);
    check_automorphism(levelled->tables(), g);
    Words32 result = like(words);
    std::uint32_t* out = result.mutable_data();
    const py::gil_scoped_release release;
    levelled->automorphism(words.data(), g, extent(words, 0), level_of(words), out, threads);
    return result;
}

Words32 keyswitch(const Shared& levelled, const py::object& value, const Prepared& key, int threads, const py::object& callback) {
    const auto words = checked_words32(levelled->tables(), value, "words", {kAny});
    check_prepared(key.tables.get() == &levelled->tables(), key.is_key, true);
    check_thread_count(threads);
    const Progress progress = checked_progress(callback);
    Words32 result(Extents{words.shape(0), 2, words.shape(1), words.shape(2)});
    std::uint32_t* out = result.mutable_data();
    const py::gil_scoped_release release;
    levelled->keyswitch(words.data(), extent(words, 0), level_of(words), key.words.data(), out, threads, progress);
    return result;
}

Words32 modulus_switch(const Shared& levelled, const py::object& value, int keep, int threads) {
    const auto words = checked_words32(levelled->tables(), value, "words", {kAny});
    check_thread_count(threads);
    check_keep(words.shape(1), keep);
    Words32 result(Extents{words.shape(0), keep, words.shape(2)});
    std::uint32_t* out = result.mutable_data();
    const py::gil_scoped_release release;
    levelled->modulus_switch(words.data(), extent(words, 0), level_of(words), keep, out, threads);
    return result;
}

Words32 expand(const Shared& levelled, const py::object& seed_value, const py::object& bodies_value, std::uint64_t first) {
    const Seed seed = checked_seed(seed_value);
    const auto bodies = checked_words32(levelled->tables(), bodies_value, "bodies", {kAny});
    Words32 result(Extents{bodies.shape(0), 2, bodies.shape(1), bodies.shape(2)});
    std::uint32_t* out = result.mutable_data();
    const py::gil_scoped_release release;
    expand_levelled(levelled->tables(), seed, first, bodies.data(), extent(bodies, 0), level_of(bodies), out);
    return result;
}

Extents key_bodies_shape(const LevelledTables& tables) {
    return {tables.digit_count(tables.level_count()), tables.prime_count(), size_of(tables)};
}

std::shared_ptr<Prepared> expand_key(const Shared& levelled, const py::object& seed_value, const py::object& bodies_value,
                                     int threads) {
    const LevelledTables& tables = levelled->tables();
    const Seed seed = checked_seed(seed_value);
    const Extents shape = key_bodies_shape(tables);
    const auto bodies = checked_array<std::uint32_t>(bodies_value, "bodies", shape);
    check_thread_count(threads);
    const std::size_t n = tables.polynomial_size(), primes = static_cast<std::size_t>(tables.prime_count());
    for (std::size_t i = 0; i < static_cast<std::size_t>(shape[0]) * primes; ++i)
        check_below(bodies.data() + i * n, n, tables.prime(static_cast<int>(i % primes)).q, "bodies");
    auto prepared = std::make_shared<Prepared>(Prepared{std::shared_ptr<const LevelledTables>(levelled, &tables),
                                                        std::vector<std::uint32_t>(2 * static_cast<std::size_t>(bodies.size())),
                                                        Extents{shape[0], 2, shape[1], shape[2]}, true});
    const std::uint32_t* in = bodies.data();
    const py::gil_scoped_release release;
    expand_levelled_key(*levelled, seed, in, prepared->words.data(), threads);
    return prepared;
}

// --- secret ---------------------------------------------------------------------------------------------------------------------

std::unique_ptr<LevelledKey> generate(const Shared& levelled, const py::object& entropy) {
    const std::optional<Seed> seed = fixed_entropy(entropy);
    const py::gil_scoped_release release;
    return LevelledKey::generate(levelled, seed);
}

std::unique_ptr<LevelledKey> restore(const Shared& levelled, const py::bytes& data) {
    const std::string_view bytes = data;
    if (bytes.size() != levelled->tables().polynomial_size())
        throw SerializationError("levelled secret key: expected " + std::to_string(levelled->tables().polynomial_size()) +
                                 " bytes, got " + std::to_string(bytes.size()) + "; the data is damaged or belongs to another set");
    return LevelledKey::restore(levelled, reinterpret_cast<const std::int8_t*>(bytes.data()));
}

py::bytes export_key(const LevelledKey& key) {
    SecretVector<std::int8_t> coefficients(key.coefficient_count());
    key.export_coefficients(coefficients.data());
    return {reinterpret_cast<const char*>(coefficients.data()), coefficients.size()};
}

py::tuple encrypt(const LevelledKey& key, const py::object& value, int level) {
    const LevelledTables& tables = key.tables();
    const auto messages = checked_array_below<std::uint32_t>(value, "messages", {kAny, size_of(tables)}, tables.plain_modulus());
    check_not_empty(messages, "messages");
    check_level(tables, level, "level");
    Words32 bodies(Extents{messages.shape(0), level, size_of(tables)});
    std::uint32_t* out = bodies.mutable_data();
    Seed seed;
    {
        const py::gil_scoped_release release;
        seed = key.encrypt(messages.data(), extent(messages, 0), level, out);
    }
    return py::make_tuple(seed_bytes(seed), bodies);
}

Words32 phase(const LevelledKey& key, const py::object& value) {
    const auto words = checked_words32(key.tables(), value, "ciphertexts", {kAny, kAny});
    if (words.shape(1) < 2 || words.shape(1) > 3)
        throw ShapeError("ciphertexts: expected two or three parts, got " + std::to_string(words.shape(1)));
    Words32 result(Extents{words.shape(0), words.shape(2), words.shape(3)});
    std::uint32_t* out = result.mutable_data();
    const py::gil_scoped_release release;
    key.phase(words.data(), extent(words, 0), static_cast<int>(words.shape(1)), level_of(words), out);
    return result;
}

Words32 messages(const LevelledKey& key, const py::object& value) {
    const auto phases = checked_words32(key.tables(), value, "phases", {kAny});
    Words32 result(Extents{phases.shape(0), phases.shape(2)});
    std::uint32_t* out = result.mutable_data();
    const py::gil_scoped_release release;
    levelled_messages(key.tables(), phases.data(), extent(phases, 0), level_of(phases), out);
    return result;
}

py::tuple switch_key(const LevelledKey& key, std::uint64_t g) {
    if (g != 0) check_automorphism(key.tables(), g);
    Words32 bodies(key_bodies_shape(key.tables()));
    std::uint32_t* out = bodies.mutable_data();
    Seed seed;
    {
        const py::gil_scoped_release release;
        seed = key.switch_key(g, out);
    }
    return py::make_tuple(seed_bytes(seed), bodies);
}

py::tuple switch_key_of(const LevelledKey& key, const py::bytes& data) {
    const std::string_view bytes = data;
    if (bytes.size() != key.coefficient_count())
        throw ShapeError("coefficients: expected " + std::to_string(key.coefficient_count()) + " bytes, got " +
                         std::to_string(bytes.size()));
    Words32 bodies(key_bodies_shape(key.tables()));
    std::uint32_t* out = bodies.mutable_data();
    Seed seed;
    {
        const py::gil_scoped_release release;
        seed = key.switch_key_of(reinterpret_cast<const std::int8_t*>(bytes.data()), out);
    }
    return py::make_tuple(seed_bytes(seed), bodies);
}

std::vector<std::uint32_t> primes_of(const cpu::Levelled& levelled) {
    std::vector<std::uint32_t> values;
    for (const LargePrime& prime : levelled.tables().ntt().all_primes()) values.push_back(prime.q);
    return values;
}

}  // namespace

void bind_levelled(py::module_& m) {
    py::class_<Prepared, std::shared_ptr<Prepared>>(m, "LevelledPrepared")
        .def_property_readonly("shape", [](const Prepared& p) { return py::tuple(py::cast(p.shape)); })
        .def_property_readonly("nbytes", [](const Prepared& p) { return p.words.size() * sizeof(std::uint32_t); });
    py::class_<cpu::Levelled, Shared>(m, "Levelled")
        .def(py::init([](int log_size, const std::vector<std::uint32_t>& primes, int special_count, int digit_primes,
                         std::uint32_t plain_modulus) {
                 const py::gil_scoped_release release;
                 return std::make_shared<cpu::Levelled>(
                     std::make_shared<const LevelledTables>(log_size, primes, special_count, digit_primes, plain_modulus));
             }),
             py::arg("log_size"), py::arg("primes"), py::arg("special_count"), py::arg("digit_primes"), py::arg("plain_modulus"))
        .def_property_readonly("primes", &primes_of)
        .def_property_readonly("key_bodies_shape",
                               [](const cpu::Levelled& l) { return py::tuple(py::cast(key_bodies_shape(l.tables()))); })
        .def("transform", &transform, py::arg("words"), py::arg("inverse"), py::arg("threads") = 1)
        .def("prepare", &prepare, py::arg("words"), py::arg("threads") = 1)
        .def("add", &add, py::arg("a"), py::arg("b"), py::arg("negative") = false, py::arg("threads") = 1)
        .def("scale", &scale, py::arg("words"), py::arg("factor"), py::arg("threads") = 1)
        .def("products", &products, py::arg("words"), py::arg("prepared"), py::arg("threads") = 1, py::arg("progress") = py::none())
        .def("multiply", &multiply, py::arg("a"), py::arg("b"), py::arg("threads") = 1)
        .def("automorphism", &automorphism, py::arg("words"), py::arg("g"), py::arg("threads") = 1)
        .def("keyswitch", &keyswitch, py::arg("words"), py::arg("key"), py::arg("threads") = 1, py::arg("progress") = py::none())
        .def("modulus_switch", &modulus_switch, py::arg("words"), py::arg("keep"), py::arg("threads") = 1)
        .def("expand", &expand, py::arg("seed"), py::arg("bodies"), py::arg("first") = 0)
        .def("expand_key", &expand_key, py::arg("seed"), py::arg("bodies"), py::arg("threads") = 1);
    py::class_<LevelledKey>(m, "LevelledKey")
        .def_static("generate", &generate, py::arg("levelled"), py::arg("entropy") = py::none())
        .def_static("restore", &restore, py::arg("levelled"), py::arg("data"))
        .def("export", &export_key)
        .def("encrypt", &encrypt, py::arg("messages"), py::arg("level"))
        .def("phase", &phase, py::arg("ciphertexts"))
        .def("messages", &messages, py::arg("phases"))
        .def("switch_key", &switch_key, py::arg("g"))
        .def("switch_key_of", &switch_key_of, py::arg("coefficients"));
}

}  // namespace fhe_core
