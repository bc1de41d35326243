// Digits of a centred coefficient (docs/reference/specification.md, section 4; reference::decompose): y = (x + 2^(drop-1)) >> drop,
// cut into balanced digits, of which the most significant takes what is left.
//
// Source: [CGGI20] approximate gadget decomposition. Ours: digits are bit fields of one sum, the carries of the levels below being
// one added constant.
#pragma once

#include <cstdint>

#include "core/parameters.hpp"
#include "cuda/device/modulus.cuh"

namespace fhe_core::cuda {

// --- One limb: digits of x from the offset form y = x + (p-1)/2 (accumulator.cuh), least significant first ---

template <class M, Gadget gadget>
struct Digits {
    static constexpr int kDrop = kLimbBits - gadget.base_log * gadget.level_count;
    static constexpr std::int32_t kBase = 1 << gadget.base_log;
    std::int32_t offset = (1 << (kDrop - 1)) - M::half + (kBase / 2 << kDrop);
    int shift = kDrop;

    FHE_HD std::int32_t of(std::uint32_t y) const {
        const std::int32_t shifted = wrap(y + static_cast<std::uint32_t>(offset)) >> shift;
        const std::int32_t mask = shift + gadget.base_log == kLimbBits ? -1 : kBase - 1;
        return (shifted & mask) - kBase / 2;
    }
    FHE_HD void next() {
        shift += gadget.base_log;
        offset += kBase / 2 << shift;
    }
};

// The same for a gadget known at run time.
template <class M>
struct RunTimeDigits {
    std::int32_t offset, half_base, mask;
    int shift, base_log;

    FHE_HD static RunTimeDigits make(Gadget mask_gadget, Gadget body_gadget, bool is_body) {
        const auto drop = [](Gadget g) { return kLimbBits - g.base_log * g.level_count; };
        const auto offset = [&](Gadget g) { return (1 << (drop(g) - 1)) - M::half + (1 << (g.base_log - 1) << drop(g)); };
        RunTimeDigits d;
        d.base_log = is_body ? body_gadget.base_log : mask_gadget.base_log;
        d.shift = is_body ? drop(body_gadget) : drop(mask_gadget);
        d.offset = is_body ? offset(body_gadget) : offset(mask_gadget);
        d.half_base = 1 << (d.base_log - 1);
        d.set_mask();
        return d;
    }
    FHE_HD void set_mask() { mask = shift + base_log == kLimbBits ? -1 : 2 * half_base - 1; }
    FHE_HD std::int32_t of(std::uint32_t y) const {
        return ((wrap(y + static_cast<std::uint32_t>(offset)) >> shift) & mask) - half_base;
    }
    FHE_HD void next() {
        shift += base_log;
        offset += half_base << shift;
        set_mask();
    }
};

// --- Two limbs, one digit ---

// The centred representative of (x0, x1), both centred: x0 + q0*t with t = (x1 - x0) / q0 mod q1, centred.
FHE_HD std::int64_t compose_centred(std::int32_t x0, std::int32_t x1) {
    using M0 = Modulus<0>;
    using M1 = Modulus<1>;
    constexpr Twiddle inverse = M1::twiddle(inverse_mod(M0::p, M1::p));
    std::int32_t t = multiply_add(M1{}, 0, x1 - x0, inverse);  // [-q1/4, 5*q1/4)
    if (t > M1::half) t -= static_cast<std::int32_t>(M1::p);
    return std::int64_t{t} * static_cast<std::int32_t>(M0::p) + x0;
}

template <int drop>
FHE_HD std::int32_t only_digit(std::int64_t x) {
    return static_cast<std::int32_t>((x + (std::int64_t{1} << (drop - 1))) >> drop);
}

// --- Two limbs, several digits ---

// The digits of a centred x, level 0 the most significant.
template <Gadget gadget, int modulus_bits>
struct WideDigits {
    static constexpr std::int32_t kHalf = 1 << (gadget.base_log - 1);
    static constexpr int shift(int level) { return modulus_bits - gadget.base_log * (level + 1); }
    static constexpr std::int64_t offset() {
        std::int64_t sum = std::int64_t{1} << (shift(gadget.level_count - 1) - 1);
        for (int level = 1; level < gadget.level_count; ++level) sum += std::int64_t{kHalf} << shift(level);
        return sum;
    }
    std::int64_t sum;

    FHE_HD static WideDigits of(std::int64_t x) { return {x + offset()}; }
    template <int level>
    FHE_HD std::int32_t at() const {
        const auto field = static_cast<std::int32_t>(sum >> shift(level));
        return level == 0 ? field : (field & (2 * kHalf - 1)) - kHalf;
    }
};

// --- Any gadget, as section 4 says it ---

// put(level, digit) for every level, least significant first.
template <class Put>
FHE_HD void cut_digits(std::int64_t x, const Gadget& gadget, int modulus_bits, Put&& put) {
    const int drop = modulus_bits - gadget.base_log * gadget.level_count;
    const std::int64_t half = std::int64_t{1} << (gadget.base_log - 1);
    std::int64_t y = (x + (std::int64_t{1} << (drop - 1))) >> drop;
    for (int level = gadget.level_count - 1; level >= 0; --level) {
        const std::int64_t digit = level == 0 ? y : ((y + half) & (2 * half - 1)) - half;
        y = (y - digit) >> gadget.base_log;
        put(level, static_cast<std::int32_t>(digit));
    }
}

}  // namespace fhe_core::cuda
