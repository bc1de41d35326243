#include "cuda/device/device_memory.hpp"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <map>
#include <string>

#include "core/errors.hpp"
#include "cuda/device/device_array.hpp"
#include "cuda/device/host_copies.hpp"
#include "cuda/device/host_memory.hpp"

namespace fhe_core::cuda {
namespace {

constexpr std::size_t kPinnedGranularity = std::size_t{1} << 20;
constexpr std::size_t kCommandBytes = std::size_t{32} << 10;    // copied into the command itself by the driver
constexpr std::size_t kStagedBytes = std::size_t{12} << 20;     // copied by the host while the link has the part before
constexpr std::size_t kMostPinnedBytes = std::size_t{4} << 30;  // lent and kept, of the process
constexpr std::size_t kLargeBytes = std::size_t{1} << 30;       // compared with what is free before the driver is asked

// Page-locked blocks, kept for reuse: locking pages costs more than the copy.
class PinnedPool {
   public:
    static PinnedPool& shared() {
        static auto* pool = new PinnedPool;  // numpy arrays may outlive everything else
        return *pool;
    }

    std::shared_ptr<void> allocate(std::size_t bytes) {
        const std::size_t wanted =
            (std::max<std::size_t>(bytes, 1) + kPinnedGranularity - 1) / kPinnedGranularity * kPinnedGranularity;
        const std::lock_guard lock(mutex_);
        const auto found = free_.lower_bound(wanted);
        if (found != free_.end() && found->first <= wanted + wanted / 2) {
            const auto [size, data] = *found;
            free_.erase(found);
            return lent(data, size);
        }
        while (total_ + wanted > kMostPinnedBytes && !free_.empty()) {
            const auto largest = std::prev(free_.end());
            free_locked(largest->second);
            total_ -= largest->first;
            free_.erase(largest);
        }
        void* const data = total_ + wanted > kMostPinnedBytes ? nullptr : allocate_locked(wanted);
        if (data == nullptr) return nullptr;
        total_ += wanted;
        return lent(data, wanted);
    }

   private:
    std::shared_ptr<void> lent(void* data, std::size_t size) {
        return {data, [this, size](void* block) {
                    const std::lock_guard lock(mutex_);
                    free_.emplace(size, block);
                }};
    }

