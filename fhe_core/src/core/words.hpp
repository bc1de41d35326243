// Branch-free arithmetic on secret values, and torus words limb by limb.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/modular.hpp"

namespace fhe_core {

// |value| < q as a residue in [0, q).
inline std::uint64_t signed_residue(std::int64_t value, std::uint64_t q) {
    return static_cast<std::uint64_t>(value) + (q & static_cast<std::uint64_t>(value >> 63));
}

// [0, 2q) -> [0, q), q < 2^62.
inline std::uint64_t reduce_once(std::uint64_t x, std::uint64_t q) {
    const std::int64_t d = static_cast<std::int64_t>(x - q);
    return static_cast<std::uint64_t>(d) + (q & static_cast<std::uint64_t>(d >> 63));
}

// value modulo prime `number` of kLimbPrimes; the divisor is a constant in each branch, so that no division instruction sees the
// value.
inline std::uint32_t limb_residue(std::uint64_t value, int number) {
    return static_cast<std::uint32_t>(number == 0   ? value % kLimbPrimes[0]
                                      : number == 1 ? value % kLimbPrimes[1]
                                                    : value % kLimbPrimes[2]);
}

// sum over j of residues[j] * secret[j]; |sum| < 2^27 * count times the largest |secret| for residues of a limb.
inline std::int64_t inner_product(const std::uint32_t* residues, const std::int8_t* secret, std::size_t count) {
    std::int64_t sum = 0;
    for (std::size_t j = 0; j < count; ++j) sum += std::int64_t{static_cast<std::int32_t>(residues[j])} * secret[j];
    return sum;
}

// inner_product modulo prime `number` of kLimbPrimes, |secret| <= 2, count <= 2^19.
inline std::uint32_t inner_product_residue(const std::uint32_t* residues, const std::int8_t* secret, std::size_t count,
                                           int number) {
    const std::uint64_t offset = std::uint64_t{kLimbPrimes[number]} << 20;
    return limb_residue(static_cast<std::uint64_t>(inner_product(residues, secret, count)) + offset, number);
}

// One or two limb residues as one word.
inline std::uint64_t compose(const std::uint32_t* residues, Limbs limbs, std::size_t stride) {
    return limbs.count == 1    ? residues[0]
           : limbs.second == 1 ? compose_limbs(residues[0], residues[stride])
                               : compose_limbs<2>(residues[0], residues[stride]);
}

}  // namespace fhe_core
