// Large negacyclic transforms (core/large_ntt.hpp): two kernels, columns with the twist, then rows; back, rows, then the twist
// with columns. CPU reference: cpu/large_transform.hpp, the same residues.
//
// Columns. A block has C columns of one polynomial, thread (c, t) = (thread mod C, thread / C). The log2 N1 stages are log2 A
// stages of A = N1 / 16 rows that are 16 apart, an exchange, and four stages of 16 rows that follow each other. Tile [N1][C] words;
// of C = 16 two rows fill the banks, and the halves of such a line change places by bit 4 of the row, so that the two blocks of 16
// rows of a warp are in different halves. The twist psi^(j R) of row 16 k + i, column j, R = 2 brv(row) + 1, is psi^(j R_k) times
// the power j brv(i) of psi^(N1 / 8), R_k = 2 brv(k) + 1: the first factor belongs to a thread's sixteen rows and goes into the
// first of the four stages (its roots times the factor, eight products more); the second is one of 16 C.
//
// Rows. Half a warp has a row, thread k of it the points k + 16 m; four stages (those with the root 1 have no product), an exchange
// inside the warp, four stages of the points 16 k + m. A row has 272 words, so that the rows of a warp are 16 banks apart: as it
// comes from memory, backwards with its 16-byte chunks permuted (each thread reads four of its own); between the halves with a word
// more after every 16, so that a column and a row of the 16 x 16 points meet every bank once.
//
// Blocks stay and take one tile after the other; the next tile, with its tables, is under way (cp.async) while one is computed: two
// stages. Barriers: one when a tile is there, which is also when all have left the stage that is filled next; one between the
// halves of columns; of rows the exchange is inside a warp.
//
// Ranges in quarters of q (large_ntt.hpp), at most 32.
// Source: [KJPA20] two kernels; [LN16], [Har14] butterflies. Ours: the twist, its first factor inside a stage.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/large_ntt.hpp"
#include "cuda/device/async_copy.cuh"
#include "cuda/device/bits.cuh"
#include "cuda/device/launch.cuh"
#include "cuda/device/modulus.cuh"
#include "cuda/device/unrolled.cuh"
#include "cuda/transform/butterfly_stages.cuh"

namespace fhe_core::cuda {

// Tables in device memory.
struct LargeNttView {
    const LargePrime* primes;
    const Root* roots;                       // [..][root_count], of the same primes
    unsigned prime_count;                    // of an item of the batch
    const std::uint32_t* numbers = nullptr;  // [prime_count] of each; nullptr: 0, 1, ..

    __device__ __forceinline__ std::size_t prime_of(unsigned polynomial) const {
        const unsigned row = polynomial % prime_count;
        return numbers == nullptr ? row : numbers[row];
    }
};

struct LargeModulus {
    std::uint32_t q, q_negated;

    FHE_HD explicit LargeModulus(const LargePrime& prime) : q(prime.q), q_negated(0u - prime.q) {}

