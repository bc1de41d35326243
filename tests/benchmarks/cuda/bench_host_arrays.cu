// What bounds a linear layer on arrays of the host: the link each way and both ways at once, copies into page-locked memory by
// several threads, words packed to 27 bits on the way, fresh pages; and the whole path with a product's place taken by a copy on
// the device. 64 samples of 1024 ciphertexts of 1025 words go in, as many come out: 268.7 MB each way, 2.75e11 byte products.
#include <cuda_runtime.h>
#include <emmintrin.h>
#include <sys/mman.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "core/vector_clones.hpp"
#include "cuda/device/host_memory.hpp"
#include "device_array.hpp"

namespace {

using fhe_core::cuda::require;
using Clock = std::chrono::steady_clock;

constexpr std::size_t kSample = std::size_t{1024} * 1025 * 4, kSamples = 64, kBytes = kSample * kSamples;
constexpr double kProducts = 1024.0 * 1024 * 1025 * 64 * 4;

double milliseconds(const std::function<void()>& work, int repetitions = 5) {
    std::vector<double> times;
    for (int i = 0; i <= repetitions; ++i) {
        const auto start = Clock::now();
        work();
        times.push_back(std::chrono::duration<double, std::milli>(Clock::now() - start).count());
    }
    std::sort(times.begin() + 1, times.end());
    return times[1 + repetitions / 2];
}

// Workers that wait for the next job spinning for a while.
class Workers {
   public:
    explicit Workers(int threads) {
        for (int i = 1; i < threads; ++i) workers_.emplace_back([this] { work(); });
    }
    ~Workers() {
        {
            const std::lock_guard lock(mutex_);
            stop_ = true;
            ++job_;
        }
        wake_.notify_all();
        for (auto& worker : workers_) worker.join();
    }
    // body(i) for i < count, on all threads; returns when all are done.
    void run(std::size_t count, const std::function<void(std::size_t)>& body) {
        {
            const std::lock_guard lock(mutex_);
            body_ = &body;
            count_ = count;
            next_ = 0;
            left_ = static_cast<int>(workers_.size());
            ++job_;
        }
        wake_.notify_all();
        for (std::size_t i; (i = next_.fetch_add(1)) < count;) body(i);
        while (left_.load() != 0) _mm_pause();
    }

