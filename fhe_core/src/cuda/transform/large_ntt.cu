#include "cuda/transform/large_ntt_launch.hpp"

#include <algorithm>

#include "cuda/device/block.cuh"
#include "cuda/device/runtime.hpp"
#include "cuda/transform/large_ntt.cuh"

namespace fhe_core::cuda {
namespace {

// The kernel of one half, over all polynomials.
template <class Config, class Kernel>
void launch_half(Kernel kernel, const LargeNttArguments& a, const std::uint32_t* in, cudaStream_t stream) {
    const std::size_t tiles = a.batch * a.prime_count * Config::kTiles;
    const std::size_t blocks = std::min<std::size_t>(tiles, std::size_t{Config::kBlocksOfMultiprocessor} * a.multiprocessors);
    const LargeNttView view{a.primes, a.roots, static_cast<unsigned>(a.prime_count), a.numbers};
    check(enqueue(kernel, blocks, Config::kThreads, Config::kSharedBytes, stream, view, static_cast<unsigned>(tiles), in, a.out),
          "transform");
}

template <int n1, bool inverse>
void launch(const LargeNttArguments& a, cudaStream_t stream) {
    using Columns = LargeColumns<n1>;
    using Rows = LargeRows<n1>;
    if constexpr (inverse) {
        launch_half<Rows>(large_rows_kernel<Rows, true>, a, a.in, stream);
        launch_half<Columns>(large_columns_kernel<Columns, true>, a, a.out, stream);
    } else {
        launch_half<Columns>(large_columns_kernel<Columns, false>, a, a.in, stream);
        launch_half<Rows>(large_rows_kernel<Rows, false>, a, a.out, stream);
    }
}

template <int n1>
void dispatch(const LargeNttArguments& a, bool inverse, cudaStream_t stream) {
    if (a.layout.n1 == n1)
        inverse ? launch<n1, true>(a, stream) : launch<n1, false>(a, stream);
    else if constexpr (n1 < kMostLargeLog - kRowLog)
        dispatch<n1 + 1>(a, inverse, stream);
}

struct LargeRangeCheck {
    static constexpr int kThreads = 256;
    const LargePrime* primes;
    const std::uint32_t* words;
    std::size_t prime_count, size, count;
    std::uint32_t* outside;

    template <class Block>
    FHE_HD void operator()(const Block& block, unsigned char*) const {
        block.each_of_grid(count, [&](std::size_t i) {
            if (words[i] >= primes[i / size % prime_count].q) *outside = 1;  // every thread that writes writes the same
        });
    }
};

}  // namespace

void launch_large_ntt(const LargeNttArguments& arguments, bool inverse, cudaStream_t stream) {
    dispatch<kLeastLargeLog - kRowLog>(arguments, inverse, stream);
}

void launch_large_range_check(const LargeNttArguments& a, std::uint32_t* outside, cudaStream_t stream) {
    const std::size_t size = a.layout.column_count() * kRowSize, count = a.batch * a.prime_count * size;
    launch_over(LargeRangeCheck{a.primes, a.in, a.prime_count, size, count, outside}, count, stream);
}

}  // namespace fhe_core::cuda
