// A batch shared among threads: contiguous shares, the calling thread works on the first and is the only one that reports progress.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "core/backend.hpp"
#include "core/errors.hpp"

namespace fhe_core::cpu {

// Counts finished work of all threads, calls the progress function on the calling thread at most every 50 ms, spreads a cancel.
class Monitor {
   public:
    Monitor(const Progress& progress, std::size_t total) : progress_(progress), total_(total), owner_(std::this_thread::get_id()) {}

    // Adds finished work; throws CancelledError in every thread once the call is to stop.
    void advance(std::size_t work) {
        const std::size_t done = done_.fetch_add(work) + work;
        if (stop_.load(std::memory_order_relaxed)) throw CancelledError("the call was cancelled; no result was written");
        if (!progress_ || std::this_thread::get_id() != owner_) return;
        const auto now = std::chrono::steady_clock::now();
        if (done < total_ && now - last_ < std::chrono::milliseconds(50)) return;
        last_ = now;
        if (!progress_(done, total_)) {
            stop_ = true;
            throw CancelledError("the call was cancelled; no result was written");
        }
    }
    void stop() { stop_ = true; }

   private:
    const Progress& progress_;
    std::size_t total_;
    std::thread::id owner_;
    std::atomic<std::size_t> done_{0};
    std::atomic<bool> stop_{false};
    std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

// Calls body(first, last) for contiguous shares of [0, count) on up to `threads` threads; the first exception is rethrown here.
template <class Body>
void parallel_shares(std::size_t count, int threads, Monitor& monitor, const Body& body) {
    const std::size_t shares = count < std::size_t(threads) ? count : std::size_t(threads);
    if (shares == 0) return;
    std::exception_ptr error;
    std::mutex error_mutex;
    const auto run = [&](std::size_t share) {
        try {
            body(count * share / shares, count * (share + 1) / shares);
        } catch (...) {
            monitor.stop();
            const std::lock_guard lock(error_mutex);
            if (!error) error = std::current_exception();
        }
    };
    std::vector<std::jthread> workers;
    workers.reserve(shares - 1);
    for (std::size_t share = 1; share < shares; ++share) workers.emplace_back(run, share);
    run(0);
    workers.clear();  // joins
    if (error) std::rethrow_exception(error);
}

}  // namespace fhe_core::cpu
