"""Units of phase for a graph of integers (exact_integers): one for all that feed one accumulator, as large as the torus allows.

Rows with fewer values than others of their group are multiplied to fill the range.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

import numpy as np

from cloakwork.models.approximate.row_scales import INPUT_LIMIT, OUTPUT_LIMIT
from cloakwork.models.arrays import Indices, Reals
from cloakwork.models.errors import CompileError
from cloakwork.models.exact.exact_graph import Accumulators, ExactGraph, ExactOptions, is_extreme
from cloakwork.models.graph.ir import Graph, Input, Linear, Lookup, Node, check, source_nodes, wires
from cloakwork.models.graph.merge_equal import is_output
from cloakwork.models.graph.steps import Step

# Grids of values, value = step * integer + origin, and the effect of a look-up on a grid.

_TOLERANCE = 1e-6
COMPARISONS: Final = frozenset({"Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"})
_TO_INTEGERS = COMPARISONS | {
    "Ceil", "Floor", "Not", "QuantizeLinear", "Requantize", "Round", "Sign", "Staircase", "Truncate",
}  # fmt: skip
_KEEPING = frozenset({"Abs", "Excess", "Gate", "Identity", "Relu"})  # of a grid through 0
_BOUNDS = frozenset({"Clip", "Max", "Min"})  # the same when the bounds are on it


@dataclass(frozen=True, eq=False)
class Grids:
    """One grid for each number; step 0 where there is none."""

    step: Reals
    origin: Reals

    @property
    def through_zero(self) -> np.ndarray:
        """Finds where the origin is a multiple of the step."""
        with np.errstate(all="ignore"):
            ratio = self.origin / self.step
        return (self.step > 0) & (np.abs(ratio - np.rint(ratio)) < _TOLERANCE)


def after_lookup(node: Lookup, before: Grids) -> Grids:
    """Returns grids of a look-up's results for those of the numbers that it reads."""
    grids = [before]
    nowhere = Grids(np.zeros_like(before.step), np.zeros_like(before.origin))
    for step in node.steps:
        several = len(step.reads) > 1 and step.operator not in _TO_INTEGERS
        grids.append(nowhere if several else _after_step(step, node.function, grids[-step.reads[0]]))
    return grids[-1]


def rounds_itself(node: Lookup) -> bool:
    """Whether results are on a grid through 0 whatever it reads: behind a quantiser or a comparison."""
    nowhere = np.zeros(len(node.gather))
    return bool(after_lookup(node, Grids(nowhere, nowhere)).through_zero.all())


def _after_step(step: Step, function: Indices, before: Grids) -> Grids:
    if step.operator in _TO_INTEGERS:
        return Grids(np.ones_like(before.step), np.zeros_like(before.origin))
    parameters = [parameter[function] for parameter in step.parameters]
    if step.operator == "Affine":
        return Grids(before.step * np.abs(parameters[0]), before.origin * parameters[0] + parameters[1])
    kept = before.through_zero
    if step.operator == "Pow":
        power = parameters[0]
        kept = kept & (power > 0) & (power == np.rint(power))
        with np.errstate(all="ignore"):
            return Grids(np.where(kept, before.step**power, 0.0), np.zeros_like(before.origin))
    if step.operator in _BOUNDS:
        for bound in parameters:
            kept = kept & (~np.isfinite(bound) | Grids(before.step, bound).through_zero)
    elif step.operator not in _KEEPING:
        kept = np.zeros_like(kept)
    return Grids(np.where(kept, before.step, 0.0), np.where(kept, before.origin, 0.0))


_LOOKUP_RANGE: Final = 0.5  # of the torus
_WIDE_RANGE: Final = 0.46  # of accumulators that are read with noise beside them (digit_search)
_APPROXIMATE_RANGE: Final = 0.46  # of values that noise must not carry over the end
_FINER_FRESH: Final = 2  # bits; readings then come nearer to what they have room for
_WIDE: Final = 512  # values: no look-up tells them apart
_COARSEST_COMPARED: Final = 2.0**-8  # unit of outputs that are compared


