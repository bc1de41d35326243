"""The place of trees' thresholds: "grid" and "server" keep them secret, "client" discloses them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

from numpy.typing import ArrayLike

Comparisons: TypeAlias = Literal["grid", "client", "server"]

GridKind: TypeAlias = Literal["auto", "integers", "categories", "uniform", "quantiles"]
Grids: TypeAlias = GridKind | Mapping[str | int, GridKind | ArrayLike]
"""One kind for all features, or for some of them, by name or number, a kind or the points themselves."""

GRID_BITS: Final = (6, 8, 10, 12, 14, 16)  # that are tried where none are asked for
