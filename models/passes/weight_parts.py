"""Weights read in two parts, w = 16 w_1 + w_0: look-ups give 16 times their results beside these, and noise is brought |w_1| and |w_0| times."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from cloakwork.models.graph.affine import is_output
from cloakwork.models.graph.ir import Graph
from cloakwork.models.passes.step_functions import PhaseSum

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
