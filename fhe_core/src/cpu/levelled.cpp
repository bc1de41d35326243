#include "cpu/levelled.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/bit_reverse.hpp"
#include "core/modular.hpp"
#include "cpu/kernels.hpp"
#include "cpu/parallel.hpp"

namespace fhe_core::cpu {
namespace {

constexpr std::size_t kTile = 1024;  // columns at a time in changes of primes and in sums of products: operands stay in L1

// body(i) for i in [0, count).
template <class Body>
void for_each(std::size_t count, int threads, const Body& body) {
    const Progress none;
    Monitor monitor(none, count);
    parallel_shares(count, threads, monitor, [&](std::size_t first, std::size_t last) {
        for (std::size_t i = first; i < last; ++i) body(i);
    });
}

BaseChange special_change(const LevelledTables& tables) {
    return BaseChange::make(tables, {tables.level_count(), tables.prime_count()}, true);
}

}  // namespace

Levelled::Levelled(std::shared_ptr<const LevelledTables> tables) : tables_(std::move(tables)), special_(special_change(*tables_)) {
    for (int level = 1; level <= tables_->level_count(); ++level)
        digits_.push_back(BaseChange::make(*tables_, tables_->digit(tables_->digit_count(level) - 1, level), false));
}

void Levelled::transform_one(int prime, std::uint32_t* words, bool inverse) const {
    thread_local std::vector<std::int32_t> scratch;
    scratch.resize(kLargeNttScratchWords);
    const LargeNttTables& ntt = tables_->ntt();
    const auto number = static_cast<std::size_t>(prime);
    select_kernels().large_ntt({ntt.layout().n1, &ntt.prime(number), ntt.roots(number), words, scratch.data()}, inverse);
}

void Levelled::transform(std::uint32_t* words, std::size_t polynomials, int level, bool inverse, int threads) const {
    const std::size_t n = tables_->polynomial_size(), l = static_cast<std::size_t>(level);
    for_each(polynomials * l, threads, [&](std::size_t i) { transform_one(static_cast<int>(i % l), words + i * n, inverse); });
}

void Levelled::prepare(const std::uint32_t* words, std::size_t polynomials, int level, std::uint32_t* out, int threads) const {
    const std::size_t n = tables_->polynomial_size(), l = static_cast<std::size_t>(level);
    const LevelledKernels& kernels = select_kernels().levelled;
    for_each(polynomials * l, threads, [&](std::size_t i) {
        const LargePrime& prime = tables_->prime(static_cast<int>(i % l));
        kernels.scale(prime, words + i * n, nullptr, montgomery_factor(prime, std::uint64_t{1} << 32), n, out + i * n);
    });
}

void Levelled::add(const std::uint32_t* a, const std::uint32_t* b, bool negative, std::size_t polynomials, int level,
                   std::uint32_t* out, int threads) const {
    const std::size_t n = tables_->polynomial_size(), l = static_cast<std::size_t>(level);
    const LevelledKernels& kernels = select_kernels().levelled;
    for_each(polynomials * l, threads, [&](std::size_t i) {
        kernels.add(tables_->prime(static_cast<int>(i % l)), a + i * n, b + i * n, negative, n, out + i * n);
    });
}

void Levelled::scale(const std::uint32_t* words, std::int64_t factor, std::size_t polynomials, int level, std::uint32_t* out,
                     int threads) const {
    const std::size_t n = tables_->polynomial_size(), l = static_cast<std::size_t>(level);
    const LevelledKernels& kernels = select_kernels().levelled;
    for_each(polynomials * l, threads, [&](std::size_t i) {
        const LargePrime& prime = tables_->prime(static_cast<int>(i % l));
        kernels.scale(prime, words + i * n, nullptr, montgomery_factor(prime, residue(factor, prime.q)), n, out + i * n);
    });
}

void Levelled::products(const std::uint32_t* words, const std::uint32_t* prepared, std::size_t rows, std::size_t terms,
                        std::size_t parts, int level, std::uint32_t* out, int threads, const Progress& progress) const {
    const std::size_t n = tables_->polynomial_size(), l = static_cast<std::size_t>(level);
    const LevelledKernels& kernels = select_kernels().levelled;
    const std::size_t tile = std::min(n, kTile);
    Monitor monitor(progress, rows * l);
    parallel_shares(rows * l, threads, monitor, [&](std::size_t first, std::size_t last) {
        std::vector<const std::uint32_t*> a(terms), b(terms);
        for (std::size_t i = first; i < last; ++i) {
            const std::size_t row = i / l, prime = i % l;
            for (std::size_t column = 0; column < n; column += tile)
                for (std::size_t part = 0; part < parts; ++part) {
                    for (std::size_t k = 0; k < terms; ++k) {
                        a[k] = words + ((k * parts + part) * l + prime) * n + column;
                        b[k] = prepared + ((row * terms + k) * l + prime) * n + column;
                    }
                    kernels.products(tables_->prime(static_cast<int>(prime)), a.data(), b.data(), terms, tile,
                                     out + ((row * parts + part) * l + prime) * n + column);
                }
            monitor.advance(1);
        }
    });
}

void Levelled::multiply(const std::uint32_t* a, const std::uint32_t* b, std::size_t batch, int level, std::uint32_t* out,
                        int threads) const {
    const std::size_t n = tables_->polynomial_size(), l = static_cast<std::size_t>(level);
    const LevelledKernels& kernels = select_kernels().levelled;
    for_each(batch * l, threads, [&](std::size_t i) {
        const LargePrime& prime = tables_->prime(static_cast<int>(i % l));
        const std::int32_t factor = montgomery_factor(prime, std::uint64_t{1} << 32);
        const auto part = [&](const std::uint32_t* of, std::size_t number) { return of + ((i / l * 2 + number) * l + i % l) * n; };
        const auto result = [&](std::size_t number) { return out + ((i / l * 3 + number) * l + i % l) * n; };
        thread_local std::vector<std::uint32_t> prepared;
        prepared.resize(2 * n);
        for (std::size_t number = 0; number < 2; ++number)
            kernels.scale(prime, part(a, number), nullptr, factor, n, prepared.data() + number * n);
        const std::uint32_t *a0 = prepared.data(), *a1 = prepared.data() + n, *b0 = part(b, 0), *b1 = part(b, 1);
        const std::uint32_t *left[] = {a0, a1}, *right[] = {b1, b0};
        kernels.products(prime, &left[0], &right[1], 1, n, result(0));
        kernels.products(prime, left, right, 2, n, result(1));
        kernels.products(prime, &left[1], &right[0], 1, n, result(2));
    });
}

void Levelled::automorphism(const std::uint32_t* words, std::uint64_t g, std::size_t polynomials, int level, std::uint32_t* out,
                            int threads) const {
    const std::size_t n = tables_->polynomial_size(), l = static_cast<std::size_t>(level);
    const int log_size = tables_->ntt().log_size();
    // Position i holds the value at psi^E, E = 2 brv(i) + 1; of the image it is the value at psi^(E g).
    std::vector<std::uint32_t> source(n);
    for (std::size_t i = 0; i < n; ++i) {
        const std::uint64_t exponent = (2 * bit_reverse(i, log_size) + 1) * g % (2 * n);
        source[i] = static_cast<std::uint32_t>(bit_reverse((exponent - 1) / 2, log_size));
    }
    for_each(polynomials * l, threads, [&](std::size_t row) {
        const std::uint32_t* from = words + row * n;
        std::uint32_t* to = out + row * n;
        for (std::size_t i = 0; i < n; ++i) to[i] = from[source[i]];
    });
}

void Levelled::keyswitch(const std::uint32_t* words, std::size_t batch, int level, const std::uint32_t* key, std::uint32_t* out,
                         int threads, const Progress& progress) const {
    const LevelledTables& tables = *tables_;
    const std::size_t n = tables.polynomial_size(), l = static_cast<std::size_t>(level);
    const std::size_t every = static_cast<std::size_t>(tables.prime_count()),
                      special = static_cast<std::size_t>(tables.special_count());
    const std::size_t targets = l + special, tile = std::min(n, kTile);
    const std::size_t digits = static_cast<std::size_t>(tables.digit_count(level));
    const LevelledKernels& kernels = select_kernels().levelled;
    const auto number = [&](std::size_t target) { return static_cast<int>(target < l ? target : every - special + (target - l)); };
    const auto change_of = [&](std::size_t digit) -> const BaseChange& {
        return digits_[static_cast<std::size_t>(tables.digit(static_cast<int>(digit), level).last) - 1];
    };
    std::vector<std::uint32_t> coefficients(l * n), raised(digits * targets * n), sums(2 * targets * n);
    std::vector<std::int32_t> centred(l * n);
    Monitor monitor(progress, batch);
    for (std::size_t b = 0; b < batch; ++b) {
        const std::uint32_t* in = words + b * l * n;
        for_each(l, threads, [&](std::size_t i) {
            const BaseChange& change = change_of(i / static_cast<std::size_t>(tables.digit_primes()));
            std::uint32_t* row = coefficients.data() + i * n;
            std::memcpy(row, in + i * n, n * sizeof *row);
            transform_one(static_cast<int>(i), row, true);
            kernels.centre(tables.prime(static_cast<int>(i)), row, change.scale[i - static_cast<std::size_t>(change.from.first)], n,
                           centred.data() + i * n);
        });
        for_each(digits * targets, threads, [&](std::size_t i) {
            const std::size_t digit = i / targets, target = i % targets;
            const BaseChange& change = change_of(digit);
            const auto first = static_cast<std::size_t>(change.from.first), last = static_cast<std::size_t>(change.from.last);
            std::uint32_t* row = raised.data() + i * n;
            if (first <= target && target < last) {
                std::memcpy(row, in + target * n, n * sizeof *row);
                return;
            }
            const int prime = number(target);
            const std::int32_t* factors = change.matrix.data() + static_cast<std::size_t>(prime) * (last - first);
            for (std::size_t column = 0; column < n; column += tile)
                kernels.change(tables.prime(prime), centred.data() + first * n + column, n, factors, last - first, tile,
                               row + column);
            transform_one(prime, row, false);
        });
        for_each(2 * targets, threads, [&](std::size_t i) {
            const std::size_t part = i / targets, target = i % targets, prime = static_cast<std::size_t>(number(target));
            std::vector<const std::uint32_t*> x(digits), y(digits);
            for (std::size_t digit = 0; digit < digits; ++digit) {
                x[digit] = raised.data() + (digit * targets + target) * n;
                y[digit] = key + ((digit * 2 + part) * every + prime) * n;
            }
            kernels.products(tables.prime(static_cast<int>(prime)), x.data(), y.data(), digits, n, sums.data() + i * n);
        });
        divide(sums.data(), 2, level, special_, out + b * 2 * l * n, threads);
        monitor.advance(1);
    }
}

void Levelled::modulus_switch(const std::uint32_t* words, std::size_t polynomials, int level, int keep, std::uint32_t* out,
                              int threads) const {
    divide(words, polynomials, keep, BaseChange::make(*tables_, {keep, level}, true), out, threads);
}

void Levelled::divide(const std::uint32_t* words, std::size_t polynomials, int keep, const BaseChange& change, std::uint32_t* out,
                      int threads) const {
    const LevelledTables& tables = *tables_;
    const std::size_t n = tables.polynomial_size(), kept = static_cast<std::size_t>(keep), tile = std::min(n, kTile);
    const std::size_t dropped = change.scale.size(), all = kept + dropped;
    const LevelledKernels& kernels = select_kernels().levelled;
    std::vector<std::uint32_t> coefficients(polynomials * dropped * n);
    std::vector<std::int32_t> centred(coefficients.size());
    for_each(polynomials * dropped, threads, [&](std::size_t i) {
        const std::size_t which = i % dropped;
        const int prime = change.from.first + static_cast<int>(which);
        std::uint32_t* row = coefficients.data() + i * n;
        std::memcpy(row, words + (i / dropped * all + kept + which) * n, n * sizeof *row);
        transform_one(prime, row, true);
        kernels.centre(tables.prime(prime), row, change.scale[which], n, centred.data() + i * n);
    });
    for_each(polynomials * kept, threads, [&](std::size_t i) {
        const std::size_t polynomial = i / kept, target = i % kept;
        const LargePrime& prime = tables.prime(static_cast<int>(target));
        thread_local std::vector<std::uint32_t> lift;
        lift.resize(n);
        for (std::size_t column = 0; column < n; column += tile)
            kernels.change(prime, centred.data() + polynomial * dropped * n + column, n, change.matrix.data() + target * dropped,
                           dropped, tile, lift.data() + column);
        transform_one(static_cast<int>(target), lift.data(), false);
        kernels.scale(prime, words + (polynomial * all + target) * n, lift.data(), change.divide[target], n, out + i * n);
    });
}

}  // namespace fhe_core::cpu
