"""Writes fhe_core/src/core/tables/paper.hpp: the founding papers' own parameters, which `cloakwork bench methods` alone takes.

    python fhe_core/tools/paper_sets.py             # print the header
    python fhe_core/tools/paper_sets.py --write     # replace it
    python fhe_core/tools/paper_sets.py --check     # exit 1 when it differs
    python fhe_core/tools/paper_sets.py --estimate  # lattice-estimator on rows without a stored estimate (needs Sage, as estimate_security.py)

Ring, dimensions, small secret and number of digits are the papers'. Moduli are ours, the next larger one: 27 bits for theirs of 27 and 16, 54 for 50
and 54, 27 + 25 for 16 + 20 and 22 + 28. So a step has as many transforms as theirs or more. Where a paper does not print the keyswitch's modulus, it is
OpenFHE's, with noise of 3.19 units: 2^14 for n below 600, 2^15 for 600 (ours is 2^16, with the noise in proportion) and more than ours of 2^24 above.

Source: [SYL+25] velofhe rows, [XLWX24] xiao rows.
"""

from __future__ import annotations

import argparse
import difflib
import math
import sys
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import parameter_search as search
from parameter_search import SIGMA_FLOOR, SQRT2, Row

HEADER = search.HEADER.with_name("paper.hpp")
GATE_SIGMA = 4 * SIGMA_FLOOR  # 3.19 of 2^14, in units of 2^-16

GD_1 = Row("papers/velofhe_gd1", "gate", 0, 1024, 1, 1, (6, 4), (6, 4), "ternary", "ternary", SIGMA_FLOOR, 503, 16, GATE_SIGMA, (2, 6), SQRT2)
GD_2 = replace(
    GD_1, name="papers/velofhe_gd2", polynomial_size=2048, limb_count=2, mask_gadget=(24, 2), body_gadget=(24, 2), lwe_dimension=600,
    lwe_sigma=2 * SIGMA_FLOOR,
)  # fmt: skip
MR_1 = replace(GD_1, name="papers/velofhe_mr1", mask_gadget=(24, 1), body_gadget=(24, 1), lwe_dimension=512, raised=True, raised_sigma=SIGMA_FLOOR)
MR_2 = replace(
    MR_1, name="papers/velofhe_mr2", polynomial_size=2048, lwe_dimension=1024, keyswitch_modulus_log2=24, lwe_sigma=SIGMA_FLOOR,
    keyswitch_gadget=(2, 10),
)  # fmt: skip
LARGE = replace(
    GD_2, name="papers/xiao_2_digits", kind="exact", message_bits=4, lwe_dimension=1305, keyswitch_modulus_log2=24, lwe_sigma=SIGMA_FLOOR,
    keyswitch_gadget=(2, 10), max_weight_norm=16.0,
)  # fmt: skip

PAPER_ROWS = (
    # GD-I: base 2^8 of 27 bits, four digits.
    GD_1,
    # GD-II, their composite modulus: base 2^25 of 50 bits, two digits.
    GD_2,
    # MR-I and MR-II: one digit, products modulo QP.
    MR_1,
    MR_2,
    # EvalBinGate. Its base is not in our notes: four digits, as OpenFHE's 2^7.
    replace(GD_1, name="papers/xiao_gate", lwe_dimension=512),
    # EvalFloor: log Q 27, N = 1024. Four digits.
    replace(
        LARGE, name="papers/xiao_floor", message_bits=2, polynomial_size=1024, limb_count=1, mask_gadget=(6, 4), body_gadget=(6, 4), max_weight_norm=4.0,
    ),
    # Base 2^27: EvalFunc, EvalSign and EvalDecomp to 2^16.
    LARGE,
    # Base 2^18, three digits: EvalSign and EvalDecomp to 2^25; 2^14, four: to 2^29.
    replace(LARGE, name="papers/xiao_3_digits", mask_gadget=(17, 3), body_gadget=(17, 3)),
    replace(LARGE, name="papers/xiao_4_digits", mask_gadget=(13, 4), body_gadget=(13, 4)),
    # FHEW at VeloFHE's parameters: their base-32 digits are two of 2^10 and 2^9 and three of 2^11; ours are two of 6 bits of 2N.
    *(replace(row, name=row.name + "_ap", cmux="select_2x6") for row in (GD_1, GD_2, MR_1, MR_2)),
)  # fmt: skip


def stored_bits(row: Row) -> int:
    """0 where the estimator has not seen it."""
    bits = search.row_security(row)
    return 0 if math.isnan(bits) else math.floor(bits)


def header() -> str:
    estimator = search.CURVES["estimator"]
    return f"""\
// The founding papers' own parameters, for `cloakwork bench methods` alone. Written by fhe_core/tools/paper_sets.py: change
// that, not this.
//
// Columns and units: shipped.hpp. Bits: {estimator["name"]} {estimator["commit"]}, cost model {estimator["cost_model"]}; 0: not estimated. Most are insecure.
#pragma once

#include "core/tables/shipped.hpp"

namespace fhe_core {{

namespace parameter_table {{

// clang-format off
inline constexpr std::array kPaperRows = std::to_array<ParameterSet>({{
{search.table_text([search.row_cells(row, stored_bits(row)) for row in PAPER_ROWS])}
}});
// clang-format on

static_assert(std::ranges::all_of(kPaperRows, &ParameterSet::is_published) &&
                  std::ranges::none_of(kRows, &ParameterSet::is_published),
              "their names tell them from shipped sets");
static_assert(std::ranges::all_of(kPaperRows, &ParameterSet::has_whole_steps), "n is a multiple of the key bits of a step");
static_assert(std::ranges::all_of(kPaperRows, &ParameterSet::has_whole_digits),
              "digits that select keys are all those of an exponent");

// Shipped sets, then these.
inline constexpr auto kAllRows = [] {{
    std::array<ParameterSet, kRows.size() + kPaperRows.size()> rows{{}};
    std::ranges::copy(kPaperRows, std::ranges::copy(kRows, rows.begin()).out);
    return rows;
}}();

}}  // namespace parameter_table

inline constexpr auto& kPaperSets = parameter_table::kPaperRows;
inline constexpr auto& kAllSets = parameter_table::kAllRows;

}}  // namespace fhe_core
"""


def estimate_missing() -> None:
    import estimate_security

    for instance in sorted({key for row in PAPER_ROWS for key in search.row_instances(row)} - search.ESTIMATES.keys()):
        secret, dimension, modulus, sigma = instance.split()
        search.ESTIMATES[instance] = estimate_security.estimate(secret, int(dimension), int(modulus), float(sigma))
        print(instance, search.ESTIMATES[instance], flush=True)
        estimate_security.write(search.ESTIMATES)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--write", action="store_true", help="replace the header")
    mode.add_argument("--check", action="store_true", help="exit 1 when the header differs")
    mode.add_argument("--estimate", action="store_true", help="run lattice-estimator on what has no stored estimate")
    arguments = parser.parse_args()
    if arguments.estimate:
        estimate_missing()
    elif arguments.write:
        HEADER.write_text(header())
    elif arguments.check:
        current = HEADER.read_text()
        sys.stdout.writelines(difflib.unified_diff(current.splitlines(True), header().splitlines(True), str(HEADER), "regenerated"))
        return int(current != header())
    else:
        print(header(), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
