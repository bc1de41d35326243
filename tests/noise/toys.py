"""Which toys are measured in which tier."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from records import JOINT_SETS, SELECTED_TOYS, STAGE_SETS

FIRST_TOYS = ("toy", "toy_two_limb")  # of one limb and of two
SLOW_TOYS = (  # N = 2048, and 24 keys of each set whose digits select keys: 2 to 20 seconds each
    "toy_fft",
    "toy_large",
    "toy_fine",
    "toy_three_digits",
    "toy_four_digits",
    "toy_ntru",
    "toy_ntru_lut",
    *SELECTED_TOYS,
)
TOYS = tuple(name for name in STAGE_SETS if name.startswith("toy"))
ALL_TOYS = (*TOYS, *(name for name in JOINT_SETS if name.startswith("toy")), *SELECTED_TOYS)


def by_tier(names: Iterable[str]) -> list[Any]:
    """Parameters: the first toys in the tier `test`, slow ones in `release`, others in `all`."""

    def param(name: str) -> Any:
        tier = "release" if name in SLOW_TOYS else "all"
        return name if name in FIRST_TOYS else pytest.param(name, marks=pytest.mark.tier(tier))

    return [param(name) for name in names]
