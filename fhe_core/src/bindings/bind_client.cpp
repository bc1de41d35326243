// The secret side: SecretKey, encryption under the public key, expansion of seeded ciphertexts, and the keystream itself.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>

#include "bindings/arrays.hpp"
#include "bindings/bindings.hpp"
#include "client/public_key.hpp"
#include "client/secret_key.hpp"
#include "core/answer_words.hpp"
#include "core/expand.hpp"
#include "cpu/parallel.hpp"

namespace py = pybind11;

namespace fhe_core {
namespace {

constexpr std::uint64_t kMaxKeystreamBlocks = std::uint64_t{1} << 20;

std::vector<std::int64_t> public_bodies_shape(const ParameterSet& params) {
    return lane_shape(params, {params.glwe_dimension()}, {params.polynomial_size()});
}

std::unique_ptr<SecretKey> generate(const ParameterSet& params, const py::object& entropy) {
    const std::optional<Seed> fixed = fixed_entropy(entropy);
    const py::gil_scoped_release release;
    return fixed ? SecretKey::generate_from_entropy(params, *fixed) : SecretKey::generate(params);
}

py::bytes export_key(const SecretKey& key) {
    SecretVector<std::int8_t> coefficients(key.coefficient_count());
    key.export_coefficients(coefficients.data());
    return {reinterpret_cast<const char*>(coefficients.data()), coefficients.size()};
}

std::unique_ptr<SecretKey> restore_key(const ParameterSet& params, const py::bytes& data) {
    const std::string_view bytes = data;
    const std::size_t expected =
        std::size_t(params.lane_count()) * (static_cast<std::size_t>(params.lwe_dimension) + params.large_dimension());
    if (bytes.size() != expected)
        throw SerializationError("secret key: expected " + std::to_string(expected) + " bytes for parameter set '" +
                                 std::string(params.name) + "', got " + std::to_string(bytes.size()) +
                                 "; the data is damaged or belongs to another parameter set");
    return SecretKey::restore(params, reinterpret_cast<const std::int8_t*>(bytes.data()));
}

// --- encryption -----------------------------------------------------------------------------------------------------------------

py::tuple encrypt_lwe_seeded(const SecretKey& key, const py::object& torus_words) {
    const ParameterSet& params = key.params();
    const auto input = checked_array_below<std::uint64_t>(torus_words, "torus_words", lane_shape(params, {kAny}), params.modulus());
    check_not_empty(input, "torus_words");
    const std::int64_t batch = input.shape(0);
    py::array bodies = new_words(params, lane_shape(params, {batch}));
    const Seed seed = with_word(params, [&]<class Word>(Word) {
        Word* out = static_cast<Word*>(bodies.mutable_data());
        const py::gil_scoped_release release;
        return key.encrypt_lwe_seeded(input.data(), batch, out);
    });
    return py::make_tuple(seed_bytes(seed), bodies);
}

py::array encrypt_lwe(const SecretKey& key, const py::object& torus_words) {
    const ParameterSet& params = key.params();
    const auto input = checked_array_below<std::uint64_t>(torus_words, "torus_words", lane_shape(params, {kAny}), params.modulus());
    check_not_empty(input, "torus_words");
    const std::int64_t batch = input.shape(0);
    py::array lwe = new_words(params, {batch, params.large_words()});
    with_word(params, [&]<class Word>(Word) {
        Word* out = static_cast<Word*>(lwe.mutable_data());
        const py::gil_scoped_release release;
        std::vector<Word> bodies(batch * params.lane_count());
        const Seed seed = key.encrypt_lwe_seeded(input.data(), batch, bodies.data());
        expand_lwe(params, seed, bodies.data(), batch, out);
    });
    return lwe;
}

py::tuple encrypt_glwe_seeded(const SecretKey& key, const py::object& torus_words) {
    const ParameterSet& params = key.params();
    const auto input = checked_array_below<std::uint64_t>(torus_words, "torus_words",
                                                          lane_shape(params, {kAny}, {params.polynomial_size()}), params.modulus());
    check_not_empty(input, "torus_words");
    const std::int64_t batch = input.shape(0);
    py::array bodies = new_words(params, lane_shape(params, {batch}, {params.polynomial_size()}));
    const Seed seed = with_word(params, [&]<class Word>(Word) {
        Word* out = static_cast<Word*>(bodies.mutable_data());
        const py::gil_scoped_release release;
        return key.encrypt_glwe_seeded(input.data(), batch, out);
    });
    return py::make_tuple(seed_bytes(seed), bodies);
}

py::array public_encrypt(const ParameterSet& params, const py::object& seed_value, const py::object& bodies_value,
                         const py::object& torus_words, const py::object& randomness_value, std::uint64_t first) {
    const Seed seed = checked_seed(seed_value);
    const bool seeded = !randomness_value.is_none();
    SecretVector<Seed> randomness(1);
    if (seeded) checked_seed_into(randomness[0], randomness_value, "randomness");
    const Words bodies = checked_words(params, bodies_value, "bodies", public_bodies_shape(params));
    const auto input = checked_array_below<std::uint64_t>(torus_words, "torus_words",
                                                          lane_shape(params, {kAny}, {params.polynomial_size()}), params.modulus());
    check_not_empty(input, "torus_words");
    const std::int64_t batch = input.shape(0);
    py::array glwe = new_words(params, {batch, params.component_count(), params.polynomial_size()});
    with_word(params, [&]<class Word>(Word) {
        Word* out = static_cast<Word*>(glwe.mutable_data());
        const py::gil_scoped_release release;
        const EncryptionSeed chosen{randomness[0], first};
        public_encrypt_glwe(params, seed, static_cast<const Word*>(bodies.data()), input.data(), batch, out,
                            seeded ? &chosen : nullptr);
    });
    return glwe;
}

// In groups of encryptions that are made together, so that a batch costs the same on one thread as on many.
py::array add_zeros(const ParameterSet& params, const py::object& seed_value, const py::object& bodies_value,
                    const py::object& lwe_value, const py::object& randomness_value, int threads) {
    check_thread_count(threads);
    const Seed seed = checked_seed(seed_value);
    const bool seeded = !randomness_value.is_none();
    SecretVector<Seed> randomness(1);
    if (seeded) checked_seed_into(randomness[0], randomness_value, "randomness");
    const Words bodies = checked_words(params, bodies_value, "bodies", public_bodies_shape(params));
    const Words lwe = checked_words(params, lwe_value, "lwe", {kAny, params.large_words()});
    const std::size_t count = lwe.shape(0), words = params.large_words(), together = NegacyclicNtt::kLanes;
    py::array result = new_words(params, {lwe.shape(0), params.large_words()});
    with_word(params, [&]<class Word>(Word) {
        const Word* in = static_cast<const Word*>(lwe.data());
        Word* out = static_cast<Word*>(result.mutable_data());
        const py::gil_scoped_release release;
        const TransformedPublicKey key(params, seed, static_cast<const Word*>(bodies.data()));
        cpu::Monitor monitor(nullptr, count);
        cpu::parallel_shares((count + together - 1) / together, threads, monitor, [&](std::size_t first, std::size_t last) {
            const std::size_t start = first * together, share = std::min(last * together, count) - start;
            std::copy_n(in + start * words, share * words, out + start * words);
            const EncryptionSeed chosen{randomness[0], start};
            add_public_zeros(key, share, out + start * words, seeded ? &chosen : nullptr);
        });
    });
    return result;
}

// --- answers in few bits --------------------------------------------------------------------------------------------------------

void check_word_bits(int bits) {
    if (bits < 1 || bits > kMaxWordBits)
        throw ParameterError("bits: expected 1 to " + std::to_string(kMaxWordBits) + ", got " + std::to_string(bits));
}

py::array_t<std::uint32_t> switched(const ParameterSet& params, const py::object& words_value, int bits, int threads) {
    check_thread_count(threads);
    check_word_bits(bits);
    const Words words = checked_words(params, words_value, "words", {kAny, kAny});
    const std::size_t count = words.array.size();
    py::array_t<std::uint32_t> result({words.shape(0), words.shape(1)});
    with_word(params, [&]<class Word>(Word) {
        const Word* in = static_cast<const Word*>(words.data());
        std::uint32_t* out = result.mutable_data();
        const py::gil_scoped_release release;
        cpu::Monitor monitor(nullptr, count);
        cpu::parallel_shares(count, threads, monitor, [&](std::size_t first, std::size_t last) {
            switch_words(in + first, last - first, params.modulus(), bits, out + first);
        });
    });
    return result;
}

py::bytes packed(const py::object& words_value, int bits) {
    check_word_bits(bits);
    const auto words = checked_array_below<std::uint32_t>(words_value, "words", {kAny}, std::uint64_t{1} << bits);
    const std::size_t count = words.shape(0);
    std::string bytes((count * bits + 7) / 8, '\0');
    {
        const py::gil_scoped_release release;
        pack_words(words.data(), count, bits, reinterpret_cast<std::uint8_t*>(bytes.data()));
    }
    return bytes;
}

// --- phases ---------------------------------------------------------------------------------------------------------------------

py::array phase_lwe(const SecretKey& key, const py::object& lwe_value) {
    const ParameterSet& params = key.params();
    const Words lwe = checked_words(params, lwe_value, "lwe", {kAny, params.large_words()});
    check_not_empty(lwe.array, "lwe");
    py::array_t<std::uint64_t> phases(lane_shape(params, {lwe.shape(0)}));
    with_word(params, [&]<class Word>(Word) {
        std::uint64_t* out = phases.mutable_data();
        const py::gil_scoped_release release;
        key.phase_lwe(static_cast<const Word*>(lwe.data()), lwe.shape(0), out);
    });
    return phases;
}

py::array phase_small(const SecretKey& key, const py::object& small_value) {
    const ParameterSet& params = key.params();
    const auto small = checked_array_below<std::uint32_t>(small_value, "small_lwe", {kAny, params.small_words()},
                                                          std::uint64_t{1} << params.keyswitch_modulus_log2);
    check_not_empty(small, "small_lwe");
    py::array_t<std::uint32_t> phases(lane_shape(params, {small.shape(0)}));
    key.phase_small(small.data(), small.shape(0), phases.mutable_data());
    return phases;
}

py::array phase_glwe(const SecretKey& key, const py::object& glwe_value) {
    const ParameterSet& params = key.params();
    const Words glwe = checked_words(params, glwe_value, "glwe", {kAny, params.component_count(), params.polynomial_size()});
    check_not_empty(glwe.array, "glwe");
    py::array_t<std::uint64_t> phases(lane_shape(params, {glwe.shape(0)}, {params.polynomial_size()}));
    with_word(params, [&]<class Word>(Word) {
        std::uint64_t* out = phases.mutable_data();
        const py::gil_scoped_release release;
        key.phase_glwe(static_cast<const Word*>(glwe.data()), glwe.shape(0), out);
    });
    return phases;
}

// --- public material ------------------------------------------------------------------------------------------------------------

py::tuple evaluation_keys(const SecretKey& key, const py::object& progress_value) {
    const ParameterSet& params = key.params();
    const Progress progress = checked_progress(progress_value);
    py::array bootstrap = new_words(params.key_limbs(), bootstrap_bodies_shape(params));
    py::array_t<std::uint32_t> keyswitch(keyswitch_bodies_shape(params));
    const Seed seed = with_word(params.key_limbs(), [&]<class Word>(Word) {
        Word* bootstrap_out = static_cast<Word*>(bootstrap.mutable_data());
        std::uint32_t* keyswitch_out = keyswitch.mutable_data();
        const py::gil_scoped_release release;
        return key.evaluation_keys(bootstrap_out, keyswitch_out, progress);
    });
    return py::make_tuple(seed_bytes(seed), bootstrap, keyswitch);
}

py::tuple public_key(const SecretKey& key) {
    const ParameterSet& params = key.params();
    py::array bodies = new_words(params, public_bodies_shape(params));
    const Seed seed =
        with_word(params, [&]<class Word>(Word) { return key.public_key(static_cast<Word*>(bodies.mutable_data())); });
    return py::make_tuple(seed_bytes(seed), bodies);
}

py::array expand_lwe_array(const ParameterSet& params, const py::object& seed_value, const py::object& bodies_value) {
    const Seed seed = checked_seed(seed_value);
    const Words bodies = checked_words(params, bodies_value, "bodies", lane_shape(params, {kAny}));
    check_not_empty(bodies.array, "bodies");
    py::array lwe = new_words(params, {bodies.shape(0), params.large_words()});
    with_word(params, [&]<class Word>(Word) {
        Word* out = static_cast<Word*>(lwe.mutable_data());
        const py::gil_scoped_release release;
        expand_lwe(params, seed, static_cast<const Word*>(bodies.data()), bodies.shape(0), out);
    });
    return lwe;
}

py::array expand_glwe_array(const ParameterSet& params, const py::object& seed_value, const py::object& bodies_value) {
    const Seed seed = checked_seed(seed_value);
    const Words bodies = checked_words(params, bodies_value, "bodies", lane_shape(params, {kAny}, {params.polynomial_size()}));
    check_not_empty(bodies.array, "bodies");
    py::array glwe = new_words(params, {bodies.shape(0), params.component_count(), params.polynomial_size()});
    with_word(params, [&]<class Word>(Word) {
        Word* out = static_cast<Word*>(glwe.mutable_data());
        const py::gil_scoped_release release;
        expand_glwe(params, seed, static_cast<const Word*>(bodies.data()), bodies.shape(0), out);
    });
    return glwe;
}

py::bytes chacha20_keystream(const py::object& seed, std::uint32_t domain, std::uint64_t index, std::uint32_t first_block,
                             std::uint64_t blocks) {
    if (blocks > kMaxKeystreamBlocks)
        throw ShapeError("blocks: expected at most " + std::to_string(kMaxKeystreamBlocks) + " blocks of 64 bytes, got " +
                         std::to_string(blocks) + "; ask for fewer at a time");
    std::vector<std::uint32_t> words(blocks * ChaCha20::kWordsPerBlock);
    ChaCha20(checked_seed(seed), domain, index).keystream(first_block, blocks, words.data());
    return {reinterpret_cast<const char*>(words.data()), 4 * words.size()};
}

}  // namespace

void bind_client(py::module_& m) {
    py::class_<SecretKey>(m, "SecretKey", "The client's secret key; erased when the last reference goes away.")
        .def_static("generate", &generate, py::arg("params"), py::arg("entropy") = py::none(),
                    "A fresh key. entropy (32 bytes) makes the key and all its noise predictable: tests only.")
        .def_static("restore", &restore_key, py::arg("params"), py::arg("data"), "The key that export() gave.")
        .def("export", &export_key,
             "int8 coefficients: small keys [lane, n], then large keys [lane, k*N]. These bytes are the secret.")
        .def_property_readonly("params", &SecretKey::params, py::return_value_policy::reference)
        .def("encrypt_lwe", &encrypt_lwe, py::arg("torus_words"),
             "uint64[B] -> words [B, large_dimension + r]; with r > 1 lanes uint64[B, r], and so in all that follows.")
        .def("encrypt_lwe_seeded", &encrypt_lwe_seeded, py::arg("torus_words"), "uint64[B] -> (seed, bodies [B]).")
        .def("encrypt_glwe_seeded", &encrypt_glwe_seeded, py::arg("torus_words"), "uint64[B, N] -> (seed, bodies [B, N]).")
        .def("phase_lwe", &phase_lwe, py::arg("lwe"), "words [B, large_dimension + r] -> uint64[B], message plus noise.")
        .def("phase_small", &phase_small, py::arg("small_lwe"), "uint32[B, n + r] modulo 2^w -> uint32[B].")
        .def("phase_glwe", &phase_glwe, py::arg("glwe"), "words [B, k + r, N] -> uint64[B, N].")
        .def("evaluation_keys", &evaluation_keys, py::arg("progress") = py::none(),
             "(seed, bootstrap_bodies [step, key, row, N], keyswitch_bodies [large_dimension, level_count]).")
        .def("public_key", &public_key, "(seed, bodies [k, N]).");

    m.def(
        "public_encrypt_glwe", &public_encrypt, py::arg("params"), py::arg("seed"), py::arg("bodies"), py::arg("torus_words"),
        py::arg("randomness") = py::none(), py::arg("first") = 0,
        "Encrypts uint64[B, N] under a public key -> words [B, k + r, N]; with 32 secret bytes of randomness the same for a number "
        "first, first + 1, ..");
    m.def("add_public_zeros", &add_zeros, py::arg("params"), py::arg("seed"), py::arg("bodies"), py::arg("lwe"),
          py::arg("randomness") = py::none(), py::arg("threads") = 1,
          "words [B, large_dimension + r] plus an encryption of zero under the public key each; with 32 secret bytes of randomness "
          "the same for number 0, 1, ..");
    m.def("switch_words", &switched, py::arg("params"), py::arg("words"), py::arg("bits"), py::arg("threads") = 1,
          "words [B, M] -> uint32[B, M]: floor((x 2^bits + floor(Q / 2)) / Q) mod 2^bits.");
    m.def("pack_words", &packed, py::arg("words"), py::arg("bits"),
          "uint32[B] below 2^bits -> bytes, from the lowest bit of the first on, zeros after the last.");
    m.def("expand_lwe", &expand_lwe_array, py::arg("params"), py::arg("seed"), py::arg("bodies"),
          "bodies [B] -> words [B, large_dimension + r].");
    m.def("expand_glwe", &expand_glwe_array, py::arg("params"), py::arg("seed"), py::arg("bodies"),
          "bodies [B, N] -> words [B, k + r, N].");
    m.def("chacha20_keystream", &chacha20_keystream, py::arg("seed"), py::arg("domain"), py::arg("index"), py::arg("first_block"),
          py::arg("blocks"), "RFC 8439 keystream with nonce LE32(domain) || LE64(index).");
}

}  // namespace fhe_core
