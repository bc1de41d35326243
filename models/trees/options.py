"""What is asked of a tree program; `compile_ensemble` says what each means."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from cloakwork.fhe_core.parameters import ParameterSet
from cloakwork.models.client_steps import Columns, InputStep
from cloakwork.models.errors import CompileError
from cloakwork.models.trees.ensemble import TreeEnsemble

COMPARISONS: Final = ("auto", "client", "server")


@dataclass(frozen=True, eq=False)
class TreeOptions:
    comparisons: Literal["auto", "client", "server"]
    leaf_bits: int | None
    bin_bits: int | None
    p_fail_log2: float
    candidates: Sequence[str | ParameterSet] | None
    preprocessing: Sequence[InputStep] | None

    def first_steps(self, ensemble: TreeEnsemble) -> tuple[InputStep, ...]:
        """What the client does before the comparisons."""
        columns = Columns(ensemble.features, ensemble.feature_names, ensemble.takes_missing)
        return (columns,) if self.preprocessing is None else tuple(self.preprocessing)

    def check(self) -> None:
        if self.comparisons not in COMPARISONS:
            raise CompileError(f"comparisons: expected one of {', '.join(COMPARISONS)}, got '{self.comparisons}'")
