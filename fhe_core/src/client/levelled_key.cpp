// Secrets of levelled arithmetic. No branch, address or division depends on a secret coefficient, a noise or a message.
#include "client/levelled_key.hpp"

#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "core/errors.hpp"
#include "core/expand.hpp"
#include "core/modular.hpp"
#include "cpu/kernels.hpp"

namespace fhe_core {
namespace {

// |x| < q as a residue.
std::uint32_t lifted(std::int32_t x, std::uint32_t q) {
    return static_cast<std::uint32_t>(x) + (q & static_cast<std::uint32_t>(x >> 31));
}

void mask_of(const Seed& seed, std::uint32_t domain, std::uint64_t index, int prime, const LevelledTables& tables,
             std::uint32_t* out) {
    expand_uniform(seed, domain + kDomainLimbStride * static_cast<std::uint32_t>(prime), index, tables.prime(prime).q,
                   tables.polynomial_size(), out);
}

}  // namespace

LevelledKey::LevelledKey(std::shared_ptr<const cpu::Levelled> levelled, SecretVector<std::int8_t> secret,
                         const std::optional<Seed>& entropy)
    : levelled_(std::move(levelled)), secret_(std::move(secret)), test_entropy_(entropy) {
    prepared_ = prepared(secret_.data());
}

std::unique_ptr<LevelledKey> LevelledKey::generate(std::shared_ptr<const cpu::Levelled> levelled,
                                                   const std::optional<Seed>& entropy) {
    SecretVector<std::int8_t> secret(levelled->tables().polynomial_size());
    if (entropy) {
        SecretStream stream(*entropy, 0);
        sample_secret(stream, SecretKind::ternary, secret.size(), secret.data());
    } else {
        SecretStream stream;
        sample_secret(stream, SecretKind::ternary, secret.size(), secret.data());
    }
    return std::unique_ptr<LevelledKey>(new LevelledKey(std::move(levelled), std::move(secret), entropy));
}

std::unique_ptr<LevelledKey> LevelledKey::restore(std::shared_ptr<const cpu::Levelled> levelled, const std::int8_t* coefficients) {
    SecretVector<std::int8_t> secret(levelled->tables().polynomial_size());
    std::memcpy(secret.data(), coefficients, secret.size());
    unsigned wrong = 0;
    for (std::size_t j = 0; j < secret.size(); ++j) wrong |= static_cast<unsigned>(secret[j] + 1) > 2;
    if (wrong != 0)
        throw SerializationError("levelled secret key: expected coefficients -1, 0 and 1, found another; the data is damaged");
    return std::unique_ptr<LevelledKey>(new LevelledKey(std::move(levelled), std::move(secret), std::nullopt));
}

void LevelledKey::export_coefficients(std::int8_t* out) const { std::memcpy(out, secret_.data(), secret_.size()); }

LevelledKey::Randomness LevelledKey::fresh_randomness() const {
    if (!test_entropy_) return {SecretStream(), random_seed()};
    const std::uint64_t call = test_calls_++;
    return {SecretStream(*test_entropy_, 2 * call), SecretStream(*test_entropy_, 2 * call + 1).seed()};
}

// c_0 = m + t e - c_1 S, m centred.
Seed LevelledKey::encrypt(const std::uint32_t* messages, std::size_t batch, int level, std::uint32_t* bodies) const {
    const std::size_t n = tables().polynomial_size();
    const std::uint32_t t = tables().plain_modulus();
    const cpu::LevelledKernels& kernels = cpu::select_kernels().levelled;
    Randomness randomness = fresh_randomness();
    SecretVector<std::int32_t> noise(n);
    SecretVector<std::uint32_t> small(n), product(n);
    std::vector<std::uint32_t> mask(n);
    for (std::size_t b = 0; b < batch; ++b) {
        sample_gaussian(randomness.stream, GaussianTable::kept(kLevelledSigma), n, noise.data());
        for (int number = 0; number < level; ++number) {
            const LargePrime& prime = tables().prime(number);
            std::uint32_t* row = bodies + (b * static_cast<std::size_t>(level) + static_cast<std::size_t>(number)) * n;
            for (std::size_t j = 0; j < n; ++j) small[j] = lifted(noise[j], prime.q);
            kernels.scale(prime, small.data(), nullptr, montgomery_factor(prime, t), n, row);
            for (std::size_t j = 0; j < n; ++j) {
                const std::int32_t message = static_cast<std::int32_t>(messages[b * n + j]);
                const std::int32_t above = (static_cast<std::int32_t>(t / 2) - message) >> 31;  // -1 or 0
                small[j] = lifted(message - (above & static_cast<std::int32_t>(t)), prime.q);
            }
            kernels.add(prime, row, small.data(), false, n, row);
            levelled_->transform_at(number, row);
            mask_of(randomness.seed, kDomainLevelled, b, number, tables(), mask.data());
            const std::uint32_t *a = mask.data(), *s = prepared_.data() + static_cast<std::size_t>(number) * n;
            kernels.products(prime, &a, &s, 1, n, product.data());
            kernels.add(prime, row, product.data(), true, n, row);
        }
    }
    return randomness.seed;
}

void LevelledKey::phase(const std::uint32_t* ciphertexts, std::size_t batch, int parts, int level, std::uint32_t* phases) const {
    const std::size_t n = tables().polynomial_size(), l = static_cast<std::size_t>(level), p = static_cast<std::size_t>(parts);
    const cpu::LevelledKernels& kernels = cpu::select_kernels().levelled;
    for (std::size_t b = 0; b < batch; ++b)
        for (std::size_t number = 0; number < l; ++number) {
            const LargePrime& prime = tables().prime(static_cast<int>(number));
            const std::uint32_t* s = prepared_.data() + number * n;
            std::uint32_t* row = phases + (b * l + number) * n;
            // Horner: (.. + c_2) S + c_1) S + c_0
            for (std::size_t part = p; part-- > 0;) {
                const std::uint32_t* c = ciphertexts + ((b * p + part) * l + number) * n;
                if (part + 1 == p) {
                    std::memcpy(row, c, n * sizeof *row);
                } else {
                    const std::uint32_t* x = row;
                    kernels.products(prime, &x, &s, 1, n, row);
                    kernels.add(prime, row, c, false, n, row);
                }
            }
        }
    levelled_->transform(phases, batch, level, true, 1);
}

Seed LevelledKey::switch_key(std::uint64_t g, std::uint32_t* bodies) const {
    const std::size_t n = tables().polynomial_size(), primes = static_cast<std::size_t>(tables().prime_count());
    const cpu::LevelledKernels& kernels = cpu::select_kernels().levelled;
    SecretVector<std::uint32_t> source(primes * n);
    if (g == 0) {
        for (std::size_t number = 0; number < primes; ++number) {
            const std::uint32_t* s = prepared_.data() + number * n;
            kernels.products(tables().prime(static_cast<int>(number)), &s, &s, 1, n, source.data() + number * n);
        }
    } else {
        levelled_->automorphism(prepared_.data(), g, 1, tables().prime_count(), source.data(), 1);
    }
    return switch_key_from(source, bodies);
}

Seed LevelledKey::switch_key_of(const std::int8_t* coefficients, std::uint32_t* bodies) const {
    return switch_key_from(prepared(coefficients), bodies);
}

SecretVector<std::uint32_t> LevelledKey::prepared(const std::int8_t* coefficients) const {
    const std::size_t n = tables().polynomial_size(), primes = static_cast<std::size_t>(tables().prime_count());
    SecretVector<std::uint32_t> words(primes * n);
    for (std::size_t number = 0; number < primes; ++number)
        for (std::size_t j = 0; j < n; ++j)
            words[number * n + j] = lifted(coefficients[j], tables().prime(static_cast<int>(number)).q);
    levelled_->transform(words.data(), 1, tables().prime_count(), false, 1);
    levelled_->prepare(words.data(), 1, tables().prime_count(), words.data(), 1);
    return words;
}

// Row d: c_0 = P g_d S' + t e_d - c_1 S, g_d = 1 modulo the primes of digit d and 0 modulo the others; P is 0 modulo its own.
// source: S', [every prime][N], transformed, times 2^32.
Seed LevelledKey::switch_key_from(const SecretVector<std::uint32_t>& source, std::uint32_t* bodies) const {
    const std::size_t n = tables().polynomial_size();
    const int primes = tables().prime_count(), digits = tables().digit_count(tables().level_count());
    const cpu::LevelledKernels& kernels = cpu::select_kernels().levelled;
    Randomness randomness = fresh_randomness();
    SecretVector<std::int32_t> noise(n);
    SecretVector<std::uint32_t> product(n);
    std::vector<std::uint32_t> mask(n);
    for (int digit = 0; digit < digits; ++digit) {
        sample_gaussian(randomness.stream, GaussianTable::kept(kLevelledSigma), n, noise.data());
        const LevelledTables::Range range = tables().digit(digit, tables().level_count());
        for (int number = 0; number < primes; ++number) {
            const LargePrime& prime = tables().prime(number);
            std::uint32_t* row =
                bodies +
                (static_cast<std::size_t>(digit) * static_cast<std::size_t>(primes) + static_cast<std::size_t>(number)) * n;
            for (std::size_t j = 0; j < n; ++j) product[j] = lifted(noise[j], prime.q);
            kernels.scale(prime, product.data(), nullptr, montgomery_factor(prime, tables().plain_modulus()), n, row);
            levelled_->transform_at(number, row);
            if (range.first <= number && number < range.last) {
                std::uint64_t special = 1;
                for (int i = tables().level_count(); i < primes; ++i)
                    special = mul_mod(special, tables().prime(i).q % prime.q, prime.q);
                kernels.scale(prime, source.data() + static_cast<std::size_t>(number) * n, nullptr,
                              static_cast<std::int32_t>(centred(special, prime.q)), n, product.data());
                kernels.add(prime, row, product.data(), false, n, row);
            }
            mask_of(randomness.seed, kDomainLevelledKey, static_cast<std::uint64_t>(digit), number, tables(), mask.data());
            const std::uint32_t *a = mask.data(), *s = prepared_.data() + static_cast<std::size_t>(number) * n;
            kernels.products(prime, &a, &s, 1, n, product.data());
            kernels.add(prime, row, product.data(), true, n, row);
        }
    }
    return randomness.seed;
}

// v = sum over i of y_i Q/q_i - u Q, y_i = [phase_i (Q/q_i)^-1] centred, u the integer next to sum y_i / q_i: v is within Q/2 of 0,
// and what it is modulo t is the message while t times the noise is.
void levelled_messages(const LevelledTables& tables, const std::uint32_t* phases, std::size_t batch, int level,
                       std::uint32_t* messages) {
    const std::size_t n = tables.polynomial_size(), l = static_cast<std::size_t>(level);
    const std::int64_t t = tables.plain_modulus();
    const cpu::LevelledKernels& kernels = cpu::select_kernels().levelled;
    const BaseChange change = BaseChange::make(tables, {0, level}, false);
    std::vector<std::int64_t> factors(l, 1);  // Q / q_i modulo t
    std::int64_t modulus = 1;                 // Q modulo t
    for (std::size_t i = 0; i < l; ++i) {
        const std::int64_t q = tables.prime(static_cast<int>(i)).q;
        modulus = modulus * (q % t) % t;
        for (std::size_t k = 0; k < l; ++k)
            if (k != i) factors[k] = factors[k] * (q % t) % t;
    }
    SecretVector<std::int32_t> y(n);
    SecretVector<std::int64_t> sums(n);
    SecretVector<double> turns(n);
    for (std::size_t b = 0; b < batch; ++b) {
        std::fill_n(sums.data(), n, 0);
        std::fill_n(turns.data(), n, 0.0);
        for (std::size_t i = 0; i < l; ++i) {
            const LargePrime& prime = tables.prime(static_cast<int>(i));
            kernels.centre(prime, phases + (b * l + i) * n, change.scale[i], n, y.data());
            for (std::size_t j = 0; j < n; ++j) {
                sums[j] += y[j] * factors[i];  // below 2^27 2^26 and at most 93 of them
                turns[j] += static_cast<double>(y[j]) / prime.q;
            }
        }
        for (std::size_t j = 0; j < n; ++j) {
            const std::int64_t v = (sums[j] - static_cast<std::int64_t>(std::nearbyint(turns[j])) * modulus) % t;
            messages[b * n + j] = static_cast<std::uint32_t>(v + (t & (v >> 63)));
        }
    }
}

void expand_levelled(const LevelledTables& tables, const Seed& seed, std::uint64_t first, const std::uint32_t* bodies,
                     std::size_t batch, int level, std::uint32_t* out) {
    const std::size_t n = tables.polynomial_size(), l = static_cast<std::size_t>(level);
    for (std::size_t b = 0; b < batch; ++b) {
        std::memcpy(out + 2 * b * l * n, bodies + b * l * n, l * n * sizeof *out);
        for (std::size_t number = 0; number < l; ++number)
            mask_of(seed, kDomainLevelled, first + b, static_cast<int>(number), tables, out + ((2 * b + 1) * l + number) * n);
    }
}

void expand_levelled_key(const cpu::Levelled& levelled, const Seed& seed, const std::uint32_t* bodies, std::uint32_t* out,
                         int threads) {
    const LevelledTables& tables = levelled.tables();
    const std::size_t n = tables.polynomial_size(), primes = static_cast<std::size_t>(tables.prime_count());
    const auto digits = static_cast<std::size_t>(tables.digit_count(tables.level_count()));
    for (std::size_t digit = 0; digit < digits; ++digit) {
        std::uint32_t* row = out + 2 * digit * primes * n;
        std::memcpy(row, bodies + digit * primes * n, primes * n * sizeof *row);
        for (std::size_t number = 0; number < primes; ++number)
            mask_of(seed, kDomainLevelledKey, digit, static_cast<int>(number), tables, row + (primes + number) * n);
    }
    levelled.prepare(out, 2 * digits, tables.prime_count(), out, threads);
}

}  // namespace fhe_core
