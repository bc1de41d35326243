"""The content of a compiled program: all that its file holds, and from which everything else about it follows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from cloakwork.fhe_core.parameters import ParameterSet
from cloakwork.models.client_steps import InputStep, OutputStep
from cloakwork.models.graph.ir import Graph
from cloakwork.models.program.facts import Facts

SALT_BYTES: Final = 32


@dataclass(frozen=True, eq=False)
class Contents:
    graph: Graph
    parameters: ParameterSet
    noise_percent: float
    layer_noise: Mapping[str, float] = field(default_factory=dict)  # where it is another
    input_steps: tuple[InputStep, ...] = ()  # by the client, from its table to the graph's input
    output_steps: tuple[OutputStep, ...] = ()  # by the client, after those that the graph ends in
    output_unit: float = 0.0  # phase between two values of the output; 0 when they are real numbers
    facts: Facts = field(default_factory=Facts)  # of the model, for the report
    salt: bytes = (
        b""  # random, in files alone: with it the digest, which clients know, does not confirm a guess at the program
    )

    @property
    def tail(self) -> tuple[OutputStep, ...]:
        """All that the client does after decryption."""
        return (*self.graph.client_steps, *self.output_steps)
