// Kernels of levelled arithmetic (levelled.hpp). Words are residues in [0, q); Montgomery products, exact in residues, so that they
// are those of the CPU. Neighbouring threads have neighbouring columns.
#include "cuda/levelled/levelled_launch.hpp"

#include <algorithm>

#include "cuda/device/bits.cuh"
#include "cuda/device/block.cuh"
#include "cuda/transform/large_ntt.cuh"

namespace fhe_core::cuda {
namespace {

constexpr int kTermsAtOnce = 64;  // products of words below 2^28: sums below 2^62

struct LevelledModulus : LargeModulus {
    std::uint32_t q_inverse;

    FHE_HD explicit LevelledModulus(const LargePrime& prime) : LargeModulus(prime), q_inverse(prime.q_inverse) {}

    // x / 2^32, |x| < 2^62: within q / 2 of that number.
    FHE_HD std::int32_t reduced(std::int64_t x) const {
        const auto k = static_cast<std::int32_t>(static_cast<std::uint32_t>(x) * q_inverse);
        return static_cast<std::int32_t>(x >> 32) - static_cast<std::int32_t>(std::int64_t{k} * static_cast<std::int32_t>(q) >> 32);
    }
    FHE_HD std::uint32_t product(std::int32_t a, std::int32_t b) const { return residue(reduced(std::int64_t{a} * b)); }
    // a + b for residues
    FHE_HD std::uint32_t sum(std::uint32_t a, std::uint32_t b) const { return lifted(a + b - q); }
    FHE_HD std::uint32_t difference(std::uint32_t a, std::uint32_t b) const { return lifted(a - b); }
    FHE_HD std::uint32_t lifted(std::uint32_t x) const {  // (-q, q) -> [0, q)
        const std::uint32_t other = x + q;
        return x < other ? x : other;
    }
};

FHE_HD std::int32_t as_signed(std::uint32_t word) { return static_cast<std::int32_t>(word); }

// Word number i of [polynomials][level][N].
struct Position {
    std::size_t polynomial;
    int prime;
    std::size_t column;

    FHE_HD Position(std::size_t i, int log_size, int level)
        : polynomial((i >> log_size) / static_cast<unsigned>(level)),
          prime(static_cast<int>((i >> log_size) % static_cast<unsigned>(level))),
          column(i & ((std::size_t{1} << log_size) - 1)) {}
};

struct ScaleBody {
    static constexpr int kThreads = 256;
    LevelledScaling a;

    template <class Block>
    FHE_HD void operator()(const Block& block, unsigned char*) const {
        block.each_of_grid(a.polynomials * a.level << a.log_size, [&](std::size_t i) {
            const Position at(i, a.log_size, a.level);
            const LevelledModulus m(a.primes[at.prime]);
            std::int32_t x = as_signed(a.a[((at.polynomial * a.a_rows + at.prime) << a.log_size) + at.column]);
            if (a.b != nullptr) x -= as_signed(a.b[i]);
            a.out[i] = m.product(x, a.factors[at.prime]);
        });
    }
};

struct AddBody {
    static constexpr int kThreads = 256;
    LevelledAddition a;

    template <class Block>
    FHE_HD void operator()(const Block& block, unsigned char*) const {
        block.each_of_grid(a.polynomials * a.level << a.log_size, [&](std::size_t i) {
            const LevelledModulus m(a.primes[Position(i, a.log_size, a.level).prime]);
            a.out[i] = a.negative ? m.difference(a.a[i], a.b[i]) : m.sum(a.a[i], a.b[i]);
        });
    }
};

struct AutomorphismBody {
    static constexpr int kThreads = 256;
    LevelledAutomorphism a;

    // Position i holds the value at psi^E, E = 2 brv(i) + 1; of the image it is the value at psi^(E g).
    template <class Block>
    FHE_HD void operator()(const Block& block, unsigned char*) const {
        const std::uint32_t mask = (2u << a.log_size) - 1;
        block.each_of_grid(a.rows << a.log_size, [&](std::size_t i) {
            const std::size_t row = i >> a.log_size << a.log_size;
            const std::uint32_t exponent = (2 * reverse_position(static_cast<std::uint32_t>(i - row), a.log_size) + 1) * a.g & mask;
            a.out[i] = a.words[row + reverse_position(exponent >> 1, a.log_size)];
        });
    }
};

struct MultiplyBody {
    static constexpr int kThreads = 256;
    LevelledProduct a;

