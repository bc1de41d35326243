// Blind rotation of r samples that share their mask, N = 256 .. 1024, one limb: components A_1 .. A_k, B_1 .. B_r with B_l = sum of
// A_c S_(l,c) + M_l, r ring keys and r small keys. All lanes l see the same switched mask, so a step has one exponent for all, and
// a key that holds each lane's own bit:
//
//     ACC += sum_j (X^e_j - 1) * (K_j [x] ACC),  row of B_l: phase g * s_(l,j) in lane l, 0 in the others;
//                                                row of A_c: phase -g * s_(l,j) * S_(l,c) in every lane l.
//
// A spike on random keys: the kernel of blind_rotate_pair.cuh with k + r components instead of k + 1, and r tables and bodies.
// CPU reference: common_mask_reference.hpp.
//
// Source: [BBC+25] the common mask; rotation and factors as blind_rotate_pair.cuh.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/blind_rotate_pair.cuh"

namespace fhe_core::cuda {

// A block of bits of which at most one is set, its bits as keys.
template <int bits>
struct BlockRotationStep {
    static constexpr int kKeyBits = bits, kKeys = bits;
    static constexpr bool kFactorsOnProducts = true;

#if defined(__CUDACC__) || defined(CLOAKWORK_EMULATE_WARPS)
    __device__ __forceinline__ static void load_exponents(const std::uint32_t* switched, int step,
                                                          std::uint32_t (&exponents)[kKeys]) {
#pragma unroll
        for (int i = 0; i < bits; ++i) exponents[i] = __ldg(switched + bits * step + i);
    }
#endif
};

template <class KernelShapeOf, class LayoutOf, int lane_count, class Steps = RotationStep<CmuxKind::binary_pair>>
struct CommonMaskConfig : PairConfig<KernelShapeOf, LayoutOf> {
    using Base = PairConfig<KernelShapeOf, LayoutOf>;
    using Layout = LayoutOf;
    using Ntt = typename Base::Ntt;
    using M = typename Base::M;
    using Step = Steps;
    using Base::k;
    using Base::N;
    using Base::shape;
    static constexpr int kLanes = lane_count, kComponents = k + kLanes;
    static constexpr int kWarpsPerGroup = kComponents, kGroupThreads = kWarpsPerGroup * 32;
    static constexpr int kThreads = kGroupThreads * Layout::groups;
    static constexpr int kMaskLevels = shape.mask_gadget.level_count, kBodyLevels = shape.body_gadget.level_count;
    static constexpr int kRows = k * kMaskLevels + kLanes * kBodyLevels;
    static constexpr int kKeys = Step::kKeys;
    static constexpr int kStepVectors = Base::kVectors * kRows * kKeys * 32;  // of one output component
    static constexpr int kGroupWords = Layout::buffers * kRows * N;
    static constexpr std::size_t kSharedBytes = 4 * (Base::kPowerWords + Ntt::kTwiddleWords + Layout::groups * kGroupWords);

    static constexpr double kSumBound = kRows * (Base::kForwardBound / 1000.0) / 2;
    static constexpr double kProductBound = kSumBound * M::p / 4294967296.0 + 0.5;
    static constexpr double kInputBound = kKeys / 2.0 * kProductBound * M::p / 4294967296.0 + 0.5;

