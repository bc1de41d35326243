"""Step functions of integers in the torus, and one look-up of the highest bits that computes one (wide_lookups)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from cloakwork.models.arrays import Indices, Reals
from cloakwork.models.graph.graph_builder import Row
from cloakwork.models.graph.ir import Graph
from cloakwork.models.graph.merge_equal import is_output
from cloakwork.models.graph.signs import SignPlan
from cloakwork.models.graph.steps import Step, directions

MOST_BITS: Final = 28  # of an accumulator


@dataclass(frozen=True)
class PhaseSum:
    """A phase as multiples of new wires' phases, and a constant. Multiples are whole, or halves where whatever reads them has even weights."""

    weights: dict[int, float]
    constant: float = 0.0

    @classmethod
    def of(cls, terms: Iterable[tuple[PhaseSum, float]]) -> PhaseSum:
        """Returns the terms times their weights, added up."""
        weights: dict[int, float] = {}
        constant = 0.0
        for term, times in terms:
            constant += times * term.constant
            for wire, weight in term.weights.items():
                weights[wire] = weights.get(wire, 0) + times * weight
        return cls({wire: weight for wire, weight in weights.items() if weight}, constant)

    @property
    def is_whole(self) -> bool:
        """Whether all multiples are."""
        return all(weight == round(weight) for weight in self.weights.values())

    def row(self, constant: float) -> Row:
        """Returns the row with another constant."""
        return Row({wire: round(weight) for wire, weight in self.weights.items()}, constant)


@dataclass(frozen=True, eq=False)
class StepFunction:
    """A step function of an integer in [low, high]: where it changes, and by how much, as phases.

    Attributes:
        thresholds: [steps], above low; [A >= t] is what changes.
    """

    low: int
    lowest: float  # f(low)
    thresholds: Indices
    heights: Reals

    def common_bits(self, bits: int) -> int:
        """Returns the most k below `bits` for which all thresholds leave the same rest modulo 2^k."""
        apart = int(np.bitwise_or.reduce(self.thresholds - self.thresholds[0]))
        return min(bits - 1, (apart & -apart).bit_length() - 1 if apart else bits - 1)

    def single(self) -> list[StepFunction]:
        """Splits it into steps of one threshold each; the first has f(low)."""
        return [
            StepFunction(self.low, self.lowest if j == 0 else 0.0, self.thresholds[j : j + 1], self.heights[j : j + 1])
            for j in range(len(self.thresholds))
        ]


@dataclass(frozen=True, eq=False)
class StepPart:
    """One look-up of an accumulator's highest bits, less `shift`, the bits below being gone."""

    plan: SignPlan
    row: Row
    table: Reals  # [2^w] phases
    constant: float  # phase to be added


def is_monotone(steps: Sequence[Step]) -> bool:
    """Whether it can be told that a chain never falls, or never rises."""
    return bool((directions(steps) != 0).all())


def around_changes(function: Callable[[Indices], Reals], low: int, high: int) -> Indices:
    """Returns integers on both sides of every change of a monotone function, and both ends, in order: by bisection."""
    below, above = np.array([low]), np.array([high])
    sides = [below, above]
    while len(below):
        changed = function(below) != function(above)
        below, above = below[changed], above[changed]
        near = above - below == 1
        sides += [below[near], above[near]]
        below, above = below[~near], above[~near]
        middle = (below + above) // 2
        below, above = np.concatenate([below, middle]), np.concatenate([middle, above])
    return np.unique(np.concatenate(sides))


def halves(constant: float) -> float:
    """Returns a whole or a half: wires of two values are half their distance from the middle."""
    return round(2 * constant) / 2


def negated(row: Row) -> Row:
    return Row({wire: -weight for wire, weight in row.weights.items()}, -row.constant)


def roundest(below: Indices, up_to: Indices) -> Indices:
    """Finds the integers above `below` and up to `up_to` those with most zeros at their end."""
    best = up_to.copy()
    for k in range(1, MOST_BITS):
        rounded = up_to >> k << k
        best = np.where(rounded > below, rounded, best)
    return best


def part_of(plan: SignPlan, steps: StepFunction, row: PhaseSum) -> StepPart:
    """Returns the part: half of the circle is enough: where the integer reaches beyond, the function there is that at its lowest end negated,
    around its middle."""
    block = 1 << steps.common_bits(plan.bits)
    first = int(steps.thresholds[0])
    shift = first - -(-(first - steps.low) // block) * block
    index = shift + (np.arange(1 << (plan.windows[-1] - 1)) << plan.place)
    middle = float(steps.heights.sum()) / 2
    half = (index[:, None] >= steps.thresholds) @ steps.heights - middle
    unit = 2.0**-plan.bits
    return StepPart(
        plan,
        row.row(halves(row.constant / unit) - shift),
        np.concatenate([half, -half]),
        steps.lowest + middle,
    )


# Weights read in two parts, w = 16 w_1 + w_0: look-ups give 16 times their results beside these, and noise is brought |w_1| and |w_0| times.

PART: Final = 16


def large_weights(graph: Graph) -> frozenset[int]:
    """Returns wires that accumulators read with weights of more than a part."""
    wires: set[int] = set()
    for node in graph.linears:
        if not is_output(graph, node):
            large = (np.abs(node.weights).max(axis=1) > PART)[node.block]
            wires.update(node.gather[large & (node.gather >= 0)].tolist())
    return frozenset(wires)


def weighted(
    results: Mapping[int, PhaseSum], multiples: Mapping[int, PhaseSum], wire: int, weight: int
) -> list[tuple[PhaseSum, int]]:
    """Lists what adds up to a result times a weight. Args: multiples: `PART` times the results that have them."""
    if wire not in multiples:
        return [(results[wire], weight)]
    times = round(weight / PART)
    return [(multiples[wire], times), (results[wire], weight - times * PART)]
