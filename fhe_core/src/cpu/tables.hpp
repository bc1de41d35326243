// Owner of the transform tables of one (polynomial size, prime, vector width); layout in kernels.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <new>
#include <vector>

#include "cpu/kernels.hpp"

namespace fhe_core::cpu {

// Vectors of the kernels begin where a cache line does: their loads do not cross lines, whatever was allocated before.
template <class T>
struct LineAllocator {
    using value_type = T;
    static constexpr std::align_val_t kLine{64};
    LineAllocator() = default;
    template <class U>
    LineAllocator(const LineAllocator<U>&) {}
    T* allocate(std::size_t count) { return static_cast<T*>(::operator new(count * sizeof(T), kLine)); }
    void deallocate(T* memory, std::size_t) { ::operator delete(memory, kLine); }
    friend bool operator==(LineAllocator, LineAllocator) { return true; }
};
using TableWords = std::vector<std::int32_t, LineAllocator<std::int32_t>>;

class TransformTables {
   public:
    TransformTables(int polynomial_size, int prime, int width);  // prime: a number of kLimbPrimes
    const NttTables& view() const { return view_; }

   private:
    void fill_twiddles(int polynomial_size, int width);

    TableWords forward_, inverse_, forward_tail_, inverse_tail_, powers_, power_companions_, lane_exponents_, vector_exponents_,
        unit_roots_;
    NttTables view_{};
};

}  // namespace fhe_core::cpu
