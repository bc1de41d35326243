// Blind rotation with factors on the products, two limbs, many digits per component: ACC += sum_j (X^e_j - 1) * (K_j [x] ACC), all
// steps in one persistent kernel (docs/reference/specification.md, section 6; reference::blind_rotate).
// N = H * 1024, H = 2 or 4, k = 1.
//
// The transforms of all digits do not fit a multiprocessor, but after its first log2 H stages a transform falls into H parts that
// know nothing of each other. So a block takes a limb and a part at a time, all rows of it, and sums over all rows are reduced
// once.
//
// Who does what. A block of sixteen warps owns T ciphertexts, which share the words of the key: a word, once in a register, is
// multiplied with the digits of all.
//
//   each step, limb, part, threads:  digits -> what the first log2 H stages give this part -> D
//                                    block barrier: the digits are there
//                           warps:   the other stages, a row each; the last warps: the part before, a row of S each backwards but
//                                    for log2 H stages -> updates
//                                    block barrier: the transforms are there, S is free
//                           warps:   products: 4-point groups of one output component, sums over the rows of digit times key,
//                                    reduced, times factors -> S
//                                    block barrier: the products are there, D is free
//   each limb               warps:   the last part backwards
//                                    block barrier: the updates are there, the tables are free
//   each step, threads:  last log2 H stages of the inverse, ACC += update -> digits
//
// Scratch (device memory, which stays in L2), of a block: ACC [ciphertext][component][N], 64-bit centred words; their digits, a
// byte each, [ciphertext][component][word][N], digits 4*word .. +3 in a word; updates [ciphertext][component][limb][part][1024].
// ACC and digits are known to one thread alone until the rotation ends.
//
// Shared memory: of the limb at hand, powers of the 2N-th root, word x at x + x/32, and twiddles (PartTwiddles) of all parts;
// D[ciphertext][row][1024]; S[ciphertext][component][1024].
//
// Key: as blind_rotate_two_limbs.cuh. L2 is asked for the words of the next step.
//
// Source: as blind_rotate_two_limbs.cuh, [BMMP18]; parts one after the other are ours.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/rotation/accumulator.cuh"
#include "cuda/rotation/digits.cuh"
#include "cuda/rotation/persistent.cuh"
#include "cuda/rotation/product.cuh"
#include "cuda/rotation/two_limb_part.cuh"

namespace fhe_core::cuda {

template <class KernelShapeOf, int ciphertexts>
struct ManyDigitsConfig : TwoLimbTransform<KernelShapeOf, false> {
    using Base = TwoLimbTransform<KernelShapeOf, false>;
    using Base::kParts, Base::kComponents, Base::kLevels, Base::kRows, Base::kKeys, Base::kVectors, Base::N, Base::shape;
    static constexpr int kWarps = 16, kThreads = 32 * kWarps;
    static constexpr int kCiphertexts = ciphertexts, kPerUnit = ciphertexts;  // T
    static constexpr int kShare = kComponents * 1024 / kThreads;  // coefficients of a thread and ciphertext, times kParts
    static constexpr int kAhead = kRows % 3 == 0 ? 3 : 2;         // rows of the key that a lane loads ahead

    using PowerTable = Powers<N>;
    static constexpr int kTableWords = kParts * static_cast<int>(sizeof(PartTwiddles) / 4);
    static constexpr int kDigitWords = kCiphertexts * kRows * 1024, kSumWords = kCiphertexts * kComponents * 1024;
    static constexpr std::size_t kSharedBytes = 4 * (PowerTable::kWords + kTableWords + kDigitWords + kSumWords);
    static constexpr int kPacked = (kLevels + 3) / 4;  // words of digits of a coefficient
    static constexpr int kCoefficients = kCiphertexts * kComponents * N;
    static constexpr std::size_t kScratchBytes = std::size_t(kCoefficients) * (8 + 4 * kPacked + 2 * 4);

    // Units of q: the first stage as a plain product, by the larger root; what it may be for the stages that follow.
    static constexpr double kFirstStage =
        (1 << (shape.mask_gadget.base_log - 1)) * (1.0 + Modulus<1>::sqrt_minus_one) / Modulus<1>::q;
    static constexpr double kMostFolded = Base::kForwardBound - 1.25 * (Base::kLogSize - 1);
    static constexpr bool kFirstReduced = kFirstStage > kMostFolded;

