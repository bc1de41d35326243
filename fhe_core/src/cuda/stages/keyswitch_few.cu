// Keyswitch and modulus switch of few ciphertexts, in one launch: docs/reference/specification.md, sections 2 and 3. Same key and
// words as keyswitch.cu and modulus_switch.cu, whose four launches take longer than reading the key does.
//
// Who does what. A block takes kColumns words of all `count` small ciphertexts: it cuts their masks into
// digits (every block does, 1 to 2 words per thread), then kParts warps read a column's bytes of all slices, 16 at a time, and
// multiply them by the digits of every ciphertext. The first bytes of the key are loaded before the digits are cut, which hides
// them. A thread per word sums parts and slices, and switches. The errors of the masks are summed over all blocks in `counters`;
// the block that is the last to add its own switches the bodies of all lanes, and leaves zeros. Sums of integers: their order does
// not matter.
//
// Shared memory: digits [ciphertext][kN * level_count] bytes; partial sums [part][column][ciphertext][slice].
// Counters: tickets, then for each ciphertext an error sum and its bodies.
//
// Source: [CGGI20] keyswitch; [Joy21] digits; [RDV25] centred mean.
#include <cstddef>
#include <cstdint>

#include "cuda/device/block.cuh"
#include "cuda/device/words.cuh"
#include "cuda/rotation/product.cuh"
#include "cuda/stages/keyswitch_digits.cuh"
#include "cuda/stages/stages.hpp"

namespace fhe_core::cuda {
namespace {

constexpr int kColumns = 4, kParts = 4, kWarps = kColumns * kParts, kThreads = 32 * kWarps;
constexpr int kMostCount = 2;  // of eight, four launches are faster (docs/benchmarks/cuda-log.md)

template <class Word>
struct FewBody {
    KeyswitchFewView view;
    ModulusRounding round;
    KeyswitchCut cut;
    Rotation rotation;
    int dimension, n, lanes, h, row_bytes;  // row_bytes: of a column of the key
    std::uint32_t switch_mask;              // 2N - 1

    FHE_HD const Word* lwe(int number) const {
        return static_cast<const Word*>(view.lwe) + std::size_t(number) * (dimension + lanes);
    }
    FHE_HD std::uint32_t* switched(int number) const { return view.switched + std::size_t(number) * (n + lanes); }
};

__device__ __forceinline__ int dot(const Vec4& a, const Vec4& b, int sum) {
#pragma unroll
    for (int i = 0; i < 4; ++i) sum = __dp4a(a.x[i], b.x[i], sum);
    return sum;
}

template <class Word, int count, int slices>
struct FewBlock {
    static constexpr int kAhead = 8;  // vectors of the key that a thread loads at once
    const FewBody<Word>& body;
    std::int8_t* digits;
    std::int32_t* partial;
    int first_column;

    __device__ void cut_digits() const {
        for (int i = threadIdx.x; i < count * body.dimension; i += kThreads) {
            const int number = i / body.dimension, j = i - number * body.dimension;
            std::int8_t* const out = digits + number * body.row_bytes + j * body.cut.level_count;
            body.cut(body.round(body.lwe(number)[j]), out);
        }
    }

    // Cuts the digits, and multiplies one part of a column by them, all slices.
    __device__ void multiply(int own_column, int part, int lane) const {
        const int column = first_column + own_column;
        const int vectors = body.row_bytes / 16, stride = 32 * kParts, begin = part * 32 + lane;
        const std::size_t slice_vectors = std::size_t(body.view.columns) * vectors;
        const Vec4* const key = reinterpret_cast<const Vec4*>(body.view.planes) + std::size_t(column) * vectors;
        constexpr int kTurns = kAhead / slices;
        Vec4 ahead[kTurns][slices];
        const auto load = [&](int v) {
#pragma unroll
            for (int turn = 0; turn < kTurns; ++turn)
#pragma unroll
                for (int s = 0; s < slices; ++s) {
                    const int at = v + turn * stride;
                    ahead[turn][s] = at < vectors ? load_key(key + s * slice_vectors + at) : Vec4{};
                }
        };
        load(begin);
        cut_digits();
        __syncthreads();  // the digits are there
        int sums[count][slices] = {};
        for (int v = begin; v < vectors; v += kTurns * stride) {
#pragma unroll
            for (int turn = 0; turn < kTurns; ++turn) {
                const int at = v + turn * stride < vectors ? v + turn * stride : begin;  // there the key is zero
#pragma unroll
                for (int number = 0; number < count; ++number) {
                    const Vec4 digit = reinterpret_cast<const Vec4*>(digits + number * body.row_bytes)[at];
#pragma unroll
                    for (int s = 0; s < slices; ++s) sums[number][s] = dot(ahead[turn][s], digit, sums[number][s]);
                }
            }
            load(v + kTurns * stride);
        }
#pragma unroll
        for (int number = 0; number < count; ++number)
#pragma unroll
            for (int s = 0; s < slices; ++s) {
                const int sum = __reduce_add_sync(0xffffffffu, sums[number][s]);
                if (lane == 0) partial[((part * kColumns + own_column) * count + number) * slices + s] = sum;
            }
    }

