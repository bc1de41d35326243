// Host side of the transforms: twiddles in the order of reading, powers of the 2N-th root.
#pragma once

#include <cstdint>
#include <vector>

#include "cuda/transform/warp_ntt.cuh"

namespace fhe_core::cuda {

// [vector][lane], WarpNtt::twiddle_index
template <class Ntt>
std::vector<TwiddlePair> twiddle_table() {
    std::vector<TwiddlePair> table(Ntt::kTwiddleVectors * 32);
    for (int vector = 0; vector < Ntt::kTwiddleVectors; ++vector)
        for (int lane = 0; lane < 32; ++lane)
            for (int i = 0; i < 2; ++i) table[vector * 32 + lane].x[i] = Ntt::twiddle(Ntt::twiddle_index(lane, 2 * vector + i));
    return table;
}

// root^x, centred, x in [0, 2N)
template <class Ntt>
std::vector<std::int32_t> power_table() {
    std::vector<std::int32_t> powers(2 * Ntt::N);
    std::uint64_t power = 1;
    for (std::int32_t& entry : powers) {
        entry = Ntt::M::centre(power);
        power = mul_mod(power, Ntt::root, Ntt::M::p);
    }
    return powers;
}

}  // namespace fhe_core::cuda
