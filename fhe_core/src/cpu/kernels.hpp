// What the vector kernels of one instruction set offer, and the tables they read. Filled per instruction set by kernels.cpp,
// chosen by dispatch.cpp, driven by expanded_key.cpp (keys) and by the stages blind_rotate.cpp, keyswitch.cpp and linear.cpp.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/large_ntt.hpp"
#include "core/parameters.hpp"

namespace fhe_core::cpu {

// Tables of the negacyclic transform modulo one prime, for vectors of `width` lanes. Transforms compute modulo q, the prime or a
// multiple of 27 bits (modular.hpp), Montgomery reductions modulo the prime. Twiddles are centred, each with its Shoup companion
// round(w * 2^32 / q).
//
// Transform domain: memory index B*W^2 + r*W + l (block B, register r, lane l) holds the value at psi^E with
// E = 2*(brv(r)*N/W + brv(l)*N/W^2 + brv(B)) + 1, brv = bit reversal in log2 W, log2 W and log2(N/W^2) bits.
struct NttTables {
    int polynomial_size;
    int width;
    std::int32_t q;
    std::int32_t prime;
    std::int32_t prime_inverse;            // modulo 2^32
    std::int32_t sqrt_minus_one;           // psi^(N/2); 11520 for the first prime, not small for the others
    const std::int32_t* forward;           // [N/W][2] twiddle, companion; index m + i of stage with m groups
    const std::int32_t* inverse;           // likewise, inverted
    const std::int32_t* forward_tail;      // [N/W^2][W-1][2][W] vectors of the last log2 W stages, in order of use
    const std::int32_t* inverse_tail;      // likewise, of the first log2 W inverse stages
    const std::int32_t* powers;            // [2N] psi^e, centred
    const std::int32_t* power_companions;  // [2N]
    const std::int32_t* lane_exponents;    // [W] 2*brv(l)*N/W^2
    const std::int32_t* vector_exponents;  // [N/W] E at lane 0
    const std::int32_t* unit_roots;        // [N/W][2][W] psi^E, X itself: roots, companions
};

// One blind rotation of a block of ciphertexts by one thread.
struct RotateJob {
    const ParameterSet* parameters;
    const NttTables* tables[2];  // of ParameterSet::transform_limbs
    // [step][limb][vector][key of step][row][component][lane]; selected keys: [step][key of step][vector][row][component][lane];
    // rounded: Tiles [step][component][row][key].
    const std::int32_t* key;
    std::size_t key_step_words;
    void* accumulators;  // [batch][nu][k+r][N] words (of an NTRU accumulator the bodies stay zero), offset representation x +
                         // (Q-1)/2 in [0, Q)
    const std::uint32_t* switched;  // [batch][n+r]
    std::size_t batch;
    int first_step, last_step;  // of the key
    std::int32_t* scratch;      // rotate_scratch_words()
};

// One polynomial modulo one prime, in place: natural order and residues, or transform order and residues (large_ntt.hpp).
struct LargeNttJob {
    int n1;
    const LargePrime* prime;
    const Root* roots;
    std::uint32_t* words;   // [N1][256] in [0, q)
    std::int32_t* scratch;  // kLargeNttScratchWords
};
inline constexpr int kLargeNttColumns = 16;
inline constexpr std::size_t kLargeNttScratchWords = std::size_t{1 << (kMostLargeLog - kRowLog)} * kLargeNttColumns;
static_assert(kLargeNttScratchWords >= std::size_t{2 * kRowSize * kLargeNttColumns});  // rows, and powers of their roots

// Rows of residues in [0, q) modulo one prime (levelled_words.hpp); counts are multiples of kLargeNttColumns. Factors are centred.
struct LevelledKernels {
    // (a - b) * factor / 2^32; b may be nullptr.
    void (*scale)(const LargePrime& prime, const std::uint32_t* a, const std::uint32_t* b, std::int32_t factor, std::size_t count,
                  std::uint32_t* out);
    // a * factor / 2^32, centred.
    void (*centre)(const LargePrime& prime, const std::uint32_t* a, std::int32_t factor, std::size_t count, std::int32_t* out);
    // out[j] = sum over `terms` i of digits[i * stride + j] * row[i] / 2^32, both centred.
    void (*change)(const LargePrime& prime, const std::int32_t* digits, std::size_t stride, const std::int32_t* row,
                   std::size_t terms, std::size_t count, std::uint32_t* out);
    // out[j] = sum over k of a[k][j] * b[k][j] / 2^32.
    void (*products)(const LargePrime& prime, const std::uint32_t* const* a, const std::uint32_t* const* b, std::size_t terms,
                     std::size_t count, std::uint32_t* out);
    void (*add)(const LargePrime& prime, const std::uint32_t* a, const std::uint32_t* b, bool negative, std::size_t count,
                std::uint32_t* out);
};

struct Kernels {
    const char* name;
    int width;
    // One polynomial of residues in [0, q) to the transform domain, times `factor` (residue), centred; strided by vectors:
    // vector v goes to out + v * vector_stride.
    void (*transform_key)(const NttTables& tables, const std::uint32_t* polynomial, std::uint32_t factor, std::int32_t* out,
                          std::size_t vector_stride, std::int32_t* scratch);
    // The same of sets with rounded products, words modulo `key_modulus` to a Tile (rounded_rotation.hpp); nullptr without fused
    // multiply-adds of doubles.
    void (*transform_rounded_key)(const std::uint64_t* polynomial, std::uint64_t key_modulus, double* out);
    void (*rotate)(const RotateJob& job);
    void (*rotate_rounded)(const RotateJob& job);  // nullptr likewise
    std::size_t (*rotate_scratch_words)(const ParameterSet& parameters);
    // out[c][j] -= sum over rows of digits[c][row] * key[row][j] in 16-bit or 32-bit wrap-around arithmetic. A digit of the 16-bit
    // form stands in both halves of its word, so that one broadcast fills all lanes.
    void (*keyswitch16)(const std::int32_t* digits, std::size_t digit_stride, std::size_t rows, const std::uint16_t* key,
                        std::size_t columns, std::size_t batch, std::uint16_t* out);
    void (*keyswitch32)(const std::int32_t* digits, std::size_t digit_stride, std::size_t rows, const std::uint32_t* key,
                        std::size_t columns, std::size_t batch, std::uint32_t* out);
    // out[r][j] = sum over c of weights[r * weight_stride + c] * x[c][j], exact in 64 bits; words a multiple of kLinearTile.
    void (*linear)(const std::int32_t* weights, std::size_t weight_stride, std::size_t rows, std::size_t columns,
                   const std::int32_t* x, std::size_t words, std::int64_t* out);
    // out += a * w, both in the transform domain with |.| <= q/2, times N / 2^32; out in [0, q). `scratch` has N words.
    void (*multiply_polynomials)(const NttTables& tables, const std::int32_t* a, const std::int32_t* w, std::int32_t* scratch,
                                 std::int32_t* out);
    void (*large_ntt)(const LargeNttJob& job, bool inverse);
    LevelledKernels levelled;
};

inline constexpr std::size_t kLinearTile = 32;

#define FHE_CORE_DECLARE_KERNELS(isa) const Kernels& kernels_##isa();
FHE_CORE_DECLARE_KERNELS(baseline)
FHE_CORE_DECLARE_KERNELS(avx2)
FHE_CORE_DECLARE_KERNELS(avx512)
#undef FHE_CORE_DECLARE_KERNELS

// The best set that this processor runs, or the one that CLOAKWORK_CPU names (ParameterError when it cannot run).
const Kernels& select_kernels();

}  // namespace fhe_core::cpu
