// Blind rotation of any shape: a block per ciphertext, everything in memory, radix-2 transforms with a barrier per stage. Exact and
// simple; the shapes that matter have kernels of their own (blind_rotate_pair.cuh), and tests compare them with this one.
//
// Work area (shared memory, or global scratch when that is too small), int32: accumulator [limb][component][N] in [0, p), digits
// [limb][row][N], sums [limb][component][N]. Steps of docs/specification.md, section 6; reference::blind_rotate.
// Source: [CGGI20] binary, [MP21] ternary, [BMMP18] two key bits per step. Ours: exact transforms modulo limb primes.
#include "cuda/blind_rotate.hpp"

#include "cuda/accumulator.cuh"
#include "cuda/block.cuh"
#include "cuda/digits.cuh"
#include "cuda/words.cuh"

namespace fhe_core::cuda {
namespace {

template <int limbs>
struct PlainRotate {
    static constexpr int kThreads = 512;
    using Word = std::conditional_t<limbs == 1, std::uint32_t, std::uint64_t>;
    static constexpr std::int64_t modulus = limbs == 1 ? kLimbPrimes[0] : std::int64_t{kLimbPrimes[0]} * kLimbPrimes[1];

    PlainRotateView view;
    Gadget mask_gadget, body_gadget;
    Rotation rotation;
    int log_size, k, rows, lwe_size;

    using Exponents = std::uint32_t[Rotation::kMostKeys];

    FHE_HD int size() const { return 1 << log_size; }
    FHE_HD int components() const { return k + 1; }
    FHE_HD static std::uint32_t prime(int limb) { return limb == 0 ? Modulus<0>::p : Modulus<1>::p; }

    // Coefficient i of X^-rotation * table for `index` = i + rotation, as a word of limb `limb`.
    FHE_HD std::int32_t rotated_table(const Word* table, std::uint32_t index, int limb) const {
        const Word word = table[index & (size() - 1)];
        const bool negative = (index & size()) != 0;
        return static_cast<std::int32_t>(limb == 0 ? rotated_residue(Modulus<0>{}, word, negative)
                                                   : rotated_residue(Modulus<1>{}, word, negative));
    }

    // Coefficient j of X^exponent * polynomial, residues in [0, p).
    FHE_HD std::uint32_t rotated(const std::int32_t* polynomial, int j, std::uint32_t exponent, int limb) const {
        const std::uint32_t at = (static_cast<std::uint32_t>(j) - exponent) & (2 * size() - 1);
        const auto word = static_cast<std::uint32_t>(polynomial[at & (size() - 1)]);
        return at < static_cast<std::uint32_t>(size()) || word == 0 ? word : prime(limb) - word;
    }

    FHE_HD void decompose_accumulator(const std::int32_t* accumulator, std::int32_t* digits, std::uint32_t exponent,
                                      int item) const {
        const int component = item >> log_size, i = item & (size() - 1);
        std::uint32_t words[2] = {};
        for (int limb = 0; limb < limbs; ++limb) {
            const std::int32_t* polynomial = accumulator + ((limb * components() + component) << log_size);
            words[limb] = static_cast<std::uint32_t>(polynomial[i]);
            if (!rotation.factors_on_products()) {
                const std::uint32_t p = prime(limb), moved = rotated(polynomial, i, exponent, limb);
                words[limb] = moved >= words[limb] ? moved - words[limb] : moved + p - words[limb];
            }
        }
        const std::int64_t word = static_cast<std::int64_t>(limbs == 1 ? words[0] : compose_limbs(words[0], words[1]));
        cut_digits(word > (modulus - 1) / 2 ? word - modulus : word, component < k ? mask_gadget : body_gadget, kLimbBits * limbs,
                   [&](int level, std::int32_t digit) {
                       const int row = component * mask_gadget.level_count + level;
                       for (int limb = 0; limb < limbs; ++limb) digits[((limb * rows + row) << log_size) + i] = digit;
                   });
    }

    // Position `item` of the product of one limb: sum over the rows, factors X^e - 1 applied after it.
    template <class M>
    FHE_HD std::int32_t product(const std::int32_t* digits, const std::int32_t* key, const std::int32_t* powers,
                                const Exponents& exponents, int item) const {
        const int component = item >> log_size, i = item & (size() - 1);
        std::int64_t total = 0;
        for (int j = 0; j < rotation.keys; ++j) {
            std::int64_t sum = 0;
            for (int row = 0; row < rows; ++row)
                sum += multiply_wide(digits[(row << log_size) + i],
                                     key[(((component * rows + row) * rotation.keys + j) << log_size) + i]);
            const std::int32_t reduced = montgomery(M{}, sum);
            if (!rotation.factors_on_products()) return reduced;
            const std::uint32_t root = 2 * reverse_position(static_cast<std::uint32_t>(i), log_size) + 1;
            total += multiply_wide(powers[exponents[j] * root & (2 * size() - 1)] - 1, reduced);
        }
        return montgomery(M{}, total);
    }

