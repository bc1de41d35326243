"""The options of `cloakwork.compile` for trees."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Final

from cloakwork.fhe_core.parameters import ParameterSet
from cloakwork.models.client_steps import Columns, InputStep, Thermometer
from cloakwork.models.criteria.choose_set import check_p_fail_log2, named_sets
from cloakwork.models.errors import CompileError
from cloakwork.models.options import Options
from cloakwork.models.trees.ensemble import TreeEnsemble
from cloakwork.models.trees.public_grid import FeatureGrid

SETS: Final = ("lut3", "lut4", "lut5", "lut6", "lut7", "lut8")
STRUCTURED_SETS: Final = tuple(f"{name}_block" for name in SETS)
_LAST_RESORTS: Final = (*SETS[2:], *STRUCTURED_SETS[2:])  # in turn, where none of the others fits


@dataclass(frozen=True, kw_only=True, eq=False)
class TreeOptions(Options):
    """Options for trees, the samples, and what follows from both."""

    samples: Any = None
    preprocessing: Sequence[InputStep] | None = None
    grids: tuple[FeatureGrid, ...] = ()  # of the features, once they are known
    step: Thermometer | None = None  # of thresholds="grid", likewise

    @classmethod
    def from_options(cls, options: Options, samples: Any, preprocessing: Sequence[InputStep] | None) -> TreeOptions:
        """Take over options. CompileError for those that trees do not have, out of range, or that do not go together."""
        options.check("trees")
        check_p_fail_log2(options.p_fail_log2)
        if options.thresholds == "client" and (options.grid != "auto" or options.ranges is not None):
            raise CompileError(
                "grid, ranges: expected thresholds='grid' or 'server', got thresholds='client', which has no grid"
            )
        taken = {each.name: getattr(options, each.name) for each in fields(Options)}
        return cls(**taken, samples=samples, preprocessing=preprocessing)

    @property
    def wide(self) -> bool:
        """Whether features are sent in two digits, so that comparisons come from look-ups."""
        return self.step is not None and bool(self.step.digit.any())

    @property
    def noisy_bits(self) -> bool:
        """Whether comparison bits come from look-ups."""
        return self.thresholds == "server" or self.wide

    @property
    def offered(self) -> list[ParameterSet]:
        """The sets to choose from; ParameterError for one with a structured secret that was not asked for."""
        shipped = STRUCTURED_SETS if self.structured else SETS
        return named_sets(shipped if self.sets is None else self.sets, self.structured)

    @property
    def last_resorts(self) -> list[ParameterSet]:
        """Lists the sets that were not named: the dearest, the cheapest of them first."""
        return [params for params in self.offered if self.sets is None and params.name in _LAST_RESORTS]

    def first_steps(self, ensemble: TreeEnsemble) -> tuple[InputStep, ...]:
        """Returns what the client does before the comparisons."""
        columns = Columns(ensemble.features, ensemble.feature_names, ensemble.takes_missing)
        return (columns,) if self.preprocessing is None else tuple(self.preprocessing)