    // |x| < b -> |x| <= max(c, b - c)
    FHE_HD static std::int32_t fold(std::int32_t x, std::uint32_t c) {
        const std::uint32_t sign = static_cast<std::uint32_t>(x >> 31);
        return wrap(static_cast<std::uint32_t>(x) - ((c ^ sign) - sign));
    }
    template <int mask>
    FHE_HD std::int32_t folded(std::int32_t x) const {
        if constexpr ((mask & 4) != 0) x = fold(x, 4 * q);
        if constexpr ((mask & 2) != 0) x = fold(x, 2 * q);
        if constexpr ((mask & 1) != 0) x = fold(x, q);
        return x;
    }
    // |x| < 8q -> [0, q)
    FHE_HD std::uint32_t residue(std::int32_t x) const {
        const std::uint32_t small = static_cast<std::uint32_t>(folded<7>(x)), positive = small + q;  // [-q, q)
        return small < positive ? small : positive;
    }
};

FHE_HD Twiddle twiddle_of(const Root& root) { return {root.value, root.companion}; }

// (a, b) -> (a + b, (a - b) w): |a| + |b| <= 8q; the second result is in (-q/4, 5q/4).
FHE_HD void backward_butterfly(const LargeModulus& m, std::int32_t& a, std::int32_t& b, Twiddle w) {
    const std::int32_t difference = wrap_sub(a, b);
    a = wrap_add(a, b);
    b = multiply_add(m, 0, difference, w);
}

template <int logs, int before, int after>
struct BackwardPlan {
    static constexpr InversePlan<logs> value{before, after};
};

// What InversePlan<logs> folds before stage `stage`, or after all (`logs`).
template <class Plan, int stage, int P>
FHE_HD void fold_slots(const LargeModulus& m, std::int32_t (&x)[P]) {
    static_for<0, P>([&](auto slot) {
        constexpr int i = decltype(slot)::value;
        x[i] = m.template folded<Plan::value.folds[stage][i]>(x[i]);
    });
}

// Inverse stages logs - 1 down to `last` of 2^logs points; `twiddle` as of forward_stages.
template <class Plan, int logs, int last, class TwiddleOf>
FHE_HD void backward_stages(const LargeModulus& m, std::int32_t (&x)[1 << logs], const TwiddleOf& twiddle) {
    constexpr int P = 1 << logs;
    static_for<0, logs - last>([&](auto executed) {
        constexpr int stage = logs - 1 - decltype(executed)::value, half = P >> (stage + 1);
        fold_slots<Plan, stage>(m, x);
        static_for<0, 1 << stage>([&](auto block) {
            const Twiddle w = twiddle(Index<(1 << stage) + decltype(block)::value>{});
            static_for<0, half>([&](auto i) {
                constexpr int a = decltype(block)::value * 2 * half + decltype(i)::value;
                backward_butterfly(m, x[a], x[a + half], w);
            });
        });
    });
}

// psi^e as a root: e below 2N. One product, and its companion exactly to one unit: products by it are in (-3q/4, 7q/4).
FHE_HD Twiddle power_of(const LargePrime& prime, const LargeModulus& m, const Root* low, const Root* high, std::uint32_t e) {
    std::int32_t w = multiply_add(m, 0, low[e & ((1 << kLowLog) - 1)].value, twiddle_of(high[e >> kLowLog]));
    if (w > static_cast<std::int32_t>(prime.q / 2)) w -= static_cast<std::int32_t>(prime.q);
    return {w, static_cast<std::int32_t>((w * prime.reciprocal + (1 << 27)) >> 28)};
}
inline constexpr int kPowerQuarters = 7;

static_assert(sizeof(LargePrime) % 16 == 0);
inline constexpr int kPrimeWords = sizeof(LargePrime) / sizeof(std::int32_t);

// --- columns ---

template <int log_rows>
struct LargeColumns {
    static constexpr int n1 = log_rows, kRows = 1 << n1;
    static constexpr int kThreads = n1 == 4 ? 128 : 256, kBlocksOfMultiprocessor = 512 / kThreads;
    static constexpr int C = n1 == 9 ? 16 : 16 * kThreads >> n1;  // columns of a block
    static constexpr int T = kThreads / C;                        // threads of a column
    static constexpr int A = kRows / 16, kLogA = n1 - 4;
    static constexpr int kSets = 16 / T;         // of A rows, 16 apart, of a thread
    static constexpr int kBlocks = A / T;        // of 16 rows
    static constexpr int kTiles = kRowSize / C;  // of a polynomial
    // A stage: the tile, then roots of the stages [N1], of the twist [16][C], low and high powers; the prime.
    static constexpr int kTileWords = kRows * C;
    static constexpr int kTwists = kRows, kLow = kTwists + 16 * C, kHigh = kLow + (1 << kLowLog), kRoots = kHigh + kRows;
    static constexpr int kPrime = kTileWords + 2 * kRoots, kStageWords = kPrime + kPrimeWords;
    static constexpr std::size_t kSharedBytes = std::size_t{2} * kStageWords * sizeof(std::int32_t);
    static_assert(kSets >= 1 && kBlocks >= 1 && C <= kRowSize);
    static_assert(kSharedBytes <= (99 << 10), "a block of sm_89");
    static_assert(4 + kProductQuarters * kLogA <= kMostQuarters, "stages of A points from residues");
    static_assert(2 * kPowerQuarters + kProductQuarters * 3 <= kMostQuarters, "four stages, the first with the twist's factor");

