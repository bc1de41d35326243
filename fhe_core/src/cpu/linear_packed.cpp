// The linear layer on packed values. Weights w_0 .. w_(m-1) act on a GLWE ciphertext as a product with the polynomial
// W(X^-1) = w_0 - sum over c >= 1 of w_c X^(N-c): coefficient e of the product is the sum over c of w_c times coefficient e + c, as
// long as e + c < N. So a row costs one product in the transform domain for each component, whatever the number of columns, instead
// of an extracted ciphertext for every column.

#include <algorithm>
#include <vector>

#include "core/modular.hpp"
#include "cpu/backend.hpp"
#include "cpu/kernels.hpp"
#include "cpu/parallel.hpp"
#include "cpu/stages.hpp"
#include "cpu/tables.hpp"

namespace fhe_core::cpu {
namespace {

// Columns [first, first + count) of samples that lie whole in one GLWE ciphertext: sample s's start at coefficient at[s].
struct Piece {
    std::size_t group, first, count;
    std::vector<std::size_t> samples;
    std::vector<std::uint32_t> at;
};

// Every sample cut where a ciphertext ends; uncut samples of one ciphertext share a piece.
std::vector<Piece> pieces_of(std::size_t samples, std::size_t columns, std::size_t n) {
    std::vector<Piece> pieces;
    for (std::size_t s = 0; s < samples; ++s) {
        for (std::size_t c = 0; c < columns;) {
            const std::size_t value = s * columns + c, group = value / n, coefficient = value % n;
            const std::size_t count = std::min(columns - c, n - coefficient);
            if (pieces.empty() || pieces.back().group != group || pieces.back().first != c || pieces.back().count != count) {
                pieces.push_back({group, c, count, {}, {}});
            }
            pieces.back().samples.push_back(s);
            pieces.back().at.push_back(static_cast<std::uint32_t>(coefficient));
            c += count;
        }
    }
    return pieces;
}

// One polynomial of words in the transform domain, limb after limb.
template <class Word>
void transform_words(const ExpandedKey& key, const Word* words, std::int32_t* out, std::vector<std::uint32_t>& residues,
                     std::vector<std::int32_t>& scratch) {
    const std::size_t n = key.parameters().polynomial_size();
    for (int limb = 0; limb < key.parameters().limb_count(); ++limb) {
        for (std::size_t j = 0; j < n; ++j) residues[j] = static_cast<std::uint32_t>(words[j] % kLimbPrimes[limb]);
        key.kernels().transform_key(key.tables(limb).view(), residues.data(), 1, out + limb * n, key.kernels().width,
                                    scratch.data());
    }
}

// Rows of weights times all packed values; rows are shared among threads.
template <class Word>
class PackedRows {
   public:
    PackedRows(const ExpandedKey& key, const std::vector<Piece>& pieces, const std::int32_t* values)
        : key_(key),
          p_(key.parameters()),
          pieces_(pieces),
          values_(values),
          n_(p_.polynomial_size()),
          limbs_(p_.limb_count()),
          components_(p_.component_count()),
          weights_(limbs_ * n_),
          product_(limbs_ * n_),
          scratch_(2 * n_),
          residues_(n_),
          result_(components_ * n_),
          extracted_(p_.large_words()) {}

    // out: [samples] ciphertexts, `stride` words apart, of zeros.
    void add_row(const std::int32_t* row, Word* out, std::size_t stride) {
        const Piece* transformed = nullptr;
        for (const Piece& piece : pieces_) {
            if (transformed == nullptr || transformed->first != piece.first || transformed->count != piece.count) {
                transform_weights(row + piece.first, piece.count);
                transformed = &piece;
            }
            multiply(piece.group);
            for (std::size_t i = 0; i < piece.samples.size(); ++i) {
                cpu::sample_extract(p_, result_.data(), 1, {&piece.at[i], 1}, extracted_.data());
                Word* target = out + piece.samples[i] * stride;
                for (std::size_t j = 0; j < extracted_.size(); ++j) {
                    target[j] = static_cast<Word>(add_mod(target[j], extracted_[j], p_.modulus()));
                }
            }
        }
    }

