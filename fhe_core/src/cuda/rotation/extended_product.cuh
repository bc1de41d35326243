// Products of the rotation kernel of extended tables (blind_rotate_extended.cuh): a thread's points, all parts, in place.
//
// Source: [LY23], with the steps of [LMSS23] and [BMMP18]. Ours: which factor goes to the keys, which to the digits.
#pragma once

#include <cstdint>

#include "cuda/device/cluster.cuh"
#include "cuda/device/modulus.cuh"
#include "cuda/rotation/extended_config.cuh"
#include "cuda/rotation/product.cuh"

namespace fhe_core::cuda {

#if defined(__CUDACC__) || defined(CLOAKWORK_EMULATE_WARPS)

__device__ __forceinline__ std::int32_t load_word(const std::int32_t* address) {
#ifdef __CUDA_ARCH__
    return __ldg(address);
#else
    return *address;
#endif
}

// sum += a * b in one instruction: left to itself, the compiler widens the digits once for all cases of `add_shifted`, and
// multiplies 64 bits by 64.
__device__ __forceinline__ void add_product(std::int64_t& sum, std::int32_t a, std::int32_t b) {
#ifdef __CUDA_ARCH__
    asm("mad.wide.s32 %0, %1, %2, %0;" : "+l"(sum) : "r"(a), "r"(b));
#else
    sum += multiply_wide(a, b);
#endif
}

// f(Index<shift>{}) for a shift in [low, low + count) that all lanes share.
template <int low, int count, class F>
__device__ __forceinline__ void with_shift(int shift, const F& f) {
    if constexpr (count == 1) {
        f(Index<low>{});
    } else {
        if (shift < low + count / 2)
            with_shift<low, count / 2>(shift, f);
        else
            with_shift<low + count / 2, count / 2>(shift, f);
    }
}

// A thread's part of the products: V neighbouring points of a slice, O output components.
template <class Config>
struct ExtendedPoints {
    static constexpr int V = Config::V, O = Config::O, kParts = Config::kParts, kPolynomials = Config::kPolynomials;
    static constexpr bool kWrapsDigits = Config::Layout::product == ExtendedProduct::y_on_digits;
    using KeyWords = std::int32_t[O][V][2];  // [output][point][row]

    LimbModulus modulus;
    std::int32_t digits[kWrapsDigits ? 2 * kParts : kParts][2]
                       [V];  // parts -nu .. -1, Y times 0 .. nu - 1, where Y multiplies digits
    std::int64_t sums[kParts][O][V];

    // --- One key: digits of part i - shift ---

    template <int shift>
    __device__ __forceinline__ void add(const KeyWords& key, const KeyWords& wrapped) {
        static_for<0, kParts>([&](auto part) {
            constexpr int i = decltype(part)::value, from = i - shift;
            constexpr int at = kWrapsDigits ? from + kParts : from & (kParts - 1);
            constexpr bool wraps = !kWrapsDigits && from < 0;
#pragma unroll
            for (int output = 0; output < O; ++output)
#pragma unroll
                for (int v = 0; v < V; ++v)
#pragma unroll
                    for (int row = 0; row < 2; ++row)
                        add_product(sums[i][output][v], digits[at][row][v], wraps ? wrapped[output][v][row] : key[output][v][row]);
        });
    }
    // --- One key, rows first: two parts ---

    __device__ __forceinline__ void add_rows(int shift, const KeyWords& key, const std::int32_t (&power)[V],
                                             const std::int32_t (&wrapped)[V]) {
#pragma unroll
        for (int output = 0; output < O; ++output)
#pragma unroll
            for (int v = 0; v < V; ++v) {
                std::int32_t product[2];
#pragma unroll
                for (int i = 0; i < 2; ++i)
                    product[i] = montgomery(modulus, multiply_wide(digits[i][0][v], key[output][v][0]) +
                                                         multiply_wide(digits[i][1][v], key[output][v][1]));
#pragma unroll
                for (int i = 0; i < 2; ++i)
                    sums[i][output][v] +=
                        multiply_wide(i < shift ? wrapped[v] : power[v], shift == 0 ? product[i] : product[1 - i]) - product[i];
            }
    }

