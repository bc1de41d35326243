// A parameter set: everything that a key, a ciphertext and a kernel depend on. The shipped rows are in tables/shipped.hpp.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "core/modular.hpp"
#include "core/rotation.hpp"

namespace fhe_core {

enum class TableKind : std::uint8_t { gate, exact, approximate };

struct Gadget {
    int base_log;
    int level_count;
    friend constexpr bool operator==(const Gadget&, const Gadget&) = default;
};

// What a step's products are modulo (docs/reference/specification.md, section 6).
enum class Raising : std::uint8_t {
    none,     // the ciphertexts' Q
    raised,   // Q*P for Q = q0: ciphertexts of one limb, a bootstrap key of two; every step's products are divided by P and rounded
    rounded,  // as raised, with products in double precision, in a fixed order of roundings (fft.hpp)
};

// What a rotation's accumulator is (docs/reference/specification.md, section 6).
enum class Accumulator : std::uint8_t {
    glwe,  // masks and bodies
    ntru,  // one polynomial c, the mask of a ciphertext whose body is zero: its phase is -c S; keys have 1/S in them
};

// The part that selects a kernel.
struct Shape {
    int polynomial_size;  // N
    int glwe_dimension;   // k
    int limb_count;       // of ciphertexts; 1: Q = q0, 2: Q = q0*q1
    Gadget mask_gadget;
    Gadget body_gadget;
    CmuxKind cmux;             // the kind of step: a line of rotations.def
    int extension_factor = 1;  // nu: accumulators that act as one table of nu*N entries; a power of two
    Raising raising = Raising::none;
    int lane_count = 1;  // r: bodies of a ciphertext, which share its mask; each has keys of its own
    Accumulator accumulator = Accumulator::glwe;

    // Polynomials of a ciphertext: masks, then bodies.
    constexpr int component_count() const { return glwe_dimension + lane_count; }
    constexpr bool is_ntru() const { return accumulator == Accumulator::ntru; }
    // Those that a rotation works on, and a row of the bootstrap key has.
    constexpr int accumulator_components() const { return is_ntru() ? glwe_dimension : component_count(); }
    // Digits of an accumulator: rows of a key.
    constexpr int row_count() const {
        return glwe_dimension * mask_gadget.level_count + (is_ntru() ? 0 : lane_count * body_gadget.level_count);
    }
    constexpr bool is_raised() const { return raising != Raising::none; }
    constexpr bool has_rounded_products() const { return raising == Raising::rounded; }
    constexpr Limbs limbs() const { return {limb_count}; }
    constexpr Limbs key_limbs() const { return is_raised() ? Limbs{2, 2} : limbs(); }
    friend constexpr bool operator==(const Shape&, const Shape&) = default;
};

struct ParameterSet {
    std::string_view name;
    TableKind kind;
    int message_bits;  // p of an exact look-up; 0 for gates and approximate sets
    Shape shape;
    SecretKind glwe_secret;
    double glwe_sigma;           // noise of ciphertexts and of the public key, units of 1/Q
    int lwe_dimension;           // n
    int keyswitch_modulus_log2;  // w: small ciphertexts live modulo 2^w
    double lwe_sigma;            // noise of the keyswitch key, units of 2^-w
    Gadget keyswitch_gadget;
    double max_weight_norm;     // L2 norm of integer weights that may act on fresh bootstrap outputs
    double p_fail_log2;         // of one look-up at that weight norm; 0 for approximate sets
    double noise;               // sd of the phase a look-up sees at max_weight_norm, fraction of the torus
    int security_bits;          // the least of all attacks in security_estimates.json, of the LWE and of the GLWE side
    double raised_sigma = 0.0;  // noise of a raised bootstrap key, units of 1/(Q*P), or of an NTRU accumulator's, units of 1/Q
    int party_count = 1;        // whose ring keys add up and whose small keys of n / party_count coefficients stand side by side

