"""Leaves the quantisers at the model's ends to the client: they cost nothing outside of encryption, and a bootstrap for each number inside."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from cloakwork.models.client_steps import Quantise
from cloakwork.models.graph.affine import is_output, readers
from cloakwork.models.graph.ir import Graph, Lookup, Node, Product, source_nodes
from cloakwork.models.graph.steps import Step
from cloakwork.models.passes.leave_functions import leave_functions


def quantise_input(graph: Graph) -> tuple[Graph, Quantise | None]:
    """Returns the graph on values that the client has rounded; None when the model does not round its input, or not in one way."""
    using = readers(graph, graph.input)
    if is_output(graph, graph.input) or not using:
        return graph, None
    return without_quantiser(graph, using)


def without_quantiser(graph: Graph, using: list[Node]) -> tuple[Graph, Quantise | None]:
    """Returns the graph without the quantiser that all of these nodes are, which the client applies; None where they are not one."""
    quantisers = {uniform(node, "QuantizeLinear") for node in using}
    quantiser = quantisers.pop()
    if quantisers or quantiser is None:
        return graph, None
    scale, zero, low, high = quantiser
    graph = with_affine(graph, using, 1 / scale, zero)
    return graph, Quantise(scale, (low - zero) * scale, (high - zero) * scale)


def quantise_output(graph: Graph, exact: bool) -> tuple[Graph, Quantise | None]:
    """Returns the graph without the quantiser (and dequantiser) that its output comes from, and what the client does instead.

    Other functions of single numbers at the end are left to the client too (leave_functions), as are the quantisers of several outputs and those
    that other functions come before or after. Where the client cannot have such a function, its quantiser stays with it in exact programs: on no
    grid, its results would be rounded to another one first.
    """
    if graph.outputs:
        return leave_functions(graph), None
    unquantised, quantiser = _without_quantiser(graph)
    if quantiser is not None and _is_linear(unquantised, unquantised.output):
        return unquantised, quantiser
    left = leave_functions(graph)
    return (left, None) if exact or left is not graph or quantiser is None else (unquantised, quantiser)


def _without_quantiser(graph: Graph) -> tuple[Graph, Quantise | None]:
    last = _only_owner(graph, graph.output)
    if last is None or graph.client_steps:
        return graph, None
    scale_out, offset = uniform(last, "Affine") or (1.0, 0.0)
    inner = last if (scale_out, offset) == (1.0, 0.0) else _only_owner(graph, last.gather)
    quantiser = None if inner is None else uniform(inner, "QuantizeLinear")
    if inner is None or quantiser is None or scale_out <= 0:
        return graph, None
    others = [node for node in readers(graph, inner) if node is not last]
    if others or (inner is not last and is_output(graph, inner)):
        return graph, None
    scale, zero, low, high = quantiser
    graph = with_affine(graph, [inner], 1 / scale, zero)
    return graph, Quantise(scale_out, low * scale_out + offset, high * scale_out + offset)


def _is_linear(graph: Graph, gather: np.ndarray) -> bool:
    """Whether wires come from linear nodes or the input, with nothing but affine functions after them."""
    for position in source_nodes(graph, gather):
        node = graph.nodes[position]
        if isinstance(node, Product) or (isinstance(node, Lookup) and not _is_affine(graph, node)):
            return False
    return True


def _is_affine(graph: Graph, node: Lookup) -> bool:
    return all(step.operator == "Affine" for step in node.steps) and _is_linear(graph, node.gather)


def _only_owner(graph: Graph, gather: np.ndarray) -> Node | None:
    owners = np.unique(graph.owners()[gather])
    return graph.nodes[int(owners[0])] if len(owners) == 1 and owners[0] >= 0 else None


def uniform(node: Node, operator: str) -> tuple[float, ...] | None:
    """Returns the parameters of a look-up that is this one step, as imported, with the same parameters for every number."""
    if not isinstance(node, Lookup) or len(node.steps) != 1 or node.steps[0].operator != operator:
        return None
    used = [np.unique(parameter[node.function]) for parameter in node.steps[0].parameters]
    return tuple(float(values[0]) for values in used) if all(len(values) == 1 for values in used) else None


def with_affine(graph: Graph, changed: list[Node], scale: float, offset: float) -> Graph:
    steps = (Step("Affine", (np.array([scale]), np.array([offset]))),)
    nodes = [
        replace(node, steps=steps, function=np.zeros_like(node.function))
        if isinstance(node, Lookup) and any(node is other for other in changed)
        else node
        for node in graph.nodes
    ]
    return replace(graph, nodes=tuple(nodes))
