// Where a word of the bootstrap key lies in the transform domain; each word is K * 2^(32 r) / N modulo its limb's prime, centred,
// r the number of Montgomery reductions that follow (two where factors X^e - 1 are applied after the product, else one).
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "cuda/modulus.cuh"
#include "fhe_core/parameters.hpp"

namespace fhe_core::cuda {

enum class KeyOrder : std::uint8_t {
    plain,  // [step][limb][output component][row][key of step][position]
    warp,   // [step][limb][output component][vector][row][key of step][lane][4], position = lane*points + 4*vector + i
};

struct KeyLayout {
    KeyOrder order;
    int log_size;    // of N
    int log_points;  // per lane, warp order
    int outputs, rows, keys, limbs;

    static KeyLayout make(const ParameterSet& params, KeyOrder order, int lanes) {
        const int log_size = params.log2_twice_polynomial_size() - 1;
        return {order,
                log_size,
                log_size - static_cast<int>(std::bit_width(static_cast<unsigned>(lanes))) + 1,
                params.glwe_dimension() + 1,
                params.row_count(),
                params.keys_per_step(),
                params.limb_count()};
    }

    FHE_HD std::size_t offset(std::size_t step, int limb, int output, int row, int key, int position) const {
        const std::size_t polynomial = (step * limbs + limb) * outputs + output;
        if (order == KeyOrder::plain) return (((polynomial * rows + row) * keys + key) << log_size) + position;
        const int lane = position >> log_points, vector = (position & ((1 << log_points) - 1)) >> 2;
        const std::size_t row_of_vector = ((polynomial << (log_points - 2)) + vector) * rows + row;
        return ((((row_of_vector * keys + key) << (log_size - log_points)) + lane) << 2) + (position & 3);
    }
    std::size_t step_words() const { return std::size_t(limbs) * outputs * rows * keys << log_size; }
};

}  // namespace fhe_core::cuda
