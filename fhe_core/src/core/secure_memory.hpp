// Memory that held a secret is overwritten before it is given back.
#pragma once

#include <cstddef>
#include <cstring>
#include <vector>

namespace fhe_core {

// memset that the optimiser may not remove.
inline void erase_memory(void* data, std::size_t bytes) {
    if (bytes == 0) return;
    std::memset(data, 0, bytes);
    asm volatile("" : : "r"(data) : "memory");
}

// Overwrites the stack below the caller's frame: what the functions it has called left there, spilled registers among it.
inline constexpr std::size_t kErasedStackBytes = 8192;
[[gnu::noinline]] inline void erase_stack() {
    unsigned char below[kErasedStackBytes];
    erase_memory(below, sizeof below);
}

// A vector of plain values, erased on destruction; neither copied nor resized, so that no stale copy is left behind.
template <class T>
class SecretVector {
   public:
    SecretVector() = default;
    explicit SecretVector(std::size_t size) : values_(size) {}
    SecretVector(SecretVector&& other) noexcept = default;
    SecretVector& operator=(SecretVector&& other) noexcept {
        values_.swap(other.values_);
        return *this;
    }
    SecretVector(const SecretVector&) = delete;
    SecretVector& operator=(const SecretVector&) = delete;
    ~SecretVector() { erase_memory(values_.data(), values_.size() * sizeof(T)); }

    std::size_t size() const { return values_.size(); }
    T* data() { return values_.data(); }
    const T* data() const { return values_.data(); }
    T& operator[](std::size_t i) { return values_[i]; }
    const T& operator[](std::size_t i) const { return values_[i]; }

   private:
    std::vector<T> values_;
};

}  // namespace fhe_core
