"""The check of a table model's import from its ONNX-ML file: the file, run as its owner runs it, beside what was imported."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import onnx
from numpy.typing import NDArray

from cloakwork.models.arrays import some_rows
from cloakwork.models.client_steps.checks import Stage
from cloakwork.models.errors import ImportFaultError, ShapeError
from cloakwork.models.onnx_import.ends import given_inputs
from cloakwork.models.original.agreement import difference, edges_of
from cloakwork.models.original.onnx_file import Run, opened, type_of

Answered = Callable[[Any, Stage], NDArray[Any]]
"""What was imported says of samples, in real numbers, up to a stage."""

_MOST: Final = 300  # samples
_STAGES: Final[tuple[Stage, ...]] = ("labels", "probabilities", "scores")
_TIE: Final = 1e-5
_FEW: Final = 0.02  # labels of samples that lie between two


@dataclass(frozen=True, eq=False)
class Said:
    """The first answer of a file to samples: labels, or values. Samples between two labels are left out: either is right."""

    samples: Any
    labels: NDArray[Any]


def judge_table(model: onnx.ModelProto, imported: Answered, samples: Any) -> Said | None:
    """Returns what the file says of calibration samples; None where nobody here can run it, where it does not take them, or tells scores and no
    label.

    Args:
        samples: an array or a frame [samples, columns].

    Raises:
        ImportFaultError: what was imported says something else.
    """
    way = opened(model)
    if way is None:
        return None
    chosen = some_rows(samples, _MOST)
    chosen = chosen if hasattr(chosen, "iloc") else np.asarray(chosen)
    first = _judge(model, way, imported, chosen)
    numbers = not hasattr(chosen, "iloc") and chosen.ndim == 2 and chosen.dtype.kind in "fiu"
    if numbers and np.isfinite(chosen).all():
        _judge(model, way, imported, edges_of(chosen.astype(np.float64)))
    if first is None:
        return None
    labels, sure = first
    rows = np.flatnonzero(sure)
    return Said(chosen.iloc[rows] if hasattr(chosen, "iloc") else chosen[rows], labels[rows]) if len(rows) else None


def _judge(
    model: onnx.ModelProto, way: tuple[str, Run], imported: Answered, table: Any
) -> tuple[NDArray[Any], NDArray[np.bool_]] | None:
    """Returns the labels or values that the file gives, if it does, and which of them are sure."""
    by, run = way
    try:
        original_outputs = run([each.name for each in model.graph.output], _inputs(model, table))
    except Exception:  # whatever a run-time of others raises on samples that it does not take
        return None
    try:
        answers = {stage: np.asarray(imported(table, stage)) for stage in _STAGES}
    except ShapeError:  # samples that the imported steps refuse: compiling says so better
        return None
    _compare(model, by, original_outputs, answers)
    first = np.asarray(original_outputs[0])
    if first.size != answers["labels"].size:
        return None
    return first.reshape(answers["labels"].shape), _sure([_numbers(answer) for answer in original_outputs], len(first))


def _compare(
    model: onnx.ModelProto, by: str, original_outputs: list[Any], answers: Mapping[Stage, NDArray[Any]]
) -> None:
    """The label or value comes first, where the file tells it; scores or probabilities of classes are compared with what has their shape."""
    first, numbers = np.asarray(original_outputs[0]), [_numbers(answer) for answer in original_outputs]
    wrong = None
    if first.size == answers["labels"].size:
        labels = answers["labels"].reshape(first.shape)
        sure = _sure(numbers, len(first))
        wrong = (
            difference(first, labels) if first.dtype.kind == "f" else difference(first[sure], labels[sure], share=_FEW)
        )
        numbers = numbers[1:]
    for each in numbers:
        alike = [
            imported
            for imported in (answers["probabilities"], answers["scores"])
            if each is not None and imported.shape == each.shape
        ]
        differences = [difference(each, imported) for imported in alike if each is not None]
        if differences and None not in differences:
            wrong = wrong or differences[0]
    if wrong is not None:
        raise ImportFaultError(
            f"model: as imported '{model.graph.name}' {wrong.text}, by {by}: this is a fault of cloakwork, please report it; compile the fitted "
            "estimator itself, with cloakwork.compile"
        )


def _sure(answers: list[NDArray[Any] | None], count: int) -> NDArray[np.bool_]:
    """Returns samples of which no two scores are equal: a logistic function of large numbers saturates, and the label is any."""
    sure = np.ones(count, dtype=np.bool_)
    for numbers in answers:
        if numbers is not None and numbers.shape[1] > 1:
            ordered = np.sort(numbers, axis=1)
            sure &= ordered[:, -1] - ordered[:, -2] > _TIE
    return sure


def _inputs(model: onnx.ModelProto, table: Any) -> dict[str, NDArray[Any]]:
    """Returns the table as the file takes it: whole, or an input for each column."""
    inputs = given_inputs(model.graph, {tensor.name for tensor in model.graph.initializer})
    if len(inputs) == 1:
        return {inputs[0].name: np.asarray(table).astype(type_of(inputs[0]))}
    columns = (
        [np.asarray(table[name]) for name in table.columns] if hasattr(table, "columns") else list(np.asarray(table).T)
    )
    return {
        each.name: column.astype(type_of(each)).reshape(-1, 1) for each, column in zip(inputs, columns, strict=True)
    }


def _numbers(answer: Any) -> NDArray[Any] | None:
    """Returns [samples, classes]; of dicts by class in their order (ZipMap)."""
    if isinstance(answer, list):
        answer = [list(each.values()) for each in answer]
    array = np.asarray(answer)
    return array if array.ndim == 2 and array.dtype.kind == "f" else None
