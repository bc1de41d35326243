// _engine.testing: inner parts that the tests look at directly. Nothing else calls them.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "bindings/arrays.hpp"
#include "bindings/bindings.hpp"
#include "client/ntt.hpp"
#include "client/random.hpp"
#include "core/expand.hpp"
#include "core/secure_memory.hpp"
#include "core/words.hpp"

namespace py = pybind11;

namespace fhe_core {
namespace {

constexpr std::size_t kMaxSamples = std::size_t{1} << 26;

void check_count(std::size_t count, std::size_t limit) {
    if (count > limit) throw ShapeError("count: expected at most " + std::to_string(limit) + ", got " + std::to_string(count));
}

py::array sample_gaussian_array(double sigma, const py::object& entropy, std::size_t count) {
    check_count(count, kMaxSamples);
    SecretStream stream(checked_seed(entropy, "entropy"), 0);
    py::array_t<std::int32_t> out(static_cast<py::ssize_t>(count));
    sample_gaussian(stream, GaussianTable(sigma), count, out.mutable_data());
    return out;
}

py::array sample_secret_array(const std::string& kind, const py::object& entropy, std::size_t count) {
    check_count(count, kMaxSamples);
    constexpr std::array kNames = {"binary", "ternary", "quinary", "gaussian"};  // in the order of SecretKind
    const auto name = std::ranges::find(kNames, kind);
    if (name == kNames.end())
        throw ParameterError("kind: expected 'binary', 'ternary', 'quinary' or 'gaussian', got '" + kind + "'");
    const auto secret = static_cast<SecretKind>(name - kNames.begin());
    SecretStream stream(checked_seed(entropy, "entropy"), 0);
    py::array_t<std::int8_t> out(static_cast<py::ssize_t>(count));
    sample_secret(stream, secret, count, out.mutable_data());
    return out;
}

py::array sample_steps_array(const std::string& cmux, const py::object& entropy, std::size_t steps) {
    check_count(steps, kMaxSamples / Rotation::kMostKeyBits);
    const auto* rotation = std::ranges::find(kRotations, cmux, &Rotation::name);
    if (rotation == kRotations.end() || rotation->selects_key())
        throw ParameterError("cmux: expected a name of rotations.def with keys in its line, got '" + cmux + "'");
    SecretStream stream(checked_seed(entropy, "entropy"), 0);
    py::array_t<std::int8_t> out({static_cast<py::ssize_t>(steps), static_cast<py::ssize_t>(rotation->key_bits)});
    sample_steps(stream, *rotation, steps, out.mutable_data());
    return out;
}

py::array expand_words_array(const ParameterSet& params, const py::object& seed, std::uint32_t domain, std::uint64_t index,
                             std::size_t count) {
    check_count(count, kMaxExpandedCount);
    const Limbs limbs = domain == kDomainBootstrapKey ? params.key_limbs() : params.limbs();
    py::array out = new_words(limbs, {static_cast<std::int64_t>(count)});
    with_word(limbs, [&]<class Word>(Word) {
        expand_words(limbs, checked_seed(seed), domain, index, count, static_cast<Word*>(out.mutable_data()));
    });
    return out;
}

py::array expand_power_of_two_array(const py::object& seed, std::uint32_t domain, std::uint64_t index, int modulus_log2,
                                    std::size_t count) {
    check_count(count, kMaxExpandedCount);
    if (modulus_log2 < 1 || modulus_log2 > 32)
        throw ParameterError("modulus_log2: expected 1 to 32, got " + std::to_string(modulus_log2));
    py::array_t<std::uint32_t> out(static_cast<py::ssize_t>(count));
    expand_power_of_two(checked_seed(seed), domain, index, modulus_log2, count, out.mutable_data());
    return out;
}

// The client's fast product: up to 16 polynomials [B, N] times one with small coefficients [N].
py::array multiply_small(const ParameterSet& params, const py::object& polynomials_value, const py::object& small_value) {
    const std::size_t n = params.polynomial_size();
    const Words polynomials = checked_words(params, polynomials_value, "polynomials", {kAny, params.polynomial_size()});
    const auto small = checked_array<std::int8_t>(small_value, "small", {params.polynomial_size()});
    const std::size_t batch = polynomials.shape(0);
    check_count(batch, NegacyclicNtt::kLanes);
    py::array out = new_words(params, {polynomials.shape(0), params.polynomial_size()});
    with_word(params, [&]<class Word>(Word) {
        const Word* in = static_cast<const Word*>(polynomials.data());
        Word* result = static_cast<Word*>(out.mutable_data());
        std::vector<std::uint32_t> lanes(n * NegacyclicNtt::kLanes), product(2 * lanes.size());
        for (int limb = 0; limb < params.limb_count(); ++limb) {
            const NegacyclicNtt ntt(n, kLimbPrimes[limb]);
            for (std::size_t i = 0; i < batch * n; ++i) lanes[i % n * NegacyclicNtt::kLanes + i / n] = limb_residue(in[i], limb);
            ntt.forward(lanes.data());
            ntt.multiply_accumulate(lanes.data(), ntt.transform_small(small.data()), product.data() + limb * lanes.size());
            ntt.inverse(product.data() + limb * lanes.size());
        }
        for (std::size_t i = 0; i < batch * n; ++i)
            result[i] =
                static_cast<Word>(compose(product.data() + i % n * NegacyclicNtt::kLanes + i / n, params.limbs(), lanes.size()));
    });
    return out;
}

// The stack below is read where it was given up, which no rule of the language covers; the empty asm hides that from the compiler.
constexpr std::size_t kSearchedWords = 16384;
constexpr std::size_t kRun = 4;

}  // namespace

// What a stream keyed by the system leaves on the stack: runs of four words of its key or keystream, and words of the key in all
// lanes of a vector.
struct SecretStreamProbe {
    // secrets: the key, then as many words of keystream as there is room for.
    [[gnu::noinline]] static void use(std::vector<std::uint32_t>& secrets) {
        SecretStream stream;
        std::memcpy(secrets.data(), stream.key_.data(), stream.key_.size());
        if (secrets.size() > kKeyWords) stream.fill(secrets.data() + kKeyWords, secrets.size() - kKeyWords);
    }

