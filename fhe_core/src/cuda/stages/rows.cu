// Rows of LWE words: gathers, sums, factors, constants. One thread per word; memory is the limit. CPU counterpart:
// phase_arithmetic.py.
#include "cuda/stages/rows.hpp"

#include "cuda/device/block.cuh"
#include "cuda/device/words.cuh"

namespace fhe_core::cuda {
namespace {

constexpr std::size_t kNoRow = ~std::size_t{0};

FHE_HD std::size_t picked(const RowPick& pick, std::size_t row) {
    if (pick.rows == nullptr) return row;
    const std::int32_t element = pick.rows[row % pick.period];
    return element < 0 ? kNoRow : row / pick.period * pick.stride + element;
}

template <class Word>
struct Rows {
    static constexpr int kThreads = 256;
    RowsView view;
    std::size_t total;
    int words, mask_words;

    // factor * word modulo p, below 2^54 before the last reduction.
    template <int limb>
    FHE_HD std::uint64_t term(const RowTerm& t, std::size_t row, int at) const {
        constexpr std::int64_t p = Modulus<limb>::p;
        const std::size_t source = picked(t.pick, row);
        if (source == kNoRow) return 0;
        const std::uint64_t word = static_cast<const Word*>(t.words)[source * words + at] % static_cast<std::uint64_t>(p);
        const std::int64_t factor = (t.factors == nullptr ? t.factor : t.factors[row]) % p;  // (-p, p)
        return word * static_cast<std::uint64_t>(factor < 0 ? factor + p : factor);
    }

    template <int limb>
    FHE_HD std::uint32_t of_limb(std::size_t row, int at) const {
        constexpr std::uint64_t p = Modulus<limb>::p;
        std::uint64_t sum = term<limb>(view.x, row, at);
        if (view.y.words != nullptr) sum += term<limb>(view.y, row, at);
        if (view.constants != nullptr && at >= mask_words) sum += view.constants[row % view.constant_period] % p;
        return static_cast<std::uint32_t>(sum % p);
    }

    template <class Block>
    FHE_HD void operator()(const Block& block, unsigned char*) const {
        auto* out = static_cast<Word*>(view.out);
        block.each_of_grid(total, [&](std::size_t item) {
            const std::size_t row = item / words;
            const int at = static_cast<int>(item % words);
            if constexpr (sizeof(Word) == 4)
                out[item] = of_limb<0>(row, at);
            else
                out[item] = compose_limbs(of_limb<0>(row, at), of_limb<1>(row, at));
        });
    }
};

template <class Word>
struct Take {
    static constexpr int kThreads = 256;
    const Word* x;
    RowPick pick;
    Word* out;
    std::size_t total;
    int words;

    template <class Block>
    FHE_HD void operator()(const Block& block, unsigned char*) const {
        block.each_of_grid(total, [&](std::size_t item) {
            const std::size_t source = picked(pick, item / words);
            out[item] = source == kNoRow ? Word{0} : x[source * words + item % words];
        });
    }
};

template <class Word>
struct AddToBodies {
    static constexpr int kThreads = 256;
    Word* words;
    const std::uint64_t* constants;
    std::size_t rows, period, width, lanes;
    std::uint64_t modulus;

    template <class Block>
    FHE_HD void operator()(const Block& block, unsigned char*) const {
        block.each_of_grid(rows, [&](std::size_t row) {
            for (std::size_t lane = 1; lane <= lanes; ++lane) {
                Word& body = words[(row + 1) * width - lane];
                const std::uint64_t sum = body + constants[row % period];  // both below Q < 2^55
                body = static_cast<Word>(sum >= modulus ? sum - modulus : sum);
            }
        });
    }
};

template <class Word>
struct RangeCheck {
    static constexpr int kThreads = 256;
    const Word* words;
    std::size_t count;
    Word bound;
    std::uint32_t* outside;

    template <class Block>
    FHE_HD void operator()(const Block& block, unsigned char*) const {
        block.each_of_grid(count, [&](std::size_t i) {
            if (words[i] >= bound) *outside = 1;  // every thread that writes writes the same
        });
    }
};

}  // namespace

void launch_rows(const ParameterSet& params, const RowsView& view, std::size_t rows, cudaStream_t stream) {
    const int words = params.large_words();
    with_words(params, [&]<class Word>(Word) {
        launch_over(Rows<Word>{view, rows * words, words, params.large_dimension()}, rows * words, stream);
    });
}

void launch_take(const ParameterSet& params, const void* x, const RowPick& pick, void* out, std::size_t rows, cudaStream_t stream) {
    const int words = params.large_words();
    with_words(params, [&]<class Word>(Word) {
        launch_over(Take<Word>{static_cast<const Word*>(x), pick, static_cast<Word*>(out), rows * words, words}, rows * words,
                    stream);
    });
}

void launch_add_to_bodies(const ParameterSet& params, void* words, std::size_t rows, const std::uint64_t* constants,
                          std::size_t period, cudaStream_t stream) {
    const std::size_t width = params.large_words(), lanes = params.lane_count();
    with_words(params, [&]<class Word>(Word) {
        launch_over(AddToBodies<Word>{static_cast<Word*>(words), constants, rows, period, width, lanes, params.modulus()}, rows,
                    stream);
    });
}

void launch_range_check(const void* words, int word_bytes, std::size_t count, std::uint64_t bound, std::uint32_t* outside,
                        cudaStream_t stream) {
    if (word_bytes == 4)
        launch_over(
            RangeCheck<std::uint32_t>{static_cast<const std::uint32_t*>(words), count, static_cast<std::uint32_t>(bound), outside},
            count, stream);
    else
        launch_over(RangeCheck<std::uint64_t>{static_cast<const std::uint64_t*>(words), count, bound, outside}, count, stream);
}

}  // namespace fhe_core::cuda
