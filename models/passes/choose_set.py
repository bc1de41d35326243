"""The search over parameter sets that networks, exact programs and trees share."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from cloakwork.fhe_core.parameters import ParameterSet

Made = TypeVar("Made")


def fitting(candidates: Iterable[ParameterSet], fits: Callable[[ParameterSet], Made | None]) -> Iterator[Made]:
    """What `fits` makes of the sets that fit, one after the other, in their order; of the others it returns None, and remembers why."""
    for params in candidates:
        made = fits(params)
        if made is not None:
            yield made


def choose_set(
    candidates: Iterable[ParameterSet],
    fits: Callable[[ParameterSet], Made | None],
    cost: Callable[[Made], float] | None = None,
) -> Made | None:
    """The cheapest of what `fits` makes of the sets; None where none fits.

    Args:
        cost: of what was made; None: the sets come cheapest first, and the first that fits is taken.
    """
    made = fitting(candidates, fits)
    return next(made, None) if cost is None else min(made, key=cost, default=None)


def bootstrap_cost(params: ParameterSet) -> float:
    """Multiplications of one blind rotation, about: transforms of the digits and back, and the products with the key."""
    columns = params.glwe_dimension + 1
    transforms = (params.row_count + columns) * params.polynomial_size * math.log2(params.polynomial_size) / 2
    products = params.keys_per_step * params.row_count * columns * params.polynomial_size
    return params.step_count * params.limb_count * (transforms + products)
