"""An imported network in clear, in real numbers, from samples to answers."""

from __future__ import annotations

from typing import Any

from cloakwork.models.client_steps import Named, Tensors, run_output_steps
from cloakwork.models.graph.ir import Graph
from cloakwork.models.runtime.interpreter import interpret


def clear_answers(graph: Graph, x: Any) -> Any:
    """Returns an array, of several outputs arrays by name. Args: x: samples [samples, ..]; of several inputs a dict by name, or a tuple."""
    values = interpret(graph, Tensors.of(graph.inputs, graph.unused)(x) if graph.inputs else x)
    return Named.of(graph.outputs)(values) if graph.outputs else run_output_steps(graph.client_steps, values)
