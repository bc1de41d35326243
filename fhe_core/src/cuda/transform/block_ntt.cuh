// The negacyclic transform of one polynomial by T = N / P threads, P points per thread in registers, modulo one limb prime: shorter
// chains than one warp has (warp_ntt.cuh), for kernels that want one ciphertext soon. Same order, same roots.
//
//   forward: passes of log2 P stages inside a thread, from the highest bit of the position down, exchanges through shared memory
//   between them. In a pass the thread's points differ in log2 P bits of their position, its window: thread t holds the positions
//   (t >> low) * P * 2^low + j * 2^low + t mod 2^low, j = 0 .. P-1. The last window is [0, log2 P); what stages are left over make
//   a short pass before it. The inverse runs backwards.
//
// A thread begins with the coefficients t + T*j and ends with the positions P*t + j. From the second window on a warp's threads
// keep their 32*P positions to themselves (N <= 32 P^2): one exchange of each direction needs a barrier of all T threads, the
// others
// __syncwarp. A thread writes where it has read, so that nothing else separates the exchanges, of both directions.
//
// Tile: N words, 16-byte chunks permuted so that the accesses of all windows touch every bank once.
//
// Twiddles: of the first pass instruction operands; the others stay in registers for all steps (KeptTwiddles), or lie in shared
// memory (SharedTwiddles).
//
// Ranges: as warp_ntt.cuh; the inverse takes what its plan is made for.
//
// Source: [LN16] merged twiddles; [Har14] late reduction. Ours: signed, windows, twiddles that stay.
#pragma once

#include <array>
#include <cstdint>

#include "cuda/device/bits.cuh"
#include "cuda/device/modulus.cuh"
#include "cuda/device/unrolled.cuh"
#include "cuda/transform/butterfly_stages.cuh"

namespace fhe_core::cuda {

template <int limb, int polynomial_size, int points>
struct BlockNtt {
    using M = Modulus<limb>;
    static constexpr int N = polynomial_size, P = points, T = N / P;
    static constexpr int kLogSize = log2_of(N), p = log2_of(P);
    static_assert(P == 4 || P == 8 || P == 16, "the permutation of chunks is made for these");
    static_assert(T >= 32 && N <= 32 * P * P, "one exchange alone crosses warps");

    // --- Passes and windows ---

    static constexpr int kRest = kLogSize % p, kPasses = kLogSize / p + (kRest != 0);
    static constexpr bool is_short(int pass) { return kRest != 0 && pass == kPasses - 2; }
    static constexpr int low(int pass) { return pass == kPasses - 1 ? 0 : is_short(pass) ? p : kLogSize - p * (pass + 1); }
    static constexpr int high_stage(int pass) {
        return is_short(pass) ? p + kRest - 1 : low(pass) + p - 1;
    }  // bits of the position
    static constexpr int stages(int pass) { return high_stage(pass) - low(pass) + 1; }
    static constexpr int blocks(int pass, int bit) { return P >> (bit - low(pass) + 1); }  // of a thread, of stage `bit`

    template <int pass>
    FHE_HD static int position(int t, int j) {
        return (t >> low(pass)) << (low(pass) + p) | j << low(pass) | (t & ((1 << low(pass)) - 1));
    }
    // Linear: word_of(a ^ b) = word_of(a) ^ word_of(b).
    FHE_HD static constexpr int word_of(int position) {
        const int higher = P == 4   ? (position >> 6 & 1) | (position >> 5 & 1) << 1 | (position >> 6 & 1) << 2
                           : P == 8 ? position >> 5 & 7
                                    : (position >> 5 & 3) | (position >> 8 & 1) << 2;
        return position ^ higher << 2;
    }

    // --- Twiddles ---

    static constexpr std::uint32_t root = root_of_unity(M::p, 2 * N, M::sqrt_minus_one);
    template <int index>
    struct Constant {
        static constexpr Twiddle value = M::twiddle(pow_mod(root, bit_reverse(index, kLogSize), M::p));
    };
    // In KeptTwiddles, of the first block of stage `bit`.
    static constexpr int kept_index(int wanted_pass, int wanted_bit) {
        int index = 0;
        for (int pass = 1; pass < kPasses; ++pass)
            for (int bit = high_stage(pass); bit >= low(pass); --bit) {
                if (pass == wanted_pass && bit == wanted_bit) return index;
                index += blocks(pass, bit);
            }
        return index;
    }
    static constexpr int kKept = kept_index(kPasses, 0);

    struct KeptTwiddles {
        Twiddle forward[kKept], inverse[kKept];

