"""The user's own fitted object as the judge of what was imported, and of the program that was made of it."""

from __future__ import annotations

import contextlib
import copy
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from cloakwork.models.arrays import Reals, some_rows
from cloakwork.models.batches.model import BatchModel
from cloakwork.models.client_steps import InputStep, run_input_steps
from cloakwork.models.client_steps.checks import Stage
from cloakwork.models.compile.tables import judged, settled
from cloakwork.models.compiled import CompiledModel
from cloakwork.models.errors import CompileError, ImportFaultError, ShapeError
from cloakwork.models.original.agreement import STAGES, Difference, difference, edges_of
from cloakwork.models.original.table import Answered
from cloakwork.models.program.facts import OriginalFacts
from cloakwork.training.importers.nodes import as_fitted

Answers = dict[Stage, NDArray[Any]]
MOST: Final = 300  # samples
_FEW: Final = 12  # rows that are made edges of
_TIE: Final = 1e-3  # of probabilities that are equal: the label goes either way
_UNSEEN: Final = "a category that nobody has seen"
_MOST_COLUMNS: Final = 16  # that are looked at one by one


def judge_import(
    estimator: Any, imported: Answered, samples: Any, steps: tuple[InputStep, ...], transformed: Any
) -> None:
    """Compares on calibration samples, and on others at their edges where the user's object takes these.

    Args:
        estimator: as the user brought it.
        samples: for calibration.
        steps: of the client, as imported.
        transformed: what the user's own steps make of samples; None where there are none.

    Raises:
        ImportFaultError: they differ; names the step.
    """
    judge, samples = without_program(estimator), as_fitted(estimator, samples)
    chosen = some_rows(samples, MOST)
    _check_that_it_answers(judge, chosen)
    with contextlib.suppress(ShapeError):  # samples that the imported steps refuse: compiling says so better
        _compare(estimator, judge, imported, chosen, "calibration sample", steps, transformed)
    for edges in _edges(some_rows(samples, _FEW), samples):
        try:
            _compare(
                estimator,
                judge,
                imported,
                edges,
                "a sample at the edges of the samples, number",
                steps,
                transformed,
            )
        except ImportFaultError:
            raise
        except Exception:  # one of the two refuses such samples, which is no silent difference
            continue


def compared(estimator: Any, compiled: CompiledModel, samples: Any, accuracy: float) -> CompiledModel:
    """Returns the program with how it answers as the user's object does, on calibration samples. AccuracyError: see `judged`."""
    return judged(compiled, type(estimator).__name__, _labels(estimator, samples), accuracy)


def compared_batch(
    estimator: Any, batch: BatchModel, scores: Callable[[Any], Reals], samples: Any, accuracy: float
) -> BatchModel:
    """Returns the same of a batch.

    Args:
        scores: that were imported, of samples as the user has them [samples, scores], in real numbers.

    Raises:
        ImportFaultError: they decide otherwise than the user's object.
        AccuracyError: see `settled`.
    """
    name, decides = type(estimator).__name__, batch.client.decide
    for rows, expected in _labels(estimator, samples):
        answers = decides(scores(rows))
        wrong = difference(expected, answers.reshape(expected.shape) if answers.size == expected.size else answers)
        if wrong is not None:
            raise ImportFaultError(_fault(name, wrong.text, "predict", f"{name} itself"))
    original = settled(name, _labels(estimator, samples), batch.predict, accuracy)
    return replace(batch, original=original)


def compared_answers(
    estimator: Any,
    samples: Any,
    expected: Callable[[Any], Any],
    answers: Callable[[Any], NDArray[Any]],
    accuracy: float,
) -> OriginalFacts:
    """Compares a compiled thing without a program with the estimator's own `predict`. AccuracyError: see `settled`."""
    chosen = (some_rows(samples, most) for most in STAGES)
    original = ((rows, np.asarray(_quietly(expected, rows))) for rows in chosen)
    return settled(type(estimator).__name__, original, answers, accuracy)


def _labels(estimator: Any, samples: Any) -> Iterator[tuple[Any, NDArray[Any]]]:
    """Yields labels or values that the user's object gives: to few samples, then to more."""
    judge, samples = without_program(estimator), as_fitted(estimator, samples)
    for most in STAGES:
        rows = some_rows(samples, most)
        yield rows, answers_of(judge, rows)["labels"]


def answers_of(judge: Any, samples: Any) -> Answers:
    """Returns the answers of `predict`, and `predict_proba` or, without it, `decision_function`. Whatever the object raises."""
    answers: Answers = {"labels": np.asarray(_quietly(judge.predict, samples))}
    if callable(getattr(judge, "predict_proba", None)):
        shares = _quietly(judge.predict_proba, samples)
        answers["probabilities"] = np.concatenate(shares, axis=1) if isinstance(shares, list) else np.asarray(shares)
    elif hasattr(judge, "classes_") and callable(getattr(judge, "decision_function", None)):
        answers["scores"] = np.asarray(_quietly(judge.decision_function, samples))
    return answers


def _check_that_it_answers(judge: Any, samples: Any) -> None:
    try:
        answers_of(judge, some_rows(samples, 1))
    except Exception as error:  # whatever the user's object raises
        line = " ".join(str(error).split())[:200]
        raise CompileError(
            f"samples: {type(judge).__name__} itself refuses these samples ({type(error).__name__}: {line}); give samples as it was fitted on"
        ) from error


