// Negacyclic transform with merged twiddles, fully reduced at every step.
// Source: [LN16] algorithms 1 and 2; [Har14] products by constants. Ours: many polynomials side by side, one per lane.
#include "client/ntt.hpp"

#include <algorithm>
#include <bit>
#include <cassert>
#include <utility>

#include "core/bit_reverse.hpp"
#include "core/modular.hpp"
#include "core/vector_clones.hpp"

namespace fhe_core {
namespace {

constexpr std::size_t kLanes = NegacyclicNtt::kLanes;

inline std::uint32_t reduce_once(std::uint32_t x, std::uint32_t q) { return std::min(x, x - q); }  // [0, 2q) -> [0, q)

inline std::uint32_t multiply(std::uint32_t x, ShoupFactor w, std::uint32_t q) {
    const std::uint32_t quotient = static_cast<std::uint32_t>(std::uint64_t{x} * w.companion >> 32);
    return reduce_once(x * w.value - quotient * q, q);  // [0, 2q) before the reduction
}

FHE_CORE_VECTOR_CLONES
void forward_transform(std::uint32_t* lanes, std::size_t n, std::uint32_t q, const ShoupFactor* twiddles) {
    for (std::size_t groups = 1, half = n / 2; half >= 1; groups *= 2, half /= 2)
        for (std::size_t group = 0; group < groups; ++group) {
            const ShoupFactor w = twiddles[groups + group];
            for (std::size_t j = 0; j < half; ++j) {
                std::uint32_t* upper = lanes + (2 * group * half + j) * kLanes;
                std::uint32_t* lower = upper + half * kLanes;
                for (std::size_t lane = 0; lane < kLanes; ++lane) {
                    const std::uint32_t a = upper[lane], b = multiply(lower[lane], w, q);
                    upper[lane] = reduce_once(a + b, q);
                    lower[lane] = reduce_once(a + q - b, q);
                }
            }
        }
}

FHE_CORE_VECTOR_CLONES
void inverse_transform(std::uint32_t* lanes, std::size_t n, std::uint32_t q, const ShoupFactor* twiddles,
                       ShoupFactor size_inverse) {
    for (std::size_t groups = n / 2, half = 1; groups >= 1; groups /= 2, half *= 2)
        for (std::size_t group = 0; group < groups; ++group) {
            const ShoupFactor w = twiddles[groups + group];
            for (std::size_t j = 0; j < half; ++j) {
                std::uint32_t* upper = lanes + (2 * group * half + j) * kLanes;
                std::uint32_t* lower = upper + half * kLanes;
                for (std::size_t lane = 0; lane < kLanes; ++lane) {
                    const std::uint32_t a = upper[lane], b = lower[lane];
                    upper[lane] = reduce_once(a + b, q);
                    lower[lane] = multiply(a + q - b, w, q);
                }
            }
        }
    for (std::size_t i = 0; i < n * kLanes; ++i) lanes[i] = multiply(lanes[i], size_inverse, q);
}

FHE_CORE_VECTOR_CLONES
void inverse_constant_transform(std::uint32_t* lanes, std::size_t n, std::uint32_t q, ShoupFactor size_inverse) {
    for (std::size_t i = 1; i < n; ++i)
        for (std::size_t lane = 0; lane < kLanes; ++lane) lanes[lane] = reduce_once(lanes[lane] + lanes[i * kLanes + lane], q);
    for (std::size_t lane = 0; lane < kLanes; ++lane) lanes[lane] = multiply(lanes[lane], size_inverse, q);
}

FHE_CORE_VECTOR_CLONES
void multiply_accumulate_lanes(const std::uint32_t* lanes, const ShoupFactor* fixed, std::size_t n, std::uint32_t q,
                               std::uint32_t* accumulator) {
    for (std::size_t i = 0; i < n; ++i) {
        const ShoupFactor w = fixed[i];
        for (std::size_t lane = 0; lane < kLanes; ++lane) {
            std::uint32_t& sum = accumulator[i * kLanes + lane];
            sum = reduce_once(sum + multiply(lanes[i * kLanes + lane], w, q), q);
        }
    }
}

// An element of order exactly 2n modulo q, i.e. psi^n = -1.
std::uint64_t negacyclic_root(std::uint64_t n, std::uint64_t q) {
    for (std::uint64_t base = 2;; ++base) {
        const std::uint64_t psi = pow_mod(base, (q - 1) / (2 * n), q);
        if (pow_mod(psi, n, q) == q - 1) return psi;
    }
}

}  // namespace

NegacyclicNtt::NegacyclicNtt(std::size_t polynomial_size, std::uint32_t q)
    : polynomial_size_(polynomial_size), q_(q), reciprocal_((std::uint64_t{1} << 59) / q) {
    assert(std::has_single_bit(polynomial_size) && (q - 1) % (2 * polynomial_size) == 0 && q < (1u << 27));
    const int bits = std::bit_width(polynomial_size) - 1;
    const std::uint64_t psi = negacyclic_root(polynomial_size, q);
    const std::uint64_t psi_inverse = inverse_mod(psi, q);
    forward_.resize(polynomial_size);
    inverse_.resize(polynomial_size);
    std::uint64_t power = 1, power_inverse = 1;
    for (std::size_t i = 0; i < polynomial_size; ++i) {
        forward_[bit_reverse(i, bits)] = factor(power);
        inverse_[bit_reverse(i, bits)] = factor(power_inverse);
        power = power * psi % q;
        power_inverse = power_inverse * psi_inverse % q;
    }
    size_inverse_ = factor(inverse_mod(polynomial_size, q));
}

ShoupFactor NegacyclicNtt::factor(std::uint64_t value) const {
    // floor(value * 2^32 / q) without a division, because the value may be secret: an estimate at most one too small, corrected.
    const std::uint64_t estimate = value * reciprocal_ >> 27;
    const std::uint64_t remainder = (value << 32) - estimate * q_;  // [0, 2q)
    return {static_cast<std::uint32_t>(value), static_cast<std::uint32_t>(estimate + (remainder >= q_))};
}

void NegacyclicNtt::forward(std::uint32_t* lanes) const { forward_transform(lanes, polynomial_size_, q_, forward_.data()); }

void NegacyclicNtt::inverse(std::uint32_t* lanes) const {
    inverse_transform(lanes, polynomial_size_, q_, inverse_.data(), size_inverse_);
}

void NegacyclicNtt::inverse_constant(std::uint32_t* lanes) const {
    inverse_constant_transform(lanes, polynomial_size_, q_, size_inverse_);
}

NegacyclicNtt::Fixed NegacyclicNtt::transform_small(const std::int8_t* coefficients) const {
    SecretVector<std::uint32_t> lanes(polynomial_size_ * kLanes);
    for (std::size_t i = 0; i < polynomial_size_; ++i) {
        const std::int32_t c = coefficients[i];
        lanes[i * kLanes] = static_cast<std::uint32_t>(c) + (q_ & static_cast<std::uint32_t>(c >> 31));
    }
    forward(lanes.data());
    return lane(lanes.data(), 0);
}

NegacyclicNtt::Fixed NegacyclicNtt::lane(const std::uint32_t* lanes, std::size_t lane) const {
    Fixed fixed(polynomial_size_);
    for (std::size_t i = 0; i < polynomial_size_; ++i) fixed[i] = factor(lanes[i * kLanes + lane]);
    return fixed;
}

NegacyclicNtt::Fixed NegacyclicNtt::reciprocal(const Fixed& fixed) const {
    constexpr std::uint64_t q = kLimbPrimes[0];  // a constant, so that no division instruction sees a value
    assert(q_ == q);
    std::uint32_t zeros = 0;
    Fixed inverted(polynomial_size_);
    for (std::size_t i = 0; i < polynomial_size_; ++i) {
        const std::uint64_t value = fixed[i].value;
        zeros |= static_cast<std::uint32_t>((value - 1) >> 63);
        std::uint64_t power = 1;  // value^(q - 2)
        for (int bit = kLimbBits - 1; bit >= 0; --bit) {
            power = power * power % q;
            if ((q - 2) >> bit & 1) power = power * value % q;
        }
        inverted[i] = factor(power);
    }
    return zeros ? Fixed(0) : std::move(inverted);
}

void NegacyclicNtt::multiply_accumulate(const std::uint32_t* lanes, const Fixed& fixed, std::uint32_t* accumulator) const {
    multiply_accumulate_lanes(lanes, fixed.data(), polynomial_size_, q_, accumulator);
}

}  // namespace fhe_core
