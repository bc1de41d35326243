"""Challenges for block-binary keys: the shipped files, and that a solution is told from a guess."""

from __future__ import annotations

import json

import pytest
from test_parameter_sets import TOOLS, load_tool

challenges = load_tool("block_key_challenges")
FOLDER = TOOLS.parents[1] / "docs" / "challenges"


def test_a_solution_is_recognised() -> None:
    challenge, positions = challenges.instance(152, bytes(32))
    assert set(positions) <= set(range(9)) and len(positions) == 19
    right, deviation = challenges.check(challenge, positions)
    assert right and deviation == pytest.approx(challenges.SIGMA, rel=0.15)
    wrong, deviation = challenges.check(challenge, [(position + 1) % 9 for position in positions])
    assert not wrong and deviation > 1000
    with pytest.raises(ValueError, match="expected 19 numbers"):
        challenges.check(challenge, [0])


@pytest.mark.parametrize("dimension", challenges.DIMENSIONS)
def test_the_files_are_challenges(dimension: int) -> None:
    stored = json.loads((FOLDER / f"block-{dimension}.json").read_text())
    made, _ = challenges.instance(dimension, bytes(32))
    drawn = {"matrix_seed", "b", "key_sha256", "seed_sha256"}
    assert stored.keys() == made.keys()
    assert {field: stored[field] for field in made.keys() - drawn} == {
        field: made[field] for field in made.keys() - drawn
    }
    assert len(stored["b"]) == len(made["b"]) and all(stored[field] != made[field] for field in drawn)
    right, deviation = challenges.check(stored, [0] * (dimension // 8))
    assert not right and deviation > 1000