    static_assert(!Base::kRaised && Base::kSecond == 1 && Base::k == 1 && (kParts == 2 || kParts == 4),
                  "this kernel takes k = 1, two limbs of ciphertexts, and N = 2048 or 4096");
    static_assert(kFirstStage < 15 && kMostFolded > 0.69, "digits are so small that a plain product with a root fits 31 bits");
    static_assert(shape.mask_gadget.base_log <= 7, "digits fit bytes, the most significant, which may be 2^(base_log - 1), too");
    static_assert(kRows % kAhead == 0, "the held rows come round with each turn of the loop");
    static_assert(kComponents * kVectors % kWarps == 0 && kComponents * kCiphertexts <= kWarps,
                  "warps share the products evenly, and transform one row back at most");
    static_assert(kComponents * 1024 % kThreads == 0, "threads share the coefficients evenly");
    static_assert(kSharedBytes <= 227 * 1024, "shared memory of one multiprocessor");
};

// One thread's view of its block's work.
template <class Config>
struct ManyDigitsThread {
    using Row = typename Config::Row;
    using Part = TwoLimbPart<Config>;
    using Digits = WideDigits<Config::shape.mask_gadget, Config::kModulusBits>;
    static constexpr int H = Config::kParts, N = Config::N, kComponents = Config::kComponents, kShare = Config::kShare;
    static constexpr int kCiphertexts = Config::kCiphertexts, kRows = Config::kRows, kKeys = Config::kKeys;
    static constexpr int kPacked = Config::kPacked;
    static constexpr std::int64_t kModulus = std::int64_t{kLimbPrimes[0]} * kLimbPrimes[1], kHalf = (kModulus - 1) / 2;

    int thread, lane, warp;
    std::int64_t* accumulators;  // [ciphertext][component][N]
    std::uint32_t* packed;       // [ciphertext][component][word][N]
    std::int32_t* updates;       // [ciphertext][component][limb][N]
    std::int32_t* digits;        // D
    std::int32_t* sums;          // S

    FHE_HD static ManyDigitsThread make(int thread, unsigned char* scratch, std::int32_t* digits) {
        auto* const accumulators = reinterpret_cast<std::int64_t*>(scratch);
        auto* const packed = reinterpret_cast<std::uint32_t*>(accumulators + Config::kCoefficients);
        auto* const updates = reinterpret_cast<std::int32_t*>(packed + Config::kPacked * Config::kCoefficients);
        return {thread, thread % 32, thread / 32, accumulators, packed, updates, digits, digits + Config::kDigitWords};
    }

    // --- Coefficients: this thread's are i, i + 1024, .. of component c, c*1024 + i = place(r) ---

    FHE_HD int place(int r) const { return thread + Config::kThreads * r; }
    FHE_HD int index(int r) const { return place(r) & 1023; }  // i
    // Which polynomial of the block it is in.
    FHE_HD int polynomial(int ciphertext, int r) const { return ciphertext * kComponents + (place(r) >> 10); }
    FHE_HD std::int64_t& word(int ciphertext, int r, int h) const {
        return accumulators[polynomial(ciphertext, r) * N + 1024 * h + index(r)];
    }
    FHE_HD std::uint32_t* packed_of(int ciphertext, int r, int h) const {
        return packed + polynomial(ciphertext, r) * kPacked * N + 1024 * h + index(r);
    }

    // A new centred word, and its digits.
    FHE_HD void keep(int ciphertext, int r, int h, std::int64_t x) const {
        word(ciphertext, r, h) = x;
        const Digits digits_of_word = Digits::of(x);
        std::uint32_t bytes[kPacked] = {};
        static_for<0, Config::kLevels>([&](auto level) {
            constexpr int at = decltype(level)::value;
            bytes[at / 4] |= (static_cast<std::uint32_t>(digits_of_word.template at<at>()) & 255) << (at % 4 * 8);
        });
#pragma unroll
        for (int i = 0; i < kPacked; ++i) packed_of(ciphertext, r, h)[i * N] = bytes[i];
    }