    [[gnu::noinline]] static std::size_t search(const std::vector<std::uint32_t>& secrets) {
        std::uint32_t below[kSearchedWords];
        const std::uint32_t* words = below;
        asm volatile("" : "+r"(words) : : "memory");
        std::size_t found = 0;
        for (std::size_t i = 0; i + kRun <= kSearchedWords; ++i)
            for (std::size_t j = 0; j < secrets.size(); ++j) {
                if (words[i] != secrets[j]) continue;
                found += j + kRun <= secrets.size() && std::equal(words + i, words + i + kRun, secrets.data() + j);
                found +=
                    j < kKeyWords && std::all_of(words + i, words + i + kRun, [&](std::uint32_t w) { return w == secrets[j]; });
            }
        return found;
    }

    static constexpr std::size_t kKeyWords = 8;
};

namespace {

std::size_t secret_stream_traces(std::size_t drawn_words) {
    check_count(drawn_words, 1024);
    std::vector<std::uint32_t> secrets(SecretStreamProbe::kKeyWords + drawn_words);
    SecretStreamProbe::use(secrets);
    const std::size_t found = SecretStreamProbe::search(secrets);
    erase_memory(secrets.data(), 4 * secrets.size());
    return found;
}

}  // namespace

void bind_testing(py::module_& parent) {
    py::module_ m = parent.def_submodule("testing", "Inner parts of the engine, for its tests.");
    m.def(
        "gaussian_thresholds",
        [](double sigma) {
            const std::vector<std::int64_t> thresholds = GaussianTable(sigma).thresholds();
            return py::array_t<std::int64_t>(static_cast<py::ssize_t>(thresholds.size()), thresholds.data());
        },
        py::arg("sigma"));
    m.def("secret_stream_traces", &secret_stream_traces,
          "How often the key or keystream of a stream that has gone is found on the stack: as runs of words, and as lanes of one "
          "word.");
    m.def(
        "replace_entropy", [](const py::object& entropy) { replace_entropy(fixed_entropy(entropy)); }, py::arg("entropy"),
        "Makes everything random in this process follow from 32 bytes, or from the operating system again (None).");
    m.def("entropy_requests", &entropy_requests, "How often this process asked the operating system for entropy.");
    m.def("sample_gaussian", &sample_gaussian_array, py::arg("sigma"), py::arg("entropy"), py::arg("count"));
    m.def("sample_secret", &sample_secret_array, py::arg("kind"), py::arg("entropy"), py::arg("count"));
    m.def("sample_steps", &sample_steps_array, py::arg("cmux"), py::arg("entropy"), py::arg("steps"));
    m.def("expand_words", &expand_words_array, py::arg("params"), py::arg("seed"), py::arg("domain"), py::arg("index"),
          py::arg("count"));
    m.def("expand_power_of_two", &expand_power_of_two_array, py::arg("seed"), py::arg("domain"), py::arg("index"),
          py::arg("modulus_log2"), py::arg("count"));
    m.def("multiply_small", &multiply_small, py::arg("params"), py::arg("polynomials"), py::arg("small"));
}

}  // namespace fhe_core
