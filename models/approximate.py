"""Compiles a graph for approximate look-ups: noise moves values a little, as rounding does."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from cloakwork.fhe_core.parameters import ParameterSet
from cloakwork.models.calibration import Calibration, observe
from cloakwork.models.distinct_outputs import distinct_outputs
from cloakwork.models.ir import Graph, wires
from cloakwork.models.passes.bound_ranges import bound_ranges, room_for_answers
from cloakwork.models.passes.carry_lines import carry_lines
from cloakwork.models.passes.choose_parameters import approximate_sets, attempts, least_error
from cloakwork.models.passes.equalise_lookups import equalise_lookups
from cloakwork.models.passes.noise_limits import NoiseLimits
from cloakwork.models.passes.statistics import Statistics, statistics
from cloakwork.models.prepared import Ready
from cloakwork.models.program import Program


def approximate_programs(
    ready: Ready,
    margin: float | None,
    limits: NoiseLimits,
    least_bits: int,
    candidates: Sequence[ParameterSet] | None,
    most_error: float = math.inf,
) -> Iterator[Program]:
    """Programs within the noise limits, the cheapest first.

    Args:
        margin: see compile_onnx.
        most_error: of which more is foreseen for a set, it is not tried while there are others.
    """
    sets = approximate_sets(candidates)
    graph, stats = least_error(_variants(ready, margin), limits, least_bits, sets)
    for attempt in attempts(graph, limits, least_bits, sets, stats, most_error):
        program = Program(
            attempt.graph,
            attempt.params,
            limits.default,
            limits.layers,
            input_steps=ready.ends.given,
            output_steps=ready.ends.wanted,
        )
        yield distinct_outputs(program)


def _variants(ready: Ready, margin: float | None) -> list[tuple[Graph, Statistics]]:
    """The graph with ranges and equalised look-ups, as it is and with straight parts beside them where there are any."""
    bounded = _bounded(ready.graph, ready.calibration, margin)
    known = statistics(bounded, ready.samples)
    variants = [equalise_lookups(bounded, known)]
    if ready.samples is not None and (carried := carry_lines(bounded, known)) is not None:
        seen = replace(observe(carried, ready.samples), input_range=_input_range(bounded))
        carried = _bounded(carried, seen, margin)
        variants.append(equalise_lookups(carried, statistics(carried, ready.samples)))
    return variants


def _bounded(graph: Graph, seen: Calibration, margin: float | None) -> Graph:
    bounded = bound_ranges(graph, seen, margin)
    return bounded if seen.learned or margin is not None else room_for_answers(bounded)


def _input_range(bounded: Graph) -> tuple[float, float]:
    assert bounded.lower is not None and bounded.upper is not None
    own = wires(bounded.input)
    return float(bounded.lower[own].min()), float(bounded.upper[own].max())
