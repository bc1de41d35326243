// The shipped parameter sets, one row each. Written by fhe_core/tools/parameter_search.py: change that, not this.
//
// Security: lattice-estimator 27a581b (2026-06-06), cost model MATZOV, unlimited samples, the least of primal
// usvp, primal bdd and dual hybrid, of the LWE and of the GLWE side; from the curves in fhe_core/tools/security_curves.json.
// Noise and failure probability: fhe_core/noise.py, p_fail with the standard deviation inflated by 2 %.
// Units: gadgets {base_log, level_count}; ring sigma 1/Q; keyswitch sigma 2^-w; weights: largest L2 norm of integer weights on
// fresh outputs; p_fail: log2, 0 for approximate sets; noise: standard deviation at a look-up at that norm, fraction of the torus.
// toy*: insecure, for tests.
#pragma once

#include <array>

#include "fhe_core/parameters.hpp"

namespace fhe_core {

namespace parameter_table {

using enum CmuxKind;
using enum TableKind;
inline constexpr SecretKind s_binary = SecretKind::binary, s_ternary = SecretKind::ternary, s_quinary = SecretKind::quinary;

// clang-format off
inline constexpr std::array kRows = std::to_array<ParameterSet>({
    // name           kind         p  {N, k, limbs, mask, body, cmux}              ring secret  sigma  n     w   sigma   digits  weights             p_fail  noise      bits
    {"gate_64",       gate,        0, {512, 2, 1, {8, 2}, {7, 2}, binary_pair},    s_quinary,   3.53,  640,  16, 6.48,   {2, 6}, 1.4142135623730951, -64.6,  1.326e-02, 132},
    {"gate_128",      gate,        0, {512, 2, 1, {6, 3}, {7, 2}, binary_pair},    s_quinary,   3.53,  652,  16, 5.26,   {2, 6}, 1.4142135623730951, -130.0, 9.238e-03, 132},
    {"lut1_64",       exact,       1, {512, 2, 1, {6, 3}, {7, 2}, binary_pair},    s_quinary,   3.53,  626,  16, 8.23,   {2, 6}, 2.0,                -66.9,  1.302e-02, 132},
    {"lut2_64",       exact,       2, {512, 2, 1, {6, 3}, {7, 2}, binary_pair},    s_quinary,   3.53,  710,  24, 498.97, {2, 7}, 2.0,                -64.2,  6.626e-03, 132},
    {"lut3_64",       exact,       3, {1024, 1, 1, {5, 4}, {5, 3}, binary_pair},   s_quinary,   3.53,  744,  24, 273.44, {2, 8}, 2.0,                -64.1,  3.317e-03, 132},
    {"lut4_64",       exact,       4, {2048, 1, 2, {24, 1}, {24, 1}, binary_pair}, s_binary,    37.28, 780,  24, 147.38, {2, 8}, 4.0,                -65.4,  1.637e-03, 132},
    {"lut5_64",       exact,       5, {4096, 1, 2, {24, 1}, {24, 1}, binary_pair}, s_binary,    3.19,  844,  24, 48.53,  {2, 8}, 4.0,                -64.6,  8.194e-04, 132},
    {"lut1",          exact,       1, {512, 2, 1, {6, 3}, {7, 2}, binary_pair},    s_quinary,   3.53,  658,  16, 4.81,   {2, 6}, 2.0,                -128.2, 9.302e-03, 132},
    {"lut2",          exact,       2, {512, 2, 1, {5, 4}, {5, 3}, binary_pair},    s_quinary,   3.53,  742,  24, 283.0,  {2, 8}, 2.0,                -128.1, 4.635e-03, 132},
    {"lut3",          exact,       3, {1024, 2, 2, {24, 1}, {24, 1}, binary_pair}, s_binary,    37.28, 786,  24, 134.11, {2, 8}, 2.0,                -128.8, 2.309e-03, 132},
    {"lut4",          exact,       4, {2048, 1, 2, {24, 1}, {24, 1}, binary_pair}, s_binary,    37.28, 834,  24, 57.63,  {2, 8}, 4.0,                -128.3, 1.156e-03, 132},
    {"lut5",          exact,       5, {4096, 1, 2, {24, 1}, {24, 1}, binary_pair}, s_ternary,   3.19,  914,  24, 14.91,  {2, 9}, 4.0,                -128.0, 5.797e-04, 132},
    {"nn2",           approximate, 0, {512, 2, 1, {6, 3}, {5, 3}, binary_pair},    s_quinary,   3.53,  670,  16, 3.91,   {2, 7}, 4.0,                0.0,    9.778e-03, 132},
    {"nn1",           approximate, 0, {1024, 1, 1, {5, 4}, {5, 3}, binary_pair},   s_quinary,   3.53,  746,  24, 264.21, {2, 8}, 4.0,                0.0,    4.899e-03, 132},
    {"nn05",          approximate, 0, {1024, 2, 2, {24, 1}, {24, 1}, binary_pair}, s_quinary,   8.39,  774,  24, 163.37, {2, 8}, 4.0,                0.0,    2.451e-03, 132},
    {"nn2_wide",      approximate, 0, {1024, 2, 2, {24, 1}, {24, 1}, binary_pair}, s_ternary,   15.08, 668,  16, 4.04,   {2, 6}, 256.0,              0.0,    9.611e-03, 132},
    {"nn1_wide",      approximate, 0, {1024, 2, 2, {24, 1}, {24, 1}, binary_pair}, s_ternary,   15.08, 714,  24, 464.41, {2, 7}, 128.0,              0.0,    4.891e-03, 132},
    {"nn05_wide",     approximate, 0, {2048, 1, 2, {24, 1}, {24, 1}, binary_pair}, s_ternary,   15.08, 760,  24, 207.76, {2, 7}, 64.0,               0.0,    2.424e-03, 132},
    {"gate_64_s192",  gate,        0, {512, 3, 1, {6, 3}, {7, 2}, binary_pair},    s_ternary,   3.19,  934,  16, 6.94,   {2, 6}, 1.4142135623730951, -65.8,  1.314e-02, 192},
    {"gate_128_s192", gate,        0, {512, 3, 1, {6, 3}, {7, 2}, binary_pair},    s_ternary,   3.19,  976,  16, 4.15,   {2, 6}, 1.4142135623730951, -129.1, 9.270e-03, 192},
    {"lut2_s192",     exact,       2, {1024, 2, 1, {5, 4}, {5, 3}, binary_pair},   s_binary,    3.19,  1066, 24, 348.23, {2, 7}, 2.0,                -129.6, 4.624e-03, 192},
    {"toy",           exact,       2, {256, 1, 1, {7, 3}, {7, 3}, binary_pair},    s_ternary,   3.19,  32,   24, 4.0,    {2, 8}, 4.0,                -561.9, 2.171e-03, 0},
    {"toy_binary",    exact,       1, {256, 2, 1, {6, 3}, {7, 2}, binary},         s_binary,    3.19,  24,   16, 3.19,   {4, 4}, 2.0,                -104.7, 1.028e-02, 0},
    {"toy_ternary",   exact,       2, {256, 1, 1, {8, 2}, {6, 3}, ternary},        s_ternary,   3.19,  20,   20, 3.19,   {3, 5}, 2.0,                -477.5, 2.357e-03, 0},
    {"toy_two_limb",  exact,       2, {256, 1, 2, {24, 1}, {24, 1}, binary_pair},  s_ternary,   3.19,  32,   24, 4.0,    {2, 9}, 16.0,               -922.5, 1.692e-03, 0},
    {"toy_gate",      gate,        0, {256, 2, 1, {8, 2}, {6, 2}, binary_pair},    s_quinary,   3.19,  32,   16, 3.19,   {2, 6}, 1.4142135623730951, -551.6, 4.418e-03, 0},
});
// clang-format on

}  // namespace parameter_table

inline constexpr auto& kParameterSets = parameter_table::kRows;

}  // namespace fhe_core
