// Keyswitch: docs/reference/specification.md, section 2. Digits, an int8 matrix product with the key's byte slices (int8_gemm.cpp),
// sums modulo 2^w; one item per thread. CPU counterpart: cpu/keyswitch.cpp. Source: [CGGI20] keyswitch; [Joy21] digits.
#include "cuda/stages/stages.hpp"

#include "cuda/device/block.cuh"
#include "cuda/device/words.cuh"
#include "cuda/stages/keyswitch_digits.cuh"

namespace fhe_core::cuda {
namespace {

template <class Word>
struct KeyswitchDigits {
    static constexpr int kThreads = 256;
    const Word* lwe;
    std::int8_t* digits;
    std::uint32_t* bodies;
    ModulusRounding round;
    KeyswitchCut cut;
    std::size_t batch;
    int dimension, lanes;

    template <class Block>
    FHE_HD void operator()(const Block& block, unsigned char*) const {
        const int words = dimension + lanes;
        block.each_of_grid(batch * words, [&](std::size_t item) {
            const std::size_t number = item / words;
            const int j = static_cast<int>(item % words);
            const std::uint32_t y = round(lwe[item]);
            if (j >= dimension) {
                bodies[number * lanes + j - dimension] = y;
                return;
            }
            cut(y, digits + (number * dimension + j) * cut.level_count);
        });
    }
};

struct KeyswitchSums {
    static constexpr int kThreads = 256;
    const std::int32_t* sums;
    const std::uint32_t* bodies;
    std::uint32_t* small_lwe;
    std::size_t batch;
    int slices, columns, n, lanes, w;

    template <class Block>
    FHE_HD void operator()(const Block& block, unsigned char*) const {
        const int words = n + lanes;
        block.each_of_grid(batch * words, [&](std::size_t item) {
            const std::size_t number = item / words;
            const int j = static_cast<int>(item % words);
            std::uint32_t word = j >= n ? bodies[number * lanes + j - n] : 0;
            for (int s = 0; s < slices; ++s)
                word -= static_cast<std::uint32_t>(sums[(number * slices + s) * columns + j]) << (8 * s);
            small_lwe[item] = word & (0xFFFFFFFFu >> (32 - w));
        });
    }
};

}  // namespace

void launch_keyswitch_digits(const ParameterSet& params, const void* lwe, std::size_t batch, std::int8_t* digits,
                             std::uint32_t* bodies, cudaStream_t stream) {
    with_words(params, [&]<class Word>(Word) {
        const KeyswitchDigits<Word> body{
            static_cast<const Word*>(lwe),
            digits,
            bodies,
            ModulusRounding::make(params),
            {params.keyswitch_modulus_log2, params.keyswitch_gadget.base_log, params.keyswitch_gadget.level_count},
            batch,
            params.large_dimension(),
            params.lane_count()};
        launch_over(body, batch * params.large_words(), stream);
    });
}

void launch_keyswitch_sums(const ParameterSet& params, const std::int32_t* sums, int slices, int columns,
                           const std::uint32_t* bodies, std::size_t batch, std::uint32_t* small_lwe, cudaStream_t stream) {
    const KeyswitchSums body{
        sums, bodies, small_lwe, batch, slices, columns, params.lwe_dimension, params.lane_count(), params.keyswitch_modulus_log2};
    launch_over(body, batch * params.small_words(), stream);
}

}  // namespace fhe_core::cuda
