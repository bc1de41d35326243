// Expansion of seeded keys and ciphertexts (docs/reference/specification.md, section 9; core/expand.cpp).
//
// Bootstrap key: a block per polynomial [step][key][row][component][limb] in shared memory: 16 coefficients per thread and block of
// the generator (or the body), transform, factor 1/N and Montgomery factors, scatter into the kernel's layout.
#include "cuda/stages/expand_key.hpp"

#include "cuda/device/block.cuh"
#include "cuda/device/words.cuh"
#include "cuda/transform/complex_fft.cuh"

namespace fhe_core::cuda {
namespace {

// Limb 0 or 1 of the key, modulo prime `number` of kLimbPrimes.
template <int limb, int number>
struct ExpandPolynomial {
    static constexpr int kThreads = 256;
    using M = Modulus<number>;
    BootstrapKeyPart part;
    Twiddle scale;
    int masks;
    bool wide;  // words of bodies: uint64

    template <class Block>
    FHE_HD void operator()(const Block& block, unsigned char* shared) const {
        auto* x = reinterpret_cast<std::int32_t*>(shared);
        const KeyLayout& layout = part.layout;
        const int size = 1 << layout.log_size;
        const int component = static_cast<int>(block.number() % layout.outputs);
        const std::size_t local_row = block.number() / layout.outputs;  // [step][key][row] of this part
        const std::size_t flat = local_row + std::size_t(part.first_step) * layout.keys_per_step() * layout.rows;
        if (component < masks) {
            block.each(size / 16, [&](int i) {
                std::uint32_t words[16];
                uniform_block<M>(part.seed, kDomainBootstrapKey + kDomainLimbStride * number, flat * masks + component, i, words);
                for (int j = 0; j < 16; ++j) x[16 * i + j] = static_cast<std::int32_t>(words[j]);
            });
        } else {
            const std::size_t body = local_row * (layout.outputs - masks) + (component - masks);
            block.each(size, [&](int i) {
                const std::size_t at = (body << layout.log_size) + i;
                x[i] = wide ? static_cast<std::int32_t>(static_cast<const std::uint64_t*>(part.bodies)[at] % M::p)
                            : static_cast<const std::int32_t*>(part.bodies)[at];
            });
        }
        plain_forward<M>(block, x, 1, layout.log_size, part.tables[limb].twiddles);
        const int row = static_cast<int>(flat % layout.rows), key = static_cast<int>(flat / layout.rows % layout.keys_per_step());
        const std::size_t step = flat / layout.rows / layout.keys_per_step();
        block.each(size, [&](int i) {
            part.key[layout.offset(step, limb, component, row, key, i)] = centre(M{}, multiply_add(M{}, 0, x[i], scale));
        });
    }
};

template <int limb, int number>
void launch_limb(const ParameterSet& params, const BootstrapKeyPart& part, cudaStream_t stream) {
    using M = Modulus<number>;
    const std::uint64_t scale = bootstrap_key_scale(params, M::p);
    const std::size_t blocks = std::size_t(part.steps) * part.layout.keys_per_step() * part.layout.rows * part.layout.outputs;
    launch(ExpandPolynomial<limb, number>{part, M::twiddle(scale), params.seeded_components(), params.key_limbs().count == 2},
           blocks, 4u << part.layout.log_size, stream);
}

// A block per polynomial [step][key][row][component] of a set with rounded products: words modulo QP, centred, to doubles;
// transform, stage by stage in the order of fft.hpp; scale.
struct ExpandRoundedPolynomial {
    static constexpr int kThreads = 256;
    static constexpr std::size_t kSharedBytes = fft::kPoints * sizeof(Complex);
    BootstrapKeyPart part;
    std::uint64_t modulus;
    double scale;

    template <class Block>
    FHE_HD void operator()(const Block& block, unsigned char* shared) const {
        auto* x = reinterpret_cast<Complex*>(shared);
        const KeyLayout& layout = part.layout;
        const auto& roots = *static_cast<const LaneRoots*>(part.lane_roots);
        const int component = static_cast<int>(block.number() % layout.outputs);
        const std::size_t local_row = block.number() / layout.outputs;  // [step][key][row] of this part
        const std::size_t flat = local_row + std::size_t(part.first_step) * layout.keys_per_step() * layout.rows;
        const auto put = [&](int i, std::uint64_t word) {
            const double value = static_cast<double>(centred(word, modulus));
            (i < fft::kPoints ? x[i].re : x[i - fft::kPoints].im) = value;
        };
        if (component == 0) {
            block.each(fft::kDegree / 16, [&](int i) {
                std::uint32_t low[16], high[16];
                uniform_block<Modulus<0>>(part.seed, kDomainBootstrapKey, flat, i, low);
                uniform_block<Modulus<2>>(part.seed, kDomainBootstrapKey + 2 * kDomainLimbStride, flat, i, high);
                for (int j = 0; j < 16; ++j) put(16 * i + j, compose_limbs<2>(low[j], high[j]));
            });
        } else {
            const auto* bodies = static_cast<const std::uint64_t*>(part.bodies) + local_row * fft::kDegree;
            block.each(fft::kDegree, [&](int i) { put(i, bodies[i]); });
        }
        for (int stage = 0; stage < fft::kLogPoints; ++stage) {
            const int half = fft::kPoints >> (stage + 1);
            block.each(fft::kPoints / 2, [&](int i) {
                const int number = i / half, a = 2 * half * number + i % half;
                const std::uint32_t reversed = stage == 0 ? 0 : reverse_position(number, stage);
                butterfly<0>(x[a], x[a + half], roots.power((1 + 4 * reversed) << (fft::kLogPoints - 1 - stage)));
            });
        }
        const int row = static_cast<int>(flat % layout.rows), key = static_cast<int>(flat / layout.rows % layout.keys_per_step());
        const std::size_t step = flat / layout.rows / layout.keys_per_step();
        block.each(fft::kPoints, [&](int p) {
            reinterpret_cast<Complex*>(part.key)[layout.point_offset(step, component, row, key, p)] = {
                fixed::multiply(x[p].re, scale), fixed::multiply(x[p].im, scale)};
        });
    }
};

struct ExpandKeyswitchKey {
    static constexpr int kThreads = 128;
    KeyswitchKeyView view;
    int n, lanes, w;

