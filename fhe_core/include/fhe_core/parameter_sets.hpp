// The shipped parameter sets, one row each. Written by fhe_core/tools/parameter_search.py: change that, not this.
//
// Security: lattice-estimator 27a581b (2026-06-06), cost model MATZOV, unlimited samples, the least of primal
// usvp, primal bdd and dual hybrid, of the LWE and of the GLWE side; from the curves in fhe_core/tools/security_curves.json.
// Noise and failure probability: fhe_core/noise.py, p_fail with the standard deviation inflated by 2 %.
// Units: gadgets {base_log, level_count}; ring sigma 1/Q; keyswitch sigma 2^-w; weights: largest L2 norm of integer weights on fresh
// outputs; p_fail: log2, 0 for approximate sets; noise: standard deviation at a look-up at that norm, fraction of the torus.
// toy*: insecure, for tests.
#pragma once

#include <array>

#include "fhe_core/parameters.hpp"

namespace fhe_core {

namespace parameter_table {

using enum CmuxKind;
using enum TableKind;
inline constexpr SecretKind s_binary = SecretKind::binary, s_ternary = SecretKind::ternary;

// clang-format off
inline constexpr std::array kRows = std::to_array<ParameterSet>({
    // name           kind         p  {N, k, limbs, mask, body, cmux}              ring secret  sigma  n     w   sigma   digits  weights             p_fail  noise      bits
    {"gate_64",       gate,        0, {512, 2, 1, {6, 3}, {7, 2}, binary_pair},    s_ternary,   7.01,  628,  16, 7.93,   {2, 6}, 1.7320508075688772, -64.9,  1.324e-02, 132},
    {"gate_128",      gate,        0, {512, 2, 1, {6, 3}, {7, 2}, binary_pair},    s_ternary,   7.01,  672,  16, 3.74,   {2, 6}, 1.7320508075688772, -128.9, 9.277e-03, 132},
    {"lut1_64",       exact,       1, {512, 2, 1, {6, 3}, {7, 2}, binary_pair},    s_ternary,   7.01,  632,  16, 7.41,   {2, 6}, 2.0,                -65.4,  1.318e-02, 132},
    {"lut2_64",       exact,       2, {1024, 1, 1, {5, 4}, {4, 4}, binary_pair},   s_ternary,   7.01,  672,  16, 3.74,   {2, 6}, 2.0,                -65.6,  6.579e-03, 132},
    {"lut3_64",       exact,       3, {1024, 2, 2, {24, 1}, {24, 1}, binary_pair}, s_binary,    36.82, 736,  24, 314.05, {2, 7}, 2.0,                -66.0,  3.262e-03, 132},
    {"lut4_64",       exact,       4, {2048, 1, 2, {24, 1}, {24, 1}, binary_pair}, s_binary,    36.82, 782,  24, 141.59, {2, 7}, 4.0,                -65.8,  1.632e-03, 132},
    {"lut5_64",       exact,       5, {4096, 1, 2, {24, 1}, {24, 1}, binary_pair}, s_binary,    3.19,  844,  24, 48.62,  {2, 8}, 4.0,                -64.4,  8.202e-04, 132},
    {"lut1",          exact,       1, {512, 2, 1, {6, 3}, {7, 2}, binary_pair},    s_ternary,   7.01,  696,  24, 631.64, {2, 7}, 2.0,                -128.3, 9.299e-03, 132},
    {"lut2",          exact,       2, {1024, 1, 1, {5, 4}, {4, 4}, binary_pair},   s_ternary,   7.01,  714,  24, 461.48, {2, 7}, 2.0,                -128.9, 4.639e-03, 132},
    {"lut3",          exact,       3, {1024, 2, 2, {24, 1}, {24, 1}, binary_pair}, s_binary,    36.82, 788,  24, 127.67, {2, 7}, 2.0,                -128.3, 2.314e-03, 132},
    {"lut4",          exact,       4, {2048, 1, 2, {24, 1}, {24, 1}, binary_pair}, s_binary,    36.82, 834,  24, 57.76,  {2, 8}, 4.0,                -128.2, 1.156e-03, 132},
    {"lut5",          exact,       5, {4096, 1, 2, {24, 1}, {24, 1}, binary_pair}, s_ternary,   3.19,  912,  24, 14.94,  {2, 9}, 4.0,                -128.2, 5.792e-04, 132},
    {"nn2",           approximate, 0, {1024, 1, 1, {5, 4}, {4, 4}, binary_pair},   s_ternary,   7.01,  654,  16, 5.1,    {2, 6}, 4.0,                0.0,    9.735e-03, 132},
    {"nn1",           approximate, 0, {1024, 2, 2, {24, 1}, {24, 1}, binary_pair}, s_binary,    36.82, 706,  24, 530.8,  {2, 7}, 4.0,                0.0,    4.779e-03, 132},
    {"nn05",          approximate, 0, {1024, 2, 2, {24, 1}, {24, 1}, binary_pair}, s_ternary,   15.08, 776,  24, 157.02, {2, 7}, 4.0,                0.0,    2.442e-03, 132},
    {"nn2_wide",      approximate, 0, {1024, 2, 2, {24, 1}, {24, 1}, binary_pair}, s_ternary,   15.08, 660,  16, 4.59,   {2, 6}, 64.0,               0.0,    9.559e-03, 132},
    {"nn1_wide",      approximate, 0, {1024, 2, 2, {24, 1}, {24, 1}, binary_pair}, s_ternary,   15.08, 708,  24, 512.55, {2, 7}, 64.0,               0.0,    4.796e-03, 132},
    {"nn05_wide",     approximate, 0, {2048, 1, 2, {24, 1}, {24, 1}, binary_pair}, s_ternary,   15.08, 760,  24, 206.9,  {2, 7}, 64.0,               0.0,    2.419e-03, 132},
    {"gate_64_s192",  gate,        0, {512, 3, 1, {6, 3}, {6, 3}, binary_pair},    s_ternary,   3.37,  936,  16, 6.86,   {2, 6}, 1.7320508075688772, -66.1,  1.311e-02, 192},
    {"gate_128_s192", gate,        0, {512, 3, 1, {6, 3}, {6, 3}, binary_pair},    s_ternary,   3.37,  980,  16, 4.01,   {2, 6}, 1.7320508075688772, -130.3, 9.226e-03, 192},
    {"lut2_s192",     exact,       2, {1024, 2, 1, {5, 4}, {5, 4}, binary_pair},   s_binary,    3.19,  1070, 24, 341.31, {2, 7}, 2.0,                -128.8, 4.637e-03, 192},
    {"toy",           exact,       2, {256, 1, 1, {7, 3}, {7, 3}, binary_pair},    s_ternary,   3.19,  32,   24, 4.0,    {2, 8}, 4.0,                -561.9, 2.171e-03, 0},
    {"toy_binary",    exact,       1, {256, 2, 1, {6, 3}, {7, 2}, binary},         s_binary,    3.19,  24,   16, 3.19,   {4, 4}, 2.0,                -104.7, 1.028e-02, 0},
    {"toy_ternary",   exact,       2, {256, 1, 1, {8, 2}, {6, 3}, ternary},        s_ternary,   3.19,  20,   20, 3.19,   {3, 5}, 2.0,                -477.5, 2.357e-03, 0},
    {"toy_two_limb",  exact,       2, {256, 1, 2, {24, 1}, {24, 1}, binary_pair},  s_ternary,   3.19,  32,   24, 4.0,    {2, 9}, 16.0,               -922.5, 1.692e-03, 0},
    {"toy_gate",      gate,        0, {256, 2, 1, {8, 2}, {8, 2}, binary_pair},    s_ternary,   3.19,  32,   16, 3.19,   {2, 6}, 1.7320508075688772, -667.5, 4.013e-03, 0},
});
// clang-format on

}  // namespace parameter_table

inline constexpr auto& kParameterSets = parameter_table::kRows;

}  // namespace fhe_core
