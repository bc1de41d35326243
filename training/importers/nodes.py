"""What the readers of trees share."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any

import numpy as np

from cloakwork.models.arrays import Reals
from cloakwork.models.errors import UnsupportedOperatorError


def placed(values: Reals, output: int, outputs: int) -> Reals:
    """[nodes] as column `output` of [nodes, outputs]: trees that add to one class's score only."""
    result = np.zeros((len(values), outputs))
    result[:, output] = values
    return result


def unsupported_option(estimator: Any, option: str, found: Any, remedy: str) -> UnsupportedOperatorError:
    return UnsupportedOperatorError(f"{type(estimator).__name__}: {option} = {found!r} cannot be imported; {remedy}")


def nearest_of(name: str, known: Iterable[str]) -> str:
    """For a message: the known names most like a name, or how to see them all."""
    near = get_close_matches(name, list(known), n=3, cutoff=0.5)
    return f"nearest: {', '.join(near)}" if near else "nothing of a name like it can run"
