// The device functions of the two-bit blind rotation, run lane by lane on the CPU against reference::blind_rotate. Needs no GPU:
// test_emulated_kernels.py runs it.
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

#include "host_key.hpp"
#include "reference/reference.hpp"

namespace fhe_core::cuda {
namespace {

std::int64_t largest_forward = 0, largest_inverse = 0;

// 32 lanes of one warp, one polynomial.
template <class Ntt, int inverse_input>
struct Warp {
    std::int32_t x[32][1][Ntt::P];

    template <int z>
    void swap_with_lanes() {
        constexpr int mask = 1 << (Ntt::Z - 1 - z), bit = 1 << (Ntt::p - 1 - z);
        for (int lane = 0; lane < 32; ++lane)
            if (!(lane & mask))
                for (int a = 0; a < Ntt::P; ++a)
                    if (!(a & bit)) std::swap(x[lane][0][a | bit], x[lane | mask][0][a]);
    }

    template <bool small_digits>
    void forward(const TwiddlePair* table) {
        alignas(16) std::int32_t tile[Ntt::N];
        for (int lane = 0; lane < 32; ++lane) {
            Ntt::template forward_slots<small_digits>(x[lane][0]);
            Ntt::store_slots(x[lane][0], tile, lane);
        }
        for (int lane = 0; lane < 32; ++lane) {
            Ntt::load_row(x[lane][0], tile, lane);
            Ntt::forward_row(x[lane], table, lane);
        }
        static_for<0, Ntt::Z>([&](auto z) {
            swap_with_lanes<decltype(z)::value>();
            for (int lane = 0; lane < 32; ++lane) Ntt::template forward_lane_stage<decltype(z)::value>(x[lane], table, lane);
        });
    }

    void inverse(const TwiddlePair* table) {
        static_for<0, Ntt::Z>([&](auto step) {
            constexpr int z = Ntt::Z - 1 - decltype(step)::value;
            for (int lane = 0; lane < 32; ++lane) Ntt::template inverse_lane_stage<inverse_input, z>(x[lane], table, lane);
            swap_with_lanes<z>();
        });
        alignas(16) std::int32_t tile[Ntt::N];
        for (int lane = 0; lane < 32; ++lane) {
            Ntt::template inverse_row<inverse_input>(x[lane], table, lane);
            Ntt::store_row(x[lane][0], tile, lane);
        }
        for (int lane = 0; lane < 32; ++lane) {
            Ntt::load_slots(x[lane][0], tile, lane);
            Ntt::template inverse_slots<inverse_input>(x[lane][0]);
        }
    }

