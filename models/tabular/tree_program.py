"""The graph of a covered ensemble: comparison bits -> indices -> look-ups -> output sums, exact integers all the way.

Phases: a bit is 1/R for true, an index one step of 1/2M, a unit of an output 1/R, with R a multiple of 2M. So the integer weights of an index are
weight * R/2M, those of an output are the units themselves.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from cloakwork.fhe_core import noise
from cloakwork.fhe_core.parameters import ParameterSet
from cloakwork.models.ir import Graph, Indices, Reals
from cloakwork.models.passes.merge_equal import merge_equal
from cloakwork.models.tabular.comparison_bits import Bit, BitSource
from cloakwork.models.tabular.cover import Cover, TreeLookup
from cloakwork.models.tabular.graph_builder import Facts, GraphBuilder, Row
from cloakwork.models.tabular.lookup_sums import Index, SummedCovers, index_of, sum_covers

DECISION_UNIT: Final = 0.25  # of the torus, between the two values of a decision
LEAVES: Final = "leaves"  # the name of the look-ups that select leaves


@dataclass(frozen=True, eq=False)
class OutputGroup:
    """Scalar trees whose values are added up in one output ciphertext."""

    members: tuple[int, ...]
    lowest: int  # sum of the smallest values
    highest: int
    lookups: int  # different indices


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


@dataclass
class _Sum:
    """What is known of the sum of some covers before it is made."""

    members: list[int] = field(default_factory=list)
    indices: set[Index] = field(default_factory=set)  # each is one look-up
    linear: dict[int, int] = field(default_factory=dict)
    width: int = 0  # values less one
    terms: int = 0

    def plus(self, number: int, cover: Cover) -> _Sum:
        linear = dict(self.linear)
        for edge, weight in cover.linear.items():
            linear[edge] = linear.get(edge, 0) + weight
        terms = len(cover.lookups) + sum(abs(weight) for weight in cover.linear.values()) + 1
        return _Sum(
            [*self.members, number],
            self.indices | {index_of(lookup) for lookup in cover.lookups},
            linear,
            self.width + cover.highest - cover.lowest,
            self.terms + terms,
        )

    def failure_log2(self, params: ParameterSet, units: int) -> float:
        """log2 of the probability that the sum is decoded wrongly; 0 when its values do not fit."""
        if self.width >= units:
            return 0.0
        return noise.failure_log2(1 / (2 * units), self._variance(params))

    def _variance(self, params: ParameterSet) -> float:
        """Noise, and the rounding of 1/R and of table entries to whole words, taken as if all errors added up."""
        squares = sum(weight**2 for weight in self.linear.values())
        computed = len(self.indices) * noise.blind_rotation_variance(params) + squares * noise.fresh_variance(params)
        return computed + noise.rerandomisation_variance(params) + (self.terms / params.modulus) ** 2


def _grouped(
    covers: Sequence[Cover], kinds: Sequence[int], params: ParameterSet, units: int, failure_log2: float
) -> tuple[tuple[OutputGroup, ...], float] | None:
    """First fit, the widest trees first."""
    order = sorted(range(len(covers)), key=lambda i: covers[i].lowest - covers[i].highest)
    sums: list[_Sum] = []
    for i in order:
        for place, own in enumerate(sums):
            if kinds[i] != kinds[own.members[0]]:
                continue
            larger = own.plus(i, covers[i])
            if larger.failure_log2(params, units) <= failure_log2:
                sums[place] = larger
                break
        else:
            sums.append(_Sum().plus(i, covers[i]))
            if sums[-1].failure_log2(params, units) > failure_log2:
                return None
    groups = []
    for own in sums:
        low, high = sum(covers[j].lowest for j in own.members), sum(covers[j].highest for j in own.members)
        groups.append(OutputGroup(tuple(own.members), low, high, len(own.indices)))
    return tuple(groups), max(own.failure_log2(params, units) for own in sums)


# --- the graph -------------------------------------------------------------------------------------------------------------------


def used_edges(covers: Sequence[Cover]) -> Indices:
    edges = {edge for cover in covers for lookup in cover.lookups for edge, _ in lookup.weights}
    edges |= {edge for cover in covers for edge in cover.linear}
    return np.array(sorted(edges) or [0], dtype=np.int64)  # a program has an input


def largest_norm(covers: Sequence[Cover], feature: Indices | None = None, correlation: float = 0.0) -> float:
    """L2 norm of the weights of an index, the largest.

    Args:
        feature: [edges]: bits of one feature count as correlated, by at most `correlation`, which makes the norm larger.
    """
    return math.sqrt(
        max((_square(lookup, feature, correlation) for cover in covers for lookup in cover.lookups), default=0.0)
    )


def _square(lookup: TreeLookup, feature: Indices | None, correlation: float) -> float:
    squares = float(sum(weight**2 for _, weight in lookup.weights))
    if feature is None:
        return squares
    together: dict[int, int] = {}
    for edge, weight in lookup.weights:
        together[int(feature[edge])] = together.get(int(feature[edge]), 0) + abs(weight)
    return squares + correlation * (sum(strength**2 for strength in together.values()) - squares)


def tree_graph(
    covers: Sequence[Cover], layout: Layout, source: BitSource, factor: int, positive_from: int | None = None
) -> Graph:
    """Bits, indices, look-ups, sums. Look-ups on one index in one sum are one, equal ones in different sums too.

    Args:
        factor: steps of a bit's phase in a step of an index.
        positive_from: the least sum that counts as positive: the output is then that decision, 0 or 1, instead of the sums. R is 2M then.
    """
    builder = GraphBuilder()
    bits = source.build(builder)
    sums = [sum_covers(covers[member] for member in group.members) for group in layout.groups]
    lookups = [lookup for own in sums for lookup in own.lookups]
    outputs: Indices = np.zeros(0, dtype=np.int64)
    if lookups:
        step, turn, centre = 1 / (2 * layout.slots), 2.0 * layout.slots, (layout.slots - 1) / 2
        rows = [_row(dict(lookup.weights), lookup.constant, bits, factor) for lookup in lookups]
        indices = builder.linear(rows, Facts(step, 0.0, turn - 1, centre), "conditions")
        entries = _wrapped(np.array([lookup.entries for lookup in lookups]), layout.units)
        facts = Facts(1 / layout.units, entries.min(axis=1), entries.max(axis=1))
        outputs = builder.lookup(indices, entries, facts, LEAVES)
    rows = _sum_rows(sums, outputs, bits)
    if positive_from is not None:
        return merge_equal(builder.graph(_decision(builder, rows, layout.slots, positive_from)))
    low = np.array([float(group.lowest) for group in layout.groups])
    high = np.array([float(group.highest) for group in layout.groups])
    scores = builder.linear(rows, Facts(1 / layout.units, low, high, np.floor((low + high) / 2)), "scores")
    return merge_equal(builder.graph(scores))


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


def _sum_rows(sums: Sequence[SummedCovers], outputs: Indices, bits: dict[int, Bit]) -> list[Row]:
    """Every group's sum of look-ups and, with a unit of 1/R each, of bits with weights."""
    rows, start = [], 0
    for own in sums:
        row = _row(own.linear, own.constant, bits, 1)
        row.weights.update(dict.fromkeys(outputs[start : start + len(own.lookups)].tolist(), 1))
        start += len(own.lookups)
        rows.append(row)
    return rows


def _wrapped(entries: Reals, units: int) -> Reals:
    """The same on the torus, at most half a turn either way."""
    result: Reals = entries - units * np.rint(entries / units)
    return result
