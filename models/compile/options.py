"""What is asked of the compiler of networks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, Final, Literal, get_args

from cloakwork.fhe_core.parameters import ParameterSet, offered_sets, parameter_set
from cloakwork.models.criteria.choose_set import named_sets
from cloakwork.models.criteria.feature_ranges import FeatureRanges
from cloakwork.models.criteria.noise_limits import AUTO, NoiseLimits, Profile, noise_limits
from cloakwork.models.criteria.slots import COMPARISON_CANDIDATES
from cloakwork.models.criteria.verdicts import Task
from cloakwork.models.errors import CompileError
from cloakwork.models.onnx_import.context import Rounding

DEFAULT_ACCURACY: Final = 0.97

Ranges = Literal["interval", "calibrated"]


@dataclass(frozen=True)
class ExactSettings:
    """Args:
    input_bits, activation_bits: of the input and of results of look-ups, where the model does not say where it rounds (QDQ); None: from 4 and 3
        on, as many as the accuracy asks for.
    rounded_bits: accumulators that have more values are rounded to this many bits before their look-up, and weights that the model gives
        in more bits to weight_bits; None: no set, no program.
    ranges: of accumulators: "interval" what weights and integers allow, nothing ever wraps; "calibrated" what calibration data showed.
    """

    input_bits: int | None = None
    activation_bits: int | None = None
    rounded_bits: int | None = None
    ranges: Ranges = "interval"

    def check(self) -> None:
        """CompileError for a value out of range."""
        for name in ("input_bits", "activation_bits", "rounded_bits"):
            value = getattr(self, name)
            if value is not None and not 1 <= value <= 12:
                raise CompileError(f"{name}: expected 1 to 12, got {value}")
        if self.ranges not in ("interval", "calibrated"):
            raise CompileError(f"ranges: expected 'interval' or 'calibrated', got '{self.ranges}'")


@dataclass(frozen=True)
class NetworkOptions:
    """Options of `cloakwork.compile` for a network, by the names of the compiler's own steps."""

    outputs: Sequence[str] | None = None
    profile: Profile | Mapping[str, Profile] = AUTO
    accuracy: float | None = DEFAULT_ACCURACY
    allow_loss: bool = False
    task: Task | Mapping[str, Task] | None = None
    weight_bits: int | None = None
    margin: float | None = None
    candidates: Sequence[ParameterSet | str] | None = None
    exact: ExactSettings | None = None
    structured_keys: bool = False
    feature_ranges: FeatureRanges | None = None
    encrypted_argmax: bool = False
    common_mask: bool = False
    rounding: Rounding = "real"

    def check(self) -> None:
        """CompileError for what none of the steps looks at."""
        if self.weight_bits is not None and not 2 <= self.weight_bits <= 8:
            raise CompileError(f"weight_bits: expected 2 to 8, got {self.weight_bits}")
        if self.accuracy is not None and not 0 <= self.accuracy <= 1:
            raise CompileError(f"accuracy: expected a share from 0 to 1, or None, got {self.accuracy}")
        if self.rounding not in get_args(Rounding):
            raise CompileError(f"rounding: expected 'real' or 'onnxruntime', got '{self.rounding}'")

    def given(self) -> dict[str, Any]:
        """Those that are not the default."""
        return {f.name: getattr(self, f.name) for f in fields(self) if getattr(self, f.name) != f.default}

    @cached_property
    def limits(self) -> NoiseLimits:
        return noise_limits(self.profile)

    @property
    def is_exact(self) -> bool:
        return self.limits.p_fail_log2 is not None

    @cached_property
    def sets(self) -> list[ParameterSet] | None:
        """The candidates; ParameterError for one with a structured secret, or a common mask, that was not asked for."""
        return None if self.candidates is None else named_sets(self.candidates, self.structured_keys, self.common_mask)

    @property
    def offered(self) -> list[ParameterSet]:
        """The candidates, or every shipped set."""
        return offered_sets(self.structured_keys, self.common_mask) if self.sets is None else self.sets

    @property
    def offered_for_comparisons(self) -> list[ParameterSet]:
        """The candidates, or every shipped set, that with fine outputs too; sets with a common mask have none."""
        named = self.sets is not None or self.common_mask
        return self.offered if named else [*self.offered, *map(parameter_set, COMPARISON_CANDIDATES)]