    constexpr int polynomial_size() const { return shape.polynomial_size; }
    constexpr int glwe_dimension() const { return shape.glwe_dimension; }
    constexpr int lane_count() const { return shape.lane_count; }
    constexpr int component_count() const { return shape.component_count(); }
    constexpr int accumulator_components() const { return shape.accumulator_components(); }
    constexpr bool is_ntru() const { return shape.is_ntru(); }
    constexpr int extension_factor() const { return shape.extension_factor; }
    constexpr int table_size() const { return shape.extension_factor * shape.polynomial_size; }  // entries of a look-up table
    constexpr int limb_count() const { return shape.limb_count; }
    constexpr int large_dimension() const { return shape.polynomial_size * shape.glwe_dimension; }
    // Words of an LWE ciphertext: the mask, then the bodies.
    constexpr int large_words() const { return large_dimension() + lane_count(); }
    constexpr int small_words() const { return lwe_dimension + lane_count(); }
    constexpr Limbs limbs() const { return shape.limbs(); }
    constexpr std::uint64_t modulus() const { return limbs().modulus(); }
    constexpr int modulus_bits() const { return kLimbBits * limb_count(); }
    constexpr std::size_t word_bytes() const { return limbs().word_bytes(); }
    // Of the bootstrap key: the ciphertexts' own, or raised.
    constexpr bool is_raised() const { return shape.is_raised(); }
    constexpr bool has_rounded_products() const { return shape.has_rounded_products(); }
    // Whose number-theoretic transforms an evaluation takes: those of the key, but of rounded products only the ciphertexts'.
    constexpr Limbs transform_limbs() const { return has_rounded_products() ? limbs() : key_limbs(); }
    constexpr Limbs key_limbs() const { return shape.key_limbs(); }
    constexpr std::uint64_t key_modulus() const { return key_limbs().modulus(); }
    constexpr double key_sigma() const { return is_raised() || is_ntru() ? raised_sigma : glwe_sigma; }
    constexpr const Rotation& rotation() const { return rotation_of(shape.cmux); }
    constexpr SecretKind lwe_secret() const { return rotation().small_secret; }
    // Security rests on more than LWE with a uniform secret: blocks of the small key depend on each other, or noise is divided by
    // the ring key (NTRU).
    constexpr bool has_structured_secret() const { return !rotation().has_independent_bits() || is_ntru(); }
    constexpr int row_count() const { return shape.row_count(); }
    constexpr int keys_per_step() const { return rotation().keys; }
    constexpr int step_count() const { return rotation().steps_of(lwe_dimension); }
    // Steps of the bootstrap key. That of an NTRU accumulator begins with its entry, which brings 1/S into the look-up table.
    constexpr int entry_count() const { return is_ntru() ? 1 : 0; }
    constexpr int key_step_count() const { return entry_count() + step_count(); }
    constexpr int gadget_drop_bits(const Gadget& g) const { return modulus_bits() - g.base_log * g.level_count; }
    constexpr int log2_polynomial_size() const { return std::bit_width(static_cast<unsigned>(shape.polynomial_size)) - 1; }
    constexpr int log2_twice_table_size() const { return std::bit_width(static_cast<unsigned>(table_size())); }
    // Of the result of a blind rotation: extension_factor() GLWE ciphertexts.
    constexpr std::size_t rotated_words() const { return std::size_t(component_count()) * table_size(); }
    // A key of several parties: none has it, each has a share (threshold.hpp).
    constexpr bool is_joint() const { return party_count > 1; }
    constexpr int party_dimension() const { return lwe_dimension / party_count; }
    constexpr int party_steps() const { return step_count() / party_count; }
    // Mask polynomials of a row of the bootstrap key, which its seed gives; none where the accumulator is NTRU, and where rows are
    // encrypted under a joint public key.
    constexpr int seeded_components() const { return is_ntru() || is_joint() ? 0 : shape.glwe_dimension; }
    // Those that it does not give: the bodies, or the whole row.
    constexpr int row_bodies() const { return accumulator_components() - seeded_components(); }
    // Words of the bodies (seeded form) of the bootstrap key.
    constexpr std::size_t bootstrap_key_body_words() const {
        return std::size_t(key_step_count()) * keys_per_step() * row_count() * row_bodies() * polynomial_size();
    }
    constexpr std::size_t keyswitch_key_rows() const { return std::size_t(large_dimension()) * keyswitch_gadget.level_count; }
    // A publication's own parameters (tables/paper.hpp): measured, whatever they are worth; Python gives them to nothing else.
    constexpr bool is_published() const { return name.starts_with("papers/"); }
    constexpr bool has_whole_steps() const { return lwe_dimension % rotation().key_bits == 0; }
    // An NTRU accumulator is one polynomial modulo q0, of one key, turned by factors on the products.
    constexpr bool has_whole_accumulator() const {
        return !is_ntru() || (shape.glwe_dimension == 1 && limb_count() == 1 && lane_count() == 1 && extension_factor() == 1 &&
                              !is_raised() && rotation().factors_on_products() && shape.mask_gadget == shape.body_gadget);
    }
    // The bits of a step are one party's, whose rows are encryptions of one body under the public key; they want two limbs.
    constexpr bool has_whole_parties() const {
        return !is_joint() || (party_count > 0 && step_count() % party_count == 0 && lwe_dimension % party_count == 0 &&
                               limb_count() == 2 && lane_count() == 1 && extension_factor() == 1 && !is_raised() && !is_ntru() &&
                               !rotation().selects_key() && rotation().has_independent_bits());
    }
    // Digits that select keys are those of an exponent modulo 2N, all of them; what the top one has more than the exponent is 0.
    constexpr bool has_whole_digits() const {
        const int spare_bits = rotation().digits * rotation().digit_bits - log2_twice_table_size();
        return !rotation().selects_key() || (spare_bits >= 0 && spare_bits < rotation().digit_bits && lane_count() == 1 &&
                                             extension_factor() == 1 && !has_rounded_products());
    }
};

}  // namespace fhe_core
