// Arithmetic on rows of words in device memory. Each launch enqueues; none allocates or waits.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/parameters.hpp"
#include "cuda/device/runtime.hpp"

namespace fhe_core::cuda {

// Which row of an operand: row r of the result is element e = r % period of sample s = r / period and takes row
// s * stride + rows[e], or zeros where rows[e] < 0; without `rows`, row r.
struct RowPick {
    const std::int32_t* rows;
    std::size_t period, stride;
};

struct RowTerm {
    const void* words;  // [..][kN + r]; nullptr: none
    RowPick pick;
    const std::int64_t* factors;  // by row of the result; nullptr: `factor`
    std::int64_t factor;
};

// out[i] = x + y + (0, .., 0, c, .., c) modulo Q, c = constants[i % period] on all bodies.
struct RowsView {
    RowTerm x, y;
    const std::uint64_t* constants;  // nullptr: none; each below Q
    std::size_t constant_period;
    void* out;
};
void launch_rows(const ParameterSet& params, const RowsView& view, std::size_t rows, cudaStream_t stream);

// out[r] = x[pick(r)], words as they are.
void launch_take(const ParameterSet& params, const void* x, const RowPick& pick, void* out, std::size_t rows, cudaStream_t stream);

// All bodies of words[i] += constants[i % period] modulo Q, in place.
void launch_add_to_bodies(const ParameterSet& params, void* words, std::size_t rows, const std::uint64_t* constants,
                          std::size_t period, cudaStream_t stream);

// *outside = 1 when a word is `bound` or more.
void launch_range_check(const void* words, int word_bytes, std::size_t count, std::uint64_t bound, std::uint32_t* outside,
                        cudaStream_t stream);

}  // namespace fhe_core::cuda
