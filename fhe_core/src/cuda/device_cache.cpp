#include "cuda/device_cache.hpp"

#include <cstring>

#include "cuda/device/device_memory.hpp"

namespace fhe_core::cuda {
namespace {

DeviceArray uploaded(const void* host, std::size_t bytes, int device, cudaStream_t stream, const char* what) {
    const auto handle = reinterpret_cast<StreamHandle>(stream);
    DeviceArray array = DeviceArray::allocate(device, {static_cast<std::int64_t>((bytes + 3) / 4)}, 4, handle, what);
    DevicePool::of(device).copy_in(array.data(), host, bytes, stream, what);
    array.record_write(handle);
    return array;
}

}  // namespace

CachedWeights::CachedWeights(const std::int32_t* weights, std::size_t rows, std::size_t columns, int device, cudaStream_t stream)
    : shape_(slice_weights(weights, rows, columns)) {
    memory_ = uploaded(shape_.slices.data(), shape_.slices.size(), device, stream, "weights");
    if (const std::vector<std::int8_t> tiles = has_wgmma(device) ? tile_weights(shape_) : std::vector<std::int8_t>();
        !tiles.empty())
        tiles_ = uploaded(tiles.data(), tiles.size(), device, stream, "weights");
    shape_.slices = {};
}

void CachedWeights::wait_in(cudaStream_t stream) const {
    memory_.wait_in(reinterpret_cast<StreamHandle>(stream));
    if (!tiles_.empty()) tiles_.wait_in(reinterpret_cast<StreamHandle>(stream));
}

void CachedWeights::record_read(cudaStream_t stream) const {
    memory_.record_read(reinterpret_cast<StreamHandle>(stream));
    if (!tiles_.empty()) tiles_.record_read(reinterpret_cast<StreamHandle>(stream));
}

void CachedWeights::fill(LinearPiece& piece) const {
    piece.weights = static_cast<const std::int8_t*>(memory_.data());
    piece.tiles = tiles_.empty() ? nullptr : static_cast<const std::int8_t*>(tiles_.data());
    piece.slice_count = shape_.slice_count;
    piece.rows = shape_.rows;
    piece.columns = shape_.columns;
    piece.padded_rows = shape_.padded_rows;
    piece.padded_columns = shape_.padded_columns;
}

std::size_t weight_rows(const CachedWeights& weights) { return weights.rows(); }
std::size_t weight_columns(const CachedWeights& weights) { return weights.columns(); }
int weight_device(const CachedWeights& weights) { return weights.device(); }

const void* DeviceCache::find_or_upload(const void* host, std::size_t bytes, int device, cudaStream_t stream, const char* what) {
    if (const Entry* known = find(host, bytes, 0)) return known->plain.data();
    const char* data = static_cast<const char*>(host);
    Entry entry{{data, data + bytes}, 0, uploaded(host, bytes, device, stream, what), nullptr};
    return insert(std::move(entry), stream).plain.data();
}

std::shared_ptr<const CachedWeights> DeviceCache::find_or_slice(const std::int32_t* weights, std::size_t rows, std::size_t columns,
                                                                int device, cudaStream_t stream) {
    const std::size_t bytes = rows * columns * sizeof *weights;
    if (const Entry* known = find(weights, bytes, rows)) return known->weights;
    const char* data = reinterpret_cast<const char*>(weights);
    Entry entry{{data, data + bytes}, rows, {}, std::make_shared<CachedWeights>(weights, rows, columns, device, stream)};
    return insert(std::move(entry), stream).weights;
}

void DeviceCache::clear() {
    entries_.clear();
    bytes_ = 0;
}

DeviceCache::Entry* DeviceCache::find(const void* host, std::size_t bytes, std::size_t rows) {
    for (auto entry = entries_.begin(); entry != entries_.end(); ++entry) {
        if (entry->contents.size() != bytes || entry->rows != rows || std::memcmp(entry->contents.data(), host, bytes) != 0)
            continue;
        entries_.splice(entries_.begin(), entries_, entry);
        return &entries_.front();
    }
    return nullptr;
}

// What leaves is released behind the work that is enqueued.
DeviceCache::Entry& DeviceCache::insert(Entry entry, cudaStream_t stream) {
    bytes_ += entry.bytes();
    entries_.push_front(std::move(entry));
    while ((bytes_ > kMostBytes || entries_.size() > kMostEntries) && entries_.size() > kMostOfOneCall) {
        const Entry& last = entries_.back();
        bytes_ -= last.bytes();
        if (last.weights == nullptr) last.plain.record_read(reinterpret_cast<StreamHandle>(stream));
        entries_.pop_back();
    }
    return entries_.front();
}

}  // namespace fhe_core::cuda
