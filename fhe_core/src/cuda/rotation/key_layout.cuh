// Where a word of the bootstrap key lies in the transform domain (keys that digits select: each as the step of an order of one
// key); each word is K * 2^(32 r) / N modulo its limb's prime, centred, r the number of Montgomery reductions that follow (two
// where factors X^e - 1 are applied after the product, else one).
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "core/parameters.hpp"
#include "cuda/device/modulus.cuh"

namespace fhe_core::cuda {

enum class KeyOrder : std::uint8_t {
    plain,  // [step][limb][output component][row][key of step][position]
    warp,   // [step][limb][output component][vector][row][key of step][lane][4], position = lane*points + 4*vector + i
    // [step][limb][part of 1024 points][key of step][output component][word][row], for blind_rotate_extended.cuh.
    extended,
    // Rounded products, 16 bytes a point: [step][group of 4 points of a row][point][output component][row][key of step][lane],
    // position = 32*lane + 4*group + point.
    rounded,
};

// Where the word of a position is among the 1024 of a part, and back: chunks of four are permuted row by row (WarpNtt::row_chunk).
FHE_HD constexpr int word_of_position(int position) {
    return (position >> 5 << 5) | (((position >> 2 ^ position >> 5) & 7) << 2) | (position & 3);
}

struct KeyLayout {
    KeyOrder order;
    int log_size;    // of N
    int log_points;  // per lane, warp order
    int outputs, rows, keys, limbs;
    int slices = 1;  // of a step, `keys` each: a ciphertext multiplies with the keys of one, the one that it selects

    static KeyLayout make(const ParameterSet& params, KeyOrder order, int lanes) {
        const int log_size = params.log2_polynomial_size();
        return {order,
                log_size,
                log_size - static_cast<int>(std::bit_width(static_cast<unsigned>(lanes))) + 1,
                params.accumulator_components(),
                params.row_count(),
                params.rotation().products(),
                params.key_limbs().count,
                params.keys_per_step() / params.rotation().products()};
    }
    FHE_HD int keys_per_step() const { return keys * slices; }

    FHE_HD std::size_t offset(std::size_t step, int limb, int output, int row, int key, int position) const {
        if (slices > 1) step = step * slices + key / keys, key %= keys;
        if (order == KeyOrder::extended) {
            const std::size_t slice = (step * limbs + limb) * (std::size_t{1} << (log_size - 10)) + (position >> 10);
            return ((((slice * keys + key) * outputs + output) << 10) + word_of_position(position & 1023)) * rows + row;
        }
        const std::size_t polynomial = (step * limbs + limb) * outputs + output;
        if (order == KeyOrder::plain) return (((polynomial * rows + row) * keys + key) << log_size) + position;
        const int lane = position >> log_points, vector = (position & ((1 << log_points) - 1)) >> 2;
        const std::size_t row_of_vector = ((polynomial << (log_points - 2)) + vector) * rows + row;
        return ((((row_of_vector * keys + key) << (log_size - log_points)) + lane) << 2) + (position & 3);
    }
    // In complex numbers, order `rounded`.
    FHE_HD std::size_t point_offset(std::size_t step, int output, int row, int key, int position) const {
        const std::size_t point = step * 32 + (position & 31);  // 4*group + point
        return (((point * outputs + output) * rows + row) * keys + key) * 32 + (position >> 5);
    }
    // 4 bytes each, rounded products too: N/2 points of 16 bytes are as large as two limbs of N words.
    std::size_t step_words() const { return std::size_t(limbs) * outputs * rows * keys_per_step() << log_size; }
};

}  // namespace fhe_core::cuda
