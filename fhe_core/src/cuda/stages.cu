// The stages around the blind rotation: docs/specification.md, sections 2, 3 and 7; one item per thread, a block per ciphertext
// where a sum over it is needed. CPU counterparts: cpu/keyswitch.cpp, modulus_switch.cpp, sample_extract.cpp, linear.cpp.
// Source: [CGGI20] keyswitch and sample extraction; [Joy21] digits; [RDV25] centred mean.
#include "cuda/stages.hpp"

#include "cuda/block.cuh"

namespace fhe_core::cuda {
namespace {

FHE_HD std::uint64_t multiply_high_unsigned(std::uint64_t a, std::uint64_t b) {
#ifdef __CUDA_ARCH__
    return __umul64hi(a, b);
#else
    return static_cast<std::uint64_t>(static_cast<uint128>(a) * b >> 64);
#endif
}

// floor((x * 2^w + floor(Q/2)) / Q) mod 2^w by a reciprocal and corrections; w <= 26.
struct ModulusRounding {
    std::uint64_t modulus, reciprocal;
    int w;

    static ModulusRounding make(const ParameterSet& params) {
        const int w = params.keyswitch_modulus_log2;
        return {params.modulus(), static_cast<std::uint64_t>((static_cast<uint128>(1) << (64 + w)) / params.modulus()), w};
    }
    FHE_HD std::uint32_t operator()(std::uint64_t x) const {
        std::uint64_t quotient = multiply_high_unsigned(x, reciprocal);
        std::uint64_t remainder = (x << w) + modulus / 2 - quotient * modulus;  // exact modulo 2^64, in [0, 3Q)
        while (remainder >= modulus) {
            remainder -= modulus;
            ++quotient;
        }
        return static_cast<std::uint32_t>(quotient) & ((1u << w) - 1);
    }
};

template <class Word>
struct KeyswitchDigits {
    static constexpr int kThreads = 256;
    const Word* lwe;
    std::int8_t* digits;
    std::uint32_t* bodies;
    ModulusRounding round;
    std::size_t batch;
    int dimension, base_log, level_count;

    template <class Block>
    FHE_HD void operator()(const Block& block, unsigned char*) const {
        block.each_of_grid(batch * (dimension + 1), [&](std::size_t item) {
            const std::size_t number = item / (dimension + 1);
            const int j = static_cast<int>(item % (dimension + 1));
            const std::uint32_t y = round(lwe[item]);
            if (j == dimension) {
                bodies[number] = y;
                return;
            }
            const int kept = base_log * level_count, dropped = round.w - kept;
            std::uint32_t v = dropped == 0 ? y : (y + (1u << (dropped - 1))) >> dropped & ((1u << kept) - 1);
            const std::uint32_t base = 1u << base_log, half = base / 2, lowest = v & 1;
            std::int8_t* out = digits + (number * dimension + j) * level_count;
            for (int level = level_count - 1; level >= 0; --level) {  // step 3
                const std::uint32_t r = v & (base - 1);
                v >>= base_log;
                const std::uint32_t tie = level == 0 ? lowest : v >> (base_log - 1) & 1;
                const std::uint32_t carry = (r > half) | ((r == half) & tie);
                out[level] = static_cast<std::int8_t>(static_cast<std::int32_t>(r) - static_cast<std::int32_t>(carry << base_log));
                v += carry;
            }
        });
    }
};

struct KeyswitchSums {
    static constexpr int kThreads = 256;
    const std::int32_t* sums;
    const std::uint32_t* bodies;
    std::uint32_t* small_lwe;
    std::size_t batch;
    int slices, columns, n, w;

    template <class Block>
    FHE_HD void operator()(const Block& block, unsigned char*) const {
        block.each_of_grid(batch * (n + 1), [&](std::size_t item) {
            const std::size_t number = item / (n + 1);
            const int j = static_cast<int>(item % (n + 1));
            std::uint32_t word = j == n ? bodies[number] : 0;
            for (int s = 0; s < slices; ++s)
                word -= static_cast<std::uint32_t>(sums[(number * slices + s) * columns + j]) << (8 * s);
            small_lwe[item] = word & (0xFFFFFFFFu >> (32 - w));
        });
    }
};

// A block per ciphertext: E is a sum over its masks.
struct ModulusSwitch {
    static constexpr int kThreads = 128;
    const std::uint32_t* small_lwe;
    std::uint32_t* switched;
    int n, h;
    std::uint32_t mask;  // 2N - 1
    bool centred_mean;

    template <class Block>
    FHE_HD void operator()(const Block& block, unsigned char* shared) const {
        auto* partial = reinterpret_cast<std::int64_t*>(shared);
        const std::uint32_t* in = small_lwe + block.number() * (n + 1);
        std::uint32_t* out = switched + block.number() * (n + 1);
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
        block.each(1, [&](int) {
            const std::int64_t b = in[n];
            const std::int64_t rounded =
                centred_mean ? (2 * b - partial[0] + (std::int64_t{1} << h)) >> (h + 1) : (b + (std::int64_t{1} << (h - 1))) >> h;
            out[n] = static_cast<std::uint32_t>(rounded) & mask;
        });
    }
};

template <class Word>
struct SampleExtract {
    static constexpr int kThreads = 256;
    const Word* glwe;
    const std::uint32_t* coefficients;
    Word* lwe;
    std::size_t batch, count;
    Word modulus;
    int size, k;