    template <class Block>
    FHE_HD void operator()(const Block& block, unsigned char*) const {
        block.each_of_grid(a.batch * a.level << a.log_size, [&](std::size_t i) {
            const Position at(i, a.log_size, a.level);
            const LevelledModulus m(a.primes[at.prime]);
            const auto of = [&](int parts, int part) {
                return (((at.polynomial * parts + part) * a.level + at.prime) << a.log_size) + at.column;
            };
            const auto prepared = [&](int part) {
                return std::int64_t{m.product(as_signed(a.a[of(2, part)]), a.prepare[at.prime])};
            };
            const std::int64_t a0 = prepared(0), a1 = prepared(1), b0 = a.b[of(2, 0)], b1 = a.b[of(2, 1)];
            a.out[of(3, 0)] = m.residue(m.reduced(a0 * b0));
            a.out[of(3, 1)] = m.residue(m.reduced(a0 * b1 + a1 * b0));
            a.out[of(3, 2)] = m.residue(m.reduced(a1 * b1));
        });
    }
};

// A sum of products of residues, as many as there are.
struct Total {
    std::uint64_t sum = 0;
    std::uint32_t residue = 0;

    FHE_HD void fold(const LevelledModulus& m) {
        residue = m.sum(residue, m.residue(m.reduced(static_cast<std::int64_t>(sum))));
        sum = 0;
    }
};

// A thread has a column of some rows and parts: a word of the table serves the parts, one of the ciphertexts the rows.
struct ProductsBody {
    static constexpr int kThreads = 256, kRows = 4, kParts = 2;
    LevelledProducts a;

    std::size_t row_groups() const { return (a.rows + kRows - 1) / kRows; }
    std::size_t part_groups() const { return (a.parts + kParts - 1) / kParts; }
    // Those that share columns follow each other.
    std::size_t blocks() const { return row_groups() * part_groups() * ((std::size_t(a.level) << a.log_size) / kThreads); }

    template <class Block>
    FHE_HD void operator()(const Block& block, unsigned char*) const {
        const std::size_t of_rows = (a.rows + kRows - 1) / kRows, of_parts = (a.parts + kParts - 1) / kParts;
        const std::size_t number = block.number();
        const std::size_t first_row = number % of_rows * kRows, first_part = number / of_rows % of_parts * kParts;
        const std::size_t size = std::size_t{1} << a.log_size, first = number / of_rows / of_parts * kThreads;
        const std::size_t prime = first >> a.log_size, level = static_cast<std::size_t>(a.level);
        const LevelledModulus m(a.primes[prime]);
        block.each(kThreads, [&](int thread) {
            const std::size_t column = (first & (size - 1)) + static_cast<std::size_t>(thread);
            const std::uint32_t *x[kParts], *y[kRows];
            for (int part = 0; part < kParts; ++part)
                x[part] = a.words + ((least(first_part + part, a.parts - 1) * level + prime) << a.log_size) + column;
            for (int row = 0; row < kRows; ++row)
                y[row] = a.prepared + ((least(first_row + row, a.rows - 1) * a.terms * level + prime) << a.log_size) + column;
            const std::size_t x_step = a.parts * level << a.log_size, y_step = level << a.log_size;
            Total totals[kRows][kParts];
            for (std::size_t term = 0; term < a.terms; term += kTermsAtOnce) {
                const std::size_t last = least(term + kTermsAtOnce, a.terms);
                for (std::size_t k = term; k < last; ++k) {
                    std::uint64_t words[kParts];
                    for (int part = 0; part < kParts; ++part) words[part] = x[part][k * x_step];
                    for (int row = 0; row < kRows; ++row) {
                        const std::uint32_t factor = y[row][k * y_step];
                        for (int part = 0; part < kParts; ++part) totals[row][part].sum += words[part] * factor;
                    }
                }
                for (auto& row : totals)
                    for (Total& total : row) total.fold(m);
            }
            for (int row = 0; row < kRows; ++row)
                for (int part = 0; part < kParts; ++part)
                    if (first_row + row < a.rows && first_part + part < a.parts)
                        a.out[((((first_row + row) * a.parts + first_part + part) * level + prime) << a.log_size) + column] =
                            totals[row][part].residue;
        });
    }

