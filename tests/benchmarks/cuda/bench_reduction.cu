// Butterflies of a transform a second, by how their products are reduced: by a constant's companion modulo q0 (what the engine
// does), by Montgomery modulo q0, and by K-reduction modulo 3 * 2^18 + 1, the prime of the NTRU bootstrapping that is published
// with it.
//
//   bench_reduction
//
// K-reduction: c = x w is 3 * (c mod 2^18) - floor(c / 2^18) times 1/3, so that twiddles are 3 w; from values of 22 bits a
// butterfly leaves 25, and every second stage reduces once more. Source: [LN16] section 3.
#include <cstdint>
#include <cstdio>

#include "cuda/device/modulus.cuh"
#include "device_array.hpp"

namespace fhe_core::cuda {
namespace {

constexpr int kPoints = 16, kStages = 4, kRounds = 2000, kThreads = 384;

struct Companion {
    static constexpr const char* name = "companion, q0 (27 bits)";
    using M = Modulus<0>;
    __device__ static void butterfly(std::int32_t& a, std::int32_t& b, Twiddle w, int) { forward_butterfly(M{}, a, b, w); }
    __device__ static std::int32_t settle(std::int32_t x) { return reduce(M{}, x); }
};
struct Montgomery {
    static constexpr const char* name = "Montgomery, q0 (27 bits)";
    using M = Modulus<0>;
    __device__ static void butterfly(std::int32_t& a, std::int32_t& b, Twiddle w, int) {
        const std::int32_t product = montgomery(M{}, multiply_wide(b, w.value));
        b = wrap_sub(a, product);
        a = wrap_add(a, product);
    }
    __device__ static std::int32_t settle(std::int32_t x) { return reduce(M{}, x); }
};
struct KReduction {
    static constexpr const char* name = "K-reduction, 3 * 2^18 + 1 (20 bits)";
    __device__ static std::int32_t reduced(std::int64_t c) {
        return 3 * static_cast<std::int32_t>(static_cast<std::uint32_t>(c) & 0x3FFFF) - static_cast<std::int32_t>(c >> 18);
    }
    __device__ static void butterfly(std::int32_t& a, std::int32_t& b, Twiddle w, int stage) {
        std::int32_t product = reduced(multiply_wide(b, w.value));
        if (stage % 2 == 1) {  // once more: 3 * (x mod 2^18) - floor(x / 2^18), of both, which scales alike
            product = 3 * (product & 0x3FFFF) - (product >> 18);
            a = 3 * (a & 0x3FFFF) - (a >> 18);
        }
        b = wrap_sub(a, product);
        a = wrap_add(a, product);
    }
    __device__ static std::int32_t settle(std::int32_t x) { return 3 * (x & 0x3FFFF) - (x >> 18); }
};

template <class Reduction>
__global__ __launch_bounds__(kThreads, 1) void butterflies(const Twiddle* twiddles, std::int32_t* out) {
    std::int32_t x[kPoints];
    Twiddle w[kStages];
    for (int j = 0; j < kPoints; ++j) x[j] = static_cast<std::int32_t>(threadIdx.x * 977 + j * 13);
    for (int s = 0; s < kStages; ++s) w[s] = twiddles[(threadIdx.x + s) % 64];
#pragma unroll 1
    for (int round = 0; round < kRounds; ++round) {
#pragma unroll
        for (int stage = 0; stage < kStages; ++stage) {
            const int half = kPoints >> (stage + 1);
#pragma unroll
            for (int i = 0; i < kPoints / 2; ++i) {
                const int a = i / half * 2 * half + i % half;
                Reduction::butterfly(x[a], x[a + half], w[stage], stage);
            }
        }
#pragma unroll
        for (int j = 0; j < kPoints; ++j) x[j] = Reduction::settle(x[j]);  // as an inverse transform or digits would
    }
    std::int32_t sum = 0;
    for (int j = 0; j < kPoints; ++j) sum ^= x[j];
    out[blockIdx.x * kThreads + threadIdx.x] = sum;
}

template <class Reduction>
void time_reduction(const DeviceArray<Twiddle>& twiddles) {
    const int blocks = device_multiprocessors();
    DeviceArray<std::int32_t> out(std::size_t(blocks) * kThreads);
    const float milliseconds =
        median_milliseconds(5, [&] { butterflies<Reduction><<<blocks, kThreads>>>(twiddles.data(), out.data()); });
    const double count = double(blocks) * kThreads * kRounds * kStages * (kPoints / 2);
    std::printf("%-40s %7.1f G butterflies/s\n", Reduction::name, count / milliseconds * 1e-6);
}

}  // namespace
}  // namespace fhe_core::cuda

int main() {
    using namespace fhe_core::cuda;
    std::vector<Twiddle> host;
    for (int i = 0; i < 64; ++i) host.push_back(Modulus<0>::twiddle(fhe_core::pow_mod(5, 1000 + i, Modulus<0>::p)));
    std::vector<Twiddle> small = host;
    for (Twiddle& w : small) w.value %= 1 << 19;
    const DeviceArray<Twiddle> twiddles(host), small_twiddles(small);
    time_reduction<Companion>(twiddles);
    time_reduction<Montgomery>(twiddles);
    time_reduction<KReduction>(small_twiddles);
    return 0;
}
