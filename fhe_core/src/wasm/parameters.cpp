// Rows of the parameter table for JavaScript: what the client computes with, in the order of web/src/parameters.ts, and the
// canonical text.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <string_view>

#include "wasm/exports.hpp"

namespace fhe_core {
namespace {

constexpr std::size_t kNameBytes = 32;

struct Row {
    char name[kNameBytes];
    std::uint64_t modulus;
    double glwe_sigma;
    std::uint32_t kind;  // TableKind
    std::uint32_t message_bits;
    std::uint32_t polynomial_size;
    std::uint32_t glwe_dimension;
    std::uint32_t lane_count;
    std::uint32_t lwe_dimension;
    std::uint32_t security_bits;
    std::uint32_t structured_secret;
    std::uint32_t glwe_secret;  // SecretKind
    std::uint32_t party_count;
    std::uint32_t memory_bytes;  // of a word, 4 or 8
    std::uint32_t key_memory_bytes;
    std::uint32_t planes;  // bytes of a word on the wire
    std::uint32_t key_planes;
    std::uint32_t keyswitch_planes;
    std::uint32_t bootstrap_rows;
    std::uint32_t bootstrap_words;
    std::uint32_t keyswitch_words;
};

std::uint32_t unsigned_of(std::size_t value) { return static_cast<std::uint32_t>(value); }

const char* name_of(TableKind kind) {
    return kind == TableKind::gate ? "gate" : kind == TableKind::exact ? "exact" : "approximate";
}

const char* name_of(SecretKind kind) {
    switch (kind) {
        case SecretKind::binary: return "binary";
        case SecretKind::ternary: return "ternary";
        case SecretKind::quinary: return "quinary";
        default: return "gaussian";
    }
}

// The shortest decimal of a double, as Python writes it; sigmas have few digits.
[[gnu::noinline]] std::string decimal(double value) {
    for (std::int64_t scale = 10; scale <= 1'000'000'000; scale *= 10) {
        const std::int64_t scaled = std::llround(value * static_cast<double>(scale));
        if (static_cast<double>(scaled) / static_cast<double>(scale) != value) continue;
        return std::to_string(scaled / scale) + "." + std::to_string(scale + scaled % scale).substr(1);
    }
    throw ParameterError("parameter set: expected noise of at most nine decimals");
}

// The text under the parameter digest, a line at a time: fhe_core/parameters.py.
struct Text {
    std::string text = "cloakwork parameter set 1\n";

    [[gnu::noinline]] void line(const char* field, std::string_view value) { (((text += field) += '=') += value) += '\n'; }
    [[gnu::noinline]] void line(const char* field, std::uint64_t value) { line(field, std::to_string(value)); }
    void line(const char* field, const Gadget& g) { line(field, std::to_string(g.base_log) + "," + std::to_string(g.level_count)); }
};

std::string text_of(const ParameterSet& p) {
    Text out;
    out.line("kind", name_of(p.kind));
    out.line("message_bits", p.message_bits);
    out.line("polynomial_size", p.polynomial_size());
    out.line("glwe_dimension", p.glwe_dimension());
    out.line("modulus", p.modulus());
    out.line("mask_gadget", p.shape.mask_gadget);
    out.line("body_gadget", p.shape.body_gadget);
    out.line("cmux", p.rotation().name);
    out.line("glwe_secret", name_of(p.glwe_secret));
    out.line("glwe_sigma", decimal(p.glwe_sigma));
    out.line("lwe_secret", name_of(p.lwe_secret()));
    out.line("lwe_dimension", p.lwe_dimension);
    out.line("keyswitch_modulus_log2", p.keyswitch_modulus_log2);
    out.line("lwe_sigma", decimal(p.lwe_sigma));
    out.line("keyswitch_gadget", p.keyswitch_gadget);
    if (p.is_raised()) out.line("key_modulus", p.key_modulus());
    if (p.is_raised() || p.is_ntru()) out.line("key_sigma", decimal(p.key_sigma()));
    if (p.is_ntru()) out.line("accumulator", "ntru");
    if (p.has_rounded_products()) out.line("rounded_products", "True");
    if (p.extension_factor() != 1) out.line("extension_factor", p.extension_factor());
    if (p.lane_count() != 1) out.line("lane_count", p.lane_count());
    if (p.party_count != 1) out.line("party_count", p.party_count);
    return out.text;
}

std::string kept_text;

}  // namespace

FHE_CORE_EXPORT(set_count) std::uint32_t set_count() { return static_cast<std::uint32_t>(kParameterSets.size()); }
FHE_CORE_EXPORT(set_row_bytes) std::uint32_t set_row_bytes() { return sizeof(Row); }

// The row, and the text until the next call.
FHE_CORE_EXPORT(set_row) int set_row(std::uint32_t number, Row* row, const char** text) {
    return guarded([&] {
        const ParameterSet& p = set_at(number);
        const std::size_t bootstrap_rows = std::size_t(p.key_step_count()) * p.keys_per_step() * p.row_count();
        *row = {
            .name = {},
            .modulus = p.modulus(),
            .glwe_sigma = p.glwe_sigma,
            .kind = static_cast<std::uint32_t>(p.kind),
            .message_bits = unsigned_of(p.message_bits),
            .polynomial_size = unsigned_of(p.polynomial_size()),
            .glwe_dimension = unsigned_of(p.glwe_dimension()),
            .lane_count = unsigned_of(p.lane_count()),
            .lwe_dimension = unsigned_of(p.lwe_dimension),
            .security_bits = unsigned_of(p.security_bits),
            .structured_secret = p.has_structured_secret(),
            .glwe_secret = static_cast<std::uint32_t>(p.glwe_secret),
            .party_count = unsigned_of(p.party_count),
            .memory_bytes = unsigned_of(p.word_bytes()),
            .key_memory_bytes = unsigned_of(p.key_limbs().word_bytes()),
            .planes = planes_of(p.modulus()),
            .key_planes = planes_of(p.key_modulus()),
            .keyswitch_planes = unsigned_of((p.keyswitch_modulus_log2 + 7) / 8),
            .bootstrap_rows = unsigned_of(bootstrap_rows),
            .bootstrap_words = unsigned_of(bootstrap_rows * p.lane_count() * p.polynomial_size()),
            .keyswitch_words = unsigned_of(p.keyswitch_key_rows() * p.lane_count()),
        };
        std::memcpy(row->name, p.name.data(), std::min(p.name.size(), kNameBytes - 1));
        kept_text = text_of(p);
        *text = kept_text.c_str();
    });
}

}  // namespace fhe_core
