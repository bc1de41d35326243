"""The search over parameter sets that networks, exact programs and trees share."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, TypeVar

from cloakwork.fhe_core.parameters import (
    ParameterSet,
    parameter_set,
    require_common_mask,
    require_structured,
)

Made = TypeVar("Made")

# Of the time of a two-limb step: 0.93 to 0.96 on a GPU that is full, 0.94 to 0.98 on a CPU (docs/decisions/modulus-raising.md).
RAISED_SHARE: Final = 0.96


def named_sets(
    candidates: Sequence[ParameterSet | str], structured: bool, common_mask: bool = False
) -> list[ParameterSet]:
    """Returns sets, or their names, as sets; ParameterError for one with a structured secret, or a common mask, that was not asked for."""
    sets = [parameter_set(each if isinstance(each, str) else each.name) for each in candidates]
    for params in sets:
        require_structured(params, structured)
        require_common_mask(params, common_mask)
    return sets


def fitting(candidates: Iterable[ParameterSet], fits: Callable[[ParameterSet], Made | None]) -> Iterator[Made]:
    """Yields what `fits` makes of the sets that fit, one after the other, in their order; of the others it returns None, and remembers why."""
    for params in candidates:
        choice = fits(params)
        if choice is not None:
            yield choice


def choose_set(
    candidates: Iterable[ParameterSet],
    fits: Callable[[ParameterSet], Made | None],
    cost: Callable[[Made], float] | None = None,
) -> Made | None:
    """Returns the cheapest of what `fits` makes of the sets; None where none fits.

    Args:
        cost: of what was made; None: the sets come cheapest first, and the first that fits is taken.
    """
    choices = fitting(candidates, fits)
    return next(choices, None) if cost is None else min(choices, key=cost, default=None)


def bootstrap_cost(params: ParameterSet) -> float:
    """Returns multiplications of one blind rotation, about: transforms of the digits and back, and the products with the key; of raised sets as
    many as take its time."""
    columns = params.accumulator_components
    transforms = (params.row_count + columns) * params.polynomial_size * math.log2(params.polynomial_size) / 2
    keys = 1 if params.digit_bits else params.keys_per_step  # that a ciphertext multiplies with
    products = keys * params.row_count * columns * params.polynomial_size
    share = RAISED_SHARE if params.raised else 1.0
    return share * params.step_count * params.extension_factor * params.key_limb_count * (transforms + products)
