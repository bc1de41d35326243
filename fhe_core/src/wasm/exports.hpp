// What the files of this folder share: functions for JavaScript on linear memory, and errors as values.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <new>
#include <string>

#include "core/errors.hpp"
#include "core/tables/shipped.hpp"

#define FHE_CORE_EXPORT(name) extern "C" [[clang::export_name(#name)]]

namespace fhe_core {

// What `error_class` and `error_message` give until the next call that fails.
void keep_error(const char* error_class, const char* message);

// Runs `body`; 0, or -1 with the error kept. No exception leaves an exported function.
template <class Body>
int guarded(const Body& body) {
    try {
        body();
        return 0;
    } catch (const ParameterError& error) {
        keep_error("ParameterError", error.what());
    } catch (const ShapeError& error) {
        keep_error("ShapeError", error.what());
    } catch (const KeyMismatchError& error) {
        keep_error("KeyMismatchError", error.what());
    } catch (const SerializationError& error) {
        keep_error("SerializationError", error.what());
    } catch (const UnsupportedError& error) {
        keep_error("UnsupportedError", error.what());
    } catch (const CancelledError& error) {
        keep_error("CancelledError", error.what());
    } catch (const std::bad_alloc&) {
        keep_error("FheError", "memory: WebAssembly has no more of it; encrypt fewer samples at once, or close other keys");
    } catch (const std::exception& error) {
        keep_error("FheError", error.what());
    }
    return -1;
}

inline const ParameterSet& set_at(std::uint32_t number) {
    if (number >= kParameterSets.size())
        throw ParameterError("parameter set: expected a number below " + std::to_string(kParameterSets.size()));
    return kParameterSets[number];
}

// Bytes of a word on the wire.
inline std::uint32_t planes_of(std::uint64_t modulus) { return static_cast<std::uint32_t>(std::bit_width(modulus) + 7) / 8; }

// Calls f with a value of the type of the words: uint32 for one limb, uint64 for two.
template <class F>
void with_word(const Limbs& limbs, const F& f) {
    if (limbs.count == 1)
        f(std::uint32_t{});
    else
        f(std::uint64_t{});
}

}  // namespace fhe_core
