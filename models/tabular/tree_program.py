"""The graph of a covered ensemble: comparison bits -> indices -> look-ups -> output sums, exact integers all the way.

Phases: a bit is 1/R for true, an index one step of 1/2M, a unit of an output 1/R, with R a multiple of 2M. So the integer weights of an index are
weight * R/2M, those of an output are the units themselves.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from cloakwork.fhe_core import noise
from cloakwork.fhe_core.parameters import ParameterSet
from cloakwork.models.ir import Graph, Indices, Reals
from cloakwork.models.tabular.comparison_bits import Bit, BitSource
from cloakwork.models.tabular.cover import Cover
from cloakwork.models.tabular.graph_builder import Facts, GraphBuilder, Row

DECISION_UNIT: Final = 0.25  # of the torus, between the two values of a decision


@dataclass(frozen=True, eq=False)
class OutputGroup:
    """Scalar trees whose values are added up in one output ciphertext."""

    members: tuple[int, ...]
    lowest: int  # sum of the smallest values
    highest: int


@dataclass(frozen=True, eq=False)
class Layout:
    slots: int  # M
    units: int  # R
    groups: tuple[OutputGroup, ...]
    output_failure_log2: float  # of decoding one output, the worst


def largest_slots(params: ParameterSet, failure_log2: float, norm: float = 0.0) -> int:
    """The largest M at which a look-up fails with at most this probability, for rows of L2 norm `norm` on bootstrap outputs."""
    variance = noise.lookup_variance(params, norm)
    slots = 1
    while noise.failure_log2(1 / (4 * (slots + 1)), variance, noise.lookup_offset(params)) <= failure_log2:
        slots += 1
    return slots


def choose_layout(
    covers: Sequence[Cover], kinds: Sequence[int], params: ParameterSet, slots: int, failure_log2: float
) -> Layout | None:
    """The R with the fewest outputs, and the trees of each; None when a tree alone has too many values.

    Args:
        kinds: trees of one kind may be added up.
    """
    best: Layout | None = None
    units = 2 * slots
    while units <= 1 << 14:
        found = _grouped(covers, kinds, params, units, failure_log2)
        if found is not None and (best is None or len(found[0]) < len(best.groups)):
            best = Layout(slots, units, found[0], found[1])
        units += 2 * slots * max(1, units // (16 * slots))
    return best


def _grouped(
    covers: Sequence[Cover], kinds: Sequence[int], params: ParameterSet, units: int, failure_log2: float
) -> tuple[tuple[OutputGroup, ...], float] | None:
    """First fit, the widest trees first."""
    order = sorted(range(len(covers)), key=lambda i: covers[i].lowest - covers[i].highest)
    bins: list[list[int]] = []
    worst = -math.inf
    for i in order:
        for own in bins:
            if kinds[i] != kinds[own[0]]:
                continue
            if _failure([covers[j] for j in (*own, i)], params, units) <= failure_log2:
                own.append(i)
                break
        else:
            if _failure([covers[i]], params, units) > failure_log2:
                return None
            bins.append([i])
    groups = []
    for own in bins:
        worst = max(worst, _failure([covers[j] for j in own], params, units))
        low, high = sum(covers[j].lowest for j in own), sum(covers[j].highest for j in own)
        groups.append(OutputGroup(tuple(own), low, high))
    return tuple(groups), worst


def _failure(covers: Sequence[Cover], params: ParameterSet, units: int) -> float:
    """log2 of the probability that the sum is decoded wrongly; 0 when its values do not fit."""
    if sum(cover.highest - cover.lowest for cover in covers) >= units:
        return 0.0
    return noise.failure_log2(1 / (2 * units), _variance(covers, params) + _encoding_variance(params, covers))


def _variance(covers: Sequence[Cover], params: ParameterSet) -> float:
    lookups = sum(len(cover.lookups) for cover in covers)
    linear: dict[int, int] = {}
    for cover in covers:
        for edge, weight in cover.linear.items():
            linear[edge] = linear.get(edge, 0) + weight
    squares = sum(weight**2 for weight in linear.values())
    computed = lookups * noise.blind_rotation_variance(params) + squares * noise.fresh_variance(params)
    return computed + noise.rerandomisation_variance(params)


def _encoding_variance(params: ParameterSet, covers: Sequence[Cover]) -> float:
    """Rounding of 1/R and of table entries to whole words, taken as if all errors added up."""
    terms = sum(len(c.lookups) + sum(abs(w) for w in c.linear.values()) + 1 for c in covers)
    return (terms / params.modulus) ** 2


# --- the graph -------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class TreeGraph:
    graph: Graph
    norm: float  # L2 norm of integer weights of an index on the bits, the largest


def used_edges(covers: Sequence[Cover]) -> Indices:
    edges = {edge for cover in covers for lookup in cover.lookups for edge, _ in lookup.weights}
    edges |= {edge for cover in covers for edge in cover.linear}
    return np.array(sorted(edges) or [0], dtype=np.int64)  # a program has an input


def largest_norm(covers: Sequence[Cover]) -> float:
    """L2 norm of the weights of an index, the largest."""
    lookups = [lookup for cover in covers for lookup in cover.lookups]
    return math.sqrt(max((sum(weight**2 for _, weight in lookup.weights) for lookup in lookups), default=0))


def tree_graph(
    covers: Sequence[Cover], layout: Layout, source: BitSource, factor: int, positive_from: int | None = None
) -> TreeGraph:
    """Bits, indices, look-ups, sums.

    Args:
        factor: steps of a bit's phase in a step of an index.
        positive_from: the least sum that counts as positive: the output is then that decision, 0 or 1, instead of the sums. R is 2M then.
    """
    builder = GraphBuilder()
    bits = source.build(builder)
    lookups = [lookup for cover in covers for lookup in cover.lookups]
    outputs: Indices = np.zeros(0, dtype=np.int64)
    if lookups:
        step, turn, centre = 1 / (2 * layout.slots), 2.0 * layout.slots, (layout.slots - 1) / 2
        rows = [_row(dict(lookup.weights), lookup.constant, bits, factor) for lookup in lookups]
        indices = builder.linear(rows, Facts(step, 0.0, turn - 1, centre), "conditions")
        entries = _wrapped(np.array([lookup.entries for lookup in lookups]), layout.units)
        facts = Facts(1 / layout.units, entries.min(axis=1), entries.max(axis=1))
        outputs = builder.lookup(indices, entries, facts, "leaves")
    low = np.array([float(group.lowest) for group in layout.groups])
    high = np.array([float(group.highest) for group in layout.groups])
    if positive_from is not None:
        decision = _decision(builder, _sums(covers, outputs, bits, layout), layout.slots, positive_from)
        return TreeGraph(builder.graph(decision), largest_norm(covers) * factor)
    sums = builder.linear(
        _sums(covers, outputs, bits, layout), Facts(1 / layout.units, low, high, np.floor((low + high) / 2)), "scores"
    )
    return TreeGraph(builder.graph(sums), largest_norm(covers) * factor)


def _decision(builder: GraphBuilder, sums: list[Row], slots: int, positive_from: int) -> Indices:
    """Whether each sum is at least `positive_from`: +1/2 on M slots of the circle and -1/2 on the others."""
    rows = [Row(row.weights, row.constant - positive_from) for row in sums]
    facts = Facts(1 / (2 * slots), 0.0, 2.0 * slots - 1, (slots - 1) / 2)
    indices = builder.linear(rows, facts, "scores")
    table = np.tile(np.repeat([0.5, -0.5], slots), (len(rows), 1))
    signs = builder.lookup(indices, table, Facts(DECISION_UNIT, -0.5, 0.5), "decision")
    readable = [Row({int(sign): 1}, 0.5) for sign in signs]
    return builder.linear(readable, Facts(DECISION_UNIT, 0.0, 1.0), "decision")


def _row(weights: dict[int, int], constant: float, bits: dict[int, Bit], factor: int) -> Row:
    on_wires = {bits[edge].wire: weight * factor for edge, weight in weights.items()}
    return Row(on_wires, constant + sum(weight * bits[edge].constant for edge, weight in weights.items()))


def _sums(covers: Sequence[Cover], outputs: Indices, bits: dict[int, Bit], layout: Layout) -> list[Row]:
    """Every group's sum of look-ups and, with a unit of 1/R each, of bits with weights."""
    start = np.cumsum([0] + [len(cover.lookups) for cover in covers])
    rows = []
    for group in layout.groups:
        linear: dict[int, int] = {}
        for member in group.members:
            for edge, weight in covers[member].linear.items():
                linear[edge] = linear.get(edge, 0) + weight
        row = _row(linear, sum(covers[member].constant for member in group.members), bits, 1)
        for member in group.members:
            row.weights.update(dict.fromkeys(outputs[start[member] : start[member + 1]].tolist(), 1))
        rows.append(row)
    return rows


def _wrapped(entries: Reals, units: int) -> Reals:
    """The same on the torus, at most half a turn either way."""
    result: Reals = entries - units * np.rint(entries / units)
    return result
