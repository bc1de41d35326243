"""Functions of an exact graph's look-ups on each integer that they may read: step functions, where they change and by how much (wide_lookups)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

from cloakwork.fhe_core.parameters import ParameterSet
from cloakwork.models.arrays import Indices, Reals
from cloakwork.models.errors import NoParameterSetError
from cloakwork.models.exact.exact_graph import ExactGraph
from cloakwork.models.exact.step_functions import MOST_BITS, StepFunction, around_changes, is_monotone, roundest
from cloakwork.models.graph.ir import Linear, Lookup, Node
from cloakwork.models.graph.steps import apply_steps, formula

# The few values that an integer sum can have: of bits and choices by bits, mostly far fewer than its range holds.

MOST_VALUES: Final = 1024


def reachable_sums(terms: Sequence[tuple[int, Indices | None]]) -> Indices | None:
    """Returns all sums of one value of each term times its weight, in order; None where they are many, or a term's values are not known."""
    sums: Indices = np.zeros(1, dtype=np.int64)
    if are_many(np.array([len(values) - 1 for weight, values in terms if values is not None and weight])):
        return None
    for weight, values in terms:
        if values is None or len(sums) * len(values) > 16 * MOST_VALUES:
            return None
        sums = np.unique(sums[:, None] + weight * values[None, :])
        if len(sums) > MOST_VALUES:
            return None
    return sums


def are_many(spans: Reals | Indices) -> bool:
    """Whether sums of integers have more values than are counted: those of one of m and one of n have m + n - 1 at least. Args: spans: m - 1, .."""
    return 1 + float(spans.sum()) > MOST_VALUES


def integers_between(low: float, high: float) -> Indices | None:
    """Returns None where they are many."""
    return np.arange(round(low), round(high) + 1) if high - low < MOST_VALUES else None


class FewValues:
    """The few values of the wires of an unfinished graph.

    Args:
        low, high: of every wire, integers; they become known with `nodes`, of which rows are looked up.
    """

    def __init__(self, low: Reals, high: Reals, nodes: Sequence[Node]) -> None:
        self.values: dict[int, Indices] = {}  # of results of look-ups, where they are fewer than their range has
        self._low, self._high, self._nodes = low, high, nodes
        self._sums: dict[int, Indices | None] = {}

    def sums(self, wire: int) -> Indices | None:
        """Returns the values that a row can have, where they are few."""
        if wire not in self._sums:
            node = next(each for each in self._nodes if each.first_wire <= wire < each.first_wire + each.size)
            assert isinstance(node, Linear)
            position, row = divmod(wire - node.first_wire, node.weights.shape[1])
            weights = node.weights[node.block[position], row]
            used = np.flatnonzero(weights)
            read = node.gather[position, used]
            known = np.array([wire in self.values for wire in read.tolist()], dtype=bool)
            whole = read[(read >= 0) & ~known]
            if are_many(self._high[whole] - self._low[whole]):
                self._sums[wire] = None
                return None
            terms = [(int(w), self._of(int(r))) for w, r in zip(weights[used], read, strict=True) if r >= 0]
            self._sums[wire] = reachable_sums(terms)
        return self._sums[wire]

    def _of(self, wire: int) -> Indices | None:
        known = self.values.get(wire)
        return integers_between(self._low[wire], self._high[wire]) if known is None else known


_MOST_EVALUATED: Final = 1 << 20  # integers, one by one
_SAME: Final = 1e-9  # of a turn


def refused(node: Lookup, bits: int, params: ParameterSet, why: str) -> NoParameterSetError:
    """Makes the error of a look-up of an accumulator of this many bits."""
    return NoParameterSetError(
        f"'{node.origin}' ({formula(node.steps[1:])}) reads an accumulator of {bits} bits, sign included, under '{params.name}'; {why}"
    )


