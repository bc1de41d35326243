// Copies between arrays of the host. One thread copies a fifth of what a link to a device carries, so the threads of the process
// share them.
#pragma once

#include <cstddef>

namespace fhe_core::cuda {

// A zero in every page of memory that nobody has written yet: what the system does at the first write is shared by the threads.
void write_first(void* data, std::size_t bytes);

// memcpy by as many threads as the process may use, at most 16; any number of callers at once. Short ones stay with the caller.
void copy_on_host(void* to, const void* from, std::size_t bytes);

}  // namespace fhe_core::cuda
