// Blind rotation with two key bits per step, throughput layout: ACC += sum_j (X^e_j - 1) * (K_j [x] ACC), j = 0, 1, 2, for all
// steps in one persistent kernel (docs/specification.md, section 6; reference::blind_rotate). One limb, N = 256 .. 1024.
//
// Who does what. A group of k+1 warps owns M ciphertexts; warp c owns component c: the coefficients of ACC (registers: lane l holds
// l + 32*r), the transforms of its digits, and output component c of the product. Groups are independent of each other.
//
//   each step, warp c: digits of ACC_c -> forward transforms -> shared memory        (rows of component c)
//                      group barrier: the rows of all components are there
//                      S_j = sum over rows of digit * K_j[row][c], three 64-bit sums per point; R_j = montgomery(S_j)
//                      X = montgomery(sum_j (root^(e_j * (2*brv(i) + 1)) - 1) * R_j); inverse transform; ACC_c += X
//
// Shared memory: powers of the 2N-th root, word x at x + x/32 (gathers with power-of-two strides touch all banks); twiddles
// [vector][lane]; per group digits [buffer][ciphertext][row][vector][lane] of 16 bytes. A warp's own rows double as its exchange
// tiles. With two buffers one barrier per step suffices: a warp writes a buffer two steps after it was last read, and everyone has
// passed the barrier in between. With one buffer a second barrier separates reading from the next writing.
//
// Key: [step][output component][vector][row][key of step][lane] of 16 bytes, the order of reading; transform order P*lane +
// 4*vector + i. Each word is K * 2^64 / N modulo p, centred: the factors cancel the two Montgomery reductions and the scaling of
// the inverse.
//
// Sizes in units of p (static_assert below): digits after the transform D, sums rows * D * p/2 < 2^62, R = rows*D*p/2^33 + 1/2,
// X <= 3*R*p/2^33 + 1/2 <= 0.7, what the inverse transform takes.
//
// Source: [CGGI20] blind rotation; [ZYL+18] and [BMMP18] two key bits per step. Ours: the factors multiply the products, not the
// keys, in the transform domain, and a step transforms its digits once; exact transforms.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/blind_rotate.hpp"
#include "cuda/launch.cuh"
#include "cuda/plain_ntt.cuh"
#include "cuda/warp_ntt.cuh"
#include "fhe_core/parameters.hpp"

namespace fhe_core::cuda {

// Types, not values: nvcc 13 cannot launch kernels with parameters of class type.
template <int polynomial_size, int glwe_dimension, int limb_count, int mask_base_log, int mask_levels, int body_base_log,
          int body_levels, CmuxKind cmux>
struct KernelShape {
    static constexpr Shape value{
        polynomial_size, glwe_dimension, limb_count, {mask_base_log, mask_levels}, {body_base_log, body_levels}, cmux};
};

template <int groups_per_block, int ciphertexts_per_warp, int digit_buffers, int digits_together, int key_rows_ahead,
          bool one_digit_loop = false>
struct PairLayout {
    static constexpr int groups = groups_per_block;
    static constexpr int per_warp = ciphertexts_per_warp;  // M
    static constexpr int buffers = digit_buffers;          // 1 or 2
    static constexpr int digits = digits_together;         // at most so many transforms share their twiddles
    static constexpr int key_depth = key_rows_ahead;       // rows of the key loaded before the barrier
    static constexpr bool one_loop = one_digit_loop;       // one copy of the digit code for both gadgets, chosen at run time
};

template <class KernelShapeOf, class LayoutOf>
struct PairConfig {
    static constexpr Shape shape = KernelShapeOf::value;
    using Layout = LayoutOf;
    using Ntt = WarpNtt<0, shape.polynomial_size>;
    using M = typename Ntt::M;
    static constexpr int N = shape.polynomial_size, k = shape.glwe_dimension, P = Ntt::P;
    static constexpr int kWarpsPerGroup = k + 1;
    static constexpr int kGroupThreads = kWarpsPerGroup * 32;
    static constexpr int kThreads = kGroupThreads * Layout::groups;
    static constexpr int kRows = k * shape.mask_gadget.level_count + shape.body_gadget.level_count;
    static constexpr int kKeys = 3;
    static constexpr int kVectors = P / 4;
    static constexpr int kStepVectors = kVectors * kRows * kKeys * 32;  // of one output component

