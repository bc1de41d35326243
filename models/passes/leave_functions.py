"""Leaves functions of single numbers at the model's end to the client: a Sigmoid, a Tanh, what is compared with a threshold.

They cost nothing after decryption, and the noise of a look-up less. A function moves where it is short and has few parameters, so that nothing of
the model's weights goes with it, and all of the output's move or none.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from cloakwork.models.client_functions import function_step, too_much
from cloakwork.models.ir import Graph, Indices, without_dead_nodes
from cloakwork.models.passes.wire_functions import CONSTANT, WireFunctions
from cloakwork.models.passes.wire_programs import WirePrograms
from cloakwork.models.steps import Step


def leave_functions(graph: Graph) -> Graph:
    """Args: graph: as imported."""
    functions = WireFunctions(graph)
    output = np.unique(graph.output.reshape(-1))
    varying = output[functions.source[output] != CONSTANT]
    is_source = functions.own_source[varying] == varying
    moved = varying[~is_source & (functions.affine[varying] != functions.own_source[varying])]
    if not len(moved):
        return graph
    read = np.arange(len(functions.source), dtype=np.int64)  # what the client gets for each wire of the output
    number = np.zeros(len(read), dtype=np.int64)
    found: dict[tuple[object, ...], int] = {(): 0}
    made: list[tuple[Step, ...]] = [()]
    for group in _alike(functions, moved):
        program = WirePrograms(functions, group)
        steps, function = program.steps()
        read[group] = program.base
        for i in np.unique(function).tolist():
            one = tuple(step.select(np.array([i])) for step in steps)
            key = tuple((step.operator, step.reads, *(float(p[0]) for p in step.parameters)) for step in one)
            if key not in found:
                found[key] = len(made)
                made.append(one)
            number[group[function == i]] = found[key]
        if too_much(made) is not None:
            return graph
    read[-1] = -1
    which = number[graph.output]
    if not (which == 0).any():
        made, which = made[1:], which - 1
    step = function_step(made, which)
    return without_dead_nodes(replace(graph, output=read[graph.output], client_steps=(step, *graph.client_steps)))


def _alike(functions: WireFunctions, wire: Indices) -> list[Indices]:
    pattern = functions.own_pattern[wire]
    return [wire[pattern == number] for number in np.unique(pattern).tolist()]
