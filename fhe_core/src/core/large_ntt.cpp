// Tables of large transforms.
#include "core/large_ntt.hpp"

#include <algorithm>
#include <string>

#include "core/bit_reverse.hpp"
#include "core/errors.hpp"
#include "core/modular.hpp"

namespace fhe_core {
namespace {

constexpr std::uint32_t kLeastPrime = (1u << 26) + 1, kPrimeLimit = 1u << kLargePrimeBits;

bool is_prime(std::uint32_t n) {
    if (n < 2 || n % 2 == 0) return n == 2;
    for (std::uint32_t d = 3; d <= n / d; d += 2)
        if (n % d == 0) return false;
    return true;
}

void check_size(int log_size) {
    if (log_size < kLeastLargeLog || log_size > kMostLargeLog)
        throw ParameterError("log_size: expected " + std::to_string(kLeastLargeLog) + " to " + std::to_string(kMostLargeLog) +
                             " (2^12 to 2^17 points), got " + std::to_string(log_size));
}

Root root_of(std::uint64_t value, std::uint32_t q) {
    const std::int64_t w = centred(value, q), half = q / 2, scaled = w * (std::int64_t{1} << 32);
    return {static_cast<std::int32_t>(w), static_cast<std::int32_t>((scaled + (w < 0 ? -half : half)) / std::int64_t{q})};
}

LargePrime described(int log_size, std::uint32_t q) {
    const std::uint64_t n = std::uint64_t{1} << log_size;
    std::uint64_t psi = 0;
    for (std::uint64_t base = 2; psi == 0; ++base) {
        const std::uint64_t power = pow_mod(base, (q - 1) / (2 * n), q);
        if (pow_mod(power, n, q) == q - 1) psi = power;
    }
    std::uint32_t q_inverse = q;  // right to 3 bits, doubled each time
    for (int i = 0; i < 5; ++i) q_inverse *= 2 - q * q_inverse;
    const std::uint64_t montgomery = (std::uint64_t{1} << 32) % q;
    return {q,
            q_inverse,
            static_cast<std::int64_t>(((std::uint64_t{1} << 60) + q / 2) / q),
            static_cast<std::int32_t>(centred(montgomery, q)),
            static_cast<std::int32_t>(centred(mul_mod(montgomery, inverse_mod(n, q), q), q)),
            static_cast<std::uint32_t>(psi)};
}

// Roots of one prime, at `roots`.
void fill(const LargePrime& prime, int log_size, Root* roots) {
    const LargeNttLayout layout{log_size - kRowLog};
    const std::uint64_t order = std::uint64_t{2} << log_size, q = prime.q;
    std::vector<std::uint32_t> powers(order);  // psi^e
    powers[0] = 1;
    for (std::size_t e = 1; e < order; ++e) powers[e] = static_cast<std::uint32_t>(powers[e - 1] * std::uint64_t{prime.psi} % q);
    const auto power = [&](std::uint64_t e) { return root_of(powers[e % order], prime.q); };

    for (std::size_t node = 1; node < layout.column_count(); ++node) {
        const std::uint64_t e = bit_reverse(node, log_size);
        roots[layout.columns() + node] = power(e);
        roots[layout.columns_inverse() + node] = power(order - e);
    }
    // Block i of row stage s: psi^(2^(L - s) brv_s(i)).
    std::vector<std::uint64_t> row_exponents(kRowSize, 0);
    for (int stage = 0; stage < kRowLog; ++stage)
        for (std::size_t i = 0; i < std::size_t{1} << stage; ++i)
            row_exponents[(std::size_t{1} << stage) + i] = bit_reverse(i, stage) << (log_size - stage);
    for (std::size_t node = 0; node < kRowSize; ++node) {
        roots[layout.rows() + node] = power(row_exponents[node]);
        roots[layout.rows_inverse() + node] = power(order - row_exponents[node]);
    }
    for (std::size_t block = 0; block < 16; ++block)
        for (std::size_t ordinal = 0; ordinal < 16; ++ordinal) {
            std::size_t stage_size = 1;  // of the ordinal
            while (2 * stage_size <= ordinal) stage_size *= 2;
            const std::size_t node = ordinal == 0 ? 1 : stage_size * (16 + block) + (ordinal - stage_size);
            const std::size_t place = (ordinal / 2 * 16 + block) * 2 + ordinal % 2;
            roots[layout.tails() + place] = roots[layout.rows() + node];
            roots[layout.tails_inverse() + place] = roots[layout.rows_inverse() + node];
        }
    for (std::size_t e = 0; e < std::size_t{1} << kLowLog; ++e) roots[layout.low() + e] = power(e);
    const std::uint64_t size_inverse = inverse_mod(order / 2, q);
    for (std::size_t e = 0; e < layout.column_count(); ++e) {
        const std::uint64_t value = powers[(e << kLowLog) % order];
        roots[layout.high() + e] = root_of(value, prime.q);
        roots[layout.high_scaled() + e] = root_of(mul_mod(value, size_inverse, q), prime.q);
    }
    for (std::size_t x = 0; x < 4096; ++x) roots[layout.quarters() + x] = power((x << layout.n1) / 8);
}

}  // namespace

std::vector<std::uint32_t> large_ntt_primes(int log_size, std::size_t count) {
    check_size(log_size);
    const std::uint32_t step = 2u << log_size;
    std::vector<std::uint32_t> primes;
    for (std::uint32_t q = kPrimeLimit - step + 1; q > kLeastPrime && primes.size() < count; q -= step)
        if (is_prime(q)) primes.push_back(q);
    if (primes.size() < count)
        throw ParameterError("primes: expected at most " + std::to_string(primes.size()) + " for 2^" + std::to_string(log_size) +
                             " points, which are all of 27 and 28 bits, got " + std::to_string(count));
    return primes;
}

LargeNttTables::LargeNttTables(int log_size, std::span<const std::uint32_t> primes) : log_size_(log_size) {
    check_size(log_size);
    if (primes.empty()) throw ParameterError("primes: expected at least one");
    const std::uint32_t step = 2u << log_size;
    for (const std::uint32_t q : primes)
        if (q < kLeastPrime || q >= kPrimeLimit || q % step != 1 || !is_prime(q))
            throw ParameterError("primes: expected primes between 2^26 and 2^28 that are 1 modulo " + std::to_string(step) +
                                 ", got " + std::to_string(q) + "; large_ntt_primes lists some");
    std::vector<std::uint32_t> sorted(primes.begin(), primes.end());
    std::sort(sorted.begin(), sorted.end());
    if (const auto twice = std::adjacent_find(sorted.begin(), sorted.end()); twice != sorted.end())
        throw ParameterError("primes: expected each once, got " + std::to_string(*twice) + " twice");
    for (const std::uint32_t q : primes) primes_.push_back(described(log_size, q));
    roots_.resize(primes.size() * layout().root_count());
    for (std::size_t i = 0; i < primes.size(); ++i) fill(primes_[i], log_size, roots_.data() + i * layout().root_count());
}

}  // namespace fhe_core
