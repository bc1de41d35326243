"""Checks of the steps' constructors: steps come from strangers' files too, so every field is checked."""

from __future__ import annotations

from typing import Any, Final, Literal, TypeAlias

from numpy.typing import NDArray

from cloakwork.models.arrays import Reals

Stage: TypeAlias = Literal["scores", "probabilities", "labels"]
STAGES: Final[tuple[Stage, ...]] = ("scores", "probabilities", "labels")
MOST_COLUMNS: Final = 1 << 20
MOST_STEPS: Final = 1000


def demand(condition: bool, rule: str) -> None:
    """Raises ValueError."""
    if not condition:
        raise ValueError(f"expected {rule}")


def check_columns(count: int, names: tuple[str, ...] | None) -> None:
    demand(0 < count <= MOST_COLUMNS, f"1 to {MOST_COLUMNS} columns")
    demand(names is None or len(names) == count, "a name for each column")
    demand(names is None or all(isinstance(name, str) for name in names), "names of columns that are texts")


def check_labels(labels: NDArray[Any]) -> None:
    demand(labels.ndim == 1 and len(labels) > 0 and labels.dtype.kind in "biufU", "labels that are texts or numbers")


def as_wide(x: Reals, columns: int) -> None:
    """Checks that a table has as many columns as the step was made for: numpy would spread one over many."""
    demand(x.ndim == 2 and x.shape[1] == columns, f"a table of {columns} columns")
