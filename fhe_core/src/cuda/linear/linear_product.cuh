// The matrix product of a linear layer on the tensor cores, with the recombination of the byte slices in registers: sums never
// reach memory. out[item][row][word] = sum over weight slices a and word slices b of 2^(8(a + b)) * weights[a][row][.] .
// bytes[b][item, word][.]
//
// A block makes a tile of kTileRows rows and kTileWords words: of every word all slices, so that a thread ends with all slices of
// its words (mma m16n8k32 puts column n of 8 into the same thread for every n-block). Four stages of 64 columns in shared memory,
// filled by cp.async; blocks go from tile to tile without draining them. Weight slices run one after the other over the same sums
// registers.
//
// Shared memory of a stage: rows of 64 bytes (weights, then [slice][word]), the 16-byte chunk c of row r at c ^ (r/2 % 4), which
// makes ldmatrix (8 rows at once) free of bank conflicts.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/device/async_copy.cuh"
#include "cuda/device/modulus.cuh"
#include "cuda/device/unrolled.cuh"

namespace fhe_core::cuda {

inline constexpr int kLinearColumns = 64;  // of a stage: columns are padded to a multiple
inline constexpr int kMostShifts = 12;     // 5 slices of a weight, 7 of a word

struct LinearProductView {
    const std::int8_t* weights;  // [slice_count][padded_rows][padded_columns]
    const std::int8_t* bytes;    // [word slice][byte_words][padded_columns]
    void* out;
    const std::int32_t* out_rows;
    std::size_t out_sample_rows;
    std::uint32_t first_item;
    int slice_count, rows, padded_rows, padded_columns;
    std::uint32_t words, positions;
    int byte_words;                 // byte_words = items * words
    Twiddle shift[2][kMostShifts];  // [limb]: 256^i

    // First word of row 0 of an item.
    FHE_HD std::size_t out_word(std::uint32_t item) const {
        const std::uint32_t number = first_item + item, sample = number / positions, position = number - sample * positions;
        return (sample * out_sample_rows + (out_rows == nullptr ? position * rows : out_rows[position])) * words;
    }
};

template <int limb_count, int warps_of_rows, int row_blocks, bool one_weight_slice>
struct LinearTile {
    static constexpr bool kOneSlice = one_weight_slice;
    static constexpr int kLimbs = limb_count, kSlices = limb_count == 1 ? 4 : 7;
    static constexpr int kWarpsM = warps_of_rows, kWarpsN = 4, kBlocksM = row_blocks;
    static constexpr int kWordBlocks = limb_count == 1 ? 2 : 1;  // of 8 words, of a warp
    static constexpr int kBlocksN = kWordBlocks * kSlices;
    static constexpr int kTileRows = kWarpsM * kBlocksM * 16, kTileWords = kWarpsN * kWordBlocks * 8;
    static constexpr int kByteRows = kTileWords * kSlices;
    static constexpr int kThreads = 32 * kWarpsM * kWarpsN;
    static constexpr int kStages = 4, kColumns = kLinearColumns;  // of a stage
    static constexpr int kStageBytes = (kTileRows + kByteRows) * kColumns;
    // An odd count of slices reads one block behind the last stage, unused.
    static constexpr int kSharedBytes = kStages * kStageBytes + (kSlices % 2) * kTileWords * kColumns;
    // Lines of 64 bytes that all threads load at once; the swizzle repeats every 8 lines.
    static constexpr int kLines = kThreads / 4;
    static constexpr int kRowLoads = kTileRows / kLines, kByteLoads = (kByteRows + kLines - 1) / kLines;
    static_assert(kTileRows % kLines == 0 && kLines % 8 == 0);
    // Results of a warp, 16 rows at a time, on their way out through the stage that was read last.
    static constexpr int kWarpWords = kWordBlocks * 8, kOutStride = 64 + 8;
    static_assert(kThreads / 32 * 16 * kOutStride <= kStageBytes);
    static constexpr int kBlocksPerMultiprocessor = kWarpsM > 1 ? 1 : kBlocksM > 2 ? 2 : 3;
    using Word = std::conditional_t<limb_count == 1, std::uint32_t, std::uint64_t>;
};

// 2^(8a) * the slices of one word, modulo a limb prime: `total` stays below 9.5 p in size.
template <int limb, int slices>
FHE_HD std::int32_t add_slices(std::int32_t total, const std::int32_t (&sums)[slices], const Twiddle* shift) {
    total = reduce(Modulus<limb>{}, total);
    for (int s = 0; s < slices; ++s) total = multiply_add(Modulus<limb>{}, total, sums[s], shift[s]);
    return total;
}

template <class Word>
FHE_HD Word joined_word(const std::int32_t* totals) {
    if constexpr (sizeof(Word) == 4)
        return accumulate_exact(Modulus<0>{}, 0, totals[0]);
    else
        return compose_limbs(accumulate_exact(Modulus<0>{}, 0, totals[0]), accumulate_exact(Modulus<1>{}, 0, totals[1]));
}

#if defined(__CUDACC__)

// Matrices of 8 rows of 16 bytes; lane 8*i + r names row r of matrix i. Lane l gets bytes 4*(l%4) .. +3 of row l/4 of each.
__device__ __forceinline__ void load_matrices(std::uint32_t (&x)[4], const std::int8_t* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                 : "r"(shared_address(row))
                 : "memory");
}
// Sums of lane l: rows l/4 (0, 1) and l/4 + 8 (2, 3), columns 2*(l%4) + (0, 1).
__device__ __forceinline__ void multiply_bytes(std::int32_t (&sums)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                                               std::uint32_t b1) {
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+r"(sums[0]), "+r"(sums[1]), "+r"(sums[2]), "+r"(sums[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

#elif defined(CLOAKWORK_EMULATE_WARPS)

}  // namespace fhe_core::cuda

