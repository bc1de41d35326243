// Modulus switch: docs/reference/specification.md, section 3. CPU counterpart: cpu/modulus_switch.cpp.
// Source: [RDV25] centred mean.
#include "cuda/stages/stages.hpp"

#include "cuda/device/block.cuh"

namespace fhe_core::cuda {
namespace {

// A block per ciphertext: E is a sum over its masks.
struct ModulusSwitch {
    static constexpr int kThreads = 128;
    const std::uint32_t* small_lwe;
    std::uint32_t* switched;
    int n, lanes, h;
    std::uint32_t mask;  // 2 nu N - 1
    Rotation rotation;

    template <class Block>
    FHE_HD void operator()(const Block& block, unsigned char* shared) const {
        auto* partial = reinterpret_cast<std::int64_t*>(shared);
        const std::uint32_t* in = small_lwe + block.number() * (n + lanes);
        std::uint32_t* out = switched + block.number() * (n + lanes);
        block.each(kThreads, [&](int thread) {
            std::int64_t errors = 0;
            for (int j = thread; j < n; j += kThreads) {
                const std::uint32_t a = in[j], t = (a + (1u << (h - 1))) >> h;
                errors += std::int64_t{a} - (std::int64_t{t} << h);
                out[j] = t & mask;
            }
            partial[thread] = errors;
        });
        for (int half = kThreads / 2; half > 0; half /= 2) block.each(half, [&](int i) { partial[i] += partial[i + half]; });
        block.each(lanes, [&](int lane) {
            out[n + lane] = static_cast<std::uint32_t>(rotation.switched_body(in[n + lane], partial[0], h)) & mask;
        });
    }
};

}  // namespace

void launch_modulus_switch(const ParameterSet& params, const std::uint32_t* small_lwe, std::size_t batch, std::uint32_t* switched,
                           cudaStream_t stream) {
    const int h = params.keyswitch_modulus_log2 - params.log2_twice_table_size();
    const ModulusSwitch body{small_lwe,           switched, params.lwe_dimension,
                             params.lane_count(), h,        2 * static_cast<std::uint32_t>(params.table_size()) - 1,
                             params.rotation()};
    launch(body, batch, ModulusSwitch::kThreads * sizeof(std::int64_t), stream);
}

}  // namespace fhe_core::cuda
