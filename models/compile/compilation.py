"""A network on its way to a program: what every step of the pipeline takes and returns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
import onnx
from numpy.typing import NDArray

from cloakwork.models.approximate.statistics import Statistics
from cloakwork.models.arrays import Reals, real_numbers
from cloakwork.models.calibration import Calibration
from cloakwork.models.client_steps import (
    InputStep,
    Named,
    OutputStep,
    Quantise,
    Tensors,
    named_outputs,
    run_output_steps,
)
from cloakwork.models.compile.accuracy import Reference
from cloakwork.models.compile.options import NetworkOptions
from cloakwork.models.criteria.noise_limits import NoiseLimits
from cloakwork.models.graph.ir import Graph
from cloakwork.models.program import Program
from cloakwork.models.runtime.interpreter import interpret


@dataclass(frozen=True, eq=False)
class Compilation:
    """Args:
    options: what was asked for.
    given: calibration samples, what was observed of them, or None.
    imported: the real-valued network as it came.
    graph: as far as it has come, on the inputs that `before` makes.
    before: what the client does to a sample.
    quantiser: the model's own quantiser of its one output, which is the client's.
    grid: unit of the values that quantisers of the model make of its input; None where it does not round all of it.
    limits: of noise, by the names of linear nodes.
    seen: what calibration showed; None before it.
    samples: of calibration, as the graph takes them; None where there are none.
    unseen: which of them ranges and roundings do not see, so that programs are checked on them [samples].
    reference: the clear model on samples, with which programs are checked; None where they are not.
    stats: of the graph with ranges.
    plain: the graph without straight parts beside look-ups, and its statistics, until one of the two is taken.
    narrow: before ranges were widened; None where they are taken as they are.
    program, loss, doubt: at the end; in words, what it falls short of the accuracy by, and what the samples do not say.
    model: the file; None where it is not run beside.
    judged: whether it was run, and says what the graph says to the rounding of float32.
    narrowed: in words, why the program takes fewer inputs than the model; None where it takes all of them.
    """

    options: NetworkOptions
    given: Any
    imported: Graph
    graph: Graph
    limits: NoiseLimits
    before: tuple[InputStep, ...] = ()
    quantiser: Quantise | None = None
    grid: float | None = None
    seen: Calibration | None = None
    samples: Reals | None = None
    unseen: NDArray[np.bool_] | None = None
    reference: Reference | None = None
    stats: Statistics | None = None
    plain: tuple[Graph, Statistics] | None = None
    narrow: Compilation | None = None
    program: Program | None = None
    loss: str | None = None
    doubt: str | None = None
    narrowed: str | None = None
    model: onnx.ModelProto | None = None
    judged: bool = False

    @property
    def after(self) -> tuple[OutputStep, ...]:
        """Returns what the client does to the numbers that it decrypts, the graph's client_steps being done."""
        if self.graph.outputs:
            return (Named.of(self.graph.outputs),)
        return () if self.quantiser is None else (self.quantiser,)

    @property
    def fitted(self) -> Reals | None:
        """The samples that ranges and roundings see."""
        return self.samples if self.samples is None or self.unseen is None else self.samples[~self.unseen]

    def clear(self, samples: Any) -> Any:
        """Computes what the graph says in real numbers, as far as it has come: an array, of several outputs arrays by name."""
        return run_output_steps((*self.graph.client_steps, *self.after), interpret(self.graph, self.entered(samples)))

    def entered(self, samples: Any) -> Reals:
        """Returns samples as the graph takes them [samples, ..]."""
        x = samples if any(isinstance(step, Tensors) for step in self.before) else real_numbers(samples)
        for step in self.before:
            x = step(x)
        return real_numbers(x)


Transformation: TypeAlias = Callable[[Compilation], Compilation]


@dataclass(frozen=True)
class CompilerStep:
    """A named step of a pipeline.

    Args:
        does: for people: what of.
        parts: modules that it consists of, and what they do for it.
        real: whether the graph after it still is the clear model, in real numbers.
    """

    name: str
    run: Transformation
    does: str
    parts: Mapping[str, str] = field(default_factory=dict)
    real: bool = True


# Outputs without repetitions, so that what several have in common is sent once: a label and the probabilities that it comes from are one set of
# scores.


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
