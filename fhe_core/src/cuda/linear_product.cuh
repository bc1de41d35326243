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

#include "cuda/modulus.cuh"
#include "cuda/warp_ntt.cuh"

namespace fhe_core::cuda {

inline constexpr int kMostShifts = 12;  // 5 slices of a weight, 7 of a word

struct LinearProductView {
    const std::int8_t* weights;  // [slice_count][padded_rows][padded_columns]
    const std::int8_t* bytes;    // [word slice][byte_words][padded_columns]
    const void* bias;            // [rows] or nullptr
    void* out;
    const std::int32_t* out_rows;
    std::size_t out_sample_rows, first_item;
    int slice_count, rows, padded_rows, padded_columns;
    int words, positions, byte_words;  // byte_words = items * words
    Twiddle shift[2][kMostShifts];     // [limb]: 256^i

    // First word of row 0 of an item.
    FHE_HD std::size_t out_word(std::size_t item) const {
        const std::size_t number = first_item + item, sample = number / positions, position = number % positions;
        return (sample * out_sample_rows + (out_rows == nullptr ? position * rows : out_rows[position])) * words;
    }
};

template <int limb_count, int warps_of_rows, int row_blocks>
struct LinearTile {
    static constexpr int kLimbs = limb_count, kSlices = limb_count == 1 ? 4 : 7;
    static constexpr int kWarpsM = warps_of_rows, kWarpsN = 4, kBlocksM = row_blocks;
    static constexpr int kWordBlocks = limb_count == 1 ? 2 : 1;  // of 8 words, of a warp
    static constexpr int kBlocksN = kWordBlocks * kSlices;
    static constexpr int kTileRows = kWarpsM * kBlocksM * 16, kTileWords = kWarpsN * kWordBlocks * 8;
    static constexpr int kByteRows = kTileWords * kSlices;
    static constexpr int kThreads = 32 * kWarpsM * kWarpsN;
    static constexpr int kStages = 4, kColumns = 64;  // of a stage
    static constexpr int kStageBytes = (kTileRows + kByteRows) * kColumns;
    static constexpr int kSharedBytes = kStages * kStageBytes;
    static constexpr int kBlocksPerMultiprocessor = kWarpsM > 1 ? 1 : kBlocksM > 2 ? 2 : 3;
    using Word = std::conditional_t<limb_count == 1, std::uint32_t, std::uint64_t>;
};

// 2^(8a) * the slices of one word, modulo a limb prime: `total` stays below 9.5 p in size.
template <int limb, int slices>
FHE_HD std::int32_t add_slices(std::int32_t total, const std::int32_t (&sums)[slices], const Twiddle* shift) {
    total = reduce<Modulus<limb>>(total);
    for (int s = 0; s < slices; ++s) total = multiply_add<Modulus<limb>>(total, sums[s], shift[s]);
    return total;
}

template <class Word>
FHE_HD Word joined_word(const std::int32_t* totals, Word bias) {
    if constexpr (sizeof(Word) == 4) {
        return accumulate_exact<Modulus<0>>(bias, totals[0]);
    } else {
        return compose_limbs(accumulate_exact<Modulus<0>>(static_cast<std::uint32_t>(bias % Modulus<0>::p), totals[0]),
                             accumulate_exact<Modulus<1>>(static_cast<std::uint32_t>(bias % Modulus<1>::p), totals[1]));
    }
}

#if defined(__CUDACC__)

__device__ __forceinline__ std::uint32_t shared_address(const void* pointer) {
    return static_cast<std::uint32_t>(__cvta_generic_to_shared(pointer));
}
// 16 bytes, or zeros.
__device__ __forceinline__ void copy_async(std::int8_t* to, const std::int8_t* from, bool inside) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from), "r"(inside ? 16 : 0)
                 : "memory");
}
__device__ __forceinline__ void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int pending>
__device__ __forceinline__ void wait_copies() {
    asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory");
}
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

#endif
#if defined(__CUDACC__) || defined(CLOAKWORK_EMULATE_WARPS)

