// The stages of a bootstrap for a slice of a batch, on the calling thread; backend.cpp shares batches among threads.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/backend.hpp"
#include "cpu/expanded_key.hpp"
#include "cpu/parallel.hpp"

namespace fhe_core::cpu {

// Section 2. lwe [batch][large_dimension + r] words -> small_lwe [batch][n + r] modulo 2^w.
void keyswitch(const ExpandedKey& key, const void* lwe, std::size_t batch, std::uint32_t* small_lwe);

// Section 3.
void modulus_switch(const ParameterSet& params, const std::uint32_t* small_lwe, std::size_t batch, std::uint32_t* switched);

// Section 6; `first` is the position of the slice in the batch that tables.index refers to. Reports steps * ciphertexts to the
// monitor.
void blind_rotate(const ExpandedKey& key, const std::uint32_t* switched, std::size_t batch, const TableView& tables,
                  std::size_t first, void* glwe, Monitor& monitor);

// Section 7, of GLWE ciphertexts [batch][k + r][N].
void sample_extract(const ParameterSet& params, const void* glwe, std::size_t batch, const ExtractView& extract, void* lwe);
// Of what a blind rotation gives, [batch][nu][k + r][N]: coefficients of the long table.
void extract_entries(const ParameterSet& params, const void* rotated, std::size_t batch, const ExtractView& extract, void* lwe);

}  // namespace fhe_core::cpu
