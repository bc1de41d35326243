// Evaluation keys expanded for the CPU: bootstrap key in the transform domain, keyswitch key as padded rows. Immutable, shareable.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "core/backend.hpp"
#include "core/evaluation_keys.hpp"
#include "core/parameters.hpp"

namespace fhe_core::cpu {

struct Kernels;
class TransformTables;

// Zeroed memory on huge pages where the system gives them.
class Buffer {
   public:
    explicit Buffer(std::size_t bytes);
    ~Buffer();
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;
    void* data() const { return data_; }
    std::size_t bytes() const { return bytes_; }

   private:
    void* data_ = nullptr;
    std::size_t bytes_ = 0;
};

// ParameterError unless this thread rounds to nearest, which products in double precision take for granted.
void require_rounding_to_nearest(const ParameterSet& params);

class ExpandedKey {
   public:
    // ParameterError when this processor or thread cannot give the words of rounded products, DeviceError when the memory does not
    // suffice, CancelledError when `progress` says so.
    ExpandedKey(const SeededEvaluationKeysView& keys, const Progress& progress);
    ~ExpandedKey();

    const ParameterSet& parameters() const { return parameters_; }
    const Kernels& kernels() const { return kernels_; }
    std::string_view instruction_set() const;
    const TransformTables& tables(int limb) const { return *tables_[limb]; }  // of ParameterSet::transform_limbs

    const std::int32_t* bootstrap_key() const { return static_cast<const std::int32_t*>(bootstrap_key_.data()); }
    std::size_t step_words() const { return step_words_; }
    // [large_dimension * level_count][keyswitch_columns()] uint16 when w <= 16, else uint32.
    const void* keyswitch_key() const { return keyswitch_key_.data(); }
    bool keyswitch_is_short() const { return parameters_.keyswitch_modulus_log2 <= 16; }
    std::size_t keyswitch_columns() const { return keyswitch_columns_; }
    std::size_t memory_bytes() const { return bootstrap_key_.bytes() + keyswitch_key_.bytes(); }

   private:
    void expand_bootstrap_key(const SeededEvaluationKeysView& keys, const Progress& progress);
    void expand_rounded_key(const SeededEvaluationKeysView& keys, const Progress& progress);
    template <class Word>
    void expand_keyswitch_key(const SeededEvaluationKeysView& keys, const Progress& progress);

    ParameterSet parameters_;
    const Kernels& kernels_;
    std::unique_ptr<TransformTables> tables_[2];
    std::size_t step_words_;
    std::size_t keyswitch_columns_;
    Buffer bootstrap_key_;
    Buffer keyswitch_key_;
};

}  // namespace fhe_core::cpu
