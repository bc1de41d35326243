"""The least noise of what look-ups of an exact graph add up under a set: what is refused by it is refused before any chain is made (wide_lookups)."""

from __future__ import annotations

import math

import numpy as np

from cloakwork.fhe_core import noise
from cloakwork.fhe_core.parameters import ParameterSet
from cloakwork.models.arrays import Reals
from cloakwork.models.graph.ir import Graph, Input, Linear, Lookup, wires
from cloakwork.models.passes.element_steps import refused
from cloakwork.models.passes.exact_graph import ExactGraph, is_extreme
from cloakwork.models.passes.gates import is_gate
from cloakwork.models.passes.weight_parts import PART


def check_floor(exact: ExactGraph, params: ParameterSet, p_fail_log2: float, in_parts: bool) -> None:
    """Checks the noise floor: each result counts as one look-up's, those of extremes and choices, which may pass sums on, as none.

    Args:
        exact: of whole units.
        in_parts: see `widened`.

    Raises:
        NoParameterSetError: for a look-up of which not one bit can be read.
    """
    graph = exact.graph
    assert graph.scale is not None
    owner, brought = graph.owners(), _brought(graph, params)
    behind, offset = noise.lookup_variance(params, 0.0), noise.lookup_offset(params)
    for node in graph.lookups:
        if is_gate(node) or is_extreme(node) or not node.is_exact:
            continue
        spacing = node.spacing * graph.scale[node.gather]
        for position in np.unique(owner[node.gather]).tolist():
            linear = graph.nodes[position]
            assert isinstance(linear, Linear)
            inside = np.flatnonzero(owner[node.gather] == position)
            variance, norms = _variances(linear, brought, in_parts)
            read = node.gather[inside] - linear.first_wire
            # The lowest bit is read with half a turn between its values, the integers' distance being `spacing`.
            relative = variance[read] / np.square(spacing[inside])
            worst = int(np.argmax(relative))
            if noise.p_fail_log2(0.25, behind + float(relative[worst]) / 4, offset) > p_fail_log2:
                bits = round(-math.log2(spacing[inside[worst]]))
                why = (
                    f"the noise of what it adds up, under a weight norm of {norms[read[worst]]:.0f}, is too much for one bit of it: "
                    "make the layer narrower, or quantise its weights or what it reads to fewer bits"
                )
                raise refused(node, bits, params, why)


def _brought(graph: Graph, params: ParameterSet) -> Reals:
    """Returns [wires + 1]: the least variance of each wire that rows read; the last is the zero wire's."""
    assert graph.lower is not None and graph.upper is not None
    variance = np.zeros(graph.wire_count + 1)
    for node in graph.nodes:
        if isinstance(node, Input):
            variance[wires(node)] = noise.fresh_variance(params)
        elif isinstance(node, Lookup) and not (is_gate(node) or is_extreme(node)):
            node_wires = wires(node)
            varies = graph.upper[node_wires] > graph.lower[node_wires]
            variance[node_wires] = np.where(varies, noise.blind_rotation_variance(params), 0.0)
    return variance


def _variances(node: Linear, brought: Reals, in_parts: bool) -> tuple[Reals, Reals]:
    """Returns [rows] of all positions: variance, and norm of the weights."""
    weights = node.weights.astype(np.float64)
    squares = np.square(weights)
    norms = np.sqrt(squares.sum(axis=2))
    if in_parts:
        times = np.rint(weights / PART)
        squares = np.minimum(squares, np.square(times) + np.square(weights - times * PART))
    variance = np.empty((len(node.gather), weights.shape[1]))
    for block in range(len(weights)):
        chosen = node.block == block
        variance[chosen] = brought[node.gather[chosen]] @ squares[block].T
    return variance.reshape(-1), norms[node.block].reshape(-1)