// Where a block is in its tiles, weight slices and stages of columns; loads run ahead of products.
struct LinearCursor {
    int tile, slice, column;
    __device__ __forceinline__ void advance(const LinearProductView& view, int columns) {
        column += columns;
        if (column < view.padded_columns) return;
        column = 0;
        if (--slice >= 0) return;
        slice = view.slice_count - 1;
        tile += gridDim.x;
    }
};

template <class Tile>
__device__ __forceinline__ std::int8_t* stage_chunk(std::int8_t* stage, int row, int chunk) {
    return stage + row * Tile::kColumns + ((chunk ^ (row >> 1 & 3)) << 4);
}

template <class Tile>
__device__ __forceinline__ void load_stage(const LinearProductView& view, const LinearCursor& at, int row_tiles,
                                           std::int8_t* stage) {
    const int row0 = at.tile % row_tiles * Tile::kTileRows, word0 = at.tile / row_tiles * Tile::kTileWords;
    const std::int8_t* const weights = view.weights + std::size_t(at.slice) * view.padded_rows * view.padded_columns + at.column;
    const std::int8_t* const bytes = view.bytes + at.column;
#pragma unroll
    for (int i = threadIdx.x; i < Tile::kTileRows * 4; i += Tile::kThreads) {
        const int line = i / 4, chunk = i % 4, row = row0 + line;
        const bool inside = row < view.padded_rows && at.column + 16 * chunk < view.padded_columns;
        copy_async(stage_chunk<Tile>(stage, line, chunk),
                   inside ? weights + std::size_t(row) * view.padded_columns + 16 * chunk : view.weights, inside);
    }
#pragma unroll
    for (int i = threadIdx.x; i < Tile::kByteRows * 4; i += Tile::kThreads) {
        const int line = i / 4, chunk = i % 4, slice = line / Tile::kTileWords, word = word0 + line % Tile::kTileWords;
        const bool inside = word < view.byte_words && at.column + 16 * chunk < view.padded_columns;
        copy_async(stage_chunk<Tile>(stage, Tile::kTileRows + line, chunk),
                   inside ? bytes + (std::size_t(slice) * view.byte_words + word) * view.padded_columns + 16 * chunk : view.bytes,
                   inside);
    }
}

// sums += a stage, of one warp.
template <class Tile>
__device__ __forceinline__ void multiply_stage(std::int32_t (&sums)[Tile::kBlocksM][Tile::kBlocksN][4], std::int8_t* stage,
                                               int warp_m, int warp_n, int lane) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {  // 32 columns
        std::uint32_t a[Tile::kBlocksM][4], b[(Tile::kBlocksN + 1) / 2][4];
#pragma unroll
        for (int m = 0; m < Tile::kBlocksM; ++m)
            load_matrices(a[m], stage_chunk<Tile>(stage, (warp_m * Tile::kBlocksM + m) * 16 + lane % 16, 2 * half + lane / 16));
#pragma unroll
        for (int pair = 0; pair < (Tile::kBlocksN + 1) / 2; ++pair) {
            int n = 2 * pair + lane / 16;  // an odd count reads its last block twice
            if (n >= Tile::kBlocksN) n = Tile::kBlocksN - 1;
            const int word = (warp_n * Tile::kWordBlocks + n / Tile::kSlices) * 8 + lane % 8, slice = n % Tile::kSlices;
            load_matrices(b[pair],
                          stage_chunk<Tile>(stage, Tile::kTileRows + slice * Tile::kTileWords + word, 2 * half + lane / 8 % 2));
        }
#pragma unroll
        for (int n = 0; n < Tile::kBlocksN; ++n)
#pragma unroll
            for (int m = 0; m < Tile::kBlocksM; ++m) multiply_bytes(sums[m][n], a[m], b[n / 2][n % 2 * 2], b[n / 2][n % 2 * 2 + 1]);
    }
}

