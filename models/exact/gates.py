"""Gates of exact programs: a choice of x by a bit c is one look-up of x + g c (lower_products), whose g is as small as integers allow.

Before integers are known g is a number so large that the multiples of it among weights are those of bits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from cloakwork.models.arrays import Indices, Reals
from cloakwork.models.errors import CompileError
from cloakwork.models.exact.exact_graph import ExactGraph
from cloakwork.models.exact.step_functions import PhaseSum, halves
from cloakwork.models.graph.graph_builder import GraphBuilder, Row
from cloakwork.models.graph.ir import Linear, Lookup
from cloakwork.models.graph.merge_equal import regroup
from cloakwork.models.graph.signs import SignPlan, chosen_parts
from cloakwork.models.graph.steps import Step


@dataclass(frozen=True, eq=False)
class Opening:
    """Counts of a gate's offsets that each weight, and the bias, has beside what is chosen: [G, R, K] and [G, R]."""

    weights: Reals
    bias: Reals


def is_gate(node: Lookup) -> bool:
    steps = [step for step in node.steps if step.operator != "Snap"]
    return bool(steps) and steps[0].operator == "Gate"


def without_gates(node: Linear, offsets: Reals) -> tuple[Linear, Opening | None]:
    """Returns rows without the multiples of their gates' offsets, and these. Args: offsets: [P R], 0 of rows that no gate reads.

    Raises:
        CompileError: values whose weights cannot be told from offsets, or too many blocks.
    """
    position_offsets = offsets.reshape(len(node.gather), -1)
    if not position_offsets.any():
        return node, None
    split = regroup(node, position_offsets)
    if split is None:
        raise CompileError(f"linear '{node.origin}': makes too many different choices for exact precision")
    first, block = split
    old, size = node.block[first], position_offsets[first]
    node = replace(node, weights=node.weights[old], bias=node.bias[old], block=block)
    unit = np.where(size > 0, size, 1.0)
    opening = Opening(
        np.where(size[:, :, None] > 0, np.rint(node.weights / unit[:, :, None]), 0.0),
        np.where(size > 0, np.rint(node.bias / unit), 0.0),
    )
    weights, bias = node.weights - opening.weights * unit[:, :, None], node.bias - opening.bias * unit
    if bool((np.abs(weights) > unit[:, :, None] / 4)[size > 0].any()):
        raise CompileError(
            f"'{node.origin}': chooses between values that are too small beside their weights; scale them"
        )
    return replace(node, weights=weights, bias=bias), opening


def apart_offset(span: Reals, bias: Reals) -> Reals:
    """Returns offsets of gates whose bits are to be found again in weights and biases: powers of two. Args: in steps of the rows; span: 0 of
    others."""
    beside = np.where(span > 0, 8 * (span + np.abs(bias)), 1.0)
    return np.where(span > 0, np.exp2(np.ceil(np.log2(beside))), 0.0)


def with_offsets(node: Lookup, offset: Reals, opens: Reals, origin: Reals) -> Lookup:
    """Returns gates with the offsets that rows were given, [E] each. Args: opens: above which a gate is open, from the origin of the row."""
    keys = np.stack([node.function.astype(np.float64), offset, opens + origin], axis=1)
    distinct, function = np.unique(keys, axis=0, return_inverse=True)
    gate = Step("Gate", (distinct[:, 1].copy(), distinct[:, 2].copy(), np.full(len(distinct), np.inf)))
    rest = [each.select(distinct[:, 0].astype(np.int64)) for each in node.steps[1:]]
    return replace(node, steps=(gate, *rest), function=function.reshape(-1).astype(np.int64))


# Choices of wide differences by a computed bit, in an exact graph whose gates have the bit apart (`ExactOptions.apart`): y + c d, d = x - y.
#
# A row adds up d and `number` c; number is a power of two so large that weights tell the two apart (gates.apart_offset). Both are read by themselves:
#
#     2 c d = d + s d,  s = 2 c - 1
#
# and both come in pieces, as an extreme does with the sign of d (graph/signs.py).


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