    static constexpr int kPowerWords = 2 * N + 2 * N / 32;
    static constexpr int kBufferWords = Layout::per_warp * kRows * N;
    static constexpr int kGroupWords = Layout::buffers * kBufferWords;
    static constexpr std::size_t kSharedBytes = 4 * (kPowerWords + Ntt::kTwiddleWords + Layout::groups * kGroupWords);

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
    static constexpr double kSumBound = kRows * (kForwardBound / 1000.0) / 2;               // units of p^2
    static constexpr double kProductBound = kSumBound * M::p / 4294967296.0 + 0.5;          // units of p
    static constexpr double kInputBound = 1.5 * kProductBound * M::p / 4294967296.0 + 0.5;  // of the inverse

    static_assert(shape.cmux == CmuxKind::binary_pair && shape.limb_count == 1,
                  "this kernel takes two key bits per step and one limb");
    static_assert(kForwardBound < 16000, "digits overflow 31 bits in the forward transform");
    static_assert(kSumBound * M::p * M::p < 4.6e18, "sums over the rows overflow 62 bits");
    static_assert(kInputBound * 1000 <= Ntt::kInverseInput, "the inverse transform takes inputs up to 0.7 p");
    static_assert(Layout::groups * 2 <= 16, "a block has 16 named barriers");
    static_assert(kSharedBytes <= 227 * 1024, "shared memory of one multiprocessor");
};

// Digits of the centred x = y - (p-1)/2, least significant first (section 4). The carries of the lower levels are one added
// constant.
template <class M, Gadget gadget>
struct Digits {
    static constexpr int kDrop = kLimbBits - gadget.base_log * gadget.level_count;
    static constexpr std::int32_t kBase = 1 << gadget.base_log;
    std::int32_t offset = (1 << (kDrop - 1)) - M::half + (kBase / 2 << kDrop);
    int shift = kDrop;

    // The most significant digit takes what is left.
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

// Factors root^(e*(2*brv(i)+1)) - 1 of one exponent at the points of a lane.
template <class Ntt>
struct MonomialFactors {
    std::uint32_t base;  // e * (2*brv5(lane) + 1)
    std::uint32_t step;  // 64 * e: position P*lane + q adds step * brv(q)
    std::int32_t sign;   // 0 or -1: neighbouring positions differ by root^(N*e)

    FHE_HD static MonomialFactors make(std::uint32_t exponent, std::uint32_t lane_root) {
        return {exponent * lane_root, exponent * 64, -static_cast<std::int32_t>(exponent & 1)};
    }

