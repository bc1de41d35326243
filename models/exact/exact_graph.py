"""The graph of the profile `exact`, and its options (exact_integers)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from cloakwork.models.arrays import Reals
from cloakwork.models.graph.ir import Graph, Linear, Lookup


@dataclass(frozen=True)
class ExactOptions:
    """Args:
    weight_bits, activation_bits: of weights, and of results of look-ups, that are not integers already.
    accumulator_bits: accumulators with more values are rounded to this many bits, and integer weights of more to weight_bits; None: they are
        refused when no set resolves them.
    approximate: noise limits of layers that need not be exact, by the names of linear nodes.
    given: whether the model says where it rounds.
    whole: units are powers of two, so that bits can be taken from accumulators (exact/wide_lookups.py).
    finer: bits by which whole units of wide sums of look-ups are finer than they have to be: more room for what is read beside them. None: sums
        may take all of their half of the torus.
    compared: outputs have one step, and room for their differences; so many times the step that weight_bits ask for. 0: they are not compared.
    integers: the input's values are those of its grid, so that ReLUs, maxima and choices of rows of integers are not rounded.
    apart: gates have room for what they choose, and the bit is read by itself (exact/gates.py); with `whole`.
    """

    weight_bits: int
    activation_bits: int
    accumulator_bits: int | None = None
    approximate: Mapping[str, float] = field(default_factory=dict)
    given: bool = False
    whole: bool = False
    finer: int | None = None
    compared: int = 0
    integers: bool = False
    apart: bool = False


@dataclass(frozen=True)
class Accumulators:
    """Accumulators of a linear node: how many values there are, and how far they lie apart; phases are fractions of the torus."""

    unit: float  # phase between values of the wires that it reads
    margin: float  # half of the phase between what its look-ups tell apart
    values: int
    kept: int  # of them that its look-ups tell apart
    is_calibrated: bool  # the range is calibration's, narrower than interval arithmetic's


@dataclass(frozen=True, eq=False)
class ExactGraph:
    graph: Graph
    layers: Mapping[int, Accumulators]  # by first wire
    kept: tuple[
        str, ...
    ] = ()  # origins of look-ups whose results are not rounded because they are integers (`ExactOptions.integers`)
    rounded: tuple[
        str, ...
    ] = ()  # of those whose results are, though the model says where it rounds (`ExactOptions.given`)
    apart: bool = False  # whether gates read their bits by themselves

    def of(self, node: Linear) -> Accumulators:
        return self.layers[node.first_wire]


def is_extreme(node: Lookup) -> bool:
    """Whether a node is max(x, 0) of an extreme of two values, or that of one and a constant."""
    steps = [step for step in node.steps if step.operator != "Snap"]
    return len(steps) == 1 and (
        steps[0].operator == "Excess" or (steps[0].operator in ("Max", "Min") and len(steps[0].reads) == 1)
    )


def is_excess(node: Lookup) -> bool:
    """Whether a node is ReLU of a model, or what makes a maximum of several in a pool: the excess over 0."""
    return len(node.steps) == 1 and node.steps[0].operator == "Relu"


def bounds_of(node: Lookup) -> Reals:
    """Returns [E]: of extremes with constants; 0 of others."""
    parameters = node.steps[-1].parameters if is_extreme(node) else ()
    return parameters[0][node.function] if parameters else np.zeros(len(node.function))