    void note_largest(std::int64_t& largest) const {
        for (const auto& lane : x)
            for (const std::int32_t word : lane[0]) largest = std::max(largest, std::abs(std::int64_t{word}));
    }
};

template <class Config>
using WarpOf = Warp<typename Config::Ntt, Config::kInverseInput>;

template <class Config, Gadget gadget>
void transform_rows(const WarpOf<Config>& accumulator, const TwiddlePair* table, std::vector<Vec4>& rows) {
    using Ntt = typename Config::Ntt;
    constexpr int kRowVectors = Config::kVectors * 32;
    const std::size_t first = rows.size();
    rows.resize(first + gadget.level_count * kRowVectors);
    Digits<typename Ntt::M, gadget> digits;
    for (int level = gadget.level_count - 1; level >= 0; --level) {
        WarpOf<Config> digit;
        for (int lane = 0; lane < 32; ++lane)
            for (int r = 0; r < Ntt::P; ++r) digit.x[lane][0][r] = digits.of(accumulator.x[lane][0][r]);
        digits.next();
        digit.template forward<Config::is_small(gadget)>(table);
        digit.note_largest(largest_forward);
        for (int v = 0; v < Config::kVectors; ++v)
            for (int lane = 0; lane < 32; ++lane)
                for (int i = 0; i < 4; ++i)
                    rows[first + level * kRowVectors + v * 32 + lane].x[i] = digit.x[lane][0][Ntt::slot_of(4 * v + i)];
    }
}

template <class Config>
void product(const std::vector<Vec4>& rows, const Vec4* key, const std::uint32_t (&exponents)[Config::kKeys],
             const Powers<Config::N>& powers, WarpOf<Config>& result) {
    using Ntt = typename Config::Ntt;
    using M = typename Ntt::M;
    for (int lane = 0; lane < 32; ++lane)
        static_for<0, Config::kVectors>([&](auto vector) {
            std::int64_t total[4] = {};
            for (int j = 0; j < Config::kKeys; ++j) {
                const auto factors = MonomialFactors<Ntt>::make(exponents[j], root_of_lane(lane, 5));
                std::int32_t factor[4];
                factors.template at<decltype(vector)::value>(powers, factor);
                std::int64_t sum[4] = {};
                for (int row = 0; row < Config::kRows; ++row)
                    multiply_accumulate(sum, rows[(row * Config::kVectors + vector) * 32 + lane].x,
                                        key[((vector * Config::kRows + row) * Config::kKeys + j) * 32 + lane].x);
                multiply_reduced(M{}, total, factor, sum);
            }
            const Vec4 four = montgomery(M{}, total);
            for (int i = 0; i < 4; ++i) result.x[lane][0][Ntt::slot_of(4 * vector + i)] = four.x[i];
        });
}

// The key layout that the expansion on the device fills is the one the kernel reads.
template <class Config>
bool layout_agrees(const ParameterSet& params, std::vector<std::uint64_t> key, const std::vector<Vec4>& device_key) {
    using Ntt = typename Config::Ntt;
    using M = typename Ntt::M;
    const KeyLayout layout = KeyLayout::make(params, KeyOrder::warp, 32);
    const auto* words = reinterpret_cast<const std::int32_t*>(device_key.data());
    const std::uint64_t scale = mul_mod(pow_mod(2, 64, M::p), inverse_mod(Ntt::N, M::p), M::p);
    bool same = true;
    for (std::size_t i = 0; i < key.size() / Ntt::N; ++i) {
        forward_transform<Ntt>(key.data() + i * Ntt::N);
        const int component = i % layout.outputs, row = i / layout.outputs % layout.rows,
                  j = i / layout.outputs / layout.rows % layout.keys;
        const std::size_t step = i / layout.outputs / layout.rows / layout.keys;
        for (int position = 0; position < Ntt::N; ++position)
            same = same && words[layout.offset(step, 0, component, row, j, position)] ==
                               M::centre(mul_mod(key[i * Ntt::N + position], scale, M::p));
    }
    return same;
}

template <CmuxKind cmux, int... numbers>
bool check(int lwe_dimension, std::uint64_t seed) {
    using Config = OneLimbConfig<KernelShape<numbers..., cmux>, OneLimbLayout<1, 1, 1, 1, 1>>;
    constexpr Shape shape = Config::shape;
    using Ntt = typename Config::Ntt;
    using M = typename Ntt::M;
    constexpr int N = Config::N, k = Config::k;
    const ParameterSet params = bench_parameters(shape, lwe_dimension);
    const auto key = random_words(bootstrap_key_words(params), M::p, seed);
    const auto table = random_words(N, M::p, seed + 1);
    const auto wide = random_words(lwe_dimension + 1, 2 * N, seed + 2);
    const reference::SmallWords switched(wide.begin(), wide.end());
    const reference::Words expected = reference::blind_rotate(params, key, switched, table);

    const auto device_key = kernel_key<Config>(key);
    if (!layout_agrees<Config>(params, key, device_key)) return std::puts("the key layouts differ"), false;
    const auto twiddles = twiddle_table<Ntt>();
    const auto plain_powers = power_table<Ntt>();
    std::vector<std::int32_t> powers(Powers<N>::kWords);
    for (int x = 0; x < 2 * N; ++x) powers[Powers<N>::word_of(x)] = plain_powers[x];

    std::vector<WarpOf<Config>> accumulator(k + 1), update(k + 1);
    for (int c = 0; c <= k; ++c)
        for (int lane = 0; lane < 32; ++lane)
            for (int r = 0; r < Ntt::P; ++r) {
                const std::uint32_t index = (lane + 32 * r + switched[lwe_dimension]) % (2 * N);
                const std::uint64_t word = c < k ? 0 : table[index % N];
                accumulator[c].x[lane][0][r] = static_cast<std::int32_t>(with_half(M{}, rotated_residue(M{}, word, index >= N)));
            }
    for (int step = 0; step < params.step_count(); ++step) {
        std::vector<Vec4> rows;
        for (int c = 0; c < k; ++c) transform_rows<Config, shape.mask_gadget>(accumulator[c], twiddles.data(), rows);
        transform_rows<Config, shape.body_gadget>(accumulator[k], twiddles.data(), rows);
        std::uint32_t exponents[Config::kKeys];
        for (int j = 0; j < Config::kKeys; ++j)
            exponents[j] = params.rotation().exponent(&switched[std::size_t(step) * Config::Step::kKeyBits], j);
        for (int c = 0; c <= k; ++c) {
            product<Config>(rows, device_key.data() + std::size_t(step * (k + 1) + c) * Config::kStepVectors, exponents,
                            {powers.data()}, update[c]);
            update[c].inverse(twiddles.data());
            update[c].note_largest(largest_inverse);
            for (int lane = 0; lane < 32; ++lane)
                for (int r = 0; r < Ntt::P; ++r)
                    accumulator[c].x[lane][0][r] = static_cast<std::int32_t>(
                        accumulate_exact(M{}, static_cast<std::uint32_t>(accumulator[c].x[lane][0][r]), update[c].x[lane][0][r]));
        }
    }
    int wrong = 0;
    for (int c = 0; c <= k; ++c)
        for (int lane = 0; lane < 32; ++lane)
            for (int r = 0; r < Ntt::P; ++r)
                wrong +=
                    without_half(M{}, static_cast<std::uint32_t>(accumulator[c].x[lane][0][r])) != expected[c * N + lane + 32 * r];
    std::printf(
        "N=%d k=%d digits %d+%d %s n=%d: %d wrong words; forward bound %.2f p (seen %.2f), inverse bound %.2f p (seen %.2f)\n", N,
        k, shape.mask_gadget.level_count, shape.body_gadget.level_count, std::string(params.rotation().name).c_str(), lwe_dimension,
        wrong, Config::kForwardBound / 1000.0, double(largest_forward) / M::p,
        Ntt::template kInversePlan<Config::kInverseInput>.result / 1000.0, double(largest_inverse) / M::p);
    largest_forward = largest_inverse = 0;
    return wrong == 0;
}

}  // namespace
}  // namespace fhe_core::cuda

int main() {
    using namespace fhe_core;
    using namespace fhe_core::cuda;
    using enum CmuxKind;
    bool good = check<binary_pair, 512, 2, 1, 8, 2, 8, 2>(6, 1);
    good &= check<binary_pair, 512, 2, 1, 6, 3, 5, 3>(4, 3);
    good &= check<binary_pair, 1024, 1, 1, 5, 4, 4, 4>(4, 4);
    good &= check<binary_pair, 256, 4, 1, 8, 2, 8, 2>(4, 6);
    good &= check<block_3, 512, 2, 1, 8, 2, 7, 2>(6, 7);
    good &= check<block_6, 512, 2, 1, 5, 4, 5, 3>(12, 9);  // the inverse is planned for more than 0.7 p
#ifdef CLOAKWORK_EVERY_SHAPE
    good &= check<binary_pair, 512, 2, 1, 6, 3, 7, 2>(4, 2);
    good &= check<binary_pair, 256, 1, 1, 7, 3, 7, 3>(6, 5);
    good &= check<block_4, 1024, 1, 1, 5, 4, 5, 3>(4, 8);
#endif
    return good ? EXIT_SUCCESS : EXIT_FAILURE;
}