def without_program(estimator: Any) -> Any:
    """Returns the same fitted object, which answers itself where cloakwork's estimators have been compiled before."""
    from sklearn.pipeline import Pipeline

    if isinstance(estimator, Pipeline):
        result = copy.copy(estimator)
        result.steps = [(name, without_program(step)) for name, step in estimator.steps]
        return result
    programs = [name for name in ("compiled_", "batch_") if name in getattr(estimator, "__dict__", {})]
    if not programs:
        return estimator
    result = copy.copy(estimator)
    for name in programs:
        vars(result).pop(name, None)
    return result


def _compare(
    estimator: Any,
    judge: Any,
    imported: Answered,
    samples: Any,
    which: str,
    steps: tuple[InputStep, ...],
    transformed: Any,
) -> None:
    answers = answers_of(judge, samples)
    for stage in ("probabilities", "scores", "labels"):
        if stage not in answers:
            continue
        wrong = _difference(answers, np.asarray(imported(samples, stage)), stage)
        if wrong is not None:
            where = _wrong_step(steps, transformed, samples) or f"{type(_last(estimator)).__name__} itself"
            method = {"probabilities": "predict_proba", "scores": "decision_function", "labels": "predict"}[stage]
            text = wrong.text.replace(f"sample {wrong.sample};", f"{which} {wrong.sample};")
            raise ImportFaultError(_fault(type(estimator).__name__, text, method, where))


def _fault(name: str, text: str, method: str, where: str) -> str:
    return (
        f"{name}: as imported it {text}, by its own {method}; the step that differs is {where}. This is a fault of cloakwork, please report it; "
        "leave that step or option out, or apply it to the table yourself"
    )


def _difference(answers: Answers, imported: NDArray[Any], stage: Stage) -> Difference | None:
    expected = answers[stage]
    if stage == "scores" and expected.ndim == 1 and imported.ndim == 2 and imported.shape[1] == 1:
        imported = imported[:, 0]
    if stage != "labels" or expected.dtype.kind == "f" or "probabilities" not in answers:
        return difference(expected, imported)
    shares = np.sort(answers["probabilities"], axis=-1)
    if shares.ndim != 2 or shares.shape[1] < 2 or expected.ndim > 1 or imported.shape != expected.shape:
        return difference(expected, imported)
    clear = shares[:, -1] - shares[:, -2] > _TIE
    return difference(np.where(clear, expected, expected[:1]), np.where(clear, imported, expected[:1]))


def _wrong_step(steps: tuple[InputStep, ...], transformed: Any, samples: Any) -> str:
    """Says that the steps before the estimator differ, if they do."""
    if transformed is None:
        return ""
    try:
        expected = transformed(samples)
        expected = np.asarray(expected.toarray() if hasattr(expected, "toarray") else expected, dtype=np.float64)
        wrong = difference(expected, run_input_steps(steps, samples))
    except Exception:
        return ""
    return "" if wrong is None else f"among the transformers before it, whose column of sample {wrong.sample} differs"


def _edges(rows: Any, samples: Any) -> Iterator[Any]:
    """Groups of samples at the edges of typical ones: ends of ranges and values outside, zeros, missing values, words and categories that are new."""
    if hasattr(rows, "columns"):
        yield from _edges_of_frame(rows, samples)
        return
    if hasattr(rows, "toarray"):  # absent numbers may mean something else than zeros
        yield from (type(rows)(edges) for edges in _edges(rows.toarray(), samples.toarray()))
        return
    table = np.asarray(samples)
    if table.ndim == 1 and table.dtype.kind in "OU":
        yield type(rows)([_UNSEEN, ""]) if isinstance(rows, list) else np.array([_UNSEEN, ""], dtype=object)
    if table.ndim != 2 or table.dtype.kind not in "fiu":
        return
    numbers = table.astype(np.float64)
    missing = np.isnan(numbers)
    known = numbers[~missing.any(axis=1)]
    if len(known):
        yield edges_of(known)
    if missing.any():
        yield np.where(missing.any(axis=0), np.nan, np.asarray(rows, dtype=np.float64))


def _edges_of_frame(rows: Any, samples: Any) -> Iterator[Any]:
    numbers = [name for name in rows.columns if samples[name].dtype.kind in "fiu"]
    ends = [(samples[name].min(), samples[name].max()) for name in numbers]
    for at in (
        [low for low, _ in ends],
        [high for _, high in ends],
        [0 * low for low, _ in ends],
        [high + (high - low) // 4 for low, high in ends],
    ):
        edges = rows.copy()
        for name, value in zip(numbers, at, strict=True):
            edges[name] = value
        yield edges
    texts = [name for name in rows.columns if samples[name].dtype.kind == "O" or "str" in str(samples[name].dtype)]
    for name in texts[:_MOST_COLUMNS]:
        edges = rows.copy()
        edges[name] = _UNSEEN
        yield edges
    for name in [name for name in rows.columns if samples[name].isna().any()][:_MOST_COLUMNS]:
        edges = rows.copy()
        edges.loc[:, name] = samples[name][samples[name].isna()].iloc[0]
        yield edges


def _last(estimator: Any) -> Any:
    steps = getattr(estimator, "steps", None)
    return steps[-1][1] if steps else estimator


def _quietly(method: Callable[[Any], Any], samples: Any) -> Any:
    """Warnings of the user's object are its own affair."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return method(samples)