    FHE_HD static int word(int row, int column) {
        if constexpr (C == 16) return (row ^ (row >> 4 & 1)) * C + column;
        return row * C + column;
    }
};

// A prime, by the last threads, which copy fewer roots.
template <int threads>
__device__ __forceinline__ void copy_prime(std::int32_t* to, const LargePrime* from) {
    const int part = threads - 1 - static_cast<int>(threadIdx.x);
    if (part < kPrimeWords / 4) copy_async(to + 4 * part, reinterpret_cast<const std::int32_t*>(from) + 4 * part);
}

// `count` roots, two to a copy.
template <int threads>
__device__ __forceinline__ void copy_roots(Root* to, const Root* from, int count) {
    for (int i = static_cast<int>(threadIdx.x); i < count / 2; i += threads) copy_async(to + 2 * i, from + 2 * i);
}

template <class Config, bool inverse>
__device__ __forceinline__ void load_columns(const LargeNttView& view, unsigned number, const std::uint32_t* in,
                                             std::int32_t* stage) {
    constexpr int C = Config::C;
    constexpr LargeNttLayout layout{Config::n1};
    const unsigned polynomial = number / Config::kTiles, first_column = number % Config::kTiles * C;
    const std::uint32_t* const words = in + std::size_t{polynomial} * (std::size_t{Config::kRows} * kRowSize) + first_column;
#pragma unroll
    for (int i = 0; i < Config::kTileWords / 4 / Config::kThreads; ++i) {
        const int chunk = static_cast<int>(threadIdx.x) + i * Config::kThreads, row = chunk / (C / 4), column = chunk % (C / 4) * 4;
        copy_async(stage + Config::word(row, column), words + std::size_t(row) * kRowSize + column);
    }
    const std::size_t prime = view.prime_of(polynomial);
    const Root* const roots = view.roots + prime * layout.root_count();
    Root* const own = reinterpret_cast<Root*>(stage + Config::kTileWords);
    copy_prime<Config::kThreads>(stage + Config::kPrime, view.primes + prime);
    copy_roots<Config::kThreads>(own, roots + (inverse ? layout.columns_inverse() : layout.columns()), Config::kRows);
    copy_roots<Config::kThreads>(own + Config::kLow, roots + layout.low(), 1 << kLowLog);
    copy_roots<Config::kThreads>(own + Config::kHigh, roots + (inverse ? layout.high_scaled() : layout.high()), Config::kRows);
#pragma unroll
    for (int i = static_cast<int>(threadIdx.x); i < 16 * C; i += Config::kThreads) {
        const std::uint32_t power = (first_column + i % C) * reverse_position(static_cast<std::uint32_t>(i / C), 4);
        copy_async<8>(own + Config::kTwists + i, roots + layout.quarters() + (inverse ? (4096 - power) & 4095 : power));
    }
}

template <class Config, bool inverse>
__device__ __forceinline__ void transform_columns(unsigned number, std::uint32_t* out, std::int32_t* tile) {
    constexpr int C = Config::C, T = Config::T, A = Config::A;
    const Root* const roots = reinterpret_cast<const Root*>(tile + Config::kTileWords);
    const unsigned polynomial = number / Config::kTiles;
    const LargePrime prime = *reinterpret_cast<const LargePrime*>(tile + Config::kPrime);
    const LargeModulus m(prime);
    const int c = static_cast<int>(threadIdx.x) % C, t = static_cast<int>(threadIdx.x) / C;
    const std::uint32_t j = number % Config::kTiles * C + c;
    out += std::size_t{polynomial} * (std::size_t{Config::kRows} * kRowSize) + j;

    const auto stage_root = [&](auto ordinal) { return twiddle_of(roots[decltype(ordinal)::value]); };
    // Of sixteen rows 16 k + i: roots of their stages, the factor of the twist that is common to them, and that times the root of
    // their first stage; roots of the twist by row.
    const auto block_root = [&](int k) {
        return [roots, k](auto ordinal) {
            constexpr int o = decltype(ordinal)::value, size = 1 << log2_floor(o);
            return twiddle_of(roots[size * (A + k) + (o - size)]);
        };
    };
    const auto power = [&](std::uint32_t exponent) {
        constexpr std::uint32_t order = 2u * Config::kRows * kRowSize;
        const std::uint32_t e = inverse ? (order - exponent) & (order - 1) : exponent;
        return power_of(prime, m, roots + Config::kLow, roots + Config::kHigh, e);
    };
    const auto odd_exponent = [](int k) { return 2 * reverse_position(static_cast<std::uint32_t>(2 * k), Config::kLogA + 1) + 1; };
    const auto twist = [&](auto row) { return twiddle_of(roots[Config::kTwists + decltype(row)::value * C + c]); };

    if constexpr (!inverse) {
        static_for<0, Config::kSets>([&](auto set) {
            const int first = t + T * decltype(set)::value;
            std::int32_t x[A];
            static_for<0, A>([&](auto i) { x[decltype(i)::value] = tile[Config::word(16 * decltype(i)::value + first, c)]; });
            forward_stages<A, 0>(m, x, stage_root);
            static_for<0, A>([&](auto i) { tile[Config::word(16 * decltype(i)::value + first, c)] = x[decltype(i)::value]; });
        });
        __syncthreads();
        static_for<0, Config::kBlocks>([&](auto block) {
            const int k = t + T * decltype(block)::value;
            std::int32_t y[16];
            static_for<0, 16>([&](auto i) { y[decltype(i)::value] = tile[Config::word(16 * k + decltype(i)::value, c)]; });
            const Twiddle factor = power(j * odd_exponent(k)), rotated = power((j + 2048) * odd_exponent(k));
            static_for<0, 8>([&](auto i) {
                constexpr int a = decltype(i)::value;
                y[a] = multiply_add(m, 0, y[a], factor);
                forward_butterfly(m, y[a], y[a + 8], rotated);
            });
            forward_stages<16, 1>(m, y, block_root(k));
            static_for<0, 16>([&](auto row) {
                constexpr int i = decltype(row)::value;
                out[std::size_t(16 * k + i) * kRowSize] = static_cast<std::uint32_t>(multiply_add(m, 0, y[i], twist(row)));
            });
        });
    } else {
        static_for<0, Config::kBlocks>([&](auto block) {
            const int k = t + T * decltype(block)::value;
            std::int32_t y[16];
            static_for<0, 16>([&](auto row) {
                constexpr int i = decltype(row)::value;
                y[i] = multiply_add(m, 0, tile[Config::word(16 * k + i, c)], twist(row));
            });
            using Plan = BackwardPlan<4, kProductQuarters, kMostQuarters>;
            backward_stages<Plan, 4, 1>(m, y, block_root(k));
            fold_slots<Plan, 0>(m, y);
            const Twiddle factor = power(j * odd_exponent(k)), rotated = power((j + 2048) * odd_exponent(k));
            static_for<0, 8>([&](auto i) {
                constexpr int a = decltype(i)::value;
                backward_butterfly(m, y[a], y[a + 8], rotated);
                y[a] = multiply_add(m, 0, y[a], factor);
            });
            static_for<0, 16>([&](auto i) { tile[Config::word(16 * k + decltype(i)::value, c)] = y[decltype(i)::value]; });
        });
        __syncthreads();
        static_for<0, Config::kSets>([&](auto set) {
            const int first = t + T * decltype(set)::value;
            std::int32_t x[A];
            static_for<0, A>([&](auto i) { x[decltype(i)::value] = tile[Config::word(16 * decltype(i)::value + first, c)]; });
            backward_stages<BackwardPlan<Config::kLogA, kPowerQuarters, kMostQuarters>, Config::kLogA, 0>(m, x, stage_root);
            static_for<0, A>(
                [&](auto i) { out[std::size_t(16 * decltype(i)::value + first) * kRowSize] = m.residue(x[decltype(i)::value]); });
        });
    }
}

// --- rows ---

template <int log_rows>
struct LargeRows {
    static constexpr int n1 = log_rows;
    static constexpr int kThreads = 256, kBlocksOfMultiprocessor = 3, kAtOnce = kThreads / 16;
    static constexpr int kRowsOfTile = n1 == 4 ? 16 : 32, kRounds = kRowsOfTile / kAtOnce;
    static constexpr int kTiles = (1 << n1) / kRowsOfTile;  // of a polynomial
    static constexpr int kRowWords = kRowSize + kRowSize / 16;
    // A stage: rows, then roots of the last four stages [8][16][2] and of the first [16]; the prime.
    static constexpr int kTileWords = kRowsOfTile * kRowWords, kHeads = 256;
    static constexpr int kPrime = kTileWords + 2 * (kHeads + 16), kStageWords = kPrime + kPrimeWords;
    static constexpr std::size_t kSharedBytes = std::size_t{2} * kStageWords * sizeof(std::int32_t);
    static_assert(kRowWords % 32 == 16);
    static_assert(kSharedBytes <= (99 << 10), "a block of sm_89");

