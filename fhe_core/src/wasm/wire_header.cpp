// Headers of the wire format, read and written: docs/reference/wire_format.md. Python has its own: layout.py and wire.py.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <initializer_list>
#include <iterator>
#include <string_view>

#include "wasm/exports.hpp"

namespace fhe_core {
namespace {

enum Kind : std::uint32_t { secret_key = 1, evaluation_keys, public_key, ciphertexts, packed_ciphertexts, switched_ciphertexts };
enum Encoding : std::uint32_t { torus, message, full_domain, boolean };
constexpr const char* kLabels[] = {
    "", "secret key", "evaluation keys", "public key", "ciphertexts", "packed ciphertexts", "switched ciphertexts"};

constexpr std::size_t kHeaderBytes = 112, kDigestBytes = 32, kKeyIdBytes = 16, kPurposeBytes = 32, kNameBytes = 32, kMaxRank = 8;
constexpr double kSeedBytes = 32, kChecksumBytes = 32, kKeyDerivationBytes = 40, kTagBytes = 16;
constexpr double kMaxBytes = 1 << 30, kMaxWeightNorm = 4294967296.0;
constexpr std::uint8_t kSeeded = 1, kPurpose = 2;

// As web/src/wire.ts lays it out.
struct Header {
    std::uint32_t kind, set, seeded, encoding, word_bits, rank, has_key_id, has_purpose;
    std::uint32_t bytes, section_count;  // from here on what follows from the others, but of the counts
    double total, sections[5];
    double weight_norm, shape[kMaxRank];
    std::uint8_t key_id[kKeyIdBytes], purpose[kPurposeBytes];
};

std::array<std::array<std::uint8_t, kDigestBytes>, kParameterSets.size()> digests;

using Parts = std::initializer_list<std::string_view>;

[[gnu::noinline]] std::string joined(Parts parts) {
    std::string text;
    for (const std::string_view part : parts) text += part;
    return text;
}

[[noreturn, gnu::noinline]] void refuse(Parts parts) { throw SerializationError(joined(parts)); }

[[noreturn, gnu::noinline]] void damaged(std::uint32_t kind, std::string_view what, std::string_view value = "",
                                         std::string_view rest = "") {
    refuse({kLabels[kind], ": ", what, value, rest, "; the object is damaged, transfer it again"});
}

[[gnu::noinline]] std::string whole(double value) { return std::to_string(static_cast<std::uint64_t>(std::min(value, 0x1p63))); }

template <class Value>
Value value_at(const std::uint8_t* data) {
    Value value;
    std::memcpy(&value, data, sizeof value);
    return value;
}

// Bytes of all sections, in order, and of the object. In doubles: no count wraps around.
void measure(Header& h) {
    const ParameterSet& p = set_at(h.set);
    if (h.rank > kMaxRank) throw ShapeError("shape: expected at most 8 dimensions");
    double count = 1;
    for (std::size_t i = 0; i < h.rank; ++i) count *= h.shape[i];
    const double planes = planes_of(p.modulus()), key_planes = planes_of(p.key_modulus());
    const double lanes = p.lane_count(), size = p.polynomial_size(), glwe_words = std::ceil(count / size) * size;
    const double public_bytes = p.large_dimension() * lanes * planes;
    const auto set = [&](std::initializer_list<double> sections) {
        h.section_count = static_cast<std::uint32_t>(sections.size());
        std::copy(sections.begin(), sections.end(), h.sections);
    };
    switch (h.kind) {
        case secret_key: set({kKeyDerivationBytes, lanes * (p.lwe_dimension + p.large_dimension()) + kTagBytes}); break;
        case evaluation_keys:
            set({kSeedBytes, double(p.bootstrap_key_body_words()) * key_planes,
                 p.keyswitch_key_rows() * lanes * ((p.keyswitch_modulus_log2 + 7) / 8), kSeedBytes, public_bytes});
            break;
        case public_key: set({kSeedBytes, public_bytes}); break;
        case ciphertexts: h.seeded ? set({kSeedBytes, count * lanes * planes}) : set({count * p.large_words() * planes}); break;
        case switched_ciphertexts: set({std::ceil(count * p.large_words() * h.word_bits / 8)}); break;
        default: h.seeded ? set({kSeedBytes, glwe_words * lanes * planes}) : set({glwe_words * p.component_count() * planes});
    }
    h.bytes = static_cast<std::uint32_t>(kHeaderBytes + 8 * h.rank + (h.has_purpose ? kPurposeBytes : 0));
    h.total = h.bytes + kChecksumBytes;
    for (std::size_t i = 0; i < h.section_count; ++i) h.total += h.sections[i];
}

// The versions of the format that are read; the newest is written.
std::uint32_t oldest_version(std::uint32_t kind) { return kind == evaluation_keys ? 2 : 1; }
std::uint32_t newest_version(std::uint32_t kind) { return kind == evaluation_keys ? 3 : 1; }

// Args: kinds: bit k for kind k.
void check_identity(const std::uint8_t* data, std::uint32_t kinds) {
    if (std::memcmp(data, "CLKW", 4) != 0)
        refuse({"object: expected the magic bytes 'CLKW' at its start; this is another kind of file"});
    const std::uint32_t kind = data[6], version = value_at<std::uint16_t>(data + 4);
    if (kind < secret_key || kind > switched_ciphertexts)
        refuse({"object: expected a kind from 1 to 6, got ", whole(kind), "; the object is damaged or from a newer release"});
    if (version > newest_version(kind) || version < oldest_version(kind))
        damaged(kind,
                kind == evaluation_keys ? "expected wire format version 2 or 3, got " : "expected wire format version 1, got ",
                whole(version), "; use the release of cloakwork that wrote it");
    if (data[7] & ~(kSeeded | kPurpose)) damaged(kind, "expected flags from 0 to 3, got ", whole(data[7]));
    if (kinds >> kind & 1) return;
    std::string expected;
    for (std::uint32_t each = secret_key; each <= switched_ciphertexts; ++each)
        if (kinds >> each & 1) expected += joined({expected.empty() ? "" : " or ", kLabels[each]});
    refuse({"object: expected ", expected, ", got ", kLabels[kind],
            kind == secret_key ? "; a secret key must stay with its owner: delete this copy"
                               : "; pass the object to the function of its kind"});
}

std::uint32_t known_set(const std::uint8_t* field, const std::uint8_t* digest) {
    const std::uint8_t *end = std::find(field, field + kNameBytes, 0), *last = field + kNameBytes;
    const auto is_of_names = [](std::uint8_t c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_'; };
    if (end == field || !std::all_of(field, end, is_of_names) || std::any_of(end, last, [](auto byte) { return byte != 0; }))
        refuse({"object: expected a parameter set's name (a-z, 0-9, _, padded with zeros); the object is damaged"});
    const std::string name(field, end);
    const auto known =
        std::find_if(kParameterSets.begin(), kParameterSets.end(), [&](const ParameterSet& p) { return p.name == name; });
    if (known == kParameterSets.end()) refuse({"object: its parameter set cannot be used: there is none called '", name, "'"});
    const auto number = static_cast<std::uint32_t>(std::distance(kParameterSets.begin(), known));
    if (std::memcmp(digests[number].data(), digest, kDigestBytes) != 0)
        throw KeyMismatchError(joined({"object: it was made with another version of parameter set '", name,
                                       "'; make new keys and ciphertexts with this release"}));
    return number;
}

// Fields whose values the kind restricts.
void check_form(Header& h, const std::uint8_t* bound) {
    const auto any = [](const std::uint8_t* first, const std::uint8_t* last) {
        return std::any_of(first, last, [](auto b) { return b; });
    };
    bool has_bound = any(bound, bound + 6);
    if (h.kind == switched_ciphertexts) {
        h.word_bits = bound[0];
        if (h.seeded || h.word_bits < 1 || h.word_bits > 32 || any(bound + 1, bound + 6))
            damaged(h.kind, "expected the full form, words of 1 to 32 bits and zeros after that");
        has_bound = false;
    }
    const bool foreign = h.rank != 0 || h.weight_norm != 0 || h.encoding != 0 || has_bound || h.has_purpose;
    if (h.kind < ciphertexts && (foreign || (h.seeded != 0) != (h.kind != secret_key)))
        damaged(h.kind, "the header has fields that this kind does not have");
    if (h.rank > kMaxRank) damaged(h.kind, "expected at most 8 dimensions");
    if (!(h.weight_norm >= 0 && h.weight_norm <= kMaxWeightNorm) || std::signbit(h.weight_norm))
        damaged(h.kind, "expected a weight norm in [0, 2^32]");
    if (h.encoding > boolean) damaged(h.kind, "expected an encoding from 0 to 3, got ", whole(h.encoding));
    const ParameterSet& p = set_at(h.set);
    if ((h.encoding == message || h.encoding == full_domain) && p.message_bits == 0)
        damaged(h.kind, "parameter set '", p.name, "' has no integer messages, but the object says that it holds some");
    if (has_bound && h.encoding != message) damaged(h.kind, "expected a message bound of messages alone");
}

}  // namespace

FHE_CORE_EXPORT(kind_label) const char* kind_label(std::uint32_t kind) { return kLabels[kind]; }
FHE_CORE_EXPORT(header_block_bytes) std::uint32_t header_block_bytes() { return sizeof(Header); }

// SHA-256 of the text of a set, before any header.
FHE_CORE_EXPORT(set_digest) int set_digest(std::uint32_t number, const std::uint8_t* digest) {
    return guarded([&] {
        set_at(number);
        std::memcpy(digests[number].data(), digest, kDigestBytes);
    });
}

FHE_CORE_EXPORT(header_measure) int header_measure(Header* header) {
    return guarded([&] { measure(*header); });
}

// Header, dimensions and purpose: `bytes` of a header that was measured.
FHE_CORE_EXPORT(header_write) int header_write(const Header* header, std::uint8_t* out) {
    return guarded([&] {
        const Header& h = *header;
        const auto put = [&](std::size_t at, const auto& value) { std::memcpy(out + at, &value, sizeof value); };
        std::memset(out, 0, h.bytes);
        std::memcpy(out, "CLKW", 4);
        put(4, static_cast<std::uint16_t>(newest_version(h.kind)));
        out[6] = static_cast<std::uint8_t>(h.kind);
        out[7] = static_cast<std::uint8_t>((h.seeded ? kSeeded : 0) | (h.has_purpose ? kPurpose : 0));
        put(8, static_cast<std::uint64_t>(h.total));
        const std::string_view name = set_at(h.set).name;
        std::memcpy(out + 16, name.data(), std::min(name.size(), kNameBytes));
        std::memcpy(out + 48, digests[h.set].data(), kDigestBytes);
        if (h.has_key_id) std::memcpy(out + 80, h.key_id, kKeyIdBytes);
        put(96, h.weight_norm);
        out[104] = static_cast<std::uint8_t>(h.encoding);
        out[105] = static_cast<std::uint8_t>(h.rank);
        if (h.kind == switched_ciphertexts) out[106] = static_cast<std::uint8_t>(h.word_bits);
        for (std::size_t i = 0; i < h.rank; ++i) put(kHeaderBytes + 8 * i, static_cast<std::uint64_t>(h.shape[i]));
        if (h.has_purpose) std::memcpy(out + kHeaderBytes + 8 * h.rank, h.purpose, kPurposeBytes);
    });
}

// Every field and the size checked; data: the beginning of an object of `size` bytes, as long as a header may be.
FHE_CORE_EXPORT(header_read) int header_read(const std::uint8_t* data, double size, std::uint32_t kinds, Header* header) {
    return guarded([&] {
        const double least = kHeaderBytes + kChecksumBytes;
        if (size < least)
            refuse(
                {"object: expected at least ", whole(least), " bytes, got ", whole(size), "; it is truncated, transfer it again"});
        check_identity(data, kinds);
        Header h{};
        h.kind = data[6];
        const auto total = value_at<std::uint64_t>(data + 8);
        if (double(total) != size)
            refuse({kLabels[h.kind], ": expected ", std::to_string(total), " bytes, got ", whole(size), "; the object is ",
                    size < double(total) ? "truncated" : "extended", ", transfer it again"});
        if (size > kMaxBytes) damaged(h.kind, "expected at most 1073741824 bytes, got ", whole(size));
        h.set = known_set(data + 16, data + 48);
        h.seeded = data[7] & kSeeded;
        h.has_purpose = (data[7] & kPurpose) != 0;
        std::memcpy(h.key_id, data + 80, kKeyIdBytes);
        h.has_key_id = std::any_of(h.key_id, h.key_id + kKeyIdBytes, [](auto byte) { return byte != 0; });
        h.weight_norm = value_at<double>(data + 96);
        h.encoding = data[104];
        h.rank = data[105];
        check_form(h, data + 106);
        const std::size_t start = kHeaderBytes + 8 * h.rank;
        if (size < start + (h.has_purpose ? kPurposeBytes : 0) + kChecksumBytes)
            damaged(h.kind, "it is shorter than its header says");
        for (std::size_t i = 0; i < h.rank; ++i) {
            h.shape[i] = double(value_at<std::uint64_t>(data + kHeaderBytes + 8 * i));
            if (!(h.shape[i] >= 1 && h.shape[i] <= kMaxBytes)) damaged(h.kind, "expected dimensions of at least 1 that fit memory");
        }
        if (h.has_purpose) std::memcpy(h.purpose, data + start, kPurposeBytes);
        measure(h);
        if (h.total != size)
            refuse({kLabels[h.kind], ": the counts of the header ask for ", whole(h.total), " bytes, the object has ", whole(size),
                    "; it is damaged or not valid"});
        *header = h;
    });
}

}  // namespace fhe_core
