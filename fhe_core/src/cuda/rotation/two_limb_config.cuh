// The two-limb rotation kernel (blind_rotate_two_limbs.cuh): sizes and limits of a shape and layout, and the tables that it reads.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "cuda/rotation/kernel_shape.cuh"
#include "cuda/rotation/monomial.cuh"
#include "cuda/rotation/rotation_step.cuh"
#include "cuda/transform/plain_ntt.cuh"
#include "cuda/transform/warp_ntt.cuh"

namespace fhe_core::cuda {

// Twiddles of one part of one limb's transform.
struct alignas(16) PartTwiddles {
    TwiddlePair row[16 * 32];  // [vector][lane], WarpNtt<0, 1024>::twiddle_index
    Twiddle slot[32];
};

// How the product of a two-limb kernel goes.
enum class TwoLimbProduct : std::uint8_t {
    keys,  // words of a product loaded ahead. Two rows: sums over the keys of factor times key, reduced, times digits; more rows:
           // sums over the rows of digit times key, reduced, times factors (of a selected key: those sums alone)
    deep,  // sums over the keys, one key after the other: those of all rows and outputs grow together
};

// What a shape's transforms and keys are, whichever threads work on them. keys_first: a product reduces the sums over the keys,
// then those over the rows of digits; else the other way round.
template <class KernelShapeOf, bool keys_first>
struct TwoLimbTransform {
    static constexpr Shape shape = KernelShapeOf::value;
    using Row = WarpNtt<0, 1024>;  // coordinates and ranges, which do not depend on the limb
    using Step = RotationStep<shape.cmux>;
    static constexpr int kKeys = Step::kKeys;
    static constexpr int N = shape.polynomial_size, k = shape.glwe_dimension;
    static constexpr int kParts = N / 1024, kComponents = k + 1, kVectors = 8;
    static constexpr int kLevels = shape.mask_gadget.level_count, kRows = kComponents * kLevels;  // row component*kLevels + level
    static constexpr int kLogSize = log2_of(N);
    static constexpr bool kRaised = shape.is_raised(), kKeysFirst = keys_first;
    static constexpr int kSecond = shape.key_limbs().second;           // prime of limb 1, number in kLimbPrimes
    static constexpr int kModulusBits = shape.limb_count * kLimbBits;  // of ciphertexts
    static constexpr std::size_t kOutputVectors = std::size_t(kVectors) * kRows * kKeys * 32 * kParts;  // one output of one limb
    static constexpr std::size_t kSliceVectors = 2 * kComponents * kOutputVectors;  // that a ciphertext reads in a step
    static constexpr std::uint32_t kStepBytes = 16 * Step::kSlices * kSliceVectors;

    // Units of q.
    static constexpr double kForwardBound = 0.07 + 1.25 * kLogSize;
    static constexpr double kRatio = Modulus<kSecond>::q / 4294967296.0;  // q / 2^32
    static constexpr double kProductBound = (kKeysFirst ? kKeys / 4.0 : kRows * kForwardBound / 2) * kRatio + 0.5;
    static constexpr double kInputBound =
        Step::kSelectsKey ? kProductBound : (kKeysFirst ? kRows * kForwardBound : kKeys / 2.0) * kProductBound * kRatio + 0.5;
    static constexpr int kInverseInput = kInputBound <= 0.7 || kInputBound > 1 ? Row::planned_input(kInputBound) : 1000;
    static constexpr typename Row::InversePlan kInversePlan = Row::make_inverse_plan(kInverseInput);

