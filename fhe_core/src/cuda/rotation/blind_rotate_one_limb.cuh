// Blind rotation with two key bits per step, throughput layout: ACC += sum_j (X^e_j - 1) * (K_j [x] ACC), j = 0, 1, 2, for all
// steps in one persistent kernel (docs/reference/specification.md, section 6; reference::blind_rotate). One limb, N = 256 .. 1024.
//
// Who does what. A group of k+r warps (r lanes; components are masks, then bodies) owns M ciphertexts; warp c owns component c: the
// coefficients of ACC (registers: lane l holds l + 32*r), the transforms of its digits, and output component c of the product.
// Groups are independent of each other.
//
//   each step, warp c: digits of ACC_c -> forward transforms -> shared memory        (rows of component c)
//                      group barrier: the rows of all components are there
//                      S_j = sum over rows of digit * K_j[row][c], three 64-bit sums per point; R_j = montgomery(S_j)
//                      X = montgomery(sum_j (root^(e_j * (2*brv(i) + 1)) - 1) * R_j); inverse transform; ACC_c += X
//
// Steps whose digits select keys ([DM15]) go the same way with one key, the one of the group's own digit, and no factors: X = R_0,
// inverse transform, ACC_c = X. A digit of 0 skips the step for all warps of the group; there is no barrier between groups. Keys of
// a step of the ciphertexts in flight are on their way to L2 two steps ahead.
//
// Shared memory: powers of the 2N-th root, word x at x + x/32 (gathers with power-of-two strides touch all banks); twiddles
// [vector][lane]; per group digits [buffer][ciphertext][row][vector][lane] of 16 bytes. A warp's own rows double as its exchange
// tiles. With two buffers one barrier per step suffices: a warp writes a buffer two steps after it was last read, and everyone has
// passed the barrier in between. With one buffer a second barrier separates reading from the next writing.
//
// Key: [step][output component][vector][row][key of step][lane] of 16 bytes, the order of reading, selected keys [step][key of
// step][output component][vector][row][lane]; transform order P*lane +
// 4*vector + i. Each word is K * 2^64 / N modulo p, centred: the factors cancel the two Montgomery reductions and the scaling of
// the inverse.
//
// Sizes in units of p (static_assert below): digits after the transform D, sums rows * D * p/2 < 2^62, R = rows*D*p/2^33 + 1/2,
// X <= 3*R*p/2^33 + 1/2 <= 0.7, what the inverse transform takes.
//
// Source: [CGGI20] blind rotation; [ZYL+18] and [BMMP18] two key bits per step; [DM15] selected keys. Ours: the factors multiply
// the products, not the keys, in the transform domain, and a step transforms its digits once; exact transforms.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/parameters.hpp"
#include "cuda/rotation/accumulator.cuh"
#include "cuda/rotation/digits.cuh"
#include "cuda/rotation/kernel_shape.cuh"
#include "cuda/rotation/monomial.cuh"
#include "cuda/rotation/persistent.cuh"
#include "cuda/rotation/product.cuh"
#include "cuda/rotation/rotation_step.cuh"
#include "cuda/transform/warp_ntt.cuh"

namespace fhe_core::cuda {

template <int groups_per_block, int ciphertexts_per_warp, int digit_buffers, int digits_together, int key_rows_ahead,
          bool one_digit_loop = false>
struct OneLimbLayout {
    static constexpr int groups = groups_per_block;
    static constexpr int per_warp = ciphertexts_per_warp;  // M
    static constexpr int buffers = digit_buffers;          // 1 or 2
    static constexpr int digits = digits_together;         // at most so many transforms share their twiddles
    static constexpr int key_depth = key_rows_ahead;       // rows of the key loaded before the barrier
    static constexpr bool one_loop = one_digit_loop;       // one copy of the digit code for both gadgets, chosen at run time
};

template <class KernelShapeOf, class LayoutOf>
struct OneLimbConfig {
    static constexpr Shape shape = KernelShapeOf::value;
    using Layout = LayoutOf;
    using Ntt = WarpNtt<0, shape.polynomial_size>;
    using M = typename Ntt::M;
    using Step = RotationStep<shape.cmux>;
    static constexpr int N = shape.polynomial_size, k = shape.glwe_dimension, P = Ntt::P;
    static constexpr int kLanes = shape.lane_count, kComponents = shape.component_count();
    static constexpr int kWarpsPerGroup = kComponents;
    static constexpr int kGroupThreads = kWarpsPerGroup * 32;
    static constexpr int kThreads = kGroupThreads * Layout::groups;
    static constexpr int kRows = k * shape.mask_gadget.level_count + kLanes * shape.body_gadget.level_count;
    static constexpr int kKeys = Step::kKeys;
    static constexpr int kVectors = P / 4;
    static constexpr int kStepVectors = kVectors * kRows * kKeys * 32;  // of one output component and slice
    static constexpr int kSliceVectors = kComponents * kStepVectors;    // of the keys of a step that a ciphertext reads

