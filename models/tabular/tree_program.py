"""The graph of a covered ensemble: comparison bits -> indices -> look-ups -> output sums, exact integers all the way.

Phases: a bit is 1/R for true, an index one step of 1/2M, a unit of an output 1/R, with R a multiple of 2M. So the integer weights of an index are
weight * R/2M, those of an output are the units themselves.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cloakwork.fhe_core import noise
from cloakwork.fhe_core.parameters import ParameterSet
from cloakwork.models.ir import ZERO_WIRE, Graph, Indices, Input, Linear, Lookup, Node, Reals, check_levelled
from cloakwork.models.steps import Step
from cloakwork.models.tabular.cover import Cover, TreeLookup


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
    return lookups * noise.blind_rotation_variance(params) + squares * noise.fresh_variance(params)


def _encoding_variance(params: ParameterSet, covers: Sequence[Cover]) -> float:
    """Rounding of 1/R and of table entries to whole words, taken as if all errors added up."""
    terms = sum(len(c.lookups) + sum(abs(w) for w in c.linear.values()) + 1 for c in covers)
    return (terms / params.modulus) ** 2


# --- the graph -------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class TreeGraph:
    graph: Graph
    used_edges: Indices  # edge of every input bit
    index_norm: float  # L2 norm of integer weights on the bits, the largest


def tree_graph(covers: Sequence[Cover], layout: Layout) -> TreeGraph:
    lookups = [lookup for cover in covers for lookup in cover.lookups]
    edges = {edge for lookup in lookups for edge, _ in lookup.weights} | {e for cover in covers for e in cover.linear}
    used = np.array(sorted(edges) or [0], dtype=np.int64)  # a program has an input
    wire = {int(edge): i for i, edge in enumerate(used)}
    nodes: list[Node] = [Input(0, (len(used),), "comparisons")]
    first_lookup = len(used) + len(lookups)
    if lookups:
        index = _index_node(lookups, wire, layout)
        nodes += [index, _lookup_node(lookups, first_lookup, index.first_wire, layout.units)]
    first_output = len(used) + 2 * len(lookups)
    output = _output_node(covers, wire, first_lookup, first_output, layout)
    graph = _with_facts([*nodes, output], len(used), lookups, layout)
    norm = math.sqrt(max((sum(w**2 for _, w in lookup.weights) for lookup in lookups), default=0.0))
    return TreeGraph(check_levelled(graph), used, norm * layout.units / (2 * layout.slots))


def _index_node(lookups: Sequence[TreeLookup], wire: dict[int, int], layout: Layout) -> Linear:
    """Every look-up's index, a position each; equal rows of weights share a block."""
    width = max(1, max(len(lookup.weights) for lookup in lookups))
    gather = np.full((len(lookups), width), ZERO_WIRE, dtype=np.int64)
    weights = np.zeros((len(lookups), width), dtype=np.int64)
    for position, lookup in enumerate(lookups):
        ordered = sorted(lookup.weights, key=lambda pair: pair[1])  # so that equal rows are found
        for column, (edge, weight) in enumerate(ordered):
            gather[position, column], weights[position, column] = wire[edge], weight
    constants = np.array([lookup.constant for lookup in lookups], dtype=np.int64)
    distinct, block = np.unique(np.column_stack([weights, constants]), axis=0, return_inverse=True)
    scaled = distinct[:, None, :-1] * (layout.units // (2 * layout.slots))
    bias = distinct[:, -1:].astype(np.float64)
    return Linear(
        len(wire), gather, block.reshape(-1).astype(np.int64), np.ascontiguousarray(scaled), bias, "conditions"
    )


def _lookup_node(lookups: Sequence[TreeLookup], first_wire: int, first_index: int, units: int) -> Lookup:
    entries = np.array([lookup.entries for lookup in lookups])
    tables, function = np.unique(_wrapped(entries, units), axis=0, return_inverse=True)
    gather = np.arange(first_index, first_index + len(lookups), dtype=np.int64)
    return Lookup(first_wire, gather, (Step("Table", (tables,)),), function.reshape(-1).astype(np.int64), "leaves")


def _output_node(
    covers: Sequence[Cover], wire: dict[int, int], first_lookup: int, first_output: int, layout: Layout
) -> Linear:
    """Every group's sum of look-ups and of bits with weights, a position each."""
    start = np.cumsum([0] + [len(cover.lookups) for cover in covers])
    rows: list[dict[int, int]] = []
    for group in layout.groups:
        row: dict[int, int] = {}
        for member in group.members:
            row.update(dict.fromkeys(range(first_lookup + start[member], first_lookup + start[member + 1]), 1))
            for edge, weight in covers[member].linear.items():
                row[wire[edge]] = row.get(wire[edge], 0) + weight
        rows.append(row)
    width = max(1, max(len(row) for row in rows))
    gather = np.full((len(rows), width), ZERO_WIRE, dtype=np.int64)
    weights = np.zeros((len(rows), 1, width), dtype=np.int64)
    for position, row in enumerate(rows):
        gather[position, : len(row)] = list(row)
        weights[position, 0, : len(row)] = list(row.values())
    bias = np.array([[sum(covers[member].constant for member in group.members)] for group in layout.groups])
    return Linear(first_output, gather, np.arange(len(rows), dtype=np.int64), weights, bias, "scores")


def _with_facts(nodes: list[Node], bits: int, lookups: Sequence[TreeLookup], layout: Layout) -> Graph:
    count, outputs = len(lookups), len(layout.groups)
    entries = _wrapped(np.array([lookup.entries for lookup in lookups]).reshape(count, 2 * layout.slots), layout.units)
    low = np.array([float(group.lowest) for group in layout.groups])
    high = np.array([float(group.highest) for group in layout.groups])
    unit, step, turn = 1 / layout.units, 1 / (2 * layout.slots), 2.0 * layout.slots

    def facts(*parts: tuple[int, float] | Reals) -> Reals:
        return np.concatenate([np.full(*part) if isinstance(part, tuple) else part for part in parts])

    return Graph(
        tuple(nodes),
        np.arange(bits + 2 * count, bits + 2 * count + outputs, dtype=np.int64),
        lower=facts((bits, 0.0), (count, 0.0), entries.min(axis=1, initial=0.0), low),
        upper=facts((bits, 1.0), (count, turn - 1), entries.max(axis=1, initial=0.0), high),
        scale=facts((bits, unit), (count, step), (count, unit), (outputs, unit)),
        offset=facts((bits, 0.0), (count, (layout.slots - 1) / 2), (count, 0.0), (low + high) / 2),
    )


def _wrapped(entries: Reals, units: int) -> Reals:
    """The same on the torus, at most half a turn either way."""
    result: Reals = entries - units * np.rint(entries / units)
    return result