    __device__ __forceinline__ static void load_keys(const std::int32_t* words, KeyWords& key) {
#pragma unroll
        for (int output = 0; output < O; ++output) {
            const std::int32_t* from = words + output * 2048;
            if constexpr (V == 1) {
#ifdef __CUDA_ARCH__
                const int2 two = __ldg(reinterpret_cast<const int2*>(from));
                key[output][0][0] = two.x, key[output][0][1] = two.y;
#else
                key[output][0][0] = from[0], key[output][0][1] = from[1];
#endif
            } else {
#pragma unroll
                for (int v = 0; v < V; v += 2) {
                    const Vec4 four = load_key(reinterpret_cast<const Vec4*>(from + 2 * v));
                    key[output][v][0] = four.x[0], key[output][v][1] = four.x[1];
                    key[output][v + 1][0] = four.x[2], key[output][v + 1][1] = four.x[3];
                }
            }
        }
    }
    // key times the powers at the points
    __device__ __forceinline__ void scale(const KeyWords& key, const std::int32_t (&power)[V], KeyWords& scaled) const {
#pragma unroll
        for (int output = 0; output < O; ++output)
#pragma unroll
            for (int v = 0; v < V; ++v)
#pragma unroll
                for (int row = 0; row < 2; ++row)
                    scaled[output][v][row] = montgomery(modulus, multiply_wide(key[output][v][row], power[v]));
    }

    // --- V words of T ---