    template <class Block>
    FHE_HD void operator()(const Block& block, unsigned char*) const {
        const int words = k * size + 1;
        block.each_of_grid(batch * count * words, [&](std::size_t item) {
            const int at = static_cast<int>(item % words), component = at / size, j = at - component * size;
            const std::size_t output = item / words, number = output / count;
            const int c = static_cast<int>(coefficients[output % count]);
            const Word* polynomial = glwe + (number * (k + 1) + component) * size;
            const Word word = component == k ? polynomial[c] : polynomial[(c - j) & (size - 1)];
            lwe[item] = component == k || j <= c || word == 0 ? word : modulus - word;
        });
    }
};

struct Probe {
    static constexpr int kThreads = 32;
    template <class Block>
    FHE_HD void operator()(const Block&, unsigned char*) const {}
};

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
    int words;

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
            const bool is_body = static_cast<int>(item % words) == words - 1;
            if constexpr (sizeof(Word) == 4)
                out[item] = of_limb<0>(item, is_body);
            else
                out[item] = compose_limbs(of_limb<0>(item, is_body), of_limb<1>(item, is_body));
        });
    }
};

template <class F>
void with_words(const ParameterSet& params, F&& f) {
    if (params.limb_count() == 1)
        f(std::uint32_t{});
    else
        f(std::uint64_t{});
}

}  // namespace

void launch_probe() { launch(Probe{}, 1, 0, nullptr); }

void launch_keyswitch_digits(const ParameterSet& params, const void* lwe, std::size_t batch, std::int8_t* digits,
                             std::uint32_t* bodies, cudaStream_t stream) {
    with_words(params, [&]<class Word>(Word) {
        const KeyswitchDigits<Word> body{static_cast<const Word*>(lwe),
                                         digits,
                                         bodies,
                                         ModulusRounding::make(params),
                                         batch,
                                         params.large_dimension(),
                                         params.keyswitch_gadget.base_log,
                                         params.keyswitch_gadget.level_count};
        launch_over(body, batch * (params.large_dimension() + 1), stream);
    });
}

void launch_keyswitch_sums(const ParameterSet& params, const std::int32_t* sums, int slices, int columns,
                           const std::uint32_t* bodies, std::size_t batch, std::uint32_t* small_lwe, cudaStream_t stream) {
    const KeyswitchSums body{sums, bodies, small_lwe, batch, slices, columns, params.lwe_dimension, params.keyswitch_modulus_log2};
    launch_over(body, batch * (params.lwe_dimension + 1), stream);
}

void launch_modulus_switch(const ParameterSet& params, const std::uint32_t* small_lwe, std::size_t batch, std::uint32_t* switched,
                           cudaStream_t stream) {
    const int h = params.keyswitch_modulus_log2 - params.log2_twice_polynomial_size();
    const ModulusSwitch body{small_lwe,
                             switched,
                             params.lwe_dimension,
                             h,
                             2 * static_cast<std::uint32_t>(params.polynomial_size()) - 1,
                             params.lwe_secret() == SecretKind::binary};
    launch(body, batch, ModulusSwitch::kThreads * sizeof(std::int64_t), stream);
}

void launch_sample_extract(const ParameterSet& params, const void* glwe, std::size_t batch, const std::uint32_t* coefficients,
                           std::size_t count, void* lwe, cudaStream_t stream) {
    with_words(params, [&]<class Word>(Word) {
        const SampleExtract<Word> body{static_cast<const Word*>(glwe),
                                       coefficients,
                                       static_cast<Word*>(lwe),
                                       batch,
                                       count,
                                       static_cast<Word>(params.modulus()),
                                       params.polynomial_size(),
                                       params.glwe_dimension()};
        launch_over(body, batch * count * (params.large_dimension() + 1), stream);
    });
}

void launch_combine(const ParameterSet& params, const CombineView& view, std::size_t batch, cudaStream_t stream) {
    const int words = params.large_dimension() + 1;
    with_words(params, [&]<class Word>(Word) {
        Combine<Word> body{static_cast<const Word*>(view.x),
                           static_cast<const Word*>(view.y),
                           static_cast<Word*>(view.out),
                           {},
                           batch * words,
                           words};
        for (int limb = 0; limb < 2; ++limb) {
            const std::uint64_t p = kLimbPrimes[limb];
            body.scales[limb] = {residue(view.scale_x, p), residue(view.scale_y, p), view.constant % params.modulus() % p};
        }
        launch_over(body, batch * words, stream);
    });
}

}  // namespace fhe_core::cuda
