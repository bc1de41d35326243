"""The graph of covered trees: comparison bits -> indices -> flags -> indices -> look-ups -> output sums, exact integers all the way.

Phases: a bit is 1/R for true, an index one step of 1/2M, a unit of an output 1/R, with R a multiple of 2M. So the integer weights of an index are
weight * R/2M, those of an output are the units themselves. A flag that is up is `flag_step` steps of an index, so that a weight on it is a small
integer too.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import ArrayLike

from cloakwork.fhe_core import noise
from cloakwork.fhe_core.parameters import ParameterSet
from cloakwork.models.arrays import Indices, Reals
from cloakwork.models.criteria.choose_set import largest_slots
from cloakwork.models.graph.graph_builder import GraphBuilder, Row, WireEncoding
from cloakwork.models.graph.ir import Graph
from cloakwork.models.graph.merge_equal import merge_equal
from cloakwork.models.program.answers import ROUNDING_SHARE, bits_beside, bytes_of
from cloakwork.models.trees.cover import Cover, Covers, Index, SummedCovers, TreeLookup, index_of, sum_covers
from cloakwork.models.trees.grid_bits import Bit, BitSource
from cloakwork.models.trees.index_weights import FlagWeights

DECISION_UNIT: Final = 0.25  # of the torus, between the two values of a decision
LEAVES: Final = "leaves"  # the name of the look-ups that select leaves
FLAGS: Final = "flags"  # of those that say how far a sample has come
MOST_UNITS: Final = 1 << 14


@dataclass(frozen=True, eq=False)
class OutputGroup:
    """Scalar trees whose values are added up in one output ciphertext."""

    members: tuple[int, ...]
    lowest: int  # sum of the smallest values
    highest: int
    lookups: int  # different indices

    def reads_from(self, units: int) -> int:
        """Returns the lowest value as the client takes it: 0 where the torus has room, so that it does not know the lowest."""
        return 0 if 0 <= self.lowest and self.highest < units else self.lowest

    def centre(self, units: int) -> int:
        """Returns what has phase 0."""
        return 0 if self.reads_from(units) == 0 else (self.lowest + self.highest) // 2


@dataclass(frozen=True, eq=False)
class TreeLayout:
    slots: int  # M
    units: int  # R
    groups: tuple[OutputGroup, ...]
    output_p_fail_log2: float  # of decoding one output, the worst


def flag_weights(params: ParameterSet, slots: int, p_fail_log2: float, share: float = 1.0) -> FlagWeights | None:
    """Returns what an index of M slots may weigh a flag with, so that its look-up fails with at most this probability; None: flags are too noisy.

    Args:
        share: of the noise that an index may have, in standard deviations, for the flag.
    """
    norm = 0
    while largest_slots(params, p_fail_log2, (norm + 1) / share) >= slots and norm < slots:
        norm += 1
    # No index needs a weight of more than half its slots: no two ends that differ are further apart.
    return FlagWeights(max(1, -(-slots // (2 * norm))), norm) if norm else None


def choose_layout(
    covers: Sequence[Cover],
    kinds: Sequence[int],
    params: ParameterSet,
    slots: int,
    p_fail_log2: float,
    coarser: int = 0,
) -> TreeLayout | None:
    """Returns the R with the fewest outputs, and the trees of each; None when a tree alone has too many values.

    Args:
        kinds: trees of one kind may be added up.
        coarser: how many bits fewer the leaf values should have: about what would come out, the look-ups being the same.
    """
    grouping, best = _Grouping(covers, kinds, params, coarser), None
    units = 2 * slots
    while units <= MOST_UNITS:
        groups = grouping.first_fit(units, p_fail_log2, None if best is None else len(best.groups))
        if groups is not None:
            best = TreeLayout(slots, units, tuple(groups), grouping.p_fail_log2(groups, units))
        units += 2 * slots * max(1, units // (16 * slots))
    return best


def most_values(params: ParameterSet, slots: int, p_fail_log2: float) -> int:
    """Returns values that an output of one look-up, or of none, tells apart at most."""
    variance = noise.rerandomisation_variance(params)
    units = MOST_UNITS
    while units > 2 * slots and noise.p_fail_log2(1 / (2 * units), variance) > p_fail_log2:
        units //= 2
    return units


def answer_size(layout: TreeLayout, params: ParameterSet) -> int:
    """Returns bytes of a sample's outputs, about."""
    most = max(group.lookups for group in layout.groups)
    variance = most * noise.blind_rotation_variance(params) + noise.rerandomisation_variance(params)
    return bytes_of(params, len(layout.groups), bits_beside(params, variance))


