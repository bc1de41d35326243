// Blind rotation of sets with rounded products, N = 2048, k = 1, one digit: ACC += round(Q * sum_j (X^e_j - 1) * (K_j [x] ACC) /
// QP), products by transforms in double precision in the order of core/fft.hpp, all steps in one persistent kernel
// (docs/reference/specification.md, section 6; reference::blind_rotate).
//
// Who does what. A group of 2M warps owns M ciphertexts; warp 2m + c owns component c of ciphertext m: its coefficients (registers:
// lane l holds l + 32*r, r < 64), the transform of its digit, and the inverse transform of its update. A product reads both
// components and is the same lane's for all M ciphertexts, so that a word of the key is loaded once for M.
//
//   each step, warp (m, c): digit of ACC_c -> columns pass -> tile -> rows pass -> tile     (__syncwarp between the passes)
//                           group barrier: the digits of both components are there
//              warp w:      4-point groups w, w + 2M, .. of a lane's row, all M ciphertexts, both outputs, in place:
//                           S = sum_j zeta^(e_j) K_j - sum_j K_j for every row and output; output += S * digit
//                           group barrier: the products are there
//              warp (m, c): rows pass -> tile -> columns pass, zeta^-j, turns of the torus to words, ACC_c += update
//
// A tile is 32 rows of 32 complex points, 33 apart; a lane reads a row or a column of its own and writes it back, so that only the
// exchange in a transform needs __syncwarp.
//
// Shared memory: LaneRoots; per group M switched ciphertexts and 2M tiles.
//
// Key: KeyOrder::rounded, the order of reading, in 16 bytes a point.
//
// Source: [CGGI20] blind rotation; [ZYL+18] and [BMMP18] two key bits per step. Ours: one order of operations on CPU and GPU.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/device/launch.cuh"
#include "cuda/rotation/accumulator.cuh"
#include "cuda/rotation/kernel_shape.cuh"
#include "cuda/rotation/persistent.cuh"
#include "cuda/rotation/rotation_step.cuh"
#include "cuda/transform/complex_fft.cuh"

namespace fhe_core::cuda {

inline constexpr int kMostRoundedDimension = 1023;  // n

template <class KernelShapeOf, int ciphertexts, int key_chunks_ahead, int key_steps_ahead>
struct RoundedConfig {
    static constexpr Shape shape = KernelShapeOf::value;
    using Step = RotationStep<shape.cmux>;
    using M = Modulus<0>;
    static constexpr int N = fft::kDegree, P = N / 32, k = 1, kLanes = 1, kComponents = 2, kKeys = Step::kKeys;
    static constexpr int kPerUnit = ciphertexts, kCiphertexts = ciphertexts;  // M
    static constexpr int kWarps = 2 * kPerUnit, kThreads = 32 * kWarps;
    static constexpr int kAhead = key_chunks_ahead;      // chunks of the key in registers before they are used
    static constexpr int kStepsAhead = key_steps_ahead;  // steps of the key that are called to L2 before they are used
    static constexpr int kTurns = 8 / kWarps;            // 4-point groups of a warp
    static constexpr int kChunkWords = kKeys * 32;       // of one point, output and row
    static constexpr int kGroupChunks = 16;              // of a 4-point group
    static constexpr std::size_t kStepWords = std::size_t(8) * kGroupChunks * kChunkWords;
    static constexpr int kRowStride = kRowPoints + 1;
    static constexpr int kTilePoints = kRowPoints * kRowStride;
    static constexpr int kMostSwitched = kMostRoundedDimension + 1;  // words of a switched ciphertext
    static constexpr std::size_t kSharedBytes =
        sizeof(LaneRoots) + kPerUnit * (2 * sizeof(Complex) * kTilePoints + 2 * kMostSwitched);