    __device__ __forceinline__ static void load_words(const std::int32_t* from, std::int32_t (&words)[V]) {
        if constexpr (V == 2) {
            const std::int64_t two = *reinterpret_cast<const std::int64_t*>(from);
            words[0] = static_cast<std::int32_t>(two), words[1] = static_cast<std::int32_t>(two >> 32);
        } else {
            words[0] = *from;
        }
    }
    __device__ __forceinline__ static void store_words(std::int32_t* to, const std::int32_t (&words)[V]) {
        if constexpr (V == 2) {
            *reinterpret_cast<std::int64_t*>(to) = static_cast<std::int64_t>(
                static_cast<std::uint64_t>(static_cast<std::uint32_t>(words[1])) << 32 | static_cast<std::uint32_t>(words[0]));
        } else {
            *to = words[0];
        }
    }
    __device__ __forceinline__ void load_digits(const std::int32_t* words, const Twiddle* roots) {
#pragma unroll
        for (int i = 0; i < kParts; ++i)
#pragma unroll
            for (int row = 0; row < 2; ++row) {
                if constexpr (kWrapsDigits) {
                    load_words(words + (2 * i + row) * 1024, digits[kParts + i][row]);
#pragma unroll
                    for (int v = 0; v < V; ++v) digits[i][row][v] = multiply_add(modulus, 0, digits[kParts + i][row][v], roots[v]);
                } else {
                    load_words(words + (2 * i + row) * 1024, digits[i][row]);
                }
            }
#pragma unroll
        for (int i = 0; i < kParts; ++i)
#pragma unroll
            for (int output = 0; output < O; ++output)
#pragma unroll
                for (int v = 0; v < V; ++v) sums[i][output][v] = 0;
    }
};

// The products of a task: of 32 lanes at 32 * V * O / 2 points of a slice and ciphertext. `exponent`: lane m*keys + j has e_j of
// ciphertext m.
template <class Config>
__device__ __forceinline__ void multiply_points(int task, const std::int32_t* step_key, const typename Config::PowerTable* powers,
                                                const Twiddle* roots, std::uint32_t exponent, std::int32_t* digits) {
    constexpr int V = Config::V, O = Config::O, kKeys = Config::kKeys;
    using Points = ExtendedPoints<Config>;
    const int lane = threadIdx.x % 32, own_slice = task / Config::kTasksOfSlice, within = task % Config::kTasksOfSlice;
    const int slice = cluster_rank() * Config::kSlices + own_slice, ciphertext = within % Config::kCiphertexts;
    constexpr int kLanes = O == 2 ? 32 : 16;  // of points
    const int output = O == 2 ? 0 : lane / 16;
    const int w = ((within / Config::kCiphertexts) * kLanes + lane % kLanes) * V;

    Points points;
    points.modulus = LimbModulus::of(slice >> 1);
    const typename Config::PowerTable power_of{powers[slice >> 1]};
    const std::uint32_t turns =
        2 * reverse_position(static_cast<std::uint32_t>((slice & 1) * 1024 + word_of_position(w)), Config::kLogSize) + 1;
    std::int32_t* const words = digits + (own_slice * Config::kPolynomials + ciphertext * 2 * Config::kParts) * 1024 + w;
    Twiddle root[V];
    if constexpr (Points::kWrapsDigits)
#pragma unroll
        for (int v = 0; v < V; ++v) root[v] = roots[slice * 1024 + w + v];
    points.load_digits(words, root);

    const std::int32_t* key_words = step_key + slice * (kKeys * Config::kKeyWords) + output * 2048 + 2 * w;
    typename Points::KeyWords key, scaled, wrapped, total{};
    Points::load_keys(key_words, key);
#pragma unroll 1
    for (int j = 0; j < kKeys; ++j) {
        const std::uint32_t e = __shfl_sync(0xffffffffu, exponent, ciphertext * kKeys + j), a = e >> Config::kLogParts;
        const int shift = static_cast<int>(e & (Config::kParts - 1));
        const auto powers_at = [&](std::uint32_t exponent_of_y, std::int32_t (&power)[V]) {
            power[0] = power_of[exponent_of_y * turns];
            if constexpr (V > 1) power[1] = (power[0] ^ neighbour_sign(exponent_of_y)) - neighbour_sign(exponent_of_y);
        };
        std::int32_t power[V], next_power[V];
        powers_at(a, power);
        if constexpr (!Points::kWrapsDigits) powers_at(a + 1, next_power);
        key_words += Config::kKeyWords;
        if constexpr (Config::kRowsFirst) {
            points.add_rows(shift, key, power, next_power);
            if (j + 1 < kKeys) Points::load_keys(key_words, key);
        } else {
            points.scale(key, power, scaled);
            if constexpr (!Points::kWrapsDigits) points.scale(key, next_power, wrapped);
#pragma unroll
            for (int o = 0; o < O; ++o)
#pragma unroll
                for (int v = 0; v < V; ++v)
#pragma unroll
                    for (int row = 0; row < 2; ++row) total[o][v][row] -= key[o][v][row];
            if (j + 1 < kKeys) Points::load_keys(key_words, key);
            with_shift<0, Config::kParts>(shift, [&](auto b) { points.template add<decltype(b)::value>(scaled, wrapped); });
        }
    }
    if constexpr (!Config::kRowsFirst) {
        std::int32_t one[V];
#pragma unroll
        for (int v = 0; v < V; ++v) one[v] = 1;
        points.scale(total, one, scaled);
        points.template add<0>(scaled, scaled);
    }

    if constexpr (O == 1) __syncwarp();  // both outputs' lanes have read the digits
#pragma unroll
    for (int i = 0; i < Config::kParts; ++i)
#pragma unroll
        for (int o = 0; o < O; ++o) {
            std::int32_t out[V];
#pragma unroll
            for (int v = 0; v < V; ++v) {
                out[v] = montgomery(points.modulus, points.sums[i][o][v]);
                if constexpr (!Config::kRowsFirst) out[v] = reduce(points.modulus, out[v]);
            }
            Points::store_words(words + (2 * i + output + o) * 1024, out);
        }
}

// The same where 32 parts are shared by lanes: a lane holds the digits of one row, all parts, and the sums of one output and
// sixteen parts, its half of them. `order` of the parts: those of its half first, so that i - b is the same number for both halves.
template <class Config>
__device__ __forceinline__ void multiply_lanes(int task, const std::int32_t* step_key, const typename Config::PowerTable* powers,
                                               std::uint32_t exponent, std::int32_t* digits) {
    constexpr int kKeys = Config::kKeys, kParts = 32, kHalf = kParts / 2;
    const int lane = threadIdx.x % 32, row = lane / 4 & 1, output = lane / 8 & 1, upper = lane / 16;
    const int slice = cluster_rank() / Config::kHalves, first = cluster_rank() % Config::kHalves * Config::kSliceWords;
    const int place = task * 4 + lane % 4, w = first + place;
    const LimbModulus modulus = LimbModulus::of(slice >> 1);
    const typename Config::PowerTable power_of{powers[slice >> 1]};
    const std::uint32_t turns =
        2 * reverse_position(static_cast<std::uint32_t>((slice & 1) * 1024 + word_of_position(w)), Config::kLogSize) + 1;
    std::int32_t* const words = digits + place;
    const auto word_of = [&](int part, int component) { return words + (2 * part + component) * Config::kSliceWords; };

    std::int32_t digit[kParts];
    std::int64_t sums[kHalf] = {};
#pragma unroll
    for (int i = 0; i < kParts; ++i) digit[i] = *word_of((i + upper * kHalf) % kParts, row);
    const auto add = [&](auto shift, std::int32_t key, std::int32_t later_key) {
        constexpr int b = decltype(shift)::value,
                      turn = b <= kHalf ? b : b - kHalf;  // of the halves, one wraps before it, or the other
        static_for<0, kHalf>([&](auto part) {
            constexpr int i = decltype(part)::value;
            add_product(sums[i], digit[(i - b) & (kParts - 1)], i < turn ? key : later_key);
        });
    };

    const std::int32_t* key_words = step_key + slice * (kKeys * Config::kKeyWords) + output * 2048 + 2 * w + row;
    std::int32_t key = load_word(key_words), total = 0;
#pragma unroll 1
    for (int j = 0; j < kKeys; ++j) {
        const std::uint32_t e = __shfl_sync(0xffffffffu, exponent, j), a = e >> Config::kLogParts;
        const int shift = static_cast<int>(e & (kParts - 1));
        const std::int32_t scaled = montgomery(modulus, multiply_wide(key, power_of[a * turns]));
        const std::int32_t wrapped = montgomery(modulus, multiply_wide(key, power_of[(a + 1) * turns]));
        total -= key;
        key_words += Config::kKeyWords;
        if (j + 1 < kKeys) key = load_word(key_words);
        // Part i + 16*upper wraps for i + 16*upper < b.
        const std::int32_t before = shift > kHalf || upper == 0 ? wrapped : scaled,
                           after = shift > kHalf && upper == 0 ? wrapped : scaled;
        with_shift<0, kParts>(shift, [&](auto b) { add(b, before, after); });
    }
    const std::int32_t own = montgomery(modulus, std::int64_t{total});
    add(Index<0>{}, own, own);

    std::int32_t products[kHalf];
#pragma unroll
    for (int i = 0; i < kHalf; ++i) {
        const std::int32_t of_row = montgomery(modulus, sums[i]);
        products[i] =
            reduce(modulus, of_row + __shfl_xor_sync(0xffffffffu, of_row, 4));  // both rows: all lanes have read the digits
    }
#pragma unroll
    for (int i = 0; i < kHalf / 2; ++i)
        *word_of(upper * kHalf + 2 * i + row, output) = row == 0 ? products[2 * i] : products[2 * i + 1];
}

template <class Config>
__device__ __forceinline__ void multiply_task(int task, const std::int32_t* step_key, const typename Config::PowerTable* powers,
                                              const Twiddle* roots, std::uint32_t exponent, std::int32_t* digits) {
    if constexpr (Config::kByLanes)
        multiply_lanes<Config>(task, step_key, powers, exponent, digits);
    else
        multiply_points<Config>(task, step_key, powers, roots, exponent, digits);
}

#endif

}  // namespace fhe_core::cuda