    static constexpr int kPerUnit = Layout::per_warp;
    static constexpr int kCiphertexts = Layout::groups * Layout::per_warp;  // of a block

    using PowerTable = Powers<N>;
    static constexpr int kPowerWords = PowerTable::kWords;
    static constexpr int kBufferWords = Layout::per_warp * kRows * N;
    static constexpr int kGroupWords = Layout::buffers * kBufferWords;
    static constexpr std::size_t kSharedBytes = 4 * (kPowerWords + Ntt::kTwiddleWords + Layout::groups * kGroupWords);

    // Of a component: rows of the masks, then rows of the bodies.
    FHE_HD static constexpr int first_row(int component) {
        constexpr int mask = shape.mask_gadget.level_count, body = shape.body_gadget.level_count;
        if constexpr (kLanes == 1 || mask == body) return component * mask;
        return component < k ? component * mask : k * mask + (component - k) * body;
    }

    static constexpr int digits_at_once(Gadget g) {
        int count = Layout::digits;
        while (g.level_count % count != 0) --count;
        return count;
    }
    static constexpr int common_digits_at_once() {
        int count = Layout::digits;
        while (shape.mask_gadget.level_count % count != 0 || shape.body_gadget.level_count % count != 0) --count;
        return count;
    }
    // Largest digit: half a base, but the top digit takes what is left of |x| <= p/2 < 2^26 after rounding and carries.
    static constexpr std::int64_t digit_bound(Gadget g) { return (std::int64_t{1} << (g.base_log - 1)) + 1; }
    static constexpr bool is_small(Gadget g) { return digit_bound(g) * (M::sqrt_minus_one + 1) < (std::int64_t{1} << 26); }
    // Bounds in thousandths of p.
    static constexpr int forward_bound(Gadget g) {
        const std::int64_t first = is_small(g) ? digit_bound(g) * (M::sqrt_minus_one + 1) : digit_bound(g);
        return static_cast<int>(1000 * first / M::p) + 1 + 1250 * (Ntt::kLogSize - is_small(g));
    }
    static constexpr int kForwardBound = forward_bound(shape.mask_gadget) > forward_bound(shape.body_gadget)
                                             ? forward_bound(shape.mask_gadget)
                                             : forward_bound(shape.body_gadget);
    static constexpr double kSumBound = kRows * (kForwardBound / 1000.0) / 2;       // units of p^2
    static constexpr double kProductBound = kSumBound * M::p / 4294967296.0 + 0.5;  // units of p
    static constexpr double kInputBound =
        Step::kSelectsKey ? kProductBound : kKeys / 2.0 * kProductBound * M::p / 4294967296.0 + 0.5;  // of the inverse
    static constexpr int kInverseInput = Ntt::planned_input(kInputBound);