    FHE_HD static int padded(int j) { return j + (j >> 4); }
    // Chunk 4 k + v of a row, for threads k at once.
    FHE_HD static int permuted(int chunk) { return chunk ^ (chunk >> 3 & 7); }
};

template <class Config, bool inverse>
__device__ __forceinline__ void load_rows(const LargeNttView& view, unsigned number, const std::uint32_t* in, std::int32_t* stage) {
    constexpr LargeNttLayout layout{Config::n1};
    const std::uint32_t* const words = in + std::size_t{number} * (Config::kRowsOfTile * kRowSize);
#pragma unroll
    for (int i = 0; i < Config::kRowsOfTile * kRowSize / 4 / Config::kThreads; ++i) {
        const int chunk = static_cast<int>(threadIdx.x) + i * Config::kThreads, row = chunk / 64, at = chunk % 64;
        copy_async(stage + row * Config::kRowWords + 4 * (inverse ? Config::permuted(at) : at), words + 4 * chunk);
    }
    const std::size_t prime = view.prime_of(number / Config::kTiles);
    const Root* const roots = view.roots + prime * layout.root_count();
    Root* const own = reinterpret_cast<Root*>(stage + Config::kTileWords);
    copy_prime<Config::kThreads>(stage + Config::kPrime, view.primes + prime);
    copy_roots<Config::kThreads>(own, roots + (inverse ? layout.tails_inverse() : layout.tails()), 256);
    copy_roots<Config::kThreads>(own + Config::kHeads, roots + (inverse ? layout.rows_inverse() : layout.rows()), 16);
}

// The first four row stages: block 0 of each has the root 1. Within 5 quarters before, 32 after.
template <class TwiddleOf>
FHE_HD void forward_row_head(const LargeModulus& m, std::int32_t (&x)[16], const TwiddleOf& twiddle) {
    static_for<0, 4>([&](auto number) {
        constexpr int stage = decltype(number)::value, half = 8 >> stage;
        if constexpr (stage == 2) {  // 5, 10, 20 quarters so far: the next sum of these would be 40
            static_for<0, 4>([&](auto i) { x[decltype(i)::value] = m.template folded<6>(x[decltype(i)::value]); });
        }
        static_for<0, half>([&](auto i) {
            constexpr int a = decltype(i)::value;
            const std::int32_t difference = wrap_sub(x[a], x[a + half]);
            x[a] = wrap_add(x[a], x[a + half]);
            x[a + half] = difference;
        });
        static_for<1, 1 << stage>([&](auto block) {
            const Twiddle w = twiddle(Index<(1 << stage) + decltype(block)::value>{});
            static_for<0, half>([&](auto i) {
                constexpr int a = decltype(block)::value * 2 * half + decltype(i)::value;
                forward_butterfly(m, x[a], x[a + half], w);
            });
        });
    });
}

template <class Config, bool inverse>
__device__ __forceinline__ void transform_rows(unsigned number, std::uint32_t* out, std::int32_t* stage) {
    const LargeModulus m(*reinterpret_cast<const LargePrime*>(stage + Config::kPrime));
    const int thread = static_cast<int>(threadIdx.x), k = thread % 16;
    const auto* const tails = reinterpret_cast<const TwiddlePair*>(stage + Config::kTileWords);
    const auto* const heads = reinterpret_cast<const Root*>(stage + Config::kTileWords) + Config::kHeads;
    const auto head = [&](auto ordinal) { return twiddle_of(heads[decltype(ordinal)::value]); };
    const auto tail = [&](auto ordinal) { return tails[(decltype(ordinal)::value >> 1) * 16 + k].x[decltype(ordinal)::value & 1]; };
    out += (std::size_t{number} * Config::kRowsOfTile + thread / 16) * kRowSize;

    static_for<0, Config::kRounds>([&](auto round) {
        constexpr int first = decltype(round)::value * Config::kAtOnce;
        std::int32_t* const own = stage + (first + thread / 16) * Config::kRowWords;
        std::uint32_t* const row = out + first * kRowSize;
        std::int32_t x[16];
        const auto exchange = [&](auto&& from, auto&& to) {
            __syncwarp();  // all have read
            static_for<0, 16>([&](auto i) { own[Config::padded(from(decltype(i)::value))] = x[decltype(i)::value]; });
            __syncwarp();
            static_for<0, 16>([&](auto i) { x[decltype(i)::value] = own[Config::padded(to(decltype(i)::value))]; });
        };
        const auto across = [&](int i) { return 16 * i + k; };
        const auto along = [&](int i) { return 16 * k + i; };
        if constexpr (!inverse) {
            static_for<0, 16>([&](auto i) { x[decltype(i)::value] = own[across(decltype(i)::value)]; });
            forward_row_head(m, x, head);
            exchange(across, along);
            // Of the 32 quarters 8 are left where products are added: 28 in the end.
            static_for<0, 8>([&](auto i) { x[decltype(i)::value] = m.template folded<6>(x[decltype(i)::value]); });
            forward_stages<16, 0>(m, x, tail);
            static_for<0, 4>([&](auto i) {
                Vec4 four;
                static_for<0, 4>([&](auto w) {
                    four.x[decltype(w)::value] =
                        static_cast<std::int32_t>(m.residue(x[4 * decltype(i)::value + decltype(w)::value]));
                });
                reinterpret_cast<Vec4*>(row)[4 * k + decltype(i)::value] = four;
            });
        } else {
            static_for<0, 4>([&](auto i) {
                const Vec4 four = reinterpret_cast<const Vec4*>(own)[Config::permuted(4 * k + decltype(i)::value)];
                static_for<0, 4>([&](auto w) { x[4 * decltype(i)::value + decltype(w)::value] = four.x[decltype(w)::value]; });
            });
            using Plan = BackwardPlan<4, 4, kProductQuarters>;
            backward_stages<Plan, 4, 0>(m, x, tail);
            fold_slots<Plan, 4>(m, x);
            exchange(along, across);
            backward_stages<BackwardPlan<4, kProductQuarters, kMostQuarters>, 4, 0>(m, x, head);
            static_for<0, 16>([&](auto i) { row[across(decltype(i)::value)] = static_cast<std::uint32_t>(x[decltype(i)::value]); });
        }
    });
}

// --- kernels ---

// Tile after tile: number blockIdx, blockIdx + gridDim, ..
template <int stage_words, class Load, class Transform>
__device__ __forceinline__ void take_tiles(unsigned tiles, const Load& load, const Transform& transform) {
    extern __shared__ __align__(16) std::int32_t shared[];
    int stage = 0;
    load(blockIdx.x, shared);
    commit_copies();
    for (unsigned number = blockIdx.x; number < tiles; number += gridDim.x) {
        wait_copies<0>();
        __syncthreads();
        if (number + gridDim.x < tiles) load(number + gridDim.x, shared + (stage ^ 1) * stage_words);
        commit_copies();
        transform(number, shared + stage * stage_words);
        stage ^= 1;
    }
}

template <class Config, bool inverse>
__global__ __launch_bounds__(Config::kThreads, Config::kBlocksOfMultiprocessor) void large_columns_kernel(const LargeNttView view,
                                                                                                          unsigned tiles,
                                                                                                          const std::uint32_t* in,
                                                                                                          std::uint32_t* out) {
    take_tiles<Config::kStageWords>(
        tiles, [&](unsigned number, std::int32_t* stage) { load_columns<Config, inverse>(view, number, in, stage); },
        [&](unsigned number, std::int32_t* stage) { transform_columns<Config, inverse>(number, out, stage); });
}

template <class Config, bool inverse>
__global__ __launch_bounds__(Config::kThreads,
                             Config::kBlocksOfMultiprocessor) void large_rows_kernel(const LargeNttView view, unsigned tiles,
                                                                                     const std::uint32_t* in, std::uint32_t* out) {
    take_tiles<Config::kStageWords>(
        tiles, [&](unsigned number, std::int32_t* stage) { load_rows<Config, inverse>(view, number, in, stage); },
        [&](unsigned number, std::int32_t* stage) { transform_rows<Config, inverse>(number, out, stage); });
}

}  // namespace fhe_core::cuda
