#include "cpu/available_memory.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <limits>
#include <memory>
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

// All of a small file; nothing where there is none. No streams: those of a static C++ library beside a shared one in the same
// process (NumPy's) say that they have read a number, and store none.
std::string content_of(const path& file) {
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> stream(std::fopen(file.c_str(), "re"), &std::fclose);
    std::string text;
    if (!stream) return text;
    std::array<char, 4096> part;
    for (std::size_t count = 1; count > 0;) {
        count = std::fread(part.data(), 1, part.size(), stream.get());
        text.append(part.data(), count);
    }
    return text;
}

// The next word of a text, which loses it; empty at the end.
std::string_view take_word(std::string_view& text) {
    constexpr std::string_view kSpaces = " \t\n";
    text.remove_prefix(std::min(text.find_first_not_of(kSpaces), text.size()));
    const std::string_view word = text.substr(0, text.find_first_of(kSpaces));
    text.remove_prefix(word.size());
    return word;
}

std::optional<std::size_t> number_of_word(std::string_view word) {
    std::size_t number = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
    if (error != std::errc() || end != word.data() + word.size()) return std::nullopt;
    return number;
}

// The number of a file that has nothing else ("max" is none).
std::optional<std::size_t> number_in(const path& file) {
    const std::string text = content_of(file);
    std::string_view rest = text;
    return number_of_word(take_word(rest));
}

// The number behind a name, in a file of such pairs.
std::optional<std::size_t> number_of(const path& file, std::string_view name) {
    const std::string text = content_of(file);
    for (std::string_view rest = text; !rest.empty();) {
        if (take_word(rest) != name) continue;
        if (const auto number = number_of_word(take_word(rest))) return number;
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
    const std::string groups = content_of(root / "proc/self/cgroup");
    for (std::size_t begin = 0; begin < groups.size();) {
        const std::size_t end = std::min(groups.find('\n', begin), groups.size());
        left = std::min(left, left_by(root, groups.substr(begin, end - begin)));
        begin = end + 1;
    }
    if (left == kUnlimited) return std::nullopt;
    return left;
}

}  // namespace fhe_core::cpu
