"""Offsets and scales of columns right before a model, which the model can take in so that no client is told them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cloakwork.models.client_steps.columns import Divide, OneHot, Select, Standardise
from cloakwork.models.client_steps.features import Present
from cloakwork.models.client_steps.kinds import InputStep


def split_scaling(steps: Sequence[InputStep]) -> tuple[tuple[InputStep, ...], Standardise | None]:
    """Returns the steps without means and scales that only one-hot codes, a choice of columns and checks follow, and these as the last step; None
    where there are none, or one is zero."""
    last = len(steps)
    while last > 0 and isinstance(steps[last - 1], OneHot | Select | Present):
        last -= 1
    scaling = _as_product(steps[last - 1]) if last > 0 else None
    if scaling is None or not scaling.scale.all():
        return tuple(steps), None
    after = scaling
    for step in steps[last:]:
        moved = _behind(after, step)
        if moved is None:
            return tuple(steps), None
        after = moved
    rest, before = split_scaling((*steps[: last - 1], *steps[last:]))
    return rest, after if before is None else _composed(before, after)


def _as_product(step: InputStep) -> Standardise | None:
    if isinstance(step, Divide):
        return Standardise(step.offset, 1 / step.divisor)
    return step if isinstance(step, Standardise) else None


def _behind(scaling: Standardise, step: InputStep) -> Standardise | None:
    """Returns what does after the step what the scaling does before it; None: it scales the numbers of categories."""
    if isinstance(step, Select):
        return Standardise(scaling.offset[step.columns], scaling.scale[step.columns])
    if not isinstance(step, OneHot):
        return scaling
    codes = step.sizes > 0
    if scaling.offset[codes].any() or (scaling.scale[codes] != 1).any():
        return None
    spread = np.maximum(step.sizes, 1)
    return Standardise(np.repeat(scaling.offset, spread), np.repeat(scaling.scale, spread))


def _composed(first: Standardise, second: Standardise) -> Standardise:
    """Returns ((x - o1) s1 - o2) s2 = (x - (o1 + o2 / s1)) s1 s2."""
    return Standardise(first.offset + second.offset / first.scale, first.scale * second.scale)