@dataclass(frozen=True, eq=False)
class Integers:
    """A graph of integers: `nodes` in place of the source's.

    Attributes:
        low, high: [wires + 1], the least and the greatest integer of each; the last is the zero wire.
        grid: what an integer is worth.
        group: a number for each node; those of one number share a unit.
        narrowed: first wires of linear nodes whose ranges calibration narrowed.
    """

    source: Graph
    nodes: tuple[Node, ...]
    low: Reals
    high: Reals
    grid: Grids
    group: tuple[int, ...]
    narrowed: frozenset[int]


def with_units(integers: Integers, options: ExactOptions) -> ExactGraph:
    """Raises CompileError where outputs that are to be compared have different scales."""
    return _Units(integers, options).run()


class _Units:
    def __init__(self, integers: Integers, options: ExactOptions) -> None:
        self.source, self.nodes = integers.source, integers.nodes
        self.low, self.high, self.grid = integers.low, integers.high, integers.grid
        self.group, self.narrowed = integers.group, integers.narrowed
        self.options = options

    def run(self) -> ExactGraph:
        graph = replace(self.source, nodes=self.nodes)
        limit: dict[int, float] = {}
        count: dict[int, int] = {}
        for i, node in enumerate(graph.nodes):
            node_wires = wires(node)
            if isinstance(node, Linear):
                count[node.first_wire] = int((self.high[node_wires] - self.low[node_wires]).max()) + 1
                allowed = self._allowed(node, count[node.first_wire], is_output(graph, node)) / count[node.first_wire]
                if self.options.compared and is_output(graph, node):
                    allowed = min(_COARSEST_COMPARED, _LOOKUP_RANGE / (self._spread(graph) + 2))
            else:
                largest = max(
                    float(np.abs(self.low[node_wires]).max()), float(np.abs(self.high[node_wires]).max()), 1.0
                )
                allowed = (INPUT_LIMIT if isinstance(node, Input) else 0.5) / largest
            limit[self.group[i]] = min(limit.get(self.group[i], 1.0), allowed)
        if self.options.whole:
            limit = {group: self._whole(graph, group, each, count) for group, each in limit.items()}
        return self._phases(graph, [limit[group] for group in self.group], count)

    def _allowed(self, node: Linear, count: int, is_last: bool) -> float:
        """Returns how much of the torus a number of values may take."""
        if is_last:
            return 2 * OUTPUT_LIMIT
        if node.origin in self.options.approximate:
            return _APPROXIMATE_RANGE
        return _WIDE_RANGE if self.options.finer is not None and count > _WIDE else _LOOKUP_RANGE

    def _whole(self, graph: Graph, group: int, limit: float, count: Mapping[int, int]) -> float:
        """Returns a power of two, but for what is decrypted only, or read by approximate look-ups; finer where there is little noise, and wide sums
        are read."""
        members = [node for number, node in zip(self.group, graph.nodes, strict=True) if number == group]
        linears = [node for node in members if isinstance(node, Linear)]
        if not self.options.compared and all(self._is_free(graph, node) for node in linears):
            return limit / self._parts
        wide = max((count[node.first_wire] for node in linears), default=0) > _WIDE
        finer = self._finer(members) if wide else 0
        return 2.0 ** (math.floor(math.log2(limit)) - finer) / self._parts

    def _is_free(self, graph: Graph, node: Linear) -> bool:
        """Whether nobody takes bits from its rows."""
        return is_output(graph, node) or node.origin in self.options.approximate

    def _finer(self, members: Sequence[Node]) -> int:
        """Bits, of the units of wide sums of a group."""
        if self.options.finer is None:
            return 0
        return self.options.finer if any(isinstance(node, Lookup) for node in members) else _FINER_FRESH

    @cached_property
    def _parts(self) -> int:
        """The parts of what is one unit elsewhere: an excess beside its operands is put together of halves, one of such of quarters."""
        halvings = np.zeros(len(self.source.nodes), dtype=np.int64)
        owner = self.source.owners()
        for i, node in enumerate(self.nodes):
            before = max((int(halvings[source]) for source in source_nodes(self.source, node.gather, owner)), default=0)
            if isinstance(node, Linear):
                halvings[i] = before
            elif isinstance(node, Lookup):
                halvings[i] = before + 1 if is_extreme(node) else 0
        return 1 << int(halvings.max()) if self.options.whole and not self.options.apart else 1

    def _spread(self, graph: Graph) -> float:
        """Returns the largest difference of two outputs, in their one step."""
        output_wires = graph.output.reshape(-1)
        constant = self.high[output_wires] == self.low[output_wires]
        if not constant.all():
            self.grid.step[output_wires[constant]] = self.grid.step[output_wires[~constant]].max()
        step = self.grid.step[output_wires]
        if np.ptp(step) > 1e-12 * step.max():
            raise CompileError(
                "tell='labels': expected scores that one layer makes, got several of different scales; end the model in one dense layer"
            )
        origin = self.grid.origin[output_wires] / step
        low, high = self.low[output_wires] + origin, self.high[output_wires] + origin
        most = float(high.max() - low.min())
        node = next(each for each in graph.nodes if each.first_wire <= output_wires[0] < each.first_wire + each.size)
        assert isinstance(node, Linear)
        row = (output_wires - node.first_wire) % node.weights.shape[1]
        if len(node.gather) > 1 or bool(
            (output_wires < node.first_wire).any() or (output_wires >= node.first_wire + node.size).any()
        ):
            return most
        weights = node.weights[node.block[0]][row].astype(np.float64)
        apart = weights[:, None] - weights[None]
        below, above = self.low[node.gather[0]], self.high[node.gather[0]]
        largest = np.maximum(apart, 0) @ above + np.minimum(apart, 0) @ below + origin[:, None] - origin[None]
        return min(most, float(largest.max()))

    def _phases(self, graph: Graph, unit: list[float], count: dict[int, int]) -> ExactGraph:
        """Returns scale and offset of every wire; rows with fewer values than others of their group are multiplied to fill the range."""
        scale, offset, lower, upper = np.zeros((4, graph.wire_count))
        nodes: list[Node] = []
        layers: dict[int, Accumulators] = {}
        for i, node in enumerate(graph.nodes):
            node_wires = wires(node)
            step, origin = self.grid.step[node_wires], self.grid.origin[node_wires]
            scale[node_wires] = unit[i] / step
            if isinstance(node, Linear):
                first, last = node.first_wire, is_output(graph, node)
                factor, merged = self._filling(graph, node, unit[i], last)
                node = replace(node, weights=node.weights * factor[:, :, None])
                scale[node_wires] *= factor[node.block].reshape(-1)
                centre = (self.low[node_wires] + self.high[node_wires]) / 2
                offset[node_wires] = (np.floor(centre) if last else centre) * step + origin
                kept = count[first] if merged.max() == 1 else 2 ** (self.options.accumulator_bits or 0)
                margin = unit[i] * float((factor * merged).min()) / 2
                layers[first] = Accumulators(unit[i], margin, count[first], kept, first in self.narrowed)
            lower[node_wires], upper[node_wires] = (
                self.low[node_wires] * step + origin,
                self.high[node_wires] * step + origin,
            )
            nodes.append(node)
        done = check(replace(graph, nodes=tuple(nodes), lower=lower, upper=upper, scale=scale, offset=offset))
        return ExactGraph(done, layers)

    def _filling(self, graph: Graph, node: Linear, unit: float, last: bool) -> tuple[np.ndarray, np.ndarray]:
        """Returns [G, R]: by how much each row's integers are multiplied, and how many of its values look the same to its look-ups."""
        node_wires, ones = wires(node), np.ones(node.bias.shape, dtype=np.int64)
        if last:
            return self._parts * ones, ones
        values = ones.copy()
        values[node.block] = (
            (self.high[node_wires] - self.low[node_wires] + 1).reshape(len(node.gather), -1).astype(np.int64)
        )
        wide = (self.options.finer is not None) & (values > _WIDE)
        sources = [graph.nodes[i] for i in source_nodes(graph, node.gather)]
        allowed = np.where(wide, _WIDE_RANGE * 2.0 ** -self._finer(sources), _LOOKUP_RANGE)
        if node.origin in self.options.approximate:
            allowed = np.full_like(allowed, _APPROXIMATE_RANGE)
        factor = np.maximum(1, np.floor(allowed / (unit * values) * (1 + 1e-12))).astype(np.int64)
        if self.options.whole and node.origin not in self.options.approximate:
            factor = np.exp2(np.floor(np.log2(factor))).astype(np.int64)
        most = None if self.options.accumulator_bits is None else 2**self.options.accumulator_bits
        return factor, ones if most is None else -(-values // most)
