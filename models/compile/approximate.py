"""Programs of approximate look-ups: noise moves values a little, as rounding does."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from cloakwork.fhe_core.parameters import ParameterSet
from cloakwork.models.approximate.choose_parameters import approximate_sets, attempts
from cloakwork.models.compile.accuracy import Reference
from cloakwork.models.compile.compilation import Compilation, distinct_outputs
from cloakwork.models.compile.options import NetworkOptions
from cloakwork.models.criteria.noise_limits import AUTO, NoiseLimits, noise_limits, on_layers
from cloakwork.models.program import Program

LEAST_BITS: Final = 5  # of the largest weight of every layer, where nothing checks what rounding loses
UNCHECKED: Final = "fast"  # what "auto" is with recorded ranges alone
UNSEEN: Final = 0.5  # and without any data: ranges are wide then, and nothing is checked
_CHECKED_BITS: Final = 2
_HOPELESS: Final = 0.4  # of the outputs' spread: a foreseen error at which a set is not tried
_TOO_MUCH: Final = 5  # times the error that values may have, the same


@dataclass(frozen=True, eq=False)
class Search:
    """Limits of the search for approximate programs.

    Args:
        least_bits: of the largest weight of every layer.
        most_error: of which more is foreseen for a set, it is not tried while there are others.
    """

    limits: NoiseLimits
    least_bits: int
    sets: list[ParameterSet]
    most_error: float = math.inf


def search_of(c: Compilation) -> Search:
    """Returns limits of the search: programs that are checked may have any noise under any set; others keep to a profile, and to the approximate
    sets."""
    options, bits = c.options, c.options.weight_bits
    auto = c.options.precision == AUTO
    if c.reference is None:
        limits = on_layers(noise_limits(UNSEEN if c.given is None else UNCHECKED), c.graph) if auto else c.limits
        return Search(limits, bits or LEAST_BITS, _sets_of_kind(options))
    sets = approximate_sets(options.offered) if auto else _sets_of_kind(options)
    return Search(
        c.limits,
        bits or _CHECKED_BITS,
        sets,
        _hopeless(c.reference, options.accuracy) ** 2 * c.reference.variance,
    )


def _hopeless(reference: Reference, accuracy: float) -> float:
    return _HOPELESS if reference.decides else min(_HOPELESS, _TOO_MUCH * max(1 - accuracy, 0.01))


def _sets_of_kind(options: NetworkOptions) -> list[ParameterSet]:
    """Returns what the candidates have for approximate look-ups; without candidates the approximate sets alone."""
    if options.named_sets is not None:
        return approximate_sets(options.named_sets)
    return [params for params in options.offered if params.kind == "approximate"]


def approximate_programs(c: Compilation) -> Iterator[Program]:
    """Yields programs within the noise limits, the cheapest first."""
    search = search_of(c)
    for attempt in attempts(c.graph, search.limits, search.least_bits, search.sets, c.stats, search.most_error):
        program = Program(
            attempt.graph,
            attempt.params,
            search.limits.default,
            search.limits.layers,
            input_steps=c.before,
            output_steps=c.after,
        )
        yield distinct_outputs(program)
