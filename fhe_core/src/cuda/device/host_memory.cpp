#include "cuda/device/host_memory.hpp"

#include <cuda_runtime.h>
#include <sys/mman.h>

#include <cstdint>
#include <map>
#include <mutex>

#include "cuda/device/host_copies.hpp"

namespace fhe_core::cuda {
namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20, kWorthMapping = 2 * kHugePage;

std::size_t whole_pages(std::size_t bytes) { return (bytes + kHugePage - 1) / kHugePage * kHugePage; }

// Aligned to huge pages, not written yet.
void* map_pages(std::size_t bytes) {
    const std::size_t mapped = bytes + kHugePage;
    void* const data = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) return nullptr;
    char* const first = static_cast<char*>(data);
    const std::size_t before = (kHugePage - reinterpret_cast<std::uintptr_t>(data) % kHugePage) % kHugePage;
    if (before != 0) munmap(first, before);
    munmap(first + before + bytes, kHugePage - before);
    madvise(first + before, bytes, MADV_HUGEPAGE);  // where the system has none, small ones do
    return first + before;
}

// Mapped and locked here, not by CUDA: first byte and size.
struct Mappings {
    std::mutex mutex;
    std::map<void*, std::size_t> sizes;

    static Mappings& all() {
        static auto* mappings = new Mappings;  // blocks may be freed while the process ends
        return *mappings;
    }
};

void* map_and_lock(std::size_t bytes) {
    void* const data = map_pages(bytes);
    if (data == nullptr) return nullptr;
    write_first(data, bytes);
    if (cudaHostRegister(data, bytes, cudaHostRegisterPortable) != cudaSuccess) {
        cudaGetLastError();
        munmap(data, bytes);
        return nullptr;
    }
    const std::lock_guard lock(Mappings::all().mutex);
    Mappings::all().sizes[data] = bytes;
    return data;
}

}  // namespace

void* allocate_locked(std::size_t bytes) {
    void* data = bytes < kWorthMapping ? nullptr : map_and_lock(whole_pages(bytes));
    if (data != nullptr || cudaMallocHost(&data, bytes) == cudaSuccess) return data;
    cudaGetLastError();
    return nullptr;
}

void free_locked(void* data) noexcept {
    if (data == nullptr) return;
    Mappings& mappings = Mappings::all();
    const std::lock_guard lock(mappings.mutex);
    const auto mapped = mappings.sizes.find(data);
    if (mapped == mappings.sizes.end()) {
        cudaFreeHost(data);
        return;
    }
    cudaHostUnregister(data);
    munmap(data, mapped->second);
    mappings.sizes.erase(mapped);
}

}  // namespace fhe_core::cuda
