// Blind rotation of raised sets: ciphertexts and accumulator modulo q0, the bootstrap key and a step's products modulo q0*P,
// divided by P and rounded: ACC += round((sum_j (X^e_j - 1) * (K_j [x] ACC)) / P), all steps in one persistent kernel
// (docs/reference/specification.md, section 6; reference::blind_rotate). One digit per component, N = H * 1024, H = 1, 2, 4.
//
// Who does what, the exchange tiles, barriers, selected keys and the key's order are those of blind_rotate_two_limbs.cuh, limb 1
// being P. A coefficient is one word: its digit is cut as it stands, and the update (x0, x1) of both limbs is divided by one
// product modulo q0,
//
//     (x0 - c) / P modulo q0,   c the centred residue of x1.
//
// Source: as blind_rotate_two_limbs.cuh; modulus raising of [SYL+25].
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/rotation/blind_rotate_two_limbs.cuh"

namespace fhe_core::cuda {

template <class KernelShapeOf, int groups_per_block, int warps_per_part>
struct RaisedConfig : TwoLimbConfig<KernelShapeOf, groups_per_block, warps_per_part> {
    static_assert(KernelShapeOf::value.is_raised(), "this kernel takes raised sets");
};

template <class Config>
struct RaisedThread : TwoLimbThread<Config> {
    using Base = TwoLimbThread<Config>;
    using Base::group_tiles, Base::place, Base::thread, Base::words_of;
    static constexpr int H = Config::kParts, N = Config::N, kComponents = Config::kComponents, kShare = Config::kShare;
    static constexpr int kTileWords = Config::kTileWords;

    FHE_HD static RaisedThread make(int thread, const std::int32_t* powers, const PartTwiddles* tables, std::int32_t* group_words,
                                    const Vec4* key) {
        return {Base::make(thread, powers, tables, group_words, key)};
    }

    // --- Coefficients: words y[r][h] = x + (p0-1)/2 in [0, p0) for the centred x ---

    using Share = std::uint32_t[kShare][H];

    FHE_HD void start(Share& y, const std::uint32_t* test_table, std::uint32_t rotation) const {
#pragma unroll
        for (int r = 0; r < kShare; ++r)
#pragma unroll
            for (int h = 0; h < H; ++h) {
                const bool is_body = place(r) >> 10 == kComponents - 1;
                const std::uint32_t index = ((place(r) & 1023) + 1024 * h + rotation) & (2 * N - 1);
                const std::uint32_t word = is_body ? test_table[index & (N - 1)] : 0;
                y[r][h] = with_half(Modulus<0>{}, rotated_residue(Modulus<0>{}, word, index >= N));
            }
    }

    // The digits of the coefficients; then the first log2 H stages of the transform of both limbs.
    FHE_HD void decompose(const Share& y) const {
#pragma unroll
        for (int r = 0; r < kShare; ++r) {
            std::int32_t digit[H];
#pragma unroll
            for (int h = 0; h < H; ++h) digit[h] = (wrap(y[r][h]) - Modulus<0>::half + (1 << (Config::kDrop - 1))) >> Config::kDrop;
            std::int32_t* const word = words_of(r);
            fold_limb<0>(digit, word);
            fold_limb<2>(digit, word + H * kTileWords);
        }
    }
    template <int number>
    FHE_HD static void fold_limb(const std::int32_t (&digit)[H], std::int32_t* word) {
        std::int32_t x[H];
#pragma unroll
        for (int h = 0; h < H; ++h) x[h] = digit[h];
        fold<number, N>(x);
#pragma unroll
        for (int h = 0; h < H; ++h) word[h * kTileWords] = x[h];
    }

    // The last log2 H stages of the inverse transforms, and ACC += round(update / P).
    FHE_HD void accumulate(Share& y) const {
#pragma unroll
        for (int r = 0; r < kShare; ++r) {
            const std::int32_t* word = words_of(r);
            std::int32_t first[H], second[H];
            unfold_limb<0>(word, first);
            unfold_limb<2>(word + H * kTileWords, second);
#pragma unroll
            for (int h = 0; h < H; ++h) y[r][h] = accumulate_raised(Base::kept(Modulus<0>{}, y[r][h]), first[h], second[h]);
        }
    }
    template <int number>
    FHE_HD static void unfold_limb(const std::int32_t* word, std::int32_t (&x)[H]) {
#pragma unroll
        for (int h = 0; h < H; ++h) x[h] = word[h * kTileWords];
        unfold<number, N>(x);
    }