    template <class M, class Block>
    FHE_HD void limb_update(const Block& block, int limb, std::int32_t* accumulator, std::int32_t* digits, std::int32_t* sums,
                            const std::int32_t* step_key, const Exponents& exponents) const {
        const PlainTables& tables = view.tables[limb];
        digits += limb * rows << log_size;
        accumulator += limb * components() << log_size;
        sums += limb * components() << log_size;
        const std::int32_t* key = step_key + (std::size_t(limb * components() * rows * rotation.keys) << log_size);
        plain_forward<M>(block, digits, rows, log_size, tables.twiddles);
        block.each(components() << log_size,
                   [&](int item) { sums[item] = reduce(M{}, product<M>(digits, key, tables.powers, exponents, item)); });
        plain_inverse<M>(block, sums, components(), log_size, tables.twiddles);
        block.each(components() << log_size, [&](int item) {
            accumulator[item] =
                static_cast<std::int32_t>(accumulate_exact(M{}, static_cast<std::uint32_t>(accumulator[item]), sums[item]));
        });
    }

    template <class Block>
    FHE_HD void operator()(const Block& block, unsigned char* shared) const {
        const BlindRotateView& common = view.common;
        const int component_words = components() << log_size, area = limbs * (2 * components() + rows) << log_size;
        std::int32_t* accumulator = view.scratch == nullptr ? reinterpret_cast<std::int32_t*>(shared)
                                                            : view.scratch + block.number() * static_cast<std::size_t>(area);
        std::int32_t* digits = accumulator + limbs * component_words;
        std::int32_t* sums = digits + (limbs * rows << log_size);
        const std::size_t step_words = std::size_t(limbs * components() * rows * rotation.keys) << log_size;

        for (std::size_t number = block.number(); number < static_cast<std::size_t>(common.batch); number += block.count()) {
            const std::uint32_t* switched = common.switched + number * lwe_size;
            const std::size_t table_number = common.table_index == nullptr ? 0 : common.table_index[number];
            const Word* table = static_cast<const Word*>(common.tables) + (table_number << log_size);
            block.each(limbs * component_words, [&](int item) {
                const int limb = item / component_words, within = item - limb * component_words;
                const bool is_body = within >> log_size == k;
                accumulator[item] = is_body ? rotated_table(table, (within & (size() - 1)) + switched[lwe_size - 1], limb) : 0;
            });
            for (int step = 0; step < common.steps; ++step) {
                Exponents exponents = {};
                for (int j = 0; j < rotation.keys; ++j) exponents[j] = rotation.exponent(switched + step * rotation.key_bits, j);
                block.each(component_words, [&](int item) { decompose_accumulator(accumulator, digits, exponents[0], item); });
                const std::int32_t* key = static_cast<const std::int32_t*>(common.key) + step * step_words;
                limb_update<Modulus<0>>(block, 0, accumulator, digits, sums, key, exponents);
                if constexpr (limbs == 2) limb_update<Modulus<1>>(block, 1, accumulator, digits, sums, key, exponents);
            }
            Word* out = static_cast<Word*>(common.out) + number * component_words;
            block.each(component_words, [&](int item) {
                const auto low = static_cast<std::uint32_t>(accumulator[item]);
                if constexpr (limbs == 1)
                    out[item] = low;
                else
                    out[item] = compose_limbs(low, static_cast<std::uint32_t>(accumulator[component_words + item]));
            });
        }
    }
};

template <int limbs>
void launch_limbs(const ParameterSet& params, const PlainRotateView& view, int blocks, cudaStream_t stream) {
    const PlainRotate<limbs> body{view,
                                  params.shape.mask_gadget,
                                  params.shape.body_gadget,
                                  params.rotation(),
                                  params.log2_twice_polynomial_size() - 1,
                                  params.glwe_dimension(),
                                  params.row_count(),
                                  params.lwe_dimension + 1};
    const int grid = view.common.batch < blocks ? view.common.batch : blocks;
    launch(body, grid, view.scratch == nullptr ? plain_rotate_bytes(params) : 0, stream);
}

}  // namespace

std::size_t plain_rotate_bytes(const ParameterSet& params) {
    const std::size_t polynomials = params.limb_count() * (2 * (params.glwe_dimension() + 1) + params.row_count());
    return 4 * polynomials * params.polynomial_size();
}

void launch_plain_rotate(const ParameterSet& params, const PlainRotateView& view, int blocks, cudaStream_t stream) {
    if (params.limb_count() == 1)
        launch_limbs<1>(params, view, blocks, stream);
    else
        launch_limbs<2>(params, view, blocks, stream);
}

}  // namespace fhe_core::cuda
