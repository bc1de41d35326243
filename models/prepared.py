"""From an imported graph and calibration data to what is quantised: a restructured graph, its ranges, and what the client does before and after."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from cloakwork.models.accuracy import Reference, Task
from cloakwork.models.calibration import Calibration, observe
from cloakwork.models.client_steps import InputStep, Named, OutputStep, Quantise, Tensors
from cloakwork.models.exact import Ends
from cloakwork.models.ir import Graph, Reals
from cloakwork.models.passes.pipeline import restructure
from cloakwork.models.passes.quantise_ends import quantise_input, quantise_output
from cloakwork.models.passes.quantised_ranges import quantised_ranges, quantiser_bounds
from cloakwork.models.passes.rescale_input import RESCALED, rescale_input
from cloakwork.models.passes.several_inputs import input_bounds, quantise_inputs, rescale_inputs
from cloakwork.models.tabular.columns import real_numbers


@dataclass(frozen=True, eq=False)
class Prepared:
    """The graph that is calibrated, and what the client does before and after it.

    Args:
        given: the quantiser of the one input, or what makes one tensor of several.
        wanted: the quantiser of the output.
    """

    graph: Graph
    given: Quantise | Tensors | None
    wanted: Quantise | None

    def entered(self, samples: Any) -> Reals:
        """Samples as the graph takes them."""
        return real_numbers(samples if self.given is None else self.given(samples))

    @property
    def after(self) -> tuple[OutputStep, ...]:
        if self.graph.outputs:
            return (Named.of(self.graph.outputs),)
        return () if self.wanted is None else (self.wanted,)


@dataclass(frozen=True)
class Checked:
    """That programs are checked, and what outputs are for."""

    task: Task | Mapping[str, Task] | None


@dataclass(frozen=True, eq=False)
class Ready:
    """The graph that is quantised, on inputs that the steps of `ends` make; samples and reference where there were samples."""

    graph: Graph
    calibration: Calibration
    ends: Ends
    samples: Reals | None
    reference: Reference | None


def prepared(imported: Graph) -> Prepared:
    given: Quantise | Tensors | None
    graph, given = quantise_inputs(imported) if imported.inputs else quantise_input(imported)
    graph, wanted = quantise_output(graph)
    return Prepared(restructure(graph), given, wanted)


def calibrated(found: Prepared, calibration: Any, checked: Checked | None) -> Ready:
    """Args:
    calibration: samples, what was observed of them, or None for a model whose quantisers say the ranges.
    checked: None: without a reference.
    """
    samples: Reals | None = None
    reference: Reference | None = None
    if calibration is None:
        seen = quantised_ranges(found.graph, _bounds(found), found.wanted)
    elif isinstance(calibration, Calibration):
        seen = calibration
    else:
        samples = found.entered(calibration)
        seen = observe(found.graph, samples)
        reference = None if checked is None else Reference.of(found.graph, samples, checked.task)
    if isinstance(found.given, Tensors):
        return _several(found, found.given, seen, samples, reference)
    graph, steps = found.graph, list[InputStep]([] if found.given is None else [found.given])
    if samples is not None and found.given is None:
        graph, rescale = rescale_input(graph, samples)
        if rescale is not None:
            steps.append(rescale)
            samples, seen = rescale(samples), replace(seen.on(found.graph, graph), input_range=RESCALED)
    grid = None if found.given is None else found.given.unit
    return Ready(graph, seen, Ends(tuple(steps), found.after, grid), samples, reference)


def _several(
    found: Prepared, given: Tensors, seen: Calibration, samples: Reals | None, reference: Reference | None
) -> Ready:
    made = rescale_inputs(found.graph, given, seen, samples)
    ends = Ends((made.step,), found.after, made.grid)
    entered = None if samples is None else made.step(made.step.apart(samples))
    return Ready(made.graph, made.calibration, ends, entered, reference)


def _bounds(found: Prepared) -> tuple[Reals, Reals]:
    if isinstance(found.given, Tensors):
        return input_bounds(found.given)
    return quantiser_bounds(found.graph, found.given)
