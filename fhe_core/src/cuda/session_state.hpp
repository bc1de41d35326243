// A session's streams, scratch and memory plan: batches cut into pieces that fit the device, copies overlapped with work.
#pragma once

#include <algorithm>
#include <cstring>
#include <mutex>
#include <string>
#include <vector>

#include "core/errors.hpp"
#include "cuda/device/device_memory.hpp"
#include "cuda/device/host_copies.hpp"
#include "cuda/device_cache.hpp"
#include "cuda/expanded_key.hpp"
#include "cuda/linear/int8_gemm.hpp"
#include "cuda/stages/rows.hpp"

namespace fhe_core::cuda {

inline constexpr std::size_t kMostItems = std::size_t{1} << 20;

inline const char* at(const void* base, std::size_t bytes) { return static_cast<const char*>(base) + bytes; }
inline char* at(void* base, std::size_t bytes) { return static_cast<char*>(base) + bytes; }

struct Input {
    const void* data;
    std::size_t item_bytes;
    const char* name = "";
    std::uint64_t bound = 0;  // words of host memory must be below it; 0: not checked
    int word_bytes = 4;
};

// One call: arrays of `batch` items in, one out, each on the host or on the session's device.
struct Job {
    const char* name;
    std::size_t batch;
    Input inputs[2];  // the second may be empty
    void* out;
    std::size_t out_bytes;      // of an item
    std::size_t scratch_bytes;  // of an item, on the device
    std::size_t preferred;      // items of a piece
};

struct CudaBackend::State {
    State(const ExpandedKey::State& expanded, std::size_t limit, std::optional<StreamHandle> stream)
        : key(expanded),
          memory_limit(limit),
          linear_kernel(chosen_linear_kernel(expanded.device)),
          compute(compute_stream(stream)) {}

    const ExpandedKey::State& key;
    const std::size_t memory_limit;
    const LinearKernel linear_kernel;
    std::mutex mutex;
    std::string failure;  // of the device, for good
    Stream compute, upload, download;
    Int8Gemm gemm;
    DeviceCache resident;

    // Pieces in flight: one on each way, one at work, one that the host copies.
    static constexpr std::size_t kSlots = 4;
    struct Slot {
        PinnedBuffer pinned_in[2], pinned_out;
        DeviceBuffer in[2], out;
        Event uploaded, computed, downloaded;
        Event started{true}, switched{true}, rotated{true};
        bool timed = false;
        std::size_t first = 0, count = 0;  // items that the host is still to fetch or to report
    } slots[kSlots];
    std::size_t current = 0;  // slot of the piece being enqueued
    DeviceBuffer digits, sums, bodies, few_counters, small, glwe, rotation_scratch, linear_bytes, outside;
    PinnedBuffer outside_on_host;
    StageSeconds seconds{};

    const ParameterSet& params() const { return key.params; }
    std::size_t lwe_bytes() const { return params().large_words() * params().word_bytes(); }
    std::size_t small_bytes() const { return std::size_t(params().small_words()) * 4; }
    std::size_t glwe_bytes() const { return rotated_bytes() / params().extension_factor(); }
    std::size_t rotated_bytes() const { return params().rotated_words() * params().word_bytes(); }
    Input words(const void* data, std::size_t item_bytes, const char* name) const {
        return {data, item_bytes, name, params().modulus(), static_cast<int>(params().word_bytes())};
    }

    // --- Calls ---

    template <class F>
    void guarded(F&& f) {
        const std::lock_guard lock(mutex);
        if (!failure.empty())
            throw DeviceError("this session's device failed earlier (" + failure +
                              "); make a new session, in a new process if that fails too");
        const DeviceGuard guard(key.device);
        try {
            f();
        } catch (const OutOfDeviceMemory&) {
            abandon();
            resident.clear();
            throw;
        } catch (const DeviceError& error) {
            failure = error.what();
            abandon();
            throw;
        } catch (...) {
            abandon();
            throw;
        }
    }

    // Nothing is in flight afterwards.
    void abandon() noexcept {
        for (const Stream* stream : {&upload, &compute, &download}) cudaStreamSynchronize(*stream);
        for (Slot& slot : slots) slot.count = 0, slot.timed = false;
    }

    // enqueue(first, count, in, out) puts the work of a piece on `compute`.
    template <class Enqueue>
    void run(const Job& job, const Progress& progress, Enqueue&& enqueue) {
        Call call = start(job, progress);
        const std::size_t piece = plan(call);
        const std::size_t copied = job.batch * (job.inputs[0].item_bytes + job.inputs[1].item_bytes + job.out_bytes);
        call.is_one_piece = piece >= job.batch && copied <= kSmallCopy;
        for (std::size_t first = 0, number = 0; first < job.batch; first += piece, ++number) {
            current = number % kSlots;
            Slot& slot = slots[current];
            fetch(slot, call);
            const std::size_t count = std::min(piece, job.batch - first);
            const void* in[2] = {put_in(slot, call, 0, first, count), put_in(slot, call, 1, first, count)};
            if (!call.is_one_piece) slot.uploaded.wait_in(compute);
            if (call.out == Place::device) {
                enqueue(first, count, in, at(job.out, first * job.out_bytes));
            } else {
                slot.out.reserve(count * job.out_bytes, job.name);
                enqueue(first, count, in, slot.out.data());
            }
            slot.computed.record(compute);
            slot.first = first;
            slot.count = count;
            if (call.out != Place::device) start_download(slot, call);
        }
        const std::size_t pieces = (job.batch + piece - 1) / piece;
        for (std::size_t i = 0; i < kSlots; ++i) fetch(slots[(pieces + i) % kSlots], call);
        finish(call);
    }