    static_assert((Step::kFactorsOnProducts || Step::kSelectsKey) && shape.limb_count == 1,
                  "this kernel takes factors on the products, or selected keys, and one limb");
    static_assert(!Step::kSelectsKey || kPerUnit == 1, "a group follows one ciphertext's digits");
    static_assert(kForwardBound < 16000, "digits overflow 31 bits in the forward transform");
    static_assert(kSumBound * M::p * M::p < 4.6e18, "sums over the rows overflow 62 bits");
    static_assert(Layout::groups * 2 <= 16, "a block has 16 named barriers");
    static_assert(kSharedBytes <= 227 * 1024, "shared memory of one multiprocessor");
};

#if defined(__CUDACC__) || defined(CLOAKWORK_EMULATE_WARPS)

// `levels` rows of one component, most significant level first; G levels at a time share twiddles.
template <class Config, bool small_digits, int G, class Digits>
__device__ __forceinline__ void transform_digits(const std::uint32_t (&accumulator)[Config::P], int levels, Digits digits,
                                                 std::int32_t* rows, const TwiddlePair* twiddles, int lane) {
    using Ntt = typename Config::Ntt;
    constexpr int N = Config::N, P = Config::P;
    std::int32_t* tile = rows + (levels - 1) * N;
#pragma unroll 1
    for (int part = 0; part < levels; part += G) {
        std::int32_t x[G][P];
        static_for<0, G>([&](auto g) {
#pragma unroll
            for (int r = 0; r < P; ++r) x[decltype(g)::value][r] = digits.of(accumulator[r]);
            digits.next();
        });
        Ntt::template forward<small_digits>(x, tile, -N, twiddles, lane);
        __syncwarp();  // all lanes have read the tiles
        static_for<0, G>([&](auto g) { Ntt::store_points(x[decltype(g)::value], tile - decltype(g)::value * N, lane); });
        tile -= G * N;
    }
}

// All rows of one component.
template <class Config>
__device__ __forceinline__ void transform_component(const std::uint32_t (&accumulator)[Config::P], bool is_body, std::int32_t* rows,
                                                    const TwiddlePair* twiddles, int lane) {
    using M = typename Config::M;
    constexpr Gadget mask = Config::shape.mask_gadget, body = Config::shape.body_gadget;
    if constexpr (mask == body) {
        transform_digits<Config, Config::is_small(mask), Config::digits_at_once(mask)>(accumulator, mask.level_count,
                                                                                       Digits<M, mask>{}, rows, twiddles, lane);
    } else if constexpr (Config::Layout::one_loop) {
        transform_digits<Config, Config::is_small(mask) && Config::is_small(body), Config::common_digits_at_once()>(
            accumulator, is_body ? body.level_count : mask.level_count, RunTimeDigits<M>::make(mask, body, is_body), rows, twiddles,
            lane);
    } else if (is_body) {
        transform_digits<Config, Config::is_small(body), Config::digits_at_once(body)>(accumulator, body.level_count,
                                                                                       Digits<M, body>{}, rows, twiddles, lane);
    } else {
        transform_digits<Config, Config::is_small(mask), Config::digits_at_once(mask)>(accumulator, mask.level_count,
                                                                                       Digits<M, mask>{}, rows, twiddles, lane);
    }
}

// x = the product of all rows with one output component, times the factors where there are any.
template <class Config, class KeyRows, class Factors>
__device__ __forceinline__ void multiply_rows(const std::int32_t* rows, KeyRows& ahead, const Factors& factors,
                                              const typename Config::PowerTable& powers, int lane,
                                              std::int32_t (&x)[Config::kPerUnit][Config::P]) {
    using Ntt = typename Config::Ntt;
    using M = typename Config::M;
    constexpr int kRows = Config::kRows, kCount = Config::kPerUnit;
    static_for<0, Config::kVectors>([&](auto vector_index) {
        constexpr int vector = decltype(vector_index)::value;
        std::int64_t sums[kCount][Config::kKeys][4] = {};
#pragma unroll
        for (int row = 0; row < kRows; ++row) {
            const int position = vector * kRows + row;
#pragma unroll
            for (int m = 0; m < kCount; ++m) {
                const Vec4 digit = reinterpret_cast<const Vec4*>(rows + (m * kRows + row) * Config::N)[vector * 32 + lane];
                ahead.multiply(position, digit, sums[m]);
            }
            ahead.refill(position, Config::kVectors * kRows);
        }
#pragma unroll
        for (int m = 0; m < kCount; ++m) {
            std::int64_t total[4] = {};
            if constexpr (!Config::Step::kSelectsKey) {
#pragma unroll
                for (int j = 0; j < Config::kKeys; ++j) {
                    std::int32_t factor[4];
                    factors[m][j].template at<vector>(powers, factor);
                    multiply_reduced(M{}, total, factor, sums[m][j]);
                }
            }
            const Vec4 product = montgomery(M{}, Config::Step::kSelectsKey ? sums[m][0] : total);
            static_for<0, 4>([&](auto i) { x[m][Ntt::slot_of(4 * vector + decltype(i)::value)] = product.x[decltype(i)::value]; });
        }
    });
}

// Sixty lines and more: the loop over steps is the algorithm, and everything it keeps in registers is declared around it.
template <class Config>
__global__ __launch_bounds__(Config::kThreads, 1) void blind_rotate_one_limb_kernel(const BlindRotateView view) {
    using Layout = typename Config::Layout;
    using Ntt = typename Config::Ntt;
    using M = typename Config::M;
    using Factors = MonomialFactors<Ntt>;
    constexpr int N = Config::N, P = Config::P, kRows = Config::kRows, kCount = Config::kPerUnit;
    constexpr std::uint32_t kZero = M::half;  // zero: what a product that replaces the accumulator is added to

    extern __shared__ __align__(16) std::int32_t shared[];
    auto* const twiddles = reinterpret_cast<TwiddlePair*>(shared + Config::kPowerWords);
    copy_powers<Config::kThreads, typename Config::PowerTable>(shared, view.powers);
    copy_table<Config::kThreads>(twiddles, view.twiddles, Ntt::kTwiddleVectors * 32);
    __syncthreads();

    const typename Config::PowerTable powers{shared};
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int group = warp / Config::kWarpsPerGroup, component = warp % Config::kWarpsPerGroup;
    const int own_row = Config::first_row(component);
    std::int32_t* const digits = shared + Config::kPowerWords + Ntt::kTwiddleWords + group * Config::kGroupWords;
    const std::uint32_t lane_root = root_of_lane(lane, 5);
    const Vec4* const own_key = static_cast<const Vec4*>(view.key) + std::size_t(component) * Config::kStepVectors + lane;
    int buffer = 0;

    for (int unit = group * gridDim.x + blockIdx.x; unit * kCount < view.batch; unit += gridDim.x * Layout::groups) {
        const std::uint32_t* switched[kCount];
        std::uint32_t accumulator[kCount][P];
#pragma unroll
        for (int m = 0; m < kCount; ++m) {
            const int number = unit * kCount + m < view.batch ? unit * kCount + m : view.batch - 1;
            switched[m] = switched_of<typename Config::Step, Config::kLanes>(view, number);
            load_accumulator<Config>(view, number, component, lane, accumulator[m]);
        }

        const Vec4* key = own_key;
        for (int step = 0; step < view.steps; ++step) {
            if constexpr (Config::Step::kSelectsKey) {
                prefetch_key<16 * Config::Step::kSlices * Config::kSliceVectors>(view, step + 2);
                if (Config::Step::load_digit(switched[0], step) == 0) continue;  // all warps of the group
                key = own_key + Config::Step::slice_of(switched[0], step) * Config::kSliceVectors;
            }
            Factors factors[kCount][Config::kKeys];
#pragma unroll
            for (int m = 0; m < kCount && !Config::Step::kSelectsKey; ++m) {
                std::uint32_t exponents[Config::kKeys];
                Config::Step::load_exponents(switched[m], step, exponents);
#pragma unroll
                for (int j = 0; j < Config::kKeys; ++j) factors[m][j] = Factors::make(exponents[j], lane_root);
            }

            std::int32_t* const rows = digits + buffer * Config::kBufferWords;
            KeyAhead<Layout::key_depth, Config::kKeys> ahead(key);
            if constexpr (Config::Step::kSelectsKey) ahead.fill();  // from further away than a key that all groups read
#pragma unroll
            for (int m = 0; m < kCount; ++m)
                transform_component<Config>(accumulator[m], component >= Config::k, rows + (m * kRows + own_row) * N, twiddles,
                                            lane);

            if constexpr (!Config::Step::kSelectsKey) ahead.fill();
            barrier(1 + 2 * group, Config::kGroupThreads);  // the rows of all components are written
            std::int32_t x[kCount][P];
            multiply_rows<Config>(rows, ahead, factors, powers, lane, x);
            key += Config::kSliceVectors;

            if constexpr (Layout::buffers == 1) barrier(2 + 2 * group, Config::kGroupThreads);  // everyone has read the rows
            buffer = Layout::buffers == 1 ? 0 : buffer ^ 1;
            Ntt::template inverse<Config::kInverseInput>(x, digits + buffer * Config::kBufferWords + own_row * N, kRows * N,
                                                         twiddles, lane);
#pragma unroll
            for (int m = 0; m < kCount; ++m)
#pragma unroll
                for (int r = 0; r < P; ++r)
                    accumulator[m][r] = accumulate_exact(M{}, Config::Step::kSelectsKey ? kZero : accumulator[m][r], x[m][r]);
            __syncwarp();  // the exchange tiles are free
        }

        auto* const tile = reinterpret_cast<std::uint32_t*>(digits + buffer * Config::kBufferWords + own_row * N);
#pragma unroll
        for (int m = 0; m < kCount; ++m) {
            if (unit * kCount + m < view.batch)
                store_accumulator<Config>(view, unit * kCount + m, component, lane, accumulator[m], tile);
        }
    }
}

template <class KernelShapeOf, class LayoutOf>
RotationKernel kernel_of(OneLimbConfig<KernelShapeOf, LayoutOf>) {
    return blind_rotate_one_limb_kernel<OneLimbConfig<KernelShapeOf, LayoutOf>>;
}

#endif

}  // namespace fhe_core::cuda
