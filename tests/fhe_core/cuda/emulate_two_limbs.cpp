// The device functions of the two-limb blind rotation, run thread by thread on the CPU against reference::blind_rotate. Needs no
// GPU: test_emulated_kernels.py runs it.
#include "cuda/rotation/blind_rotate_two_limbs.cuh"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>

#include "host_key.hpp"
#include "reference/reference.hpp"
#include "two_limb_key.hpp"

namespace fhe_core::cuda {
namespace {

// Coefficients [step][key][row][k + 1][N] in [0, Q) -> what expand_key.cu leaves in device memory.
template <CmuxKind cmux, int N, int k, int W, TwoLimbProduct product = TwoLimbProduct::keys, int base_log = 24, int levels = 1>
bool check(int lwe_dimension, std::uint64_t seed) {
    using Config = TwoLimbConfig<KernelShape<N, k, 2, base_log, levels, base_log, levels, cmux>, 1, W, product>;
    using Thread = TwoLimbThread<Config>;
    constexpr std::uint64_t modulus = std::uint64_t{kLimbPrimes[0]} * kLimbPrimes[1];
    const ParameterSet params = bench_parameters(Config::shape, lwe_dimension);
    const auto key = random_words(bootstrap_key_words(params), modulus, seed);
    const auto table = random_words(N, modulus, seed + 1);
    const auto wide = random_words(lwe_dimension + 1, 2 * N, seed + 2);
    const reference::SmallWords switched(wide.begin(), wide.end());
    const reference::Words expected = reference::blind_rotate(params, key, switched, table);

    const std::vector<std::int32_t> key_words = two_limb_key<Config>(params, key);
    std::vector<Vec4> device_key(key_words.size() / 4);
    for (std::size_t i = 0; i < key_words.size(); ++i) device_key[i / 4].x[i % 4] = key_words[i];

    const auto tables = two_limb_tables<Config>();
    const auto plain = two_limb_powers<Config>();
    std::vector<std::int32_t> powers(Config::kPowersShared ? Config::kPowerWords : 4 * N);
    for (int x = 0; x < 4 * N; ++x) {
        const int at = x % (2 * N);
        powers[x / (2 * N) * Config::PowerTable::kWords + Config::PowerTable::word_of(at)] =
            Config::kDeep ? Thread::Factors::entry(plain[x]) : plain[x];
    }
    std::vector<Vec4> group_words(Config::kGroupWords / 4);
    auto* words = reinterpret_cast<std::int32_t*>(group_words.data());
    std::vector<Thread> threads;
    for (int t = 0; t < Config::kGroupThreads; ++t)
        threads.push_back(Thread::make(t, powers.data(), tables.data(), words, device_key.data()));
    std::vector<std::array<std::uint32_t, Config::kShare * Config::kParts * 2>> memory(Config::kGroupThreads);
    const auto share = [&](const Thread& t) ->
        typename Thread::Share& { return *reinterpret_cast<typename Thread::Share*>(memory[t.thread].data()); };
    std::int32_t x[32];
    std::int64_t largest_forward = 0, largest_inverse = 0;
    // Of one tile in `every`: all digits, or the updates, which lie where first digits lay.
    const auto largest = [&](std::int64_t& value, int every) {
        for (int tile = 0; tile < Config::kGroupWords / 1024; tile += every)
            for (int i = 0; i < 1024; ++i) value = std::max(value, std::abs(std::int64_t{words[tile * 1024 + i]}));
    };

    for (const Thread& t : threads) t.start(share(t), table.data(), switched[lwe_dimension]);
    for (int step = 0; step < params.step_count(); ++step) {
        for (const Thread& t : threads) t.decompose(share(t));
        for (int row = 0; row < Config::kRows; ++row) {
            for (const Thread& t : threads)
                if (t.number == row % W) t.forward_a(t.tile_of(row), x);
            for (const Thread& t : threads)
                if (t.number == row % W) t.forward_b(t.tile_of(row), x);
        }
        largest(largest_forward, 1);
        std::uint32_t exponents[Config::kKeys];
        for (int j = 0; j < Config::kKeys; ++j)
            exponents[j] = params.rotation().exponent(&switched[std::size_t(step) * Config::Step::kKeyBits], j);
        for (const Thread& t : threads) {
            if constexpr (Config::kDeep) {
                t.deep_product(t.deep_key(step), [&](int j) { return Thread::Factors::raised(exponents[j]); });
            } else {
                typename Thread::Ahead ahead(t.key_of(step));
                ahead.fill();
                t.product(ahead, exponents);
            }
        }
        for (int c = 0; c <= k; ++c) {
            for (const Thread& t : threads)
                if (t.number == c % W) t.inverse_a(t.update_of(c), x);
            for (const Thread& t : threads)
                if (t.number == c % W) {
                    t.inverse_slots(t.update_of(c), x);
                    Thread::Row::store_slots(x, t.update_of(c), t.lane);
                }
        }
        largest(largest_inverse, Config::kLevels);
        for (const Thread& t : threads) t.accumulate(share(t));
    }
    for (const Thread& t : threads) t.store_words(share(t));
    int wrong = 0;
    for (int i = 0; i < (k + 1) * N; ++i) wrong += reinterpret_cast<const std::uint64_t*>(words)[i] != expected[i];
    std::printf(
        "N=%d k=%d, %d digits, %d warps%s, n=%d: %d wrong words; forward bound %.2f p (seen %.2f), inverse bound %.2f p (seen "
        "%.2f)\n",
        N, k, Config::kRows, Config::kWarpsPerGroup,
        Config::kDeep        ? ", deep"
        : Config::kKeysFirst ? ", keys first"
                             : "",
        lwe_dimension, wrong, Config::kForwardBound, double(largest_forward) / Modulus<0>::p,
        Thread::Row::kPairLimit / 1000.0 / Config::kParts, double(largest_inverse) / Modulus<0>::p);
    return wrong == 0;
}

}  // namespace
}  // namespace fhe_core::cuda

