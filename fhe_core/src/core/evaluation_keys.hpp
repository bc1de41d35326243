// Evaluation keys in seeded form: bodies only, every mask comes from the seed (section 9 of docs/reference/specification.md).
#pragma once

#include <cstdint>

#include "core/chacha20.hpp"
#include "core/parameters.hpp"

namespace fhe_core {

// Does not own the bodies. Words: uint32 for one limb, uint64 for two, in [0, Q).
struct SeededEvaluationKeysView {
    const ParameterSet* params;
    Seed seed;
    const void* bootstrap_bodies;           // [key_step_count][keys_per_step][row_count][lane_count][N] words
    const std::uint32_t* keyswitch_bodies;  // [large_dimension][level_count][lane_count] in [0, 2^w)
};

}  // namespace fhe_core
