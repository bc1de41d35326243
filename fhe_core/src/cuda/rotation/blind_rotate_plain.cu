// Blind rotation of any shape: a block per ciphertext, everything in memory, radix-2 transforms with a barrier per stage. Exact and
// simple; the shapes that matter have kernels of their own (blind_rotate_one_limb.cuh), and tests compare them with this one.
//
// Work area (shared memory, or global scratch when that is too small), int32: accumulators [limb][part][component][N] in [0, p),
// digits [key limb][part][row][N], sums [key limb][part][component][N], for the nu parts of a table of nu*N. Steps of
// docs/reference/specification.md, section 6; reference::blind_rotate. Source: [CGGI20] binary, [DM15] selected keys, [MP21]
// ternary, [BMMP18] two key bits per step, [LY23] several accumulators as one table. Ours: exact transforms modulo limb primes.
#include "cuda/rotation/blind_rotate.hpp"

#include "cuda/device/block.cuh"
#include "cuda/device/words.cuh"
#include "cuda/rotation/accumulator.cuh"
#include "cuda/rotation/digits.cuh"

namespace fhe_core::cuda {
namespace {

// `limbs` of ciphertexts and `key_limbs` of the key, whose second prime is number `second` of kLimbPrimes; more of the key: raised.
template <int limbs, int key_limbs, int second>
struct PlainRotate {
    static constexpr int kThreads = 512;
    static constexpr bool kRaised = key_limbs > limbs;
    using Word = std::conditional_t<limbs == 1, std::uint32_t, std::uint64_t>;
    static constexpr std::int64_t modulus = limbs == 1 ? kLimbPrimes[0] : std::int64_t{kLimbPrimes[0]} * kLimbPrimes[1];

    PlainRotateView view;
    Gadget mask_gadget, body_gadget;
    Rotation rotation;
    int log_size, log_parts, k, lanes, rows, lwe_dimension;

    using Exponents = std::uint32_t[Rotation::kMostKeys];

    FHE_HD int size() const { return 1 << log_size; }
    FHE_HD int parts() const { return 1 << log_parts; }
    FHE_HD int components() const { return k + lanes; }
    FHE_HD int first_row(int component) const {
        const int bodies = component < k ? 0 : component - k;
        return (component - bodies) * mask_gadget.level_count + bodies * body_gadget.level_count;
    }
    FHE_HD static std::uint32_t prime(int limb) { return limb == 0 ? Modulus<0>::p : Modulus<1>::p; }

    // Entry i of X^-rotation * table for `index` = i + rotation, as a word of limb `limb`.
    FHE_HD std::int32_t rotated_table(const Word* table, std::uint32_t index, int limb) const {
        const std::uint32_t table_size = 1u << (log_size + log_parts);
        const Word word = table[index & (table_size - 1)];
        const bool negative = (index & table_size) != 0;
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
        const int polynomial_number = item >> log_size, i = item & (size() - 1);
        const int part = polynomial_number / components(), component = polynomial_number - part * components();
        std::uint32_t words[2] = {};
        for (int limb = 0; limb < limbs; ++limb) {
            const std::int32_t* polynomial = accumulator + ((limb * parts() * components() + polynomial_number) << log_size);
            words[limb] = static_cast<std::uint32_t>(polynomial[i]);
            if (rotation.factors == Factors::accumulator) {
                const std::uint32_t p = prime(limb), moved = rotated(polynomial, i, exponent, limb);
                words[limb] = moved >= words[limb] ? moved - words[limb] : moved + p - words[limb];
            }
        }
        const std::int64_t word = static_cast<std::int64_t>(limbs == 1 ? words[0] : compose_limbs(words[0], words[1]));
        cut_digits(word > (modulus - 1) / 2 ? word - modulus : word, component < k ? mask_gadget : body_gadget, kLimbBits * limbs,
                   [&](int level, std::int32_t digit) {
                       const int row = part * rows + first_row(component) + level;
                       for (int limb = 0; limb < key_limbs; ++limb) digits[((limb * parts() * rows + row) << log_size) + i] = digit;
                   });
    }

