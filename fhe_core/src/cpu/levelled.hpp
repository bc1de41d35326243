// Levelled arithmetic on the CPU (levelled.hpp). Words are residues in [0, q), transformed unless it says otherwise.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/backend.hpp"
#include "core/levelled.hpp"

namespace fhe_core::cpu {

class Levelled {
   public:
    explicit Levelled(std::shared_ptr<const LevelledTables> tables);

    const LevelledTables& tables() const { return *tables_; }

    // words [polynomials][level][N], in place.
    void transform(std::uint32_t* words, std::size_t polynomials, int level, bool inverse, int threads) const;

    // One polynomial modulo one prime, forward.
    void transform_at(int prime, std::uint32_t* words) const { transform_one(prime, words, false); }

    // Words that products are taken with: times 2^32. [polynomials][level][N].
    void prepare(const std::uint32_t* words, std::size_t polynomials, int level, std::uint32_t* out, int threads) const;

    // a + b or a - b, [polynomials][level][N].
    void add(const std::uint32_t* a, const std::uint32_t* b, bool negative, std::size_t polynomials, int level, std::uint32_t* out,
             int threads) const;

    // Times an integer modulo each prime: [polynomials][level][N].
    void scale(const std::uint32_t* words, std::int64_t factor, std::size_t polynomials, int level, std::uint32_t* out,
               int threads) const;

    // out[r][part] = sum over k of words[k][part] * prepared[r][k]: words [terms][parts][level][N], prepared
    // [rows][terms][level][N].
    void products(const std::uint32_t* words, const std::uint32_t* prepared, std::size_t rows, std::size_t terms, std::size_t parts,
                  int level, std::uint32_t* out, int threads, const Progress& progress) const;

    // Ciphertexts of two parts each, [batch][2][level][N] -> [batch][3][level][N].
    void multiply(const std::uint32_t* a, const std::uint32_t* b, std::size_t batch, int level, std::uint32_t* out,
                  int threads) const;

    // X -> X^g, g odd: [polynomials][level][N].
    void automorphism(const std::uint32_t* words, std::uint64_t g, std::size_t polynomials, int level, std::uint32_t* out,
                      int threads) const;

    // Polynomials times the secret that `key` hides, as ciphertexts: [batch][level][N] -> [batch][2][level][N].
    // key [digit][2][every prime][N], prepared.
    void keyswitch(const std::uint32_t* words, std::size_t batch, int level, const std::uint32_t* key, std::uint32_t* out,
                   int threads, const Progress& progress) const;

    // Divided by the primes number `keep` to `level`: [polynomials][level][N] -> [polynomials][keep][N].
    void modulus_switch(const std::uint32_t* words, std::size_t polynomials, int level, int keep, std::uint32_t* out,
                        int threads) const;

   private:
    // words [polynomials][keep + F][N] with the primes F of the change last.
    void divide(const std::uint32_t* words, std::size_t polynomials, int keep, const BaseChange& change, std::uint32_t* out,
                int threads) const;
    void transform_one(int prime, std::uint32_t* words, bool inverse) const;

    std::shared_ptr<const LevelledTables> tables_;
    std::vector<BaseChange> digits_;  // [level - 1] of the last digit of that many primes
    BaseChange special_;
};

}  // namespace fhe_core::cpu