class _Grouping:
    """Facts of the sums of some covers before they are made."""

    def __init__(self, covers: Sequence[Cover], kinds: Sequence[int], params: ParameterSet, coarser: int = 0) -> None:
        numbers: dict[Index, int] = {}  # each is one look-up
        self._covers, self._params = covers, params
        self._kind = np.array(kinds, dtype=np.int64)
        width = np.array([cover.highest - cover.lowest for cover in covers], dtype=np.int64)
        self._width = -(-width >> coarser)
        self._indices = [
            frozenset(numbers.setdefault(index_of(lookup), len(numbers)) for lookup in cover.lookups)
            for cover in covers
        ]
        self._lookups = np.array([len(indices) for indices in self._indices], dtype=np.int64)
        times = Counter(index for indices in self._indices for index in indices)
        alone = [sum(times[index] == 1 for index in indices) for indices in self._indices]
        self._alone = np.array(alone, dtype=np.int64)  # look-ups that no other cover has
        weights = [sum(abs(weight) for weight in cover.linear.values()) for cover in covers]
        self._weights = np.array(weights, dtype=np.int64)
        terms = [len(cover.lookups) + 1 for cover in covers]
        self._terms = self._weights + np.array(terms, dtype=np.int64)

    def first_fit(self, units: int, p_fail_log2: float, fewer_than: int | None) -> list[OutputGroup] | None:
        """Puts the widest trees first, each into the first sum with room; None when one has none, or when the sums are not fewer."""
        allowed = self._largest_variance(units, p_fail_log2)
        if (self._width >= units).any():
            return None
        doubtful = np.flatnonzero(self._variance(self._lookups, self._weights, self._terms) > allowed)
        if any(self._of_members([i]) > allowed for i in doubtful.tolist()):
            return None
        if fewer_than is not None and self._least_count(units) >= fewer_than:
            return None
        members: list[list[int]] = []
        indices: list[set[int]] = []
        count = len(self._covers)
        kind, width, least, weights, terms = (np.zeros(count, dtype=np.int64) for _ in range(5))
        for i in np.argsort(-self._width, kind="stable").tolist():
            group_count = len(members)
            fits = (kind[:group_count] == self._kind[i]) & (width[:group_count] + self._width[i] < units)
            # As if the sum had all look-ups that it could have.
            merged = np.maximum(least[:group_count] + self._alone[i], self._lookups[i])
            new_terms = terms[:group_count] + self._terms[i]
            fits &= self._variance(merged, np.zeros(group_count), new_terms) <= allowed
            for place in np.flatnonzero(fits).tolist():
                together = least[place] + self._lookups[i] - len(indices[place] & self._indices[i])
                if self._variance(together, 0.0, new_terms[place]) > allowed:
                    continue
                if self._variance(together, weights[place] + self._weights[i], new_terms[place]) <= allowed:
                    break
                if self._of_members([*members[place], i]) <= allowed:
                    break
            else:
                if fewer_than is not None and group_count + 1 >= fewer_than:
                    return None
                place = group_count
                members.append([])
                indices.append(set())
                kind[place] = self._kind[i]
            members[place].append(i)
            indices[place] |= self._indices[i]
            least[place] = len(indices[place])
            width[place] += self._width[i]
            weights[place] += self._weights[i]
            terms[place] += self._terms[i]
        return [
            self._group(group_members, len(group_indices))
            for group_members, group_indices in zip(members, indices, strict=True)
        ]

    def p_fail_log2(self, groups: Sequence[OutputGroup], units: int) -> float:
        """Returns log2 of the probability that a sum is decoded wrongly, the worst."""
        return max(noise.p_fail_log2(1 / (2 * units), self._of_members(group.members)) for group in groups)

    def _group(self, members: list[int], lookups: int) -> OutputGroup:
        low = sum(self._covers[i].lowest for i in members)
        return OutputGroup(tuple(members), low, sum(self._covers[i].highest for i in members), lookups)

    def _least_count(self, units: int) -> int:
        """Returns sums that the widths alone ask for."""
        total = np.bincount(self._kind, weights=self._width)
        return int(np.ceil(total / (units - 1)).sum())

    def _of_members(self, members: Sequence[int]) -> float:
        """Returns variance of a sum: linear terms on one bit are added before they are squared."""
        linear: dict[int, int] = {}
        for i in members:
            for edge, weight in self._covers[i].linear.items():
                linear[edge] = linear.get(edge, 0) + weight
        squares = sum(weight**2 for weight in linear.values())
        lookups = len(frozenset().union(*(self._indices[i] for i in members)))
        terms = int(self._terms[list(members)].sum())
        return float(self._variance(lookups, math.sqrt(squares), terms))

    def _variance(self, lookups: ArrayLike, weights: ArrayLike, terms: ArrayLike) -> Reals:
        """Returns noise, that of rounding the answer's words included; and the rounding of 1/R and of table entries to whole words, taken as if all
        errors added up."""
        params = self._params
        computed = np.asarray(lookups) * noise.blind_rotation_variance(params)
        computed = computed + np.square(weights, dtype=np.float64) * noise.fresh_variance(params)
        rounding = np.square(np.asarray(terms) / params.modulus)
        return np.asarray((computed + noise.rerandomisation_variance(params) + rounding) * (1 + ROUNDING_SHARE))

    def _largest_variance(self, units: int, p_fail_log2: float) -> float:
        """At which values 1 / units apart are decoded wrongly with at most this probability."""
        low, high = 0.0, 1.0
        for _ in range(80):
            middle = (low + high) / 2
            fits = noise.p_fail_log2(1 / (2 * units), middle**2) <= p_fail_log2
            low, high = (middle, high) if fits else (low, middle)
        return low**2


