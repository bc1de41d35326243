// Rows of the parameter table for JavaScript: texts, integers and reals in the order of web/src/parameters.ts.
#include <algorithm>
#include <cstring>

#include "wasm/exports.hpp"

namespace fhe_core {
namespace {

constexpr std::size_t kNameBytes = 32;

struct Row {
    char name[kNameBytes];
    char rotation[kNameBytes];
    std::uint64_t modulus;
    std::uint64_t key_modulus;
    double glwe_sigma;
    double key_sigma;
    double lwe_sigma;
    std::uint32_t kind;  // TableKind
    std::uint32_t message_bits;
    std::uint32_t polynomial_size;
    std::uint32_t glwe_dimension;
    std::uint32_t mask_base_log;
    std::uint32_t mask_level_count;
    std::uint32_t body_base_log;
    std::uint32_t body_level_count;
    std::uint32_t glwe_secret;  // SecretKind
    std::uint32_t lwe_secret;
    std::uint32_t lwe_dimension;
    std::uint32_t keyswitch_modulus_log2;
    std::uint32_t keyswitch_base_log;
    std::uint32_t keyswitch_level_count;
    std::uint32_t raised;
    std::uint32_t rounded_products;
    std::uint32_t extension_factor;
    std::uint32_t lane_count;
    std::uint32_t row_count;
    std::uint32_t keys_per_step;
    std::uint32_t key_step_count;
    std::uint32_t limb_count;
    std::uint32_t key_limb_count;
    std::uint32_t security_bits;
    std::uint32_t structured_secret;
    std::uint32_t ntru;
    std::uint32_t party_count;
};

std::uint32_t unsigned_of(int value) { return static_cast<std::uint32_t>(value); }

void write_name(std::string_view text, char* out) {
    std::memset(out, 0, kNameBytes);
    std::memcpy(out, text.data(), std::min(text.size(), kNameBytes - 1));
}

}  // namespace

FHE_CORE_EXPORT(set_count) std::uint32_t set_count() { return static_cast<std::uint32_t>(kParameterSets.size()); }
FHE_CORE_EXPORT(set_row_bytes) std::uint32_t set_row_bytes() { return sizeof(Row); }

FHE_CORE_EXPORT(set_row) int set_row(std::uint32_t number, Row* row) {
    return guarded([&] {
        const ParameterSet& p = set_at(number);
        write_name(p.name, row->name);
        write_name(p.rotation().name, row->rotation);
        row->modulus = p.modulus();
        row->key_modulus = p.key_modulus();
        row->glwe_sigma = p.glwe_sigma;
        row->key_sigma = p.key_sigma();
        row->lwe_sigma = p.lwe_sigma;
        row->kind = static_cast<std::uint32_t>(p.kind);
        row->message_bits = unsigned_of(p.message_bits);
        row->polynomial_size = unsigned_of(p.polynomial_size());
        row->glwe_dimension = unsigned_of(p.glwe_dimension());
        row->mask_base_log = unsigned_of(p.shape.mask_gadget.base_log);
        row->mask_level_count = unsigned_of(p.shape.mask_gadget.level_count);
        row->body_base_log = unsigned_of(p.shape.body_gadget.base_log);
        row->body_level_count = unsigned_of(p.shape.body_gadget.level_count);
        row->glwe_secret = static_cast<std::uint32_t>(p.glwe_secret);
        row->lwe_secret = static_cast<std::uint32_t>(p.lwe_secret());
        row->lwe_dimension = unsigned_of(p.lwe_dimension);
        row->keyswitch_modulus_log2 = unsigned_of(p.keyswitch_modulus_log2);
        row->keyswitch_base_log = unsigned_of(p.keyswitch_gadget.base_log);
        row->keyswitch_level_count = unsigned_of(p.keyswitch_gadget.level_count);
        row->raised = p.is_raised();
        row->rounded_products = p.has_rounded_products();
        row->extension_factor = unsigned_of(p.extension_factor());
        row->lane_count = unsigned_of(p.lane_count());
        row->row_count = unsigned_of(p.row_count());
        row->keys_per_step = unsigned_of(p.keys_per_step());
        row->key_step_count = unsigned_of(p.key_step_count());
        row->limb_count = unsigned_of(p.limb_count());
        row->key_limb_count = unsigned_of(p.key_limbs().count);
        row->security_bits = unsigned_of(p.security_bits);
        row->structured_secret = p.has_structured_secret();
        row->ntru = p.is_ntru();
        row->party_count = unsigned_of(p.party_count);
    });
}

}  // namespace fhe_core
