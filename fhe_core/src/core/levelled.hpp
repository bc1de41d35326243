// Levelled arithmetic: ciphertexts of the scheme BGV modulo products of primes of 27 and 28 bits, exact in residues. What both back
// ends share.
//
// A ciphertext at level l has 2 or 3 polynomials modulo Q_l = q_1 .. q_l, [parts][l][N], transformed (large_ntt.hpp); its phase
// c_0 + c_1 S + c_2 S^2 modulo Q_l is m + t e for messages m modulo t and a noise e. P = p_1 .. p_k are special primes: keys are
// modulo Q P, which carries their noise away.
//   key switching   digit d of a polynomial c is what it is modulo the primes of the digit, D = their product:
//                   c_d = sum over i of [c (D/q_i)^-1]_{q_i} D/q_i, of size D; raised to the other primes, times the key's row d,
//                   summed
//   division by P   c - t [c / t]_P, times 1/P: P divides it, and modulo t it is c / P. [.]_P by the same change of primes, which
//   may
//                   be off by multiples of P, so that inverse transform, change of primes, transform, subtraction are all there is
// Every [.]_q in a change of primes is centred: what is off is then as often too much as too little.
//
// Source: [BGV12] the scheme; [HK20] hybrid key switching; [CHK+18] changes of primes without exact residues. Ours: centred
// residues; everything in words of 32 bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/backend.hpp"
#include "core/large_ntt.hpp"

namespace fhe_core {

inline constexpr std::uint32_t kLeastPlainModulus = 2, kPlainModulusLimit = 1u << 26;  // below every prime

// Primes and what is precomputed for changes between them.
class LevelledTables {
   public:
    // primes: q_1 .., then `special_count` special ones. digit_primes: of a digit of key switching, the last may have fewer.
    // ParameterError: as LargeNttTables; a plaintext modulus outside [2, 2^26); no special primes, or fewer than a digit has.
    LevelledTables(int log_size, std::span<const std::uint32_t> primes, int special_count, int digit_primes,
                   std::uint32_t plain_modulus);

    const LargeNttTables& ntt() const { return ntt_; }
    std::size_t polynomial_size() const { return ntt_.polynomial_size(); }
    int prime_count() const { return static_cast<int>(ntt_.prime_count()); }  // with the special ones
    int level_count() const { return prime_count() - special_count_; }
    int special_count() const { return special_count_; }
    int digit_primes() const { return digit_primes_; }
    std::uint32_t plain_modulus() const { return plain_modulus_; }
    const LargePrime& prime(int number) const { return ntt_.prime(static_cast<std::size_t>(number)); }

    // Digits that a polynomial of `level` primes has, and the primes of one.
    int digit_count(int level) const { return (level + digit_primes_ - 1) / digit_primes_; }
    struct Range {
        int first, last;
    };
    Range digit(int number, int level) const;

   private:
    LargeNttTables ntt_;
    int special_count_, digit_primes_;
    std::uint32_t plain_modulus_;
};

// From residues modulo the primes F = [from.first, from.last), product M, to others. Entries for Montgomery products: times 2^32,
// centred.
struct BaseChange {
    LevelledTables::Range from;
    std::vector<std::int32_t> scale;   // [F] (M / f_i)^-1 modulo f_i; of a division by M likewise times 1 / t
    std::vector<std::int32_t> matrix;  // [every prime][F] M / f_i modulo that prime; of a division times t
    std::vector<std::int32_t> divide;  // [every prime] 1 / M modulo that prime, 0 within F

    // division: of words m + t e by M, which leaves m / M modulo t.
    static BaseChange make(const LevelledTables& tables, LevelledTables::Range from, bool division);
};

// w times 2^32 modulo the prime, centred: what a Montgomery product multiplies by.
std::int32_t montgomery_factor(const LargePrime& prime, std::uint64_t w);

}  // namespace fhe_core
