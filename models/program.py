"""A compiled model: the quantised graph, its levels and its parameter set."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from cloakwork.fhe_core.parameters import ParameterSet
from cloakwork.models.client_steps import InputStep, OutputStep
from cloakwork.models.ir import Graph, Linear, Reals, wires
from cloakwork.models.passes.levels import Level, levels


@dataclass(frozen=True, eq=False)
class Program:
    graph: Graph
    parameters: ParameterSet
    noise_percent: float
    layer_noise: Mapping[str, float] = field(default_factory=dict)  # where it is another
    input_steps: tuple[InputStep, ...] = ()  # by the client, from its table to the graph's input
    output_steps: tuple[OutputStep, ...] = ()  # by the client, after the graph's client_steps
    output_unit: float = 0.0  # phase between two values of the output; 0 when they are real numbers
    facts: Mapping[str, Any] = field(default_factory=dict)  # of the model, for the report; plain values

    @cached_property
    def levels(self) -> tuple[Level, ...]:
        return levels(self.graph)

    @property
    def bootstraps(self) -> int:
        """Per sample."""
        return self.graph.bootstraps

    def phase_bias(self, node: Linear) -> Reals:
        """[G, R]: the fraction of the torus that a row adds, (bias - offset) * scale; equal for all positions of a block."""
        scale, offset = self.graph.scale, self.graph.offset
        assert scale is not None and offset is not None
        shape = (len(node.gather), node.weights.shape[1])
        row_scale, row_offset = np.ones_like(node.bias), np.zeros_like(node.bias)
        row_scale[node.block] = scale[wires(node)].reshape(shape)
        row_offset[node.block] = offset[wires(node)].reshape(shape)
        bias: Reals = (node.bias - row_offset) * row_scale
        return bias
