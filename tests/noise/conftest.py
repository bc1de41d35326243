"""The measuring script of fhe_core/tools as a module: it is in the repository, not in the wheel."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "fhe_core" / "tools" / "measure_noise.py"


@cache
def load_script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("measure_noise", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@cache
def laboratory_of(name: str) -> Any:
    """Keys and a session of one set, shared by all tests of it."""
    return load_script().Laboratory(name)


# One row of every shape of the shipped table (but those of 192 bits and N = 4096, which are slow), and every toy. Of the `_block` sets two:
# test_block_keys.py has them all. Of the papers' sets one with a ternary small key of one limb, and of two. Small keys of a dozen Gaussian
# coefficients are too far from the mean over keys: test_selected_keys.py takes many.
NAMES = [
    "toy",
    "toy_binary",
    "toy_ternary",
    "toy_two_limb",
    "toy_gate",
    "toy_block",
    "toy_block_two_limb",
    "toy_block_gate",
    "toy_raised",
    "toy_raised_block",
    "toy_raised_binary",
    "toy_fft",
    "toy_large",
    "toy_fine",
    "toy_three_digits",
    "toy_four_digits",
    "toy_extended",
    "toy_extended_two_limb",
    "toy_lanes",
    "toy_lanes_block",
    "toy_ntru",
    "toy_ntru_lut",
    "gate_64",
    "gate_128",
    "lut2",
    "lut3_64",
    "lut4",
    "lut4_fft",
    "large16",
    "fine4",
    "nn2",
    "nn2_wide",
    "lut3_raised",
    "lut4_raised",
    "gate_64_block",
    "lut2_block",
    "gate_64_cm2",
    "lut2_cm2",
    "nn2_block_cm2",
    "gate_ntru",
    "lut4_ntru",
    "papers/velofhe_gd1",
    "papers/velofhe_gd2",
]


@pytest.fixture(scope="module", params=NAMES)
def laboratory(request: pytest.FixtureRequest) -> Any:
    return laboratory_of(request.param)


@pytest.fixture(scope="module", params=[name for name in NAMES if name.startswith("toy")])
def toy(request: pytest.FixtureRequest) -> Any:
    return laboratory_of(request.param)


@pytest.fixture
def script() -> ModuleType:
    return load_script()


@pytest.fixture
def laboratory_named() -> Callable[[str], Any]:
    return laboratory_of
