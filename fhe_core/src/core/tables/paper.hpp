// The founding papers' own parameters, for `cloakwork bench methods` alone. Written by fhe_core/tools/paper_sets.py: change
// that, not this.
//
// Columns and units: shipped.hpp. Bits: lattice-estimator 27a581b, cost model MATZOV; 0: not estimated. Most are insecure.
#pragma once

#include "core/tables/shipped.hpp"

namespace fhe_core {

namespace parameter_table {

// clang-format off
inline constexpr std::array kPaperRows = std::to_array<ParameterSet>({
    // name                   kind   p  {N, k, limbs, mask, body, cmux, nu, raising, lanes, accumulator}  ring secret  sigma  n     w   sigma  digits   weights             p_fail   noise      bits, key sigma, parties
    {"papers/velofhe_gd1",    gate,  0, {1024, 1, 1, {6, 4}, {6, 4}, ternary},                            s_ternary,   3.19,  503,  16, 12.76, {2, 6},  1.4142135623730951, -36.2,   1.804e-02, 120},
    {"papers/velofhe_gd2",    gate,  0, {2048, 1, 2, {24, 2}, {24, 2}, ternary},                          s_ternary,   3.19,  600,  16, 6.38,  {2, 6},  1.4142135623730951, -69.7,   1.278e-02, 126},
    {"papers/velofhe_mr1",    gate,  0, {1024, 1, 1, {24, 1}, {24, 1}, ternary, 1, raised},               s_ternary,   3.19,  512,  16, 12.76, {2, 6},  1.4142135623730951, -36.9,   1.787e-02, 65, 3.19},
    {"papers/velofhe_mr2",    gate,  0, {2048, 1, 1, {24, 1}, {24, 1}, ternary, 1, raised},               s_ternary,   3.19,  1024, 24, 3.19,  {2, 10}, 1.4142135623730951, -3187.9, 1.843e-03, 131, 3.19},
    {"papers/xiao_gate",      gate,  0, {1024, 1, 1, {6, 4}, {6, 4}, ternary},                            s_ternary,   3.19,  512,  16, 12.76, {2, 6},  1.4142135623730951, -36.2,   1.805e-02, 122},
    {"papers/xiao_floor",     exact, 2, {1024, 1, 1, {6, 4}, {6, 4}, ternary},                            s_ternary,   3.19,  1305, 24, 3.19,  {2, 10}, 4.0,                -20.4,   1.231e-02, 126},
    {"papers/xiao_2_digits",  exact, 4, {2048, 1, 2, {24, 2}, {24, 2}, ternary},                          s_ternary,   3.19,  1305, 24, 3.19,  {2, 10}, 16.0,               -41.6,   2.082e-03, 126},
    {"papers/xiao_3_digits",  exact, 4, {2048, 1, 2, {17, 3}, {17, 3}, ternary},                          s_ternary,   3.19,  1305, 24, 3.19,  {2, 10}, 16.0,               -41.7,   2.080e-03, 126},
    {"papers/xiao_4_digits",  exact, 4, {2048, 1, 2, {13, 4}, {13, 4}, ternary},                          s_ternary,   3.19,  1305, 24, 3.19,  {2, 10}, 16.0,               -41.7,   2.080e-03, 126},
    {"papers/velofhe_gd1_ap", gate,  0, {1024, 1, 1, {6, 4}, {6, 4}, select_2x6},                         s_ternary,   3.19,  503,  16, 12.76, {2, 6},  1.4142135623730951, -36.6,   1.795e-02, 120},
    {"papers/velofhe_gd2_ap", gate,  0, {2048, 1, 2, {24, 2}, {24, 2}, select_2x6},                       s_ternary,   3.19,  600,  16, 6.38,  {2, 6},  1.4142135623730951, -69.7,   1.278e-02, 126},
    {"papers/velofhe_mr1_ap", gate,  0, {1024, 1, 1, {24, 1}, {24, 1}, select_2x6, 1, raised},            s_ternary,   3.19,  512,  16, 12.76, {2, 6},  1.4142135623730951, -36.9,   1.787e-02, 65, 3.19},
    {"papers/velofhe_mr2_ap", gate,  0, {2048, 1, 1, {24, 1}, {24, 1}, select_2x6, 1, raised},            s_ternary,   3.19,  1024, 24, 3.19,  {2, 10}, 1.4142135623730951, -3187.5, 1.844e-03, 131, 3.19},
});
// clang-format on

static_assert(std::ranges::all_of(kPaperRows, &ParameterSet::is_published) &&
                  std::ranges::none_of(kRows, &ParameterSet::is_published),
              "their names tell them from shipped sets");
static_assert(std::ranges::all_of(kPaperRows, &ParameterSet::has_whole_steps), "n is a multiple of the key bits of a step");
static_assert(std::ranges::all_of(kPaperRows, &ParameterSet::has_whole_digits),
              "digits that select keys are all those of an exponent");

// Shipped sets, then these.
inline constexpr auto kAllRows = [] {
    std::array<ParameterSet, kRows.size() + kPaperRows.size()> rows{};
    std::ranges::copy(kPaperRows, std::ranges::copy(kRows, rows.begin()).out);
    return rows;
}();

}  // namespace parameter_table

inline constexpr auto& kPaperSets = parameter_table::kPaperRows;
inline constexpr auto& kAllSets = parameter_table::kAllRows;

}  // namespace fhe_core
