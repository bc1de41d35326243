"""The profile `exact`: a graph of integers in which every look-up sees one of finitely many values, each in a slot of its own.

Inputs and results of look-ups are integers m (value = g m), weights integers q, accumulators A = sum q m with value = t A + bias. A unit of
phase u belongs to all that feed one accumulator; values that differ by one are u apart, so that a look-up is right while its noise stays
below u / 2:

    phase of m = m u,  phase of A = (A - centre) u,  (number of values of A) u <= 1/2

Models that say where they round (QDQ) keep their grids; in others every look-up's result is rounded to `activation_bits`, the input to
`input_bits`. The failure probability follows from u and the noise: choose_exact.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from cloakwork.models.arrays import Reals
from cloakwork.models.errors import CompileError
from cloakwork.models.graph.affine import is_output, regroup
from cloakwork.models.graph.ir import Graph, Input, Linear, Lookup, Node, check, source_nodes, wires
from cloakwork.models.graph.steps import Step, apply_steps
from cloakwork.models.passes.gates import Opening, is_gate, with_offsets, without_gates
from cloakwork.models.passes.grids import COMPARISONS, Grids, after_lookup
from cloakwork.models.passes.integer_rows import row_steps
from cloakwork.models.passes.reachable import FewValues
from cloakwork.models.passes.row_scales import INPUT_LIMIT, OUTPUT_LIMIT

_LOOKUP_RANGE = 0.5  # of the torus
_MOST_PARTS = 64  # of a row's step
_COARSEST_COMPARED = 2.0**-8  # unit of outputs that are compared
_LARGEST = 2**24  # values of an accumulator that are worth counting


@dataclass(frozen=True)
class ExactOptions:
    """Args:
    weight_bits, activation_bits: of weights, and of results of look-ups, that are not integers already.
    rounded_bits: accumulators with more values are rounded to this many bits, and integer weights of more to weight_bits; None: they are
        refused when no set resolves them.
    approximate: noise limits of layers that need not be exact, by the names of linear nodes.
    given: whether the model says where it rounds.
    whole: units are powers of two, so that bits can be taken from accumulators (passes/wide_lookups.py).
    compared: outputs have one step, and room for their differences; so many times the step that weight_bits ask for. 0: they are not compared.
    """

    weight_bits: int
    activation_bits: int
    rounded_bits: int | None = None
    approximate: Mapping[str, float] = field(default_factory=dict)
    given: bool = False
    whole: bool = False
    compared: int = 0


@dataclass(frozen=True)
class Accumulators:
    """Of a linear node: how many values there are, and how far they lie apart; phases are fractions of the torus."""

    unit: float  # phase between values of the wires that it reads
    margin: float  # half of the phase between what its look-ups tell apart
    values: int
    kept: int  # of them that its look-ups tell apart
    is_calibrated: bool  # the range is calibration's, narrower than interval arithmetic's


@dataclass(frozen=True, eq=False)
class ExactGraph:
    graph: Graph
    layers: Mapping[int, Accumulators]  # by first wire

    def of(self, node: Linear) -> Accumulators:
        return self.layers[node.first_wire]


def exact_integers(graph: Graph, input_unit: float, options: ExactOptions, calibrated: bool) -> ExactGraph:
    """Args:
    graph: with ranges (bound_ranges).
    input_unit: of the grid that the client rounds the input to.
    calibrated: take the ranges of accumulators from calibration where they are narrower; values outside wrap.
    """
    return _Exact(graph, input_unit, options, calibrated).run()


class _Exact:
    def __init__(self, graph: Graph, input_unit: float, options: ExactOptions, calibrated: bool) -> None:
        assert graph.lower is not None and graph.upper is not None
        self.source = graph
        self.options = options
        self.use_calibration = calibrated
        self.group = _groups(graph)
        size = graph.wire_count
        self.grid = Grids(np.zeros(size + 1), np.zeros(size + 1))  # the last entry is the zero wire's
        self.grid.step[-1] = 1.0
        self.low, self.high = np.zeros(size + 1), np.zeros(size + 1)  # integers
        self.nodes: list[Node] = []
        self.few = FewValues(self.low, self.high, self.nodes)
        self.narrowed: set[int] = set()
        self.gates = np.zeros(size)  # offset of the gate that reads each wire, in the model's numbers
        self.through = np.zeros(size, dtype=bool)  # wires whose grid has to go through 0 and a bound
        self.bounds = np.zeros(size)
        self.offsets, self.opens = np.zeros(size), np.zeros(size)  # in integers; a gate opens above `opens`
        for node in graph.lookups:
            if is_gate(node) or is_extreme(node):
                self.through[node.gather] = True
                self.bounds[node.gather] = bounds_of(node)
            if is_gate(node):
                self.gates[node.gather] = node.steps[0].parameters[0][node.function]
        self._set(graph.input, input_unit, 0.0)
        own = wires(graph.input)
        self.low[own] = np.rint(graph.lower[own] / input_unit)
        self.high[own] = np.rint(graph.upper[own] / input_unit)

    def run(self) -> ExactGraph:
        for position, node in enumerate(self.source.nodes):
            if isinstance(node, Linear):
                self.nodes.append(self._linear(node))
            elif isinstance(node, Lookup):
                self.nodes.append(self._lookup(position, node))
            else:
                self.nodes.append(node)
        return self._with_units()

    def _set(self, node: Node, step: Reals | float, origin: Reals | float) -> None:
        self.grid.step[wires(node)], self.grid.origin[wires(node)] = step, origin

    # --- linear nodes ---

    def _linear(self, node: Linear) -> Linear:
        """Integer weights on integers; a row's grid has the row's step, and its bias as origin."""
        node, per_block = self._one_grid_per_column(node)
        node, opening = without_gates(node, self.gates[wires(node)])
        real = node.weights * per_block[:, None, :]
        row = row_steps(real)
        rounded = np.abs(real).max(axis=2) / (2 ** (self.options.weight_bits - 1) - 1)
        if self.options.rounded_bits is not None:
            row = np.where(row >= rounded * (1 - 1e-9), row, 0.0)  # integers of more bits are rounded too
        if self.options.whole and (unit := self._unit_behind(node)) is not None:
            # The results' steps then are as many of the row's as a power of two: one look-up of the bits above finds all of them.
            with np.errstate(divide="ignore"):
                rounded = np.where(rounded > 0, unit / np.exp2(np.rint(np.log2(unit / rounded))), 0.0)
        row = np.where(row > 0, row, np.where(rounded > 0, rounded, 1.0))
        if self.options.compared and is_output(self.source, node):
            row = _one_step(real, rounded * self.options.compared)
        row = self._through_zero(node, row)
        node = replace(node, weights=np.rint(real / row[:, :, None]).astype(np.int64))
        self._set(node, row[node.block].reshape(-1), node.bias[node.block].reshape(-1))
        self._accumulate(node)
        return node if opening is None else self._gated(node, opening, per_block)

    def _through_zero(self, node: Linear, row: Reals) -> Reals:
        """Finer steps, where that takes 0, and the bound of an extreme, onto the grid: 3 k + 2 is one of step 1."""
        shape = (len(node.gather), node.weights.shape[1])
        chosen, bounds = (each[wires(node)].reshape(shape) for each in (self.through, self.bounds))
        finer = row.copy()
        for block, number in {(int(node.block[p]), int(r)) for p, r in np.argwhere(chosen)}:
            met = np.append(bounds[node.block == block, number], node.bias[block, number]) / row[block, number]
            parts = next((k for k in range(1, _MOST_PARTS + 1) if np.abs(k * met - np.rint(k * met)).max() < 1e-6), 1)
            finer[block, number] /= parts
        return finer

    def _gated(self, node: Linear, opening: Opening, step: Reals) -> Linear:
        """With as many more integers where a gate is open as the row has values. Args: step: [G, K] of the columns."""
        bits = opening.weights * step[:, None, :]
        if not np.array_equal(bits, np.rint(bits)):
            raise CompileError(f"'{node.origin}': chooses by what is no boolean; compare it first")
        own, shape = wires(node), (len(node.gather), node.weights.shape[1])
        span = np.zeros(node.bias.shape)
        np.maximum.at(span, node.block, (self.high[own] - self.low[own] + 1).reshape(shape))
        gates = (self.gates[own] > 0).reshape(shape)
        added = np.where(gates, span[node.block], 0.0).reshape(-1)
        self.opens[own] = self.high[own] + 0.5
        self.high[own] += added
        self.offsets[own] = added
        # A part of the offset that is a constant moves the origin, and with it what opens the gate.
        weights = node.weights + (bits * span[:, :, None]).astype(np.int64)
        constant = (opening.bias * span)[node.block].reshape(-1)
        moved = replace(node, weights=weights, bias=node.bias + opening.bias * span * self._row_step(node, shape))
        self.low[own] -= constant
        self.high[own] -= constant
        self.opens[own] -= constant
        self._set(moved, self.grid.step[own], moved.bias[node.block].reshape(-1))
        return moved

    def _row_step(self, node: Linear, shape: tuple[int, int]) -> Reals:
        result = np.ones(node.bias.shape)
        result[node.block] = self.grid.step[wires(node)].reshape(shape)
        return result

    def _unit_behind(self, node: Linear) -> float | None:
        """The grid of the look-ups that read a node, where they are rounded to one."""
        first, last = node.first_wire, node.first_wire + node.size
        for position, reader in enumerate(self.source.nodes):
            if isinstance(reader, Lookup) and bool(((reader.gather >= first) & (reader.gather < last)).any()):
                return self._activation_unit(position)
        return None

    def _one_grid_per_column(self, node: Linear) -> tuple[Linear, Reals]:
        """Blocks split until all positions of one read the same grids: the node, and the step of each column [G, K]."""
        steps = np.where(node.gather >= 0, self.grid.step[node.gather], 0.0)
        columns = np.zeros((len(node.weights), steps.shape[1]))
        np.maximum.at(columns, node.block, steps)
        if bool(((steps == columns[node.block]) | (steps == 0)).all()):
            return node, np.where(columns > 0, columns, 1.0)
        steps = np.where(steps > 0, steps, columns[node.block])
        split = regroup(node, steps)
        if split is None:
            raise CompileError(f"linear '{node.origin}': reads too many mixtures of scales for the profile exact")
        first, block = split
        old = node.block[first]
        node = replace(node, weights=node.weights[old], bias=node.bias[old], block=block)
        return node, np.where(steps[first] > 0, steps[first], 1.0)

    def _accumulate(self, node: Linear) -> None:
        """Least and greatest accumulator of every row, equal for positions of a block."""
        low, high = np.full(node.bias.shape, np.inf), np.full(node.bias.shape, -np.inf)
        below, above = self.low[node.gather], self.high[node.gather]
        for block in range(len(node.weights)):
            chosen = node.block == block
            positive, negative = np.maximum(node.weights[block], 0), np.minimum(node.weights[block], 0)
            low[block] = (below[chosen] @ positive.T + above[chosen] @ negative.T).min(axis=0, initial=np.inf)
            high[block] = (above[chosen] @ positive.T + below[chosen] @ negative.T).max(axis=0, initial=-np.inf)
        if self.use_calibration:
            low, high = self._narrowed(node, low, high)
        self.low[wires(node)] = low[node.block].reshape(-1)
        self.high[wires(node)] = high[node.block].reshape(-1)

    def _narrowed(self, node: Linear, low: Reals, high: Reals) -> tuple[Reals, Reals]:
        assert self.source.lower is not None and self.source.upper is not None
        own, shape = wires(node), (len(node.gather), node.weights.shape[1])
        step, origin = self.grid.step[own], self.grid.origin[own]
        seen_low, seen_high = np.full(low.shape, np.inf), np.full(high.shape, -np.inf)
        np.minimum.at(seen_low, node.block, np.floor((self.source.lower[own] - origin) / step).reshape(shape))
        np.maximum.at(seen_high, node.block, np.ceil((self.source.upper[own] - origin) / step).reshape(shape))
        if bool((seen_low > low).any() or (seen_high < high).any()):
            self.narrowed.add(node.first_wire)
        least = np.maximum(low, seen_low)
        return least, np.maximum(np.minimum(high, seen_high), least)

    # --- look-ups ---

    def _lookup(self, position: int, node: Lookup) -> Lookup:
        """The look-up on snapped accumulators, its results on a grid through zero."""
        if is_gate(node):
            step = self.grid.step[node.gather]
            offset, opens = self.offsets[node.gather] * step, self.opens[node.gather] * step
            node = with_offsets(node, offset, opens, self.grid.origin[node.gather])
        step, origin, slots = self._slots(node)
        before = Grids(self.grid.step[node.gather], self.grid.origin[node.gather])
        found = after_lookup(node, before)
        on_grid = bool(found.through_zero.all()) and slots is None
        low, high = self.low[node.gather], self.high[node.gather]
        results = self._results(node, step, origin, low, high)
        levels = 1 if not on_grid else self._levels(node, step, origin, results, found.step)
        keys = np.stack([node.function.astype(np.float64), step, origin], axis=1)
        distinct, function = np.unique(keys, axis=0, return_inverse=True)
        function = function.reshape(-1).astype(np.int64)
        snap = Step("Snap", (distinct[:, 1].copy(), distinct[:, 2].copy()))
        steps = [] if self._is_approximate(node) else [snap]
        steps += [s.select(distinct[:, 0].astype(np.int64)) for s in node.steps]
        kept = self.options.given or levels <= 2**self.options.activation_bits or is_extreme(node)
        if on_grid and kept:
            self._set(node, found.step, 0.0)
        elif (chosen := self._step_of_choices(node, step, origin)) is not None:
            self._set(node, chosen, 0.0)
        else:
            unit = self._activation_unit(position)
            ends = np.rint(np.array([results[0].min(), results[1].max()]) / unit)
            one = np.ones(len(distinct))
            steps.append(Step("QuantizeLinear", (one * unit, one * 0, one * ends[0], one * ends[1])))
            steps.append(Step("Affine", (one * unit, one * 0)))
            self._set(node, unit, 0.0)
        own = wires(node)
        self.low[own] = np.rint(results[0] / self.grid.step[own])
        self.high[own] = np.rint(results[1] / self.grid.step[own])
        made = replace(node, steps=tuple(steps), function=function)
        self._reach(made)
        return made

    def _levels(self, node: Lookup, step: Reals, origin: Reals, results: tuple[Reals, Reals], unit: Reals) -> float:
        """How many steps of the grid results reach over, or how many of them can be where these are few."""
        counts = []
        for element, wire in enumerate(node.gather.tolist()):
            sums = self.few.sums(wire)
            if sums is None:
                return float((results[1] / unit).max() - (results[0] / unit).min())
            x = sums * step[element] + origin[element]
            counts.append(
                len(
                    np.unique(
                        np.rint(apply_steps(node.steps, x, np.full(len(x), node.function[element])) / unit[element])
                    )
                )
            )
        return float(max(counts)) - 1

    def _step_of_choices(self, node: Lookup, step: Reals, origin: Reals) -> Reals | None:
        """[E]: of which the few constants are multiples that a comparison chooses from; None for other functions, and other constants."""
        if not any(each.operator in COMPARISONS for each in node.steps):
            return None
        found = np.ones(len(node.gather))
        for element, wire in enumerate(node.gather.tolist()):
            sums = self.few.sums(wire)
            count = int(min(self.high[wire] - self.low[wire] + 1, _LARGEST))
            integers = np.linspace(self.low[wire], self.high[wire], count) if sums is None else sums
            x = integers * step[element] + origin[element]
            values = np.unique(apply_steps(node.steps, x, np.full(len(x), node.function[element])))
            if len(values) > 2**self.options.activation_bits:
                return None
            found[element] = float(row_steps(values[None, None])[0, 0])
        return found if bool((found > 0).all()) else None

    def _reach(self, node: Lookup) -> None:
        """The values of results of few arguments."""
        for element, wire in enumerate(node.gather.tolist()):
            sums, own = self.few.sums(wire), node.first_wire + element
            if sums is not None and self.high[own] - self.low[own] > 1:
                x = sums * self.grid.step[wire] + self.grid.origin[wire]
                y = apply_steps(node.steps, x, np.full(len(x), node.function[element]))
                self.few.values[own] = np.unique(np.rint(y / self.grid.step[own]).astype(np.int64))

    def _slots(self, node: Lookup) -> tuple[Reals, Reals, int | None]:
        """Step and origin of what a look-up tells apart; the number of values of a rounded accumulator."""
        step, origin = self.grid.step[node.gather].copy(), self.grid.origin[node.gather].copy()
        low, high = self.low[node.gather], self.high[node.gather]
        count = int((high - low).max()) + 1
        most = None if self.options.rounded_bits is None else 2**self.options.rounded_bits
        if self._is_approximate(node):
            most = 2**12  # as fine as any table
        if most is None or count <= most:
            return step, origin, None
        merged = np.ceil((high - low + 1) / most)
        origin += step * (low + (merged - 1) / 2)
        return step * merged, origin, most

    def _is_approximate(self, node: Lookup) -> bool:
        read = source_nodes(self.source, node.gather)
        return any(self.source.nodes[i].origin in self.options.approximate for i in read)

    def _results(self, node: Lookup, step: Reals, origin: Reals, low: Reals, high: Reals) -> tuple[Reals, Reals]:
        """Least and largest result for every value of the accumulators."""
        keys = np.stack([node.function.astype(np.float64), step, origin, low, high], axis=1)
        keys = np.concatenate(
            [keys, np.stack([self.grid.step[node.gather], self.grid.origin[node.gather]], axis=1)], axis=1
        )
        distinct, index = np.unique(keys, axis=0, return_inverse=True)
        least, most = np.empty(len(distinct)), np.empty(len(distinct))
        for i, (function, coarse, start, first, last, fine, zero) in enumerate(distinct):
            count = int(min(last - first + 1, _LARGEST))
            x = np.linspace(first, last, count) * fine + zero
            x = np.rint((x - start) / coarse) * coarse + start
            y = apply_steps(node.steps, x, np.full(count, int(function)))
            if not np.isfinite(y).all():
                raise CompileError(
                    f"look-up '{node.origin}': not finite somewhere in its range; clip its input to where it is defined"
                )
            least[i], most[i] = y.min(), y.max()
        return least[index.reshape(-1)], most[index.reshape(-1)]

    def _activation_unit(self, position: int) -> float:
        """One grid for all look-ups that are added up with this one, from what calibration saw of them."""
        assert self.source.lower is not None and self.source.upper is not None
        members = [
            node
            for i, node in enumerate(self.source.nodes)
            if self.group[i] == self.group[position] and isinstance(node, Lookup)
        ]
        low = min(0.0, *(float(self.source.lower[wires(node)].min()) for node in members))
        high = max(0.0, *(float(self.source.upper[wires(node)].max()) for node in members))
        return max(high - low, 1e-9) / float(2**self.options.activation_bits - 1)

    # --- phases ---

    def _with_units(self) -> ExactGraph:
        graph = replace(self.source, nodes=tuple(self.nodes))
        limit: dict[int, float] = {}
        count: dict[int, int] = {}
        for i, node in enumerate(graph.nodes):
            own = wires(node)
            if isinstance(node, Linear):
                count[node.first_wire] = int((self.high[own] - self.low[own]).max()) + 1
                allowed = (2 * OUTPUT_LIMIT if is_output(graph, node) else _LOOKUP_RANGE) / count[node.first_wire]
                if self.options.compared and is_output(graph, node):
                    allowed = min(_COARSEST_COMPARED, _LOOKUP_RANGE / (self._spread(graph) + 2))
            else:
                largest = max(float(np.abs(self.low[own]).max()), float(np.abs(self.high[own]).max()), 1.0)
                allowed = (INPUT_LIMIT if isinstance(node, Input) else 0.5) / largest
            limit[self.group[i]] = min(limit.get(self.group[i], 1.0), allowed)
        if self.options.whole:
            limit = {group: 2.0 ** math.floor(math.log2(each)) / self._parts for group, each in limit.items()}
        return self._phases(graph, [limit[group] for group in self.group], count)

    @cached_property
    def _parts(self) -> int:
        """Of what is one unit elsewhere: an excess is put together of halves, one of such of quarters."""
        halvings = np.zeros(len(self.source.nodes), dtype=np.int64)
        owner = self.source.owners()
        for i, node in enumerate(self.source.nodes):
            before = max((int(halvings[source]) for source in source_nodes(self.source, node.gather, owner)), default=0)
            if isinstance(node, Linear):
                halvings[i] = before
            elif isinstance(node, Lookup):
                halvings[i] = before + 1 if is_extreme(node) else 0
        return 1 << int(halvings.max()) if self.options.whole else 1

    def _spread(self, graph: Graph) -> float:
        """The largest difference of two outputs, in their one step."""
        own = graph.output.reshape(-1)
        constant = self.high[own] == self.low[own]
        if not constant.all():
            self.grid.step[own[constant]] = self.grid.step[own[~constant]].max()
        step = self.grid.step[own]
        if np.ptp(step) > 1e-12 * step.max():
            raise CompileError(
                "encrypted_argmax: expected scores that one layer makes, got several of different scales; end the model in one dense layer"
            )
        origin = self.grid.origin[own] / step
        low, high = self.low[own] + origin, self.high[own] + origin
        most = float(high.max() - low.min())
        node = next(each for each in graph.nodes if each.first_wire <= own[0] < each.first_wire + each.size)
        assert isinstance(node, Linear)
        row = (own - node.first_wire) % node.weights.shape[1]
        if len(node.gather) > 1 or bool((own < node.first_wire).any() or (own >= node.first_wire + node.size).any()):
            return most
        weights = node.weights[node.block[0]][row].astype(np.float64)
        apart = weights[:, None] - weights[None]
        below, above = self.low[node.gather[0]], self.high[node.gather[0]]
        largest = np.maximum(apart, 0) @ above + np.minimum(apart, 0) @ below + origin[:, None] - origin[None]
        return min(most, float(largest.max()))

    def _phases(self, graph: Graph, unit: list[float], count: dict[int, int]) -> ExactGraph:
        """Scale and offset of every wire; rows with fewer values than others of their group are multiplied to fill the range."""
        scale, offset, lower, upper = np.zeros((4, graph.wire_count))
        nodes: list[Node] = []
        layers: dict[int, Accumulators] = {}
        for i, node in enumerate(graph.nodes):
            own = wires(node)
            step, origin = self.grid.step[own], self.grid.origin[own]
            scale[own] = unit[i] / step
            if isinstance(node, Linear):
                first, last = node.first_wire, is_output(graph, node)
                factor, merged = self._filling(node, unit[i], last)
                node = replace(node, weights=node.weights * factor[:, :, None])
                scale[own] *= factor[node.block].reshape(-1)
                centre = (self.low[own] + self.high[own]) / 2
                offset[own] = (np.floor(centre) if last else centre) * step + origin
                kept = count[first] if merged.max() == 1 else 2 ** (self.options.rounded_bits or 0)
                margin = unit[i] * float((factor * merged).min()) / 2
                layers[first] = Accumulators(unit[i], margin, count[first], kept, first in self.narrowed)
            lower[own], upper[own] = self.low[own] * step + origin, self.high[own] * step + origin
            nodes.append(node)
        done = check(replace(graph, nodes=tuple(nodes), lower=lower, upper=upper, scale=scale, offset=offset))
        return ExactGraph(done, layers)

    def _filling(self, node: Linear, unit: float, last: bool) -> tuple[np.ndarray, np.ndarray]:
        """[G, R]: by how much each row's integers are multiplied, and how many of its values look the same to its look-ups."""
        own, ones = wires(node), np.ones(node.bias.shape, dtype=np.int64)
        if last:
            return self._parts * ones, ones
        values = ones.copy()
        values[node.block] = (self.high[own] - self.low[own] + 1).reshape(len(node.gather), -1).astype(np.int64)
        factor = np.maximum(1, np.floor(_LOOKUP_RANGE / (unit * values) * (1 + 1e-12))).astype(np.int64)
        if self.options.whole:
            factor = np.exp2(np.floor(np.log2(factor))).astype(np.int64)
        most = None if self.options.rounded_bits is None else 2**self.options.rounded_bits
        return factor, ones if most is None else -(-values // most)


def is_extreme(node: Lookup) -> bool:
    """max(x, 0) of an extreme of two values, or that of one and a constant."""
    steps = [step for step in node.steps if step.operator != "Snap"]
    return len(steps) == 1 and (
        steps[0].operator == "Excess" or (steps[0].operator in ("Max", "Min") and len(steps[0].reads) == 1)
    )


def bounds_of(node: Lookup) -> Reals:
    """[E]: of extremes with constants; 0 of others."""
    parameters = node.steps[-1].parameters if is_extreme(node) else ()
    return parameters[0][node.function] if parameters else np.zeros(len(node.function))


def _one_step(real: Reals, rounded: Reals) -> Reals:
    """[G, R]: the same for all rows: of integers already their step, else that of the coarsest. Args: real: [G, R, K]; rounded: [G, R]."""
    together = float(row_steps(real.reshape(1, 1, -1))[0, 0])
    return np.full_like(rounded, together if together > 0 else rounded.max())


def _groups(graph: Graph) -> list[int]:
    """A number for each node: sources and the linear nodes that read them share one, and so do all linear nodes of the output."""
    parent = list(range(len(graph.nodes)))

    def root(i: int) -> int:
        while parent[i] != i:
            i = parent[i]
        return i

    last = None
    owner = graph.owners()
    for i, node in enumerate(graph.nodes):
        if not isinstance(node, Linear):
            continue
        for source in source_nodes(graph, node.gather, owner):
            parent[root(source)] = root(i)
        if is_output(graph, node):
            last = i if last is None else last
            parent[root(last)] = root(i)
    return [root(i) for i in range(len(graph.nodes))]
