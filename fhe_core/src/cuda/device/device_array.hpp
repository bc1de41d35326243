// Words in the memory of a CUDA device as a value: reference counted, C-contiguous, ordered between streams by events. No CUDA
// header is needed to use it.
//
// Whoever writes an array records an event behind the write, whoever reads it waits for that event in its own stream, and memory is
// freed (in stream order) behind every recorded use, so that no call has to wait for another on the host.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/chacha20.hpp"
#include "core/parameters.hpp"

namespace fhe_core::cuda {

class DeviceMemory;

using StreamHandle = std::uintptr_t;  // a cudaStream_t

class DeviceArray {
   public:
    using Shape = std::vector<std::int64_t>;

    DeviceArray() = default;
    // Uninitialised, in the order of `stream`. OutOfDeviceMemory says what was needed and what is free.
    static DeviceArray allocate(int device, Shape shape, int word_bytes, StreamHandle stream, const char* what);
    static DeviceArray upload(int device, const void* host, Shape shape, int word_bytes);
    // Memory of another library on the current stream order of `exchange_stream`; `owner` is released when no work of ours needs
    // it.
    static DeviceArray adopt(int device, void* data, Shape shape, int word_bytes, std::shared_ptr<void> owner);

    int device() const;
    void* data() const;
    const Shape& shape() const { return shape_; }
    int word_bytes() const { return word_bytes_; }
    std::size_t size() const;
    std::size_t bytes() const { return size() * word_bytes_; }
    bool empty() const { return memory_ == nullptr; }

    void download(void* host) const;  // waits until it is there
    DeviceArray to_device(int device) const;
    DeviceArray view(std::size_t first_word, Shape shape) const;  // shares the memory
    void synchronize() const;                                     // until it is written

    // Ordering for work that the caller enqueues on `stream` of the current device.
    void wait_in(StreamHandle stream) const;  // the stream waits until it is written
    void record_read(StreamHandle stream) const;
    void record_write(StreamHandle stream) const;
    // Another library uses the memory in its own order from now on: its release waits for the whole device.
    void lend() const;

   private:
    std::shared_ptr<DeviceMemory> memory_;
    std::size_t first_byte_ = 0;
    Shape shape_;
    int word_bytes_ = 4;
};

// The stream of a device on which arrays are copied and computed with outside sessions.
StreamHandle exchange_stream(int device);
// `stream` waits until work of another library on `theirs` is done.
void order_streams(int device, StreamHandle stream, StreamHandle theirs);

struct MemoryInfo {
    std::size_t free_bytes, total_bytes;  // free: with what this process keeps for reuse
};
MemoryInfo memory_info(int device);

// --- arithmetic on arrays of LWE words [rows][kN + r], on the exchange stream ---

// One operand: row r of the result takes row rows[r] (nullptr: row r) times factors[r] (nullptr: `factor`).
struct RowOperand {
    const DeviceArray* words = nullptr;
    const std::int32_t* rows = nullptr;     // host; -1: a row of zeros
    const std::int64_t* factors = nullptr;  // host
    std::int64_t factor = 1;
};

// out[i] = x + y + (0, .., 0, c, .., c) modulo Q, c = constants[i] on all bodies; y and constants may be absent.
DeviceArray combine_rows(const ParameterSet& params, const RowOperand& x, const RowOperand& y, const std::uint64_t* constants,
                         std::size_t rows);

// Parts of `outer` blocks each, joined block by block: [outer][.. of part 0][.. of part 1] ..
DeviceArray concatenate(const std::vector<DeviceArray>& parts, std::size_t outer, DeviceArray::Shape shape);

// The first `count` words of every row: [.., W] to [rows][count], a copy on the device.
DeviceArray leading_columns(const DeviceArray& words, std::int64_t count);

// Whether every word is below `bound`; waits for the answer.
bool all_below(const DeviceArray& words, std::uint64_t bound);

// Seeded ciphertexts (docs/reference/specification.md, section 9): numbers first .. first + batch - 1 of their seed.
enum class CiphertextKind : std::uint8_t { lwe, glwe };
DeviceArray expand_ciphertexts(const ParameterSet& params, CiphertextKind kind, const Seed& seed, const void* host_bodies,
                               std::size_t first, std::size_t batch, int device);

// --- page-locked host memory ---

// From a pool that the process keeps: copies to and from the device are one transfer, without a copy on the host and without page
// faults. Empty where there is no device or the pool is at its limit.
std::shared_ptr<void> pinned_memory(std::size_t bytes);

}  // namespace fhe_core::cuda
