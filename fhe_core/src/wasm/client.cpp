// The secret side for JavaScript: what bindings/bind_client.cpp is for Python. web/src/engine.ts calls it and has allocated
// every array at the size that a comment here says.
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>

#include "client/secret_key.hpp"
#include "core/chacha20.hpp"
#include "core/expand.hpp"
#include "wasm/exports.hpp"

namespace fhe_core {
namespace {

Seed seed_at(const std::uint8_t* bytes) {
    Seed seed;
    std::memcpy(seed.data(), bytes, seed.size());
    return seed;
}

void write_seed(const Seed& seed, std::uint8_t* out) { std::memcpy(out, seed.data(), seed.size()); }

// One look at all words, whatever is found: torus words may be secret.
template <class Word>
void check_words(const Word* words, std::size_t count, std::uint64_t modulus, const char* name) {
    if (count == 0) throw ShapeError(std::string(name) + ": expected at least one word, got none");
    bool outside = false;
    for (std::size_t i = 0; i < count; ++i) outside |= words[i] >= modulus;
    if (outside) throw ShapeError(std::string(name) + ": expected words below " + std::to_string(modulus) + ", found a larger one");
}

}  // namespace

// --- the key -----------------------------------------------------------------------------------------------------------------

FHE_CORE_EXPORT(key_generate) int key_generate(std::uint32_t set, SecretKey** key) {
    return guarded([&] { *key = SecretKey::generate(set_at(set)).release(); });
}

// Tests only, and refused elsewhere: the bindings for Python ask for the same variable.
FHE_CORE_EXPORT(key_from_entropy) int key_from_entropy(std::uint32_t set, const std::uint8_t* entropy, SecretKey** key) {
    return guarded([&] {
        const char* allowed = std::getenv("CLOAKWORK_ALLOW_TOY");
        if (allowed == nullptr || std::string(allowed) != "1")
            throw ParameterError("entropy: a fixed value makes every key and noise predictable; it is for tests alone");
        *key = SecretKey::generate_from_entropy(set_at(set), seed_at(entropy)).release();
    });
}

// coefficients [r (n + kN)]
FHE_CORE_EXPORT(key_restore)
int key_restore(std::uint32_t set, const std::int8_t* coefficients, std::size_t count, SecretKey** key) {
    return guarded([&] {
        const ParameterSet& params = set_at(set);
        const std::size_t expected =
            std::size_t(params.lane_count()) * (std::size_t(params.lwe_dimension) + params.large_dimension());
        if (count != expected)
            throw SerializationError("secret key: expected " + std::to_string(expected) + " bytes for parameter set '" +
                                     std::string(params.name) + "', got " + std::to_string(count) +
                                     "; the data is damaged or belongs to another parameter set");
        *key = SecretKey::restore(params, coefficients).release();
    });
}

FHE_CORE_EXPORT(key_export) void key_export(const SecretKey* key, std::int8_t* coefficients) {
    key->export_coefficients(coefficients);
}
FHE_CORE_EXPORT(key_release) void key_release(SecretKey* key) { delete key; }

// --- public material ---------------------------------------------------------------------------------------------------------

using Maker = SecretKey::EvaluationKeyMaker;

// seed [32]; the key stays open until the maker is closed
FHE_CORE_EXPORT(maker_open) int maker_open(const SecretKey* key, std::uint8_t* seed, Maker** maker) {
    return guarded([&] {
        *maker = std::make_unique<Maker>(*key).release();
        write_seed((*maker)->seed(), seed);
    });
}

// The next rows of the bootstrap key, [count][r][N].
FHE_CORE_EXPORT(maker_bootstrap) int maker_bootstrap(Maker* maker, std::size_t count, void* bodies) {
    return guarded([&] {
        with_word(maker->key().params().key_limbs(),
                  [&]<class Word>(Word) { maker->bootstrap(count, static_cast<Word*>(bodies)); });
    });
}

// The next rows of the keyswitch key, [count][level_count][r].
FHE_CORE_EXPORT(maker_keyswitch) int maker_keyswitch(Maker* maker, std::size_t count, std::uint32_t* bodies) {
    return guarded([&] { maker->keyswitch(count, bodies); });
}

FHE_CORE_EXPORT(maker_close) void maker_close(Maker* maker) { delete maker; }

// seed [32], bodies [k][r][N]
FHE_CORE_EXPORT(public_key) int public_key(const SecretKey* key, std::uint8_t* seed, void* bodies) {
    return guarded([&] {
        with_word(key->params().limbs(), [&]<class Word>(Word) { write_seed(key->public_key(static_cast<Word*>(bodies)), seed); });
    });
}

// --- encryption --------------------------------------------------------------------------------------------------------------

// torus_words [batch][r], seed [32], bodies [batch][r]
FHE_CORE_EXPORT(encrypt_lwe)
int encrypt_lwe(const SecretKey* key, const std::uint64_t* torus_words, std::size_t batch, std::uint8_t* seed, void* bodies) {
    return guarded([&] {
        const ParameterSet& params = key->params();
        check_words(torus_words, batch * params.lane_count(), params.modulus(), "torus words");
        with_word(params.limbs(), [&]<class Word>(Word) {
            write_seed(key->encrypt_lwe_seeded(torus_words, batch, static_cast<Word*>(bodies)), seed);
        });
    });
}

// torus_words [batch][r][N], seed [32], bodies [batch][r][N]
FHE_CORE_EXPORT(encrypt_glwe)
int encrypt_glwe(const SecretKey* key, const std::uint64_t* torus_words, std::size_t batch, std::uint8_t* seed, void* bodies) {
    return guarded([&] {
        const ParameterSet& params = key->params();
        check_words(torus_words, batch * params.lane_count() * params.polynomial_size(), params.modulus(), "torus words");
        with_word(params.limbs(), [&]<class Word>(Word) {
            write_seed(key->encrypt_glwe_seeded(torus_words, batch, static_cast<Word*>(bodies)), seed);
        });
    });
}

// bodies [batch][r] -> lwe [batch][kN + r]
FHE_CORE_EXPORT(expand_seeded_lwe)
int expand_seeded_lwe(std::uint32_t set, const std::uint8_t* seed, const void* bodies, std::size_t batch, void* lwe) {
    return guarded([&] {
        const ParameterSet& params = set_at(set);
        with_word(params.limbs(), [&]<class Word>(Word) {
            expand_lwe(params, seed_at(seed), static_cast<const Word*>(bodies), batch, static_cast<Word*>(lwe));
        });
    });
}

// bodies [batch][r][N] -> glwe [batch][k + r][N]
FHE_CORE_EXPORT(expand_seeded_glwe)
int expand_seeded_glwe(std::uint32_t set, const std::uint8_t* seed, const void* bodies, std::size_t batch, void* glwe) {
    return guarded([&] {
        const ParameterSet& params = set_at(set);
        with_word(params.limbs(), [&]<class Word>(Word) {
            expand_glwe(params, seed_at(seed), static_cast<const Word*>(bodies), batch, static_cast<Word*>(glwe));
        });
    });
}

// --- decryption --------------------------------------------------------------------------------------------------------------

// lwe [batch][kN + r] -> phases [batch][r]
FHE_CORE_EXPORT(phase_lwe) int phase_lwe(const SecretKey* key, const void* lwe, std::size_t batch, std::uint64_t* phases) {
    return guarded([&] {
        const ParameterSet& params = key->params();
        with_word(params.limbs(), [&]<class Word>(Word) {
            const Word* words = static_cast<const Word*>(lwe);
            check_words(words, batch * params.large_words(), params.modulus(), "ciphertexts");
            key->phase_lwe(words, batch, phases);
        });
    });
}

// glwe [batch][k + r][N] -> phases [batch][r][N]
FHE_CORE_EXPORT(phase_glwe) int phase_glwe(const SecretKey* key, const void* glwe, std::size_t batch, std::uint64_t* phases) {
    return guarded([&] {
        const ParameterSet& params = key->params();
        with_word(params.limbs(), [&]<class Word>(Word) {
            const Word* words = static_cast<const Word*>(glwe);
            check_words(words, batch * params.component_count() * params.polynomial_size(), params.modulus(), "ciphertexts");
            key->phase_glwe(words, batch, phases);
        });
    });
}

// --- tests -------------------------------------------------------------------------------------------------------------------

// words [16 blocks]
FHE_CORE_EXPORT(chacha20_keystream)
int chacha20_keystream(const std::uint8_t* seed, std::uint32_t domain, std::uint64_t index, std::uint32_t first, std::size_t blocks,
                       std::uint32_t* words) {
    return guarded([&] { ChaCha20(seed_at(seed), domain, index).keystream(first, blocks, words); });
}

}  // namespace fhe_core
