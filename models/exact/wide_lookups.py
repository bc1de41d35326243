"""Look-ups of an exact graph on accumulators of more values than a look-up tells apart: bits are taken away from below (graph/signs.py).

What such a look-up computes has to be a step function with few steps: a comparison, a choice between constants by one, a quantiser to few bits.
With thresholds t_j and heights h_j,

    f(A) = f(lowest) + sum_j h_j [A >= t_j]

each step is a sign of A - t_j, the results of which are added up by whatever reads f; or, where all thresholds leave the same rest modulo 2^k, f is a
function of the bits of A - t_1 from k on, and one look-up of these gives it.

A function of many steps that are alike, a quantiser to 8 bits above all, is searched for its digits (digit_search), where that takes fewer look-ups.

Extremes, ReLUs of integers among them, are put together of bits that are read with the sign, choices by a bit of such that are read with the bit.

Approximate look-ups stay what they are: nobody asks for the integers that they read.

An accumulator in units of 2^-B of the torus is known modulo 2^B: exact_integers has powers of two for that (`ExactOptions.whole`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from typing import Final

import numpy as np

from cloakwork.fhe_core import noise
from cloakwork.fhe_core.parameters import ParameterSet
from cloakwork.models.arrays import Indices, Reals
from cloakwork.models.criteria.choose_set import plan_contest, plan_highest_bits
from cloakwork.models.errors import NoParameterSetError
from cloakwork.models.exact.digit_lookups import search_digits
from cloakwork.models.exact.digit_search import DigitTables, Noise, digit_tables
from cloakwork.models.exact.element_steps import ElementSteps, refused
from cloakwork.models.exact.exact_graph import ExactGraph, bounds_of, is_extreme
from cloakwork.models.exact.gates import Choice, choice_of, chosen, is_gate
from cloakwork.models.exact.step_functions import (
    PART,
    PhaseSum,
    StepFunction,
    StepPart,
    halves,
    large_weights,
    negated,
    part_of,
    weighted,
)
from cloakwork.models.graph.graph_builder import GraphBuilder, Row, WireEncoding
from cloakwork.models.graph.ir import ZERO_WIRE, Graph, Input, Linear, Lookup
from cloakwork.models.graph.merge_equal import is_output
from cloakwork.models.graph.signs import SignPlan, excess_parts, highest_bits

MOST_STEPS: Final = 64  # of a look-up, each with a sign of its own
_WHOLE: Final = 1e-6
_SPARSE: Final = 16  # integers of a range for each one that is read


def widened(
    exact: ExactGraph, params: ParameterSet, p_fail_log2: float, winner: bool = False, in_parts: bool = False
) -> Graph:
    """Returns the graph with look-ups of few steps where one look-up is too noisy.

    Args:
        exact: of whole units; `compared` ones for a winner.
        p_fail_log2: of each look-up.
        winner: the output is the number of the largest output, the first of equal ones.
        in_parts: large weights are read so (weight_parts).

    Raises:
        NoParameterSetError: a look-up that has too many steps, or an accumulator too wide or noisy.
    """
    return _Widening(exact, params, p_fail_log2, in_parts).run(winner)


class _Widening:
    def __init__(self, exact: ExactGraph, params: ParameterSet, p_fail_log2: float, in_parts: bool) -> None:
        self._graph, self._params, self._p_fail_log2 = exact.graph, params, p_fail_log2
        self._builder = GraphBuilder()
        self._sums: dict[int, PhaseSum] = {ZERO_WIRE: PhaseSum({})}  # of old wires that linear nodes read
        self._rows: dict[int, PhaseSum] = {}  # of old wires of linear nodes
        self._multiples: dict[int, PhaseSum] = {}  # `PART` times
        self._read_in_parts = large_weights(exact.graph) if in_parts else frozenset()
        self._moved: dict[int, int] = {}  # old wires of linear nodes -> new ones
        self._behind = noise.lookup_variance(params, 0.0)
        self._exact = exact
        self._elements = ElementSteps(exact, params)
        self._plans: dict[tuple[int, int, float], SignPlan | None] = {}
        self._found: dict[tuple[float, ...], DigitTables | None] = {}
        self._room: dict[float, Noise] = {}

    def run(self, winner: bool) -> Graph:
        graph = self._graph
        for node in graph.nodes:
            if isinstance(node, Input):
                input_wires = self._builder.add(node, self._facts(np.arange(node.size)))
                self._sums |= {wire: PhaseSum({wire: 1}) for wire in input_wires.tolist()}
            elif isinstance(node, Lookup):
                self._lookup(node)
        if winner:
            return replace(self._builder.graph(self._winner()), inputs=graph.inputs, unused=graph.unused)
        output = graph.output.reshape(-1).tolist()
        self._linear(output)
        moved = np.array([self._moved[wire] for wire in output], dtype=np.int64)
        widened_graph = self._builder.graph(moved.reshape(graph.output.shape))
        widened_graph = replace(widened_graph, inputs=graph.inputs, outputs=graph.outputs, unused=graph.unused)
        return replace(widened_graph, client_steps=graph.client_steps)

    def _facts(self, old: Indices) -> WireEncoding:
        graph = self._graph
        assert graph.scale is not None and graph.offset is not None
        assert graph.lower is not None and graph.upper is not None
        return WireEncoding(graph.scale[old], graph.lower[old], graph.upper[old], graph.offset[old])

    # --- rows ---

    def _row(self, wire: int) -> PhaseSum:
        """Returns what an old wire of a linear node adds up, without its bias; its sources are known by then."""
        if wire not in self._rows:
            node = self._graph.nodes[self._graph.owners()[wire]]
            assert isinstance(node, Linear)
            position, row = divmod(wire - node.first_wire, node.weights.shape[1])
            self._rows[wire] = self._sum(node, position, node.weights[node.block[position], row])
        return self._rows[wire]

    def _sum(self, node: Linear, position: int, weights: Indices) -> PhaseSum:
        """Returns the sum of what a position of a node reads. NoParameterSetError for multiples that are not whole."""
        total = PhaseSum.of(
            term
            for column in np.flatnonzero(weights).tolist()
            for term in weighted(self._sums, self._multiples, int(node.gather[position, column]), int(weights[column]))
        )
        if not total.is_whole:
            raise NoParameterSetError(
                f"'{node.origin}': adds the extreme of wide values to others of another scale; expected Max and Min whose results meet their operands"
            )
        return total

    def _variance(self, row: PhaseSum) -> float:
        """Returns the variance of a row, as part of the torus, before its look-up."""
        fresh, rotated = noise.fresh_variance(self._params), noise.blind_rotation_variance(self._params)
        inputs = self._graph.input.size
        return sum(weight**2 * (fresh if wire < inputs else rotated) for wire, weight in row.weights.items())

    def _linear(self, old: Sequence[int]) -> None:
        """Adds rows that are read as they are and not there yet."""
        graph, missing = self._graph, [wire for wire in dict.fromkeys(old) if wire not in self._moved]
        assert graph.scale is not None
        owner = graph.owners()
        for position in dict.fromkeys(int(owner[wire]) for wire in missing):
            node = graph.nodes[position]
            assert isinstance(node, Linear)
            node_wires = [wire for wire in missing if owner[wire] == position]
            sums = [self._row(wire) for wire in node_wires]
            rows = [
                each.row(float(self._bias(wire) + each.constant / graph.scale[wire]))
                for wire, each in zip(node_wires, sums, strict=True)
            ]
            new_wires = self._builder.linear(rows, self._facts(np.array(node_wires)), node.origin)
            self._moved |= dict(zip(node_wires, new_wires.tolist(), strict=True))

    # --- look-ups ---

    def _lookup(self, node: Lookup) -> None:
        assert self._graph.scale is not None
        if self._exact.apart and is_gate(node):
            self._choices(node)
            return
        if not node.is_exact:
            self._approximate(node)
            return
        direct: list[int] = []
        parts: list[tuple[int, StepPart]] = []
        searches: list[tuple[int, DigitTables]] = []
        extremes: list[tuple[int, PhaseSum]] = []
        for element, wire in enumerate(node.gather.tolist()):
            margin = float(node.spacing[element] * self._graph.scale[wire]) / 2
            row = self._row(wire)
            variance = self._variance(row) + self._behind
            if noise.p_fail_log2(margin, variance, noise.lookup_offset(self._params)) <= self._p_fail_log2:
                direct.append(element)
            elif is_extreme(node):
                self._sums[node.first_wire + element] = PhaseSum({})
                extremes.append((element, row))
            else:
                self._sums[node.first_wire + element] = PhaseSum({})
                way = self._parts(node, element, row)
                if isinstance(way, DigitTables):
                    searches.append((element, way))
                else:
                    parts += [(element, part) for part in way]
        if direct:
            self._direct(node, np.array(direct, dtype=np.int64))
        for plan in dict.fromkeys(part.plan for _, part in parts):
            alike = [each for each in parts if each[1].plan == plan]
            self._in_steps(node, alike, self._sums)
            if large := [each for each in alike if node.first_wire + each[0] in self._read_in_parts]:
                self._in_steps(node, large, self._multiples, PART)
        for digits in dict.fromkeys(tables.plan for _, tables in searches):
            same_plan = [each for each in searches if each[1].plan == digits]
            self._by_digits(node, same_plan, self._sums)
            if wide := [each for each in same_plan if node.first_wire + each[0] in self._read_in_parts]:
                self._by_digits(node, wide, self._multiples, PART)
        if extremes:
            self._extremes(node, extremes)

    def _approximate(self, node: Lookup) -> None:
        elements = np.arange(len(node.gather))
        self._direct(node, elements)
        if large := [each for each in elements.tolist() if node.first_wire + each in self._read_in_parts]:
            self._multiples |= self._looked_up(node, np.array(large, dtype=np.int64), PART)

    def _direct(self, node: Lookup, elements: Indices) -> None:
        self._sums |= self._looked_up(node, elements)

    def _looked_up(self, node: Lookup, elements: Indices, times: int = 1) -> dict[int, PhaseSum]:
        """Looks up elements once each: results, times a number, by old wires."""
        gather = node.gather[elements].tolist()
        self._linear(gather)
        moved = np.array([self._moved[wire] for wire in gather], dtype=np.int64)
        old = node.first_wire + elements
        facts = self._facts(old)
        facts = replace(facts, scale=times * np.asarray(facts.scale))
        new_wires = self._builder.add(replace(node, gather=moved, function=node.function[elements]), facts)
        return {o: PhaseSum({new: 1}) for o, new in zip(old.tolist(), new_wires.tolist(), strict=True)}

    def _in_steps(
        self, node: Lookup, parts: Sequence[tuple[int, StepPart]], results: dict[int, PhaseSum], times: int = 1
    ) -> None:
        """Adds look-ups of one plan: each is a term of its element. Args: results: to be added to; times: that they are multiplied by."""
        assert self._graph.scale is not None
        old = np.array([node.first_wire + element for element, _ in parts], dtype=np.int64)
        scale = self._graph.scale[old]
        tables = np.stack([part.table for _, part in parts]) / scale[:, None]
        reach = np.abs(tables).max(axis=1)
        facts, rows = WireEncoding(times * scale, -reach, reach), [part.row for _, part in parts]
        new_wires = highest_bits(self._builder, rows, parts[0][1].plan, tables, facts, node.origin)
        for wire, new, (_, part) in zip(old.tolist(), new_wires.tolist(), parts, strict=True):
            term = PhaseSum({new: 1}, times * part.constant)
            results[wire] = PhaseSum.of([(results.get(wire, PhaseSum({})), 1), (term, 1)])

    def _by_digits(
        self, node: Lookup, searches: Sequence[tuple[int, DigitTables]], results: dict[int, PhaseSum], times: int = 1
    ) -> None:
        """Adds searches of one plan: each sums up to its element. Args: as of `_in_steps`; equal look-ups are merged (merge_equal)."""
        assert self._graph.scale is not None
        elements = [element for element, _ in searches]
        old = np.array([node.first_wire + element for element in elements], dtype=np.int64)
        scale, unit = self._graph.scale[old], 2.0 ** -searches[0][1].plan.bits
        sums = [self._row(int(node.gather[element])) for element in elements]
        steps = [self._elements.whole(node, element) for element in elements]
        heights = np.array([float(each.heights.mean()) for each in steps])
        reach = np.abs(heights / scale) * np.array([len(each.thresholds) for each in steps])
        integers = [row.row(halves(row.constant / unit)) for row in sums]
        tables = [table for _, table in searches]
        lookups, constant = search_digits(
            self._builder, integers, tables, heights / scale, WireEncoding(times * scale, -reach, reach), node.origin
        )
        for number, (wire, each) in enumerate(zip(old.tolist(), steps, strict=True)):
            terms = [(PhaseSum({int(wires[number]): 1}), 1.0) for wires in lookups]
            added = each.lowest + float(constant[number] * scale[number])
            results[wire] = PhaseSum.of([*terms, (PhaseSum({}, times * added), 1)])

    def _extremes(self, node: Lookup, elements: Sequence[tuple[int, PhaseSum]]) -> None:
        """max(x, c) = c + e, min(x, c) = x - e with the excess e of x over c: half of x - c itself, and its bits with its sign, halved.

        Apart: of bits alone, min(x, c) = c - e with that of c over x.
        """
        graph = self._graph
        assert graph.scale is not None
        groups: dict[tuple[SignPlan, float], list[tuple[int, Row]]] = {}
        for element, row in elements:
            bits, wire = self._elements.bits(node, element), node.first_wire + element
            step, origin = (float(each[node.function[element]]) for each in node.steps[0].parameters)
            unit, added = float(graph.scale[wire] * step), round(origin / step)
            bound = round(float(bounds_of(node)[element]) / step)
            low, high = (integer + added for integer in self._elements.ends(node, element))
            least = node.steps[-1].operator == "Min"
            itself = PhaseSum.of([(row, unit * 2.0**bits), (PhaseSum({}, added * unit), 1)])
            if low >= bound or high <= bound:
                passes = (low >= bound) != least
                self._sums[wire] = itself if passes else PhaseSum({}, bound * unit)
                if not (passes and self._exact.apart and not itself.is_whole):
                    continue
                bound = high if least else low  # x = low + max(x - low, 0), at another scale
            plan = plan_highest_bits(bits, self._variance(row), self._params, self._p_fail_log2, spare=1)
            if plan is None:
                raise refused(node, bits, self._params, "its bits are too many for the noise of what it adds up")
            integer = row.row(halves(row.constant * 2.0**bits) + added - bound)
            if self._exact.apart:
                self._sums[wire] = PhaseSum({}, bound * unit)
                integer = negated(integer) if least else integer
            else:  # c + (x - c) / 2, or x - (x - c) / 2: both are half of the sum.
                self._sums[wire] = PhaseSum.of([(itself, 0.5), (PhaseSum({}, bound * unit), 0.5)])
            groups.setdefault((plan, -unit if least else unit), []).append((wire, integer))
        for (plan, unit), alike in groups.items():
            parts, constant = excess_parts(
                self._builder, [row for _, row in alike], plan, unit, node.origin, self._exact.apart
            )
            for number, (wire, _) in enumerate(alike):
                terms = [(PhaseSum({int(wires[number]): 1}), 1) for wires in parts]
                self._sums[wire] = PhaseSum.of([(self._sums[wire], 1), *terms, (PhaseSum({}, constant), 1)])

    def _choices(self, node: Lookup) -> None:
        """Adds c d of bits c and differences d, which one row adds up far apart."""
        groups: dict[tuple[SignPlan, int, float], list[tuple[int, Choice]]] = {}
        for element in range(len(node.gather)):
            bits, wire = self._elements.bits(node, element), node.first_wire + element
            choice = choice_of(self._exact, node, element, bits, self._sum)
            variance = max(self._variance(choice.difference), self._variance(choice.condition))
            plan = plan_highest_bits(bits, variance, self._params, self._p_fail_log2, spare=1)
            if plan is None:
                raise refused(
                    node,
                    bits,
                    self._params,
                    "the bits of what it chooses are too many for the noise of what it adds up",
                )
            groups.setdefault((plan, choice.low, choice.unit), []).append((wire, choice))
        for (plan, _, _), alike in groups.items():
            terms = chosen(self._builder, [each for _, each in alike], plan, node.origin)
            for (wire, _), parts in zip(alike, terms, strict=True):
                self._sums[wire] = PhaseSum(dict.fromkeys(parts, 1))

    def _parts(self, node: Lookup, element: int, row: PhaseSum) -> list[StepPart] | DigitTables:
        """The cheapest way to what an element computes. NoParameterSetError where there is none."""
        assert self._graph.scale is not None
        bits = self._elements.bits(node, element)
        steps, variance = self._elements.of(node, element), self._variance(row)
        if not len(steps.thresholds):
            self._sums[node.first_wire + element] = PhaseSum({}, steps.lowest)
            return []
        digits = self._digits(node, element, variance)
        parts, count = self._comparisons(steps, bits, variance, row)
        if digits is not None and not 0 < count <= digits.plan.lookups:
            return digits
        if parts is not None:
            return parts
        if len(steps.thresholds) > MOST_STEPS:
            why = f"it has {len(steps.thresholds)} steps, and at most {MOST_STEPS} that are not alike are found by comparisons"
            raise refused(node, bits, self._params, why)
        raise refused(node, bits, self._params, f"at most {self._most_bits(bits, variance)} fit")

    def _comparisons(
        self, steps: StepFunction, bits: int, variance: float, row: PhaseSum
    ) -> tuple[list[StepPart] | None, int]:
        """Returns a sign for each step, or one look-up of the highest bits; and how many look-ups that takes."""
        together, alone = (self._planned(bits, variance, kept) for kept in (bits - steps.common_bits(bits), 1))
        if alone is None or len(steps.thresholds) > MOST_STEPS:
            return None, 0
        if together is not None and together.lookups <= len(steps.thresholds) * alone.lookups:
            return [part_of(together, steps, row)], together.lookups
        return [part_of(alone, each, row) for each in steps.single()], len(steps.thresholds) * alone.lookups

    def _digits(self, node: Lookup, element: int, variance: float) -> DigitTables | None:
        """Returns a search for the step that an element has passed, once for like rows."""
        bits, (low, high) = self._elements.bits(node, element), self._elements.ends(node, element)
        few = self._elements.few(node, element)
        if few is not None and len(few) * _SPARSE <= high - low:
            return None
        rounded = _rounded_up(variance)
        key = (node.first_wire, int(node.function[element]), low, high, bits, rounded)
        if key not in self._found:
            room = self._room.setdefault(rounded, Noise(self._params, rounded, self._p_fail_log2))
            self._found[key] = digit_tables(self._elements.whole(node, element), high, bits, room)
        return self._found[key]

    def _planned(self, bits: int, variance: float, kept: int) -> SignPlan | None:
        """As plan_highest_bits has it, once for like rows."""
        rounded = _rounded_up(variance)
        key = (bits, kept, rounded)
        if key not in self._plans:
            self._plans[key] = plan_highest_bits(bits, rounded, self._params, self._p_fail_log2, kept)
        return self._plans[key]

    def _most_bits(self, bits: int, variance: float) -> int:
        return next((b for b in range(bits - 1, 0, -1) if self._planned(b, variance, 1) is not None), 0)

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
                f"tell='labels': scores of {bits - 1} bits and a sign are too fine to be compared under '{self._params.name}'; use fewer "
                "weight_bits or activation_bits, or let the client decrypt the scores"
            )
        rows = [each.row(halves(each.constant / unit)) for each in sums]
        return contest.output(self._builder, rows)

    def _bias(self, wire: int) -> float:
        node = self._graph.nodes[self._graph.owners()[wire]]
        assert isinstance(node, Linear)
        position, row = divmod(wire - node.first_wire, node.weights.shape[1])
        return float(node.bias[node.block[position], row])


def _rounded_up(variance: float) -> float:
    """To a quarter of a bit, so that like rows have one plan."""
    result: float = 2.0 ** (math.ceil(4 * math.log2(max(variance, 1e-300))) / 4)
    return result


def _rounded_down(x: Reals) -> Indices:
    """To whole numbers; what is one but for the last bits of a float counts as it."""
    nearest = np.rint(x)
    result: Indices = np.where(np.abs(x - nearest) < _WHOLE, nearest, np.floor(x)).astype(np.int64)
    return result
