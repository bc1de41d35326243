"""How trees compare features with thresholds, as it is asked for; `compile_ensemble` says what each means.

"grid" and "server" keep the thresholds secret, "client" tells them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal, TypeAlias

from numpy.typing import ArrayLike

from cloakwork.models.criteria.feature_ranges import FeatureRanges

Comparisons: TypeAlias = Literal["grid", "client", "server"]

GridKind: TypeAlias = Literal["auto", "integers", "categories", "uniform", "quantiles"]
Grids: TypeAlias = GridKind | Mapping[str | int, GridKind | ArrayLike]
"""One kind for all features, or for some of them, by name or number, a kind or the points themselves."""

GRID_BITS: Final = (6, 8, 10, 12, 14, 16)  # that are tried where none are asked for


@dataclass(frozen=True)
class TreeComparisons:
    """How trees compare features with thresholds; `compile_ensemble` says what each argument means."""

    comparisons: Comparisons = "grid"
    grid: Grids = "auto"
    grid_bits: int | None = None
    feature_ranges: FeatureRanges | None = None

    def to_options(self) -> dict[str, Any]:
        """Returns the options of `compile_ensemble`."""
        return asdict(self)
