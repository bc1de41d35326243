// Arithmetic modulo the engine's primes, constexpr so that tables can be computed at compile time.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fhe_core {

using uint128 = unsigned __int128;
using int128 = __int128;

// q0 = 11520^2 + 1, q1 = 2^27 - 40959, and P = 2^25 - 16383 by which raised bootstrap keys exceed q0; all 1 mod 8192.
inline constexpr std::uint32_t kLimbPrimes[3] = {132710401u, 134176769u, 33538049u};
inline constexpr std::uint32_t kLimbSqrtMinusOne[3] = {11520u, 9831118u,
                                                       12389077u};  // the first is small enough to skip a reduction
inline constexpr int kLimbBits = 27, kRaisingBits = 25;

// What transforms compute modulo, for prime `number` of kLimbPrimes: the prime, or its multiple of 27 bits, so that one analysis of
// ranges serves all.
constexpr std::uint32_t transform_modulus(int number) {
    return number == 2 ? kLimbPrimes[2] << (kLimbBits - kRaisingBits) : kLimbPrimes[number];
}

// The primes of a modulus: q0 alone, q0*q1, or q0*P.
struct Limbs {
    int count;       // 1 or 2
    int second = 1;  // number of the second in kLimbPrimes

    constexpr int number(int limb) const { return limb == 0 ? 0 : second; }
    constexpr std::uint32_t prime(int limb) const { return kLimbPrimes[number(limb)]; }
    constexpr std::uint64_t modulus() const { return count == 1 ? prime(0) : std::uint64_t{prime(0)} * prime(1); }
    constexpr std::size_t word_bytes() const { return count == 1 ? 4 : 8; }
    friend constexpr bool operator==(const Limbs&, const Limbs&) = default;
};

constexpr std::uint64_t mul_mod(std::uint64_t a, std::uint64_t b, std::uint64_t q) {
    return static_cast<std::uint64_t>(static_cast<uint128>(a) * b % q);
}

constexpr std::uint64_t add_mod(std::uint64_t a, std::uint64_t b, std::uint64_t q) {
    const std::uint64_t sum = a + b;  // a, b < q < 2^63
    return sum >= q ? sum - q : sum;
}

constexpr std::uint64_t sub_mod(std::uint64_t a, std::uint64_t b, std::uint64_t q) { return a >= b ? a - b : a + q - b; }

constexpr std::uint64_t pow_mod(std::uint64_t base, std::uint64_t exponent, std::uint64_t q) {
    std::uint64_t result = 1 % q;
    for (base %= q; exponent != 0; exponent >>= 1) {
        if (exponent & 1) result = mul_mod(result, base, q);
        base = mul_mod(base, base, q);
    }
    return result;
}

// q prime.
constexpr std::uint64_t inverse_mod(std::uint64_t a, std::uint64_t q) { return pow_mod(a, q - 2, q); }

// A signed value of any size up to 2^62 as a residue in [0, q).
constexpr std::uint64_t residue(std::int64_t value, std::uint64_t q) {
    const std::int64_t r = value % static_cast<std::int64_t>(q);
    return static_cast<std::uint64_t>(r < 0 ? r + static_cast<std::int64_t>(q) : r);
}

// [0, q) -> [-(q-1)/2, (q-1)/2], q odd.
constexpr std::int64_t centred(std::uint64_t value, std::uint64_t q) {
    return value > (q - 1) / 2 ? static_cast<std::int64_t>(value) - static_cast<std::int64_t>(q) : static_cast<std::int64_t>(value);
}

// The x in [0, q0*q1) with x = r0 mod q0 and x = r1 mod q1, for q1 prime number `second` of kLimbPrimes.
template <int second = 1>
constexpr std::uint64_t compose_limbs(std::uint32_t r0, std::uint32_t r1) {
    constexpr std::uint64_t q0 = kLimbPrimes[0], q1 = kLimbPrimes[second];
    constexpr std::uint64_t q0_inverse = inverse_mod(q0, q1);
    const std::uint64_t t = sub_mod(r1, r0 % q1, q1) * q0_inverse % q1;  // product below 2^54
    return r0 + q0 * t;
}

}  // namespace fhe_core