# --- the graph -------------------------------------------------------------------------------------------------------------------


def used_edges(covers: Covers) -> Indices:
    """Returns edges that something reads, or the first where nothing does."""
    edges = read_edges(covers)
    return edges if len(edges) else np.zeros(1, dtype=np.int64)


def read_edges(covers: Covers) -> Indices:
    edges = {bit for lookup in covers.lookups for bit, _ in lookup.weights if bit < covers.edges}
    edges |= {edge for cover in covers.trees for edge in cover.linear}
    return np.array(sorted(edges), dtype=np.int64)


def compared_edges(covers: Covers) -> Indices:
    """Returns those that are read, and not as sums of digits."""
    read = read_edges(covers)
    return read[~np.isin(read, list(covers.digit_sums))]


def largest_norm(covers: Covers, feature: Indices, correlation: float = 0.0) -> float:
    """Returns L2 norm of the weights of an index, the largest.

    Args:
        feature: [edges]: bits of one feature count as correlated, by at most `correlation`, which makes the norm larger.
    """
    squares = (squared_norm(lookup.weights, covers, feature, correlation) for lookup in covers.lookups)
    return math.sqrt(max(squares, default=0.0))


def squared_norm(weights: Index, covers: Covers, feature: Indices, correlation: float) -> float:
    """Returns the squared norm of one index. Sums of digits come from the client and count for nothing."""
    of_edges = [(bit, weight) for bit, weight in weights if bit < covers.edges and bit not in covers.digit_sums]
    squares = float(sum(weight**2 for _, weight in of_edges))
    of_flags = sum((weight // covers.flag_step) ** 2 for bit, weight in weights if bit >= covers.edges)
    together: dict[int, int] = {}
    for bit, weight in of_edges:
        together[int(feature[bit])] = together.get(int(feature[bit]), 0) + abs(weight)
    within = sum(strength**2 for strength in together.values()) - squares
    return squares + of_flags + correlation * within


def tree_graph(
    covers: Covers, layout: TreeLayout, source: BitSource, factor: int, positive_from: int | None = None
) -> Graph:
    """Builds bits, flags, indices, look-ups, sums. Look-ups on one index in one sum are one, equal ones in different sums too.

    Args:
        factor: steps of a bit's phase in a step of an index.
        positive_from: the least sum that counts as positive: the output is then that decision, 0 or 1, instead of the sums. R is 2M then.
    """
    builder = GraphBuilder()
    rows = score_rows(builder, covers, layout, source, factor)
    if positive_from is not None:
        return merge_equal(builder.graph(_decision(builder, rows, layout.slots, positive_from)))
    low = np.array([float(group.lowest) for group in layout.groups])
    high = np.array([float(group.highest) for group in layout.groups])
    centre = np.array([float(group.centre(layout.units)) for group in layout.groups])
    scores = builder.linear(rows, WireEncoding(1 / layout.units, low, high, centre), "scores")
    return merge_equal(builder.graph(scores))


def score_rows(builder: GraphBuilder, covers: Covers, layout: TreeLayout, source: BitSource, factor: int) -> list[Row]:
    """Builds bits, flags, indices and look-ups of leaves; the sum of each group in units of 1/R."""
    bits = source.build(builder)
    _add_flags(builder, covers, layout, bits, factor)
    sums = [sum_covers(covers.trees[member] for member in group.members) for group in layout.groups]
    outputs = _add_leaves(builder, [lookup for group_sum in sums for lookup in group_sum.lookups], layout, bits, factor)
    return _sum_rows(sums, outputs, bits)


def _add_flags(builder: GraphBuilder, covers: Covers, layout: TreeLayout, bits: dict[int, Bit], factor: int) -> None:
    """Adds flags as bits, level by level. A flag that is up stands `flag_step` steps of an index."""
    levels = np.array([flag.level for flag in covers.flags], dtype=np.int64)
    for level in range(int(levels.max(initial=-1)) + 1):
        flag_numbers = np.flatnonzero(levels == level).tolist()
        indices = _indices(builder, [covers.flags[i].lookup for i in flag_numbers], layout, bits, factor)
        entries = np.array([_entries(covers.flags[i].lookup, bits) for i in flag_numbers])
        scale = covers.flag_step / (2 * layout.slots)
        wires = builder.lookup(indices, entries, WireEncoding(scale, entries.min(axis=1), entries.max(axis=1)), FLAGS)
        for i, wire in zip(flag_numbers, wires.tolist(), strict=True):
            bits[covers.edges + i] = Bit((wire,), covers.flags[i].offset, covers.flag_step)


def _add_leaves(
    builder: GraphBuilder, lookups: Sequence[TreeLookup], layout: TreeLayout, bits: dict[int, Bit], factor: int
) -> Indices:
    """Returns their wires; one batch, after all flags."""
    outputs = np.zeros(len(lookups), dtype=np.int64)
    if not lookups:
        return outputs
    indices = _indices(builder, lookups, layout, bits, factor)
    entries = _wrapped(np.array([_entries(lookup, bits) for lookup in lookups]), layout.units)
    return builder.lookup(
        indices, entries, WireEncoding(1 / layout.units, entries.min(axis=1), entries.max(axis=1)), LEAVES
    )


def _indices(
    builder: GraphBuilder, lookups: Sequence[TreeLookup], layout: TreeLayout, bits: dict[int, Bit], factor: int
) -> Indices:
    step, turn, centre = 1 / (2 * layout.slots), 2.0 * layout.slots, (layout.slots - 1) / 2
    rows = [_row(dict(lookup.weights), lookup.constant, bits, factor) for lookup in lookups]
    return builder.linear(rows, WireEncoding(step, 0.0, turn - 1, centre), "conditions")


def _entries(lookup: TreeLookup, bits: dict[int, Bit]) -> Reals:
    """Returns [2M], turned by what its bits always are."""
    turn = sum(weight * bits[bit].always for bit, weight in lookup.weights)
    return np.roll(lookup.entries, -turn)


def _decision(builder: GraphBuilder, sums: list[Row], slots: int, positive_from: int) -> Indices:
    """Whether each sum is at least `positive_from`: +1/2 on M slots of the circle and -1/2 on the others."""
    rows = [Row(row.weights, row.constant - positive_from) for row in sums]
    facts = WireEncoding(1 / (2 * slots), 0.0, 2.0 * slots - 1, (slots - 1) / 2)
    indices = builder.linear(rows, facts, "scores")
    table = np.tile(np.repeat([0.5, -0.5], slots), (len(rows), 1))
    signs = builder.lookup(indices, table, WireEncoding(DECISION_UNIT, -0.5, 0.5), "decision")
    readable = [Row({int(sign): 1}, 0.5) for sign in signs]
    return builder.linear(readable, WireEncoding(DECISION_UNIT, 0.0, 1.0), "decision")


def _row(weights: dict[int, int], constant: float, bits: dict[int, Bit], factor: int) -> Row:
    on_wires: dict[int, int] = {}
    for bit, weight in weights.items():
        for wire in bits[bit].wires:  # bits may share one
            on_wires[wire] = on_wires.get(wire, 0) + bits[bit].weight(weight, factor)
    on_wires = {wire: weight for wire, weight in on_wires.items() if weight}
    return Row(on_wires, constant + sum(weight * bits[bit].constant for bit, weight in weights.items()))


def _sum_rows(sums: Sequence[SummedCovers], outputs: Indices, bits: dict[int, Bit]) -> list[Row]:
    """Returns every group's sum of look-ups and, with a unit of 1/R each, of bits with weights."""
    rows, start = [], 0
    for group_sum in sums:
        row = _row(group_sum.linear, group_sum.constant, bits, 1)
        row.weights.update(dict.fromkeys(outputs[start : start + len(group_sum.lookups)].tolist(), 1))
        start += len(group_sum.lookups)
        rows.append(row)
    return rows


def _wrapped(entries: Reals, units: int) -> Reals:
    """Returns the same on the torus, at most half a turn either way."""
    result: Reals = entries - units * np.rint(entries / units)
    return result
