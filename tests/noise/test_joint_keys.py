"""Keys of several parties: every stage has the noise of the model, in which rows of the bootstrap key are public-key encryptions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

LOW, HIGH = 0.94, 1.06  # of standard deviations: 4096 samples, or 32 rotations under one key


@pytest.mark.parametrize("name", ["toy_2p", "toy_3p", "lut3_2p", pytest.param("lut3_3p", marks=pytest.mark.tier("all"))])
def test_stages(laboratory_named: Callable[[str], Any], name: str) -> None:
    stages = laboratory_named(name).stages()
    ratios = {stage.name: stage.ratio for stage in stages}
    assert all(LOW < ratio < HIGH for ratio in ratios.values()), ratios
