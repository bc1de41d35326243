// A random key of a set with rounded products: words for reference::blind_rotate, points for the kernel.
#pragma once

#include <vector>

#include "cuda/rotation/blind_rotate_rounded.cuh"
#include "cuda/rotation/key_layout.cuh"
#include "host_key.hpp"

namespace fhe_core::cuda {

// Words [step][key][row][2][N] -> KeyOrder::rounded.
inline std::vector<Complex> rounded_key(const ParameterSet& params, const std::vector<std::uint64_t>& key) {
    const KeyLayout layout = KeyLayout::make(params, KeyOrder::rounded, 32);
    std::vector<Complex> out(key.size() / 2);
    for (std::size_t i = 0; i < key.size() / fft::kDegree; ++i) {
        const fft::Points points = fft::key_points({key.data() + i * fft::kDegree, fft::kDegree}, params.key_modulus());
        const int component = i % 2, row = i / 2 % layout.rows, j = i / 2 / layout.rows % layout.keys;
        for (int p = 0; p < fft::kPoints; ++p)
            out[layout.point_offset(i / 2 / layout.rows / layout.keys, component, row, j, p)] = points[p];
    }
    return out;
}

}  // namespace fhe_core::cuda