    __device__ unsigned long long* errors(int number) const { return body.view.counters + 1 + (1 + body.lanes) * number; }

    // A word of the small ciphertext, switched; bodies wait for all errors.
    __device__ void switch_word(int column, int number) const {
        const int j = first_column + column;
        if (j >= body.n + body.lanes) return;
        std::uint32_t word = j >= body.n ? body.round(body.lwe(number)[body.dimension + j - body.n]) : 0;
        for (int s = 0; s < slices; ++s)
            for (int part = 0; part < kParts; ++part)
                word -= static_cast<std::uint32_t>(partial[((part * kColumns + column) * count + number) * slices + s]) << (8 * s);
        word &= 0xFFFFFFFFu >> (32 - body.cut.w);
        if (j >= body.n) {
            atomicExch(errors(number) + 1 + j - body.n, word);
        } else {
            const std::uint32_t t = (word + (1u << (body.h - 1))) >> body.h;
            const std::int64_t error = std::int64_t{word} - (std::int64_t{t} << body.h);
            atomicAdd(errors(number), static_cast<unsigned long long>(error));
            body.switched(number)[j] = t & body.switch_mask;
        }
    }

    __device__ void switch_bodies(int number) const {
        const auto error = static_cast<std::int64_t>(atomicExch(errors(number), 0));
        for (int lane = 0; lane < body.lanes; ++lane) {
            const auto word = static_cast<std::int64_t>(atomicExch(errors(number) + 1 + lane, 0));
            body.switched(number)[body.n + lane] =
                static_cast<std::uint32_t>(body.rotation.switched_body(word, error, body.h)) & body.switch_mask;
        }
    }
};

}  // namespace

template <class Word, int count, int slices>
__global__ __launch_bounds__(kThreads, 2) void keyswitch_few_kernel(const FewBody<Word> body) {
    extern __shared__ __align__(16) unsigned char shared_bytes[];
    __shared__ bool is_last;
    const FewBlock<Word, count, slices> block{body, reinterpret_cast<std::int8_t*>(shared_bytes),
                                              reinterpret_cast<std::int32_t*>(shared_bytes + count * body.row_bytes),
                                              static_cast<int>(blockIdx.x) * kColumns};
    const int thread = threadIdx.x, warp = thread / 32;
    block.multiply(warp / kParts, warp % kParts, thread % 32);
    __syncthreads();  // the partial sums are there
    if (thread / kColumns < count) block.switch_word(thread % kColumns, thread / kColumns);
    __threadfence();
    __syncthreads();  // this block's errors are added
    if (thread == 0) is_last = atomicAdd(body.view.counters, 1) + 1 == gridDim.x;
    __syncthreads();
    if (!is_last) return;
    __threadfence();
    if (thread < count) block.switch_bodies(thread);
    if (thread == 0) *body.view.counters = 0;
}

namespace {

std::size_t row_bytes_of(const ParameterSet& params) { return params.keyswitch_key_rows(); }

template <class Word, int count, int slices>
void launch_count(const FewBody<Word>& body, cudaStream_t stream) {
    const std::size_t shared_bytes =
        std::size_t(count) * body.row_bytes + sizeof(std::int32_t) * kParts * kColumns * count * slices;
    check(enqueue(keyswitch_few_kernel<Word, count, slices>, (body.n + body.lanes + kColumns - 1) / kColumns, kThreads,
                  shared_bytes, stream, body),
          "keyswitch");
}

template <int slices, class Word>
void launch_slices(const FewBody<Word>& body, cudaStream_t stream) {
    if (body.view.batch == 1) return launch_count<Word, 1, slices>(body, stream);
    launch_count<Word, kMostCount, slices>(body, stream);
}

}  // namespace

std::size_t most_of_few_keyswitch(const ParameterSet& params) {
    const int slices = (params.keyswitch_modulus_log2 + 7) / 8;
    if (slices != 2 && slices != 3) return 0;
    return kMostCount;
}

std::size_t few_keyswitch_counters(const ParameterSet& params) { return 1 + (1 + params.lane_count()) * kMostCount; }

void launch_keyswitch_few(const ParameterSet& params, const KeyswitchFewView& view, cudaStream_t stream) {
    const int w = params.keyswitch_modulus_log2;
    with_words(params, [&]<class Word>(Word) {
        const FewBody<Word> body{view,
                                 ModulusRounding::make(params),
                                 {w, params.keyswitch_gadget.base_log, params.keyswitch_gadget.level_count},
                                 params.rotation(),
                                 params.large_dimension(),
                                 params.lwe_dimension,
                                 params.lane_count(),
                                 w - params.log2_twice_table_size(),
                                 static_cast<int>(row_bytes_of(params)),
                                 2 * static_cast<std::uint32_t>(params.table_size()) - 1};
        if (view.slices == 2)
            launch_slices<2>(body, stream);
        else
            launch_slices<3>(body, stream);
    });
}

}  // namespace fhe_core::cuda
