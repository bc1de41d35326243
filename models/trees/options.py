"""What is asked of a tree program; `compile_ensemble` says what each means."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, get_args

from cloakwork.fhe_core.parameters import ParameterSet
from cloakwork.models.client_steps import Columns, InputStep, Thermometer
from cloakwork.models.criteria.choose_set import named_sets
from cloakwork.models.criteria.feature_ranges import FeatureRanges
from cloakwork.models.criteria.slots import check_p_fail_log2
from cloakwork.models.criteria.tree_comparisons import Comparisons, Grids
from cloakwork.models.errors import CompileError
from cloakwork.models.trees.ensemble import TreeEnsemble
from cloakwork.models.trees.public_grid import FeatureGrid

COMPARISONS: Final = get_args(Comparisons)
CANDIDATES: Final = ("lut3", "lut4", "lut5", "lut6", "lut7", "lut8")
DEFAULT_ACCURACY: Final = 0.97
STRUCTURED_CANDIDATES: Final = tuple(f"{name}_block" for name in CANDIDATES)
_LAST_RESORTS: Final = (*CANDIDATES[2:], *STRUCTURED_CANDIDATES[2:])  # in turn, where none of the others fits


@dataclass(frozen=True, eq=False)
class TreeOptions:
    """Arguments of `compile_ensemble`, together."""

    comparisons: Comparisons
    leaf_bits: int | None
    p_fail_log2: float
    candidates: Sequence[str | ParameterSet] | None
    preprocessing: Sequence[InputStep] | None
    structured_keys: bool = False
    calibration: Any = None
    grid: Grids = "auto"
    grid_bits: int | None = None
    feature_ranges: FeatureRanges | None = None
    accuracy: float = DEFAULT_ACCURACY
    grids: tuple[FeatureGrid, ...] = ()  # of the features, once they are known
    step: Thermometer | None = None  # of comparisons="grid", likewise

    @property
    def wide(self) -> bool:
        """Whether features are sent in two digits, so that comparisons come from look-ups."""
        return self.step is not None and bool(self.step.digit.any())

    @property
    def noisy_bits(self) -> bool:
        """Whether comparison bits come from look-ups."""
        return self.comparisons == "server" or self.wide

    @property
    def sets(self) -> list[ParameterSet]:
        """The candidates; ParameterError for one with a structured secret that was not asked for."""
        own = STRUCTURED_CANDIDATES if self.structured_keys else CANDIDATES
        return named_sets(own if self.candidates is None else self.candidates, self.structured_keys)

    @property
    def last_resorts(self) -> list[ParameterSet]:
        """Lists the sets that were not named: the dearest, the cheapest of them first."""
        return [params for params in self.sets if self.candidates is None and params.name in _LAST_RESORTS]

    def first_steps(self, ensemble: TreeEnsemble) -> tuple[InputStep, ...]:
        """Returns what the client does before the comparisons."""
        columns = Columns(ensemble.features, ensemble.feature_names, ensemble.takes_missing)
        return (columns,) if self.preprocessing is None else tuple(self.preprocessing)

    def check(self) -> None:
        """CompileError for values out of range, or that do not go together."""
        check_p_fail_log2(self.p_fail_log2)
        if self.comparisons not in COMPARISONS:
            raise CompileError(f"comparisons: expected one of {', '.join(COMPARISONS)}, got '{self.comparisons}'")
        if not 0 <= self.accuracy <= 1:
            raise CompileError(f"accuracy: expected a share from 0 to 1, got {self.accuracy}")
        if self.comparisons == "client" and (self.grid != "auto" or self.feature_ranges is not None):
            raise CompileError(
                "grid, feature_ranges: expected comparisons='grid' or 'server', got comparisons='client', which has no grid"
            )