    // The inverse as WarpNtt plans it; then the slots whose H-fold would be too much for accumulate_exact are reduced.
    static constexpr std::array<bool, 32> reduced_slots() {
        int bound[32] = {};
        for (int& b : bound) b = kInverseInput;
        for (int stage = 0; stage < 10; ++stage) {
            const int index = stage + (stage >= 5), bit = stage % 5;
            if (stage == 5) {
                int largest = 0;
                for (int s = 0; s < 32; ++s) {
                    if (kInversePlan.reduces[5][s]) bound[s] = Row::kReduced;
                    largest = bound[s] > largest ? bound[s] : largest;
                }
                for (int& b : bound) b = largest;
            }
            for (int s = 0; s < 32; ++s)
                if (kInversePlan.reduces[index][s]) bound[s] = Row::kReduced;
            for (int a = 0; a < 32; ++a)
                if (const int b = a | 1 << bit; b != a) bound[a] += bound[b], bound[b] = Row::kProduct;
        }
        std::array<bool, 32> reduced{};
        for (int s = 0; s < 32; ++s) reduced[s] = bound[s] * kParts > Row::kPairLimit;
        return reduced;
    }
    static constexpr std::array<bool, 32> kReducedSlots = reduced_slots();

    static_assert((Step::kFactorsOnProducts || Step::kSelectsKey) && shape.key_limbs().count == 2 && shape.lane_count == 1 &&
                      shape.mask_gadget == shape.body_gadget,
                  "two-limb kernels take factors on the products or selected keys, two limbs, one lane and the same digits of mask "
                  "and body");
    static_assert(!Step::kSelectsKey || !kKeysFirst, "a selected key has no factors to begin with");
    static_assert(kParts == 1 || kParts == 2 || kParts == 4, "N is 1024, 2048 or 4096");
    static_assert(kForwardBound < 16, "digits overflow 31 bits in the forward transform");
    static_assert(kRows * kForwardBound / 2 < 256, "sums over the rows overflow 62 bits");  // 2^8 * p^2 < 2^62
    static_assert(kInputBound * 1000 <= kInverseInput && kInversePlan.result <= 15000,
                  "the inverse transform plans for its inputs");
};

constexpr bool reduces_keys_first(const Shape& shape, TwoLimbProduct product) {
    if (rotation_of(shape.cmux).selects_key()) return false;
    return product == TwoLimbProduct::deep || (shape.glwe_dimension + 1) * shape.mask_gadget.level_count == 2;
}

template <class KernelShapeOf, int groups_per_block, int warps_per_part, TwoLimbProduct product = TwoLimbProduct::keys>
struct TwoLimbConfig : TwoLimbTransform<KernelShapeOf, reduces_keys_first(KernelShapeOf::value, product)> {
    using Base = TwoLimbTransform<KernelShapeOf, reduces_keys_first(KernelShapeOf::value, product)>;
    using Base::kParts, Base::kComponents, Base::kLevels, Base::kRows, Base::kKeys, Base::N, Base::shape;
    static constexpr int kGroups = groups_per_block;
    static constexpr int kWarpsPerPart = warps_per_part;  // W
    static constexpr int kWarpsPerGroup = 2 * kParts * kWarpsPerPart;
    static constexpr int kGroupThreads = kWarpsPerGroup * 32, kThreads = kGroupThreads * kGroups;
    static constexpr int kShare = kComponents * 1024 / kGroupThreads;  // coefficients of a thread, times kParts
    static constexpr int kDrop = Base::kModulusBits - shape.mask_gadget.base_log * kLevels;

    static constexpr int kPerUnit = 1, kCiphertexts = kGroups;  // of a group, of a block