   private:
    static constexpr std::size_t kPieceBytes = std::size_t{48} << 20;   // of one input or output buffer
    static constexpr std::size_t kCopiedBytes = std::size_t{12} << 20;  // the same where the device has less to do than the link
    static constexpr std::size_t kSmallCopy = std::size_t{1} << 20;
    static constexpr std::size_t kSmallBytes = std::size_t{32} << 20;    // of a call: not worth asking how much memory is free
    static constexpr std::size_t kCheckedOnHost = std::size_t{1} << 16;  // words: a kernel for fewer costs more

    struct Call {
        const Job& job;
        const Progress& progress;
        Place in[2], out;
        bool checked_on_device;
        bool is_one_piece;  // and a small one: all of it is on `compute`, streams that wait for each other cost more than they gain
    };

    static Stream compute_stream(std::optional<StreamHandle> stream) {
        if (!stream) return Stream();
        const auto handle = reinterpret_cast<cudaStream_t>(*stream);
        const cudaError_t status = cudaStreamQuery(handle);
        if (status != cudaErrorNotReady) check(status, "stream of the session");
        return Stream(handle);
    }

    Call start(const Job& job, const Progress& progress) {
        Call call{job, progress, {Place::device, Place::device}, place_of(job.out, key.device), false, false};
        for (int i = 0; i < 2; ++i) {
            const Input& input = job.inputs[i];
            if (input.item_bytes == 0) continue;
            call.in[i] = place_of(input.data, key.device);
            if (call.in[i] == Place::device || input.bound == 0) continue;
            const std::size_t count = job.batch * input.item_bytes / input.word_bytes;
            if (count > kCheckedOnHost)
                call.checked_on_device = true;
            else
                check_on_host(input, count);
        }
        if (call.checked_on_device) {
            outside.reserve(4, job.name);
            check(cudaMemsetAsync(outside.data(), 0, 4, compute), job.name);
        }
        return call;
    }

    static void check_on_host(const Input& input, std::size_t count) {
        const auto is_outside = [&](auto word) { return word >= input.bound; };
        const bool found = input.word_bytes == 4 ? std::any_of(static_cast<const std::uint32_t*>(input.data),
                                                               static_cast<const std::uint32_t*>(input.data) + count, is_outside)
                                                 : std::any_of(static_cast<const std::uint64_t*>(input.data),
                                                               static_cast<const std::uint64_t*>(input.data) + count, is_outside);
        if (found) refuse(input);
    }

    [[noreturn]] static void refuse(const Input& input) {
        throw ShapeError(std::string(input.name) + ": expected every value in [0, " + std::to_string(input.bound) +
                         "), found a value outside; reduce the input, or check that it belongs to this parameter set");
    }

    // --- Memory plan ---

    std::size_t held_bytes() const {
        std::size_t bytes = 0;
        for (const DeviceBuffer* buffer : {&digits, &sums, &bodies, &small, &glwe, &rotation_scratch, &linear_bytes})
            bytes += buffer->bytes();
        for (const Slot& slot : slots) bytes += slot.in[0].bytes() + slot.in[1].bytes() + slot.out.bytes();
        return bytes;
    }

    // Items of a piece such that all slots and the scratch fit. Operands on the device are there already.
    std::size_t plan(const Call& call) const {
        const Job& job = call.job;
        std::size_t largest = call.out == Place::device ? 0 : job.out_bytes, buffers = largest;
        for (int i = 0; i < 2; ++i) {
            if (call.in[i] == Place::device) continue;
            largest = std::max(largest, job.inputs[i].item_bytes);
            buffers += job.inputs[i].item_bytes;
        }
        const std::size_t item = std::max<std::size_t>(1, kSlots * buffers + job.scratch_bytes), wanted = item * job.batch;
        const bool is_small = wanted <= (memory_limit == 0 ? kSmallBytes : std::min(kSmallBytes, memory_limit));
        const std::size_t available = is_small ? wanted : available_bytes();
        const std::size_t fitting = available / item;
        if (fitting == 0)
            throw OutOfDeviceMemory(std::string(job.name) + ": one item needs " + mebibytes(item) + " on the device, " +
                                    mebibytes(available) +
                                    " are free; free other sessions, keys and arrays or use a device with more memory");
        const bool reports = static_cast<bool>(call.progress);
        const std::size_t most = job.preferred == kMostItems ? kCopiedBytes : kPieceBytes;
        const std::size_t by_bytes = largest == 0 ? kMostItems : std::max<std::size_t>(1, most / largest);
        const std::size_t by_waves = buffers == 0 && !reports ? kCachedPieces * job.preferred : job.preferred;
        return std::min({fitting, by_bytes, std::max<std::size_t>(by_waves, 1), kMostItems, job.batch});
    }

