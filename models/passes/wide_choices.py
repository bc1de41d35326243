"""Choices of wide differences by a computed bit, in an exact graph whose gates have the bit apart (`ExactOptions.apart`): y + c d, d = x - y.

A row adds up d and `number` c; number is a power of two so large that weights tell the two apart (gates.apart_offset). Both are read by themselves:

    2 c d = d + s d,  s = 2 c - 1

and both come in pieces, as an extreme does with the sign of d (graph/signs.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from cloakwork.models.arrays import Indices
from cloakwork.models.graph.graph_builder import GraphBuilder, Row
from cloakwork.models.graph.ir import Linear, Lookup
from cloakwork.models.graph.signs import SignPlan, chosen_parts
from cloakwork.models.passes.exact_graph import ExactGraph
from cloakwork.models.passes.step_functions import PhaseSum, halves


@dataclass(frozen=True)
class Choice:
    """One element of a gate.

    Attributes:
        difference, condition: phases of what is added up, without biases.
        row, bit: of integers, the difference less the least one and the condition.
        low: the least difference.
        unit: phase of the results, for 1.
    """

    difference: PhaseSum
    row: Row
    bit: Row
    condition: PhaseSum
    low: int
    unit: float


def choice_of(
    exact: ExactGraph, node: Lookup, element: int, bits: int, added_up: Callable[[Linear, int, Indices], PhaseSum]
) -> Choice:
    """Returns the choice of an element of a gate.

    Args:
        bits: that its row is known in.
        added_up: the phase of a position's sources under weights.
    """
    graph = exact.graph
    assert graph.scale is not None and graph.lower is not None
    wire = int(node.gather[element])
    linear = graph.nodes[graph.owners()[wire]]
    assert isinstance(linear, Linear)
    step, origin = (float(each[node.function[element]]) for each in node.steps[0].parameters)
    number = round(float(node.steps[1].parameters[0][node.function[element]]) / step)
    position, row = divmod(wire - linear.first_wire, linear.weights.shape[1])
    weights, factor = linear.weights[linear.block[position], row], round(2.0**-bits / exact.of(linear).unit)
    opening = np.rint(weights / (number * factor)).astype(np.int64)
    difference = added_up(linear, position, weights - opening * number * factor)
    condition = added_up(linear, position, opening * factor)
    always = round(origin / (number * step))
    added, low = round(origin / step) - always * number, round(float(graph.lower[wire]) / step)
    unit = float(graph.scale[node.first_wire + element]) * step
    return Choice(
        difference,
        difference.row(halves(difference.constant * 2.0**bits) + added - low),
        condition.row(halves(condition.constant * 2.0**bits) + always),
        condition,
        low,
        unit,
    )


def chosen(builder: GraphBuilder, choices: Sequence[Choice], plan: SignPlan, name: str) -> list[list[int]]:
    """Lists what makes c d of each: wires to be added up. Args: choices: of one least difference and one unit."""
    rows, bits = [each.row for each in choices], [each.bit for each in choices]
    parts = chosen_parts(builder, rows, bits, plan, (choices[0].low, choices[0].unit), name)
    return [[int(wires[number]) for wires in parts] for number in range(len(choices))]