    static constexpr int kTableWords = 2 * kParts * static_cast<int>(sizeof(PartTwiddles) / 4);
    static constexpr int kTileWords = kRows * 1024;  // of a limb and part
    static constexpr int kGroupWords = 2 * kParts * kTileWords;
    // Else they do not fit. Of selected keys nobody reads them.
    static constexpr bool kPowersShared =
        N < 4096 && !Base::Step::kSelectsKey &&
        (kLevels < 3 || 4 * (2 * Powers<N>::kWords + kTableWords + groups_per_block * kGroupWords) <= 227 * 1024);
    using PowerTable = Powers<N, kPowersShared>;  // of one limb
    static constexpr int kPowerWords = kPowersShared ? 2 * PowerTable::kWords : 0;
    static constexpr bool kDeep = product == TwoLimbProduct::deep;
    // Vectors of the key that a lane loads ahead: those of an output, or of two keys, or of one, where many rows leave no
    // registers.
    static constexpr int kAhead = kLevels > 2 ? kRows : kLevels == 1 || kKeys <= 3 ? kRows * kKeys : 2 * kRows;
    static constexpr bool kPrefetched = kDeep || N < 4096;  // L2 is asked for the key of the next step
    static constexpr bool kInMemory = kDeep && N < 4096;    // coefficients wait in shared memory, where they fit, not in registers
    static constexpr int kShareVectors = kShare * kParts * 2 / 4;  // 16 bytes, the coefficients of a thread
    static constexpr int kShareWords = kInMemory ? kShareVectors * 4 * kGroupThreads : 0;
    static constexpr std::size_t kSharedBytes = 4 * (kPowerWords + kTableWords + kGroups * (kGroupWords + kShareWords));

    static_assert(shape.mask_gadget.base_log <= 24 && (kLevels == 1 || (kLevels <= 4 && !Base::kRaised && !kDeep)),
                  "this kernel takes one digit, or two to four of two limbs");
    static_assert(!kDeep || !Base::Step::kSelectsKey, "key after key is for several keys");
    static_assert(kComponents * kRows * kKeys % kAhead == 0 && kAhead <= kRows * kKeys,
                  "the held vectors come round with each vector");
    static_assert(kComponents * 1024 % kGroupThreads == 0 && kShare > 0, "threads share the coefficients evenly");
    static_assert(kGroups + (kWarpsPerPart > 1 ? kGroups * 2 * kParts : 0) <= 15, "a block has 16 named barriers");
    static_assert(kSharedBytes <= 227 * 1024, "shared memory of one multiprocessor");
};

// --- Host side: tables ---

template <class Config, int limb>
void append_part_twiddles(std::vector<PartTwiddles>& tables) {
    constexpr int H = Config::kParts;
    const std::vector<Twiddle> all = plain_twiddles<limb>(Config::N, Config::kLogSize);
    for (int part = 0; part < H; ++part) {
        // Block b of t in the part's own transform is block part*t + b of H*t in the whole one.
        const auto of_part = [&](int index) {
            const int t = 1 << log2_floor(index);
            return all[index + t * (H + part - 1)];
        };
        PartTwiddles table{};
        for (int vector = 0; vector < 16; ++vector)
            for (int lane = 0; lane < 32; ++lane)
                for (int i = 0; i < 2; ++i)
                    table.row[vector * 32 + lane].x[i] = of_part(Config::Row::twiddle_index(lane, 2 * vector + i));
        for (int ordinal = 1; ordinal < 32; ++ordinal) table.slot[ordinal] = of_part(ordinal);
        tables.push_back(table);
    }
}

// [limb][part]
template <class Config>
std::vector<PartTwiddles> two_limb_tables() {
    std::vector<PartTwiddles> tables;
    append_part_twiddles<Config, 0>(tables);
    append_part_twiddles<Config, Config::kSecond>(tables);
    return tables;
}

template <class Config>
std::vector<std::uint8_t> two_limb_table_bytes() {
    const std::vector<PartTwiddles> tables = two_limb_tables<Config>();
    std::vector<std::uint8_t> bytes(tables.size() * sizeof(PartTwiddles));
    std::memcpy(bytes.data(), tables.data(), bytes.size());
    return bytes;
}

// [limb][2N]
template <class Config>
std::vector<std::int32_t> two_limb_powers() {
    std::vector<std::int32_t> powers = plain_powers<0>(Config::N);
    const std::vector<std::int32_t> second = plain_powers<Config::kSecond>(Config::N);
    powers.insert(powers.end(), second.begin(), second.end());
    return powers;
}

}  // namespace fhe_core::cuda
