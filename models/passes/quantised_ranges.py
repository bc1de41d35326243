"""Ranges of a quantised model from its quantisers, without data.

Behind a look-up that saturates (its quantiser clips), values only matter where the look-up still changes. What interval arithmetic allows
beyond that counts as the end, so it has to fit as well as it can: the window is made symmetric, because a ReLU hides how far values fall
below zero. Everything else has the range of interval arithmetic. Calibration data is better where there is some.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from cloakwork.models.arrays import Reals
from cloakwork.models.calibration import Calibration
from cloakwork.models.client_steps import Quantise
from cloakwork.models.errors import CompileError
from cloakwork.models.graph.ir import Graph, Linear, Lookup, NamedTensor, places, wires
from cloakwork.models.graph.last_steps import Functions
from cloakwork.models.graph.merge_equal import is_output
from cloakwork.models.graph.steps import Step, apply_steps, is_chain
from cloakwork.models.passes.bound_ranges import interval, lookup_bounds

QUANTISERS: Final = ("QuantizeLinear", "Requantize", "Staircase")
_POINTS = 4097


def quantised_ranges(graph: Graph, given: tuple[Reals, Reals], quantiser: Quantise | None) -> Calibration:
    """Makes what calibration data would show.

    Args:
        given: least and largest values [numbers] of the input, as its quantisers leave them.
        quantiser: of the output, that the client applies; others are among the graph's client steps.
    """
    lower, upper = np.zeros(graph.wire_count), np.zeros(graph.wire_count)
    lower[wires(graph.input)], upper[wires(graph.input)] = given
    least_out, most_out = _output_windows(graph, quantiser)
    rows = []
    for node in graph.nodes[1:]:
        if isinstance(node, Linear):
            low, high = interval(node, lower, upper)
            if is_output(graph, node):
                ends = [ends[wires(node)].reshape(low.shape) for ends in (least_out, most_out)]
                low, high = np.clip(low, *ends), np.clip(high, *ends)
            else:
                low, high = _windowed(graph, node, low, high)
            rows.append(_of_blocks(node, low, high))
            least, most = rows[-1]
            lower[wires(node)] = least[node.block].reshape(-1)
            upper[wires(node)] = most[node.block].reshape(-1)
        elif isinstance(node, Lookup):
            lower[wires(node)], upper[wires(node)] = lookup_bounds(node, lower, upper)
    return Calibration((float(given[0].min()), float(given[1].max())), tuple(rows))


def quantiser_bounds(graph: Graph, given: Quantise | None) -> tuple[Reals, Reals]:
    """Returns least and largest values [numbers] of the one input. CompileError: the model has no quantiser at its input."""
    if given is None:
        raise CompileError(
            "samples: expected typical inputs [samples, ..], got none; only a model whose input goes into a QuantizeLinear node does without"
        )
    return np.full(graph.input.size, given.low), np.full(graph.input.size, given.high)


def _output_windows(graph: Graph, quantiser: Quantise | None) -> tuple[Reals, Reals]:
    """Returns [wires]: beyond what values of the output change nothing, because the client rounds them into a range; infinite for other wires."""
    low, high = _client_windows(graph)
    if quantiser is not None:
        low[:], high[:] = quantiser.low, quantiser.high
    output = graph.output.reshape(-1)
    least, most = np.full(graph.wire_count, np.inf), np.full(graph.wire_count, -np.inf)
    np.minimum.at(least, output, low)
    np.maximum.at(most, output, high)
    other = np.ones(graph.wire_count, dtype=bool)
    other[output] = False
    least[other], most[other] = -np.inf, np.inf
    return least, most


def _client_windows(graph: Graph) -> tuple[Reals, Reals]:
    """Returns [numbers of the output]: of functions that the client applies first, where they begin with a quantiser."""
    low, high = np.full(graph.output.size, -np.inf), np.full(graph.output.size, np.inf)
    parts = graph.outputs or (NamedTensor("", graph.output.shape, graph.client_steps),)
    for part, place in zip(parts, places(parts), strict=True):
        first = part.client_steps[0] if part.client_steps else None
        if not isinstance(first, Functions):
            continue
        for number, steps in enumerate(first.functions):
            if not steps or steps[0].operator not in QUANTISERS or not is_chain(steps):
                continue
            scale, zero, least, most = _grid_of(steps[0])
            chosen = np.flatnonzero(first.which.reshape(-1) == number) + place.start
            low[chosen], high[chosen] = (least - zero) * scale, (most - zero) * scale
    return low, high


def _grid_of(quantiser: Step) -> tuple[float, float, float, float]:
    """Returns scale, zero point and ends of a quantiser with one function."""
    first, *rest = (float(parameter[0]) for parameter in quantiser.parameters)
    if quantiser.operator == "Requantize":
        first /= rest.pop(0)
    zero, least, most = rest
    return first, zero, least, most


def _windowed(graph: Graph, node: Linear, low: Reals, high: Reals) -> tuple[Reals, Reals]:
    """Returns interval bounds [P, R] cut to where the look-ups that read the node change."""
    readers = [lookup for lookup in graph.lookups if bool(np.isin(lookup.gather, np.arange(*_span(node))).any())]
    if not readers or is_output(graph, node):
        return low, high
    least, most = np.full(node.size, np.inf), np.full(node.size, -np.inf)
    for lookup in readers:
        inside = (lookup.gather >= node.first_wire) & (lookup.gather < node.first_wire + node.size)
        local = lookup.gather[inside] - node.first_wire
        a, b = _window(lookup, lookup.function[inside], low.reshape(-1)[local], high.reshape(-1)[local])
        np.minimum.at(least, local, a)
        np.maximum.at(most, local, b)
    half = np.maximum(np.abs(least), np.abs(most))
    half = np.where(np.isfinite(half), half, 0.0).reshape(low.shape)
    return np.maximum(low, -half), np.minimum(high, half)


def _span(node: Linear) -> tuple[int, int]:
    return node.first_wire, node.first_wire + node.size


def _window(lookup: Lookup, function: np.ndarray, low: Reals, high: Reals) -> tuple[Reals, Reals]:
    """Returns the smallest interval outside of which the look-up is constant; all of it without a quantiser."""
    if not any(step.operator in QUANTISERS for step in lookup.steps):
        return low, high  # the differences of a max-pool, say
    least, most = np.empty_like(low), np.empty_like(high)
    keys, index = np.unique(np.stack([function, low, high], axis=1), axis=0, return_inverse=True)
    for i, (chosen, start, end) in enumerate(keys):
        x = np.linspace(start, end, _POINTS)
        y = apply_steps(lookup.steps, x, np.full(x.shape, int(chosen)))
        first, last = int(np.argmax(y != y[0])), _POINTS - 1 - int(np.argmax((y != y[-1])[::-1]))
        mask = index.reshape(-1) == i
        least[mask], most[mask] = (x[max(first - 1, 0)], x[last]) if (y != y[0]).any() else (0.0, 0.0)
    return least, most


def _of_blocks(node: Linear, low: Reals, high: Reals) -> tuple[Reals, Reals]:
    least, most = np.full(node.bias.shape, np.inf), np.full(node.bias.shape, -np.inf)
    np.minimum.at(least, node.block, low)
    np.maximum.at(most, node.block, high)
    unused = ~np.isfinite(least)
    least[unused] = most[unused] = 0.0
    return least, np.maximum(least, most)
