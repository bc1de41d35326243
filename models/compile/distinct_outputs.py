"""Outputs without repetitions, so that what several have in common is sent once: a label and the probabilities that it comes from are one set of
scores."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from cloakwork.models.client_steps import named_outputs
from cloakwork.models.program import Program


def distinct_outputs(program: Program) -> Program:
    """Returns the program with every wire of its output once; itself where that is so, or where it has one output."""
    named = named_outputs(program.output_steps)
    if named is None:
        return program
    wires, first, which = np.unique(program.graph.output, return_index=True, return_inverse=True)
    if len(wires) == program.graph.output.size:
        return program
    order = np.argsort(first)  # as they come in the outputs
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    steps = (*program.output_steps[:-1], replace(named, spread=rank[which.reshape(-1)]))
    return replace(program, graph=replace(program.graph, output=wires[order]), output_steps=steps)