    FHE_HD void start(int ciphertext, const std::uint64_t* table, std::uint32_t rotation) const {
#pragma unroll 1
        for (int r = 0; r < kShare; ++r)
#pragma unroll
            for (int h = 0; h < H; ++h) {
                const bool is_body = place(r) >> 10 == kComponents - 1;
                const std::uint32_t at = (index(r) + 1024 * h + rotation) & (2 * N - 1);
                const auto entry = static_cast<std::int64_t>(is_body ? table[at & (N - 1)] : 0);
                const std::int64_t centred = entry > kHalf ? entry - kModulus : entry;
                keep(ciphertext, r, h, at >= N ? -centred : centred);
            }
    }

    // ACC += update, a few coefficients at a time, so that their words are on the way together.
    FHE_HD void accumulate(int ciphertext) const {
        constexpr int kTogether = kShare < 8 / H ? kShare : 8 / H;
#pragma unroll 1
        for (int first = 0; first < kShare; first += kTogether) {
            std::int32_t delta[kTogether][2][H];
            std::int64_t x[kTogether][H];
#pragma unroll
            for (int r = 0; r < kTogether; ++r)
#pragma unroll
                for (int h = 0; h < H; ++h) {
                    const std::int32_t* const update = updates + polynomial(ciphertext, first + r) * 2 * N + index(first + r);
                    delta[r][0][h] = update[1024 * h];
                    delta[r][1][h] = update[N + 1024 * h];
                    x[r][h] = word(ciphertext, first + r, h);
                }
#pragma unroll
            for (int r = 0; r < kTogether; ++r) {
                unfold<0, N>(delta[r][0]);
                unfold<1, N>(delta[r][1]);
#pragma unroll
                for (int h = 0; h < H; ++h) {
                    x[r][h] += compose_centred(centre(Modulus<0>{}, delta[r][0][h]), centre(Modulus<1>{}, delta[r][1][h]));
                    if (x[r][h] > kHalf) x[r][h] -= kModulus;
                    if (x[r][h] < -kHalf) x[r][h] += kModulus;
                    keep(ciphertext, first + r, h, x[r][h]);
                }
            }
        }
    }

    // Centred words -> [0, Q)
    FHE_HD void finish(int ciphertext) const {
#pragma unroll 1
        for (int r = 0; r < kShare; ++r)
#pragma unroll
            for (int h = 0; h < H; ++h) word(ciphertext, r, h) += word(ciphertext, r, h) < 0 ? kModulus : 0;
    }

    // --- Digits ---

    // What the first log2 H stages give one part of a limb: the sum of digit h times root^(h * brv(2^log2 H + part)). The first of
    // them is a plain product.
    struct FoldOf {
        LimbModulus modulus;
        std::int32_t first;  // w1, or minus
        Twiddle second;      // w2 or w3, or minus

        FHE_HD static FoldOf make(const Part& part) { return part.limb == 0 ? of_limb<0>(part) : of_limb<1>(part); }
        template <int limb>
        FHE_HD static FoldOf of_limb(const Part& part) {
            constexpr Twiddle w2 = FoldTwiddles<limb, N>::w2, w3 = FoldTwiddles<limb, N>::w3;
            const bool lower = part.part < H / 2;
            const std::int32_t value = lower ? w2.value : w3.value, companion = lower ? w2.companion : w3.companion;
            const std::int32_t first = Modulus<limb>::sqrt_minus_one;
            return {part.modulus, lower ? first : -first,
                    part.part % 2 == 0 ? Twiddle{value, companion} : Twiddle{-value, -companion}};
        }
        FHE_HD std::int32_t of(const std::int32_t (&digit)[H]) const {
            std::int32_t sum = digit[0] + digit[H / 2] * first;
            if constexpr (Config::kFirstReduced) sum = reduce(modulus, sum);
            if constexpr (H == 2)
                return sum;
            else
                return multiply_add(modulus, sum, digit[1] + digit[3] * first, second);
        }
    };

    // Packed digits of the thread's coefficients of a ciphertext.
    struct Share {
        std::uint32_t bytes[kShare][H][kPacked];

        template <int level>
        FHE_HD std::int32_t digit(int r, int h) const {
            return static_cast<std::int8_t>(bytes[r][h][level / 4] >> (level % 4 * 8));
        }
    };
    FHE_HD void load(Share& x, int ciphertext) const {
#pragma unroll
        for (int r = 0; r < kShare; ++r)
#pragma unroll
            for (int h = 0; h < H; ++h)
#pragma unroll
                for (int i = 0; i < kPacked; ++i) x.bytes[r][h][i] = packed_of(ciphertext, r, h)[i * N];
    }