    static_assert(shape.has_rounded_products() && shape.polynomial_size == N && shape.glwe_dimension == k &&
                      shape.lane_count == kLanes && shape.limb_count == 1 && shape.mask_gadget.level_count == 1 &&
                      shape.body_gadget.level_count == 1 && shape.extension_factor == 1 && Step::kFactorsOnProducts,
                  "this kernel takes rounded products, N = 2048, k = 1 and one digit");
    static_assert(8 % kWarps == 0, "the eight 4-point groups of a row are shared evenly");
    static_assert(kAhead == 1 || kAhead == 2 || kAhead == 4, "the four chunks of a point are unrolled");
    static_assert(kSharedBytes <= 227 * 1024, "shared memory of one multiprocessor");
};

#if defined(__CUDACC__) || defined(CLOAKWORK_EMULATE_WARPS)

__device__ __forceinline__ Complex load_key(const Complex* address) {
#ifdef __CUDA_ARCH__
    const double2 z = __ldg(reinterpret_cast<const double2*>(address));
    return {z.x, z.y};
#else
    return *address;
#endif
}

// The words of a warp's product, chunk after chunk.
template <class Config>
struct KeyChunks {
    static constexpr int kChunks = Config::kTurns * Config::kGroupChunks;
    const Complex* words;  // of this lane, at its warp's first group
    Complex chunk[Config::kAhead][Config::kKeys];