template <class Tile>
__global__ __launch_bounds__(Tile::kThreads, Tile::kBlocksPerMultiprocessor) void linear_product_kernel(
    const __grid_constant__ LinearProductView view) {
    using Word = typename Tile::Word;
    extern __shared__ __align__(16) std::int8_t stages[];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, warp_m = warp % Tile::kWarpsM, warp_n = warp / Tile::kWarpsM;
    const int row_tiles = (view.rows + Tile::kTileRows - 1) / Tile::kTileRows;
    const int tiles = row_tiles * ((view.byte_words + Tile::kTileWords - 1) / Tile::kTileWords);

    LinearCursor load{static_cast<int>(blockIdx.x), view.slice_count - 1, 0}, at = load;
    const auto load_next = [&](int stage) {
        if (load.tile < tiles) {
            load_stage<Tile>(view, load, row_tiles, stages + stage * Tile::kStageBytes);
            load.advance(view, Tile::kColumns);
        }
        commit_copies();  // an empty group counts as well
    };
    for (int stage = 0; stage < Tile::kStages - 1; ++stage) load_next(stage);

    std::int32_t sums[Tile::kBlocksM][Tile::kBlocksN][4] = {};
    std::int32_t totals[Tile::kBlocksM][Tile::kWordBlocks][4][Tile::kLimbs] = {};
    for (int stage = 0; at.tile < tiles; stage = stage + 1 == Tile::kStages ? 0 : stage + 1) {
        wait_copies<Tile::kStages - 2>();
        __syncthreads();  // the stage is there for all, and all have read the one that is loaded next
        load_next(stage == 0 ? Tile::kStages - 1 : stage - 1);
        multiply_stage<Tile>(sums, stages + stage * Tile::kStageBytes, warp_m, warp_n, lane);

        const LinearCursor here = at;
        at.advance(view, Tile::kColumns);
        if (at.column != 0) continue;
        // The end of a weight slice.
        static_for<0, Tile::kBlocksM>([&](auto m) {
            static_for<0, Tile::kWordBlocks * 4>([&](auto item) {
                constexpr int block = decltype(item)::value / 4, i = decltype(item)::value % 4;
                std::int32_t slices[Tile::kSlices];
#pragma unroll
                for (int s = 0; s < Tile::kSlices; ++s) slices[s] = sums[decltype(m)::value][block * Tile::kSlices + s][i];
                auto& total = totals[decltype(m)::value][block][i];
                total[0] = add_slices<0>(total[0], slices, view.shift[0] + here.slice);
                if constexpr (Tile::kLimbs == 2) total[1] = add_slices<1>(total[1], slices, view.shift[1] + here.slice);
            });
        });
#pragma unroll
        for (int m = 0; m < Tile::kBlocksM; ++m)
#pragma unroll
            for (int n = 0; n < Tile::kBlocksN; ++n)
#pragma unroll
                for (int i = 0; i < 4; ++i) sums[m][n][i] = 0;
        if (here.slice != 0) continue;
        // The end of a tile.
        const int row0 = here.tile % row_tiles * Tile::kTileRows + warp_m * Tile::kBlocksM * 16 + lane / 4;
        const int word0 = here.tile / row_tiles * Tile::kTileWords + warp_n * Tile::kWordBlocks * 8 + 2 * (lane % 4);
        static_for<0, Tile::kWordBlocks * 2>([&](auto column) {
            constexpr int block = decltype(column)::value / 2, odd = decltype(column)::value % 2;
            const int number = word0 + 8 * block + odd;
            if (number >= view.byte_words) return;
            const int item = number / view.words, word = number - item * view.words;
            const bool is_body = view.bias != nullptr && word == view.words - 1;
            Word* const out = static_cast<Word*>(view.out) + view.out_word(item) + word;
            static_for<0, Tile::kBlocksM * 2>([&](auto line) {
                constexpr int m = decltype(line)::value / 2, lower = decltype(line)::value % 2;
                const int row = row0 + 16 * m + 8 * lower;
                if (row < view.rows)
                    out[std::size_t(row) * view.words] = joined_word<Word>(
                        totals[m][block][2 * lower + odd], is_body ? static_cast<const Word*>(view.bias)[row] : Word{0});
            });
        });
#pragma unroll
        for (int m = 0; m < Tile::kBlocksM; ++m)
#pragma unroll
            for (int block = 0; block < Tile::kWordBlocks; ++block)
#pragma unroll
                for (int i = 0; i < 4 * Tile::kLimbs; ++i) totals[m][block][i / Tile::kLimbs][i % Tile::kLimbs] = 0;
    }
}

#endif

}  // namespace fhe_core::cuda
