"""Keys of several parties: every stage has the noise of the model, in which rows of the bootstrap key are public-key encryptions."""

from __future__ import annotations

import pytest
from records import JOINT_SETS, stored_set

LOW, HIGH = 0.94, 1.06  # of standard deviations: 4096 samples, or 32 rotations under one key
STAGES = ("fresh", "public key", "keyswitch", "modulus switch", "blind rotation", "look-up")


@pytest.mark.parametrize("name", JOINT_SETS)
def test_stages(name: str) -> None:
    stored = stored_set(name)
    ratios = {stage: stored.stage(stage).ratio for stage in STAGES}
    assert all(LOW < ratio < HIGH for ratio in ratios.values()), ratios