    __device__ __forceinline__ void load(int slot, int position) {
        // A warp's groups are kWarps apart.
        if constexpr (Config::kTurns > 1) position += position / Config::kGroupChunks * (Config::kWarps - 1) * Config::kGroupChunks;
#pragma unroll
        for (int j = 0; j < Config::kKeys; ++j) chunk[slot][j] = load_key(words + position * Config::kChunkWords + 32 * j);
    }
    __device__ __forceinline__ void fill(const Complex* first) {
        words = first;
#pragma unroll
        for (int i = 0; i < Config::kAhead; ++i) load(i, i);
    }
    // In the place of chunk `position` the one kAhead later.
    __device__ __forceinline__ void refill(int slot, int position) {
        if (position + Config::kAhead < kChunks) load(slot, position + Config::kAhead);
    }
};

struct TableRoots {
    const Complex (*table)[kRowPoints];
    int lane;
    template <int number>
    __device__ __forceinline__ Complex operator()(Index<number>) const {
        return table[number][lane];
    }
};
struct ConstantRoots {
    const Complex* table;
    template <int number>
    __device__ __forceinline__ Complex operator()(Index<number>) const {
        return table[number];
    }
};

template <class Config>
__device__ __forceinline__ void transform_digit(const std::uint32_t (&accumulator)[Config::P], int drop, Complex* tile,
                                                const LaneRoots& roots, const SharedRoots& shared_roots, int lane) {
    Complex x[kRowPoints];
    const std::int32_t offset = (1 << (drop - 1)) - Config::M::half;
    const auto digit = [&](std::uint32_t y) { return fixed::from_integer((wrap(y) + offset) >> drop); };
#pragma unroll
    for (int r = 0; r < kRowPoints; ++r) x[r] = {digit(accumulator[r]), digit(accumulator[r + kRowPoints])};
    forward_pass(x, ConstantRoots{shared_roots.forward});
#pragma unroll
    for (int r = 0; r < kRowPoints; ++r) tile[r * Config::kRowStride + lane] = x[r];
    __syncwarp();
#pragma unroll
    for (int i = 0; i < kRowPoints; ++i) x[i] = tile[lane * Config::kRowStride + i];
    forward_pass(x, TableRoots{roots.forward, lane});
#pragma unroll
    for (int i = 0; i < kRowPoints; ++i) tile[lane * Config::kRowStride + i] = x[i];
}

// y in [0, p0) and an update in turns of the torus: y + round(p0 * turns) mod p0.
FHE_HD std::uint32_t accumulate_rounded(std::uint32_t y, double turns) {
    constexpr std::uint32_t p = Modulus<0>::p;
    const auto least = [](std::uint32_t a, std::uint32_t b) { return a < b ? a : b; };
    const std::uint32_t sum = y + fixed::word_of_turns(turns);  // (-p/2 - 1, 3p/2 + 1)
    const std::uint32_t positive = least(sum, sum + p);
    return least(positive, positive - p);
}

template <class Config>
__device__ __forceinline__ void accumulate_update(std::uint32_t (&accumulator)[Config::P], Complex* tile, const LaneRoots& roots,
                                                  const SharedRoots& shared_roots, int lane) {
    Complex x[kRowPoints];
#pragma unroll
    for (int i = 0; i < kRowPoints; ++i) x[i] = tile[lane * Config::kRowStride + i];
    inverse_row_pass(x, ConstantRoots{shared_roots.inverse});
#pragma unroll
    for (int i = 0; i < kRowPoints; ++i) tile[lane * Config::kRowStride + i] = x[i];
    __syncwarp();
#pragma unroll
    for (int r = 0; r < kRowPoints; ++r) x[r] = tile[r * Config::kRowStride + lane];
    inverse_column_pass(x, TableRoots{roots.inverse, lane});
#pragma unroll
    for (int r = 0; r < kRowPoints; ++r) {
        const Complex update = multiply(roots.untwist[r][lane], x[r]);
        accumulator[r] = accumulate_rounded(accumulator[r], update.re);
        accumulator[r + kRowPoints] = accumulate_rounded(accumulator[r + kRowPoints], update.im);
    }
}

// One point of all M ciphertexts, in place: chunks of the key first, then digits. `position`: of its first chunk.
template <class Config>
__device__ __forceinline__ void multiply_point(Complex* point, KeyChunks<Config>& ahead, int position,
                                               const Complex (&factor)[Config::kPerUnit][Config::kKeys]) {
    constexpr int M = Config::kPerUnit, kKeys = Config::kKeys, kTile = Config::kTilePoints;
    Complex digit[M][2];
#pragma unroll
    for (int m = 0; m < M; ++m) {
        digit[m][0] = point[2 * m * kTile];
        digit[m][1] = point[(2 * m + 1) * kTile];
    }
#pragma unroll
    for (int output = 0; output < 2; ++output) {
        Complex total[M];
#pragma unroll
        for (int row = 0; row < 2; ++row) {
            const int chunk = 2 * output + row, slot = chunk % Config::kAhead;
            Complex keys = ahead.chunk[slot][0];
#pragma unroll
            for (int j = 1; j < kKeys; ++j) keys = add(keys, ahead.chunk[slot][j]);
#pragma unroll
            for (int m = 0; m < M; ++m) {
                Complex sum = turned<2>(keys);
#pragma unroll
                for (int j = 0; j < kKeys; ++j) sum = multiply_add(factor[m][j], ahead.chunk[slot][j], sum);
                total[m] = row == 0 ? multiply(sum, digit[m][0]) : multiply_add(sum, digit[m][1], total[m]);
            }
            ahead.refill(slot, position + chunk);
        }
#pragma unroll
        for (int m = 0; m < M; ++m) point[(2 * m + output) * kTile] = total[m];
    }
}

// e_j of the words of one step, in shared memory.
template <class Step>
__device__ __forceinline__ void step_exponents(const std::uint16_t* words, std::uint32_t (&exponents)[Step::kKeys]) {
    static_for<0, Step::kKeys>([&](auto key) {
        constexpr int j = decltype(key)::value;
        exponents[j] = 0;
        static_for<0, Step::kKeyBits>([&](auto bit) {
            constexpr int line = Step::template kLine<j, decltype(bit)::value>;
            if constexpr (line != 0) exponents[j] += words[decltype(bit)::value] * static_cast<std::uint32_t>(line);
        });
    });
}

// The product of a warp's points; tiles[m][component]. The transform order is brv(32 lane + 4 v + i) = brv5(lane) + 32 brv3(v) +
// 256 brv2(i), so that within a group of four the powers of zeta turn by quarters.
template <class Config>
__device__ __forceinline__ void multiply_points(Complex* tiles, KeyChunks<Config>& ahead, const std::uint16_t* switched,
                                                const LaneRoots& roots, int warp, int lane) {
    constexpr int M = Config::kPerUnit, kKeys = Config::kKeys;
#pragma unroll 1
    for (int turn = 0; turn < Config::kTurns; ++turn) {
        const int v = warp + Config::kWarps * turn;
        const std::uint32_t place = 1 + 4 * reverse_position(lane, 5) + 128 * reverse_position(v, 3);
        Complex factor[M][kKeys];
        std::uint32_t exponent[M][kKeys];
#pragma unroll
        for (int m = 0; m < M; ++m) {
            step_exponents<typename Config::Step>(switched + m * Config::kMostSwitched, exponent[m]);
#pragma unroll
            for (int j = 0; j < kKeys; ++j) factor[m][j] = roots.power(exponent[m][j] * place);
        }
#pragma unroll 1
        for (int i = 0; i < 4; ++i) {
            multiply_point<Config>(tiles + lane * Config::kRowStride + 4 * v + i, ahead, Config::kGroupChunks * turn + 4 * i,
                                   factor);
#pragma unroll
            for (int m = 0; m < M; ++m)
#pragma unroll
                for (int j = 0; j < kKeys; ++j) factor[m][j] = turned_by(factor[m][j], exponent[m][j] * (i == 1 ? 3u : 2u));
        }
    }
}

template <class Config>
__global__ __launch_bounds__(Config::kThreads,
                             1) void blind_rotate_rounded_kernel(const BlindRotateView view,
                                                                 const __grid_constant__ SharedRoots shared_roots) {
    constexpr int M = Config::kPerUnit, kKeyBits = Config::Step::kKeyBits;
    extern __shared__ __align__(16) unsigned char shared_bytes[];
    auto& roots = *reinterpret_cast<LaneRoots*>(shared_bytes);
    copy_table<Config::kThreads>(reinterpret_cast<Complex*>(shared_bytes), view.twiddles, sizeof(LaneRoots) / sizeof(Complex));

    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, component = warp % 2;
    auto* const tiles = reinterpret_cast<Complex*>(shared_bytes + sizeof(LaneRoots));
    auto* const switched = reinterpret_cast<std::uint16_t*>(tiles + 2 * M * Config::kTilePoints);
    Complex* const tile = tiles + warp * Config::kTilePoints;
    const int switched_words = kKeyBits * view.steps + 1;
    const int drop = kLimbBits - (component == 1 ? Config::shape.body_gadget.base_log : Config::shape.mask_gadget.base_log);

    for (int unit = blockIdx.x; unit * M < view.batch; unit += gridDim.x) {
        const auto number_of = [&](int m) { return unit * M + m < view.batch ? unit * M + m : view.batch - 1; };
        __syncthreads();  // everyone has done with the last ciphertexts' words
        for (int m = 0; m < M; ++m)
            for (int i = threadIdx.x; i < switched_words; i += Config::kThreads)
                switched[m * Config::kMostSwitched + i] =
                    static_cast<std::uint16_t>(switched_of<typename Config::Step>(view, number_of(m))[i]);
        __syncthreads();  // the words are there, and the tables

        const int number = number_of(warp / 2);
        std::uint32_t accumulator[Config::P];
        load_accumulator<Config>(view, number, component, lane, accumulator);

        const Complex* key =
            static_cast<const Complex*>(view.key) + std::size_t(warp) * Config::kGroupChunks * Config::kChunkWords + lane;
#pragma unroll 1
        for (int step = 0; step < view.steps; ++step, key += Config::kStepWords) {
            prefetch_key<Config::kStepWords * sizeof(Complex)>(view, step + Config::kStepsAhead);
            transform_digit<Config>(accumulator, drop, tile, roots, shared_roots, lane);
            KeyChunks<Config> ahead;
            ahead.fill(key);
            __syncthreads();  // the digits of all components are there
            multiply_points<Config>(tiles, ahead, switched + kKeyBits * step, roots, warp, lane);
            __syncthreads();  // the products are there
            accumulate_update<Config>(accumulator, tile, roots, shared_roots, lane);
        }
        __syncwarp();  // the tile is free
        store_accumulator<Config>(view, number, component, lane, accumulator, reinterpret_cast<std::uint32_t*>(tile));
    }
}

template <class Config>
cudaError_t launch_rounded(const BlindRotateView& view, int multiprocessors, cudaStream_t stream) {
    const int units = (view.batch + Config::kPerUnit - 1) / Config::kPerUnit;
    const int blocks = units < multiprocessors ? units : multiprocessors;
    return enqueue(blind_rotate_rounded_kernel<Config>, blocks, Config::kThreads, Config::kSharedBytes, stream, view,
                   SharedRoots::make());
}

// Throughput, or Small where a multiprocessor of the device lacks the shared memory for it.
template <class Throughput, class Small>
cudaError_t launch_rounded_fitting(const BlindRotateView& view, int multiprocessors, cudaStream_t stream) {
    int device = 0, most = 0;
    cudaError_t status = cudaGetDevice(&device);
    if (status == cudaSuccess) status = cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    if (status != cudaSuccess) return status;
    return Throughput::kSharedBytes > static_cast<std::size_t>(most) ? launch_rounded<Small>(view, multiprocessors, stream)
                                                                     : launch_rounded<Throughput>(view, multiprocessors, stream);
}

#endif

}  // namespace fhe_core::cuda