    std::mutex mutex_;
    std::multimap<std::size_t, void*> free_;
    std::size_t total_ = 0;
};

template <class F>
void quietly(F&& f) noexcept {
    try {
        f();
    } catch (...) {  // the device is gone, and its memory with it
    }
}

}  // namespace

std::shared_ptr<void> pinned_memory(std::size_t bytes) { return PinnedPool::shared().allocate(bytes); }

Place place_of(const void* data, int device) {
    cudaPointerAttributes attributes{};
    if (cudaPointerGetAttributes(&attributes, data) != cudaSuccess) {
        cudaGetLastError();
        return Place::pageable;
    }
    if (attributes.type == cudaMemoryTypeHost) return Place::pinned;
    if (attributes.type != cudaMemoryTypeDevice) return Place::pageable;
    if (attributes.device != device)
        throw DeviceError("memory: expected it on cuda:" + std::to_string(device) + ", found it on cuda:" +
                          std::to_string(attributes.device) + "; move it with .to_device('cuda:" + std::to_string(device) + "')");
    return Place::device;
}

// --- one allocation ---

DeviceMemory::DeviceMemory(int device, std::size_t bytes, cudaStream_t stream, const char* what) : device_(device) {
    data_ = DevicePool::of(device).allocate(bytes, stream, what);
    try {
        record_write(stream);
    } catch (...) {
        DevicePool::of(device).release(*this);
        throw;
    }
}

DeviceMemory::DeviceMemory(int device, void* data, std::shared_ptr<void> owner)
    : device_(device), data_(data), owner_(std::move(owner)) {}

DeviceMemory::~DeviceMemory() {
    quietly([&] { DevicePool::of(device_).release(*this); });
}

void DeviceMemory::wait_in(cudaStream_t stream) const {
    const std::lock_guard lock(mutex_);
    if (written_ != nullptr && written_->stream != stream) written_->event.wait_in(stream);
}

void DeviceMemory::record_read(cudaStream_t stream) {
    const std::lock_guard lock(mutex_);
    for (const auto& use : reads_)
        if (use->stream == stream) return use->event.record(stream);
    reads_.push_back(std::make_unique<Use>(stream));
    reads_.back()->event.record(stream);
}

void DeviceMemory::record_write(cudaStream_t stream) {
    const std::lock_guard lock(mutex_);
    if (written_ == nullptr || written_->stream != stream) written_ = std::make_unique<Use>(stream);
    written_->event.record(stream);
}

void DeviceMemory::synchronize() const {
    const std::lock_guard lock(mutex_);
    if (written_ != nullptr) written_->event.synchronize();
}

// --- the pool of a device ---

DevicePool& DevicePool::of(int device) {
    static std::mutex mutex;
    static auto* pools = new std::map<int, std::unique_ptr<DevicePool>>;
    const std::lock_guard lock(mutex);
    auto& pool = (*pools)[device];
    if (pool == nullptr) {
        const DeviceGuard guard(device);
        pool.reset(new DevicePool(device));
    }
    return *pool;
}

DevicePool::DevicePool(int device) : device_(device) {
    int supported = 0;
    check(cudaDeviceGetAttribute(&supported, cudaDevAttrMemoryPoolsSupported, device), "properties of the device");
    if (supported == 0) return;
    cudaMemPoolProps properties{};
    properties.allocType = cudaMemAllocationTypePinned;
    properties.location.type = cudaMemLocationTypeDevice;
    properties.location.id = device;
    check(cudaMemPoolCreate(&pool_, &properties), "creation of a memory pool");
    unsigned long long keep = ~0ull;  // idle memory stays until someone needs it (trim)
    check(cudaMemPoolSetAttribute(pool_, cudaMemPoolAttrReleaseThreshold, &keep), "creation of a memory pool");
}

void* DevicePool::allocate(std::size_t bytes, cudaStream_t stream, const char* what) {
    sweep();
    const std::size_t wanted = std::max<std::size_t>(bytes, 1);
    void* data = nullptr;
    const auto attempt = [&] {
        if (wanted >= kLargeBytes && !has_room(wanted)) return cudaErrorMemoryAllocation;
        return pool_ == nullptr ? cudaMalloc(&data, wanted) : cudaMallocFromPoolAsync(&data, wanted, pool_, stream);
    };
    cudaError_t status = attempt();
    if (status == cudaErrorMemoryAllocation) {  // memory whose release is still in a queue, or in pieces
        cudaGetLastError();
        check(cudaDeviceSynchronize(), what);
        trim();
        status = attempt();
    }
    if (status == cudaErrorMemoryAllocation) throw out_of_device_memory(what, wanted);
    check(status, what);
    return data;
}

void DevicePool::release(DeviceMemory& memory) {
    if (memory.data_ == nullptr) return;
    const DeviceGuard guard(device_);
    if (memory.owner_ != nullptr) {
        const std::lock_guard lock(mutex_);
        graves_.push_back({std::move(memory.owner_), std::move(memory.reads_)});
        if (memory.written_ != nullptr) graves_.back().uses.push_back(std::move(memory.written_));
        return;
    }
    if (memory.lent_) check(cudaDeviceSynchronize(), "release of lent memory");
    if (memory.written_ != nullptr) memory.written_->event.wait_in(releases_);
    for (const auto& use : memory.reads_) use->event.wait_in(releases_);
    if (pool_ != nullptr) {
        check(cudaFreeAsync(memory.data_, releases_), "release of memory");
    } else {
        releases_.synchronize();
        check(cudaFree(memory.data_), "release of memory");
    }
    memory.data_ = nullptr;
}

void DevicePool::copy_in(void* data, const void* host, std::size_t bytes, cudaStream_t stream, const char* what) {
    const bool small = bytes <= kCommandBytes && place_of(host, device_) == Place::pageable;
    const std::shared_ptr<void> staged = small ? nullptr : pinned_memory(bytes);
    for (std::size_t first = 0; first < bytes && staged != nullptr; first += kStagedBytes) {
        const std::size_t count = std::min(kStagedBytes, bytes - first);
        char* const part = static_cast<char*>(staged.get()) + first;
        copy_on_host(part, static_cast<const char*>(host) + first, count);
        check(cudaMemcpyAsync(static_cast<char*>(data) + first, part, count, cudaMemcpyHostToDevice, stream), what);
    }
    if (staged == nullptr) check(cudaMemcpyAsync(data, host, bytes, cudaMemcpyHostToDevice, stream), what);
    if (small) return;
    auto use = std::make_unique<DeviceMemory::Use>(stream);
    use->event.record(stream);
    if (staged == nullptr) return use->event.synchronize();
    const std::lock_guard lock(mutex_);
    graves_.push_back({staged, {}});
    graves_.back().uses.push_back(std::move(use));
}

// Owners are released outside the lock: theirs may need other locks (Python's).
void DevicePool::sweep() {
    std::vector<Grave> done;
    {
        const std::lock_guard lock(mutex_);
        const auto idle = std::stable_partition(graves_.begin(), graves_.end(), [](const Grave& grave) {
            return !std::all_of(grave.uses.begin(), grave.uses.end(), [](const auto& use) { return use->event.passed(); });
        });
        std::move(idle, graves_.end(), std::back_inserter(done));
        graves_.erase(idle, graves_.end());
    }
}

// The driver finds out that a pool cannot grow so far by growing it, and meanwhile other processes have no memory at all.
bool DevicePool::has_room(std::size_t bytes) const {
    const DeviceGuard guard(device_);
    std::size_t free = 0, total = 0;
    check(cudaMemGetInfo(&free, &total), "memory of the device");
    return bytes <= free + idle_bytes();
}

std::size_t DevicePool::idle_bytes() const {
    if (pool_ == nullptr) return 0;
    unsigned long long reserved = 0, used = 0;
    check(cudaMemPoolGetAttribute(pool_, cudaMemPoolAttrReservedMemCurrent, &reserved), "memory of the device");
    check(cudaMemPoolGetAttribute(pool_, cudaMemPoolAttrUsedMemCurrent, &used), "memory of the device");
    return reserved > used ? reserved - used : 0;
}

void DevicePool::trim() noexcept {
    if (pool_ != nullptr && cudaMemPoolTrimTo(pool_, 0) != cudaSuccess) cudaGetLastError();
}

}  // namespace fhe_core::cuda
