"""Several inputs as one tensor: each has a quantiser or a range of its own, and what is encrypted is on one scale.

Inputs that the model itself rounds (QDQ) become their integers where it rounds all of them; else each is brought to [-1, 1], column by column where
its columns differ much in size (rescale_input). The client does both, input by input (client_steps.Tensors).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from cloakwork.models.arrays import Reals
from cloakwork.models.calibration import Calibration
from cloakwork.models.client_steps import Quantise, Rescale, Tensors
from cloakwork.models.errors import CompileError
from cloakwork.models.graph.ir import Graph, Lookup, places
from cloakwork.models.passes.quantise_ends import without_quantiser
from cloakwork.models.passes.rescale_input import (
    RESCALED,
    InputRanges,
    column_rescale,
    on_rescaled,
    rescale_of_range,
    whole_range,
)


def quantise_inputs(graph: Graph) -> tuple[Graph, Tensors]:
    """Returns the graph on inputs that the client has rounded where the model rounds them in one way, and the client's step. Args: graph: as
    imported."""
    quantisers: list[tuple[Quantise, ...]] = []
    for place in places(graph.inputs):
        first, last = graph.input.first_wire + place.start, graph.input.first_wire + place.stop
        graph, quantiser = _quantised(graph, first, last)
        quantisers.append(() if quantiser is None else (quantiser,))
    return graph, Tensors.of(graph.inputs, graph.unused, tuple(quantisers))


def _quantised(graph: Graph, first: int, last: int) -> tuple[Graph, Quantise | None]:
    """For the input of the wires from first to before last."""

    def reads(gather: np.ndarray) -> np.ndarray:
        return np.asarray((gather >= first) & (gather < last))

    using = [node for node in graph.nodes if bool(reads(node.gather).any())]
    alone = all(isinstance(node, Lookup) and bool(reads(node.gather).all()) for node in using)
    if not using or not alone or bool(reads(graph.output).any()):
        return graph, None
    return without_quantiser(graph, using)


@dataclass(frozen=True, eq=False)
class Rescaled:
    """The graph on inputs of one scale, the client's step, what calibration says of it, and the unit of the inputs where they are integers."""

    graph: Graph
    step: Tensors
    calibration: Calibration
    grid: float | None


def input_bounds(step: Tensors) -> tuple[Reals, Reals]:
    """Returns least and largest values of every number of the input, from quantisers. CompileError: an input has none."""
    without = [name for name, input_steps in zip(step.names, step.steps, strict=True) if not input_steps]
    if without:
        raise CompileError(
            f"samples: expected typical inputs, got none, and input '{without[0]}' does not go into a QuantizeLinear node; pass a dict of arrays "
            "[samples, ..] by name"
        )
    lower, upper = [], []
    for (quantiser,), shape in zip(step.steps, step.shapes, strict=True):
        lower.append(np.full(int(np.prod(shape)), quantiser.low))
        upper.append(np.full(int(np.prod(shape)), quantiser.high))
    return np.concatenate(lower), np.concatenate(upper)


def rescale_inputs(
    graph: Graph, step: Tensors, calibration: Calibration, samples: Reals | None, ranges: InputRanges
) -> Rescaled:
    """Rescales inputs to their ranges.

    Args:
        graph: levelled.
        step: with the quantisers of inputs.
        samples: [samples, numbers], as the step gives them; None: the ranges that were observed of each input.
        ranges: of inputs, by number.
    """
    quantisers = [input_steps[0] for input_steps in step.steps if input_steps]
    if len(quantisers) == len(step.steps):
        rescales: Sequence[Rescale] = [_to_integers(quantiser) for quantiser in quantisers]
        range_of_all = (min(q.low / q.unit for q in quantisers), max(q.high / q.unit for q in quantisers))
        grid = 1.0
    else:
        rescales = _to_one(graph, calibration, samples, ranges)
        range_of_all, grid = RESCALED, None
    steps = tuple((*input_steps, rescale) for input_steps, rescale in zip(step.steps, rescales, strict=True))
    rescaled = on_rescaled(graph, rescales, step.shapes)
    seen = replace(calibration.on(graph, rescaled), input_range=range_of_all, inputs=None)
    return Rescaled(rescaled, replace(step, steps=steps), seen, grid)


def _to_integers(quantiser: Quantise) -> Rescale:
    facts = (quantiser.low, quantiser.high, 0.0, 1 / quantiser.unit)
    return Rescale(*(np.array([fact]) for fact in facts))


def _to_one(graph: Graph, calibration: Calibration, samples: Reals | None, ranges: InputRanges) -> Sequence[Rescale]:
    if samples is None and (calibration.inputs is None or len(calibration.inputs) != len(graph.inputs)):
        raise CompileError(
            f"samples: expected ranges of {len(graph.inputs)} inputs; it belongs to another model: record them again"
        )
    rescales = []
    for i, (part, place) in enumerate(zip(graph.inputs, places(graph.inputs), strict=True)):
        if i in ranges.given:
            rescales.append(rescale_of_range(*ranges.given[i], part.shape))
        elif samples is None:
            assert calibration.inputs is not None
            rescales.append(rescale_of_range(*ranges.of_all(*calibration.inputs[i]), part.shape))
        else:
            input_samples = samples[:, place].reshape(len(samples), *part.shape)
            by_column = column_rescale(input_samples, replace(ranges, given={}))
            rescales.append(by_column or rescale_of_range(*ranges.of_all(*whole_range(input_samples)), part.shape))
    return rescales