   private:
    void work() {
        std::uint64_t seen = 0;
        for (;;) {
            for (int spin = 0; spin < 20000 && job_.load() == seen; ++spin) _mm_pause();
            if (job_.load() == seen) {
                std::unique_lock lock(mutex_);
                wake_.wait(lock, [&] { return job_.load() != seen; });
            }
            {
                const std::lock_guard lock(mutex_);
                seen = job_.load();
                if (stop_) return;
            }
            for (std::size_t i; (i = next_.fetch_add(1)) < count_;) (*body_)(i);
            left_.fetch_sub(1);
        }
    }
    std::vector<std::thread> workers_;
    std::mutex mutex_;
    std::condition_variable wake_;
    std::atomic<std::uint64_t> job_{0};
    std::atomic<std::size_t> next_{0};
    std::atomic<int> left_{0};
    std::size_t count_ = 0;
    const std::function<void(std::size_t)>* body_ = nullptr;
    bool stop_ = false;
};

void stream_copy(void* to, const void* from, std::size_t bytes) {  // past the caches; 64-byte multiples, aligned target
    auto* out = static_cast<__m128i*>(to);
    const auto* in = static_cast<const __m128i*>(from);
    for (std::size_t i = 0; i < bytes / 16; i += 4) {
        const __m128i a = _mm_loadu_si128(in + i), b = _mm_loadu_si128(in + i + 1), c = _mm_loadu_si128(in + i + 2),
                      d = _mm_loadu_si128(in + i + 3);
        _mm_stream_si128(out + i, a);
        _mm_stream_si128(out + i + 1, b);
        _mm_stream_si128(out + i + 2, c);
        _mm_stream_si128(out + i + 3, d);
    }
    _mm_sfence();
}

// 7 words of 27 bits in 6 of 32: [block][7][1024] -> [block][6][1024]
constexpr std::size_t kLanes = 1024;
FHE_CORE_VECTOR_CLONES void pack(std::uint32_t* to, const std::uint32_t* from) {
    const std::uint32_t* const extra = from + 6 * kLanes;
    for (int j = 0; j < 6; ++j)
        for (std::size_t l = 0; l < kLanes; ++l) to[j * kLanes + l] = from[j * kLanes + l] | (extra[l] >> (5 * j) & 31) << 27;
}
FHE_CORE_VECTOR_CLONES void unpack(std::uint32_t* to, const std::uint32_t* from) {
    std::uint32_t* const extra = to + 6 * kLanes;
    for (std::size_t l = 0; l < kLanes; ++l) extra[l] = from[l] >> 27;
    for (int j = 1; j < 6; ++j)
        for (std::size_t l = 0; l < kLanes; ++l) extra[l] |= from[j * kLanes + l] >> 27 << (5 * j);
    for (int j = 0; j < 6; ++j)
        for (std::size_t l = 0; l < kLanes; ++l) to[j * kLanes + l] = from[j * kLanes + l] & ((1u << 27) - 1);
}

struct Memory {
    char *pageable, *pinned_in, *pinned_out, *staging_in, *staging_out, *device_in, *device_out;
    cudaStream_t up, down, compute;
};

void show(const char* what, double ms, double bytes) {
    std::printf("%-72s %8.3f ms %7.1f GB/s\n", what, ms, bytes / ms / 1e6);
    std::fflush(stdout);
}

void links(const Memory& m) {
    for (const std::size_t piece : {kBytes, std::size_t{32} << 20, std::size_t{8} << 20, std::size_t{2} << 20}) {
        const auto copies = [&](bool in, bool out) {
            for (std::size_t at = 0; at < kBytes; at += piece) {
                const std::size_t bytes = std::min(piece, kBytes - at);
                if (in) cudaMemcpyAsync(m.device_in + at, m.pinned_in + at, bytes, cudaMemcpyHostToDevice, m.up);
                if (out) cudaMemcpyAsync(m.pinned_out + at, m.device_out + at, bytes, cudaMemcpyDeviceToHost, m.down);
            }
            require(cudaDeviceSynchronize(), "copies");
        };
        std::printf("pieces of %zu MiB\n", piece >> 20);
        show("  to the device", milliseconds([&] { copies(true, false); }), kBytes);
        show("  from the device", milliseconds([&] { copies(false, true); }), kBytes);
        show("  both ways at once (each way)", milliseconds([&] { copies(true, true); }), kBytes);
    }
}

void threads(const Memory& m) {
    for (const int count : {1, 2, 4, 8, 12, 16}) {
        Workers workers(count);
        constexpr std::size_t kPart = std::size_t{512} << 10;
        const auto parts = [&](const std::function<void(std::size_t)>& body) {
            workers.run(kBytes / kPart, [&](std::size_t i) { body(i * kPart); });
        };
        std::printf("%d threads\n", count);
        show("  ordinary -> page-locked, memcpy",
             milliseconds([&] { parts([&](std::size_t at) { std::memcpy(m.staging_in + at, m.pageable + at, kPart); }); }), kBytes);
        show("  the same past the caches",
             milliseconds([&] { parts([&](std::size_t at) { stream_copy(m.staging_in + at, m.pageable + at, kPart); }); }), kBytes);
        show("  into 32 MiB again and again, memcpy", milliseconds([&] {
                 parts([&](std::size_t at) { std::memcpy(m.staging_in + at % (32 << 20), m.pageable + at, kPart); });
             }),
             kBytes);
        constexpr std::size_t kBlocks = kBytes / 4 / (7 * kLanes);
        const auto blocks = [&](const std::function<void(std::size_t)>& body) {
            workers.run(kBlocks / 16, [&](std::size_t i) {
                for (std::size_t b = 16 * i; b < 16 * i + 16; ++b) body(b);
            });
        };
        const auto word = [](char* p, std::size_t at) { return reinterpret_cast<std::uint32_t*>(p) + at; };
        show("  packed 7 words in 6, whole array", milliseconds([&] {
                 blocks([&](std::size_t b) { pack(word(m.staging_in, b * 6 * kLanes), word(m.pageable, b * 7 * kLanes)); });
             }),
             kBytes);
        show("  packed into 32 MiB again and again", milliseconds([&] {
                 blocks([&](std::size_t b) { pack(word(m.staging_in, b % 1024 * 6 * kLanes), word(m.pageable, b * 7 * kLanes)); });
             }),
             kBytes);
        show("  unpacked from 32 MiB again and again", milliseconds([&] {
                 blocks(
                     [&](std::size_t b) { unpack(word(m.pinned_out, b * 7 * kLanes), word(m.staging_in, b % 1024 * 6 * kLanes)); });
             }),
             kBytes);
    }
}

// The path of a call: pieces go up, the device works, pieces come down. `in`, `out`: 0 page-locked array, 1 ordinary array through
// staging, 2 packed through staging.
void path(const Memory& m, int threads, std::size_t piece, int in, int out) {
    Workers workers(threads);
    constexpr int kSlots = 4;
    const std::size_t pieces = (kBytes + piece - 1) / piece;
    cudaEvent_t up[kSlots], done[kSlots], down[kSlots];
    for (int i = 0; i < kSlots; ++i)
        for (cudaEvent_t* e : {&up[i], &done[i], &down[i]}) require(cudaEventCreateWithFlags(e, cudaEventDisableTiming), "event");
    constexpr std::size_t kPart = 7 * kLanes * 4 * 8;  // 229,376
    const auto wire = [](int how, std::size_t bytes) { return how == 2 ? bytes / 7 * 6 : bytes; };
    const auto host_part = [&](int how, bool upwards, char* staging, char* array, std::size_t bytes) {
        workers.run((bytes + kPart - 1) / kPart, [&](std::size_t i) {
            const std::size_t at = i * kPart, count = std::min(kPart, bytes - at);
            if (how == 1) {
                std::memcpy(upwards ? staging + at : array + at, upwards ? array + at : staging + at, count);
                return;
            }
            for (std::size_t b = 0; b + 7 * kLanes * 4 <= count; b += 7 * kLanes * 4) {
                auto* const packed = reinterpret_cast<std::uint32_t*>(staging + (at + b) / 7 * 6);
                auto* const words = reinterpret_cast<std::uint32_t*>(array + at + b);
                upwards ? pack(packed, words) : unpack(words, packed);
            }
        });
    };
    const double ms = milliseconds(
        [&] {
            const auto finish = [&](std::size_t p) {
                const int slot = static_cast<int>(p % kSlots);
                const std::size_t bytes = std::min(piece, kBytes - p * piece);
                require(cudaEventSynchronize(down[slot]), "down");
                host_part(out, false, m.staging_out + slot * piece, m.pinned_out + p * piece, bytes);
            };
            for (std::size_t p = 0; p < pieces; ++p) {
                const int slot = static_cast<int>(p % kSlots);
                const std::size_t at = p * piece, bytes = std::min(piece, kBytes - at);
                char* source = m.pinned_in + at;
                if (in != 0) {
                    if (p >= kSlots) require(cudaEventSynchronize(up[slot]), "up");
                    host_part(in, true, m.staging_in + slot * piece, m.pageable + at, bytes);
                    source = m.staging_in + slot * piece;
                }
                cudaMemcpyAsync(m.device_in + at, source, wire(in, bytes), cudaMemcpyHostToDevice, m.up);
                cudaEventRecord(up[slot], m.up);
                cudaStreamWaitEvent(m.compute, up[slot], 0);
                cudaMemcpyAsync(m.device_out + at, m.device_in + at, bytes, cudaMemcpyDeviceToDevice, m.compute);
                cudaEventRecord(done[slot], m.compute);
                cudaStreamWaitEvent(m.down, done[slot], 0);
                if (out != 0 && p >= kSlots) finish(p - kSlots);
                cudaMemcpyAsync(out == 0 ? m.pinned_out + at : m.staging_out + slot * piece, m.device_out + at, wire(out, bytes),
                                cudaMemcpyDeviceToHost, m.down);
                cudaEventRecord(down[slot], m.down);
            }
            if (out != 0)
                for (std::size_t p = pieces < kSlots ? 0 : pieces - kSlots; p < pieces; ++p) finish(p);
            require(cudaDeviceSynchronize(), "path");
        },
        7);
    const char* names[] = {"page-locked", "ordinary, staged", "packed"};
    std::printf("%2d threads, pieces of %4zu KiB, in %-16s out %-16s: %7.3f ms = %5.1f T\n", threads, piece >> 10, names[in],
                names[out], ms, kProducts / ms / 1e9);
    std::fflush(stdout);
}

char* fresh(bool huge) {
    void* data = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (huge) madvise(data, kBytes, MADV_HUGEPAGE);
    return static_cast<char*>(data);
}

void pages() {
    for (const bool huge : {false, true})
        for (const int count : {1, 16}) {
            Workers workers(count);
            double best = 1e9;
            for (int i = 0; i < 3; ++i) {
                char* data = fresh(huge);
                const auto start = Clock::now();
                workers.run(kBytes >> 19, [&](std::size_t part) { std::memset(data + (part << 19), 1, 1 << 19); });
                best = std::min(best, std::chrono::duration<double, std::milli>(Clock::now() - start).count());
                munmap(data, kBytes);
            }
            std::printf("first write to %s pages by %2d threads: ", huge ? "huge" : "ordinary", count);
            show("", best, kBytes);
        }
    char* data = fresh(false);
    std::memset(data, 1, kBytes);
    const double ms = milliseconds(
        [&] {
            require(cudaHostRegister(data, kBytes, cudaHostRegisterDefault), "register");
            require(cudaHostUnregister(data), "unregister");
        },
        2);
    show("page-locking and unlocking of an ordinary array", ms, kBytes);
    void* locked = nullptr;
    show("cudaMallocHost and cudaFreeHost",
         milliseconds(
             [&] {
                 require(cudaMallocHost(&locked, kBytes), "cudaMallocHost");
                 require(cudaFreeHost(locked), "cudaFreeHost");
             },
             2),
         kBytes);
    munmap(data, kBytes);
    using fhe_core::cuda::allocate_locked, fhe_core::cuda::free_locked;
    const auto had_and_freed = [] { free_locked(allocate_locked(kBytes)); };
    show("the engine's page-locked memory, had and freed", milliseconds(had_and_freed, 3), kBytes);
    locked = allocate_locked(kBytes);
    void* device = nullptr;
    require(cudaMalloc(&device, kBytes), "memory");
    for (const bool up : {true, false}) {
        const auto copy = [&] {
            require(cudaMemcpyAsync(up ? device : locked, up ? locked : device, kBytes, cudaMemcpyDefault, nullptr), "copy");
            require(cudaDeviceSynchronize(), "copy");
        };
        show(up ? "the same, to the device" : "the same, from the device", milliseconds(copy, 7), kBytes);
    }
    free_locked(locked);
    cudaFree(device);
}

}  // namespace

