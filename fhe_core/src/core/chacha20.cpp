// ChaCha20 block function over several counters at once: one vector lane per block.
// Source: [RFC8439] section 2.3.
#include "core/chacha20.hpp"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "core/processor.hpp"
#include "core/secure_memory.hpp"

namespace fhe_core {
namespace {

static_assert(std::endian::native == std::endian::little, "keystream words are stored little-endian");

using State = std::array<std::uint32_t, 16>;
using BlocksFunction = void (*)(const State&, const std::uint32_t* counters, std::uint32_t* words);

// Every variant does kWide blocks per call, in as many passes as its registers need.
constexpr std::size_t kWide = 16;
typedef std::uint32_t Vec4 __attribute__((vector_size(16), may_alias));
typedef std::uint32_t Vec8 __attribute__((vector_size(32), may_alias));
typedef std::uint32_t Vec16 __attribute__((vector_size(64), may_alias));

template <int bits, class Vec>
[[gnu::always_inline]] inline void rotate_left(Vec& x) {
    x = (x << bits) | (x >> (32 - bits));
}

template <class Vec>
[[gnu::always_inline]] inline void quarter_round(Vec& a, Vec& b, Vec& c, Vec& d) {
    a += b, d ^= a, rotate_left<16>(d);
    c += d, b ^= c, rotate_left<12>(b);
    a += b, d ^= a, rotate_left<8>(d);
    c += d, b ^= c, rotate_left<7>(b);
}

// sizeof(Vec) / 4 blocks.
template <class Vec>
[[gnu::always_inline]] inline void block_lanes(const State& state, const std::uint32_t* counters, std::uint32_t* words) {
    constexpr std::size_t lanes = sizeof(Vec) / 4;
    Vec initial_counter;
    std::memcpy(&initial_counter, counters, sizeof(Vec));
    Vec x[16];
    for (int i = 0; i < 16; ++i) x[i] = Vec{} + state[i];
    x[12] = initial_counter;
    for (int round = 0; round < 10; ++round) {
        quarter_round(x[0], x[4], x[8], x[12]);
        quarter_round(x[1], x[5], x[9], x[13]);
        quarter_round(x[2], x[6], x[10], x[14]);
        quarter_round(x[3], x[7], x[11], x[15]);
        quarter_round(x[0], x[5], x[10], x[15]);
        quarter_round(x[1], x[6], x[11], x[12]);
        quarter_round(x[2], x[7], x[8], x[13]);
        quarter_round(x[3], x[4], x[9], x[14]);
    }
    alignas(64) std::uint32_t lane_words[16][lanes];
    for (int i = 0; i < 16; ++i) {
        x[i] += i == 12 ? initial_counter : Vec{} + state[i];
        std::memcpy(lane_words[i], &x[i], sizeof(Vec));
    }
    for (std::size_t lane = 0; lane < lanes; ++lane)
        for (int i = 0; i < 16; ++i) words[16 * lane + i] = lane_words[i][lane];
}

#if defined(__wasm__)
// A block as four rows, columns then diagonals, `kBlocks` blocks side by side: 7 % less of a key's time than a lane for each block,
// which needs its words transposed.
template <std::size_t kBlocks>
void block_rows(const State& state, const std::uint32_t* counters, std::uint32_t* words) {
    Vec4 initial[4], x[kBlocks][4];
    std::memcpy(initial, state.data(), sizeof initial);
    for (std::size_t block = 0; block < kBlocks; ++block) {
        std::copy_n(initial, 4, x[block]);
        x[block][3][0] = counters[block];
    }
    for (int round = 0; round < 10; ++round) {
        for (auto& [a, b, c, d] : x) quarter_round(a, b, c, d);
        for (auto& [a, b, c, d] : x) {
            b = __builtin_shufflevector(b, b, 1, 2, 3, 0);
            c = __builtin_shufflevector(c, c, 2, 3, 0, 1);
            d = __builtin_shufflevector(d, d, 3, 0, 1, 2);
        }
        for (auto& [a, b, c, d] : x) quarter_round(a, b, c, d);
        for (auto& [a, b, c, d] : x) {
            b = __builtin_shufflevector(b, b, 3, 0, 1, 2);
            c = __builtin_shufflevector(c, c, 2, 3, 0, 1);
            d = __builtin_shufflevector(d, d, 1, 2, 3, 0);
        }
    }
    for (std::size_t block = 0; block < kBlocks; ++block) {
        initial[3][0] = counters[block];
        for (int row = 0; row < 4; ++row) x[block][row] += initial[row];
        std::memcpy(words + 16 * block, x[block], sizeof x[block]);
    }
}

void wide_blocks_baseline(const State& state, const std::uint32_t* counters, std::uint32_t* words) {
    constexpr std::size_t kBlocks = 4;  // faster than fewer, though their 16 rows leave no register free
    for (std::size_t lane = 0; lane < kWide; lane += kBlocks) block_rows<kBlocks>(state, counters + lane, words + 16 * lane);
}
#else
void wide_blocks_baseline(const State& state, const std::uint32_t* counters, std::uint32_t* words) {
    for (std::size_t lane = 0; lane < kWide; lane += 4) block_lanes<Vec4>(state, counters + lane, words + 16 * lane);
}
#endif

#if defined(__x86_64__)
__attribute__((target("avx2"))) void wide_blocks_avx2(const State& state, const std::uint32_t* counters, std::uint32_t* words) {
    for (std::size_t lane = 0; lane < kWide; lane += 8) block_lanes<Vec8>(state, counters + lane, words + 16 * lane);
}

#if defined(__clang__)  // knows no such attribute, and takes the width of the vectors that are written
#define FHE_CORE_AVX512 "avx512f"
#else
#define FHE_CORE_AVX512 "avx512f,prefer-vector-width=512"
#endif
__attribute__((target(FHE_CORE_AVX512))) void wide_blocks_avx512(const State& state, const std::uint32_t* counters,
                                                                 std::uint32_t* words) {
    block_lanes<Vec16>(state, counters, words);
}
#endif

// CLOAKWORK_CPU forces a narrower variant, as it does for the CPU back end (which reports a wrong value).
BlocksFunction choose_wide_blocks() {
#if defined(__x86_64__)
    const char* variable = std::getenv("CLOAKWORK_CPU");
    const std::string_view forced = variable == nullptr ? "" : variable;
    const Processor has = processor();
    if (has.avx512 && forced != "avx2" && forced != "baseline") return wide_blocks_avx512;
    if (has.avx2 && forced != "baseline") return wide_blocks_avx2;
#endif
    return wide_blocks_baseline;
}

const BlocksFunction wide_blocks = choose_wide_blocks();

}  // namespace

ChaCha20::ChaCha20(const Seed& key, std::uint32_t domain, std::uint64_t index) {
    state_ = {0x61707865u, 0x3320646eu, 0x79622d32u, 0x6b206574u};  // "expand 32-byte k"
    std::memcpy(&state_[4], key.data(), key.size());
    state_[12] = 0;
    state_[13] = domain;
    state_[14] = static_cast<std::uint32_t>(index);
    state_[15] = static_cast<std::uint32_t>(index >> 32);
}

void ChaCha20::blocks(const std::uint32_t* counters, std::size_t count, std::uint32_t* words) const {
    for (; count >= kWide; count -= kWide, counters += kWide, words += 16 * kWide) wide_blocks(state_, counters, words);
    if (count == 0) return;
    std::uint32_t padded[kWide] = {};
    alignas(64) std::uint32_t buffer[16 * kWide];
    std::copy_n(counters, count, padded);
    wide_blocks(state_, padded, buffer);
    std::copy_n(buffer, 16 * count, words);
    erase_memory(buffer, sizeof buffer);
}

void ChaCha20::keystream(std::uint32_t first, std::size_t count, std::uint32_t* words) const {
    constexpr std::size_t kChunk = 4 * kWide;
    std::uint32_t counters[kChunk];
    while (count != 0) {
        const std::size_t part = std::min(count, kChunk);
        for (std::size_t i = 0; i < part; ++i) counters[i] = first + static_cast<std::uint32_t>(i);
        blocks(counters, part, words);
        first += static_cast<std::uint32_t>(part);
        count -= part;
        words += kWordsPerBlock * part;
    }
}

ChaCha20::~ChaCha20() { erase_memory(state_.data(), sizeof state_); }

}  // namespace fhe_core