        // all: root^brv(i), i < N.
        FHE_HD static KeptTwiddles load(const Twiddle* all, int t) {
            KeptTwiddles kept;
            static_for<1, kPasses>([&](auto pass_index) {
                constexpr int pass = decltype(pass_index)::value;
                static_for<0, stages(pass)>([&](auto stage) {
                    constexpr int bit = high_stage(pass) - decltype(stage)::value, first = 1 << (kLogSize - 1 - bit);
                    static_for<0, blocks(pass, bit)>([&](auto block) {
                        constexpr int index = kept_index(pass, bit) + decltype(block)::value;
                        const int number = ((t >> low(pass)) << (low(pass) + p - bit - 1)) + decltype(block)::value;
                        kept.forward[index] = all[first + number];
                        kept.inverse[index] = all[2 * first - 1 - number];  // mirrored: minus the inverse
                    });
                });
            });
            return kept;
        }
    };
    // The same from a table [pair of kept indices][thread]: half as much for both directions, as the mirror of a block's twiddle is
    // that of thread T - 1 - t.
    struct SharedTwiddles {
        static constexpr int kPairs = (kKept + 1) / 2, kWords = 4 * kPairs * T;
        const TwiddlePair* table;
        int t;

        // Entry `index` of thread t, from root^brv(i), i < N.
        static Twiddle entry(const Twiddle* all, int t, int index) {
            Twiddle found{};
            static_for<1, kPasses>([&](auto pass_index) {
                constexpr int pass = decltype(pass_index)::value;
                static_for<0, stages(pass)>([&](auto stage) {
                    constexpr int bit = high_stage(pass) - decltype(stage)::value, first = 1 << (kLogSize - 1 - bit);
                    const int block = index - kept_index(pass, bit);
                    if (block >= 0 && block < blocks(pass, bit))
                        found = all[first + ((t >> low(pass)) << (low(pass) + p - bit - 1)) + block];
                });
            });
            return found;
        }
    };

    template <int pass, int bit, int block>
    FHE_HD static Twiddle forward_twiddle(const KeptTwiddles& kept) {
        return kept.forward[kept_index(pass, bit) + block];
    }
    template <int pass, int bit, int block>
    FHE_HD static Twiddle inverse_twiddle(const KeptTwiddles& kept) {
        return kept.inverse[kept_index(pass, bit) + block];
    }
    template <int pass, int bit, int block>
    FHE_HD static Twiddle forward_twiddle(const SharedTwiddles& shared) {
        constexpr int index = kept_index(pass, bit) + block;
        return shared.table[(index >> 1) * T + shared.t].x[index & 1];
    }
    template <int pass, int bit, int block>
    FHE_HD static Twiddle inverse_twiddle(const SharedTwiddles& shared) {
        constexpr int index = kept_index(pass, bit) + blocks(pass, bit) - 1 - block;
        return shared.table[(index >> 1) * T + T - 1 - shared.t].x[index & 1];
    }
    template <int pass, int bit, int block, class Twiddles>
    FHE_HD static Twiddle forward_factor(const Twiddles& twiddles) {
        if constexpr (pass == 0)
            return Constant<(1 << (kLogSize - 1 - bit)) + block>::value;
        else
            return forward_twiddle<pass, bit, block>(twiddles);
    }
    template <int pass, int bit, int block, class Twiddles>
    FHE_HD static Twiddle inverse_factor(const Twiddles& twiddles) {
        if constexpr (pass == 0)
            return Constant<(2 << (kLogSize - 1 - bit)) - 1 - block>::value;
        else
            return inverse_twiddle<pass, bit, block>(twiddles);
    }

    // --- Forward ---

    // small_digits: |x| * sqrt(-1) fits 31 bits, so the first stage needs no reduction.
    template <int pass, bool small_digits, int R, class Twiddles>
    FHE_HD static void forward_pass(std::int32_t (&x)[R][P], const Twiddles& twiddles) {
        static_for<0, stages(pass)>([&](auto stage) {
            constexpr int bit = high_stage(pass) - decltype(stage)::value, half = 1 << (bit - low(pass));
            static_for<0, blocks(pass, bit)>([&](auto block) {
                constexpr int number = decltype(block)::value;
                static_for<0, half>([&](auto i) {
                    constexpr int a = number * 2 * half + decltype(i)::value, b = a + half;
                    if constexpr (small_digits && pass == 0 && bit == kLogSize - 1) {
                        static_for<0, R>([&](auto r) {
                            std::int32_t (&row)[P] = x[decltype(r)::value];
                            const std::int32_t sum = wrap_add(row[a], row[b] * M::sqrt_minus_one);
                            row[b] = wrap_sub(wrap_add(row[a], row[a]), sum);
                            row[a] = sum;
                        });
                    } else {
                        forward_pair<a, b>(M{}, x, forward_factor<pass, bit, number>(twiddles));
                    }
                });
            });
        });
    }

    // --- Inverse: sizes in thousandths of p ---