    static_assert(Layout::per_warp == 1, "a group takes one packed ciphertext");
    static_assert(kSumBound * M::p * M::p < 4.6e18, "sums over the rows overflow 62 bits");
    static constexpr int kInverseInput = Ntt::planned_input(kInputBound);
    static_assert(kSharedBytes <= 227 * 1024, "shared memory of one multiprocessor");
};

#if defined(__CUDACC__) || defined(CLOAKWORK_EMULATE_WARPS)

// view.switched: [batch][mask words of all steps, r bodies]; view.tables: [table][N]; view.table_index: [batch][r] or nullptr;
// view.out: [batch][k + r][N]. Sixty lines: the kernel's loop, as in blind_rotate_pair.cuh.
template <class Config>
__global__ __launch_bounds__(Config::kThreads, 1) void blind_rotate_common_mask_kernel(const BlindRotateView view) {
    using Layout = typename Config::Layout;
    using Ntt = typename Config::Ntt;
    using M = typename Config::M;
    using Factors = MonomialFactors<Ntt>;
    constexpr int N = Config::N, P = Config::P, k = Config::k, kRows = Config::kRows, kKeys = Config::kKeys;

    extern __shared__ __align__(16) std::int32_t shared[];
    auto* const twiddles = reinterpret_cast<TwiddlePair*>(shared + Config::kPowerWords);
    copy_powers<Config::kThreads, typename Config::PowerTable>(shared, view.powers);
    copy_table<Config::kThreads>(twiddles, view.twiddles, Ntt::kTwiddleVectors * 32);
    __syncthreads();

    const typename Config::PowerTable powers{shared};
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int group = warp / Config::kWarpsPerGroup, component = warp % Config::kWarpsPerGroup;
    const bool is_body = component >= k;
    const int own_row = is_body ? k * Config::kMaskLevels + (component - k) * Config::kBodyLevels : component * Config::kMaskLevels;
    std::int32_t* const digits = shared + Config::kPowerWords + Ntt::kTwiddleWords + group * Config::kGroupWords;
    const std::uint32_t lane_root = root_of_lane(lane, 5);
    const Vec4* const own_key = static_cast<const Vec4*>(view.key) + std::size_t(component) * Config::kStepVectors + lane;
    const std::size_t mask_words = std::size_t(Config::Step::kKeyBits) * view.steps;
    int buffer = 0;

    for (int number = group * gridDim.x + blockIdx.x; number < view.batch; number += gridDim.x * Layout::groups) {
        const std::uint32_t* const switched = view.switched + number * (mask_words + Config::kLanes);
        std::uint32_t accumulator[1][P];
        const std::uint32_t rotation = is_body ? switched[mask_words + component - k] : 0;
        const int at = number * Config::kLanes + component - k;
        const auto* table = static_cast<const std::uint32_t*>(view.tables) +
                            std::size_t(is_body && view.table_index != nullptr ? view.table_index[at] : 0) * N;
#pragma unroll
        for (int r = 0; r < P; ++r) {
            const std::uint32_t index = (lane + 32 * r + rotation) & (2 * N - 1);
            accumulator[0][r] = with_half(M{}, is_body ? rotated_residue(M{}, table[index & (N - 1)], index >= N) : 0u);
        }

        const Vec4* key = own_key;
        for (int step = 0; step < view.steps; ++step) {
            Factors factors[1][kKeys];
            std::uint32_t exponents[kKeys];
            Config::Step::load_exponents(switched, step, exponents);
#pragma unroll
            for (int j = 0; j < kKeys; ++j) factors[0][j] = Factors::make(exponents[j], lane_root);

            std::int32_t* const rows = digits + buffer * kRows * N;
            transform_component<Config>(accumulator[0], is_body, rows + own_row * N, twiddles, lane);
            KeyAhead<Layout::key_depth, kKeys> ahead(key);
            ahead.fill();
            barrier(1 + 2 * group, Config::kGroupThreads);  // the rows of all components are written
            std::int32_t x[1][P];
            multiply_rows<Config>(rows, ahead, factors, powers, lane, x);
            key += std::size_t(Config::kComponents) * Config::kStepVectors;

            if constexpr (Layout::buffers == 1) barrier(2 + 2 * group, Config::kGroupThreads);  // everyone has read the rows
            buffer = Layout::buffers == 1 ? 0 : buffer ^ 1;
            Ntt::template inverse<Config::kInverseInput>(x, digits + (buffer * kRows + own_row) * N, kRows * N, twiddles, lane);
#pragma unroll
            for (int r = 0; r < P; ++r) accumulator[0][r] = accumulate_exact(M{}, accumulator[0][r], x[0][r]);
            __syncwarp();  // the exchange tiles are free
        }

        auto* const out = static_cast<std::uint32_t*>(view.out) + (std::size_t(number) * Config::kComponents + component) * N;
#pragma unroll
        for (int r = 0; r < P; ++r) out[lane + 32 * r] = without_half(M{}, accumulator[0][r]);
    }
}

template <class KernelShapeOf, class LayoutOf, int lanes, class Steps>
RotationKernel kernel_of(CommonMaskConfig<KernelShapeOf, LayoutOf, lanes, Steps>) {
    return blind_rotate_common_mask_kernel<CommonMaskConfig<KernelShapeOf, LayoutOf, lanes, Steps>>;
}

#endif

}  // namespace fhe_core::cuda