    FHE_HD void fold_share(const Share& x, const FoldOf& fold, int ciphertext) const {
#pragma unroll
        for (int r = 0; r < kShare; ++r) {
            const int first_row = ciphertext * kRows + (place(r) >> 10) * Config::kLevels;
            std::int32_t* const words = digits + first_row * 1024 + Row::row_word(index(r) >> 5, index(r) & 31);
            static_for<0, Config::kLevels>([&](auto level) {
                std::int32_t digit[H];
#pragma unroll
                for (int h = 0; h < H; ++h) digit[h] = x.template digit<decltype(level)::value>(r, h);
                words[decltype(level)::value * 1024] = fold.of(digit);
            });
        }
    }

    // Of all ciphertexts, `x` being the share of the first; that of the next is on its way while one is folded.
    FHE_HD void decompose(const Part& part, Share& x) const {
        const FoldOf fold = FoldOf::make(part);
#pragma unroll 1
        for (int t = 0; t < kCiphertexts; ++t) {
            Share next;
            if (t + 1 < kCiphertexts) load(next, t + 1);
            fold_share(x, fold, t);
            if (t + 1 < kCiphertexts) x = next;
        }
    }

    // --- Products ---

    using Key = KeyAhead<Config::kAhead, kKeys, Part::kLanes>;

    // Output component and 4-point group of this warp.
    FHE_HD int output() const { return warp / Config::kVectors; }
    FHE_HD int vector() const { return warp % Config::kVectors; }
    FHE_HD const Vec4* key_of(const Vec4* key, int step, const Part& part) const {
        const std::size_t outputs = (std::size_t(step) * 2 + part.limb) * kComponents + output();
        return key + outputs * Config::kOutputVectors + vector() * (kRows * kKeys * Part::kLanes) + part.part * 32 + lane;
    }

    FHE_HD void multiply(const Part& part, Key& key, const std::uint32_t (&exponents)[kCiphertexts][kKeys]) const {
        const int chunk = Row::row_chunk(lane, vector());
        std::int64_t sum[kCiphertexts][kKeys][4] = {};
#pragma unroll 1
        for (int row = 0; row < kRows; row += Config::kAhead) {
#pragma unroll
            for (int i = 0; i < Config::kAhead; ++i) {
#pragma unroll
                for (int t = 0; t < kCiphertexts; ++t)
                    key.multiply(i, *reinterpret_cast<const Vec4*>(digits + (t * kRows + row + i) * 1024 + chunk), sum[t]);
                key.refill(i, kRows - row);
            }
            key.words += Config::kAhead * kKeys * Part::kLanes;
        }
#pragma unroll
        for (int t = 0; t < kCiphertexts; ++t) {
            std::int64_t total[4] = {};
#pragma unroll
            for (int j = 0; j < kKeys; ++j) {
                std::int32_t factor[4];
                part.factors_at(vector(), exponents[t][j], factor);
                multiply_reduced(part.modulus, total, factor, sum[t][j]);
            }
            *reinterpret_cast<Vec4*>(sums + (t * kComponents + output()) * 1024 + chunk) = montgomery(part.modulus, total);
        }
    }

