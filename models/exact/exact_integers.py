"""The profile `exact`: a graph of integers in which every look-up sees one of finitely many values, each in a slot of its own.

Inputs and results of look-ups are integers m (value = g m), weights integers q, accumulators A = sum q m with value = t A + bias. A unit of
phase u belongs to all that feed one accumulator; values that differ by one are u apart, so that a look-up is right while its noise stays
below u / 2:

    phase of m = m u,  phase of A = (A - centre) u,  (number of values of A) u <= 1/2

Models that say where they round (QDQ) keep their grids; in others every look-up's result is rounded to `activation_bits`, the input to
`input_bits`; ReLUs, maxima and choices of what is integer from the input on are not
(`ExactOptions.integers`). The failure probability follows from u and the noise: choose_exact.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from cloakwork.models.approximate.integer_rows import LARGEST_WEIGHT, row_steps
from cloakwork.models.arrays import Reals
from cloakwork.models.errors import CompileError
from cloakwork.models.exact.element_steps import FewValues
from cloakwork.models.exact.exact_graph import ExactGraph, ExactOptions, bounds_of, is_excess, is_extreme
from cloakwork.models.exact.exact_units import COMPARISONS, Grids, Integers, after_lookup, rounds_itself, with_units
from cloakwork.models.exact.gates import Opening, apart_offset, is_gate, with_offsets, without_gates
from cloakwork.models.exact.step_functions import is_monotone
from cloakwork.models.graph.ir import Graph, Linear, Lookup, Node, source_nodes, wires
from cloakwork.models.graph.merge_equal import is_output, regroup
from cloakwork.models.graph.steps import Step, apply_steps

_LARGEST_GIVEN = 510  # of weights of 8 bits, whatever their zero point, and differences of two such rows
_MOST_PARTS = 64  # of a row's step
_FEW_LEVELS = 4  # of results, which signs alone find with fewer look-ups
_LARGEST = 2**24  # values of an accumulator that are worth counting


def exact_integers(graph: Graph, input_unit: float, options: ExactOptions, calibrated: bool) -> ExactGraph:
    """Converts a graph to integers.

    Args:
        graph: with ranges (bound_ranges).
        input_unit: of the grid that the client rounds the input to.
        calibrated: take the ranges of accumulators from calibration where they are narrower; values outside wrap. Those of approximate layers
            always are.
    """
    return next(in_units(graph, input_unit, options, calibrated, [options.finer]))


def in_units(
    graph: Graph, input_unit: float, options: ExactOptions, calibrated: bool, finer: Sequence[int | None]
) -> Iterator[ExactGraph]:
    """Yields the same integers in units so much finer, each as `ExactOptions.finer`, without repetitions."""
    conversion = _Exact(graph, input_unit, options, calibrated)
    integers = conversion.run()
    seen: set[bytes] = set()
    for bits in finer:
        exact = with_units(integers, replace(options, finer=bits))
        assert exact.graph.scale is not None
        scales = exact.graph.scale.tobytes()
        if scales not in seen:
            seen.add(scales)
            yield replace(exact, kept=tuple(conversion.kept), rounded=tuple(conversion.rounded), apart=options.apart)


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
        self.exact = np.zeros(size + 1, dtype=bool)  # wires before which nothing is rounded, the input included
        self.exact[wires(graph.input)], self.exact[-1] = options.integers, True
        self.kept: list[str] = []
        self.rounded: list[str] = []
        for node in graph.lookups:
            if is_gate(node) or is_extreme(node) or (is_excess(node) and options.integers):
                self.through[node.gather] = True
                self.bounds[node.gather] = bounds_of(node)
            if is_gate(node):
                self.gates[node.gather] = node.steps[0].parameters[0][node.function]
        self._set(graph.input, input_unit, 0.0)
        input_wires = wires(graph.input)
        self.low[input_wires] = np.rint(graph.lower[input_wires] / input_unit)
        self.high[input_wires] = np.rint(graph.upper[input_wires] / input_unit)

    def run(self) -> Integers:
        for position, node in enumerate(self.source.nodes):
            if isinstance(node, Linear):
                self.nodes.append(self._linear(node))
            elif isinstance(node, Lookup):
                self.nodes.append(self._lookup(position, node))
            else:
                self.nodes.append(node)
        return Integers(
            self.source, tuple(self.nodes), self.low, self.high, self.grid, tuple(self.group), frozenset(self.narrowed)
        )

    def _set(self, node: Node, step: Reals | float, origin: Reals | float) -> None:
        self.grid.step[wires(node)], self.grid.origin[wires(node)] = step, origin

    # --- linear nodes ---

    def _linear(self, node: Linear) -> Linear:
        """Integer weights on integers; a row's grid has the row's step, and its bias as origin."""
        node, per_block = self._one_grid_per_column(node)
        node, opening = without_gates(node, self.gates[wires(node)])
        real = node.weights * per_block[:, None, :]
        row = row_steps(real, _LARGEST_GIVEN if self.options.given else LARGEST_WEIGHT)
        read = ((node.gather < 0) | self.exact[node.gather])[:, None, :] | (real[node.block] == 0)
        self.exact[wires(node)] = (read.all(axis=2) & (row[node.block] > 0)).reshape(-1)
        rounded = np.abs(real).max(axis=2) / (2 ** (self.options.weight_bits - 1) - 1)
        if self.options.accumulator_bits is not None:
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
        """Adds as many integers where a gate is open as the row has values. Args: step: [G, K] of the columns."""
        bits = opening.weights * step[:, None, :]
        if not np.array_equal(bits, np.rint(bits)):
            raise CompileError(f"'{node.origin}': chooses by what is no boolean; compare it first")
        node_wires, shape = wires(node), (len(node.gather), node.weights.shape[1])
        span = np.zeros(node.bias.shape)
        np.maximum.at(span, node.block, (self.high[node_wires] - self.low[node_wires] + 1).reshape(shape))
        gates = (self.gates[node_wires] > 0).reshape(shape)
        added = np.where(gates, span[node.block], 0.0).reshape(-1)
        if self.options.apart:
            span = apart_offset(span, node.bias / self._row_step(node, shape))
            added = np.where(gates, span[node.block], 0.0).reshape(-1)
        self.opens[node_wires] = self.high[node_wires] + 0.5
        if not self.options.apart:
            self.high[node_wires] += added
        self.offsets[node_wires] = added
        # A part of the offset that is a constant moves the origin, and with it what opens the gate.
        weights = node.weights + (bits * span[:, :, None]).astype(np.int64)
        constant = (opening.bias * span)[node.block].reshape(-1)
        moved = replace(node, weights=weights, bias=node.bias + opening.bias * span * self._row_step(node, shape))
        self.low[node_wires] -= constant
        self.high[node_wires] -= constant
        self.opens[node_wires] -= constant
        self._set(moved, self.grid.step[node_wires], moved.bias[node.block].reshape(-1))
        return moved

    def _row_step(self, node: Linear, shape: tuple[int, int]) -> Reals:
        result = np.ones(node.bias.shape)
        result[node.block] = self.grid.step[wires(node)].reshape(shape)
        return result

    def _unit_behind(self, node: Linear) -> float | None:
        """Returns the grid of the look-ups that read a node, where they are rounded to one."""
        first, last = node.first_wire, node.first_wire + node.size
        for position, reader in enumerate(self.source.nodes):
            if isinstance(reader, Lookup) and bool(((reader.gather >= first) & (reader.gather < last)).any()):
                return self._activation_unit(position)
        return None

    def _one_grid_per_column(self, node: Linear) -> tuple[Linear, Reals]:
        """Returns blocks split until all positions of one read the same grids: the node, and the step of each column [G, K]."""
        steps = np.where(node.gather >= 0, self.grid.step[node.gather], 0.0)
        columns = np.zeros((len(node.weights), steps.shape[1]))
        np.maximum.at(columns, node.block, steps)
        if bool(((steps == columns[node.block]) | (steps == 0)).all()):
            return node, np.where(columns > 0, columns, 1.0)
        steps = np.where(steps > 0, steps, columns[node.block])
        split = regroup(node, steps)
        if split is None:
            raise CompileError(f"linear '{node.origin}': reads too many mixtures of scales for exact precision")
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
        if self.use_calibration or node.origin in self.options.approximate:
            low, high = self._narrowed(node, low, high)
        self.low[wires(node)] = low[node.block].reshape(-1)
        self.high[wires(node)] = high[node.block].reshape(-1)

    def _narrowed(self, node: Linear, low: Reals, high: Reals) -> tuple[Reals, Reals]:
        assert self.source.lower is not None and self.source.upper is not None
        node_wires, shape = wires(node), (len(node.gather), node.weights.shape[1])
        step, origin = self.grid.step[node_wires], self.grid.origin[node_wires]
        seen_low, seen_high = np.full(low.shape, np.inf), np.full(high.shape, -np.inf)
        np.minimum.at(seen_low, node.block, np.floor((self.source.lower[node_wires] - origin) / step).reshape(shape))
        np.maximum.at(seen_high, node.block, np.ceil((self.source.upper[node_wires] - origin) / step).reshape(shape))
        if bool((seen_low > low).any() or (seen_high < high).any()):
            self.narrowed.add(node.first_wire)
        least = np.maximum(low, seen_low)
        return least, np.maximum(np.minimum(high, seen_high), least)

    # --- look-ups ---

    def _lookup(self, position: int, node: Lookup) -> Lookup:
        """Returns the look-up on snapped accumulators, its results on a grid through zero."""
        if is_gate(node):
            step = self.grid.step[node.gather]
            offset, opens = self.offsets[node.gather] * step, self.opens[node.gather] * step
            node = with_offsets(node, offset, opens, self.grid.origin[node.gather])
        step, origin, slots = self._slots(node)
        before = Grids(self.grid.step[node.gather], self.grid.origin[node.gather])
        grids, approximate = after_lookup(node, before), self._is_approximate(node)
        on_grid = bool(grids.through_zero.all()) and (slots is None or (approximate and rounds_itself(node)))
        low, high = self.low[node.gather], self.high[node.gather]
        results = self._results(node, step, origin, low, high)
        if self.options.apart and is_gate(node):
            results = np.minimum(low * step + origin, 0.0), np.maximum(high * step + origin, 0.0)
        levels = 1 if not on_grid else self._levels(node, step, origin, results, grids.step)
        keys = np.stack([node.function.astype(np.float64), step, origin], axis=1)
        distinct, function = np.unique(keys, axis=0, return_inverse=True)
        function = function.reshape(-1).astype(np.int64)
        snap = Step("Snap", (distinct[:, 1].copy(), distinct[:, 2].copy()))
        steps = [] if approximate else [snap]
        steps += [s.select(distinct[:, 0].astype(np.int64)) for s in node.steps]
        kept = self.options.given or levels <= 2**self.options.activation_bits or is_extreme(node)
        if on_grid and not kept and self._is_integer(node):
            kept = True
            self.kept.append(node.origin)
        if on_grid and kept:
            if (
                is_excess(node)
                and self.options.whole
                and self.options.integers
                and levels > _FEW_LEVELS
                and not approximate
            ):
                steps[-1] = Step("Excess")
            self.exact[wires(node)] = self.exact[node.gather] & (not approximate)
            self._set(node, grids.step, 0.0)
        elif (chosen := self._step_of_choices(node, step, origin)) is not None:
            self.exact[wires(node)] = self.exact[node.gather] & (not approximate)
            self._set(node, chosen, 0.0)
        else:
            if self.options.given and self.options.accumulator_bits is None and not approximate:
                self.rounded.append(node.origin)
            unit = self._activation_unit(position)
            ends = np.rint(np.array([results[0].min(), results[1].max()]) / unit)
            one = np.ones(len(distinct))
            steps.append(Step("QuantizeLinear", (one * unit, one * 0, one * ends[0], one * ends[1])))
            steps.append(Step("Affine", (one * unit, one * 0)))
            self._set(node, unit, 0.0)
        node_wires = wires(node)
        self.low[node_wires] = np.rint(results[0] / self.grid.step[node_wires])
        self.high[node_wires] = np.rint(results[1] / self.grid.step[node_wires])
        lookup = replace(node, steps=tuple(steps), function=function)
        self._reach(lookup)
        return lookup

    def _is_integer(self, node: Lookup) -> bool:
        """A ReLU, a maximum of several or a choice of what nothing before it has rounded."""
        exact = self.exact[node.gather].all() and not self._is_approximate(node)
        return bool((is_excess(node) or is_gate(node)) and exact)

    def _levels(self, node: Lookup, step: Reals, origin: Reals, results: tuple[Reals, Reals], unit: Reals) -> float:
        """Returns how many steps of the grid results reach over, or how many of them can be where these are few."""
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
        """Returns [E]: of which the few constants are multiples that a comparison chooses from; None for other functions, and other constants."""
        if not any(each.operator in COMPARISONS for each in node.steps):
            return None
        steps = np.ones(len(node.gather))
        for element, wire in enumerate(node.gather.tolist()):
            sums = self.few.sums(wire)
            count = int(min(self.high[wire] - self.low[wire] + 1, _LARGEST))
            integers = np.linspace(self.low[wire], self.high[wire], count) if sums is None else sums
            x = integers * step[element] + origin[element]
            values = np.unique(apply_steps(node.steps, x, np.full(len(x), node.function[element])))
            if len(values) > 2**self.options.activation_bits:
                return None
            steps[element] = float(row_steps(values[None, None])[0, 0])
        return steps if bool((steps > 0).all()) else None

    def _reach(self, node: Lookup) -> None:
        """Notes the values of results of few arguments."""
        for element, wire in enumerate(node.gather.tolist()):
            sums, result_wire = self.few.sums(wire), node.first_wire + element
            if sums is not None and self.high[result_wire] - self.low[result_wire] > 1:
                x = sums * self.grid.step[wire] + self.grid.origin[wire]
                y = apply_steps(node.steps, x, np.full(len(x), node.function[element]))
                self.few.values[result_wire] = np.unique(np.rint(y / self.grid.step[result_wire]).astype(np.int64))

    def _slots(self, node: Lookup) -> tuple[Reals, Reals, int | None]:
        """Returns step and origin of what a look-up tells apart; the number of values of a rounded accumulator."""
        step, origin = self.grid.step[node.gather].copy(), self.grid.origin[node.gather].copy()
        low, high = self.low[node.gather], self.high[node.gather]
        count = int((high - low).max()) + 1
        most = None if self.options.accumulator_bits is None else 2**self.options.accumulator_bits
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
        """Returns least and largest result for every value of the accumulators."""
        keys = np.stack([node.function.astype(np.float64), step, origin, low, high], axis=1)
        keys = np.concatenate(
            [keys, np.stack([self.grid.step[node.gather], self.grid.origin[node.gather]], axis=1)], axis=1
        )
        distinct, index = np.unique(keys, axis=0, return_inverse=True)
        least, most = np.empty(len(distinct)), np.empty(len(distinct))
        ends_are_all = is_monotone(node.steps)
        for i, (function, coarse, start, first, last, fine, zero) in enumerate(distinct):
            count = 2 if ends_are_all else int(min(last - first + 1, _LARGEST))
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
        """Returns one grid for all look-ups that are added up with this one, from what calibration saw of them."""
        assert self.source.lower is not None and self.source.upper is not None
        members = [
            node
            for i, node in enumerate(self.source.nodes)
            if self.group[i] == self.group[position] and isinstance(node, Lookup)
        ]
        low = min(0.0, *(float(self.source.lower[wires(node)].min()) for node in members))
        high = max(0.0, *(float(self.source.upper[wires(node)].max()) for node in members))
        return max(high - low, 1e-9) / float(2**self.options.activation_bits - 1)


def _one_step(real: Reals, rounded: Reals) -> Reals:
    """Returns [G, R]: the same for all rows: of integers already their step, else that of the coarsest. Args: real: [G, R, K]; rounded: [G, R]."""
    together = float(row_steps(real.reshape(1, 1, -1))[0, 0])
    return np.full_like(rounded, together if together > 0 else rounded.max())


def _groups(graph: Graph) -> list[int]:
    """Returns a number for each node: sources and the linear nodes that read them share one, and so do all linear nodes of the output."""
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
