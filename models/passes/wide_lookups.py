"""Look-ups of an exact graph on accumulators of more values than a look-up tells apart: bits are taken away from below (graph/signs.py).

What such a look-up computes has to be a step function with few steps: a comparison, a choice between constants by one, a quantiser to few bits.
With thresholds t_j and heights h_j,

    f(A) = f(lowest) + sum_j h_j [A >= t_j]

each step is a sign of A - t_j, the results of which are added up by whatever reads f; or, where all thresholds leave the same rest modulo 2^k, f is a
function of the bits of A - t_1 from k on, and one look-up of these gives it.

An accumulator in units of 2^-B of the torus is known modulo 2^B: exact_integers has powers of two for that (`ExactOptions.whole`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from typing import Final, NoReturn

import numpy as np

from cloakwork.fhe_core import noise
from cloakwork.fhe_core.parameters import ParameterSet
from cloakwork.models.arrays import Indices, Reals
from cloakwork.models.criteria.slots import plan_contest, plan_highest_bits
from cloakwork.models.errors import NoParameterSetError
from cloakwork.models.graph.affine import is_output
from cloakwork.models.graph.graph_builder import Facts, GraphBuilder, Row
from cloakwork.models.graph.ir import ZERO_WIRE, Graph, Input, Linear, Lookup
from cloakwork.models.graph.signs import SignPlan, excess_parts, highest_bits
from cloakwork.models.graph.steps import apply_steps, formula
from cloakwork.models.passes.exact_graph import ExactGraph, bounds_of, is_extreme
from cloakwork.models.passes.reachable import integers_between, reachable_sums
from cloakwork.models.passes.step_functions import (
    MOST_BITS,
    PhaseSum,
    StepFunction,
    StepPart,
    halves,
    part_of,
    roundest,
)

MOST_STEPS: Final = 64  # of a look-up, each with a sign of its own
_SAME: Final = 1e-9  # of a turn
_WHOLE: Final = 1e-6


def widened(exact: ExactGraph, params: ParameterSet, p_fail_log2: float, winner: bool = False) -> Graph:
    """The graph with look-ups of few steps where one look-up is too noisy.

    Args:
        exact: of whole units; `compared` ones for a winner.
        p_fail_log2: of each look-up.
        winner: the output is the number of the largest output, the first of equal ones.

    Raises:
        NoParameterSetError: a look-up that has too many steps, or an accumulator too wide or noisy.
    """
    return _Widening(exact, params, p_fail_log2).run(winner)


class _Widening:
    def __init__(self, exact: ExactGraph, params: ParameterSet, p_fail_log2: float) -> None:
        self._graph, self._params, self._p_fail_log2 = exact.graph, params, p_fail_log2
        self._builder = GraphBuilder()
        self._sums: dict[int, PhaseSum] = {ZERO_WIRE: PhaseSum({})}  # of old wires that linear nodes read
        self._moved: dict[int, int] = {}  # old wires of linear nodes -> new ones
        self._behind = noise.lookup_variance(params, 0.0)
        self._exact = exact
        self._rows_reached: dict[int, Indices | None] = {}
        self._steps: dict[tuple[int, ...], StepFunction] = {}
        self._plans: dict[tuple[int, int, int], SignPlan | None] = {}

    def run(self, winner: bool) -> Graph:
        graph = self._graph
        for node in graph.nodes:
            if isinstance(node, Input):
                own = self._builder.add(node, self._facts(np.arange(node.size)))
                self._sums |= {wire: PhaseSum({wire: 1}) for wire in own.tolist()}
            elif isinstance(node, Lookup):
                self._lookup(node)
        if winner:
            return replace(self._builder.graph(self._winner()), inputs=graph.inputs, unused=graph.unused)
        output = graph.output.reshape(-1).tolist()
        self._linear(output)
        moved = np.array([self._moved[wire] for wire in output], dtype=np.int64)
        made = self._builder.graph(moved.reshape(graph.output.shape))
        made = replace(made, inputs=graph.inputs, outputs=graph.outputs, unused=graph.unused)
        return replace(made, client_steps=graph.client_steps)

    def _facts(self, old: Indices) -> Facts:
        graph = self._graph
        assert graph.scale is not None and graph.offset is not None
        assert graph.lower is not None and graph.upper is not None
        return Facts(graph.scale[old], graph.lower[old], graph.upper[old], graph.offset[old])

    # --- rows ---

    def _row(self, wire: int) -> PhaseSum:
        """What an old wire of a linear node adds up, without its bias."""
        node = self._graph.nodes[self._graph.owners()[wire]]
        assert isinstance(node, Linear)
        position, row = divmod(wire - node.first_wire, node.weights.shape[1])
        weights = node.weights[node.block[position], row]
        total = PhaseSum.of(
            (self._sums[int(node.gather[position, column])], int(weights[column]))
            for column in np.flatnonzero(weights).tolist()
        )
        if any(weight != round(weight) for weight in total.weights.values()):
            raise NoParameterSetError(
                f"'{node.origin}': adds the extreme of wide values to others of another scale; expected Max and Min whose results meet their operands"
            )
        return total

    def _variance(self, row: PhaseSum) -> float:
        """Of a row, as part of the torus, before its look-up."""
        fresh, rotated = noise.fresh_variance(self._params), noise.blind_rotation_variance(self._params)
        inputs = self._graph.input.size
        return sum(weight**2 * (fresh if wire < inputs else rotated) for wire, weight in row.weights.items())

    def _linear(self, old: Sequence[int]) -> None:
        """Rows that are read as they are, where they are not there yet."""
        graph, wanted = self._graph, [wire for wire in dict.fromkeys(old) if wire not in self._moved]
        assert graph.scale is not None
        owner = graph.owners()
        for position in dict.fromkeys(int(owner[wire]) for wire in wanted):
            node = graph.nodes[position]
            assert isinstance(node, Linear)
            own = [wire for wire in wanted if owner[wire] == position]
            sums = [self._row(wire) for wire in own]
            rows = [
                each.row(float(self._bias(wire) + each.constant / graph.scale[wire]))
                for wire, each in zip(own, sums, strict=True)
            ]
            made = self._builder.linear(rows, self._facts(np.array(own)), node.origin)
            self._moved |= dict(zip(own, made.tolist(), strict=True))

    # --- look-ups ---

    def _lookup(self, node: Lookup) -> None:
        assert self._graph.scale is not None
        rows = {wire: self._row(wire) for wire in np.unique(node.gather).tolist()}
        direct: list[int] = []
        parts: list[tuple[int, StepPart]] = []
        extremes: list[tuple[int, PhaseSum]] = []
        for element, wire in enumerate(node.gather.tolist()):
            margin = float(node.spacing[element] * self._graph.scale[wire]) / 2
            variance = self._variance(rows[wire]) + self._behind
            if noise.p_fail_log2(margin, variance, noise.lookup_offset(self._params)) <= self._p_fail_log2:
                direct.append(element)
            elif is_extreme(node):
                self._sums[node.first_wire + element] = PhaseSum({})
                extremes.append((element, rows[wire]))
            else:
                self._sums[node.first_wire + element] = PhaseSum({})
                parts += [(element, part) for part in self._parts(node, element, rows[wire])]
        if direct:
            self._direct(node, np.array(direct, dtype=np.int64))
        for plan in dict.fromkeys(part.plan for _, part in parts):
            self._in_steps(node, [each for each in parts if each[1].plan == plan])
        if extremes:
            self._extremes(node, extremes)

    def _direct(self, node: Lookup, elements: Indices) -> None:
        gather = node.gather[elements].tolist()
        self._linear(gather)
        moved = np.array([self._moved[wire] for wire in gather], dtype=np.int64)
        old = node.first_wire + elements
        made = self._builder.add(replace(node, gather=moved, function=node.function[elements]), self._facts(old))
        self._sums |= {o: PhaseSum({new: 1}) for o, new in zip(old.tolist(), made.tolist(), strict=True)}

    def _in_steps(self, node: Lookup, parts: Sequence[tuple[int, StepPart]]) -> None:
        """Look-ups of one plan: each is a term of its element."""
        assert self._graph.scale is not None
        old = np.array([node.first_wire + element for element, _ in parts], dtype=np.int64)
        scale = self._graph.scale[old]
        tables = np.stack([part.table for _, part in parts]) / scale[:, None]
        reach = np.abs(tables).max(axis=1)
        facts, rows = Facts(scale, -reach, reach), [part.row for _, part in parts]
        made = highest_bits(self._builder, rows, parts[0][1].plan, tables, facts, node.origin)
        for wire, new, (_, part) in zip(old.tolist(), made.tolist(), parts, strict=True):
            self._sums[wire] = PhaseSum.of([(self._sums[wire], 1), (PhaseSum({new: 1}, part.constant), 1)])

    def _extremes(self, node: Lookup, elements: Sequence[tuple[int, PhaseSum]]) -> None:
        """max(x, c) = c + e, min(x, c) = x - e with the excess e of x over c: half of x - c itself, and its bits with its sign, halved."""
        graph = self._graph
        assert graph.scale is not None
        found: dict[tuple[SignPlan, float], list[tuple[int, Row]]] = {}
        for element, row in elements:
            bits, own = self._bits(node, element), node.first_wire + element
            step, origin = (float(each[node.function[element]]) for each in node.steps[0].parameters)
            unit, added = float(graph.scale[own] * step), round(origin / step)
            bound = round(float(bounds_of(node)[element]) / step)
            low, high = (integer + added for integer in self._ends(node, element))
            least = node.steps[-1].operator == "Min"
            itself = PhaseSum.of([(row, unit * 2.0**bits), (PhaseSum({}, added * unit), 1)])
            if low >= bound or high <= bound:
                self._sums[own] = itself if (low >= bound) != least else PhaseSum({}, bound * unit)
                continue
            plan = plan_highest_bits(bits, self._variance(row), self._params, self._p_fail_log2, spare=1)
            if plan is None:
                self._refuse(node, bits, "its bits are too many for the noise of what it adds up")
            # c + (x - c) / 2, or x - (x - c) / 2: both are half of the sum.
            self._sums[own] = PhaseSum.of([(itself, 0.5), (PhaseSum({}, bound * unit), 0.5)])
            integer = row.row(halves(row.constant * 2.0**bits) + added - bound)
            found.setdefault((plan, -unit if least else unit), []).append((own, integer))
        for (plan, unit), alike in found.items():
            made, constant = excess_parts(self._builder, [row for _, row in alike], plan, unit, node.origin)
            for number, (own, _) in enumerate(alike):
                terms = [(PhaseSum({int(wires[number]): 1}), 1) for wires in made]
                self._sums[own] = PhaseSum.of([(self._sums[own], 1), *terms, (PhaseSum({}, constant), 1)])

    def _ends(self, node: Lookup, element: int) -> tuple[int, int]:
        """The least and the largest integer that an element reads."""
        graph, wire = self._graph, int(node.gather[element])
        assert graph.lower is not None and graph.upper is not None
        step, origin = (float(each[node.function[element]]) for each in node.steps[0].parameters)
        return round((float(graph.lower[wire]) - origin) / step), round((float(graph.upper[wire]) - origin) / step)

    def _parts(self, node: Lookup, element: int, row: PhaseSum) -> list[StepPart]:
        """The cheapest way to what an element computes. NoParameterSetError where there is none."""
        assert self._graph.scale is not None
        bits = self._bits(node, element)
        steps, variance = self._steps_of(node, element, bits), self._variance(row)
        if not len(steps.thresholds):
            self._sums[node.first_wire + element] = PhaseSum({}, steps.lowest)
            return []
        common = steps.common_bits(bits)
        together, alone = (self._planned(bits, variance, kept) for kept in (bits - common, 1))
        if alone is None:
            self._refuse(node, bits, f"at most {self._most_bits(bits, variance)} fit")
        assert alone is not None
        if together is not None and together.lookups <= len(steps.thresholds) * alone.lookups:
            return [part_of(together, steps, row)]
        return [part_of(alone, each, row) for each in steps.single()]

    def _bits(self, node: Lookup, element: int) -> int:
        """Of what an element reads: integers are 2^-bits of the torus apart."""
        assert self._graph.scale is not None
        return round(-math.log2(node.spacing[element] * self._graph.scale[node.gather[element]]))

    def _planned(self, bits: int, variance: float, kept: int) -> SignPlan | None:
        """As plan_highest_bits has it, once for like rows."""
        key = (bits, kept, math.ceil(4 * math.log2(max(variance, 1e-300))))
        if key not in self._plans:
            self._plans[key] = plan_highest_bits(bits, 2.0 ** (key[2] / 4), self._params, self._p_fail_log2, kept)
        return self._plans[key]

    def _most_bits(self, bits: int, variance: float) -> int:
        return next((b for b in range(bits - 1, 0, -1) if self._planned(b, variance, 1) is not None), 0)

    def _steps_of(self, node: Lookup, element: int, bits: int) -> StepFunction:
        """Of an element; of those that read all integers of a range once for each function."""
        if bits > MOST_BITS:
            self._refuse(node, bits, f"at most {MOST_BITS} are compared")
        low, high = self._ends(node, element)
        few = self._reached(int(node.gather[element]), bits)
        if few is not None:
            return self._changes(node, element, low, bits, few)
        key = (node.first_wire, int(node.function[element]), low, high, bits)
        if key not in self._steps:
            self._steps[key] = self._changes(node, element, low, bits, np.arange(low, high + 1))
        return self._steps[key]

    def _changes(self, node: Lookup, element: int, low: int, bits: int, integers: Indices) -> StepFunction:
        phases = self._results(node, element, integers)
        changes = np.flatnonzero(np.abs(np.diff(phases)) > _SAME)
        if len(changes) > MOST_STEPS:
            self._refuse(node, bits, f"it has {len(changes)} steps, and at most {MOST_STEPS} are found by comparisons")
        thresholds = roundest(integers[changes], integers[changes + 1])
        return StepFunction(low, float(phases[0]), thresholds, np.diff(phases)[changes])

    def _results(self, node: Lookup, element: int, integers: Indices) -> Reals:
        """Phases of an element's results for integers that it may read."""
        assert self._graph.scale is not None
        step, origin = (float(each[node.function[element]]) for each in node.steps[0].parameters)
        x: Reals = integers.astype(np.float64) * step + origin
        y = apply_steps(node.steps, x, np.full(len(x), node.function[element]))
        phases: Reals = y * self._graph.scale[node.first_wire + element]
        return phases

    # --- the largest output ---

    def _winner(self) -> Indices:
        """Constants are real numbers: differences of them are rounded down, which changes no comparison."""
        graph = self._graph
        assert graph.scale is not None
        wires = graph.output.reshape(-1).tolist()
        unit = next(self._exact.of(node).unit for node in graph.linears if is_output(graph, node))
        bits, sums = round(-math.log2(unit)), [self._row(wire) for wire in wires]
        constants = np.array([self._bias(wire) * graph.scale[wire] / unit for wire in wires])
        leads = _rounded_down(constants[:, None] - constants[None, :])
        pairs = combinations(range(len(wires)), 2)
        variance = max(self._variance(PhaseSum.of([(sums[a], 1), (sums[b], -1)])) for a, b in pairs)
        contest = plan_contest(leads, bits, variance, self._params, self._p_fail_log2)
        if contest is None or contest.plan.bits != bits:
            raise NoParameterSetError(
                f"encrypted_argmax: scores of {bits - 1} bits and a sign are too fine to be compared under '{self._params.name}'; use fewer "
                "weight_bits or activation_bits, or let the client decrypt the scores"
            )
        rows = [each.row(halves(each.constant / unit)) for each in sums]
        return contest.output(self._builder, rows)

    def _bias(self, wire: int) -> float:
        node = self._graph.nodes[self._graph.owners()[wire]]
        assert isinstance(node, Linear)
        position, row = divmod(wire - node.first_wire, node.weights.shape[1])
        return float(node.bias[node.block[position], row])

    # --- values ---

    def _reached(self, wire: int, bits: int) -> Indices | None:
        """The integers that a row can be, where they are few."""
        if wire not in self._rows_reached:
            node = self._graph.nodes[self._graph.owners()[wire]]
            assert isinstance(node, Linear)
            position, row = divmod(wire - node.first_wire, node.weights.shape[1])
            weights = node.weights[node.block[position], row]
            unit = self._exact.of(node).unit
            factor = max(1, round(2.0**-bits / unit))
            terms = [
                (int(weights[k]) // factor, self._values(int(node.gather[position, k]), unit))
                for k in np.flatnonzero(weights).tolist()
                if node.gather[position, k] >= 0
            ]
            self._rows_reached[wire] = reachable_sums(terms)
        return self._rows_reached[wire]

    def _values(self, wire: int, unit: float) -> Indices | None:
        """Of the input, or of a look-up's results, in units."""
        graph = self._graph
        assert graph.lower is not None and graph.upper is not None and graph.scale is not None
        node = graph.nodes[graph.owners()[wire]]
        if isinstance(node, Lookup):
            element = wire - node.first_wire
            few = self._reached(int(node.gather[element]), self._bits(node, element))
            if few is not None:
                return np.unique(np.rint(self._results(node, element, few) / unit).astype(np.int64))
        return integers_between(*(float(end[wire] * graph.scale[wire]) / unit for end in (graph.lower, graph.upper)))

    def _refuse(self, node: Lookup, bits: int, why: str) -> NoReturn:
        raise NoParameterSetError(
            f"'{node.origin}' ({formula(node.steps[1:])}) reads an accumulator of {bits} bits, sign included, under '{self._params.name}'; {why}"
        )


def _rounded_down(x: Reals) -> Indices:
    """To whole numbers; what is one but for the last bits of a float counts as it."""
    nearest = np.rint(x)
    result: Indices = np.where(np.abs(x - nearest) < _WHOLE, nearest, np.floor(x)).astype(np.int64)
    return result
