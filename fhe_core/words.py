"""Names for the arrays that go in and out of the engine."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from cloakwork.fhe_core.errors import CancelledError

Words: TypeAlias = NDArray[np.unsignedinteger]
"""Torus words modulo Q: uint32 for one limb, uint64 for two."""

Small: TypeAlias = NDArray[np.uint32]
"""Words modulo 2^w or 2N, table numbers, coefficients."""

Phases: TypeAlias = NDArray[np.uint64]
"""Torus words modulo Q, for either number of limbs."""

Progress: TypeAlias = Callable[[int, int], bool | None] | None
"""progress(done, total); returning False cancels the call."""


def report(progress: Progress, done: int, total: int) -> None:
    """Reports progress. Raises: CancelledError: progress returned False."""
    if progress is not None and progress(done, total) is False:
        raise CancelledError(f"cancelled by progress after {done} of {total}")


Entry = TypeVar("Entry", bound=np.generic)


def without_repeats(array: NDArray[Entry], keep: int = 1) -> NDArray[Entry]:
    """Returns a view with length 1 along axes that a broadcast repeats, but for the last `keep` ones."""
    repeated = [stride == 0 and extent > 1 for stride, extent in zip(array.strides, array.shape, strict=True)]
    return array[tuple(slice(0, 1) if repeats else slice(None) for repeats in repeated[: array.ndim - keep])]