    // Row of S: ciphertext*(k + 1) + component.
    FHE_HD void store_update(const Part& part, int row, const std::int32_t (&x)[32]) const {
        std::int32_t* const update = updates + (row * 2 + part.limb) * N + part.part * 1024 + lane;
#pragma unroll
        for (int r = 0; r < 32; ++r) update[32 * r] = x[r];
    }
};

#if defined(__CUDACC__) || defined(CLOAKWORK_EMULATE_WARPS)

// Rows of D, one after the other.
template <class Config>
__device__ __forceinline__ void transform_rows(const ManyDigitsThread<Config>& thread, const TwoLimbPart<Config>& part) {
#pragma unroll 1
    for (int row = thread.warp; row < Config::kCiphertexts * Config::kRows; row += Config::kWarps) {
        std::int32_t* const tile = thread.digits + row * 1024;
        std::int32_t x[32];
        part.forward_a(tile, x);
        __syncwarp();
        part.forward_b(tile, x);
    }
}
// A row of S, by the last warps.
template <class Config>
__device__ __forceinline__ void transform_back(const ManyDigitsThread<Config>& thread, const TwoLimbPart<Config>& part) {
    const int row = thread.warp - (Config::kWarps - Config::kCiphertexts * Config::kComponents);
    if (row < 0) return;
    std::int32_t* const tile = thread.sums + row * 1024;
    std::int32_t x[32];
    part.inverse_a(tile, x);
    __syncwarp();
    part.inverse_slots(tile, x);
    thread.store_update(part, row, x);
}

template <class Config>
__global__ __launch_bounds__(Config::kThreads, 1) void blind_rotate_many_digits_kernel(const BlindRotateView view) {
    using Thread = ManyDigitsThread<Config>;
    using Part = typename Thread::Part;
    using PowerTable = typename Config::PowerTable;
    constexpr int kCiphertexts = Config::kCiphertexts;
    extern __shared__ __align__(16) std::int32_t shared[];
    std::int32_t* const tables = shared + PowerTable::kWords;
    const auto thread = Thread::make(threadIdx.x, static_cast<unsigned char*>(view.scratch) + blockIdx.x * Config::kScratchBytes,
                                     tables + Config::kTableWords);

    for (int first = blockIdx.x * kCiphertexts; first < view.batch; first += gridDim.x * kCiphertexts) {
        const auto number_of = [&](int t) { return first + t < view.batch ? first + t : view.batch - 1; };
#pragma unroll 1
        for (int t = 0; t < kCiphertexts; ++t)
            thread.start(t, table_of<std::uint64_t>(view, number_of(t), Config::N),
                         rotation_of_table<typename Config::Step>(view, number_of(t)));
#pragma unroll 1
        for (int step = 0; step < view.steps; ++step) {
            std::uint32_t exponents[kCiphertexts][Config::kKeys];
            for (int t = 0; t < kCiphertexts; ++t)
                Config::Step::load_exponents(switched_of<typename Config::Step>(view, number_of(t)), step, exponents[t]);
            prefetch_key<Config::kStepBytes>(view, step + 1);
#pragma unroll 1
            for (int limb = 0; limb < 2; ++limb) {
                copy_powers<Config::kThreads, PowerTable>(shared, view.powers + limb * PowerTable::kSize);
                copy_table<Config::kThreads>(reinterpret_cast<Vec4*>(tables),
                                             static_cast<const PartTwiddles*>(view.twiddles) + limb * Config::kParts,
                                             Config::kTableWords / 4);
                const auto part_of = [&](int number) {
                    return Part::make(thread.lane, limb, number, shared, reinterpret_cast<const PartTwiddles*>(tables));
                };
                typename Thread::Share digits;  // of the first ciphertext, on their way before the barriers
                thread.load(digits, 0);
#pragma unroll 1
                for (int number = 0;; ++number) {
                    if (number < Config::kParts) {
                        thread.decompose(part_of(number), digits);
                        __syncthreads();  // the digits are there, and the tables
                        transform_rows<Config>(thread, part_of(number));
                    }
                    if (number > 0) transform_back<Config>(thread, part_of(number - 1));
                    if (number == Config::kParts) break;
                    const Part part = part_of(number);
                    typename Thread::Key key(thread.key_of(static_cast<const Vec4*>(view.key), step, part));
                    key.fill();
                    __syncthreads();  // the transforms are there, S is free
                    thread.multiply(part, key, exponents);
                    thread.load(digits, 0);
                    __syncthreads();  // the products are there, D is free
                }
                __syncthreads();  // the updates are there, the tables are free
            }
#pragma unroll 1
            for (int t = 0; t < kCiphertexts; ++t) thread.accumulate(t);
        }

#pragma unroll 1
        for (int t = 0; t < kCiphertexts; ++t) thread.finish(t);
        __syncthreads();  // the words are there
        for (int t = 0; t < kCiphertexts && first + t < view.batch; ++t)
            store_result<Config::N, Config::kComponents>(
                view, first + t, reinterpret_cast<const std::uint64_t*>(thread.accumulators) + t * Config::kComponents * Config::N,
                static_cast<std::uint64_t>(Thread::kModulus), thread.thread, Config::kThreads);
        __syncthreads();  // scratch is free
    }
}

template <class KernelShapeOf, int ciphertexts>
RotationKernel kernel_of(ManyDigitsConfig<KernelShapeOf, ciphertexts>) {
    return blind_rotate_many_digits_kernel<ManyDigitsConfig<KernelShapeOf, ciphertexts>>;
}

#endif

}  // namespace fhe_core::cuda