    static std::string mebibytes(std::size_t bytes) { return std::to_string((bytes + (1 << 20) - 1) >> 20) + " MiB"; }

   public:
    static constexpr std::size_t kCachedPieces = 4;  // pieces become so much larger when nothing is copied or reported

    std::size_t available_bytes() const {
        std::size_t free = 0, total = 0;
        check(cudaMemGetInfo(&free, &total), "memory of the device");
        const std::size_t usable = (free + DevicePool::of(key.device).idle_bytes() + held_bytes()) / 8 * 7;
        return memory_limit == 0 ? usable : std::min(usable, memory_limit);
    }

    // Time of the stages of a piece, when it has passed.
    void collect(Slot& slot) {
        if (!slot.timed) return;
        slot.rotated.synchronize();
        seconds.keyswitch += slot.switched.seconds_since(slot.started);
        seconds.blind_rotate += slot.rotated.seconds_since(slot.switched);
        slot.timed = false;
    }

   private:
    // --- Copies ---

    const void* put_in(Slot& slot, const Call& call, int i, std::size_t first, std::size_t count) {
        const Input& input = call.job.inputs[i];
        const std::size_t bytes = count * input.item_bytes;
        if (bytes == 0) return nullptr;
        const char* source = at(input.data, first * input.item_bytes);
        if (call.in[i] == Place::device) return source;
        if (call.in[i] == Place::pageable) {
            slot.uploaded.synchronize();  // of the call before
            slot.pinned_in[i].reserve(bytes);
            copy_on_host(slot.pinned_in[i].data(), source, bytes);
            source = static_cast<const char*>(slot.pinned_in[i].data());
        }
        slot.in[i].reserve(bytes, call.job.name);
        const cudaStream_t stream = call.is_one_piece ? compute : upload;
        if (!call.is_one_piece) slot.computed.wait_in(upload);  // the buffer's last use
        check(cudaMemcpyAsync(slot.in[i].data(), source, bytes, cudaMemcpyHostToDevice, stream), call.job.name);
        slot.uploaded.record(stream);
        if (call.checked_on_device && input.bound != 0) {
            if (!call.is_one_piece) slot.uploaded.wait_in(compute);
            launch_range_check(slot.in[i].data(), input.word_bytes, bytes / input.word_bytes, input.bound,
                               outside.as<std::uint32_t>(), compute);
        }
        return slot.in[i].data();
    }

    void start_download(Slot& slot, const Call& call) {
        const std::size_t bytes = slot.count * call.job.out_bytes;
        void* target = at(call.job.out, slot.first * call.job.out_bytes);
        if (call.out == Place::pageable) {
            slot.pinned_out.reserve(bytes);
            target = slot.pinned_out.data();
        }
        const cudaStream_t stream = call.is_one_piece ? compute : download;
        if (!call.is_one_piece) slot.computed.wait_in(download);
        check(cudaMemcpyAsync(target, slot.out.data(), bytes, cudaMemcpyDeviceToHost, stream), call.job.name);
        slot.downloaded.record(stream);
    }

    // Waits for a piece whose result or progress the host is to see.
    void fetch(Slot& slot, const Call& call) {
        if (slot.count == 0) return;
        const Job& job = call.job;
        const std::size_t count = slot.count, done = slot.first + count;
        slot.count = 0;
        if (call.out == Place::device) {
            if (!call.progress) return;
            slot.computed.synchronize();
        } else {
            slot.downloaded.synchronize();
            if (call.out == Place::pageable)
                copy_on_host(at(job.out, slot.first * job.out_bytes), slot.pinned_out.data(), count * job.out_bytes);
        }
        collect(slot);
        if (call.progress && !call.progress(done, job.batch)) throw CancelledError("the call was cancelled; no result was written");
    }

    void finish(const Call& call) {
        for (int i = 0; i < 2; ++i)
            if (call.out == Place::device && call.in[i] == Place::pinned)  // the caller may change it now
                for (const Slot& slot : slots) slot.uploaded.synchronize();
        if (!call.checked_on_device) return;
        outside_on_host.reserve(4);
        check(cudaMemcpyAsync(outside_on_host.data(), outside.data(), 4, cudaMemcpyDeviceToHost, compute), call.job.name);
        compute.synchronize();
        if (*static_cast<const std::uint32_t*>(outside_on_host.data()) == 0) return;
        for (const Input& input : call.job.inputs)
            if (input.bound != 0) refuse(input);
    }
};

}  // namespace fhe_core::cuda