int main() {
    Memory m{};
    m.pageable = fresh(false);
    std::memset(m.pageable, 3, kBytes);
    for (char** locked : {&m.pinned_in, &m.pinned_out, &m.staging_in, &m.staging_out}) {
        require(cudaMallocHost(reinterpret_cast<void**>(locked), kBytes), "page-locked memory");
        std::memset(*locked, 5, kBytes);
    }
    require(cudaMalloc(reinterpret_cast<void**>(&m.device_in), kBytes), "memory");
    require(cudaMalloc(reinterpret_cast<void**>(&m.device_out), kBytes), "memory");
    for (cudaStream_t* stream : {&m.up, &m.down, &m.compute})
        require(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking), "stream");
    std::printf("%u CPUs\n", std::thread::hardware_concurrency());
    links(m);
    threads(m);
    const std::size_t unit = 7 * kLanes * 4;
    for (const std::size_t piece : {unit * 128, unit * 256, unit * 512})
        for (const auto [in, out] : {std::pair{0, 0}, std::pair{1, 0}, std::pair{2, 0}, std::pair{2, 2}, std::pair{1, 1}})
            for (const int count : {4, 8, 15})
                if (in + out > 0 || count == 4) path(m, count, piece, in, out);
    pages();
    return EXIT_SUCCESS;
}
