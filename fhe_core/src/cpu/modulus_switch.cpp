// Modulus switch with centred mean: docs/reference/specification.md, section 3.
// Source: [RDV25]; as in reference/reference.cpp.
#include "cpu/stages.hpp"

namespace fhe_core::cpu {

void modulus_switch(const ParameterSet& params, const std::uint32_t* small_lwe, std::size_t batch, std::uint32_t* switched) {
    const int h = params.keyswitch_modulus_log2 - params.log2_twice_table_size();
    const std::size_t n = params.lwe_dimension, words = params.small_words();
    const std::uint32_t mask = 2 * std::uint32_t(params.table_size()) - 1;
    for (std::size_t i = 0; i < batch; ++i, small_lwe += words, switched += words) {
        std::int64_t errors = 0;
        for (std::size_t j = 0; j < n; ++j) {
            const std::uint32_t t = (small_lwe[j] + (1u << (h - 1))) >> h;
            errors += std::int64_t{small_lwe[j]} - (std::int64_t{t} << h);
            switched[j] = t & mask;
        }
        for (std::size_t j = n; j < words; ++j)
            switched[j] = static_cast<std::uint32_t>(params.rotation().switched_body(small_lwe[j], errors, h)) & mask;
    }
}

}  // namespace fhe_core::cpu
