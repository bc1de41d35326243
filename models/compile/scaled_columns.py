"""Offsets and scales of columns that the client would apply become the first nodes of a network, which folds them into its first layer.

The client is then told a range for each column, in round numbers, in place of statistics of the training data.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from cloakwork.models.arrays import Reals
from cloakwork.models.client_steps import InputStep, Standardise, column_labels, known_ranges, run_input_steps
from cloakwork.models.client_steps.scaling import split_scaling
from cloakwork.models.criteria.feature_ranges import FeatureRanges, ranges_by_number
from cloakwork.models.passes.rescale_input import InputRanges, column_ranges


@dataclass(frozen=True, eq=False)
class ScaledColumns:
    """A network, the client's steps before it, and what it is calibrated with.

    Args:
        samples: [samples, columns], after the steps; None where there are none.
        ranges: of columns, by number.
    """

    model: onnx.ModelProto
    steps: tuple[InputStep, ...]
    samples: Reals | None
    ranges: FeatureRanges

    @classmethod
    def of(
        cls,
        model: onnx.ModelProto,
        steps: tuple[InputStep, ...],
        calibration: Any,
        given: FeatureRanges | None,
        rounded: bool,
    ) -> ScaledColumns:
        """Returns the network with means and scales right before the network, where they are, taken in by its first layer; columns then get ranges
        of their own.

        Args:
            steps: the first one checks the columns.
            given: ranges of the columns before such means and scales, by name or number.
            rounded: see InputRanges.

        Raises:
            CompileError: ranges that are none.
        """
        if calibration is None:
            return cls(model, steps, None, given or {})
        before, scaling = split_scaling(steps) if _starts_linear(model) else (steps, None)
        samples = run_input_steps(before, calibration)
        names = column_labels(before, samples)
        assert names is not None
        ranges = {**(_known(before, calibration, samples) if rounded else {}), **ranges_by_number(given, names)}
        if scaling is None:
            return cls(model, before, samples, ranges)
        return cls(_with_scaling(model, scaling), before, samples, column_ranges(samples, InputRanges(ranges, rounded)))


def _known(steps: tuple[InputStep, ...], calibration: Any, samples: Reals) -> dict[int, tuple[float, float]]:
    """Returns ranges of columns, by number, that do not hang on the samples."""
    low, high = known_ranges(steps, calibration, samples.shape[1])
    return {int(i): (float(low[i]), float(high[i])) for i in np.flatnonzero(~np.isnan(low))}


def _starts_linear(model: onnx.ModelProto) -> bool:
    """Whether matrix products alone read the input, so that scales fold into them; a quantiser of the input (QDQ) has to stay the client's."""
    entering = model.graph.input[0].name
    readers = {node.op_type for node in model.graph.node if entering in node.input}
    return bool(readers) and readers <= {"Gemm", "MatMul"}


def _with_scaling(model: onnx.ModelProto, scaling: Standardise) -> onnx.ModelProto:
    """(x - offset) * scale before the model; float64, since large offsets cancel."""
    result = onnx.ModelProto()
    result.CopyFrom(model)
    graph, fresh = result.graph, _fresh_names(model.graph)
    entering = graph.input[0].name
    offset, scale, centred, scaled = (next(fresh) for _ in range(4))
    for node in graph.node:
        for i, name in enumerate(node.input):
            if name == entering:
                node.input[i] = scaled
    graph.initializer.append(numpy_helper.from_array(scaling.offset, offset))
    graph.initializer.append(numpy_helper.from_array(scaling.scale, scale))
    nodes = [
        helper.make_node("Sub", [entering, offset], [centred], name="offset of columns"),
        helper.make_node("Mul", [centred, scale], [scaled], name="scale of columns"),
        *graph.node,
    ]
    del graph.node[:]
    graph.node.extend(nodes)
    return result


def _fresh_names(graph: onnx.GraphProto) -> Iterator[str]:
    used = {name for node in graph.node for name in (*node.input, *node.output)}
    used |= {each.name for each in (*graph.input, *graph.initializer)}
    number = 0
    while True:
        number += 1
        if f"scaled columns {number}" not in used:
            yield f"scaled columns {number}"
