"""Whether answers are the same up to the rounding of floating-point numbers, and which sample differs first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

_OF_SPREAD: Final = 2e-3  # float32 in one place and float64 in another, through many layers
_OF_VALUE: Final = 1e-3
_SMALLEST: Final = 1e-6


@dataclass(frozen=True)
class Difference:
    """The first sample whose answers differ, and how many do."""

    sample: int
    expected: str
    found: str
    count: int
    samples: int

    @property
    def text(self) -> str:
        return f"gives {self.found} where the model says {self.expected} (sample {self.sample}; {self.count} of {self.samples} samples differ)"


def difference(
    expected: NDArray[Any], found: NDArray[Any], *, share: float = 0.0, loose: float = 1.0
) -> Difference | None:
    """None where both say the same. Samples of which the expected answer is not finite count for nothing.

    Args:
        expected, found: [samples, ..], numbers or labels.
        share: of the samples that may differ.
        loose: by how much more than rounding of float32 numbers may differ.
    """
    count = len(expected)
    if found.shape != expected.shape:
        wanted, got = (f"an answer of shape {list(each.shape)}" for each in (expected, found))
        return Difference(0, wanted, got, count, count)
    if expected.dtype.kind in "fc" or found.dtype.kind in "fc":
        differs = _numbers_differ(expected.reshape(count, -1), found.reshape(count, -1), loose)
    else:
        differs = (expected != found).reshape(count, -1).any(axis=1)
    many = int(differs.sum())
    if not many or many <= share * count:
        return None
    first = int(np.argmax(differs))
    return Difference(first, _shown(expected[first]), _shown(found[first]), many, count)


def _numbers_differ(expected: NDArray[Any], found: NDArray[Any], loose: float) -> NDArray[np.bool_]:
    wanted, got = expected.astype(np.float64), found.astype(np.float64)
    known = np.isfinite(wanted).all(axis=1)
    spread = float(wanted[known].std()) if known.any() else 0.0
    with np.errstate(invalid="ignore"):
        allowed = loose * (_OF_SPREAD * spread + _OF_VALUE * np.abs(wanted) + _SMALLEST)
        return np.asarray(known & ~(np.abs(got - wanted) <= allowed).all(axis=1))


def _shown(answer: NDArray[Any]) -> str:
    """A few of its numbers."""
    values = np.asarray(answer).reshape(-1)
    shown = [f"{value:.4g}" if values.dtype.kind == "f" else str(value) for value in values[:4]]
    return (", ".join(shown) + (", .." if values.size > 4 else "")) or "nothing"