   private:
    FHE_HD static std::size_t least(std::size_t x, std::size_t y) { return x < y ? x : y; }
};

// Columns of the primes changed from, centred, and the factors of some targets in shared memory; a thread has four columns of them.
struct ChangeBody {
    static constexpr int kThreads = 128, kWide = 4, kTargets = 4;
    static constexpr std::size_t kMostShared = 48 << 10;
    LevelledChange a;
    int columns;  // of a block

    explicit ChangeBody(const LevelledChange& arguments) : a(arguments), columns(kWide * kThreads) {
        while (shared_bytes() > kMostShared) columns /= 2;
    }
    std::size_t shared_bytes() const { return std::size_t(a.terms) * (columns + kTargets) * sizeof(std::int32_t); }
    std::size_t blocks() const { return a.items * ((std::size_t{1} << a.log_size) / columns) * groups(); }
    FHE_HD std::size_t groups() const { return static_cast<std::size_t>((a.targets + kTargets - 1) / kTargets); }

    FHE_HD int prime_of(int target) const {
        const int number = target < a.skip_first ? target : target + a.skip_count;
        return number < a.level ? number : number + a.gap;
    }

    template <class Block>
    FHE_HD void operator()(const Block& block, unsigned char* shared) const {
        auto* const centred = reinterpret_cast<std::int32_t*>(shared);
        std::int32_t* const factors = centred + a.terms * columns;  // [terms][kTargets]
        const std::size_t tiles = (std::size_t{1} << a.log_size) / columns, number = block.number();
        const int first_target = static_cast<int>(number % groups()) * kTargets;
        const std::size_t item = number / groups() / tiles, column = number / groups() % tiles * columns;
        const std::uint32_t* const in = a.in + ((item * a.in_rows + a.in_first) << a.log_size) + column;
        std::uint32_t* const out = a.out + ((item * a.out_rows + a.out_first) << a.log_size) + column;
        const int quads = columns / kWide;
        block.each(a.terms * quads, [&](int i) {
            const int term = i / quads, at = i % quads;
            const LevelledModulus m(a.primes[a.first_prime + term]);
            Vec4 four = reinterpret_cast<const Vec4*>(in + (std::size_t(term) << a.log_size))[at];
            for (std::int32_t& x : four.x) {
                const std::uint32_t y = m.product(x, a.scale[term]);
                x = as_signed(y > m.q / 2 ? y - m.q : y);
            }
            reinterpret_cast<Vec4*>(centred)[i] = four;
            if (at < kTargets)
                factors[term * kTargets + at] =
                    a.matrix[prime_of(first_target + at < a.targets ? first_target + at : first_target) * a.terms + term];
        });
        block.each(quads, [&](int thread) {
            std::int64_t sums[kTargets][kWide] = {};

#pragma unroll 2
            for (int term = 0; term < a.terms; ++term) {
                const Vec4 x = reinterpret_cast<const Vec4*>(centred)[term * quads + thread];
                const Vec4 factor = reinterpret_cast<const Vec4*>(factors)[term];
                for (int k = 0; k < kTargets; ++k)
                    for (int w = 0; w < kWide; ++w) sums[k][w] += std::int64_t{x.x[w]} * factor.x[k];
            }
            for (int k = 0; k < kTargets; ++k) {
                if (first_target + k >= a.targets) continue;
                const LevelledModulus m(a.primes[prime_of(first_target + k)]);
                Vec4 four;
                for (int w = 0; w < kWide; ++w) four.x[w] = as_signed(m.residue(m.reduced(sums[k][w])));
                reinterpret_cast<Vec4*>(out + (std::size_t(first_target + k) << a.log_size))[thread] = four;
            }
        });
    }
};

// A thread has a column of one target, of some items: a word of the key serves them all.
template <int items>
struct SumsBody {
    static constexpr int kThreads = 256, kItems = items;
    LevelledSums a;

