// The interface that every back end implements: batched operations on arrays in the back end's own memory.
//
// Layouts and arithmetic: docs/reference/specification.md. `Word` is uint32 for one limb and uint64 for two; a batch of LWE
// ciphertexts is [batch][large_dimension + r] words, a small one [batch][lwe_dimension + r] uint32 modulo 2^w, a switched one the
// same shape in [0, 2 nu N), GLWE [batch][k + r][N] words; r is lane_count(), the bodies of a ciphertext, and nu
// extension_factor(), both 1 for most sets, and what a blind rotation gives is [batch][nu][k + r][N]. Shapes and ranges are
// validated at the boundary (bindings), asserted here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>

#include "core/parameters.hpp"

namespace fhe_core {

// Called between slices of work with the number of items done; returning false cancels the call (CancelledError).
using Progress = std::function<bool(std::size_t done, std::size_t total)>;

struct TableView {
    const void* tables;  // [table_count][nu N] words in [0, Q)
    std::size_t table_count;
    const std::uint32_t* index;  // [batch], which table each ciphertext uses; nullptr: table 0 for all
};

struct ExtractView {
    const std::uint32_t* coefficients;  // [count], each below N, of a look-up below nu N
    std::size_t count;                  // outputs per ciphertext
};

class Backend {
   public:
    virtual ~Backend() = default;
    virtual std::string_view name() const = 0;
    virtual const ParameterSet& parameters() const = 0;

    virtual void keyswitch(const void* lwe, std::size_t batch, std::uint32_t* small_lwe) = 0;
    virtual void modulus_switch(const std::uint32_t* small_lwe, std::size_t batch, std::uint32_t* switched) = 0;
    virtual void blind_rotate(const std::uint32_t* switched, std::size_t batch, const TableView& tables, void* glwe,
                              const Progress& progress) = 0;
    virtual void sample_extract(const void* glwe, std::size_t batch, const ExtractView& extract, void* lwe) = 0;
    // The four calls above in order; a back end may fuse them.
    virtual void bootstrap(const void* lwe, std::size_t batch, const TableView& tables, const ExtractView& extract, void* out,
                           const Progress& progress) = 0;
    // out[s][r] = sum over c of weights[r][c] * lwe[s][c] mod Q.
    virtual void linear(const std::int32_t* weights, std::size_t rows, std::size_t columns, const void* lwe, std::size_t samples,
                        void* out) = 0;
    // out = scale_x * x + scale_y * y + (0, .., 0, constant, .., constant) mod Q, on every body, ciphertext by ciphertext; y may be
    // null.
    virtual void combine(const void* x, std::int64_t scale_x, const void* y, std::int64_t scale_y, std::uint64_t constant,
                         std::size_t batch, void* out) = 0;
};

}  // namespace fhe_core