int main() {
    using namespace fhe_core::cuda;
    using enum fhe_core::CmuxKind;
    constexpr TwoLimbProduct deep = TwoLimbProduct::deep;
    constexpr TwoLimbProduct keys = TwoLimbProduct::keys;
    bool good = check<binary_pair, 2048, 1, 2>(4, 2);
    good &= check<binary_pair, 1024, 2, 3>(4, 5);
    good &= check<binary_pair, 4096, 1, 2>(2, 8);
    good &= check<binary_pair, 2048, 1, 2, deep>(4, 9);
    good &= check<block_4, 2048, 1, 4, deep>(8, 11);
    good &= check<block_6, 1024, 2, 1, deep>(12, 13);
    good &= check<binary_pair, 2048, 1, 2, keys, 16, 2>(4, 17);
    good &= check<block_4, 2048, 1, 2, keys, 18, 2>(8, 20);
    good &= check<ternary, 2048, 1, 2, keys, 17, 3>(3, 21);
#ifdef CLOAKWORK_EVERY_SHAPE
    good &= check<binary_pair, 2048, 1, 1>(4, 1);
    good &= check<binary_pair, 2048, 1, 4>(4, 3);
    good &= check<binary_pair, 1024, 2, 1>(4, 4);
    good &= check<binary_pair, 1024, 2, 4>(4, 6);
    good &= check<binary_pair, 4096, 1, 1>(2, 7);
    good &= check<block_3, 2048, 1, 2, deep>(6, 10);
    good &= check<block_6, 2048, 1, 2, deep>(12, 12);
    good &= check<block_4, 1024, 2, 4, deep>(8, 14);
    good &= check<block_3, 4096, 1, 2, deep>(3, 15);
    good &= check<binary_pair, 2048, 1, 1, keys, 16, 2>(4, 16);
    good &= check<binary_pair, 2048, 1, 4, keys, 17, 2>(4, 18);
    good &= check<binary_pair, 1024, 2, 2, keys, 13, 2>(4, 19);
    good &= check<ternary, 2048, 1, 4, keys, 13, 4>(3, 22);
#endif
    return good ? EXIT_SUCCESS : EXIT_FAILURE;
}
