"""A compiled model: what it consists of (artefact_writer.py), and what follows from that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from cloakwork.fhe_core.parameters import word_dtype
from cloakwork.models.arrays import Reals
from cloakwork.models.client_steps import Categories, Columns, Labels, Pick
from cloakwork.models.errors import CompileError
from cloakwork.models.graph.equal_sources import Sources, find_sources
from cloakwork.models.graph.ir import Linear, phase_bias
from cloakwork.models.graph.merge_equal import merge_equal
from cloakwork.models.graph.schedule import Schedule, schedule
from cloakwork.models.program.artefact_writer import Contents, program_to_bytes


@dataclass(frozen=True, eq=False)
class Program(Contents):
    """A compiled program: its contents, with its schedule, its digest and its costs."""

    @cached_property
    def schedule(self) -> Schedule:
        """Returns what a machine does, in order."""
        return schedule(self.graph)

    @cached_property
    def distinct(self) -> Program:
        """The same with equal look-ups done once, over whose wires noise is counted; itself for what this version compiles."""
        graph = merge_equal(self.graph)
        return self if graph is self.graph else replace(self, graph=graph)

    @cached_property
    def sources(self) -> Sources:
        """Returns which wires hold the same ciphertext, and which rows the same combination."""
        return find_sources(self.graph)

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 that names the program: the last bytes of its file. Inputs and results carry it as their purpose."""
        return program_to_bytes(self)[-32:]

    @property
    def ciphertext_bytes(self) -> int:
        """Counts the bytes of one wire between look-ups."""
        return self.parameters.large_words * word_dtype(self.parameters).itemsize

    @property
    def held_bytes(self) -> int:
        """Counts the bytes of a sample's ciphertexts at the worst moment, with levels as they are; of trees all of them, as services tell how many
        samples fit, and what is read at the same time depends on thresholds that they do not tell."""
        columns = self.schedule.most_columns if self.facts.grid is None else self.graph.wire_count
        return columns * self.ciphertext_bytes

    @property
    def bootstraps(self) -> int:
        """Bootstraps per sample."""
        return self.graph.bootstraps

    def phase_bias(self, node: Linear) -> Reals:
        """Returns [G, R]: the fraction of the torus that a row adds; equal for all positions of a block."""
        return phase_bias(self.graph, node)


# Names of features and classes in a program whose training data had none: what clients check, and what they answer.


def named(program: Program, features: Sequence[str] | None = None, classes: Sequence[str] | None = None) -> Program:
    """Returns another program that does the same: its clients refuse tables with other names, and answer with the classes' names.

    Raises:
        CompileError: another number of features or classes than the program has, or a program of neither.
    """
    steps = {"input_steps": program.input_steps, "output_steps": program.output_steps}
    if features is not None:
        first = steps["input_steps"][0] if steps["input_steps"] else None
        if not isinstance(first, Columns | Categories) or first.count != len(features):
            raise CompileError(f"features: expected as many names as the table has columns, got {len(features)}")
        steps["input_steps"] = (replace(first, names=tuple(features)), *steps["input_steps"][1:])
    if classes is not None:
        last = steps["output_steps"][-1] if steps["output_steps"] else None
        if not isinstance(last, Labels | Pick) or len(last.labels) != len(classes):
            raise CompileError(f"classes: expected as many names as the model has labels, got {len(classes)}")
        steps["output_steps"] = (*steps["output_steps"][:-1], replace(last, labels=np.array(classes)))
    return replace(program, **steps)  # type: ignore[arg-type]
