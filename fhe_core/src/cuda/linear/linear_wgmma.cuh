// The matrix product of a linear layer on the tensor cores of sm_90a, with the recombination of the byte slices in registers: sums
// never reach memory. out[item][row][word] = bias[row] + sum over weight slices a, word slices b and columns c of
// 2^(8(a + b)) * weights[a][row][c] * byte_b(lwe[item's row c][word]), modulo Q. Weights are signed bytes, words unsigned. Words
// are cut into bytes by a kernel before (wgmma_words.cuh), or inside the product, where rows are few and every word is read once.
//
// A block makes tiles of kTileRows rows and kTileWords words: of every word all slices, so that a thread ends with all slices of
// its words (register i of a product has columns 8*(i/4) + .., and the bytes of a group of words lie slice by slice).
//
// Who does what. A warpgroup of producers fills stages: one thread has the copy engine fetch them, or, inside, all hold words in
// registers (16 columns of one word are cut while the next 48 are on their way), transpose 4 x 4 bytes and store 16 columns of a
// slice at once. Two warpgroups of consumers multiply 64 rows by all slices of a group of words each.
//
// Shared memory: kStages stages of 64 columns, [64-row block of weights][row], then [group of words][slice][word], tiles as in
// hopper.cuh; lines of results for each consumer warp; the barriers `full` (the bytes that the copy engine brings, and producer
// warps that stored) and `empty` (consumer warps that have read) of every stage.
//
// Emulated and checked by tests/fhe_core/cuda/emulate_linear_wgmma.cpp.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/device/hopper.cuh"
#include "cuda/device/modulus.cuh"
#include "cuda/device/unrolled.cuh"
#include "cuda/linear/wgmma_words.cuh"

