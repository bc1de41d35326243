// Sample extraction of whole GLWE ciphertexts, or of several that a blind rotation made of one table:
// docs/reference/specification.md, section 7; one word per thread. Kernels made for a shape extract for themselves
// (accumulator.cuh). CPU counterpart: cpu/sample_extract.cpp. Source: [CGGI20] sample extraction.
#include "cuda/stages/stages.hpp"

#include "cuda/device/block.cuh"
#include "cuda/device/words.cuh"
#include "cuda/rotation/accumulator.cuh"

namespace fhe_core::cuda {
namespace {

template <class Word>
struct SampleExtract {
    static constexpr int kThreads = 256;
    const Word* glwe;
    const std::uint32_t* coefficients;
    Word* lwe;
    std::size_t batch, count;
    Word modulus;
    int size, k, lanes, parts;  // ciphertexts [batch][parts][k + r][N]: coefficient c is coefficient c / parts of part c mod parts

    template <class Block>
    FHE_HD void operator()(const Block& block, unsigned char*) const {
        const int mask_words = k * size, words = mask_words + lanes;
        block.each_of_grid(batch * count * words, [&](std::size_t item) {
            const int at = static_cast<int>(item % words);
            const int component = at < mask_words ? at / size : k + at - mask_words, j = at - component * size;  // j: of masks
            const std::size_t output = item / words, number = output / count;
            const int c = static_cast<int>(coefficients[output % count]);
            const Word* polynomial = glwe + ((number * parts + c % parts) * (k + lanes) + component) * size;
            lwe[item] = component >= k ? polynomial[c / parts] : extracted_word(polynomial, size, c / parts, j, modulus);
        });
    }
};

}  // namespace

void launch_sample_extract(const ParameterSet& params, const void* glwe, int parts, std::size_t batch,
                           const std::uint32_t* coefficients, std::size_t count, void* lwe, cudaStream_t stream) {
    with_words(params, [&]<class Word>(Word) {
        const SampleExtract<Word> body{static_cast<const Word*>(glwe),
                                       coefficients,
                                       static_cast<Word*>(lwe),
                                       batch,
                                       count,
                                       static_cast<Word>(params.modulus()),
                                       params.polynomial_size(),
                                       params.glwe_dimension(),
                                       params.lane_count(),
                                       parts};
        launch_over(body, batch * count * params.large_words(), stream);
    });
}

}  // namespace fhe_core::cuda
