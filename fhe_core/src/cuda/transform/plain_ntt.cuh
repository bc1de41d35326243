// Transforms of many polynomials by one block, radix 2, in memory: the simple counterpart of warp_ntt.cuh for any N up to 4096.
// Same order (bit-reversed, position i at root^(2*brv(i) + 1)), same roots.
// Source: [LN16] algorithms 1 and 2.
#pragma once

#include <cstdint>
#include <vector>

#include "cuda/device/bits.cuh"
#include "cuda/device/block.cuh"
#include "cuda/device/modulus.cuh"

namespace fhe_core::cuda {

// Tables of one limb in device memory: root^brv(i) for i < N, and root^x, centred, for x < 2N.
struct PlainTables {
    const Twiddle* twiddles;
    const std::int32_t* powers;
};

template <int limb>
std::vector<std::int32_t> plain_powers(int polynomial_size) {
    using M = Modulus<limb>;
    const std::uint64_t root = root_of_unity(M::p, 2 * polynomial_size, M::sqrt_minus_one);
    std::vector<std::int32_t> powers(2 * polynomial_size);
    std::uint64_t power = 1;
    for (std::int32_t& entry : powers) {
        entry = M::centre(power);
        power = mul_mod(power, root, M::p);
    }
    return powers;
}

template <int limb>
std::vector<Twiddle> plain_twiddles(int polynomial_size, int log_size) {
    using M = Modulus<limb>;
    const std::vector<std::int32_t> powers = plain_powers<limb>(polynomial_size);
    std::vector<Twiddle> twiddles(polynomial_size);
    for (int i = 0; i < polynomial_size; ++i) twiddles[i] = M::twiddle(residue(powers[bit_reverse(i, log_size)], M::p));
    return twiddles;
}

// `count` polynomials of one limb, N words apart; |x| < p on entry, below p + 1.25 p * log_size < 16 p after.
template <class M, class Block>
FHE_HD void plain_forward(const Block& block, std::int32_t* x, int count, int log_size, const Twiddle* twiddles) {
    for (int stage = 0; stage < log_size; ++stage) {
        const int log_half = log_size - 1 - stage;
        block.each(count << (log_size - 1), [&](int i) {
            const int polynomial = i >> (log_size - 1), pair = i & ((1 << (log_size - 1)) - 1);
            const int part = pair >> log_half,
                      a = (polynomial << log_size) + (part << (log_half + 1)) + (pair & ((1 << log_half) - 1));
            forward_butterfly(M{}, x[a], x[a + (1 << log_half)], twiddles[(1 << stage) + part]);
        });
    }
}

// |x| <= 0.7 p on entry, [-p/4, 5p/4) after (first half 0.69 p); no factor 1/N.
template <class M, class Block>
FHE_HD void plain_inverse(const Block& block, std::int32_t* x, int count, int log_size, const Twiddle* twiddles) {
    for (int stage = log_size - 1; stage >= 0; --stage) {
        const int log_half = log_size - 1 - stage;
        block.each(count << (log_size - 1), [&](int i) {
            const int polynomial = i >> (log_size - 1), pair = i & ((1 << (log_size - 1)) - 1);
            const int part = pair >> log_half,
                      a = (polynomial << log_size) + (part << (log_half + 1)) + (pair & ((1 << log_half) - 1));
            inverse_butterfly(M{}, x[a], x[a + (1 << log_half)], twiddles[(2 << stage) - 1 - part]);
            x[a] = reduce(M{}, x[a]);
        });
    }
}

}  // namespace fhe_core::cuda
