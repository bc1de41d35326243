"""Generators of random numbers that a test module makes at import: each test and fixture draws from their beginning.

What it draws then depends neither on the tests that a tier leaves out nor on the worker that runs it.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

_BEGINNINGS: Final[dict[tuple[str, str], Any]] = {}  # module and name of the generator -> its state after the import


def begin_anew(node: Any) -> None:
    """Args: node: a test, or the request of a fixture."""
    try:
        module = node.module
    except AttributeError:  # of a fixture of the session
        return
    for name, generator in vars(module).items():
        if isinstance(generator, np.random.Generator):
            state = _BEGINNINGS.setdefault((module.__name__, name), generator.bit_generator.state)
            generator.bit_generator.state = state