    static constexpr std::uint32_t kModulus = Modulus<0>::p;
    // [component][N] words in [0, q0) in place of T.
    FHE_HD std::uint32_t* words() const { return reinterpret_cast<std::uint32_t*>(group_tiles); }
    FHE_HD void store_words(const Share& y) const {
#pragma unroll
        for (int r = 0; r < kShare; ++r)
#pragma unroll
            for (int h = 0; h < H; ++h)
                words()[(place(r) >> 10) * N + 1024 * h + (place(r) & 1023)] = without_half(Modulus<0>{}, y[r][h]);
    }
};

#if defined(__CUDACC__) || defined(CLOAKWORK_EMULATE_WARPS)

template <class Config>
__global__ __launch_bounds__(Config::kThreads, 1) void blind_rotate_raised_kernel(const BlindRotateView view) {
    using Thread = RaisedThread<Config>;
    using Step = typename Config::Step;
    extern __shared__ __align__(16) std::int32_t shared[];
    load_two_limb_tables<Config>(view, shared);

    const int group = threadIdx.x / Config::kGroupThreads;
    const auto thread = Thread::make(threadIdx.x % Config::kGroupThreads, Config::kPowersShared ? shared : view.powers,
                                     reinterpret_cast<const PartTwiddles*>(shared + Config::kPowerWords),
                                     shared + Config::kPowerWords + Config::kTableWords + group * Config::kGroupWords,
                                     static_cast<const Vec4*>(view.key));
    const auto group_barrier = [&] { barrier(1 + group, Config::kGroupThreads); };
    const auto part_barrier = [&] {
        if constexpr (Config::kWarpsPerPart > 1)
            barrier(1 + Config::kGroups + group * 2 * Config::kParts + thread.limb * Config::kParts + thread.part,
                    32 * Config::kWarpsPerPart);
    };

    for (int number = group * gridDim.x + blockIdx.x; number < view.batch; number += gridDim.x * Config::kGroups) {
        const std::uint32_t* switched = switched_of<Step>(view, number);
        typename Thread::Share y;
        thread.start(y, table_of<std::uint32_t>(view, number, Config::N), rotation_of_table<Step>(view, number));
#pragma unroll 1
        for (int step = 0; step < view.steps; ++step) {
            std::uint32_t exponents[Config::kKeys];
            if constexpr (!Step::kSelectsKey) Step::load_exponents(switched, step, exponents);
            if constexpr (Config::kPrefetched) prefetch_key<Config::kStepBytes>(view, step + (Step::kSelectsKey ? 2 : 1));
            if constexpr (Step::kSelectsKey) {
                if (Step::load_digit(switched, step) == 0) continue;  // all warps of the group
            }
            thread.decompose(y);
            group_barrier();  // the digits are there
#pragma unroll 1
            for (int component = thread.number; component < Config::kComponents; component += Config::kWarpsPerPart) {
                std::int32_t x[32];
                thread.forward_a(thread.tile_of(component), x);
                __syncwarp();
                thread.forward_b(thread.tile_of(component), x);
            }
            typename Thread::Ahead ahead(thread.key_of(Step::slice_of(switched, step)));
            ahead.fill();    // earlier would cost registers that the transforms need
            part_barrier();  // all components are there
            thread.product(ahead, exponents);
            part_barrier();
#pragma unroll 1
            for (int component = thread.number; component < Config::kComponents; component += Config::kWarpsPerPart) {
                std::int32_t x[32];
                thread.inverse_a(thread.update_of(component), x);
                __syncwarp();
                thread.inverse_slots(thread.update_of(component), x);
                Thread::Row::store_slots(x, thread.update_of(component), thread.lane);
            }
            group_barrier();  // the updates are there
            thread.accumulate(y);
        }

        group_barrier();  // everyone has read the updates
        thread.store_words(y);
        group_barrier();  // the words are there
        store_result<Config::N, Config::kComponents>(view, number, thread.words(), Thread::kModulus, thread.thread,
                                                     Config::kGroupThreads);
        group_barrier();  // T is free
    }
}

template <class KernelShapeOf, int groups, int warps>
RotationKernel kernel_of(RaisedConfig<KernelShapeOf, groups, warps>) {
    return blind_rotate_raised_kernel<RaisedConfig<KernelShapeOf, groups, warps>>;
}

#endif

}  // namespace fhe_core::cuda
