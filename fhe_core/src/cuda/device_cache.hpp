// What a session keeps on its device between calls: tables, weights, indices, found again by their contents, so that repeated calls
// upload nothing. All of it is used on the session's stream.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <vector>

#include "cuda/backend.hpp"
#include "cuda/device/runtime.hpp"
#include "cuda/linear/linear.hpp"

namespace fhe_core::cuda {

class CachedWeights {
   public:
    // Byte slices on the current device, for each of the kernels that it has.
    CachedWeights(const std::int32_t* weights, std::size_t rows, std::size_t columns, int device, cudaStream_t stream);
    void fill(LinearPiece& piece) const;
    // Work that is enqueued on a stream of the current device reads the weights.
    void wait_in(cudaStream_t stream) const;
    void record_read(cudaStream_t stream) const;
    std::size_t rows() const { return shape_.rows; }
    std::size_t columns() const { return shape_.columns; }
    std::size_t padded_columns() const { return shape_.padded_columns; }
    int device() const { return memory_.device(); }
    std::size_t bytes() const { return memory_.bytes() + tiles_.bytes(); }

   private:
    SlicedWeights shape_;  // without the slices
    DeviceArray memory_, tiles_;
};

// Least recently used contents leave when the limit is passed. Of one session, which locks.
class DeviceCache {
   public:
    static constexpr std::size_t kMostBytes = std::size_t{1} << 30;
    static constexpr std::size_t kMostEntries = 512;
    static constexpr std::size_t kMostOfOneCall = 4;  // entries that a call uses at once, and that stay while it enqueues

    // The contents of `host` on the current device, ordered on `stream`.
    const void* find_or_upload(const void* host, std::size_t bytes, int device, cudaStream_t stream, const char* what);
    std::shared_ptr<const CachedWeights> find_or_slice(const std::int32_t* weights, std::size_t rows, std::size_t columns,
                                                       int device, cudaStream_t stream);
    std::size_t bytes() const { return bytes_; }
    void clear();

   private:
    struct Entry {
        std::vector<char> contents;
        std::size_t rows;  // of weights; 0: plain contents
        DeviceArray plain;
        std::shared_ptr<const CachedWeights> weights;
        std::size_t bytes() const { return weights == nullptr ? plain.bytes() : weights->bytes(); }
    };
    Entry* find(const void* host, std::size_t bytes, std::size_t rows);
    Entry& insert(Entry entry, cudaStream_t stream);

    std::list<Entry> entries_;  // the most recently used first
    std::size_t bytes_ = 0;
};

}  // namespace fhe_core::cuda
