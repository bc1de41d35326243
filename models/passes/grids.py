"""Grids of values, value = step * integer + origin, and the effect of a look-up on a grid."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from cloakwork.models.arrays import Indices, Reals
from cloakwork.models.graph.ir import Lookup
from cloakwork.models.graph.steps import Step

_TOLERANCE = 1e-6
COMPARISONS: Final = frozenset({"Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"})
_TO_INTEGERS = COMPARISONS | {
    "Ceil", "Floor", "Not", "QuantizeLinear", "Requantize", "Round", "Sign", "Staircase", "Truncate",
}  # fmt: skip
_KEEPING = frozenset({"Abs", "Excess", "Gate", "Identity", "Relu"})  # of a grid through 0
_BOUNDS = frozenset({"Clip", "Max", "Min"})  # the same when the bounds are on it


@dataclass(frozen=True, eq=False)
class Grids:
    """One grid for each number; step 0 where there is none."""

    step: Reals
    origin: Reals

    @property
    def through_zero(self) -> np.ndarray:
        """Finds where the origin is a multiple of the step."""
        with np.errstate(all="ignore"):
            ratio = self.origin / self.step
        return (self.step > 0) & (np.abs(ratio - np.rint(ratio)) < _TOLERANCE)


def after_lookup(node: Lookup, before: Grids) -> Grids:
    """Returns grids of a look-up's results for those of the numbers that it reads."""
    grids = [before]
    nowhere = Grids(np.zeros_like(before.step), np.zeros_like(before.origin))
    for step in node.steps:
        several = len(step.reads) > 1 and step.operator not in _TO_INTEGERS
        grids.append(nowhere if several else _after_step(step, node.function, grids[-step.reads[0]]))
    return grids[-1]


def rounds_itself(node: Lookup) -> bool:
    """Whether results are on a grid through 0 whatever it reads: behind a quantiser or a comparison."""
    nowhere = np.zeros(len(node.gather))
    return bool(after_lookup(node, Grids(nowhere, nowhere)).through_zero.all())


def _after_step(step: Step, function: Indices, before: Grids) -> Grids:
    if step.operator in _TO_INTEGERS:
        return Grids(np.ones_like(before.step), np.zeros_like(before.origin))
    parameters = [parameter[function] for parameter in step.parameters]
    if step.operator == "Affine":
        return Grids(before.step * np.abs(parameters[0]), before.origin * parameters[0] + parameters[1])
    kept = before.through_zero
    if step.operator == "Pow":
        power = parameters[0]
        kept = kept & (power > 0) & (power == np.rint(power))
        with np.errstate(all="ignore"):
            return Grids(np.where(kept, before.step**power, 0.0), np.zeros_like(before.origin))
    if step.operator in _BOUNDS:
        for bound in parameters:
            kept = kept & (~np.isfinite(bound) | Grids(before.step, bound).through_zero)
    elif step.operator not in _KEEPING:
        kept = np.zeros_like(kept)
    return Grids(np.where(kept, before.step, 0.0), np.where(kept, before.origin, 0.0))
