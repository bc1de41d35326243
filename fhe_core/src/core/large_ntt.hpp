// Negacyclic transforms of 2^12 to 2^17 points modulo many primes of 27 and 28 bits, for levelled arithmetic: what both back ends
// share.
//
// N = N1 * N2 with N2 = 256. A polynomial is a matrix [N1][256], coefficient 256 r + j at row r, column j.
//   1. columns: log2 N1 stages of the negacyclic transform over r, Cooley-Tukey with merged roots psi^brv(node), the same for all
//   columns
//   2. twist: row r (now in bit-reversed order), column j times psi^(j R), R = 2 brv(r) + 1
//   3. rows: cyclic transforms of 256 points over j, the same roots for all rows
// Position i of the result is the value at psi^(2 brv(i) + 1), as in every transform of the engine. No step needs a root of its own
// for each of the N points: tables have 60 KB a prime where merged roots would take 8 N bytes (1 MB), and powers psi^(j R) are made
// on the fly.
//
// Source: [KJPA20] two kernels, roots on the fly from two tables; [LN16] merged roots; [Har14] products by constants. Ours: the
// twist between the halves, so that both halves have roots common to all their lanes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace fhe_core {

inline constexpr int kLeastLargeLog = 12, kMostLargeLog = 17;
inline constexpr int kRowLog = 8, kRowSize = 1 << kRowLog;  // N2
inline constexpr int kLowLog = 9;                           // psi^e = low[e mod 2^9] * high[e / 2^9]
inline constexpr int kLargePrimeBits = 28;                  // primes are in (2^26, 2^28): 8 q < 2^31

// w in (-q/2, q/2) and round(w * 2^32 / q), for products by w without a division (Shoup).
struct Root {
    std::int32_t value;
    std::int32_t companion;
};

// Where the tables of a prime are, in roots from its first; N1 = 2^n1.
struct LargeNttLayout {
    int n1;

    constexpr std::size_t column_count() const { return std::size_t{1} << n1; }
    // Node m = 2^stage + block of the column stages, and its inverse.
    constexpr std::size_t columns() const { return 0; }
    constexpr std::size_t columns_inverse() const { return column_count(); }
    // The same of row stages, [256]; entry 0 is not read.
    constexpr std::size_t rows() const { return 2 * column_count(); }
    constexpr std::size_t rows_inverse() const { return rows() + kRowSize; }
    // Row stages 4 to 7 for a device: [8][16][2], roots 2v and 2v + 1 of the block of 16 points number k at [v][k]; root 2^s + i:
    // node 2^s (16 + k) + i.
    constexpr std::size_t tails() const { return rows_inverse() + kRowSize; }
    constexpr std::size_t tails_inverse() const { return tails() + kRowSize; }
    constexpr std::size_t low() const { return tails_inverse() + kRowSize; }       // [512] psi^e
    constexpr std::size_t high() const { return low() + (1 << kLowLog); }          // [N1] psi^(512 e)
    constexpr std::size_t high_scaled() const { return high() + column_count(); }  // likewise, times 1 / N
    // [4096] powers of psi^(N1 / 8), of order 4096.
    constexpr std::size_t quarters() const { return high_scaled() + column_count(); }
    constexpr std::size_t root_count() const { return quarters() + 4096; }
};
static_assert(LargeNttLayout{kMostLargeLog - kRowLog}.root_count() * sizeof(Root) <= (64 << 10));

// What is known of a prime beside its roots.
struct LargePrime {
    std::uint32_t q;
    std::uint32_t q_inverse;  // modulo 2^32
    std::int64_t reciprocal;  // round(2^60 / q)
    std::int32_t montgomery;  // 2^32 mod q, centred
    std::int32_t one_over_n;  // 2^32 / N mod q, centred
    std::uint32_t psi;        // of order 2N: base^((q - 1) / 2N) of the least base for which that is so
};

class LargeNttTables {
   public:
    // ParameterError: a size that is not served; primes that are not distinct primes in (2^26, 2^28) with 2N | q - 1.
    LargeNttTables(int log_size, std::span<const std::uint32_t> primes);

    int log_size() const { return log_size_; }
    std::size_t polynomial_size() const { return std::size_t{1} << log_size_; }
    LargeNttLayout layout() const { return {log_size_ - kRowLog}; }
    std::size_t prime_count() const { return primes_.size(); }
    const LargePrime& prime(std::size_t number) const { return primes_[number]; }
    const Root* roots(std::size_t number) const { return roots_.data() + number * layout().root_count(); }
    std::span<const LargePrime> all_primes() const { return primes_; }
    std::span<const Root> all_roots() const { return roots_; }

   private:
    int log_size_;
    std::vector<LargePrime> primes_;
    std::vector<Root> roots_;  // [prime][root_count]
};

// The `count` largest primes below 2^28 with 2N | q - 1, decreasing. ParameterError: there are fewer above 2^26.
std::vector<std::uint32_t> large_ntt_primes(int log_size, std::size_t count);

// Ranges of signed words, in quarters of q: sums must stay within 32, for 8 q < 2^31.
inline constexpr int kMostQuarters = 32, kProductQuarters = 5;  // a product by a root is in (-q/4, 5q/4), whatever it is of

// fold(x, c): x - c for x >= 0, x + c below: from |x| < b to |x| <= max(c, b - c).
constexpr int folded(int bound, int by) { return bound - by > by ? bound - by : by; }

// Inverse (Gentleman-Sande) stages of P points, all within `bound` before: which slots are folded, and by what, before each stage
// and after the last, so that no sum leaves the words and all slots end within `after`. A bit for each fold: 4 by 4q, 2 by 2q, 1 by
// q.
template <int logs>
struct InversePlan {
    static constexpr int P = 1 << logs;
    int folds[logs + 1][P]{};  // [stage in order of the forward transform, executed from logs - 1 down]; folds[logs]: after all

    constexpr InversePlan(int before, int after) {
        int bound[P]{};
        for (int& b : bound) b = before;
        for (int stage = logs - 1; stage >= 0; --stage) {
            const int half = P >> (stage + 1);
            for (int low = 0; low < P; ++low) {
                if (low & half) continue;
                int &a = bound[low], &b = bound[low + half];
                while (a + b > kMostQuarters) fold(folds[stage][a >= b ? low : low + half], a >= b ? a : b);
                a = a + b;
                b = kProductQuarters;
            }
        }
        for (int slot = 0; slot < P; ++slot)
            while (bound[slot] > after) fold(folds[logs][slot], bound[slot]);
    }

   private:
    static constexpr void fold(int& mask, int& bound) {
        const int by = bound > 16 ? 16 : bound > 8 ? 8 : 4;
        mask |= by / 4;
        bound = folded(bound, by);
    }
};

}  // namespace fhe_core
