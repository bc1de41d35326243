// Exact negacyclic products on the client: number-theoretic transform modulo one limb prime, 16 polynomials at once.
//
// A block of polynomials is stored [coefficient][lane], so that each butterfly is one loop over the lanes. Products of many masks
// with one fixed polynomial (a secret, a public key) are all the client needs; schoolbook multiplication (reference.hpp) specifies
// them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/secure_memory.hpp"

namespace fhe_core {

// w and floor(w * 2^32 / q), for multiplication by w without a division (Shoup).
struct ShoupFactor {
    std::uint32_t value;
    std::uint32_t companion;
};

class NegacyclicNtt {
   public:
    static constexpr std::size_t kLanes = 16;
    using Fixed = SecretVector<ShoupFactor>;  // a transformed polynomial, ready to multiply by

    // N a power of two up to 4096, q one of the limb primes.
    NegacyclicNtt(std::size_t polynomial_size, std::uint32_t q);

    std::size_t polynomial_size() const { return polynomial_size_; }
    std::uint32_t modulus() const { return q_; }

    // In place on [N][kLanes] residues in [0, q). The transform is in bit-reversed order.
    void forward(std::uint32_t* lanes) const;
    void inverse(std::uint32_t* lanes) const;
    // Coefficient 0 of each lane alone, in its place; the others are left as they were.
    void inverse_constant(std::uint32_t* lanes) const;

    // Small signed coefficients, |c| < q.
    Fixed transform_small(const std::int8_t* coefficients) const;
    // Lane `lane` of a transformed block.
    Fixed lane(const std::uint32_t* lanes, std::size_t lane) const;

    // 1 / fixed modulo X^N + 1, modulo the first limb prime; empty where it has none. No branch on its values but that.
    Fixed reciprocal(const Fixed& fixed) const;

    // accumulator += lanes * fixed, all in the transform domain; accumulator in [0, q).
    void multiply_accumulate(const std::uint32_t* lanes, const Fixed& fixed, std::uint32_t* accumulator) const;

   private:
    ShoupFactor factor(std::uint64_t value) const;

    std::size_t polynomial_size_;
    std::uint32_t q_;
    std::uint64_t reciprocal_;          // floor(2^59 / q)
    std::vector<ShoupFactor> forward_;  // psi^brv(i)
    std::vector<ShoupFactor> inverse_;  // psi^-brv(i)
    ShoupFactor size_inverse_;
};

}  // namespace fhe_core