class ElementSteps:
    """Steps of a graph's look-ups, by node and element. Args: params: for messages."""

    def __init__(self, exact: ExactGraph, params: ParameterSet) -> None:
        self._exact, self._graph, self._params = exact, exact.graph, params
        self._rows_reached: dict[int, Indices | None] = {}
        self._steps: dict[tuple[int, ...], StepFunction] = {}

    def ends(self, node: Lookup, element: int) -> tuple[int, int]:
        """Returns the least and the largest integer that an element reads."""
        graph, wire = self._graph, int(node.gather[element])
        assert graph.lower is not None and graph.upper is not None
        step, origin = (float(each[node.function[element]]) for each in node.steps[0].parameters)
        return round((float(graph.lower[wire]) - origin) / step), round((float(graph.upper[wire]) - origin) / step)

    def bits(self, node: Lookup, element: int) -> int:
        """Counts the bits of what an element reads: integers are 2^-bits of the torus apart."""
        assert self._graph.scale is not None
        return round(-math.log2(node.spacing[element] * self._graph.scale[node.gather[element]]))

    def of(self, node: Lookup, element: int) -> StepFunction:
        """Returns the steps of an element, for the integers that it may read."""
        bits = self.bits(node, element)
        if bits > MOST_BITS:
            raise refused(node, bits, self._params, f"at most {MOST_BITS} are compared")
        few = self.few(node, element)
        if few is None:
            return self.whole(node, element)
        return self._changes(node, element, self.ends(node, element)[0], few)

    def whole(self, node: Lookup, element: int) -> StepFunction:
        """Returns the steps of all integers of a range, whether an element reads them or not: once for each function."""
        bits, (low, high) = self.bits(node, element), self.ends(node, element)
        key = (node.first_wire, int(node.function[element]), low, high, bits)
        if key not in self._steps:
            integers = np.arange(low, high + 1)
            if len(integers) > _MOST_EVALUATED:
                if not is_monotone(node.steps):
                    most = _MOST_EVALUATED.bit_length() - 1
                    raise refused(node, bits, self._params, f"at most {most} of what rises and falls")
                integers = around_changes(lambda x: self.results(node, element, x), low, high)
            self._steps[key] = self._changes(node, element, low, integers)
        return self._steps[key]

    def few(self, node: Lookup, element: int) -> Indices | None:
        """Returns the integers that an element may read, where they are few."""
        return self.reached(int(node.gather[element]), self.bits(node, element))

    def _changes(self, node: Lookup, element: int, low: int, integers: Indices) -> StepFunction:
        phases = self.results(node, element, integers)
        changes = np.flatnonzero(np.abs(np.diff(phases)) > _SAME)
        thresholds = roundest(integers[changes], integers[changes + 1])
        return StepFunction(low, float(phases[0]), thresholds, np.diff(phases)[changes])

    def results(self, node: Lookup, element: int, integers: Indices) -> Reals:
        """Computes phases of an element's results for integers that it may read."""
        assert self._graph.scale is not None
        step, origin = (float(each[node.function[element]]) for each in node.steps[0].parameters)
        x: Reals = integers.astype(np.float64) * step + origin
        y = apply_steps(node.steps, x, np.full(len(x), node.function[element]))
        phases: Reals = y * self._graph.scale[node.first_wire + element]
        return phases

    def reached(self, wire: int, bits: int) -> Indices | None:
        """Returns the integers that a row can be, where they are few."""
        if wire not in self._rows_reached:
            node = self._graph.nodes[self._graph.owners()[wire]]
            assert isinstance(node, Linear)
            position, row = divmod(wire - node.first_wire, node.weights.shape[1])
            weights = node.weights[node.block[position], row]
            unit = self._exact.of(node).unit
            factor = max(1, round(2.0**-bits / unit))
            read = node.gather[position, np.flatnonzero(weights)]
            entering = read[(read >= 0) & (read < self._graph.input.size)]
            if are_many(self._spans(entering, unit)):
                self._rows_reached[wire] = None
                return None
            terms = [
                (int(weights[k]) // factor, self._values(int(node.gather[position, k]), unit))
                for k in np.flatnonzero(weights).tolist()
                if node.gather[position, k] >= 0
            ]
            self._rows_reached[wire] = reachable_sums(terms)
        return self._rows_reached[wire]

    def _spans(self, wires: Indices, unit: float) -> Reals:
        """From the least to the greatest integer."""
        graph = self._graph
        assert graph.lower is not None and graph.upper is not None and graph.scale is not None
        spans: Reals = np.rint((graph.upper[wires] - graph.lower[wires]) * graph.scale[wires] / unit)
        return spans

    def _values(self, wire: int, unit: float) -> Indices | None:
        """Returns the values of the input, or of a look-up's results, in units."""
        graph = self._graph
        assert graph.lower is not None and graph.upper is not None and graph.scale is not None
        node = graph.nodes[graph.owners()[wire]]
        if isinstance(node, Lookup) and node.is_exact:
            element = wire - node.first_wire
            few = self.few(node, element)
            if few is not None:
                return np.unique(np.rint(self.results(node, element, few) / unit).astype(np.int64))
        return integers_between(*(float(end[wire] * graph.scale[wire]) / unit for end in (graph.lower, graph.upper)))
