// Factors X^e - 1 in the transform domain: position i of a transform is the value at root^(2*brv(i) + 1), so that X^e is root^(e *
// (2*brv(i) + 1)) there, looked up in a table of root^x, x < 2N.
//
// Neighbouring positions 2i and 2i + 1 differ by root^(e*N) = (-1)^e: one look-up serves both.
#pragma once

#include <cstdint>

#include "cuda/device/bits.cuh"
#include "cuda/device/modulus.cuh"
#include "cuda/device/unrolled.cuh"

namespace fhe_core::cuda {

// Powers of the 2N-th root. Padded, for shared memory: word x at x + x/32, so that gathers with power-of-two strides touch all
// banks.
template <int polynomial_size, bool padded = true>
struct Powers {
    static constexpr int kSize = 2 * polynomial_size;
    static constexpr int kWords = padded ? kSize + kSize / 32 : kSize;
    const std::int32_t* words;

    FHE_HD static int word_of(int x) { return padded ? x + (x >> 5) : x; }
    FHE_HD std::int32_t operator[](std::uint32_t exponent) const {
        const std::uint32_t x = exponent & (kSize - 1);
        return words[padded ? x + (x >> 5) : x];
    }
};

// 2*brv(first position of a lane) + 1, `lanes` of them.
FHE_HD std::uint32_t root_of_lane(int lane, int log_lanes) {
    return 2 * reverse_position(static_cast<std::uint32_t>(lane), log_lanes) + 1;
}

// 0 or -1: whether neighbouring positions have opposite powers.
FHE_HD std::int32_t neighbour_sign(std::uint32_t exponent) { return -static_cast<std::int32_t>(exponent & 1); }

// Factors at two neighbouring positions from the power at the first.
FHE_HD void neighbour_factors(std::int32_t power, std::int32_t sign, std::int32_t& even, std::int32_t& odd) {
    even = power - 1;
    odd = (power ^ sign) - sign - 1;
}

// The same factors for exponents whose log2(2N) bits are the highest of a word, so that they wrap by themselves. In shared memory
// the table holds X^e - 1 itself, word x at x + x/32; else it is the one of powers.
template <int polynomial_size, bool in_shared_memory = true>
struct FactorTable {
    static constexpr int kSize = 2 * polynomial_size, kShift = 32 - log2_of(kSize);
    static constexpr int kWords = Powers<polynomial_size, in_shared_memory>::kWords;
    const std::int32_t* words;

    FHE_HD static int word_of(int x) { return in_shared_memory ? x + (x >> 5) : x; }
    FHE_HD static std::int32_t entry(std::int32_t power) { return in_shared_memory ? power - 1 : power; }
    FHE_HD static std::uint32_t raised(std::uint32_t exponent) { return exponent << kShift; }
    // 0 or -1: whether neighbouring positions have opposite powers.
    FHE_HD static std::int32_t sign(std::uint32_t raised_exponent) { return wrap(raised_exponent << (31 - kShift)) >> 31; }
    // At two neighbouring positions; `turned`: the raised exponent times 2*brv(first of them) + 1.
    FHE_HD void neighbours(std::uint32_t turned, std::int32_t sign, std::int32_t& even, std::int32_t& odd) const {
        const std::uint32_t x = turned >> kShift;
        even = in_shared_memory ? words[x + (turned >> (kShift + 5))] : words[x] - 1;
        odd = (even ^ sign) + sign;  // -(even + 1) - 1
    }
};

// The factors of one exponent at the points of a lane, P*lane + q, for code that unrolls over q.
template <class Ntt>
struct MonomialFactors {
    std::uint32_t base;  // e * root_of_lane
    std::uint32_t step;  // 64 * e: position P*lane + q adds step * brv(q)
    std::int32_t sign;

    FHE_HD static MonomialFactors make(std::uint32_t exponent, std::uint32_t lane_root) {
        return {exponent * lane_root, exponent * 64, neighbour_sign(exponent)};
    }

    // Positions 4*vector .. +3.
    template <int vector>
    FHE_HD void at(const Powers<Ntt::N>& powers, std::int32_t (&factor)[4]) const {
        static_for<0, 2>([&](auto pair) {
            constexpr int q = 4 * vector + 2 * decltype(pair)::value, i = 2 * decltype(pair)::value;
            constexpr std::uint32_t reversed = bit_reverse(q, Ntt::p);
            neighbour_factors(powers[base + step * reversed], sign, factor[i], factor[i + 1]);
        });
    }
};

}  // namespace fhe_core::cuda