    FHE_HD std::size_t groups() const { return (a.items + kItems - 1) / kItems; }
    std::size_t blocks() const { return groups() * ((std::size_t(a.level + a.special) << a.log_size) / kThreads); }

    template <class Block>
    FHE_HD void operator()(const Block& block, unsigned char*) const {
        const std::size_t first_item = block.number() % groups() * kItems, first = block.number() / groups() * kThreads;
        const int target = static_cast<int>(first >> a.log_size), targets = a.level + a.special;
        const int prime = target < a.level ? target : a.every - a.special + (target - a.level);
        const LevelledModulus m(a.primes[prime]);
        block.each(kThreads, [&](int thread) {
            const std::size_t column = (first & ((std::size_t{1} << a.log_size) - 1)) + static_cast<std::size_t>(thread);
            Total totals[kItems][2];

#pragma unroll 2
            for (int digit = 0; digit < a.digits; ++digit) {
                const int own = digit * a.digit_primes, end = own + a.digit_primes < a.level ? own + a.digit_primes : a.level;
                const bool within = own <= target && target < end;
                const int row = digit * (targets - a.digit_primes) + (target < own ? target : target - (end - own));
                const std::uint32_t* const key = a.key + ((std::size_t(digit) * 2 * a.every + prime) << a.log_size) + column;
                const std::uint64_t y0 = key[0], y1 = key[std::size_t(a.every) << a.log_size];
                for (int item = 0; item < kItems; ++item) {
                    const std::size_t number = first_item + item < a.items ? first_item + item : first_item;
                    const std::uint64_t x = within ? a.words[((number * a.level + target) << a.log_size) + column]
                                                   : a.raised[((number * a.raised_rows + row) << a.log_size) + column];
                    totals[item][0].sum += x * y0;
                    totals[item][1].sum += x * y1;
                }
                if ((digit + 1) % kTermsAtOnce == 0)
                    for (auto& item : totals)
                        for (Total& total : item) total.fold(m);
            }
            for (int item = 0; item < kItems; ++item)
                for (int part = 0; part < 2; ++part) {
                    if (first_item + item >= a.items) continue;
                    totals[item][part].fold(m);
                    a.sums[((((first_item + item) * 2 + part) * targets + target) << a.log_size) + column] =
                        totals[item][part].residue;
                }
        });
    }
};

}  // namespace

void launch_levelled_scale(const LevelledScaling& a, cudaStream_t stream) {
    launch_over(ScaleBody{a}, a.polynomials * a.level << a.log_size, stream);
}

void launch_levelled_add(const LevelledAddition& a, cudaStream_t stream) {
    launch_over(AddBody{a}, a.polynomials * a.level << a.log_size, stream);
}

void launch_levelled_products(const LevelledProducts& a, cudaStream_t stream) {
    const ProductsBody body{a};
    launch(body, body.blocks(), 0, stream);
}

void launch_levelled_multiply(const LevelledProduct& a, cudaStream_t stream) {
    launch_over(MultiplyBody{a}, a.batch * a.level << a.log_size, stream);
}

void launch_levelled_automorphism(const LevelledAutomorphism& a, cudaStream_t stream) {
    launch_over(AutomorphismBody{a}, a.rows << a.log_size, stream);
}

void launch_levelled_change(const LevelledChange& a, cudaStream_t stream) {
    const ChangeBody body(a);
    launch(body, body.blocks(), body.shared_bytes(), stream);
}

void launch_levelled_sums(const LevelledSums& a, cudaStream_t stream) {
    const auto launch_with = [&](const auto& body) { launch(body, body.blocks(), 0, stream); };
    if (a.items == 1)
        launch_with(SumsBody<1>{a});
    else
        launch_with(SumsBody<4>{a});
}

}  // namespace fhe_core::cuda
