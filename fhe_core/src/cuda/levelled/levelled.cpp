#include "cuda/levelled/levelled_launch.hpp"

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "core/modular.hpp"
#include "cuda/device/device_memory.hpp"
#include "cuda/levelled/levelled.hpp"
#include "cuda/stages/stages.hpp"
#include "cuda/transform/large_ntt_launch.hpp"

namespace fhe_core::cuda {
namespace {

constexpr std::size_t kMostWork = std::size_t{1} << 30;  // bytes of a key switching's intermediate words

using Shape = DeviceArray::Shape;

template <class T>
DeviceArray uploaded(const T* values, std::size_t count, int device) {
    static_assert(sizeof(T) % 4 == 0);
    return DeviceArray::upload(device, values, {static_cast<std::int64_t>(count * sizeof(T) / 4)}, 4);
}
template <class T>
DeviceArray uploaded(const std::vector<T>& values, int device) {
    return uploaded(values.data(), values.size(), device);
}

const std::uint32_t* in(const DeviceArray& words) { return static_cast<const std::uint32_t*>(words.data()); }
std::uint32_t* out(const DeviceArray& words) { return static_cast<std::uint32_t*>(words.data()); }

int level_of(const DeviceArray& words) { return static_cast<int>(words.shape()[words.shape().size() - 2]); }
std::size_t extent(const DeviceArray& words, std::size_t axis) { return static_cast<std::size_t>(words.shape()[axis]); }

// A base change, its words in device memory.
struct DeviceChange {
    LevelledTables::Range from;
    DeviceArray words;  // scale, matrix, divide
    std::size_t prime_count;

    DeviceChange(const BaseChange& change, int device) : from(change.from), prime_count(change.divide.size()) {
        std::vector<std::int32_t> all = change.scale;
        all.insert(all.end(), change.matrix.begin(), change.matrix.end());
        all.insert(all.end(), change.divide.begin(), change.divide.end());
        words = uploaded(all, device);
    }
    int terms() const { return from.last - from.first; }
    const std::int32_t* scale() const { return static_cast<const std::int32_t*>(words.data()); }
    const std::int32_t* matrix() const { return scale() + terms(); }
    const std::int32_t* divide() const { return matrix() + prime_count * static_cast<std::size_t>(terms()); }
};

}  // namespace

struct Levelled::State {
    std::shared_ptr<const LevelledTables> tables;
    int device, multiprocessors;
    DeviceArray primes, roots, prepare;      // as words; prepare [every prime] 2^64
    std::vector<DeviceChange> digits;        // [level - 1] of the last digit of that many primes
    std::vector<DeviceArray> raised_primes;  // [level - 1] of the rows of raised digits, digit by digit without its own primes
    DeviceChange special;
    std::mutex mutex;
    std::map<std::pair<int, int>, DeviceChange> divisions;  // by level and levels kept

    cudaStream_t stream() const { return DevicePool::of(device).exchange(); }
    StreamHandle handle() const { return exchange_stream(device); }
    std::size_t size() const { return tables->polynomial_size(); }
    int log_size() const { return tables->ntt().log_size(); }
    const LargePrime* all_primes() const { return static_cast<const LargePrime*>(primes.data()); }

    DeviceArray result(Shape shape) const {
        return DeviceArray::allocate(device, std::move(shape), 4, handle(), "levelled arithmetic");
    }
    DeviceArray work(std::size_t rows) const {
        return result({static_cast<std::int64_t>(rows), static_cast<std::int64_t>(size())});
    }
    void read(const DeviceArray& words) const { words.wait_in(handle()); }
    // Behind what was enqueued: `words` were read, `written` is there.
    void done(std::initializer_list<const DeviceArray*> words, const DeviceArray& written) const {
        for (const DeviceArray* each : words) each->record_read(handle());
        written.record_write(handle());
    }

    // `count` primes from `first`, or `numbers`, of each of `batch`.
    void transform(const std::uint32_t* from, std::uint32_t* to, std::size_t batch, int count, bool inverse, int first = 0,
                   const DeviceArray* numbers = nullptr) const {
        const LargeNttLayout layout = tables->ntt().layout();
        const auto offset = static_cast<std::size_t>(first);
        launch_large_ntt(
            {layout, all_primes() + offset, static_cast<const Root*>(roots.data()) + offset * layout.root_count(),
             static_cast<std::size_t>(count), batch, from, to, multiprocessors, numbers == nullptr ? nullptr : in(*numbers)},
            inverse, stream());
    }

