// What the kernel for sm_90a (linear_wgmma.cuh) multiplies: tiles of rows and words, words cut into unsigned bytes, and the kernel
// that cuts them before the product.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "cuda/device/block.cuh"
#include "cuda/device/hopper.cuh"
#include "cuda/device/modulus.cuh"
#include "cuda/device/unrolled.cuh"
#include "cuda/linear/byte_slices.cuh"

namespace fhe_core::cuda {

inline constexpr int kMostFactors = 12;  // 5 slices of a weight, 7 of a word
inline constexpr int kRowBlock = 64;     // rows of a wgmma
inline constexpr int kSharedLimit = 227 << 10;

struct LinearView {
    const std::int8_t* weights;  // [slice][row block][column stage], tiles of 64 rows
    const void* lwe;             // [sample][sample_rows][words]
    std::int8_t* bytes;          // [group of words][column stage], tiles of all slices; unless words are cut inside
    const std::int32_t* gather;  // [positions][columns] rows of a sample, -1 for a zero; nullptr: the first `columns` rows
    const void* bias;            // [rows], or nullptr
    void* out;
    const std::int32_t* out_rows;  // [positions], or nullptr: position * rows
    std::size_t sample_rows, out_sample_rows;
    int slice_count, rows, row_blocks, columns, column_stages;
    std::uint32_t words, mask_words, positions, first_item, items;
    std::int32_t factor[2][kMostFactors];  // [limb]: 256^i * 2^32

    FHE_HD std::uint32_t numbers() const { return items * words; }  // of all words
    // First word of row 0 of an item, which counts from first_item.
    FHE_HD std::size_t out_word(std::uint32_t item) const {
        const std::uint32_t number = first_item + item, sample = number / positions, position = number - sample * positions;
        return (sample * out_sample_rows + (out_rows == nullptr ? position * rows : out_rows[position])) * words;
    }
};

template <int limb_count, int row_groups, bool one_weight_slice, bool cut_inside>
struct WgmmaTile {
    using Word = std::conditional_t<limb_count == 1, std::uint32_t, std::uint64_t>;
    static constexpr bool kOneSlice = one_weight_slice, kCutInside = cut_inside;
    static constexpr int kLimbs = limb_count, kSlices = limb_count == 1 ? 4 : 7;
    static constexpr int kRowGroups = row_groups, kWordGroups = 2 / row_groups;  // of the two consumers
    static constexpr int kGroupWords = limb_count == 1 ? 64 : 32, kGroupRows = kGroupWords * kSlices;
    static constexpr int kTileRows = kRowGroups * kRowBlock, kTileWords = kWordGroups * kGroupWords;
    static constexpr int kSums = kGroupRows / 2;  // registers of a consumer
    static constexpr int kResults = kGroupWords / 2;

    static constexpr int kProducers = 1, kConsumers = 2;  // warpgroups
    static constexpr int kThreads = 128 * (kProducers + kConsumers);
    static constexpr int kProducerRegisters = kCutInside ? 104 : 40, kConsumerRegisters = kCutInside ? 200 : 232;
    // A producer thread cuts 16 columns of a word at a time, kRounds of them for a stage, while it loads the next kUnits - 1.
    static constexpr int kRounds = kTileWords * 4 / 128, kUnits = 16 / sizeof(Word);
    static constexpr int kWeightBytes = kTileRows * kOperandColumns, kWordBytes = kWordGroups * kGroupRows * kOperandColumns;
    static constexpr int kStageBytes = kWeightBytes + kWordBytes;
    static constexpr int kLineBytes = kGroupWords * sizeof(Word) + (sizeof(Word) == 4 ? 32 : 64), kLines = 8;  // no bank conflicts
    static constexpr int kWarpLineBytes = kLines * kLineBytes, kLinesBytes = 4 * kConsumers * kWarpLineBytes;
    static constexpr int kFitting = (kSharedLimit - kLinesBytes - 256) / kStageBytes, kStages = kFitting < 8 ? kFitting : 8;
    static constexpr int kSharedBytes = kStages * kStageBytes + kLinesBytes + 2 * kStages * 8;
    static constexpr int kGroupBytes = kGroupRows * kOperandColumns;  // of a stage of a group of words
    static_assert(kStageBytes % 1024 == 0, "operands begin where the swizzle does");
};

template <class Tile>
FHE_HD int row_tiles(const LinearView& view) {
    return (view.row_blocks + Tile::kRowGroups - 1) / Tile::kRowGroups;
}
template <class Tile>
FHE_HD int all_tiles(const LinearView& view) {
    return row_tiles<Tile>(view) * static_cast<int>((view.numbers() + Tile::kTileWords - 1) / Tile::kTileWords);
}
template <class Tile>
FHE_HD std::uint32_t word_groups(const LinearView& view) {
    return (view.numbers() + Tile::kGroupWords - 1) / Tile::kGroupWords;
}

// 16 columns of a word, cut: slice s of them is 16 bytes of row (group, s, word) of the stage.
template <class Tile>
FHE_HD void store_bytes(const typename Tile::Word (&values)[16], std::int8_t* words, int word, int chunk) {
    std::uint32_t quads[4][sizeof(values[0])];
#pragma unroll
    for (int q = 0; q < 4; ++q)
#pragma unroll
        for (int half = 0; half < static_cast<int>(sizeof(values[0]) / 4); ++half) {
            std::uint32_t four[4];
#pragma unroll
            for (int c = 0; c < 4; ++c) four[c] = static_cast<std::uint32_t>(values[4 * q + c] >> (16 * half) >> (16 * half));
            transpose_bytes(four);
#pragma unroll
            for (int slice = 0; slice < 4; ++slice) quads[q][4 * half + slice] = four[slice];
        }
    const int row = word / Tile::kGroupWords * Tile::kGroupRows + word % Tile::kGroupWords;
#pragma unroll
    for (int slice = 0; slice < Tile::kSlices; ++slice) {
        Vec4 bytes;
#pragma unroll
        for (int q = 0; q < 4; ++q) bytes.x[q] = static_cast<std::int32_t>(quads[q][slice]);
        *reinterpret_cast<Vec4*>(words + operand_offset(row + slice * Tile::kGroupWords, chunk)) = bytes;
    }
}

// One word of all rows of a position: where a producer reads.
template <class Word>
struct WordColumn {
    const Word* row0;
    const std::int32_t* rows;  // of the position, or nullptr

