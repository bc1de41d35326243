// Levelled arithmetic on one CUDA device (levelled.hpp): the words of cpu::Levelled.
#pragma once

#include <cstdint>
#include <memory>

#include "core/levelled.hpp"
#include "cuda/device/device_array.hpp"

namespace fhe_core::cuda {

// Arrays are uint32 [..][level][N] of this device, every word below its prime; nothing is checked here. Calls enqueue on the
// device's exchange stream and return.
class Levelled {
   public:
    Levelled(std::shared_ptr<const LevelledTables> tables, int device);
    ~Levelled();
    Levelled(const Levelled&) = delete;
    Levelled& operator=(const Levelled&) = delete;

    const LevelledTables& tables() const;
    int device() const;

    DeviceArray transform(const DeviceArray& words, bool inverse) const;
    // Times 2^32, for `products`.
    DeviceArray prepare(const DeviceArray& words) const;
    DeviceArray add(const DeviceArray& a, const DeviceArray& b, bool negative) const;
    DeviceArray scale(const DeviceArray& words, std::int64_t factor) const;
    // words [terms][parts][level][N], prepared [rows][terms][level][N] -> [rows][parts][level][N].
    DeviceArray products(const DeviceArray& words, const DeviceArray& prepared) const;
    // [batch][2][level][N] each -> [batch][3][level][N].
    DeviceArray multiply(const DeviceArray& a, const DeviceArray& b) const;
    DeviceArray automorphism(const DeviceArray& words, std::uint64_t g) const;
    // [batch][level][N] -> [batch][2][level][N]; key [digit][2][every prime][N], prepared.
    DeviceArray keyswitch(const DeviceArray& words, const DeviceArray& key) const;
    // [polynomials][level][N] -> [polynomials][keep][N].
    DeviceArray modulus_switch(const DeviceArray& words, int keep) const;

    // [batch][parts][level][N] -> part `number` of each, [batch][level][N].
    DeviceArray part(const DeviceArray& words, int number) const;

   private:
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace fhe_core::cuda