    // Item: one row and 16 columns.
    template <class Block>
    FHE_HD void operator()(const Block& block, unsigned char*) const {
        const int groups = view.columns / 16;
        block.each_of_grid(view.rows * groups, [&](std::size_t item) {
            const std::size_t row = item % view.rows;  // neighbouring threads write neighbouring bytes
            const int group = static_cast<int>(item / view.rows);
            std::uint32_t words[16];
            chacha20_block(view.seed, group, kDomainKeyswitchKey, row, words);
            std::uint32_t offset = 0;
            for (int s = 0; s < view.slices; ++s) offset |= 0x80u << (8 * s);
            for (int i = 0; i < 16; ++i) {
                const int column = 16 * group + i;
                std::uint32_t word = column < n           ? words[i] & (0xFFFFFFFFu >> (32 - w))
                                     : column < n + lanes ? view.bodies[row * lanes + column - n]
                                                          : 0;
                word += offset;  // each byte minus 128 is a signed digit; carries beyond 2^w vanish
                for (int s = 0; s < view.slices; ++s) {
                    view.planes[(std::size_t(s) * view.columns + column) * view.rows + row] =
                        static_cast<std::int8_t>(static_cast<int>(word >> (8 * s) & 255) - 128);
                }
            }
        });
    }
};

template <class Word>
struct ExpandCiphertexts {
    static constexpr int kThreads = 128;
    ExpandCiphertextsView view;

    // Item: 16 coefficients of a mask, or one word of a body.
    template <class Block>
    FHE_HD void operator()(const Block& block, unsigned char*) const {
        const std::size_t blocks_each = (view.count + 15) / 16, masks = view.batch * view.streams * blocks_each;
        const std::size_t stride = std::size_t(view.streams) * view.count + view.body_words;
        auto* out = static_cast<Word*>(view.out);
        block.each_of_grid(masks + view.batch * view.body_words, [&](std::size_t item) {
            if (item >= masks) {
                const std::size_t number = (item - masks) / view.body_words, i = (item - masks) % view.body_words;
                out[number * stride + std::size_t(view.streams) * view.count + i] =
                    static_cast<const Word*>(view.bodies)[item - masks];
                return;
            }
            const std::size_t index = item / blocks_each;
            const int first = static_cast<int>(item % blocks_each) * 16;
            std::uint32_t low[16];
            const std::size_t stream = view.first * view.streams + index;
            uniform_block<Modulus<0>>(view.seed, view.domain, stream, first / 16, low);
            Word* target = out + index / view.streams * stride + index % view.streams * view.count;
            if constexpr (sizeof(Word) == 4) {
                for (int j = 0; j < 16 && first + j < view.count; ++j) target[first + j] = low[j];
            } else {
                std::uint32_t high[16];
                uniform_block<Modulus<1>>(view.seed, view.domain + kDomainLimbStride, stream, first / 16, high);
                for (int j = 0; j < 16 && first + j < view.count; ++j) target[first + j] = compose_limbs(low[j], high[j]);
            }
        });
    }
};

}  // namespace

void launch_expand_bootstrap_key(const ParameterSet& params, const BootstrapKeyPart& part, cudaStream_t stream) {
    if (params.has_rounded_products()) {
        const std::size_t blocks = std::size_t(part.steps) * part.layout.keys_per_step() * part.layout.rows * part.layout.outputs;
        launch(ExpandRoundedPolynomial{part, params.key_modulus(), fft::key_scale(params.key_modulus())}, blocks,
               ExpandRoundedPolynomial::kSharedBytes, stream);
        return;
    }
    launch_limb<0, 0>(params, part, stream);
    if (params.is_raised())
        launch_limb<1, 2>(params, part, stream);
    else if (params.limb_count() == 2)
        launch_limb<1, 1>(params, part, stream);
}

void launch_expand_keyswitch_key(const ParameterSet& params, const KeyswitchKeyView& view, cudaStream_t stream) {
    const ExpandKeyswitchKey body{view, params.lwe_dimension, params.lane_count(), params.keyswitch_modulus_log2};
    launch_over(body, view.rows * (view.columns / 16), stream);
}

void launch_expand_ciphertexts(const ParameterSet& params, const ExpandCiphertextsView& view, cudaStream_t stream) {
    const std::size_t items = view.batch * (std::size_t(view.streams) * ((view.count + 15) / 16) + view.body_words);
    with_words(params, [&]<class Word>(Word) { launch_over(ExpandCiphertexts<Word>{view}, items, stream); });
}

}  // namespace fhe_core::cuda