    const DeviceChange& division(int level, int keep) {
        const std::lock_guard lock(mutex);
        const auto found = divisions.find({level, keep});
        if (found != divisions.end()) return found->second;
        return divisions.emplace(std::pair{level, keep}, DeviceChange(BaseChange::make(*tables, {keep, level}, true), device))
            .first->second;
    }

    // words [polynomials][keep + F][N], the primes F of the change last -> [polynomials][keep][N].
    void divide(const std::uint32_t* words, std::size_t polynomials, int keep, const DeviceChange& change,
                std::uint32_t* to) const {
        const std::size_t n = size(), dropped = static_cast<std::size_t>(change.terms()),
                          all = static_cast<std::size_t>(keep) + dropped;
        const DeviceArray coefficients = work(polynomials * dropped);
        const std::size_t width = dropped * n * sizeof *words;
        check(cudaMemcpy2DAsync(coefficients.data(), width, words + static_cast<std::size_t>(keep) * n, all * n * sizeof *words,
                                width, polynomials, cudaMemcpyDeviceToDevice, stream()),
              "division");
        transform(in(coefficients), out(coefficients), polynomials, change.terms(), true, change.from.first);
        LevelledChange lift{};
        lift.primes = all_primes();
        lift.scale = change.scale(), lift.matrix = change.matrix();
        lift.in = in(coefficients), lift.out = to;
        lift.log_size = log_size(), lift.first_prime = change.from.first, lift.terms = change.terms();
        lift.targets = lift.skip_first = lift.level = lift.out_rows = keep;
        lift.in_rows = change.terms();
        lift.items = polynomials;
        launch_levelled_change(lift, stream());
        transform(to, to, polynomials, keep, false);
        launch_levelled_scale({all_primes(), change.divide(), words, to, to, log_size(), keep, static_cast<int>(all), polynomials},
                              stream());
        coefficients.record_write(handle());
    }
};

namespace {

std::vector<std::int32_t> prepare_factors(const LevelledTables& tables) {
    std::vector<std::int32_t> factors;
    for (int i = 0; i < tables.prime_count(); ++i) factors.push_back(montgomery_factor(tables.prime(i), std::uint64_t{1} << 32));
    return factors;
}

// The primes of raised rows, in the order of LevelledSums.
std::vector<std::uint32_t> raised_primes(const LevelledTables& tables, int level) {
    std::vector<std::uint32_t> numbers;
    for (int digit = 0; digit < tables.digit_count(level); ++digit) {
        const auto own = tables.digit(digit, level);
        for (int i = 0; i < tables.prime_count(); ++i)
            if ((i < level || i >= tables.level_count()) && (i < own.first || i >= own.last))
                numbers.push_back(static_cast<std::uint32_t>(i));
    }
    return numbers;
}

}  // namespace

Levelled::Levelled(std::shared_ptr<const LevelledTables> tables, int device) {
    const auto words = tables->ntt().all_primes();
    const auto roots = tables->ntt().all_roots();
    DeviceArray primes = uploaded(words.data(), words.size(), device);
    const DeviceGuard guard(device);
    launch_probe();
    int multiprocessors = 0;
    check(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device), "query of the device");
    std::vector<DeviceChange> digits;
    std::vector<DeviceArray> raised;
    for (int level = 1; level <= tables->level_count(); ++level) {
        digits.emplace_back(BaseChange::make(*tables, tables->digit(tables->digit_count(level) - 1, level), false), device);
        raised.push_back(uploaded(raised_primes(*tables, level), device));
    }
    DeviceChange special(BaseChange::make(*tables, {tables->level_count(), tables->prime_count()}, true), device);
    DeviceArray prepare = uploaded(prepare_factors(*tables), device);
    state_.reset(new State{std::move(tables),
                           device,
                           multiprocessors,
                           std::move(primes),
                           uploaded(roots.data(), roots.size(), device),
                           std::move(prepare),
                           std::move(digits),
                           std::move(raised),
                           std::move(special),
                           {},
                           {}});
}

