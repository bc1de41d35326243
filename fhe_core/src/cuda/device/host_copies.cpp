#include "cuda/device/host_copies.hpp"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <list>
#include <mutex>
#include <system_error>
#include <thread>

namespace fhe_core::cuda {
namespace {

constexpr std::size_t kCopyPart = std::size_t{256} << 10, kPagePart = std::size_t{2} << 20;  // a huge page has one writer
constexpr std::size_t kWorthThreads = std::size_t{1} << 20, kPageBytes = 4096;
constexpr int kMostThreads = 16;
constexpr std::chrono::microseconds kWatchful{200};  // a worker looks for the next piece of a call before it sleeps

struct Copy {
    char* to;
    const char* from;  // nullptr: a zero in every page
    std::size_t bytes, part_bytes = from == nullptr ? kPagePart : kCopyPart, parts = (bytes + part_bytes - 1) / part_bytes;
    std::size_t next = 0;  // part that nobody has taken; under the lock
    std::atomic<std::size_t> done{0};

    void carry_out(std::size_t part) {
        const std::size_t first = part * part_bytes, count = std::min(part_bytes, bytes - first);
        if (from != nullptr)
            std::memcpy(to + first, from + first, count);
        else
            for (std::size_t i = 0; i < count; i += kPageBytes) to[first + i] = 0;
        done.fetch_add(1, std::memory_order_release);
    }
};

int usable_cpus() {
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : static_cast<int>(std::thread::hardware_concurrency());
}

// Threads that live as long as the process.
class CopyThreads {
   public:
    static CopyThreads& shared() {
        static auto* threads = new CopyThreads;
        return *threads;
    }

    void copy(char* to, const char* from, std::size_t bytes) {
        Copy copy{to, from, bytes};
        std::unique_lock lock(mutex_);
        const auto place = copies_.insert(copies_.end(), &copy);
        waiting_.store(copies_.size(), std::memory_order_relaxed);
        lock.unlock();
        wake_.notify_all();
        lock.lock();
        while (copy.next < copy.parts) {
            const std::size_t part = copy.next++;
            lock.unlock();
            copy.carry_out(part);
            lock.lock();
        }
        copies_.erase(place);
        waiting_.store(copies_.size(), std::memory_order_relaxed);
        lock.unlock();
        while (copy.done.load(std::memory_order_acquire) < copy.parts) std::this_thread::yield();  // a part at most
    }

   private:
    CopyThreads() {
        try {
            for (int i = 1; i < std::min(usable_cpus(), kMostThreads); ++i) std::thread([this] { work(); }).detach();
        } catch (const std::system_error&) {  // the process may have no more threads; the caller copies, too
        }
    }

    [[noreturn]] void work() {
        std::unique_lock lock(mutex_);
        for (;;) {
            const auto found =
                std::find_if(copies_.begin(), copies_.end(), [](const Copy* copy) { return copy->next < copy->parts; });
            if (found == copies_.end()) {
                lock.unlock();
                watch();
                lock.lock();
                wake_.wait(lock, [this] {
                    return std::any_of(copies_.begin(), copies_.end(), [](const Copy* copy) { return copy->next < copy->parts; });
                });
                continue;
            }
            Copy& copy = **found;
            const std::size_t part = copy.next++;
            lock.unlock();
            copy.carry_out(part);
            lock.lock();
        }
    }

    void watch() const {
        const auto until = std::chrono::steady_clock::now() + kWatchful;
        while (waiting_.load(std::memory_order_relaxed) == 0 && std::chrono::steady_clock::now() < until) std::this_thread::yield();
    }

    std::mutex mutex_;
    std::condition_variable wake_;
    std::list<Copy*> copies_;  // whose callers have parts left to take
    std::atomic<std::size_t> waiting_{0};
};

}  // namespace

void write_first(void* data, std::size_t bytes) { CopyThreads::shared().copy(static_cast<char*>(data), nullptr, bytes); }

void copy_on_host(void* to, const void* from, std::size_t bytes) {
    if (bytes < kWorthThreads)
        std::memcpy(to, from, bytes);
    else
        CopyThreads::shared().copy(static_cast<char*>(to), static_cast<const char*>(from), bytes);
}

}  // namespace fhe_core::cuda
