// Linear operations on large ciphertexts: integer matrix product and scaled sums, exact modulo Q.
//
// Words are cut into 27-bit limbs of the binary representation (one for one-prime moduli, two for two), each multiplied exactly in
// 64 bits, and put together once per output word.

#include <algorithm>
#include <string>
#include <vector>

#include "cpu/backend.hpp"
#include "cpu/kernels.hpp"
#include "cpu/parallel.hpp"

namespace fhe_core::cpu {
namespace {

constexpr int kPieceBits = 27;
constexpr std::int64_t kMaxRowNorm = std::int64_t{1} << 35;  // |sum| < 2^35 * 2^27 < 2^63
constexpr std::size_t kWordsPerTask = 256;

void check_rows(const std::int32_t* weights, std::size_t rows, std::size_t columns) {
    for (std::size_t r = 0; r < rows; ++r) {
        std::int64_t norm = 0;
        for (std::size_t c = 0; c < columns; ++c) norm += std::abs(std::int64_t{weights[r * columns + c]});
        if (norm >= kMaxRowNorm) {
            throw ParameterError("weights: the absolute values of row " + std::to_string(r) +
                                 " sum to 2^35 or more; quantise the weights to fewer bits");
        }
    }
}

// Reduces sum_0 + 2^27 * sum_1 modulo Q by a Barrett step on 128 bits.
template <class Word>
Word reduce_pieces(std::int64_t low, std::int64_t high, std::uint64_t modulus) {
    if constexpr (sizeof(Word) == 4) {
        return static_cast<Word>(residue(low, modulus));
    } else {
        const std::uint64_t folded = residue(high, modulus);
        const std::uint64_t shifted = static_cast<std::uint64_t>((static_cast<uint128>(folded) << kPieceBits) % modulus);
        return static_cast<Word>(add_mod(shifted, residue(low, modulus), modulus));
    }
}

template <class Word>
void linear_words(const CpuBackend& backend, const std::int32_t* weights, std::size_t rows, std::size_t columns, const Word* lwe,
                  std::size_t samples, Word* out) {
    check_rows(weights, rows, columns);
    constexpr int kPieces = sizeof(Word) / 4;
    const std::uint64_t modulus = backend.parameters().modulus();
    const std::size_t words = backend.parameters().large_words();
    const std::size_t chunks = (words + kWordsPerTask - 1) / kWordsPerTask;
    const Progress none;
    Monitor monitor(none, 1);
    // A task is one chunk of the words of one sample: its columns fit the cache, every row reads them once.
    parallel_shares(samples * chunks, backend.threads(), monitor, [&](std::size_t first, std::size_t last) {
        std::vector<std::int32_t> x[2];
        std::vector<std::int64_t> sums[2];
        for (int piece = 0; piece < kPieces; ++piece) {
            x[piece].resize(columns * kWordsPerTask);
            sums[piece].resize(rows * kWordsPerTask);
        }
        for (std::size_t task = first; task < last; ++task) {
            const std::size_t sample = task / chunks, start = task % chunks * kWordsPerTask;
            const std::size_t count = std::min(kWordsPerTask, words - start);
            const std::size_t padded = (count + kLinearTile - 1) / kLinearTile * kLinearTile;
            for (std::size_t c = 0; c < columns; ++c) {
                const Word* source = lwe + (sample * columns + c) * words + start;
                for (int piece = 0; piece < kPieces; ++piece) {
                    std::int32_t* row = x[piece].data() + c * padded;
                    for (std::size_t j = 0; j < count; ++j) {
                        row[j] = static_cast<std::int32_t>((source[j] >> (piece * kPieceBits)) & ((1u << kPieceBits) - 1));
                    }
                    std::fill(row + count, row + padded, 0);
                }
            }
            for (int piece = 0; piece < kPieces; ++piece) {
                backend.key()->kernels().linear(weights, columns, rows, columns, x[piece].data(), padded, sums[piece].data());
            }
            for (std::size_t r = 0; r < rows; ++r) {
                Word* target = out + (sample * rows + r) * words + start;
                for (std::size_t j = 0; j < count; ++j) {
                    const std::int64_t high = kPieces == 2 ? sums[1][r * padded + j] : 0;
                    target[j] = reduce_pieces<Word>(sums[0][r * padded + j], high, modulus);
                }
            }
        }
    });
}

template <class Word>
void combine_words(const ParameterSet& p, const Word* x, std::int64_t scale_x, const Word* y, std::int64_t scale_y,
                   std::uint64_t constant, std::size_t first, std::size_t last, Word* out) {
    const std::uint64_t q = p.modulus(), a = residue(scale_x, q), b = residue(scale_y, q);
    const std::size_t words = p.large_words(), dimension = p.large_dimension();
    for (std::size_t i = first * words; i < last * words; ++i) {
        std::uint64_t sum = mul_mod(x[i], a, q);
        if (y != nullptr) sum = add_mod(sum, mul_mod(y[i], b, q), q);
        out[i] = static_cast<Word>(sum);
    }
    for (std::size_t i = first; i < last; ++i) {
        for (std::size_t j = dimension; j < words; ++j) {
            Word& body = out[i * words + j];
            body = static_cast<Word>(add_mod(body, constant % q, q));
        }
    }
}

}  // namespace

void CpuBackend::linear(const std::int32_t* weights, std::size_t rows, std::size_t columns, const void* lwe, std::size_t samples,
                        void* out) {
    if (parameters().limb_count() == 1) {
        linear_words(*this, weights, rows, columns, static_cast<const std::uint32_t*>(lwe), samples,
                     static_cast<std::uint32_t*>(out));
    } else {
        linear_words(*this, weights, rows, columns, static_cast<const std::uint64_t*>(lwe), samples,
                     static_cast<std::uint64_t*>(out));
    }
}

void CpuBackend::combine(const void* x, std::int64_t scale_x, const void* y, std::int64_t scale_y, std::uint64_t constant,
                         std::size_t batch, void* out) {
    const ParameterSet& p = parameters();
    const Progress none;
    Monitor monitor(none, 1);
    parallel_shares(batch, threads_, monitor, [&](std::size_t first, std::size_t last) {
        if (p.limb_count() == 1) {
            combine_words(p, static_cast<const std::uint32_t*>(x), scale_x, static_cast<const std::uint32_t*>(y), scale_y, constant,
                          first, last, static_cast<std::uint32_t*>(out));
        } else {
            combine_words(p, static_cast<const std::uint64_t*>(x), scale_x, static_cast<const std::uint64_t*>(y), scale_y, constant,
                          first, last, static_cast<std::uint64_t*>(out));
        }
    });
}

}  // namespace fhe_core::cpu