Levelled::~Levelled() = default;

const LevelledTables& Levelled::tables() const { return *state_->tables; }
int Levelled::device() const { return state_->device; }

DeviceArray Levelled::transform(const DeviceArray& words, bool inverse) const {
    const DeviceGuard guard(device());
    const DeviceArray result = state_->result(words.shape());
    state_->read(words);
    const int level = level_of(words);
    state_->transform(in(words), out(result), words.size() / state_->size() / static_cast<std::size_t>(level), level, inverse);
    state_->done({&words}, result);
    return result;
}

namespace {

// Rows of one level: [polynomials][level][N].
std::size_t polynomials_of(const DeviceArray& words) {
    return words.size() / (extent(words, words.shape().size() - 1) * extent(words, words.shape().size() - 2));
}

}  // namespace

DeviceArray Levelled::prepare(const DeviceArray& words) const {
    const DeviceGuard guard(device());
    const DeviceArray result = state_->result(words.shape());
    state_->read(words);
    const int level = level_of(words);
    launch_levelled_scale({state_->all_primes(), static_cast<const std::int32_t*>(state_->prepare.data()), in(words), nullptr,
                           out(result), state_->log_size(), level, level, polynomials_of(words)},
                          state_->stream());
    state_->done({&words}, result);
    return result;
}

DeviceArray Levelled::add(const DeviceArray& a, const DeviceArray& b, bool negative) const {
    const DeviceGuard guard(device());
    const DeviceArray result = state_->result(a.shape());
    state_->read(a);
    state_->read(b);
    launch_levelled_add(
        {state_->all_primes(), in(a), in(b), out(result), state_->log_size(), level_of(a), negative, polynomials_of(a)},
        state_->stream());
    state_->done({&a, &b}, result);
    return result;
}

DeviceArray Levelled::scale(const DeviceArray& words, std::int64_t factor) const {
    const DeviceGuard guard(device());
    const int level = level_of(words);
    std::vector<std::int32_t> factors;
    for (int i = 0; i < level; ++i) {
        const LargePrime& prime = tables().prime(i);
        factors.push_back(montgomery_factor(prime, residue(factor, prime.q)));
    }
    const DeviceArray by = uploaded(factors, device());
    const DeviceArray result = state_->result(words.shape());
    state_->read(words);
    state_->read(by);
    launch_levelled_scale({state_->all_primes(), static_cast<const std::int32_t*>(by.data()), in(words), nullptr, out(result),
                           state_->log_size(), level, level, polynomials_of(words)},
                          state_->stream());
    state_->done({&words, &by}, result);
    return result;
}

DeviceArray Levelled::products(const DeviceArray& words, const DeviceArray& prepared) const {
    const DeviceGuard guard(device());
    const DeviceArray result =
        state_->result({prepared.shape()[0], words.shape()[1], words.shape()[2], static_cast<std::int64_t>(state_->size())});
    state_->read(words);
    state_->read(prepared);
    launch_levelled_products({state_->all_primes(), in(words), in(prepared), out(result), state_->log_size(), level_of(words),
                              extent(prepared, 0), extent(words, 0), extent(words, 1)},
                             state_->stream());
    state_->done({&words, &prepared}, result);
    return result;
}

DeviceArray Levelled::multiply(const DeviceArray& a, const DeviceArray& b) const {
    const DeviceGuard guard(device());
    const DeviceArray result = state_->result({a.shape()[0], 3, a.shape()[2], a.shape()[3]});
    state_->read(a);
    state_->read(b);
    launch_levelled_multiply({state_->all_primes(), static_cast<const std::int32_t*>(state_->prepare.data()), in(a), in(b),
                              out(result), state_->log_size(), level_of(a), extent(a, 0)},
                             state_->stream());
    state_->done({&a, &b}, result);
    return result;
}

DeviceArray Levelled::automorphism(const DeviceArray& words, std::uint64_t g) const {
    const DeviceGuard guard(device());
    const DeviceArray result = state_->result(words.shape());
    state_->read(words);
    launch_levelled_automorphism(
        {in(words), out(result), state_->log_size(), static_cast<std::uint32_t>(g), words.size() / state_->size()},
        state_->stream());
    state_->done({&words}, result);
    return result;
}

