// Launches of levelled arithmetic: each enqueues, none allocates or waits. Pointers are to device memory; words [..][prime][N].
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "core/large_ntt.hpp"

namespace fhe_core::cuda {

// out = (a - b) * factors / 2^32, b may be nullptr: out and b [polynomials][level][N], a [polynomials][a_rows >= level][N].
struct LevelledScaling {
    const LargePrime* primes;
    const std::int32_t* factors;  // [level]
    const std::uint32_t *a, *b;
    std::uint32_t* out;
    int log_size, level, a_rows;
    std::size_t polynomials;
};
void launch_levelled_scale(const LevelledScaling& arguments, cudaStream_t stream);

// out = a + b, or a - b: [polynomials][level][N].
struct LevelledAddition {
    const LargePrime* primes;
    const std::uint32_t *a, *b;
    std::uint32_t* out;
    int log_size, level;
    bool negative;
    std::size_t polynomials;
};
void launch_levelled_add(const LevelledAddition& arguments, cudaStream_t stream);

// As Levelled::products.
struct LevelledProducts {
    const LargePrime* primes;
    const std::uint32_t *words, *prepared;
    std::uint32_t* out;
    int log_size, level;
    std::size_t rows, terms, parts;
};
void launch_levelled_products(const LevelledProducts& arguments, cudaStream_t stream);

// As Levelled::multiply.
struct LevelledProduct {
    const LargePrime* primes;
    const std::int32_t* prepare;  // [level] 2^64
    const std::uint32_t *a, *b;
    std::uint32_t* out;
    int log_size, level;
    std::size_t batch;
};
void launch_levelled_multiply(const LevelledProduct& arguments, cudaStream_t stream);

// X -> X^g of `rows` polynomials.
struct LevelledAutomorphism {
    const std::uint32_t* words;
    std::uint32_t* out;
    int log_size;
    std::uint32_t g;
    std::size_t rows;
};
void launch_levelled_automorphism(const LevelledAutomorphism& arguments, cudaStream_t stream);

// A change of primes (BaseChange) of coefficients. Target k has the prime number k, those from `skip_first` on skip_count later,
// from `level` on `gap` later again.
struct LevelledChange {
    const LargePrime* primes;
    const std::int32_t *scale, *matrix;  // [terms], [every prime][terms]
    const std::uint32_t* in;             // [items][in_rows][N], from row in_first
    std::uint32_t* out;                  // [items][out_rows][N], from row out_first
    int log_size, first_prime, terms;    // of the primes changed from
    int targets, skip_first, skip_count, level, gap;
    int in_rows, in_first, out_rows, out_first;
    std::size_t items;
};
void launch_levelled_change(const LevelledChange& arguments, cudaStream_t stream);

// Sums over digits of digits times key rows: raised [items][rows without a digit's own][N], others from `words` [items][level][N];
// key [digit][2][every prime][N] -> sums [items][2][level + special][N].
struct LevelledSums {
    const LargePrime* primes;
    const std::uint32_t *words, *raised, *key;
    std::uint32_t* sums;
    int log_size, level, special, every, digits, digit_primes, raised_rows;
    std::size_t items;
};
void launch_levelled_sums(const LevelledSums& arguments, cudaStream_t stream);

}  // namespace fhe_core::cuda
