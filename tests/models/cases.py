"""Cases of a test: loops whose failures name the case, and parameters of which some run in tier `all` only."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest


@contextmanager
def case(*names: object) -> Iterator[None]:
    """Adds the names to whatever fails inside."""
    try:
        yield
    except BaseException as error:
        error.add_note(f"in the case {', '.join(map(str, names))}")
        raise


def in_tiers(values: Iterable[Any], quick: Collection[Any]) -> list[Any]:
    """Parameters of a test: those of `quick` run in every tier, the others from tier `all` on."""
    return [value if value in quick else _later(value) for value in values]


def _later(value: Any) -> Any:
    return pytest.param(*(value if isinstance(value, tuple) else (value,)), marks=pytest.mark.tier("all"))