namespace fhe_core::cuda {

// Stages of a block in order: of the columns within the weight slices within the tiles.
struct StageCursor {
    int tile, slice, stage;
    FHE_HD void advance(const LinearView& view, int grid) {
        if (++stage < view.column_stages) return;
        stage = 0;
        if (--slice >= 0) return;
        slice = view.slice_count - 1;
        tile += grid;
    }
};

// A ring of stages: place and parity of the round.
template <int stages>
struct Ring {
    int place = 0, parity = 0;
    FHE_HD void advance() {
        if (++place == stages) place = 0, parity ^= 1;
    }
};

#if defined(__CUDACC__) || defined(CLOAKWORK_EMULATE_WARPS)

template <class Tile>
struct WgmmaShared {
    std::int8_t *stages, *lines;
    MemoryBarrier *full, *empty;
    __device__ __forceinline__ explicit WgmmaShared(std::int8_t* memory)
        : stages(memory),
          lines(memory + Tile::kStages * Tile::kStageBytes),
          full(reinterpret_cast<MemoryBarrier*>(lines + Tile::kLinesBytes)),
          empty(full + Tile::kStages) {}
};

// The weights of a stage, by the copy engine; rows behind the last block are copies of it, whose results nobody stores.
template <class Tile>
__device__ __forceinline__ void fetch_weights(const LinearView& view, const StageCursor& at, std::int8_t* stage,
                                              MemoryBarrier* full) {
    constexpr int kBytes = kRowBlock * kOperandColumns;
    const int block0 = at.tile % row_tiles<Tile>(view) * Tile::kRowGroups;
#pragma unroll
    for (int g = 0; g < Tile::kRowGroups; ++g) {
        const int block = block0 + g < view.row_blocks ? block0 + g : view.row_blocks - 1;
        const std::size_t tile = (std::size_t(at.slice) * view.row_blocks + block) * view.column_stages + at.stage;
        bulk_copy(stage + g * kBytes, view.weights + tile * kBytes, kBytes, full);
    }
}

// Producers that cut words on their way.
template <class Tile>
__device__ __forceinline__ void cut_words(const LinearView& view, const WgmmaShared<Tile>& shared) {
    using Word = typename Tile::Word;
    constexpr int kRoundChunks = 128 / Tile::kTileWords;
    const int word = threadIdx.x % Tile::kTileWords, chunk0 = threadIdx.x / Tile::kTileWords;
    const int tiles = all_tiles<Tile>(view), grid = static_cast<int>(gridDim.x);

    struct Unit {  // 16 columns
        StageCursor at;
        int round;
    };
    const auto advance = [&](Unit& unit) {
        if (++unit.round < Tile::kRounds) return;
        unit.round = 0;
        unit.at.advance(view, grid);
    };
    Unit load{{static_cast<int>(blockIdx.x), view.slice_count - 1, 0}, 0}, store = load;
    WordColumn<Word> column{};
    int loaded_tile = -1;
    const auto load_words = [&](Word(&values)[16]) {
        if (load.at.tile >= tiles) return;
        if (load.at.tile != loaded_tile) {
            loaded_tile = load.at.tile;
            column = WordColumn<Word>::of(view, loaded_tile / row_tiles<Tile>(view) * Tile::kTileWords + word);
        }
        column.load(view, load.at.stage * kOperandColumns + (chunk0 + load.round * kRoundChunks) * 16, values);
        advance(load);
    };
    Ring<Tile::kStages> ring;
    const auto store_words = [&](const Word(&values)[16]) {
        std::int8_t* const stage = shared.stages + ring.place * Tile::kStageBytes;
        MemoryBarrier* const full = shared.full + ring.place;
        if (store.round == 0) {
            barrier_wait(shared.empty + ring.place, ring.parity ^ 1);
            if (threadIdx.x == 0) {
                barrier_arrive_with_bytes(full, Tile::kWeightBytes);
                fetch_weights<Tile>(view, store.at, stage, full);
            }
        }
        store_bytes<Tile>(values, stage + Tile::kWeightBytes, word, chunk0 + store.round * kRoundChunks);
        if (store.round + 1 == Tile::kRounds) {
            fence_written_operands();
            __syncwarp();
            if (threadIdx.x % 32 == 0) barrier_arrive(full);
            ring.advance();
        }
        advance(store);
    };
    Word values[Tile::kUnits][16];
    static_for<0, Tile::kUnits - 1>([&](auto unit) { load_words(values[decltype(unit)::value]); });
    while (store.at.tile < tiles)
        static_for<0, Tile::kUnits>([&](auto unit) {
            constexpr int i = decltype(unit)::value;
            load_words(values[(i + Tile::kUnits - 1) % Tile::kUnits]);
            if (store.at.tile < tiles) store_words(values[i]);
        });
}

// The producer of bytes that are in the device's memory.
template <class Tile>
__device__ __forceinline__ void fetch_stages(const LinearView& view, const WgmmaShared<Tile>& shared) {
    const int tiles = all_tiles<Tile>(view), groups = static_cast<int>(word_groups<Tile>(view));
    Ring<Tile::kStages> ring;
    for (StageCursor at{static_cast<int>(blockIdx.x), view.slice_count - 1, 0}; at.tile < tiles;
         at.advance(view, static_cast<int>(gridDim.x)), ring.advance()) {
        std::int8_t* const stage = shared.stages + ring.place * Tile::kStageBytes;
        MemoryBarrier* const full = shared.full + ring.place;
        barrier_wait(shared.empty + ring.place, ring.parity ^ 1);
        barrier_arrive_with_bytes(full, Tile::kStageBytes);
        fetch_weights<Tile>(view, at, stage, full);
        const int group0 = at.tile / row_tiles<Tile>(view) * Tile::kWordGroups;
#pragma unroll
        for (int g = 0; g < Tile::kWordGroups; ++g) {
            const int group = group0 + g < groups ? group0 + g : groups - 1;
            bulk_copy(stage + Tile::kWeightBytes + g * Tile::kGroupBytes,
                      view.bytes + (std::size_t(group) * view.column_stages + at.stage) * Tile::kGroupBytes, Tile::kGroupBytes,
                      full);
        }
    }
}

// total + the slices of one word modulo a limb prime, each at most 2.3 p in size.
template <int limb, class Tile>
__device__ __forceinline__ std::int32_t add_slices(std::int32_t total, const std::int32_t (&sums)[Tile::kSums], int first,
                                                   const std::int32_t (&factor)[Tile::kSlices]) {
    std::int64_t sum = 0;
#pragma unroll
    for (int s = 0; s < Tile::kSlices; ++s) sum += multiply_wide(sums[first + s * (Tile::kGroupWords / 2)], factor[s]);
    return wrap_add(total, montgomery(Modulus<limb>{}, sum));
}

template <class Tile>
using WgmmaTotals = std::int32_t[Tile::kResults][Tile::kLimbs];

template <class Tile>
__device__ __forceinline__ typename Tile::Word joined(const std::int32_t (&totals)[Tile::kLimbs]) {
    if constexpr (Tile::kLimbs == 1)
        return accumulate_exact(Modulus<0>{}, 0, totals[0]);
    else
        return compose_limbs(accumulate_exact(Modulus<0>{}, 0, totals[0]), accumulate_exact(Modulus<1>{}, 0, totals[1]));
}

// Results of a warp: 16 rows of a group of words, 8 rows at a time through its lines so that whole runs of words are written.
template <class Tile>
struct WgmmaResults {
    using Word = typename Tile::Word;
    static constexpr int kParts = Tile::kGroupWords / 32;
    Word* out[kParts];  // of row 0; nullptr: behind the last word
    bool body[kParts];
    int row0;