DeviceArray Levelled::keyswitch(const DeviceArray& words, const DeviceArray& key) const {
    const DeviceGuard guard(device());
    const State& s = *state_;
    const LevelledTables& t = tables();
    const std::size_t n = s.size(), batch = extent(words, 0);
    const int level = level_of(words), special = t.special_count(), targets = level + special, digits = t.digit_count(level);
    const DeviceArray& numbers = s.raised_primes[static_cast<std::size_t>(level - 1)];
    const int raised_rows = static_cast<int>(numbers.size());
    const DeviceArray result = s.result({words.shape()[0], 2, words.shape()[1], words.shape()[2]});
    s.read(words);
    s.read(key);
    const std::size_t bytes_of_one = static_cast<std::size_t>(level + raised_rows + 2 * targets + 2 * special) * n * 4;
    const std::size_t at_once = std::clamp<std::size_t>(kMostWork / bytes_of_one, 1, batch);
    for (std::size_t first = 0; first < batch; first += at_once) {
        const std::size_t items = std::min(at_once, batch - first);
        const std::uint32_t* const from = in(words) + first * static_cast<std::size_t>(level) * n;
        std::uint32_t* const to = out(result) + first * 2 * static_cast<std::size_t>(level) * n;
        const DeviceArray sums = s.work(items * 2 * static_cast<std::size_t>(targets));
        {
            const DeviceArray coefficients = s.work(items * static_cast<std::size_t>(level)),
                              raised = s.work(items * static_cast<std::size_t>(raised_rows));
            s.transform(from, out(coefficients), items, level, true);
            for (int digit = 0, row = 0; digit < digits; ++digit) {
                const auto own = t.digit(digit, level);
                const DeviceChange& change = s.digits[static_cast<std::size_t>(own.last - 1)];
                LevelledChange raise{};
                raise.primes = s.all_primes();
                raise.scale = change.scale(), raise.matrix = change.matrix();
                raise.in = in(coefficients), raise.out = out(raised);
                raise.log_size = s.log_size(), raise.first_prime = own.first, raise.terms = change.terms();
                raise.targets = targets - change.terms();
                raise.skip_first = own.first, raise.skip_count = change.terms();
                raise.level = level, raise.gap = t.level_count() - level;
                raise.in_rows = level, raise.in_first = own.first;
                raise.out_rows = raised_rows, raise.out_first = row;
                raise.items = items;
                launch_levelled_change(raise, s.stream());
                row += raise.targets;
            }
            s.transform(in(raised), out(raised), items, raised_rows, false, 0, &numbers);
            launch_levelled_sums({s.all_primes(), from, in(raised), in(key), out(sums), s.log_size(), level, special,
                                  t.prime_count(), digits, t.digit_primes(), raised_rows, items},
                                 s.stream());
            coefficients.record_write(s.handle());
            raised.record_write(s.handle());
        }
        s.divide(in(sums), items * 2, level, s.special, to);
        sums.record_write(s.handle());
    }
    s.done({&words, &key}, result);
    return result;
}

DeviceArray Levelled::modulus_switch(const DeviceArray& words, int keep) const {
    const DeviceGuard guard(device());
    const DeviceChange& change = state_->division(level_of(words), keep);
    const DeviceArray result = state_->result({words.shape()[0], keep, words.shape()[2]});
    state_->read(words);
    state_->divide(in(words), extent(words, 0), keep, change, out(result));
    state_->done({&words}, result);
    return result;
}

DeviceArray Levelled::part(const DeviceArray& words, int number) const {
    const DeviceGuard guard(device());
    const DeviceArray result = state_->result({words.shape()[0], words.shape()[2], words.shape()[3]});
    const std::size_t width = extent(words, 2) * extent(words, 3) * sizeof(std::uint32_t);
    state_->read(words);
    check(cudaMemcpy2DAsync(result.data(), width, static_cast<const char*>(words.data()) + static_cast<std::size_t>(number) * width,
                            extent(words, 1) * width, width, extent(words, 0), cudaMemcpyDeviceToDevice, state_->stream()),
          "levelled arithmetic");
    state_->done({&words}, result);
    return result;
}

}  // namespace fhe_core::cuda
