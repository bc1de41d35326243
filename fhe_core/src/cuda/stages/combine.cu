// Sums of ciphertexts with integer factors and a constant on the bodies; one word per thread. CPU counterpart: cpu/linear.cpp.
#include "cuda/stages/stages.hpp"

#include "cuda/device/block.cuh"
#include "cuda/device/words.cuh"

namespace fhe_core::cuda {
namespace {

struct ResidueScales {
    std::uint64_t x, y, constant;
};

template <class Word>
struct Combine {
    static constexpr int kThreads = 256;
    const Word *x, *y;
    Word* out;
    ResidueScales scales[2];  // by limb
    std::size_t total;
    int words, mask_words;

    template <int limb>
    FHE_HD std::uint32_t of_limb(std::size_t item, bool is_body) const {
        constexpr std::uint64_t p = Modulus<limb>::p;
        std::uint64_t sum = x[item] % p * scales[limb].x;  // below 2^54
        if (y != nullptr) sum += y[item] % p * scales[limb].y;
        if (is_body) sum += scales[limb].constant;
        return static_cast<std::uint32_t>(sum % p);
    }

    template <class Block>
    FHE_HD void operator()(const Block& block, unsigned char*) const {
        block.each_of_grid(total, [&](std::size_t item) {
            const bool is_body = static_cast<int>(item % words) >= mask_words;
            if constexpr (sizeof(Word) == 4)
                out[item] = of_limb<0>(item, is_body);
            else
                out[item] = compose_limbs(of_limb<0>(item, is_body), of_limb<1>(item, is_body));
        });
    }
};

}  // namespace

void launch_combine(const ParameterSet& params, const CombineView& view, std::size_t batch, cudaStream_t stream) {
    const int words = params.large_words();
    with_words(params, [&]<class Word>(Word) {
        Combine<Word> body{static_cast<const Word*>(view.x),
                           static_cast<const Word*>(view.y),
                           static_cast<Word*>(view.out),
                           {},
                           batch * words,
                           words,
                           params.large_dimension()};
        for (int limb = 0; limb < 2; ++limb) {
            const std::uint64_t p = kLimbPrimes[limb];
            body.scales[limb] = {residue(view.scale_x, p), residue(view.scale_y, p), view.constant % params.modulus() % p};
        }
        launch_over(body, batch * words, stream);
    });
}

}  // namespace fhe_core::cuda