    // Position i of the digits of a part times those of a key and output component, `key` at its first row.
    template <class M>
    FHE_HD std::int32_t row_sum(const std::int32_t* digits, int part, const std::int32_t* key, int i) const {
        std::int64_t sum = 0;
        for (int row = 0; row < rows; ++row)
            sum += multiply_wide(digits[((part * rows + row) << log_size) + i], key[(row * rotation.products() << log_size) + i]);
        return montgomery(M{}, sum);
    }

    // Position `item` of the product of one limb: sums over the rows, factors X^e - 1 applied after them. With Y = X^nu and e =
    // nu*a + b, X^e takes part i - b to part i and multiplies it by Y^a, by Y^(a + 1) where i < b.
    template <class M>
    FHE_HD std::int32_t product(const std::int32_t* digits, const std::int32_t* key, const std::int32_t* powers,
                                const Exponents& exponents, int item) const {
        const int polynomial_number = item >> log_size, i = item & (size() - 1);
        const int part = polynomial_number / components(), component = polynomial_number - part * components();
        const std::uint32_t root = 2 * reverse_position(static_cast<std::uint32_t>(i), log_size) + 1;
        std::int64_t total = 0;
        for (int j = 0; j < rotation.products(); ++j) {
            const std::int32_t* words = key + ((component * rows * rotation.products() + j) << log_size);
            const std::int32_t own = row_sum<M>(digits, part, words, i);
            if (!rotation.factors_on_products()) return own;
            const int from = part - static_cast<int>(exponents[j] & (parts() - 1));
            const std::int32_t moved = from == part ? own : row_sum<M>(digits, from & (parts() - 1), words, i);
            const std::uint32_t turns = (exponents[j] >> log_parts) + (from < 0);
            total += multiply_wide(powers[turns * root & (2 * size() - 1)], moved) - own;
        }
        return montgomery(M{}, total);
    }

    // The sums of one limb, transformed back: what is added to its accumulators.
    template <class M, class Block>
    FHE_HD void limb_update(const Block& block, int limb, std::int32_t* digits, std::int32_t* sums, const std::int32_t* step_key,
                            const Exponents& exponents) const {
        const PlainTables& tables = view.tables[limb];
        const int polynomials = parts() * components(), digit_polynomials = parts() * rows;
        digits += limb * digit_polynomials << log_size;
        sums += limb * polynomials << log_size;
        const std::int32_t* key = step_key + (std::size_t(limb * components() * rows * rotation.products()) << log_size);
        plain_forward<M>(block, digits, digit_polynomials, log_size, tables.twiddles);
        block.each(polynomials << log_size,
                   [&](int item) { sums[item] = reduce(M{}, product<M>(digits, key, tables.powers, exponents, item)); });
        plain_inverse<M>(block, sums, polynomials, log_size, tables.twiddles);
    }

    // ACC += the sums of all limbs; raised: divided by P and rounded; selected keys: ACC is replaced.
    FHE_HD void accumulate(std::int32_t* accumulator, const std::int32_t* sums, int item, int component_words) const {
        const auto word = rotation.selects_key() ? 0 : static_cast<std::uint32_t>(accumulator[item]);
        if constexpr (kRaised)
            accumulator[item] = static_cast<std::int32_t>(accumulate_raised(word, sums[item], sums[component_words + item]));
        else if (limbs == 1 || item < component_words)
            accumulator[item] = static_cast<std::int32_t>(accumulate_exact(Modulus<0>{}, word, sums[item]));
        else
            accumulator[item] = static_cast<std::int32_t>(accumulate_exact(Modulus<1>{}, word, sums[item]));
    }

