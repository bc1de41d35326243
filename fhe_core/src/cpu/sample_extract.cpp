// Sample extraction: docs/reference/specification.md, section 7.
// Source: [CGGI20]; ours takes several coefficients of one accumulator.
#include "cpu/stages.hpp"

namespace fhe_core::cpu {
namespace {

// Ciphertexts [batch][parts][k + r][N]: coefficient c is coefficient c / parts of part c mod parts.
template <class Word>
void extract_words(const ParameterSet& p, const Word* rotated, int parts, std::size_t batch, const ExtractView& extract,
                   Word* lwe) {
    const int n = p.polynomial_size(), k = p.glwe_dimension(), components = p.component_count();
    const Word q = static_cast<Word>(p.modulus());
    for (std::size_t i = 0; i < batch; ++i, rotated += std::size_t(parts) * components * n) {
        for (std::size_t e = 0; e < extract.count; ++e) {
            const int c = static_cast<int>(extract.coefficients[e]) / parts;
            const Word* glwe = rotated + std::size_t(extract.coefficients[e] % parts) * components * n;
            for (int component = 0; component < k; ++component, lwe += n) {
                const Word* mask = glwe + std::size_t(component) * n;
                for (int j = 0; j <= c; ++j) lwe[j] = mask[c - j];
                for (int j = c + 1; j < n; ++j) {
                    const Word value = mask[n + c - j];
                    lwe[j] = value == 0 ? value : Word(q - value);
                }
            }
            for (int component = k; component < components; ++component) *lwe++ = glwe[std::size_t(component) * n + c];
        }
    }
}

void extract_parts(const ParameterSet& params, const void* rotated, int parts, std::size_t batch, const ExtractView& extract,
                   void* lwe) {
    if (params.limb_count() == 1) {
        extract_words(params, static_cast<const std::uint32_t*>(rotated), parts, batch, extract, static_cast<std::uint32_t*>(lwe));
    } else {
        extract_words(params, static_cast<const std::uint64_t*>(rotated), parts, batch, extract, static_cast<std::uint64_t*>(lwe));
    }
}

}  // namespace

void sample_extract(const ParameterSet& params, const void* glwe, std::size_t batch, const ExtractView& extract, void* lwe) {
    extract_parts(params, glwe, 1, batch, extract, lwe);
}

void extract_entries(const ParameterSet& params, const void* rotated, std::size_t batch, const ExtractView& extract, void* lwe) {
    extract_parts(params, rotated, params.extension_factor(), batch, extract, lwe);
}

}  // namespace fhe_core::cpu
