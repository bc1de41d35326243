// The rotation kernel of extended tables (blind_rotate_extended.cuh): sizes and limits of a shape and layout, and the tables that
// it reads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

#include "cuda/rotation/blind_rotate_two_limbs.cuh"
#include "cuda/rotation/kernel_shape.cuh"
#include "cuda/rotation/monomial.cuh"
#include "cuda/rotation/rotation_step.cuh"

namespace fhe_core::cuda {

// How a product goes. Of two parts, a factor on the keys or digits serves too few: sums over the rows are reduced and then
// multiplied.
enum class ExtendedProduct : std::uint8_t {
    y_on_digits,  // digits are held twice, themselves and times Y
    y_on_keys,    // keys are multiplied twice, by Y^a and Y^(a + 1)
    rows_first,   // as the formula of section 6 says: factors multiply products
    lanes,        // y_on_keys, a lane for each row, output and half of the parts, whose digits and sums one thread cannot hold
};

// What a thread does at once: neighbouring points, output components; and of twelve butterflies with a factor that all lanes share,
// for how many the quotient comes from the FP64 pipe.
template <ExtendedProduct kind, int points_of_thread, int outputs_of_thread, int fp64_of_twelve = 0>
struct ExtendedLayout {
    static constexpr ExtendedProduct product = kind;
    static constexpr int points = points_of_thread, outputs = outputs_of_thread, fp64 = fp64_of_twelve;
};

template <int parts>
using DefaultExtendedLayout =
    std::conditional_t<(parts >= 16), ExtendedLayout<parts == 16 ? ExtendedProduct::y_on_keys : ExtendedProduct::lanes, 1, 1>,
                       std::conditional_t<parts == 8, ExtendedLayout<ExtendedProduct::y_on_digits, 1, 2>,
                                          std::conditional_t<parts == 4, ExtendedLayout<ExtendedProduct::y_on_digits, 2, 2>,
                                                             ExtendedLayout<ExtendedProduct::rows_first, 2, 2>>>>;

template <class KernelShapeOf, class LayoutOf = DefaultExtendedLayout<KernelShapeOf::value.extension_factor>>
struct ExtendedConfig {
    static constexpr Shape shape = KernelShapeOf::value;
    using Layout = LayoutOf;
    using Step = RotationStep<shape.cmux>;
    // Whose transforms, tables and ranges of the inverse these are.
    using Transform = TwoLimbConfig<KernelShape<2048, 1, 2, 24, 1, 24, 1, CmuxKind::binary_pair>, 1, 1>;
    using Row = typename Transform::Row;
    static constexpr int N = 2048, kLogSize = 11, kParts = shape.extension_factor, kLogParts = log2_of(kParts);
    static constexpr int kKeys = Step::kKeys, kTableSize = kParts * N;
    static constexpr int kOwnParts = 4, kWarps = 16, kThreads = 32 * kWarps;     // of a block; parts of all its ciphertexts
    static constexpr int kBlocks = kParts < kOwnParts ? 1 : kParts / kOwnParts;  // of a cluster
    static constexpr int kCiphertexts = kParts < kOwnParts ? kOwnParts / kParts : 1;
    // Of a block: slices, or half a slice of eight blocks, of all polynomials.
    static constexpr int kSlices = kBlocks < 4 ? 4 / kBlocks : 1, kHalves = kBlocks <= 4 ? 1 : 2, kSliceWords = 1024 / kHalves;
    static constexpr int kPolynomials = 2 * kOwnParts * kBlocks;
    static constexpr int kDigitWords = kSlices * kPolynomials * kSliceWords;  // T
    static constexpr bool kOneBlock = kBlocks == 1;
    static constexpr int kTileWords = kOneBlock ? 0 : kWarps * 1024;
    using PowerTable = Powers<N, kOneBlock>;
    static constexpr int kPowerWords = kOneBlock ? 2 * PowerTable::kWords : 0;
    static constexpr int kFp64 = Layout::fp64, kQuotientWords = kFp64 == 0 ? 0 : 4 * 32 * 4;
    static constexpr std::size_t kSharedBytes =
        4 * (kDigitWords + kTileWords + Transform::kTableWords + kPowerWords + kQuotientWords);
    static constexpr std::size_t kScratchWords = std::size_t(kWarps) * 2 * 1024;  // of a block
    static constexpr int kMaskDrop = 2 * kLimbBits - shape.mask_gadget.base_log,
                         kBodyDrop = 2 * kLimbBits - shape.body_gadget.base_log;

    // The product: V points and O outputs of a thread; tasks of a warp.
    static constexpr int V = Layout::points, O = Layout::outputs;
    static constexpr bool kByLanes = Layout::product == ExtendedProduct::lanes;
    static constexpr int kLanesOfPoint = kByLanes ? 8 : 2 / O;
    static constexpr int kTasksOfSlice = kSliceWords / V * kLanesOfPoint / 32 * kCiphertexts, kTasks = kSlices * kTasksOfSlice;
    static constexpr std::size_t kKeyWords = 2 * 2 * 1024;  // of a slice and key
    static constexpr std::size_t kStepWords = 4 * kKeys * kKeyWords;
    static constexpr std::uint32_t kStepBytes = 4 * kStepWords;

