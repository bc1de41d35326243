#include "cpu/available_memory.hpp"

#include <algorithm>
#include <fstream>
#include <limits>
#include <string>
#include <string_view>

namespace fhe_core::cpu {
namespace {

using std::filesystem::path;

constexpr std::size_t kUnlimited = std::numeric_limits<std::size_t>::max();

struct Version {
    const char* mount;
    const char* limit;
    const char* usage;
    const char* cached[2];  // of memory.stat: files that are given up when memory is wanted
};
constexpr Version kFirst{.mount = "sys/fs/cgroup/memory",
                         .limit = "memory.limit_in_bytes",
                         .usage = "memory.usage_in_bytes",
                         .cached = {"total_inactive_file", "total_active_file"}};
constexpr Version kSecond{
    .mount = "sys/fs/cgroup", .limit = "memory.max", .usage = "memory.current", .cached = {"inactive_file", "active_file"}};

// The number of a file that has nothing else ("max" is none).
std::optional<std::size_t> number_in(const path& file) {
    std::ifstream stream(file);
    std::size_t number = 0;
    if (stream >> number) return number;
    return std::nullopt;
}

// The number behind a name, in a file of such pairs.
std::optional<std::size_t> number_of(const path& file, std::string_view name) {
    std::ifstream stream(file);
    std::string word;
    std::size_t number = 0;
    while (stream >> word) {
        if (word == name && stream >> number) return number;
    }
    return std::nullopt;
}

std::size_t left_in(const path& group, const Version& version) {
    const auto limit = number_in(group / version.limit);
    const auto usage = number_in(group / version.usage);
    if (!limit || !usage) return kUnlimited;
    std::size_t cached = 0;
    for (const char* name : version.cached) cached += number_of(group / "memory.stat", name).value_or(0);
    const std::size_t used = *usage - std::min(*usage, cached);
    return *limit - std::min(*limit, used);
}

// Of a group and those around it. A container that sees the host's path has its own group at the mount.
std::size_t left_around(const path& mount, path inside, const Version& version) {
    std::size_t left = left_in(mount, version);
    for (; !inside.empty(); inside = inside.parent_path()) left = std::min(left, left_in(mount / inside, version));
    return left;
}

// A line of /proc/self/cgroup: number, controllers and path, with colons between them.
std::size_t left_by(const path& root, const std::string& line) {
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) return kUnlimited;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const path inside = path(line.substr(second + 1)).relative_path();
    if (line.starts_with("0::")) return left_around(root / kSecond.mount, inside, kSecond);
    if (controllers.find(",memory,") != std::string::npos) return left_around(root / kFirst.mount, inside, kFirst);
    return kUnlimited;
}

}  // namespace

std::optional<std::size_t> available_memory(const path& root) {
    const auto kilobytes = number_of(root / "proc/meminfo", "MemAvailable:");
    std::size_t left = kilobytes ? *kilobytes * 1024 : kUnlimited;
    std::ifstream groups(root / "proc/self/cgroup");
    for (std::string line; std::getline(groups, line);) left = std::min(left, left_by(root, line));
    if (left == kUnlimited) return std::nullopt;
    return left;
}

}  // namespace fhe_core::cpu
