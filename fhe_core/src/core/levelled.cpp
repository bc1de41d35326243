// Tables of levelled arithmetic.
#include "core/levelled.hpp"

#include <algorithm>
#include <string>

#include "core/errors.hpp"
#include "core/modular.hpp"

namespace fhe_core {

LevelledTables::LevelledTables(int log_size, std::span<const std::uint32_t> primes, int special_count, int digit_primes,
                               std::uint32_t plain_modulus)
    : ntt_(log_size, primes), special_count_(special_count), digit_primes_(digit_primes), plain_modulus_(plain_modulus) {
    if (special_count < 1 || level_count() < 1)
        throw ParameterError("special_count: expected 1 to " + std::to_string(prime_count() - 1) + " of the " +
                             std::to_string(prime_count()) + " primes, got " + std::to_string(special_count));
    if (digit_primes < 1 || digit_primes > special_count)
        throw ParameterError("digit_primes: expected 1 to " + std::to_string(special_count) +
                             ", as many as there are special primes, got " + std::to_string(digit_primes));
    if (plain_modulus < kLeastPlainModulus || plain_modulus >= kPlainModulusLimit)
        throw ParameterError("plaintext_modulus: expected 2 to 2^26 - 1, got " + std::to_string(plain_modulus));
}

LevelledTables::Range LevelledTables::digit(int number, int level) const {
    return {number * digit_primes_, std::min((number + 1) * digit_primes_, level)};
}

std::int32_t montgomery_factor(const LargePrime& prime, std::uint64_t w) {
    return static_cast<std::int32_t>(centred(mul_mod(w % prime.q, (std::uint64_t{1} << 32) % prime.q, prime.q), prime.q));
}

BaseChange BaseChange::make(const LevelledTables& tables, LevelledTables::Range from, bool division) {
    const auto product = [&](int without, std::uint64_t q) {
        std::uint64_t value = 1;
        for (int i = from.first; i < from.last; ++i)
            if (i != without) value = mul_mod(value, tables.prime(i).q % q, q);
        return value;
    };
    BaseChange change{from, {}, {}, {}};
    const std::uint64_t t = tables.plain_modulus();
    for (int i = from.first; i < from.last; ++i) {
        const std::uint64_t q = tables.prime(i).q;
        std::uint64_t scale = inverse_mod(product(i, q), q);
        if (division) scale = mul_mod(scale, inverse_mod(t, q), q);
        change.scale.push_back(montgomery_factor(tables.prime(i), scale));
    }
    for (int target = 0; target < tables.prime_count(); ++target) {
        const std::uint64_t q = tables.prime(target).q;
        const bool within = from.first <= target && target < from.last;
        for (int i = from.first; i < from.last; ++i) {
            const std::uint64_t value = mul_mod(product(i, q), division ? t % q : 1, q);
            change.matrix.push_back(montgomery_factor(tables.prime(target), value));
        }
        change.divide.push_back(within ? 0 : montgomery_factor(tables.prime(target), inverse_mod(product(-1, q), q)));
    }
    return change;
}

}  // namespace fhe_core