#include "cuda/emulation/tensor_core.hpp"

namespace fhe_core::cuda {

#endif
#if defined(__CUDACC__) || defined(CLOAKWORK_EMULATE_WARPS)

// Where a block is in its tiles, weight slices and stages of columns; loads run ahead of products.
struct LinearCursor {
    int tile, slice, column;
    // Whether another weight slice or tile begins.
    __device__ __forceinline__ bool advance(const LinearProductView& view, int columns) {
        column += columns;
        if (column < view.padded_columns) return false;
        column = 0;
        if (--slice < 0) {
            slice = view.slice_count - 1;
            tile += gridDim.x;
        }
        return true;
    }
};

template <class Tile>
__device__ __forceinline__ int chunk_offset(int row, int chunk) {
    return row * Tile::kColumns + ((chunk ^ (row >> 1 & 3)) << 4);
}

// One thread's share of the loads: 16 bytes of a line, every kLines lines.
template <class Tile>
struct LinearLoader {
    std::uint32_t weights[Tile::kRowLoads], bytes[Tile::kByteLoads];  // offsets of column 0
    int target;                                                       // in a stage

    __device__ __forceinline__ void start(const LinearProductView& view, const LinearCursor& at, int row_tiles) {
        const int row0 = at.tile % row_tiles * Tile::kTileRows, word0 = at.tile / row_tiles * Tile::kTileWords;
        const int line = threadIdx.x / 4, chunk = threadIdx.x % 4;
        const std::uint32_t columns = view.padded_columns;
        target = chunk_offset<Tile>(line, chunk);
#pragma unroll
        for (int i = 0; i < Tile::kRowLoads; ++i) {
            const int row = row0 + line + i * Tile::kLines;
            weights[i] = (at.slice * view.padded_rows + (row < view.rows ? row : view.rows - 1)) * columns + 16 * chunk;
        }
#pragma unroll
        for (int i = 0; i < Tile::kByteLoads; ++i) {
            const int byte_line = line + i * Tile::kLines, slice = byte_line / Tile::kTileWords;
            const int word = word0 + byte_line % Tile::kTileWords;
            bytes[i] = (slice * std::uint32_t(view.byte_words) + (word < view.byte_words ? word : view.byte_words - 1)) * columns +
                       16 * chunk;
        }
    }
    __device__ __forceinline__ void load(const LinearProductView& view, int column, std::int8_t* stage) const {
        std::int8_t* const to = stage + target;
        const std::int8_t* const weight_columns = view.weights + column;
        const std::int8_t* const byte_columns = view.bytes + column;
#pragma unroll
        for (int i = 0; i < Tile::kRowLoads; ++i) copy_async(to + i * Tile::kLines * Tile::kColumns, weight_columns + weights[i]);
#pragma unroll
        for (int i = 0; i < Tile::kByteLoads; ++i)
            if (i + 1 < Tile::kByteLoads || Tile::kByteRows % Tile::kLines == 0 ||
                static_cast<int>(threadIdx.x) / 4 < Tile::kByteRows % Tile::kLines)
                copy_async(to + (Tile::kTileRows + i * Tile::kLines) * Tile::kColumns, byte_columns + bytes[i]);
    }
};

// sums += a stage, of one warp.
template <class Tile>
__device__ __forceinline__ void multiply_stage(std::int32_t (&sums)[Tile::kBlocksM][Tile::kBlocksN][4], const std::int8_t* stage,
                                               int row_offset, int word_offset) {
    constexpr int kPairs = (Tile::kBlocksN + 1) / 2;
    std::uint32_t a[Tile::kBlocksM][4], b[kPairs][4];
#pragma unroll
    for (int half = 0; half < 2; ++half) {  // 32 columns: chunks 2 * half + (0, 1), whose place differs in one bit
        const std::int8_t *const rows = stage + (row_offset ^ half << 5), *const words = stage + (word_offset ^ half << 5);
#pragma unroll
        for (int m = 0; m < Tile::kBlocksM; ++m) load_matrices(a[m], rows + 16 * m * Tile::kColumns);
#pragma unroll
        for (int pair = 0; pair < kPairs; ++pair)
            load_matrices(b[pair],
                          words + (2 * pair / Tile::kSlices * 8 + 2 * pair % Tile::kSlices * Tile::kTileWords) * Tile::kColumns);
#pragma unroll
        for (int n = 0; n < Tile::kBlocksN; ++n)
#pragma unroll
            for (int m = 0; m < Tile::kBlocksM; ++m) multiply_bytes(sums[m][n], a[m], b[n / 2][n % 2 * 2], b[n / 2][n % 2 * 2 + 1]);
    }
}

template <class Tile>
using LinearSums = std::int32_t[Tile::kBlocksM][Tile::kBlocksN][4];
template <class Tile>
using LinearTotals = std::int32_t[Tile::kBlocksM][Tile::kWordBlocks][4][Tile::kLimbs];

// The end of a weight slice: totals += 2^(8 * slice) * sums, and the sums begin anew.
template <class Tile>
__device__ __forceinline__ void add_weight_slice(const LinearProductView& view, int slice, LinearSums<Tile>& sums,
                                                 LinearTotals<Tile>& totals) {
    static_for<0, Tile::kBlocksM>([&](auto m) {
        static_for<0, Tile::kWordBlocks * 4>([&](auto item) {
            constexpr int block = decltype(item)::value / 4, i = decltype(item)::value % 4;
            std::int32_t slices[Tile::kSlices];
#pragma unroll
            for (int s = 0; s < Tile::kSlices; ++s) slices[s] = sums[decltype(m)::value][block * Tile::kSlices + s][i];
            auto& total = totals[decltype(m)::value][block][i];
            if constexpr (Tile::kOneSlice) total[0] = total[Tile::kLimbs - 1] = 0;
            total[0] = add_slices<0>(total[0], slices, view.shift[0] + slice);
            if constexpr (Tile::kLimbs == 2) total[1] = add_slices<1>(total[1], slices, view.shift[1] + slice);
        });
    });
#pragma unroll
    for (int m = 0; m < Tile::kBlocksM; ++m)
#pragma unroll
        for (int n = 0; n < Tile::kBlocksN; ++n)
#pragma unroll
            for (int i = 0; i < 4; ++i) sums[m][n][i] = 0;
}

// The end of a tile: 16 rows at a time through `lines` of shared memory, so that a warp writes whole runs of words. Totals begin
// anew.
template <class Tile>
__device__ __forceinline__ void store_tile(const LinearProductView& view, int tile, int row_tiles, std::int8_t* lines,
                                           LinearTotals<Tile>& totals) {
    using Word = typename Tile::Word;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, warp_m = warp % Tile::kWarpsM, warp_n = warp / Tile::kWarpsM;
    const int word_in_warp = lane % Tile::kWarpWords, row_in_warp = lane / Tile::kWarpWords;  // of what a lane writes
    const int row0 = tile % row_tiles * Tile::kTileRows + warp_m * Tile::kBlocksM * 16 + row_in_warp;
    const int number = tile / row_tiles * Tile::kTileWords + warp_n * Tile::kWarpWords + word_in_warp;
    const std::uint32_t item = static_cast<std::uint32_t>(number) / view.words;
    const bool inside = number < view.byte_words;
    Word* const out = static_cast<Word*>(view.out) + (inside ? view.out_word(item) : 0) + (number - item * view.words);
    static_for<0, Tile::kBlocksM>([&](auto m) {
        static_for<0, Tile::kWordBlocks * 4>([&](auto entry) {
            constexpr int block = decltype(entry)::value / 4, i = decltype(entry)::value % 4;
            Word* const line = reinterpret_cast<Word*>(lines + (lane / 4 + i / 2 * 8) * Tile::kOutStride);
            line[8 * block + 2 * (lane % 4) + i % 2] = joined_word<Word>(totals[decltype(m)::value][block][i]);
        });
        __syncwarp();
        static_for<0, Tile::kWarpWords / 2>([&](auto pass) {
            constexpr int first = decltype(pass)::value * (32 / Tile::kWarpWords);
            const int row = row0 + 16 * decltype(m)::value + first;
            const Word word = reinterpret_cast<const Word*>(lines + (first + row_in_warp) * Tile::kOutStride)[word_in_warp];
            if (inside && row < view.rows) out[std::size_t(row) * view.words] = word;
        });
        __syncwarp();
    });
#pragma unroll
    for (int m = 0; m < Tile::kBlocksM; ++m)
#pragma unroll
        for (int block = 0; block < Tile::kWordBlocks; ++block)
#pragma unroll
            for (int i = 0; i < 4 * Tile::kLimbs; ++i) totals[m][block][i / Tile::kLimbs][i % Tile::kLimbs] = 0;
}

template <class Tile>
__global__ __launch_bounds__(Tile::kThreads, Tile::kBlocksPerMultiprocessor) void linear_product_kernel(
    const __grid_constant__ LinearProductView view) {
    extern __shared__ __align__(16) std::int8_t stages[];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, warp_m = warp % Tile::kWarpsM, warp_n = warp / Tile::kWarpsM;
    const int row_tiles = (view.rows + Tile::kTileRows - 1) / Tile::kTileRows;
    const int tiles = row_tiles * ((view.byte_words + Tile::kTileWords - 1) / Tile::kTileWords);

    // ldmatrix: lane l names row l % 16 of a block of rows, half l / 16; or row l % 8 of words, half l / 8 % 2, slice l / 16.
    const int row_offset = chunk_offset<Tile>(warp_m * Tile::kBlocksM * 16 + lane % 16, lane / 16);
    const int word_offset = chunk_offset<Tile>(
        Tile::kTileRows + lane / 16 * Tile::kTileWords + warp_n * Tile::kWordBlocks * 8 + lane % 8, lane / 8 % 2);

    LinearCursor load{static_cast<int>(blockIdx.x), view.slice_count - 1, 0}, at = load;
    LinearLoader<Tile> loader;
    loader.start(view, load, row_tiles);
    const auto load_next = [&](int stage) {
        if (load.tile < tiles) {
            loader.load(view, load.column, stages + stage * Tile::kStageBytes);
            if (load.advance(view, Tile::kColumns)) loader.start(view, load, row_tiles);
        }
        commit_copies();  // an empty group counts as well
    };
    for (int stage = 0; stage < Tile::kStages - 1; ++stage) load_next(stage);

    LinearSums<Tile> sums = {};
    LinearTotals<Tile> totals = {};
    for (int stage = 0; at.tile < tiles; stage = stage + 1 == Tile::kStages ? 0 : stage + 1) {
        wait_copies<Tile::kStages - 2>();
        __syncthreads();  // the stage is there for all, and all have read the one that is loaded next
        load_next(stage == 0 ? Tile::kStages - 1 : stage - 1);
        multiply_stage<Tile>(sums, stages + stage * Tile::kStageBytes, row_offset, word_offset);

        const LinearCursor here = at;
        if (!at.advance(view, Tile::kColumns)) continue;
        add_weight_slice<Tile>(view, here.slice, sums, totals);
        if (!Tile::kOneSlice && here.slice != 0) continue;
        __syncthreads();  // all have read this stage, which is loaded again behind the next barrier
        store_tile<Tile>(view, here.tile, row_tiles, stages + stage * Tile::kStageBytes + warp * 16 * Tile::kOutStride, totals);
    }
}

#endif

}  // namespace fhe_core::cuda
