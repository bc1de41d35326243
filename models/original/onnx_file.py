"""An ONNX file run as its owner runs it: by ONNX Runtime where that is installed, else by the reference evaluator of the package onnx."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper

from cloakwork.models.onnx_import.ends import given_inputs
from cloakwork.models.original.integer_sums import has_sums, moved, saturates

Tensors = dict[str, NDArray[Any]]
Run = Callable[[list[str], Tensors], list[Any]]

_FIRST: Final = 8  # samples that tell how long more would take
_SECONDS: Final = 0.5
_LARGEST: Final = 1 << 30  # bytes of a file that is run


@dataclass(frozen=True)
class Answers:
    """Answers of the file to the first samples, by the names of its outputs; `by`: who ran it."""

    outputs: Tensors
    samples: int
    by: str


def answers_of(model: onnx.ModelProto, outputs: list[str], samples: Tensors) -> Answers | None:
    """Answers as many samples as half a second is enough for, eight at least; None where nobody here can run the file.

    Args:
        outputs: names.
        samples: arrays [samples, ..] by the names of inputs; those that are missing get zeros.
    """
    way = opened(model)
    if way is None:
        return None
    by, run = way
    inputs = {each.name: each for each in given_inputs(model.graph, {t.name: t for t in model.graph.initializer})}
    batch = _batch(inputs)
    for at_once in (batch,) if batch else (None, 1):  # a file may say that it takes any number, and mean one
        with contextlib.suppress(
            Exception
        ):  # whatever a run-time of others raises on a model that it has no kernel for
            return Answers(*_all(run, outputs, inputs, samples, at_once), by)
    return None


def _all(
    run: Run, outputs: list[str], inputs: Mapping[str, onnx.ValueInfoProto], samples: Tensors, at_once: int | None
) -> tuple[Tensors, int]:
    """Returns answers, and how many there are. ValueError where they are not one for each sample."""
    count = len(next(iter(samples.values())))
    parts: list[list[NDArray[Any]]] = []
    done, started = 0, time.perf_counter()
    step = at_once or _FIRST
    while done < count:
        parts.append(_run_some(run, outputs, inputs, samples, slice(done, min(done + step, count)), at_once))
        done = min(done + step, count)
        spent = time.perf_counter() - started
        if done >= _FIRST and spent > _SECONDS:
            break
        if at_once is None:
            step = max(_FIRST, int(done * _SECONDS / max(spent, 1e-3)))
    answers = {
        name: np.concatenate(output_parts) for name, output_parts in zip(outputs, zip(*parts, strict=True), strict=True)
    }
    if any(len(answer) != done for answer in answers.values()):
        raise ValueError("expected an answer for each sample")
    return answers, done


def opened(model: onnx.ModelProto) -> tuple[str, Run] | None:
    """Opens a file with what can run it here, and says how."""
    if model.ByteSize() > _LARGEST:
        return None
    for by, begin in _WAYS:
        with contextlib.suppress(
            Exception
        ):  # it is not installed, or has no kernel for an operator that another one may have
            return by, begin(model)
    return None


def _by_runtime(model: onnx.ModelProto) -> Run:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # nothing but what ends the process
    # Node by node: its rewriting is not always right (PadFusion of 1.32 takes zeros before a MaxPool for the pool's own padding).
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    model = moved(model) if has_sums(model) and saturates() else model
    run: Run = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"]).run
    return run


def _by_reference(model: onnx.ModelProto) -> Run:
    from onnx.reference import ReferenceEvaluator

    return cast(Run, ReferenceEvaluator(model).run)


_WAYS: Final[tuple[tuple[str, Callable[[onnx.ModelProto], Run]], ...]] = (
    ("ONNX Runtime", _by_runtime),
    ("onnx.reference", _by_reference),
)


def _batch(inputs: Mapping[str, onnx.ValueInfoProto]) -> int | None:
    """Returns the number of samples that the file is made for; None for any."""
    for each in inputs.values():
        first = each.type.tensor_type.shape.dim[:1]
        if first and first[0].HasField("dim_value") and first[0].dim_value > 0:
            return int(first[0].dim_value)
    return None


def _run_some(
    run: Run,
    outputs: list[str],
    inputs: Mapping[str, onnx.ValueInfoProto],
    samples: Tensors,
    rows: slice,
    at_once: int | None,
) -> list[NDArray[Any]]:
    count = rows.stop - rows.start
    lacking = 0 if at_once is None else at_once - count
    given = {}
    for name, each in inputs.items():
        kind = type_of(each)
        shape = [dimension.dim_value or 1 for dimension in each.type.tensor_type.shape.dim[1:]]
        values = samples[name][rows] if name in samples else np.zeros((count, *shape))
        given[name] = np.concatenate([values, np.repeat(values[-1:], lacking, axis=0)]).astype(kind)
    return [np.asarray(output)[:count] for output in run(outputs, given)]


def type_of(value: onnx.ValueInfoProto) -> np.dtype[Any]:
    """Returns the type of an input's numbers."""
    return helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