    __device__ __forceinline__ WgmmaResults(const LinearView& view, int tile, int row_group, int word_group) {
        const int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32, in_row = row_tiles<Tile>(view);
        row0 = (tile % in_row * Tile::kRowGroups + row_group) * kRowBlock + 16 * warp;
#pragma unroll
        for (int part = 0; part < kParts; ++part) {
            const std::uint32_t number = tile / in_row * Tile::kTileWords + word_group * Tile::kGroupWords + 32 * part + lane,
                                item = number / view.words, word = number - item * view.words;
            out[part] = number < view.numbers() ? static_cast<Word*>(view.out) + view.out_word(item) + word : nullptr;
            body[part] = word >= view.mask_words;
        }
    }

    __device__ __forceinline__ void store_row(const LinearView& view, int row, const Word* line) const {
        if (row >= view.rows) return;
        const int lane = threadIdx.x % 32;
#pragma unroll
        for (int part = 0; part < kParts; ++part) {
            if (out[part] == nullptr) continue;
            Word word = line[32 * part + lane];
            if (view.bias != nullptr && body[part]) {
                constexpr Word kModulus = static_cast<Word>(Modulus<0>::p) * (Tile::kLimbs == 2 ? Word{Modulus<1>::p} : Word{1});
                word += static_cast<const Word*>(view.bias)[row];
                word = word < kModulus ? word : word - kModulus;
            }
            out[part][std::size_t(row) * view.words] = word;
        }
    }

