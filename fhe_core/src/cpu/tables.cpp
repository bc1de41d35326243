#include "cpu/tables.hpp"

#include "core/modular.hpp"

namespace fhe_core::cpu {
namespace {

std::uint32_t reverse_bits(std::uint32_t value, int bits) {
    std::uint32_t result = 0;
    for (int i = 0; i < bits; ++i) result |= ((value >> i) & 1u) << (bits - 1 - i);
    return result;
}

int log2_exact(int n) { return std::bit_width(static_cast<unsigned>(n)) - 1; }

// A root of unity of order 2N whose N/2-th power is the listed square root of -1.
std::uint64_t primitive_root(int polynomial_size, int prime) {
    const std::uint64_t q = kLimbPrimes[prime];
    for (std::uint64_t base = 2;; ++base) {
        const std::uint64_t root = pow_mod(base, (q - 1) / (2 * std::uint64_t(polynomial_size)), q);
        if (pow_mod(root, polynomial_size / 2, q) == kLimbSqrtMinusOne[prime]) return root;
    }
}

std::int32_t shoup_companion(std::int64_t w, std::int64_t q) {
    // round(w * 2^32 / q), |w| <= (q-1)/2, so |result| < 2^31.
    const std::int64_t numerator = (w << 32) + (q - 1) / 2;
    const std::int64_t quotient = numerator >= 0 ? numerator / q : -((-numerator + q - 1) / q);
    return static_cast<std::int32_t>(quotient);
}

}  // namespace

TransformTables::TransformTables(int polynomial_size, int prime, int width) {
    const int n = polynomial_size, log_n = log2_exact(n), log_w = log2_exact(width);
    const int scalars = n / width, blocks = n / (width * width);
    const std::uint64_t q = kLimbPrimes[prime];
    const std::uint64_t root = primitive_root(n, prime);
    const auto modulus = static_cast<std::int32_t>(transform_modulus(prime));

    powers_.resize(2 * n);
    power_companions_.resize(2 * n);
    std::uint64_t power = 1;
    for (int e = 0; e < 2 * n; ++e) {
        powers_[e] = static_cast<std::int32_t>(centred(power, q));
        power_companions_[e] = shoup_companion(powers_[e], modulus);
        power = mul_mod(power, root, q);
    }
    fill_twiddles(n, width);

    for (int lane = 0; lane < width; ++lane) lane_exponents_.push_back(2 * reverse_bits(lane, log_w) * blocks);
    for (int block = 0; block < blocks; ++block) {
        for (int r = 0; r < width; ++r) {
            vector_exponents_.push_back(2 * (reverse_bits(r, log_w) * scalars + reverse_bits(block, log_n - 2 * log_w)) + 1);
        }
    }

    for (const std::int32_t vector_exponent : vector_exponents_)
        for (const auto* source : {&powers_, &power_companions_})
            for (const std::int32_t lane_exponent : lane_exponents_)
                unit_roots_.push_back((*source)[(vector_exponent + lane_exponent) % (2 * n)]);

    std::uint32_t q_inverse = 1;  // Newton: doubles the correct bits
    for (int i = 0; i < 5; ++i) q_inverse *= 2 - static_cast<std::uint32_t>(q) * q_inverse;
    view_ = {n,
             width,
             modulus,
             static_cast<std::int32_t>(q),
             static_cast<std::int32_t>(q_inverse),
             static_cast<std::int32_t>(kLimbSqrtMinusOne[prime]),
             forward_.data(),
             inverse_.data(),
             forward_tail_.data(),
             inverse_tail_.data(),
             powers_.data(),
             power_companions_.data(),
             lane_exponents_.data(),
             vector_exponents_.data(),
             unit_roots_.data()};
}

// Stage with m groups: group i uses psi^brv(m + i) forward, its inverse backward.
void TransformTables::fill_twiddles(int n, int width) {
    const int log_n = log2_exact(n), log_w = log2_exact(width);
    const auto forward_exponent = [&](std::uint32_t index) { return reverse_bits(index, log_n); };
    const auto inverse_exponent = [&](std::uint32_t index) { return (2 * n - forward_exponent(index)) % (2 * n); };
    for (int index = 0; index < n / width; ++index) {
        for (auto [table, exponent] :
             {std::pair{&forward_, forward_exponent(index)}, std::pair{&inverse_, std::uint32_t(inverse_exponent(index))}}) {
            table->push_back(powers_[exponent]);
            table->push_back(power_companions_[exponent]);
        }
    }
    const auto push_lanes = [&](TableWords& table, int block, int s, int g, bool inverse) {
        // Half-length 2^(log_w - 1 - s) inside the W coefficients that a lane holds after the transposition.
        const int half = width >> (s + 1);
        const std::uint32_t m = n / (2 * half);
        for (const auto* source : {&powers_, &power_companions_}) {
            for (int lane = 0; lane < width; ++lane) {
                const std::uint32_t index = m + (block * width * width + lane * width) / (2 * half) + g;
                table.push_back((*source)[inverse ? inverse_exponent(index) : forward_exponent(index)]);
            }
        }
    };
    for (int block = 0; block < n / (width * width); ++block) {
        for (int s = 0; s < log_w; ++s) {
            for (int g = 0; g < (1 << s); ++g) push_lanes(forward_tail_, block, s, g, false);
        }
        for (int s = log_w - 1; s >= 0; --s) {
            for (int g = 0; g < (1 << s); ++g) push_lanes(inverse_tail_, block, s, g, true);
        }
    }
}

}  // namespace fhe_core::cpu
