"""Leaves functions of single numbers at the model's end to the client: a Sigmoid, a Tanh, what is compared with a threshold.

They cost nothing after decryption, and the noise of a look-up less. A function moves where it is short and has few parameters, so that nothing of
the model's weights goes with it, and all of the output's move or none. Where that is too much, because a scale for each class comes before, say,
what comes last and is the same for all numbers moves alone.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from cloakwork.models.arrays import Indices
from cloakwork.models.graph.client_functions import Functions, too_much
from cloakwork.models.graph.ir import Graph, Lookup, places, without_dead_nodes
from cloakwork.models.graph.steps import Step, is_chain, never_negative
from cloakwork.models.passes.wire_functions import CONSTANT, WireFunctions
from cloakwork.models.passes.wire_programs import WirePrograms


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