    FHE_HD static WordColumn of(const LinearView& view, std::uint32_t number) {
        if (number >= view.numbers()) number = view.numbers() - 1;  // bytes that nobody uses
        const std::uint32_t in_view = number / view.words, item = view.first_item + in_view, sample = item / view.positions,
                            position = item - sample * view.positions;
        return {static_cast<const Word*>(view.lwe) + sample * view.sample_rows * view.words + (number - in_view * view.words),
                view.gather == nullptr ? nullptr : view.gather + std::size_t(position) * view.columns};
    }
    FHE_HD void load(const LinearView& view, int first, Word (&values)[16]) const {
        const int left = view.columns - first;
        if (rows == nullptr) {
            const Word* const column = row0 + std::size_t(first) * view.words;
            if (left >= 16) {
#pragma unroll
                for (int i = 0; i < 16; ++i) values[i] = column[std::size_t(i) * view.words];
            } else {
#pragma unroll
                for (int i = 0; i < 16; ++i) values[i] = i < left ? column[std::size_t(i) * view.words] : Word{0};
            }
        } else {  // all rows are on their way at once, then all words: no word waits for the row of another
            int chosen[16];
#pragma unroll
            for (int i = 0; i < 16; ++i) chosen[i] = rows[first + i < view.columns ? first + i : view.columns - 1];
#pragma unroll
            for (int i = 0; i < 16; ++i)
                values[i] = i < left && chosen[i] >= 0 ? row0[std::size_t(chosen[i]) * view.words] : Word{0};
        }
    }
};

#if defined(__CUDACC__) || defined(CLOAKWORK_EMULATE_WARPS)

// Words cut before the product: a block for a group of words and 64 columns, in the order in which they are multiplied.
template <class Tile>
struct CutWords {
    using Word = typename Tile::Word;
    static constexpr int kThreads = Tile::kGroupWords * 4;
    LinearView view;

    std::size_t blocks() const { return std::size_t(word_groups<Tile>(view)) * view.column_stages; }

    template <class Block>
    __device__ __forceinline__ void operator()(const Block& block, unsigned char* shared) const {
        auto* const tile = reinterpret_cast<std::int8_t*>(shared);
        const auto group = static_cast<std::uint32_t>(block.number() / view.column_stages);
        const int stage = static_cast<int>(block.number() % view.column_stages);
        block.each(kThreads, [&](int thread) {  // neighbouring threads, neighbouring words
            const int word = thread % Tile::kGroupWords, chunk = thread / Tile::kGroupWords;
            Word values[16];
            WordColumn<Word>::of(view, group * Tile::kGroupWords + word).load(view, stage * kOperandColumns + 16 * chunk, values);
            store_bytes<Tile>(values, tile, word, chunk);
        });
        auto* const out = reinterpret_cast<Vec4*>(view.bytes + block.number() * Tile::kGroupBytes);
        block.each(kThreads, [&](int thread) {
#pragma unroll
            for (int i = 0; i < Tile::kGroupBytes / 16 / kThreads; ++i)
                out[thread + i * kThreads] = reinterpret_cast<const Vec4*>(tile)[thread + i * kThreads];
        });
    }
};

#endif

}  // namespace fhe_core::cuda
