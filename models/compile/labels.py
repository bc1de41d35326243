"""`tell="labels"` for networks: what it asks of the model and the options, and what the client does with the number that it decrypts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import onnx
from onnx import helper, numpy_helper

from cloakwork.models.client_steps import Integers, Labels, OutputStep, Pick
from cloakwork.models.compile.compilation import Compilation
from cloakwork.models.compile.options import NetworkOptions
from cloakwork.models.criteria.choose_set import check_classes
from cloakwork.models.criteria.noise_limits import AUTO, EXACT_PROFILES
from cloakwork.models.errors import CompileError
from cloakwork.models.graph.last_steps import ArgMax, LogSoftmax, Softmax
from cloakwork.models.onnx_import.importer import import_onnx
from cloakwork.models.program import Program

_EXACT = "exact"


def with_exact_precision(options: NetworkOptions) -> NetworkOptions:
    """Returns options with exact precision: labels are decided on integers. CompileError for a precision of real numbers that was asked for."""
    several = isinstance(options.precision, Mapping)
    if options.tell == "scores" or (not several and options.precision in EXACT_PROFILES):
        return options
    if several or options.precision != AUTO:
        raise CompileError(
            f"tell='labels': expected the precision 'exact' or 'exact_64' for a network, got {options.precision!r}; leave the precision out"
        )
    return replace(options, precision=_EXACT, task=options.task or "classification")


def check_argmax(c: Compilation, settings: NetworkOptions, approximate: Mapping[str, float]) -> None:
    """Raises CompileError for an output that is no row of scores, or options that leave its numbers inexact."""
    graph = c.graph
    if graph.outputs:
        raise CompileError("tell='labels': expected one output, the scores of all classes; choose it with outputs=")
    if graph.output.ndim != 1 or len(graph.output) < 2:
        raise CompileError(
            f"tell='labels': expected scores [batch, classes] of two classes or more, got an output of shape {['batch', *graph.output.shape]}"
        )
    check_classes(len(graph.output))
    strange = [step.title for step in graph.client_steps if not isinstance(step, ArgMax | LogSoftmax | Softmax)]
    if strange or c.quantiser is not None:
        raise CompileError(
            f"tell='labels': expected a model that ends in scores, Softmax, LogSoftmax or ArgMax, got {', '.join(strange) or 'a quantiser'}; "
            "leave it out"
        )
    if approximate or settings.accumulator_bits is not None:
        raise CompileError(
            "tell='labels': expected exact layers only; leave out accumulator_bits, and the precision of single layers"
        )


def labels_of(c: Compilation) -> tuple[OutputStep, ...]:
    """Returns the number of the class, an integer."""
    return Integers(), Pick(np.arange(len(c.graph.output)))


def threshold_of(after: tuple[OutputStep, ...]) -> float:
    """Returns the threshold above which one score means the second class. CompileError where there are no classes."""
    last = after[-1] if after else None
    if not isinstance(last, Labels):
        raise CompileError("tell='labels': expected a classifier of one label; this model has none")
    return last.threshold


def with_score_of_each(model: onnx.ModelProto, threshold: float) -> onnx.ModelProto:
    """Rewrites one score against a threshold as that of the second class, the first having 0; other models as they are."""
    if import_onnx(model).output.shape != (1,):
        return model
    result = onnx.ModelProto()
    result.CopyFrom(model)
    graph, (score,) = result.graph, result.graph.output
    names = ("cloakwork: the second class", "cloakwork: its threshold", "cloakwork: scores")
    for name, array in zip(names, ([[0.0, 1.0]], [0.0, -threshold]), strict=False):
        graph.initializer.append(numpy_helper.from_array(np.array(array, dtype=np.float32), name))
    graph.node.append(helper.make_node("Gemm", [score.name, *names[:2]], [names[2]], name="score of each class"))
    graph.output[0].CopyFrom(helper.make_empty_tensor_value_info(names[2]))
    return result


def after_network(program: Program, after: tuple[OutputStep, ...]) -> tuple[OutputStep, ...]:
    """Returns what the client of a table's network does: of a label its name alone. Args: after: of the scores, the labels last."""
    if program.facts.tell != "labels":
        return (*program.output_steps, *after)
    last = after[-1] if after else None
    return (Integers(), Pick(last.labels)) if isinstance(last, Labels) else program.output_steps
