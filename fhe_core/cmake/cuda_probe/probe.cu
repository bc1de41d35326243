// The language and library of the back end in a few lines: C++20 on the host and on the device, a kernel, the static runtime.
#include <cuda_runtime.h>

#include <bit>
#include <cstdint>
#include <span>
#include <utility>

struct Shape {
    int size;
    constexpr bool operator==(const Shape&) const = default;
};

consteval int doubled(int x) { return 2 * x; }

template <Shape shape>
__global__ void probe_kernel(std::uint32_t* out) {
    const auto each = [&]<int... i>(std::integer_sequence<int, i...>) { ((out[i] = doubled(i) + shape.size), ...); };
    each(std::make_integer_sequence<int, 4>{});
}

int main() {
    std::uint32_t words[4] = {};
    const std::span<std::uint32_t> view(words);
    constexpr auto kernel = probe_kernel<Shape{4}>;
    cudaFuncAttributes attributes;
    return static_cast<int>(std::bit_width(view.size())) + static_cast<int>(cudaFuncGetAttributes(&attributes, kernel));
}