    // Units of p.
    static constexpr double kForwardBound = Transform::kForwardBound + 0.1;  // digits of up to 25 bits
    static constexpr double kRatio = Transform::kRatio;
    static constexpr bool kRowsFirst = Layout::product == ExtendedProduct::rows_first;
    static constexpr double kKeyBound = 0.25 * kRatio + 0.5 + 0.01;  // a key times a power, reduced; the sum of keys as well
    static constexpr double kRowSum = kForwardBound * kRatio + 0.5;  // of two rows times a key, reduced
    static constexpr double kSum = kRowsFirst ? kKeys * kRowSum / 2 : (kKeys + 1) * 2 * kForwardBound * kKeyBound;
    static constexpr double kProduct = kSum * kRatio + 0.5;

    static_assert(Step::kFactorsOnProducts && shape.polynomial_size == N && shape.glwe_dimension == 1 && shape.limb_count == 2 &&
                      shape.lane_count == 1 && shape.mask_gadget.level_count == 1 && shape.body_gadget.level_count == 1 &&
                      shape.mask_gadget.base_log <= 25 && shape.body_gadget.base_log <= 25,
                  "this kernel takes N = 2048, k = 1, factors on the products, two limbs, one lane and one digit");
    static_assert((V == 1 || V == 2) && (O == 1 || O == 2), "neighbours have one power up to its sign");
    static_assert(kParts == 2 || kParts == 4 || kParts == 8 || kParts == 16 || kParts == 32,
                  "four slices are shared by one, two, four or eight blocks");
    static_assert(kByLanes ? kParts == 32 && V == 1 && O == 1 : kParts < 32, "thirty-two parts are shared by lanes");
    static_assert(kForwardBound < 16, "digits overflow 31 bits in the forward transform");
    static_assert(kSum < 256, "sums over the keys overflow 62 bits");  // 2^8 * p^2 < 2^62
    static_assert(kRowsFirst ? kProduct * 1000 <= Transform::kInverseInput : kProduct < 15,
                  "the inverse transform plans for its inputs");
    static_assert(!kRowsFirst || kParts == 2, "products of two parts change places");
    static_assert(kKeys * kCiphertexts <= 32, "a lane holds an exponent");
    static_assert(kTasks % kWarps == 0 && kTasksOfSlice > 0, "warps share the points evenly");
    static_assert(kSharedBytes <= 227 * 1024, "shared memory of one multiprocessor");
};

// --- Quotients by FP64: x*w - q*p for q = x*w/p rounded, |result| <= p ---

// q is the low word of (2^52 + 2^31 + x) * ratio + shift, a number in [2^52, 2^53): shift = 3 * 2^51 - (2^52 + 2^31) * ratio.
struct alignas(16) Quotient {
    double ratio, shift;

    static constexpr Quotient of(std::int32_t w, std::uint32_t p) {
        const double ratio = static_cast<double>(w) / p;
        // Both terms of the sum are multiples of 2^-21, and no larger than 2^52: it is rounded once, to a multiple of 1 at most.
        return {ratio, 6755399441055744.0 - (4503599627370496.0 * ratio + 2147483648.0 * ratio)};
    }
};

// --- Host side: tables ---

// The parts' twiddles as the two-limb kernel has them, then Y at every word, [slice][1024], then quotients of the slots' twiddles,
// [slice][32].
template <class Config>
std::vector<std::uint8_t> extended_tables() {
    const std::vector<PartTwiddles> parts = two_limb_tables<typename Config::Transform>();
    std::vector<Twiddle> roots;
    for (int slice = 0; slice < 4; ++slice)
        for (int w = 0; w < 1024; ++w) {
            const int position = slice % 2 * 1024 + word_of_position(w), turns = 2 * bit_reverse(position, Config::kLogSize) + 1;
            const auto root = [&](auto m) {
                using M = decltype(m);
                return M::twiddle(pow_mod(root_of_unity(M::p, 2 * Config::N, M::sqrt_minus_one), turns, M::p));
            };
            roots.push_back(slice < 2 ? root(Modulus<0>{}) : root(Modulus<1>{}));
        }
    std::vector<Quotient> quotients;
    for (int slice = 0; slice < 4; ++slice)
        for (const Twiddle& w : parts[slice].slot)
            quotients.push_back(Quotient::of(w.value, slice < 2 ? Modulus<0>::p : Modulus<1>::p));
    std::vector<std::uint8_t> bytes;
    const auto append = [&](const auto& table) {
        const auto* first = reinterpret_cast<const std::uint8_t*>(table.data());
        bytes.insert(bytes.end(), first, first + table.size() * sizeof(table[0]));
    };
    append(parts);
    append(roots);
    append(quotients);
    return bytes;
}

}  // namespace fhe_core::cuda
