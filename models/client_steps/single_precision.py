"""Samples of float32: transformers of scikit-learn compute in the precision that they are given, and trees compare what comes of it."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from cloakwork.models.client_steps.columns import Compare, Quantise, Rescale, Round
from cloakwork.models.client_steps.first import Columns
from cloakwork.models.client_steps.positions import Positions
from cloakwork.models.client_steps.thermometer import Thermometer
from cloakwork.models.client_steps.unfit import REFUSED, Refusing, Unfit

_OF_THE_PROGRAM: Final = (Compare, Positions, Quantise, Rescale, Round, Thermometer)  # not of a pipeline


def is_single(x: Any) -> bool:
    return getattr(x, "dtype", None) == np.float32


def applied(step: Any, x: Any, unfit: Unfit = REFUSED) -> Any:
    """Applies a step to numbers, in float32 where they are and the step is one of a pipeline's; else in float64."""
    if isinstance(step, Columns):
        return step.in_precision(x, unfit)
    policy = (unfit,) if isinstance(step, Refusing) else ()
    if not is_single(x):
        return step(x, *policy)
    return step(x.astype(np.float64)) if isinstance(step, _OF_THE_PROGRAM) else step(x, *policy).astype(np.float32)
