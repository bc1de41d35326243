#include "client/random.hpp"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <mutex>
#include <string>
#if defined(__APPLE__)
#include <sys/random.h>
#endif

#include "core/errors.hpp"
#include "core/secure_memory.hpp"
#include "core/vector_clones.hpp"

namespace fhe_core {
namespace {

constexpr double kMinSigma = 0.5, kMaxSigma = 2000.0;
constexpr std::size_t kGaussianLanes = 32;

#if defined(__wasm__)
constexpr std::size_t kLanesAtOnce = 8;  // 16 registers of 128 bits
#else
constexpr std::size_t kLanesAtOnce = kGaussianLanes;
#endif

// out = sign * (number of thresholds above u), u the upper 63 bits of each 64-bit draw and the sign its lowest bit. The whole table
// is read for every draw; comparisons are masks. At least `count` of kGaussianLanes.
// Source: [BCD+16] inversion sampling in constant time. Ours: a table of 63 bits out to a tail below 2^-63.
FHE_CORE_VECTOR_CLONES
void gaussian_lanes(const std::int64_t* thresholds, std::size_t threshold_count, const std::uint64_t* draws, std::size_t count,
                    std::int32_t* out) {
    typedef std::int64_t Vec __attribute__((vector_size(32)));
    constexpr std::size_t kVectors = kLanesAtOnce / 4;
    for (std::size_t first = 0; first < count; first += kLanesAtOnce, draws += kLanesAtOnce, out += kLanesAtOnce) {
        Vec u[kVectors], magnitude[kVectors];
        for (std::size_t v = 0; v < kVectors; ++v) {
            for (std::size_t lane = 0; lane < 4; ++lane) u[v][lane] = static_cast<std::int64_t>(draws[4 * v + lane] >> 1);
            magnitude[v] = Vec{};
        }
        for (std::size_t i = 0; i < threshold_count; ++i) {
            const Vec threshold = Vec{} + thresholds[i];
            for (std::size_t v = 0; v < kVectors; ++v) magnitude[v] -= u[v] < threshold;  // true is -1
        }
        for (std::size_t j = 0; j < kLanesAtOnce; ++j) {
            const std::int64_t sign = -static_cast<std::int64_t>(draws[j] & 1);  // 0 or -1
            out[j] = static_cast<std::int32_t>((magnitude[j / 4][j % 4] ^ sign) - sign);
        }
    }
}

// take(i, draw) for i = 0, .., count - 1 with draws uniform in [0, values), 2 <= values <= 2^16.
template <class Take>
void sample_uniform(SecretStream& stream, std::uint32_t values, std::size_t count, const Take& take) {
    std::uint32_t word = 0;
    int bits_left = 0;
    const int bits = std::bit_width(values - 1);
    for (std::size_t produced = 0; produced < count;) {
        if (bits_left < bits) stream.fill(&word, 1), bits_left = 32;
        const std::uint32_t draw = word & ((1u << bits) - 1);
        word >>= bits, bits_left -= bits;
        if (draw < values) take(produced++, draw);
    }
    erase_memory(&word, sizeof word);
}

// exp(-scale x^2) for x = 0, .., last, to about the precision of long double.
std::vector<long double> gaussian_weights(long double scale, std::int64_t last) {
    std::vector<long double> weights;
#if defined(__wasm__)
    // The C library's expl has the precision of a double there, though long double has 113 bits. One series, of a power below 1/4,
    // and w(x + 1) = w(x) e^(-scale (2 x + 1)): x^2 roundings take some 30 of those bits at most, and 63 are needed.
    const long double part = -scale / 8;
    long double ratio = 1, weight = 1;
    for (int term = 24; term > 0; --term) ratio = 1 + ratio * part / term;
    for (int i = 0; i < 3; ++i) ratio *= ratio;  // e^-scale
    const long double step = ratio * ratio;
    for (std::int64_t x = 0; x <= last; ++x, weight *= ratio, ratio *= step) weights.push_back(weight);
#else
    for (std::int64_t x = 0; x <= last; ++x) weights.push_back(std::exp(-scale * x * x));
#endif
    return weights;
}

#if !defined(__wasm__)
// Tests only: what replaces the operating system's entropy, and how much of it is used.
struct Replacement {
    std::mutex mutex;
    std::optional<Seed> seed;
    std::uint64_t calls = 0;
};

Replacement& replacement() {
    static Replacement object;
    return object;
}

bool fill_from_replacement(Seed& seed) {
    Replacement& fixed = replacement();
    const std::lock_guard lock(fixed.mutex);
    if (!fixed.seed) return false;
    seed = SecretStream(*fixed.seed, fixed.calls++).seed();
    return true;
}
#else
bool fill_from_replacement(Seed&) { return false; }
#endif

std::atomic<std::uint64_t> system_requests{0};

void fill_entropy(Seed& seed) {
    if (fill_from_replacement(seed)) return;
    ++system_requests;
    if (getentropy(seed.data(), seed.size()) != 0)
        throw FheError(std::string("expected 32 bytes of operating-system entropy, got the error '") + std::strerror(errno) +
                       "'; allow the getrandom system call for this process");
}

}  // namespace

#if !defined(__wasm__)
void replace_entropy(const std::optional<Seed>& seed) {
    Replacement& fixed = replacement();
    const std::lock_guard lock(fixed.mutex);
    fixed.seed = seed;
    fixed.calls = 0;
}
#endif

std::uint64_t entropy_requests() { return system_requests; }

Seed random_seed() {
    Seed seed;
    fill_entropy(seed);
    return seed;
}

// The key goes where it stays: a seed made elsewhere would leave a copy on the stack.
SecretStream::SecretStream() : index_(0), domain_(kDomainSecret) { fill_entropy(key_); }

SecretStream::SecretStream(const Seed& entropy, std::uint64_t index, std::uint32_t domain)
    : key_(entropy), index_(index), domain_(domain) {}

SecretStream::~SecretStream() {
    erase_memory(key_.data(), key_.size());
    erase_memory(buffer_, sizeof buffer_);
}

void SecretStream::refill() {
    if (next_block_ > 0xFFFFFFFFu - kBufferBlocks)
        throw FheError("secret stream: expected at most 256 GiB of randomness in one call, more was asked for; split the batch");
    ChaCha20(key_, domain_, index_).keystream(next_block_, kBufferBlocks, buffer_);
    erase_stack();  // lanes of the block function and spilled registers: key words and keystream
    next_block_ += kBufferBlocks;
    used_ = 0;
}

void SecretStream::fill(std::uint32_t* words, std::size_t count) {
    while (count != 0) {
        if (used_ == kBufferWords) refill();
        const std::size_t part = std::min(count, kBufferWords - used_);
        std::memcpy(words, buffer_ + used_, 4 * part);
        erase_memory(buffer_ + used_, 4 * part);
        used_ += part, words += part, count -= part;
    }
}

Seed SecretStream::seed() {
    std::uint32_t words[8];
    Seed seed;
    fill(words, 8);
    std::memcpy(seed.data(), words, seed.size());
    erase_memory(words, sizeof words);
    return seed;
}

GaussianTable::GaussianTable(double sigma) {
    if (!(sigma >= kMinSigma && sigma <= kMaxSigma))
        throw ParameterError("noise: expected a standard deviation in [0.5, 2000], got " + std::to_string(sigma) +
                             "; the sampler's table would not fit, choose another parameter set");
    const long double scale = 1.0L / (2.0L * sigma * sigma);
    const std::int64_t last = static_cast<std::int64_t>(std::ceil(12.0 * sigma)) + 8;  // what is beyond is under 2^-100
    std::vector<long double> weights = gaussian_weights(scale, last);
    for (std::size_t x = 1; x < weights.size(); ++x) weights[x] *= 2;
    std::vector<long double> tails(weights.size() + 1, 0.0L);  // tails[i] = weight of |x| >= i, summed from the small end
    for (std::size_t i = weights.size(); i-- > 0;) tails[i] = tails[i + 1] + weights[i];
    for (std::size_t i = 1; i < tails.size(); ++i) {
        const std::int64_t threshold = static_cast<std::int64_t>(std::llroundl(tails[i] / tails[0] * 0x1p63L));
        if (threshold == 0) break;
        thresholds_.push_back(threshold);
    }
}

const GaussianTable& GaussianTable::kept(double sigma) {
    struct Entry {
        double sigma;
        GaussianTable table;
        Entry* next;
    };
    static std::atomic<Entry*> first = nullptr;  // a list that only grows: no lock that a fork could leave held
    for (const Entry* entry = first; entry != nullptr; entry = entry->next)
        if (entry->sigma == sigma) return entry->table;
    Entry* made = new Entry{sigma, GaussianTable(sigma), first};
    while (!first.compare_exchange_weak(made->next, made)) {
    }
    return made->table;  // twice in the list where two threads were first at once
}

void sample_gaussian(SecretStream& stream, const GaussianTable& table, std::size_t count, std::int32_t* out) {
    alignas(64) std::uint64_t draws[kGaussianLanes];
    alignas(64) std::int32_t samples[kGaussianLanes];
    const std::vector<std::int64_t>& thresholds = table.thresholds();
    while (count != 0) {
        const std::size_t part = std::min(count, kGaussianLanes);
        stream.fill(reinterpret_cast<std::uint32_t*>(draws), 2 * kGaussianLanes);
        gaussian_lanes(thresholds.data(), thresholds.size(), draws, part, samples);
        std::memcpy(out, samples, part * sizeof *out);
        out += part, count -= part;
    }
    erase_memory(draws, sizeof draws);
    erase_memory(samples, sizeof samples);
    erase_stack();  // of the lanes: draws and magnitudes
}

void sample_secret(SecretStream& stream, SecretKind kind, std::size_t count, std::int8_t* out) {
    if (kind == SecretKind::gaussian) {
        const GaussianTable& table = GaussianTable::kept(kGaussianSecretSigma);
        if (table.thresholds().size() > static_cast<std::size_t>(kGaussianSecretBound))
            throw FheError("Gaussian secret: expected magnitudes up to " + std::to_string(kGaussianSecretBound));
        SecretVector<std::int32_t> wide(count);
        sample_gaussian(stream, table, count, wide.data());
        std::transform(wide.data(), wide.data() + count, out, [](std::int32_t x) { return static_cast<std::int8_t>(x); });
        return;
    }
    const int lowest = secret_lowest(kind), values = secret_bound(kind) - lowest + 1;  // 2, 3 or 5
    sample_uniform(stream, static_cast<std::uint32_t>(values), count,
                   [=](std::size_t i, std::uint32_t draw) { out[i] = static_cast<std::int8_t>(static_cast<int>(draw) + lowest); });
}

void sample_steps(SecretStream& stream, const Rotation& rotation, std::size_t steps, std::int8_t* out) {
    sample_uniform(stream, static_cast<std::uint32_t>(rotation.keys + 1), steps, [&](std::size_t step, std::uint32_t draw) {
        std::int8_t* secret = out + step * rotation.key_bits;
        std::fill_n(secret, rotation.key_bits, std::int8_t{0});
        for (std::uint32_t key = 0; key < static_cast<std::uint32_t>(rotation.keys); ++key) {
            const int chosen = -static_cast<int>(((draw ^ (key + 1)) - 1) >> 31);  // all bits set for one key at most
            for (int i = 0; i < rotation.key_bits; ++i)
                secret[i] = static_cast<std::int8_t>(secret[i] | (rotation.lines[key][i] & chosen));
        }
    });
}

}  // namespace fhe_core