    // Positions 4*vector .. +3.
    template <int vector>
    FHE_HD void at(const std::int32_t* powers, std::int32_t (&factor)[4]) const {
        static_for<0, 2>([&](auto pair) {
            constexpr int q = 4 * vector + 2 * decltype(pair)::value;
            constexpr std::uint32_t reversed = bit_reverse(q, Ntt::p);
            const std::uint32_t x = (base + step * reversed) & (2 * Ntt::N - 1);
            const std::int32_t power = powers[x + (x >> 5)];
            factor[2 * decltype(pair)::value] = power - 1;
            factor[2 * decltype(pair)::value + 1] = (power ^ sign) - sign - 1;
        });
    }
};

#if defined(__CUDACC__)

__device__ __forceinline__ Vec4 load_key(const Vec4* address) {
    const int4 four = __ldg(reinterpret_cast<const int4*>(address));
    return {{four.x, four.y, four.z, four.w}};
}

__device__ __forceinline__ void barrier(int id, int threads) {
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

#elif defined(CLOAKWORK_EMULATE_WARPS)

inline Vec4 load_key(const Vec4* address) { return *address; }
inline void barrier(int id, int threads) { emulation::Block::own().wait_for_named(id, threads); }

#endif
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
        static_for<0, G>([&](auto g) {
            static_for<0, Config::kVectors>([&](auto vector) {
                constexpr int q = 4 * decltype(vector)::value;
                const auto& y = x[decltype(g)::value];
                reinterpret_cast<Vec4*>(tile - decltype(g)::value * N)[decltype(vector)::value * 32 + lane] = {
                    {y[Ntt::slot_of(q)], y[Ntt::slot_of(q + 1)], y[Ntt::slot_of(q + 2)], y[Ntt::slot_of(q + 3)]}};
            });
        });
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

template <class Config>
__global__ __launch_bounds__(Config::kThreads, 1) void blind_rotate_pair_kernel(const BlindRotateView view) {
    using Layout = typename Config::Layout;
    constexpr Shape shape = Config::shape;
    using Ntt = typename Config::Ntt;
    using Mod = typename Config::M;
    constexpr int N = Config::N, P = Config::P, k = Config::k, kRows = Config::kRows, kPerWarp = Layout::per_warp;

    extern __shared__ __align__(16) std::int32_t shared[];
    std::int32_t* powers = shared;
    TwiddlePair* twiddles = reinterpret_cast<TwiddlePair*>(powers + Config::kPowerWords);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int group = warp / Config::kWarpsPerGroup, component = warp % Config::kWarpsPerGroup;
    std::int32_t* digits = shared + Config::kPowerWords + Ntt::kTwiddleWords + group * Config::kGroupWords;

    for (int x = threadIdx.x; x < 2 * N; x += Config::kThreads) powers[x + (x >> 5)] = view.powers[x];
    for (int i = threadIdx.x; i < Ntt::kTwiddleVectors * 32; i += Config::kThreads)
        twiddles[i] = static_cast<const TwiddlePair*>(view.twiddles)[i];
    __syncthreads();

    const int lwe_size = 2 * view.steps + 1;
    const std::uint32_t lane_root = 2 * (reverse_position(lane, 5)) + 1;
    const int own_row = component * shape.mask_gadget.level_count;
    const Vec4* const own_key = static_cast<const Vec4*>(view.key) + std::size_t(component) * Config::kStepVectors + lane;
    int buffer = 0;

    for (int unit = group * gridDim.x + blockIdx.x; unit * kPerWarp < view.batch; unit += gridDim.x * Layout::groups) {
        const std::uint32_t* switched[kPerWarp];
        std::uint32_t accumulator[kPerWarp][P];  // x + (p-1)/2 in [0, p) for the centred x
#pragma unroll
        for (int m = 0; m < kPerWarp; ++m) {
            const int number = unit * kPerWarp + m < view.batch ? unit * kPerWarp + m : view.batch - 1;
            switched[m] = view.switched + std::size_t(number) * lwe_size;
            const std::uint32_t* table =
                static_cast<const std::uint32_t*>(view.tables) + std::size_t(view.table_index ? view.table_index[number] : 0) * N;
            const std::uint32_t rotation = switched[m][lwe_size - 1];
#pragma unroll
            for (int r = 0; r < P; ++r) {
                std::uint32_t word = 0;
                if (component == k) {
                    const std::uint32_t index = (lane + 32 * r + rotation) & (2 * N - 1);
                    word = table[index & (N - 1)];
                    if (index >= N && word != 0) word = Mod::p - word;
                }
                accumulator[m][r] = word + Mod::half < Mod::p ? word + Mod::half : word + Mod::half - Mod::p;
            }
        }

        const Vec4* key = own_key;
        for (int step = 0; step < view.steps; ++step) {
            MonomialFactors<Ntt> factors[kPerWarp][3];
#pragma unroll
            for (int m = 0; m < kPerWarp; ++m) {
                const std::uint32_t first = __ldg(switched[m] + 2 * step), second = __ldg(switched[m] + 2 * step + 1);
                factors[m][0] = MonomialFactors<Ntt>::make(first, lane_root);
                factors[m][1] = MonomialFactors<Ntt>::make(second, lane_root);
                factors[m][2] = MonomialFactors<Ntt>::make(first + second, lane_root);
            }

            std::int32_t* const rows = digits + buffer * Config::kBufferWords;
#pragma unroll
            for (int m = 0; m < kPerWarp; ++m) {
                std::int32_t* tiles = rows + (m * kRows + own_row) * N;
                transform_component<Config>(accumulator[m], component == k, tiles, twiddles, lane);
            }

            Vec4 ahead[Layout::key_depth][3];
#pragma unroll
            for (int i = 0; i < Layout::key_depth; ++i)
#pragma unroll
                for (int j = 0; j < 3; ++j) ahead[i][j] = load_key(key + (i * 3 + j) * 32);
            barrier(1 + 2 * group, Config::kGroupThreads);  // the rows of all components are written

            std::int32_t x[kPerWarp][P];
            static_for<0, Config::kVectors>([&](auto vector_index) {
                constexpr int vector = decltype(vector_index)::value;
                std::int64_t sums[kPerWarp][3][4] = {};
#pragma unroll
                for (int row = 0; row < kRows; ++row) {
                    const int position = vector * kRows + row, slot = position % Layout::key_depth;
#pragma unroll
                    for (int m = 0; m < kPerWarp; ++m) {
                        const Vec4 digit = reinterpret_cast<const Vec4*>(rows + (m * kRows + row) * N)[vector * 32 + lane];
#pragma unroll
                        for (int j = 0; j < 3; ++j)
#pragma unroll
                            for (int i = 0; i < 4; ++i) sums[m][j][i] += std::int64_t{digit.x[i]} * ahead[slot][j].x[i];
                    }
                    if (position + Layout::key_depth < Config::kVectors * kRows) {
#pragma unroll
                        for (int j = 0; j < 3; ++j) ahead[slot][j] = load_key(key + ((position + Layout::key_depth) * 3 + j) * 32);
                    }
                }
#pragma unroll
                for (int m = 0; m < kPerWarp; ++m) {
                    std::int64_t total[4] = {};
#pragma unroll
                    for (int j = 0; j < 3; ++j) {
                        std::int32_t factor[4];
                        factors[m][j].template at<vector>(powers, factor);
#pragma unroll
                        for (int i = 0; i < 4; ++i) total[i] += std::int64_t{factor[i]} * montgomery<Mod>(sums[m][j][i]);
                    }
                    static_for<0, 4>([&](auto i) {
                        x[m][Ntt::slot_of(4 * vector + decltype(i)::value)] = montgomery<Mod>(total[decltype(i)::value]);
                    });
                }
            });
            key += std::size_t(k + 1) * Config::kStepVectors;

            if constexpr (Layout::buffers == 1) barrier(2 + 2 * group, Config::kGroupThreads);  // everyone has read the rows
            buffer = Layout::buffers == 1 ? 0 : buffer ^ 1;
            Ntt::inverse(x, digits + buffer * Config::kBufferWords + own_row * N, kRows * N, twiddles, lane);
#pragma unroll
            for (int m = 0; m < kPerWarp; ++m)
#pragma unroll
                for (int r = 0; r < P; ++r) accumulator[m][r] = accumulate_exact<Mod>(accumulator[m][r], x[m][r]);
            __syncwarp();  // the exchange tiles are free
        }

#pragma unroll
        for (int m = 0; m < kPerWarp; ++m) {
            const int number = unit * kPerWarp + m;
            if (number >= view.batch) break;
#pragma unroll
            for (int r = 0; r < P; ++r) {
                const std::uint32_t y = accumulator[m][r];
                accumulator[m][r] = y < Mod::half ? y + (Mod::p - Mod::half) : y - Mod::half;
            }
            if (view.coefficients == nullptr) {
                std::uint32_t* out = static_cast<std::uint32_t*>(view.out) + (std::size_t(number) * (k + 1) + component) * N;
#pragma unroll
                for (int r = 0; r < P; ++r) out[lane + 32 * r] = accumulator[m][r];
                continue;
            }
            std::uint32_t* polynomial = reinterpret_cast<std::uint32_t*>(digits + buffer * Config::kBufferWords + own_row * N);
#pragma unroll
            for (int r = 0; r < P; ++r) polynomial[lane + 32 * r] = accumulator[m][r];
            __syncwarp();
            for (int i = 0; i < view.coefficient_count; ++i) {  // section 7
                const int coefficient = view.coefficients[i];
                std::uint32_t* lwe = static_cast<std::uint32_t*>(view.out) +
                                     (std::size_t(number) * view.coefficient_count + i) * (k * N + 1) + component * N;
                if (component == k) {
                    if (lane == 0) *lwe = polynomial[coefficient];
                } else {
                    for (int j = lane; j < N; j += 32) {
                        const std::uint32_t word = polynomial[(coefficient - j) & (N - 1)];
                        lwe[j] = j <= coefficient || word == 0 ? word : Mod::p - word;
                    }
                }
            }
            __syncwarp();
        }
    }
}

// Enqueues the kernel over all multiprocessors; view.batch >= 1.
template <class Config>
cudaError_t launch_blind_rotate_pair(const BlindRotateView& view, int multiprocessors, cudaStream_t stream) {
    constexpr int per_warp = Config::Layout::per_warp;
    const int units = (view.batch + per_warp - 1) / per_warp, blocks = units < multiprocessors ? units : multiprocessors;
    return enqueue(blind_rotate_pair_kernel<Config>, blocks, Config::kThreads, Config::kSharedBytes, stream, view);
}

#endif

}  // namespace fhe_core::cuda