    template <class Block>
    FHE_HD void operator()(const Block& block, unsigned char* shared) const {
        const BlindRotateView& common = view.common;
        const int component_words = parts() * components() << log_size;  // of a limb
        const int area = parts() * ((limbs + key_limbs) * components() + key_limbs * rows) << log_size;
        std::int32_t* accumulator = view.scratch == nullptr ? reinterpret_cast<std::int32_t*>(shared)
                                                            : view.scratch + block.number() * static_cast<std::size_t>(area);
        std::int32_t* digits = accumulator + limbs * component_words;
        std::int32_t* sums = digits + (key_limbs * parts() * rows << log_size);
        const std::size_t slice_words = std::size_t(key_limbs * components() * rows * rotation.products()) << log_size;
        const int slices = rotation.keys / rotation.products();

        for (std::size_t number = block.number(); number < static_cast<std::size_t>(common.batch); number += block.count()) {
            const std::uint32_t* switched = common.switched + number * (lwe_dimension + lanes);
            const std::size_t table_number = common.table_index == nullptr ? 0 : common.table_index[number];
            const Word* table = static_cast<const Word*>(common.tables) + (table_number << (log_size + log_parts));
            block.each(limbs * component_words, [&](int item) {
                const int limb = item / component_words, within = item - limb * component_words;
                const int polynomial_number = within >> log_size, part = polynomial_number / components();
                const int lane = polynomial_number - part * components() - k;
                const std::uint32_t entry = ((within & (size() - 1)) << log_parts) + part;
                accumulator[item] = lane >= 0 ? rotated_table(table, entry + switched[lwe_dimension + lane], limb) : 0;
            });
            for (int step = 0; step < common.steps; ++step) {
                Exponents exponents = {};
                std::size_t slice = std::size_t(step) * slices;
                if (rotation.selects_key()) {
                    const std::uint32_t digit = rotation.digit(switched, step);
                    if (digit == 0) continue;  // all threads
                    slice += digit - 1;
                } else {
                    for (int j = 0; j < rotation.keys; ++j)
                        exponents[j] = rotation.exponent(switched + rotation.first_word(step), j);
                }
                block.each(component_words, [&](int item) { decompose_accumulator(accumulator, digits, exponents[0], item); });
                const std::int32_t* key = static_cast<const std::int32_t*>(common.key) + slice * slice_words;
                limb_update<Modulus<0>>(block, 0, digits, sums, key, exponents);
                if constexpr (key_limbs == 2) limb_update<Modulus<second>>(block, 1, digits, sums, key, exponents);
                block.each(limbs * component_words, [&](int item) { accumulate(accumulator, sums, item, component_words); });
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

template <int limbs, int key_limbs, int second>
void launch_limbs(const ParameterSet& params, const PlainRotateView& view, int blocks, cudaStream_t stream) {
    const PlainRotate<limbs, key_limbs, second> body{view,
                                                     params.shape.mask_gadget,
                                                     params.shape.body_gadget,
                                                     params.rotation(),
                                                     params.log2_polynomial_size(),
                                                     params.log2_twice_table_size() - 1 - params.log2_polynomial_size(),
                                                     params.glwe_dimension(),
                                                     params.lane_count(),
                                                     params.row_count(),
                                                     params.lwe_dimension};
    const int grid = view.common.batch < blocks ? view.common.batch : blocks;
    launch(body, grid, view.scratch == nullptr ? plain_rotate_bytes(params) : 0, stream);
}

}  // namespace

std::size_t plain_rotate_bytes(const ParameterSet& params) {
    const std::size_t limbs = params.limb_count(), key_limbs = params.key_limbs().count;
    const std::size_t polynomials = (limbs + key_limbs) * params.component_count() + key_limbs * params.row_count();
    return 4 * polynomials * params.table_size();
}

void launch_plain_rotate(const ParameterSet& params, const PlainRotateView& view, int blocks, cudaStream_t stream) {
    if (params.is_raised())
        launch_limbs<1, 2, 2>(params, view, blocks, stream);
    else if (params.limb_count() == 1)
        launch_limbs<1, 1, 1>(params, view, blocks, stream);
    else
        launch_limbs<2, 2, 1>(params, view, blocks, stream);
}

}  // namespace fhe_core::cuda
