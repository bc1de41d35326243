// The shipped parameter sets, one row each. Written by fhe_core/tools/parameter_search.py: change that, not this.
//
// Security: lattice-estimator 27a581b (2026-06-06), cost model MATZOV, unlimited samples, the least of primal
// usvp, primal bdd and dual hybrid, of the LWE and of the GLWE side; from the curves in fhe_core/tools/security_curves.json.
// Of block-binary keys the least of the attacks in block_security.py and meet_in_the_middle.py as well.
// Noise and failure probability: fhe_core/noise.py, p_fail with the standard deviation inflated by 2 %.
// Units: gadgets {base_log, level_count}; ring sigma 1/Q, of raised keys 1/(QP), of NTRU keys 1/Q; keyswitch sigma 2^-w;
// weights: largest L2 norm of integer weights on fresh outputs; p_fail: log2, 0 for approximate sets; noise: standard deviation
// at a look-up at that norm, fraction of the torus.
// toy*: insecure, for tests.
#pragma once

#include <algorithm>
#include <array>

#include "core/parameters.hpp"

namespace fhe_core {

namespace parameter_table {

using enum Accumulator;
using enum CmuxKind;
using enum Raising;
using enum TableKind;
inline constexpr SecretKind s_binary = SecretKind::binary, s_ternary = SecretKind::ternary, s_quinary = SecretKind::quinary;

// clang-format off
inline constexpr std::array kRows = std::to_array<ParameterSet>({
    // name                   kind         p  {N, k, limbs, mask, body, cmux, nu, raising, lanes, accumulator}  ring secret  sigma  n     w   sigma    digits   weights             p_fail    noise      bits, key sigma, parties
    {"gate_64",               gate,        0, {512, 2, 1, {8, 2}, {7, 2}, binary_pair},                         s_quinary,   3.53,  640,  16, 6.48,    {2, 6},  1.4142135623730951, -64.6,    1.326e-02, 132},
    {"gate_128",              gate,        0, {512, 2, 1, {6, 3}, {7, 2}, binary_pair},                         s_quinary,   3.53,  652,  16, 5.26,    {2, 6},  1.4142135623730951, -130.0,   9.238e-03, 132},
    {"lut1_64",               exact,       1, {512, 2, 1, {6, 3}, {7, 2}, binary_pair},                         s_quinary,   3.53,  626,  16, 8.23,    {2, 6},  2.0,                -66.9,    1.302e-02, 132},
    {"lut2_64",               exact,       2, {512, 2, 1, {6, 3}, {7, 2}, binary_pair},                         s_quinary,   3.53,  710,  24, 498.97,  {2, 7},  2.0,                -64.2,    6.626e-03, 132},
    {"lut3_64",               exact,       3, {1024, 1, 1, {5, 4}, {5, 3}, binary_pair},                        s_quinary,   3.53,  744,  24, 273.44,  {2, 8},  2.0,                -64.1,    3.317e-03, 132},
    {"lut4_64",               exact,       4, {2048, 1, 2, {24, 1}, {24, 1}, binary_pair},                      s_binary,    37.28, 780,  24, 147.38,  {2, 8},  4.0,                -65.4,    1.637e-03, 132},
    {"lut5_64",               exact,       5, {4096, 1, 2, {24, 1}, {24, 1}, binary_pair},                      s_binary,    3.19,  844,  24, 48.53,   {2, 8},  4.0,                -64.6,    8.194e-04, 132},
    {"lut1",                  exact,       1, {512, 2, 1, {6, 3}, {7, 2}, binary_pair},                         s_quinary,   3.53,  658,  16, 4.81,    {2, 6},  2.0,                -128.2,   9.302e-03, 132},
    {"lut2",                  exact,       2, {512, 2, 1, {5, 4}, {5, 3}, binary_pair},                         s_quinary,   3.53,  742,  24, 283.0,   {2, 8},  2.0,                -128.1,   4.635e-03, 132},
    {"lut3",                  exact,       3, {1024, 2, 2, {24, 1}, {24, 1}, binary_pair},                      s_binary,    37.28, 786,  24, 134.11,  {2, 8},  2.0,                -128.8,   2.309e-03, 132},
    {"lut4",                  exact,       4, {2048, 1, 2, {24, 1}, {24, 1}, binary_pair},                      s_binary,    37.28, 834,  24, 57.63,   {2, 8},  4.0,                -128.3,   1.156e-03, 132},
    {"lut5",                  exact,       5, {4096, 1, 2, {24, 1}, {24, 1}, binary_pair},                      s_ternary,   3.19,  914,  24, 14.91,   {2, 9},  4.0,                -128.0,   5.797e-04, 132},
    {"lut4_fft",              exact,       4, {2048, 1, 1, {23, 1}, {20, 1}, binary_pair, 1, rounded},          s_binary,    3.19,  836,  24, 55.66,   {2, 8},  4.0,                -129.2,   1.151e-03, 132, 9.33},
    {"lut6_64",               exact,       6, {2048, 1, 2, {24, 1}, {22, 1}, binary_pair, 4},                   s_ternary,   15.08, 866,  24, 33.49,   {2, 9},  4.0,                -64.1,    4.145e-04, 132},
    {"lut7_64",               exact,       7, {2048, 1, 2, {24, 1}, {22, 1}, binary_pair, 8},                   s_ternary,   15.08, 918,  24, 13.94,   {2, 9},  4.0,                -64.8,    2.062e-04, 132},
    {"lut8_64",               exact,       8, {2048, 1, 2, {24, 1}, {22, 1}, binary_pair, 16},                  s_ternary,   15.08, 960,  24, 6.65,    {2, 10}, 2.0,                -64.7,    1.031e-04, 132},
    {"lut6",                  exact,       6, {2048, 1, 2, {24, 1}, {22, 1}, binary_pair, 4},                   s_ternary,   15.08, 938,  24, 9.81,    {2, 10}, 2.0,                -128.0,   2.898e-04, 132},
    {"lut7",                  exact,       7, {2048, 1, 2, {24, 1}, {22, 1}, binary_pair, 16},                  s_ternary,   15.08, 936,  24, 10.16,   {2, 10}, 4.0,                -129.8,   1.444e-04, 132},
    {"lut8",                  exact,       8, {2048, 1, 2, {24, 1}, {22, 1}, binary_pair, 32},                  s_ternary,   15.08, 978,  24, 4.84,    {2, 10}, 2.0,                -130.5,   7.202e-05, 132},
    {"nn2",                   approximate, 0, {512, 2, 1, {6, 3}, {5, 3}, binary_pair},                         s_quinary,   3.53,  670,  16, 3.91,    {2, 7},  4.0,                0.0,      9.778e-03, 132},
    {"nn1",                   approximate, 0, {1024, 1, 1, {5, 4}, {5, 3}, binary_pair},                        s_quinary,   3.53,  746,  24, 264.21,  {2, 8},  4.0,                0.0,      4.899e-03, 132},
    {"nn05",                  approximate, 0, {1024, 2, 2, {24, 1}, {24, 1}, binary_pair},                      s_quinary,   8.39,  774,  24, 163.37,  {2, 8},  4.0,                0.0,      2.451e-03, 132},
    {"nn2_wide",              approximate, 0, {1024, 2, 2, {24, 1}, {24, 1}, binary_pair},                      s_ternary,   15.08, 668,  16, 4.04,    {2, 6},  256.0,              0.0,      9.611e-03, 132},
    {"nn1_wide",              approximate, 0, {1024, 2, 2, {24, 1}, {24, 1}, binary_pair},                      s_ternary,   15.08, 714,  24, 464.41,  {2, 7},  128.0,              0.0,      4.891e-03, 132},
    {"nn05_wide",             approximate, 0, {2048, 1, 2, {24, 1}, {24, 1}, binary_pair},                      s_ternary,   15.08, 760,  24, 207.76,  {2, 7},  64.0,               0.0,      2.424e-03, 132},
    {"gate_64_s192",          gate,        0, {512, 3, 1, {6, 3}, {7, 2}, binary_pair},                         s_ternary,   3.19,  934,  16, 6.94,    {2, 6},  1.4142135623730951, -65.8,    1.314e-02, 192},
    {"gate_128_s192",         gate,        0, {512, 3, 1, {6, 3}, {7, 2}, binary_pair},                         s_ternary,   3.19,  976,  16, 4.15,    {2, 6},  1.4142135623730951, -129.1,   9.270e-03, 192},
    {"lut2_s192",             exact,       2, {1024, 2, 1, {5, 4}, {5, 3}, binary_pair},                        s_binary,    3.19,  1066, 24, 348.23,  {2, 7},  2.0,                -129.6,   4.624e-03, 192},
    {"gate_64_block",         gate,        0, {512, 2, 1, {8, 2}, {7, 2}, block_8},                             s_quinary,   3.53,  864,  16, 7.33,    {2, 6},  1.4142135623730951, -68.6,    1.286e-02, 132},
    {"gate_128_block",        gate,        0, {512, 2, 1, {8, 2}, {7, 2}, block_8},                             s_quinary,   3.53,  904,  16, 3.65,    {2, 7},  1.4142135623730951, -129.5,   9.254e-03, 132},
    {"lut1_block",            exact,       1, {512, 2, 1, {6, 3}, {7, 2}, block_8},                             s_quinary,   3.53,  888,  16, 4.82,    {2, 6},  2.0,                -145.8,   8.710e-03, 132},
    {"lut2_block",            exact,       2, {512, 2, 1, {6, 3}, {5, 3}, block_8},                             s_quinary,   3.53,  960,  24, 350.55,  {2, 7},  2.0,                -131.0,   4.582e-03, 132},
    {"lut3_block",            exact,       3, {1024, 2, 2, {24, 1}, {24, 1}, block_8},                          s_binary,    37.28, 992,  24, 200.5,   {2, 7},  2.0,                -137.2,   2.235e-03, 132},
    {"lut4_block",            exact,       4, {2048, 1, 2, {24, 1}, {24, 1}, block_8},                          s_binary,    37.28, 1032, 24, 99.79,   {2, 8},  4.0,                -130.6,   1.145e-03, 132},
    {"lut5_block",            exact,       5, {4096, 1, 2, {24, 1}, {24, 1}, block_8},                          s_binary,    3.19,  1096, 24, 32.69,   {2, 9},  4.0,                -130.1,   5.703e-04, 132},
    {"lut6_64_block",         exact,       6, {2048, 1, 2, {24, 1}, {22, 1}, block_8, 2},                       s_ternary,   15.08, 1136, 24, 16.28,   {2, 9},  4.0,                -64.5,    4.100e-04, 132},
    {"lut7_64_block",         exact,       7, {2048, 1, 2, {24, 1}, {22, 1}, block_8, 4},                       s_ternary,   15.08, 1184, 24, 7.05,    {1, 20}, 4.0,                -64.1,    2.056e-04, 132},
    {"lut8_64_block",         exact,       8, {2048, 1, 2, {24, 1}, {22, 1}, block_8, 8},                       s_ternary,   15.08, 1216, 24, 4.04,    {1, 20}, 1.0,                -64.5,    1.025e-04, 132},
    {"lut6_block",            exact,       6, {2048, 1, 2, {24, 1}, {22, 1}, block_8, 4},                       s_ternary,   15.08, 1120, 24, 21.51,   {2, 9},  4.0,                -135.6,   2.814e-04, 132},
    {"lut7_block",            exact,       7, {2048, 1, 2, {24, 1}, {22, 1}, block_8, 8},                       s_ternary,   15.08, 1168, 24, 9.32,    {2, 10}, 4.0,                -130.9,   1.433e-04, 132},
    {"lut8_block",            exact,       8, {2048, 1, 2, {24, 1}, {22, 1}, block_8, 16},                      s_ternary,   15.08, 1216, 24, 4.04,    {2, 10}, 2.0,                -139.2,   6.941e-05, 132},
    {"nn2_block",             approximate, 0, {512, 2, 1, {6, 3}, {7, 2}, block_8},                             s_quinary,   3.53,  904,  24, 932.23,  {2, 7},  4.0,                0.0,      9.792e-03, 132},
    {"nn1_block",             approximate, 0, {512, 2, 1, {5, 4}, {5, 3}, block_8},                             s_quinary,   3.53,  960,  24, 350.55,  {2, 7},  4.0,                0.0,      4.858e-03, 132},
    {"nn05_block",            approximate, 0, {1024, 2, 2, {24, 1}, {24, 1}, block_8},                          s_ternary,   15.08, 984,  24, 230.55,  {2, 7},  4.0,                0.0,      2.441e-03, 132},
    {"lut3_raised",           exact,       3, {1024, 2, 1, {24, 1}, {24, 1}, binary_pair, 1, raised},           s_binary,    3.19,  786,  24, 134.11,  {2, 8},  2.0,                -128.8,   2.309e-03, 132, 9.33},
    {"lut4_raised",           exact,       4, {2048, 1, 1, {24, 1}, {24, 1}, binary_pair, 1, raised},           s_binary,    3.19,  834,  24, 57.63,   {2, 8},  4.0,                -128.3,   1.156e-03, 132, 9.33},
    {"lut5_raised",           exact,       5, {4096, 1, 1, {24, 1}, {24, 1}, binary_pair, 1, raised},           s_ternary,   3.19,  920,  24, 13.48,   {2, 9},  4.0,                -128.4,   5.788e-04, 132, 3.19},
    {"nn05_raised",           approximate, 0, {1024, 2, 1, {24, 1}, {24, 1}, binary_pair, 1, raised},           s_ternary,   3.19,  774,  24, 163.37,  {2, 8},  4.0,                0.0,      2.439e-03, 132, 3.69},
    {"nn2_wide_raised",       approximate, 0, {1024, 2, 1, {24, 1}, {24, 1}, binary_pair, 1, raised},           s_ternary,   3.19,  668,  16, 4.04,    {2, 6},  256.0,              0.0,      9.604e-03, 132, 3.69},
    {"nn1_wide_raised",       approximate, 0, {1024, 2, 1, {24, 1}, {24, 1}, binary_pair, 1, raised},           s_ternary,   3.19,  714,  24, 464.41,  {2, 7},  128.0,              0.0,      4.888e-03, 132, 3.69},
    {"nn05_wide_raised",      approximate, 0, {1024, 2, 1, {24, 1}, {24, 1}, binary_pair, 1, raised},           s_ternary,   3.19,  840,  24, 51.92,   {2, 9},  64.0,               0.0,      2.451e-03, 132, 3.69},
    {"gate_64_cm2",           gate,        0, {512, 2, 1, {8, 2}, {7, 2}, binary_pair, 1, none, 2},             s_quinary,   3.53,  642,  16, 6.28,    {2, 6},  1.4142135623730951, -64.9,    1.323e-02, 132},
    {"gate_64_block_cm2",     gate,        0, {512, 2, 1, {8, 2}, {7, 2}, block_8, 1, none, 2},                 s_quinary,   3.53,  864,  16, 7.33,    {2, 6},  1.4142135623730951, -67.3,    1.299e-02, 132},
    {"lut1_cm2",              exact,       1, {512, 2, 1, {6, 3}, {7, 2}, binary_pair, 1, none, 2},             s_quinary,   3.53,  662,  16, 4.51,    {2, 7},  2.0,                -129.0,   9.272e-03, 132},
    {"lut2_cm2",              exact,       2, {512, 2, 1, {5, 4}, {5, 3}, binary_pair, 1, none, 2},             s_quinary,   3.53,  756,  24, 222.53,  {2, 8},  2.0,                -128.1,   4.636e-03, 132},
    {"nn2_cm2",               approximate, 0, {512, 2, 1, {6, 3}, {5, 3}, binary_pair, 1, none, 2},             s_quinary,   3.53,  674,  16, 3.66,    {2, 7},  4.0,                0.0,      9.736e-03, 132},
    {"nn2_block_cm2",         approximate, 0, {512, 2, 1, {6, 3}, {5, 3}, block_8, 1, none, 2},                 s_quinary,   3.53,  888,  16, 4.82,    {2, 6},  4.0,                0.0,      9.791e-03, 132},
    {"gate_ap",               gate,        0, {512, 2, 1, {9, 2}, {7, 2}, select_2x5},                          s_quinary,   3.53,  592,  24, 1208.55, {2, 7},  1.4142135623730951, -64.0,    1.333e-02, 132},
    {"gate_ntru",             gate,        0, {2048, 1, 1, {9, 2}, {9, 2}, binary_pair, 1, none, 1, ntru},      s_ternary,   3.19,  642,  16, 6.28,    {2, 6},  1.4142135623730951, -64.1,    1.336e-02, 132, 1.0},
    {"lut4_ntru",             exact,       4, {2048, 1, 1, {4, 6}, {4, 6}, binary_pair, 1, none, 1, ntru},      s_ternary,   3.19,  862,  24, 35.83,   {2, 9},  2.0,                -128.0,   1.159e-03, 132, 1.0},
    {"large16",               exact,       4, {2048, 1, 2, {16, 2}, {16, 2}, binary_pair},                      s_ternary,   15.08, 834,  24, 57.63,   {2, 8},  256.0,              -130.0,   1.150e-03, 132},
    {"fine4",                 exact,       4, {2048, 1, 2, {5, 9}, {5, 9}, binary_pair},                        s_quinary,   8.39,  836,  24, 55.66,   {2, 9},  4096.0,             -130.7,   1.147e-03, 132},
    {"fine5",                 exact,       5, {4096, 1, 2, {6, 8}, {6, 8}, binary_pair},                        s_ternary,   3.19,  914,  24, 14.91,   {2, 9},  4096.0,             -131.5,   5.715e-04, 132},
    {"lut3_2p",               exact,       3, {2048, 1, 2, {16, 2}, {16, 2}, binary_pair},                      s_ternary,   15.08, 1560, 24, 147.38,  {2, 8},  16.0,               -129.7,   2.312e-03, 132, 0.0, 2},
    {"lut3_3p",               exact,       3, {2048, 1, 2, {16, 2}, {16, 2}, binary_pair},                      s_ternary,   15.08, 2496, 24, 59.67,   {2, 7},  16.0,               -135.0,   2.265e-03, 132, 0.0, 3},
    {"toy",                   exact,       2, {256, 1, 1, {7, 3}, {7, 3}, binary_pair},                         s_ternary,   3.19,  32,   24, 4.0,     {2, 8},  4.0,                -561.9,   2.171e-03, 0},
    {"toy_binary",            exact,       1, {256, 2, 1, {6, 3}, {7, 2}, binary},                              s_binary,    3.19,  24,   16, 3.19,    {4, 4},  2.0,                -104.7,   1.028e-02, 0},
    {"toy_ternary",           exact,       2, {256, 1, 1, {8, 2}, {6, 3}, ternary},                             s_ternary,   3.19,  20,   20, 3.19,    {3, 5},  2.0,                -477.5,   2.357e-03, 0},
    {"toy_two_limb",          exact,       2, {256, 1, 2, {24, 1}, {24, 1}, binary_pair},                       s_ternary,   3.19,  32,   24, 4.0,     {2, 9},  16.0,               -922.5,   1.692e-03, 0},
    {"toy_gate",              gate,        0, {256, 2, 1, {8, 2}, {6, 2}, binary_pair},                         s_quinary,   3.19,  32,   16, 3.19,    {2, 6},  1.4142135623730951, -551.6,   4.418e-03, 0},
    {"toy_block",             exact,       2, {256, 1, 1, {7, 3}, {7, 3}, block_4},                             s_ternary,   3.19,  36,   24, 4.0,     {2, 8},  4.0,                -746.9,   1.881e-03, 0},
    {"toy_block_two_limb",    exact,       2, {256, 1, 2, {24, 1}, {24, 1}, block_8},                           s_ternary,   3.19,  40,   24, 4.0,     {2, 9},  16.0,               -1672.9,  1.255e-03, 0},
    {"toy_block_gate",        gate,        0, {256, 2, 1, {8, 2}, {6, 2}, block_3},                             s_quinary,   3.19,  36,   16, 3.19,    {2, 6},  1.4142135623730951, -576.8,   4.319e-03, 0},
    {"toy_raised",            exact,       2, {256, 1, 1, {24, 1}, {24, 1}, binary_pair, 1, raised},            s_ternary,   3.19,  32,   24, 4.0,     {2, 9},  16.0,               -922.4,   1.692e-03, 0, 4.0},
    {"toy_raised_block",      exact,       2, {256, 1, 1, {24, 1}, {24, 1}, block_6, 1, raised},                s_ternary,   3.19,  36,   24, 4.0,     {2, 9},  16.0,               -1531.7,  1.311e-03, 0, 4.0},
    {"toy_raised_binary",     exact,       1, {256, 2, 1, {13, 2}, {9, 2}, binary, 1, raised},                  s_binary,    3.19,  24,   16, 3.19,    {4, 4},  2.0,                -104.8,   1.028e-02, 0, 5.0},
    {"toy_fft",               exact,       2, {2048, 1, 1, {23, 1}, {20, 1}, binary_pair, 1, rounded},          s_binary,    9.12,  16,   24, 4.0,     {2, 8},  16.0,               -50434.3, 2.312e-04, 0, 9.12},
    {"toy_large",             exact,       4, {2048, 1, 2, {16, 2}, {16, 2}, binary_pair},                      s_ternary,   15.08, 16,   24, 4.0,     {2, 8},  256.0,              -3176.2,  2.293e-04, 0},
    {"toy_fine",              exact,       4, {2048, 1, 2, {5, 9}, {5, 9}, binary_pair},                        s_quinary,   8.39,  16,   24, 4.0,     {2, 8},  4096.0,             -1584.7,  3.249e-04, 0},
    {"toy_extended",          exact,       2, {256, 2, 1, {8, 2}, {7, 2}, binary_pair, 4},                      s_ternary,   3.19,  32,   24, 4.0,     {2, 8},  4.0,                -323.4,   2.903e-03, 0},
    {"toy_extended_two_limb", exact,       2, {256, 1, 2, {24, 1}, {22, 1}, block_8, 8},                        s_ternary,   3.19,  80,   24, 4.0,     {2, 9},  4.0,                -60484.2, 2.112e-04, 0},
    {"toy_lanes",             exact,       2, {256, 1, 1, {7, 3}, {7, 3}, binary_pair, 1, none, 2},             s_ternary,   3.19,  32,   24, 4.0,     {2, 8},  4.0,                -470.5,   2.374e-03, 0},
    {"toy_lanes_block",       gate,        0, {256, 2, 1, {8, 2}, {6, 2}, block_3, 1, none, 2},                 s_quinary,   3.19,  36,   16, 3.19,    {2, 6},  1.4142135623730951, -576.3,   4.321e-03, 0},
    {"toy_ap",                exact,       2, {256, 1, 1, {7, 3}, {6, 3}, select_3x3},                          s_ternary,   3.19,  20,   24, 4.0,     {2, 8},  4.0,                -363.5,   2.705e-03, 0},
    {"toy_ntru",              gate,        0, {2048, 1, 1, {9, 2}, {9, 2}, binary_pair, 1, none, 1, ntru},      s_ternary,   3.19,  16,   16, 3.19,    {2, 6},  1.4142135623730951, -239.1,   6.788e-03, 0, 1.0},
    {"toy_ntru_lut",          exact,       2, {2048, 1, 1, {4, 6}, {4, 6}, binary_pair, 1, none, 1, ntru},      s_ternary,   3.19,  16,   24, 4.0,     {2, 8},  2.0,                -48506.4, 2.359e-04, 0, 1.0},
    {"toy_ap_gate",           gate,        0, {512, 2, 1, {9, 2}, {7, 2}, select_2x5},                          s_quinary,   3.19,  12,   16, 3.19,    {2, 6},  1.4142135623730951, -340.7,   5.656e-03, 0},
    {"toy_ap_ternary",        exact,       2, {1024, 1, 1, {6, 4}, {6, 4}, select_2x6},                         s_ternary,   3.19,  8,    24, 4.0,     {2, 8},  4.0,                -4968.8,  7.359e-04, 0},
    {"toy_ap_two_limb",       exact,       2, {2048, 1, 2, {24, 2}, {24, 2}, select_2x6},                       s_ternary,   3.19,  4,    24, 4.0,     {2, 8},  16.0,               -58724.3, 2.144e-04, 0},
    {"toy_ap_raised",         exact,       2, {1024, 1, 1, {24, 1}, {24, 1}, select_2x6, 1, raised},            s_ternary,   3.19,  8,    24, 4.0,     {2, 8},  16.0,               -19116.1, 3.750e-04, 0, 3.19},
    {"toy_three_digits",      exact,       4, {2048, 1, 2, {17, 3}, {17, 3}, ternary},                          s_ternary,   3.19,  8,    24, 4.0,     {2, 8},  16.0,               -2822.0,  2.433e-04, 0},
    {"toy_four_digits",       exact,       4, {2048, 1, 2, {13, 4}, {13, 4}, ternary},                          s_ternary,   3.19,  8,    24, 4.0,     {2, 8},  16.0,               -2822.0,  2.433e-04, 0},
    {"toy_2p",                exact,       2, {256, 1, 2, {16, 2}, {16, 2}, binary_pair},                       s_ternary,   3.19,  32,   24, 4.0,     {2, 9},  16.0,               -922.5,   1.692e-03, 0, 0.0, 2},
    {"toy_3p",                exact,       2, {256, 2, 2, {24, 1}, {24, 1}, binary_pair},                       s_binary,    3.19,  36,   24, 4.0,     {2, 9},  4.0,                -828.8,   1.785e-03, 0, 0.0, 3},
});
// clang-format on

static_assert(std::ranges::all_of(kRows, &ParameterSet::has_whole_steps), "n is a multiple of the key bits of a step");
static_assert(std::ranges::all_of(kRows, &ParameterSet::has_whole_accumulator), "what back ends turn of an NTRU accumulator");
static_assert(std::ranges::all_of(kRows, &ParameterSet::has_whole_digits), "digits that select keys are all those of an exponent");
static_assert(std::ranges::all_of(kRows, &ParameterSet::has_whole_parties), "a step's bits are those of one party");
static_assert(std::ranges::none_of(kRows, [](const ParameterSet& p) { return p.is_raised() && p.extension_factor() > 1; }),
              "no back end rotates several accumulators with a raised key");
static_assert(std::ranges::none_of(kRows,
                                   [](const ParameterSet& p) {
                                       return p.lane_count() > 1 && (p.key_limbs().count > 1 || p.extension_factor() > 1);
                                   }),
              "lanes are tested with one limb and one accumulator");

}  // namespace parameter_table

inline constexpr auto& kParameterSets = parameter_table::kRows;

}  // namespace fhe_core
