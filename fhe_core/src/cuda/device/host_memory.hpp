// Page-locked memory of the host. CUDA's own allocation takes 172 ms for 256 MiB, of which little is locking: huge pages that many
// threads write first, then locked, take a tenth (docs/benchmarks/cuda-log.md). Small blocks, and all where that fails, are CUDA's
// own.
#pragma once

#include <cstddef>

namespace fhe_core::cuda {

// nullptr, without an error of CUDA's left behind, where there is no more. For all devices.
void* allocate_locked(std::size_t bytes);
void free_locked(void* data) noexcept;

}  // namespace fhe_core::cuda
