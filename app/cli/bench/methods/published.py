"""Measurements of the founding papers, one line each, and the set of ours that each stands beside.

Rates are of one card in batches of 16,384, as printed (bootstraps a second) or from the milliseconds that are. Keys of `source` are those of
docs/reference/bibliography.md.

Source: [SYL+25] velofhe rows, [XLWX24] xiao rows, [Quat25] the NTRU one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Published:
    """`per_second` None: the paper gives parameters and no time."""

    source: str
    row: str
    device: str
    per_second: float | None


@dataclass(frozen=True)
class PaperCase:
    """A paper's row, on which set it runs here; rows of sets that the table has not are left out."""

    set_name: str
    operation: str  # "gate", or of large precision "func", "floor", "sign" or "decomp"
    published: Published
    bits: int = 0
    p_fail_log2: float = 0.0  # of large precision: what the paper states


RTX_4090: Final = "RTX 4090"

# Beside sets of our own, where the engine has no prime for the paper's: n = 610, N = 1024, q = 786433.
OF_SHIPPED_SETS: Final = {"gate_ntru": Published("Quat25", "FINAL, N=1024", "FPGA", 31250)}


def _velofhe(set_name: str, row: str, per_second: float) -> PaperCase:
    return PaperCase(f"papers/velofhe_{set_name}", "gate", Published("SYL+25", row, RTX_4090, per_second))


def _xiao(
    set_name: str, operation: str, milliseconds: float | None, bits: int = 0, p_fail_log2: float = 0.0
) -> PaperCase:
    names = {
        "gate": "EvalBinGate",
        "func": "EvalFunc",
        "floor": "EvalFloor",
        "sign": "EvalSign",
        "decomp": "EvalDecomp",
    }
    row = f"{names[operation]}, {bits} bits" if operation in ("sign", "decomp") else names[operation]
    rate = None if milliseconds is None else 1000 / milliseconds
    return PaperCase(f"papers/xiao_{set_name}", operation, Published("XLWX24", row, RTX_4090, rate), bits, p_fail_log2)


# Bits, log2 of the failure probability, our set: bases of 2^27, 2^18 and 2^14. One time is known for sign and for
# decomposition, and not of which precision: it stands with 16 bits, the row that our notes count it for.
_PRECISIONS: Final = (
    (4, -68.0, "2_digits"),
    (8, -67.0, "2_digits"),
    (12, -79.0, "3_digits"),
    (16, -88.0, "3_digits"),
    (17, -85.0, "3_digits"),
    (18, -82.0, "4_digits"),
    (20, -86.0, "4_digits"),
    (21, -83.0, "4_digits"),
)
_TIMED_BITS: Final = 16

PAPER_CASES: Final = (
    _velofhe("gd1", "GD-I TFHE", 11378),
    _velofhe("gd1_ap", "GD-I FHEW", 7007),
    _velofhe("gd2", "GD-II TFHE, composite modulus", 3249),
    _velofhe("gd2_ap", "GD-II FHEW, composite modulus", 2414),
    _velofhe("mr1", "MR-I TFHE", 9871),
    _velofhe("mr1_ap", "MR-I FHEW", 6439),
    _velofhe("mr2", "MR-II TFHE", 1729),
    _velofhe("mr2_ap", "MR-II FHEW", 1279),
    _xiao("gate", "gate", 0.23),
    _xiao("floor", "floor", 1.68, 5, -64.0),
    _xiao("2_digits", "func", 1.59, 3, -64.0),
    *(
        _xiao(name, operation, milliseconds if bits == _TIMED_BITS else None, bits, p_fail)
        for bits, p_fail, name in _PRECISIONS
        for operation, milliseconds in (("sign", 4.99), ("decomp", 6.03))
    ),
)