   private:
    // W(X^-1), with 1/N and the Montgomery factor.
    void transform_weights(const std::int32_t* weights, std::size_t count) {
        for (int limb = 0; limb < int(limbs_); ++limb) {
            const std::uint64_t q = kLimbPrimes[limb];
            const std::uint64_t factor = mul_mod(inverse_mod(n_, q), (std::uint64_t{1} << 32) % q, q);
            std::fill(residues_.begin(), residues_.end(), 0u);
            residues_[0] = static_cast<std::uint32_t>(residue(weights[0], q));
            for (std::size_t c = 1; c < count; ++c) {
                residues_[n_ - c] = static_cast<std::uint32_t>(residue(-std::int64_t{weights[c]}, q));
            }
            key_.kernels().transform_key(key_.tables(limb).view(), residues_.data(), static_cast<std::uint32_t>(factor),
                                         weights_.data() + limb * n_, key_.kernels().width, scratch_.data());
        }
    }

    void multiply(std::size_t group) {
        for (std::size_t c = 0; c < components_; ++c) {
            const std::int32_t* value = values_ + (group * components_ + c) * limbs_ * n_;
            std::fill(product_.begin(), product_.end(), 0);
            for (std::size_t limb = 0; limb < limbs_; ++limb) {
                key_.kernels().multiply_polynomials(key_.tables(int(limb)).view(), value + limb * n_, weights_.data() + limb * n_,
                                                    scratch_.data(), product_.data() + limb * n_);
            }
            for (std::size_t j = 0; j < n_; ++j) {
                const auto low = static_cast<std::uint32_t>(product_[j]);
                result_[c * n_ + j] = static_cast<Word>(
                    limbs_ == 1 ? low : compose_limbs(low, static_cast<std::uint32_t>(product_[(limbs_ - 1) * n_ + j])));
            }
        }
    }

    const ExpandedKey& key_;
    const ParameterSet& p_;
    const std::vector<Piece>& pieces_;
    const std::int32_t* values_;  // [group][component][limb][N], in the transform domain
    std::size_t n_, limbs_, components_;
    std::vector<std::int32_t> weights_, product_, scratch_;
    std::vector<std::uint32_t> residues_;
    std::vector<Word> result_, extracted_;
};

template <class Word>
void linear_packed_words(const CpuBackend& backend, const std::int32_t* weights, std::size_t rows, std::size_t columns,
                         const Word* glwe, std::size_t samples, Word* out) {
    const ExpandedKey& key = *backend.key();
    const ParameterSet& p = key.parameters();
    const std::size_t n = p.polynomial_size(), lwe_words = p.large_words();
    const std::size_t polynomials = (samples * columns + n - 1) / n * p.component_count();
    std::vector<std::int32_t> values(polynomials * p.limb_count() * n);
    const Progress none;
    Monitor transforming(none, 1);
    parallel_shares(polynomials, backend.threads(), transforming, [&](std::size_t first, std::size_t last) {
        std::vector<std::uint32_t> residues(n);
        std::vector<std::int32_t> scratch(2 * n);
        for (std::size_t i = first; i < last; ++i) {
            transform_words(key, glwe + i * n, values.data() + i * p.limb_count() * n, residues, scratch);
        }
    });
    const std::vector<Piece> pieces = pieces_of(samples, columns, n);
    std::fill(out, out + samples * rows * lwe_words, Word{0});
    Monitor multiplying(none, 1);
    parallel_shares(rows, backend.threads(), multiplying, [&](std::size_t first, std::size_t last) {
        PackedRows<Word> packed(key, pieces, values.data());
        for (std::size_t r = first; r < last; ++r) packed.add_row(weights + r * columns, out + r * lwe_words, rows * lwe_words);
    });
}

}  // namespace

void CpuBackend::linear_packed(const std::int32_t* weights, std::size_t rows, std::size_t columns, const void* glwe,
                               std::size_t samples, void* out) {
    if (parameters().limb_count() == 1) {
        linear_packed_words(*this, weights, rows, columns, static_cast<const std::uint32_t*>(glwe), samples,
                            static_cast<std::uint32_t*>(out));
    } else {
        linear_packed_words(*this, weights, rows, columns, static_cast<const std::uint64_t*>(glwe), samples,
                            static_cast<std::uint64_t*>(out));
    }
}

}  // namespace fhe_core::cpu
