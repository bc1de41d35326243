#include "cuda/transform/large_ntt_launch.hpp"

#include <deque>
#include <span>

#include "cuda/device/device_memory.hpp"
#include "cuda/stages/stages.hpp"
#include "cuda/transform/large_ntt.hpp"

namespace fhe_core::cuda {

struct LargeNtt::State {
    LargeNttLayout layout;
    std::size_t prime_count;
    DeviceArray primes, roots;  // as words
    int multiprocessors;

    cudaStream_t stream() const { return DevicePool::of(roots.device()).exchange(); }
    StreamHandle handle() const { return exchange_stream(roots.device()); }

    LargeNttArguments arguments(const DeviceArray& in, const DeviceArray& out) const {
        return {layout,
                static_cast<const LargePrime*>(primes.data()),
                static_cast<const Root*>(roots.data()),
                prime_count,
                static_cast<std::size_t>(in.shape()[0]),
                static_cast<const std::uint32_t*>(in.data()),
                static_cast<std::uint32_t*>(out.data()),
                multiprocessors};
    }

    DeviceArray result_of(const DeviceArray& words) const {
        DeviceArray out = DeviceArray::allocate(words.device(), words.shape(), 4, handle(), "transform");
        words.wait_in(handle());
        return out;
    }

    void check_words(const DeviceArray& words) const {
        const DeviceArray flag = DeviceArray::allocate(words.device(), {1}, 4, handle(), "check of words");
        check(cudaMemsetAsync(flag.data(), 0, 4, stream()), "check of words");
        words.wait_in(handle());
        launch_large_range_check(arguments(words, words), static_cast<std::uint32_t*>(flag.data()), stream());
        words.record_read(handle());
        flag.record_write(handle());
        std::uint32_t outside = 0;
        flag.download(&outside);
        if (outside != 0) throw ShapeError("words: expected every word below its prime, found one that is not; reduce the input");
    }
};

namespace {

template <class T>
DeviceArray uploaded(std::span<const T> values, int device) {
    static_assert(sizeof(T) % 4 == 0);
    return DeviceArray::upload(device, values.data(), {static_cast<std::int64_t>(values.size_bytes() / 4)}, 4);
}

}  // namespace

LargeNtt::LargeNtt(const LargeNttTables& tables, int device) {
    DeviceArray primes = uploaded(tables.all_primes(), device);
    const DeviceGuard guard(device);
    launch_probe();
    int multiprocessors = 0;
    check(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device), "query of the device");
    state_ = std::make_unique<State>(
        State{tables.layout(), tables.prime_count(), std::move(primes), uploaded(tables.all_roots(), device), multiprocessors});
}

LargeNtt::~LargeNtt() = default;

int LargeNtt::device() const { return state_->roots.device(); }

DeviceArray LargeNtt::transform(const DeviceArray& words, bool inverse) const {
    const DeviceGuard guard(device());
    state_->check_words(words);
    DeviceArray out = state_->result_of(words);
    launch_large_ntt(state_->arguments(words, out), inverse, state_->stream());
    words.record_read(state_->handle());
    out.record_write(state_->handle());
    return out;
}

std::vector<double> LargeNtt::seconds(const DeviceArray& words, bool inverse, int calls, int repeats) const {
    const DeviceGuard guard(device());
    state_->check_words(words);
    const DeviceArray out = state_->result_of(words);
    const cudaStream_t stream = state_->stream();
    std::deque<Event> marks;
    marks.emplace_back(true).record(stream);
    for (int repeat = 0; repeat < repeats; ++repeat) {
        for (int call = 0; call < calls; ++call) launch_large_ntt(state_->arguments(words, out), inverse, stream);
        marks.emplace_back(true).record(stream);
    }
    words.record_read(state_->handle());
    out.record_write(state_->handle());
    marks.back().synchronize();
    std::vector<double> seconds;
    for (std::size_t i = 1; i < marks.size(); ++i) seconds.push_back(marks[i].seconds_since(marks[i - 1]) / calls);
    return seconds;
}

}  // namespace fhe_core::cuda
