"""Leaves the quantisers at the model's ends to the client: they cost nothing outside of encryption, and a bootstrap for each number inside."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from cloakwork.models.arrays import Indices
from cloakwork.models.client_steps import Quantise
from cloakwork.models.graph.ir import Graph, Lookup, Node, Product, places, source_nodes, without_dead_nodes
from cloakwork.models.graph.last_steps import Functions, too_much
from cloakwork.models.graph.merge_equal import is_output, readers
from cloakwork.models.graph.steps import Step, is_chain, never_negative
from cloakwork.models.passes.wire_functions import CONSTANT, WireFunctions
from cloakwork.models.passes.wire_programs import WirePrograms

# Leaves functions of single numbers at the model's end to the client: a Sigmoid, a Tanh, what is compared with a threshold.
#
# They cost nothing after decryption, and the noise of a look-up less. A function moves where it is short and has few parameters, so that nothing of
# the model's weights goes with it, and all of the output's move or none. Where that is too much, because a scale for each class comes before, say,
# what comes last and is the same for all numbers moves alone.


def leave_functions(graph: Graph) -> Graph:
    """Moves functions at the end to the client. Args: graph: as imported. Of several outputs each has functions of its own."""
    functions = WireFunctions(graph)
    if not graph.outputs:
        left = _left(functions, graph.output)
        if left is None:
            return graph
        return without_dead_nodes(replace(graph, output=left[0], client_steps=(left[1], *graph.client_steps)))
    output, parts = graph.output.copy(), list(graph.outputs)
    for i, (part, place) in enumerate(zip(graph.outputs, places(graph.outputs), strict=True)):
        left = _left(functions, graph.output[place].reshape(part.shape))
        if left is not None:
            output[place] = left[0].reshape(-1)
            parts[i] = replace(part, client_steps=(left[1], *part.client_steps))
    return without_dead_nodes(replace(graph, output=output, outputs=tuple(parts)))


def _left(functions: WireFunctions, output_wires: Indices) -> tuple[Indices, Functions] | None:
    """Returns what the client gets for each wire of an output, and what it does with it; None where there is nothing to leave, or too much."""
    output = np.unique(output_wires.reshape(-1))
    varying = output[functions.source[output] != CONSTANT]
    is_source = functions.own_source[varying] == varying
    moved = varying[~is_source & (functions.affine[varying] != functions.own_source[varying])]
    if not len(moved):
        return None
    read = np.arange(len(functions.source), dtype=np.int64)
    number = np.zeros(len(read), dtype=np.int64)
    numbers: dict[tuple[object, ...], int] = {(): 0}
    programs: list[tuple[Step, ...]] = [()]
    for group in _alike(functions, moved):
        program = WirePrograms(functions, group)
        steps, function = program.steps()
        read[group] = program.base
        for i in np.unique(function).tolist():
            one = _within_domain(tuple(step.select(np.array([i])) for step in steps))
            key = tuple(
                (step.operator, step.reads, *(np.asarray(p[0]).tobytes() for p in step.parameters)) for step in one
            )
            if key not in numbers:
                numbers[key] = len(programs)
                programs.append(one)
            number[group[function == i]] = numbers[key]
        if too_much(programs) is not None:
            return _common_end(functions.graph, output_wires)
    read[-1] = -1
    which = number[output_wires]
    if not (which == 0).any():
        programs, which = programs[1:], which - 1
    return read[output_wires], Functions(tuple(programs), which)


def _common_end(graph: Graph, output_wires: Indices) -> tuple[Indices, Functions] | None:
    """Returns the same with the last look-ups that are one function of all numbers; None where these are affine, or none."""
    owners, read, steps = graph.owners(), output_wires, tuple[Step, ...]()
    while True:
        positions = np.unique(owners[read])
        node = graph.nodes[int(positions[0])] if len(positions) == 1 and read.min() >= 0 else None
        if not isinstance(node, Lookup):
            break
        numbers = np.unique(node.function[read - node.first_wire])
        if len(numbers) > 1:
            break
        steps = (*(step.select(numbers) for step in node.steps), *steps)
        read = node.gather[read - node.first_wire]
    if all(step.operator == "Affine" for step in steps):
        return None
    steps = _within_domain(steps)
    return (
        None
        if too_much([steps]) is not None
        else (read, Functions((steps,), np.zeros(output_wires.shape, dtype=np.int64)))
    )


def _within_domain(steps: tuple[Step, ...]) -> tuple[Step, ...]:
    """Returns a program with values where noise carries a root's or logarithm's argument below 0, and no others elsewhere."""
    if not is_chain(steps):
        ends = [_least_argument(step) for i, step in enumerate(steps) if step.reads == (i + 1,)]
        known = [end for end in ends if end is not None]
        return (_at_least(max(known)), *steps) if known else steps
    program: list[Step] = []
    for step in steps:
        end = _least_argument(step)
        if end is not None and not never_negative(program):
            program.append(_at_least(end))
        program.append(step)
    return tuple(program)


def _least_argument(step: Step) -> float | None:
    """Returns the least argument of functions that have one."""
    if step.operator == "Log":
        return float(np.finfo(np.float32).tiny)
    roots = step.operator == "Pow" and bool((step.parameters[0] % 1 != 0).any())
    return 0.0 if roots or step.operator == "Sqrt" else None


def _at_least(end: float) -> Step:
    return Step("Max", (np.array([end]),))


def _alike(functions: WireFunctions, wire: Indices) -> list[Indices]:
    pattern = functions.own_pattern[wire]
    return [wire[pattern == number] for number in np.unique(pattern).tolist()]


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