    // result(Index<i>) is word 8*(i/4) + 2*(lane%4) + i%2 of row lane/4 + 8 * (i%4/2).
    template <class Result>
    __device__ __forceinline__ void store(const LinearView& view, std::int8_t* lines, Result&& result) const {
        const int lane = threadIdx.x % 32;
        static_for<0, 2>([&](auto half) {
            Word* const line = reinterpret_cast<Word*>(lines + lane / 4 * Tile::kLineBytes) + 2 * (lane % 4);
            static_for<0, Tile::kGroupWords / 8>([&](auto block) {
                constexpr int first = 4 * decltype(block)::value + 2 * decltype(half)::value;
                line[8 * decltype(block)::value] = result(Index<first>{});
                line[8 * decltype(block)::value + 1] = result(Index<first + 1>{});
            });
            __syncwarp();
#pragma unroll
            for (int i = 0; i < Tile::kLines; ++i)
                store_row(view, row0 + 8 * decltype(half)::value + i, reinterpret_cast<const Word*>(lines + i * Tile::kLineBytes));
            __syncwarp();
        });
    }
};

template <class Tile>
__device__ __forceinline__ void multiply_stages(const LinearView& view, const WgmmaShared<Tile>& shared) {
    const int group = threadIdx.x / 128 - Tile::kProducers, row_group = group % Tile::kRowGroups,
              word_group = group / Tile::kRowGroups, lane = threadIdx.x % 32;
    const int tiles = all_tiles<Tile>(view), grid = static_cast<int>(gridDim.x);
    const int rows_at = row_group * kRowBlock * kOperandColumns,
              words_at = Tile::kWeightBytes + word_group * Tile::kGroupRows * kOperandColumns;
    std::int8_t* const lines = shared.lines + (threadIdx.x / 32 - 4 * Tile::kProducers) * Tile::kWarpLineBytes;
    const auto release = [&](int place) {
        if (lane == 0) barrier_arrive(shared.empty + place);
    };
    Ring<Tile::kStages> ring;
    std::int32_t sums[Tile::kSums];
    for (int tile = static_cast<int>(blockIdx.x); tile < tiles; tile += grid) {
        WgmmaTotals<Tile> totals;
        for (int slice = view.slice_count - 1; slice >= 0; --slice) {
            for (int stage = 0, before = 0; stage < view.column_stages; ++stage) {
                barrier_wait(shared.full + ring.place, ring.parity);
                const std::int8_t* const bytes = shared.stages + ring.place * Tile::kStageBytes;
                const Operand rows = operand_of(bytes + rows_at), words = operand_of(bytes + words_at);
                settle(sums);
                begin_products();
                multiply(sums, rows, words, stage != 0);
                multiply(sums, next_columns(rows), next_columns(words), true);
                end_products();
                settle(sums);
                wait_products<1>();  // of the stage before
                if (stage != 0) release(before);
                before = ring.place;
                ring.advance();
            }
            wait_products<0>();
            settle(sums);
            release(ring.place == 0 ? Tile::kStages - 1 : ring.place - 1);
            if constexpr (!Tile::kOneSlice) {
                std::int32_t factor[Tile::kLimbs][Tile::kSlices];
#pragma unroll
                for (int i = 0; i < Tile::kLimbs * Tile::kSlices; ++i)
                    factor[i / Tile::kSlices][i % Tile::kSlices] = view.factor[i / Tile::kSlices][slice + i % Tile::kSlices];
                const bool first = slice == view.slice_count - 1;
                static_for<0, Tile::kResults>([&](auto result) {
                    constexpr int i = decltype(result)::value;
                    totals[i][0] = add_slices<0, Tile>(first ? 0 : totals[i][0], sums, i, factor[0]);
                    if constexpr (Tile::kLimbs == 2)
                        totals[i][1] = add_slices<1, Tile>(first ? 0 : totals[i][1], sums, i, factor[1]);
                });
            }
        }
        const WgmmaResults<Tile> results(view, tile, row_group, word_group);
        if constexpr (Tile::kOneSlice) {
            std::int32_t factor[Tile::kLimbs][Tile::kSlices];
#pragma unroll
            for (int i = 0; i < Tile::kLimbs * Tile::kSlices; ++i)
                factor[i / Tile::kSlices][i % Tile::kSlices] = view.factor[i / Tile::kSlices][i % Tile::kSlices];
            results.store(view, lines, [&](auto result) {
                constexpr int i = decltype(result)::value;
                std::int32_t total[Tile::kLimbs];
                total[0] = add_slices<0, Tile>(0, sums, i, factor[0]);
                if constexpr (Tile::kLimbs == 2) total[1] = add_slices<1, Tile>(0, sums, i, factor[1]);
                return joined<Tile>(total);
            });
        } else {
            results.store(view, lines, [&](auto result) { return joined<Tile>(totals[decltype(result)::value]); });
        }
    }
}

template <class Tile>
__global__ __launch_bounds__(Tile::kThreads, 1) void linear_wgmma_kernel(const __grid_constant__ LinearView view) {
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
    extern __shared__ __align__(1024) std::int8_t stages[];
    const WgmmaShared<Tile> shared(stages);
    if (threadIdx.x == 0) {
        for (int i = 0; i < Tile::kStages; ++i) {
            barrier_init(shared.full + i, Tile::kCutInside ? 4 + 1 : 1);
            barrier_init(shared.empty + i, 4 * Tile::kConsumers);
        }
        barrier_init_done();
    }
    __syncthreads();
    if (threadIdx.x < 128 * Tile::kProducers) {
        keep_registers<Tile::kProducerRegisters>();
        if constexpr (Tile::kCutInside)
            cut_words<Tile>(view, shared);
        else if (threadIdx.x == 0)
            fetch_stages<Tile>(view, shared);
    } else {
        take_registers<Tile::kConsumerRegisters>();
        multiply_stages<Tile>(view, shared);
    }
#endif
}

#endif

}  // namespace fhe_core::cuda
