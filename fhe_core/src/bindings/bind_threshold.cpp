// PartyKey: a party's share of a joint key (threshold.hpp).
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>

#include "bindings/arrays.hpp"
#include "bindings/bindings.hpp"
#include "client/threshold.hpp"

namespace py = pybind11;

namespace fhe_core {
namespace {

std::unique_ptr<PartyKey> generate(const ParameterSet& params, int index, const py::object& entropy) {
    const std::optional<Seed> fixed = fixed_entropy(entropy);
    const py::gil_scoped_release release;
    return fixed ? PartyKey::generate_from_entropy(params, index, *fixed) : PartyKey::generate(params, index);
}

py::bytes export_secret(const PartyKey& key) {
    SecretVector<std::uint8_t> secret(PartyKey::secret_bytes(key.params()));
    key.export_secret(secret.data());
    return {reinterpret_cast<const char*>(secret.data()), secret.size()};
}

std::unique_ptr<PartyKey> restore(const ParameterSet& params, int index, const py::bytes& data) {
    const std::string_view bytes = data;
    const std::size_t expected = PartyKey::secret_bytes(params);
    if (bytes.size() != expected)
        throw SerializationError("party key: expected " + std::to_string(expected) + " bytes for parameter set '" +
                                 std::string(params.name) + "', got " + std::to_string(bytes.size()) +
                                 "; the data is damaged or belongs to another parameter set");
    return PartyKey::restore(params, index, reinterpret_cast<const std::uint8_t*>(bytes.data()));
}

py::array public_share(const PartyKey& key, const py::object& seed_value) {
    const ParameterSet& params = key.params();
    const Seed seed = checked_seed(seed_value);
    py::array_t<std::uint64_t> bodies({params.glwe_dimension(), params.polynomial_size()});
    key.public_share(seed, bodies.mutable_data());
    return bodies;
}

py::array bootstrap_share(const PartyKey& key, const py::object& seed_value, const py::object& bodies_value,
                          const py::object& progress_value) {
    const ParameterSet& params = key.params();
    const Seed seed = checked_seed(seed_value);
    const Words bodies = checked_words(params, bodies_value, "bodies", {params.glwe_dimension(), params.polynomial_size()});
    const Progress progress = checked_progress(progress_value);
    std::vector<std::int64_t> shape = bootstrap_bodies_shape(params);
    shape[0] = params.party_steps();
    py::array_t<std::uint64_t> rows(shape);
    std::uint64_t* out = rows.mutable_data();
    const py::gil_scoped_release release;
    key.bootstrap_share(seed, static_cast<const std::uint64_t*>(bodies.data()), out, progress);
    return rows;
}

py::array keyswitch_share(const PartyKey& key, const py::object& seed_value) {
    const Seed seed = checked_seed(seed_value);
    py::array_t<std::uint32_t> bodies(keyswitch_bodies_shape(key.params()));
    std::uint32_t* out = bodies.mutable_data();
    const py::gil_scoped_release release;
    key.keyswitch_share(seed, out);
    return bodies;
}

py::array partial_phases(const PartyKey& key, const py::object& masks_value, const py::object& tags_value, double flooding) {
    const ParameterSet& params = key.params();
    const Words masks = checked_words(params, masks_value, "masks", {kAny, params.large_dimension()});
    check_not_empty(masks.array, "masks");
    const std::int64_t batch = masks.shape(0);
    const auto tags = checked_array<std::uint8_t>(tags_value, "tags", {batch, std::int64_t{sizeof(Seed)}});
    std::vector<Seed> seeds(batch);
    std::memcpy(seeds.data(), tags.data(), batch * sizeof(Seed));
    py::array_t<std::uint64_t> out(batch);
    std::uint64_t* phases = out.mutable_data();
    const py::gil_scoped_release release;
    key.partial_phases(static_cast<const std::uint64_t*>(masks.data()), seeds.data(), batch, flooding, phases);
    return out;
}

// What this party's key alone makes of joint ciphertexts: the body less its part of the mask.
py::array phase_glwe(const PartyKey& key, const py::object& glwe_value) {
    const ParameterSet& params = key.params();
    const Words glwe = checked_words(params, glwe_value, "glwe", {kAny, params.component_count(), params.polynomial_size()});
    check_not_empty(glwe.array, "glwe");
    py::array_t<std::uint64_t> phases({glwe.shape(0), std::int64_t{params.polynomial_size()}});
    std::uint64_t* out = phases.mutable_data();
    const py::gil_scoped_release release;
    key.key().phase_glwe(static_cast<const std::uint64_t*>(glwe.data()), glwe.shape(0), out);
    return phases;
}

py::array phase_lwe(const PartyKey& key, const py::object& lwe_value) {
    const ParameterSet& params = key.params();
    const Words lwe = checked_words(params, lwe_value, "lwe", {kAny, params.large_words()});
    check_not_empty(lwe.array, "lwe");
    py::array_t<std::uint64_t> phases(lwe.shape(0));
    std::uint64_t* out = phases.mutable_data();
    const py::gil_scoped_release release;
    key.key().phase_lwe(static_cast<const std::uint64_t*>(lwe.data()), lwe.shape(0), out);
    return phases;
}

py::array phase_small(const PartyKey& key, const py::object& small_value) {
    const ParameterSet& params = key.params();
    const auto small = checked_array_below<std::uint32_t>(small_value, "small_lwe", {kAny, params.small_words()},
                                                          std::uint64_t{1} << params.keyswitch_modulus_log2);
    check_not_empty(small, "small_lwe");
    py::array_t<std::uint32_t> phases(small.shape(0));
    key.key().phase_small(small.data(), small.shape(0), phases.mutable_data());
    return phases;
}

}  // namespace

void bind_threshold(py::module_& m) {
    py::class_<PartyKey>(m, "PartyKey", "A party's share of a joint key; erased when the last reference goes away.")
        .def_static("generate", &generate, py::arg("params"), py::arg("index"), py::arg("entropy") = py::none(),
                    "A fresh share of party `index`. entropy (32 bytes) makes the key and all its noise predictable: tests only.")
        .def_static("restore", &restore, py::arg("params"), py::arg("index"), py::arg("data"), "The share that export() gave.")
        .def("export", &export_secret, "The noise key, the small key [n / P] and the ring key [k*N]. These bytes are the secret.")
        .def_property_readonly("params", &PartyKey::params, py::return_value_policy::reference)
        .def_property_readonly("index", &PartyKey::index)
        .def(
            "contribution", [](const PartyKey& key) { return seed_bytes(key.contribution()); }, "32 bytes that may be shown.")
        .def("public_share", &public_share, py::arg("seed"), "bodies [k, N] under the masks of the seed.")
        .def("bootstrap_share", &bootstrap_share, py::arg("seed"), py::arg("bodies"), py::arg("progress") = py::none(),
             "Rows of this party's steps under the joint public key: [step, key, row, k + 1, N].")
        .def("keyswitch_share", &keyswitch_share, py::arg("seed"),
             "bodies [large_dimension, level_count] under the masks of the seed.")
        .def("partial_phases", &partial_phases, py::arg("masks"), py::arg("tags"), py::arg("flooding"),
             "words [B, large_dimension], uint8[B, 32] -> uint64[B]: this party's part of the mask, flooded.")
        .def("phase_glwe", &phase_glwe, py::arg("glwe"), "words [B, k + 1, N] -> uint64[B, N] by this party's key alone.")
        .def("phase_lwe", &phase_lwe, py::arg("lwe"), "words [B, large_dimension + 1] -> uint64[B] by this party's key alone.")
        .def("phase_small", &phase_small, py::arg("small_lwe"),
             "uint32[B, n + 1] modulo 2^w -> uint32[B] by this party's key alone.");
}

}  // namespace fhe_core
