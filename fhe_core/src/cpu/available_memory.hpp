// Memory that this process may still take.

#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>

namespace fhe_core::cpu {

// Bytes: the least of MemAvailable and of what the limits of this process's cgroups (version 1 and 2, and those around them) leave.
// Files that the kernel keeps in memory count as free. Nothing when the system does not tell. As fhe_core/machine.py finds the
// limits.
std::optional<std::size_t> available_memory(const std::filesystem::path& root = "/");

}  // namespace fhe_core::cpu