    static constexpr int kReduced = 690, kProduct = 1250, kPairLimit = 15000;
    struct InversePlan {
        bool reduces[kPasses][p + 1][P];  // before a stage of a pass and after its last, which slots
        int result;
    };
    // So that |a| + |b| <= 15p everywhere. What leaves a pass is small enough for all stages of the next.
    static constexpr InversePlan make_inverse_plan(int input) {
        InversePlan plan{};
        int largest = input;
        for (int pass = kPasses - 1; pass >= 0; --pass) {
            int bound[P] = {};
            for (int& b : bound) b = largest;
            for (int stage = 0; stage < stages(pass); ++stage)
                for (int a = 0; a < P; ++a) {
                    const int b = a | 1 << stage;
                    if (b == a) continue;
                    if (bound[a] + bound[b] > kPairLimit)
                        for (const int slot : {a, b})
                            if (bound[slot] > kProduct) plan.reduces[pass][stage][slot] = true, bound[slot] = kReduced;
                    bound[a] += bound[b], bound[b] = kProduct;
                }
            const int limit = pass == 0 ? kPairLimit : kPairLimit >> stages(pass - 1);
            largest = 0;
            for (int slot = 0; slot < P; ++slot) {
                if (bound[slot] > limit) plan.reduces[pass][stages(pass)][slot] = true, bound[slot] = kReduced;
                largest = bound[slot] > largest ? bound[slot] : largest;
            }
        }
        plan.result = largest;
        return plan;
    }

    template <int pass, const InversePlan& plan, class Twiddles>
    FHE_HD static void inverse_pass(std::int32_t (&x)[P], const Twiddles& twiddles) {
        static_for<0, stages(pass)>([&](auto stage) {
            constexpr int bit = low(pass) + decltype(stage)::value, half = 1 << (bit - low(pass));
            reduce_slots<plan.reduces[pass][bit - low(pass)]>(M{}, x);
            static_for<0, blocks(pass, bit)>([&](auto block) {
                constexpr int number = decltype(block)::value;
                const Twiddle w = inverse_factor<pass, bit, number>(twiddles);
                static_for<0, half>([&](auto i) {
                    constexpr int a = number * 2 * half + decltype(i)::value;
                    inverse_pair<a, a + half>(M{}, x, w);
                });
            });
        });
        reduce_slots<plan.reduces[pass][stages(pass)]>(M{}, x);
    }

    // --- Exchanges ---

    template <int pass>
    FHE_HD static void store(const std::int32_t (&x)[P], std::int32_t* tile, int t) {
        const int word = word_of(position<pass>(t, 0));
        if constexpr (low(pass) == 0) {
#pragma unroll
            for (int v = 0; v < P / 4; ++v)
                *reinterpret_cast<Vec4*>(tile + (word ^ word_of(4 * v))) = {{x[4 * v], x[4 * v + 1], x[4 * v + 2], x[4 * v + 3]}};
        } else {
#pragma unroll
            for (int j = 0; j < P; ++j) tile[word ^ word_of(j << low(pass))] = x[j];
        }
    }
    template <int pass>
    FHE_HD static void load(std::int32_t (&x)[P], const std::int32_t* tile, int t) {
        const int word = word_of(position<pass>(t, 0));
        if constexpr (low(pass) == 0) {
#pragma unroll
            for (int v = 0; v < P / 4; ++v) {
                const Vec4 four = *reinterpret_cast<const Vec4*>(tile + (word ^ word_of(4 * v)));
#pragma unroll
                for (int i = 0; i < 4; ++i) x[4 * v + i] = four.x[i];
            }
        } else {
#pragma unroll
            for (int j = 0; j < P; ++j) x[j] = tile[word ^ word_of(j << low(pass))];
        }
    }

#if defined(__CUDACC__) || defined(CLOAKWORK_EMULATE_WARPS)

    // barrier(): of the T threads.
    template <int from, int to, int R, class Barrier>
    __device__ __forceinline__ static void exchange(std::int32_t (&x)[R][P], std::int32_t* tiles, int t, const Barrier& barrier) {
        static_for<0, R>([&](auto r) { store<from>(x[decltype(r)::value], tiles + decltype(r)::value * N, t); });
        if constexpr (T > 32 && (from == 0 || to == 0))
            barrier();
        else
            __syncwarp();
        static_for<0, R>([&](auto r) { load<to>(x[decltype(r)::value], tiles + decltype(r)::value * N, t); });
    }

    // R polynomials at once; tiles: one for each.
    template <bool small_digits, int R, class Twiddles, class Barrier>
    __device__ __forceinline__ static void forward(std::int32_t (&x)[R][P], std::int32_t* tiles, const Twiddles& twiddles, int t,
                                                   const Barrier& barrier) {
        forward_pass<0, small_digits>(x, twiddles);
        static_for<1, kPasses>([&](auto pass) {
            exchange<decltype(pass)::value - 1, decltype(pass)::value>(x, tiles, t, barrier);
            forward_pass<decltype(pass)::value, false>(x, twiddles);
        });
    }

    template <const InversePlan& plan, class Twiddles, class Barrier>
    __device__ __forceinline__ static void inverse(std::int32_t (&x)[1][P], std::int32_t* tile, const Twiddles& twiddles, int t,
                                                   const Barrier& barrier) {
        static_for<0, kPasses>([&](auto step) {
            constexpr int pass = kPasses - 1 - decltype(step)::value;
            inverse_pass<pass, plan>(x[0], twiddles);
            if constexpr (pass != 0) exchange<pass, pass - 1>(x, tile, t, barrier);
        });
    }

#endif
};

}  // namespace fhe_core::cuda
