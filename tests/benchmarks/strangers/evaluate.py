"""One stranger: trained, compiled, and its answers in clear, quantised and simulated side by side."""

from __future__ import annotations

import argparse
import json
import signal
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnxruntime
from numpy.typing import NDArray

import cloakwork as cw
from cloakwork.models.compiled import CompiledModel
from cloakwork.models.errors import CompileError

from .data import Data, load
from .recipes import Stranger, is_issue_row
from .train import CACHE, fitted, onnx_model

ALLOWED_LOSS: Final = 1.5  # points

Answers = NDArray[Any]
Record = dict[str, Any]


@dataclass(frozen=True)
class Settings:
    """Args:
    samples: of the test data; small tables have fewer.
    simulated: answers; small tables are simulated several times over.
    calibration: training samples that the compiler sees.
    options: of the compiler; a stranger's own win.
    limit_seconds: for one stranger.
    """

    samples: int = 500
    simulated: int = 500
    calibration: int = 400
    options: Mapping[str, Any] | None = None
    limit_seconds: int = 600
    cache: Path = CACHE
    train_again: bool = False


@dataclass(frozen=True, eq=False)
class Prepared:
    """A trained stranger, and how to compile it and to ask it in clear."""

    data: Data
    compile: Callable[[], CompiledModel]
    clear: Callable[[NDArray[Any]], Answers]
    probabilities: bool  # a binary answer is one, not a logit


def prepare(stranger: Stranger, settings: Settings) -> Prepared:
    data = load(stranger.data)
    calibration = data.train_x[: settings.calibration]
    options = {**(settings.options or {}), **stranger.options}
    if stranger.estimator is not None:
        estimator = fitted(stranger, data)
        return Prepared(data, lambda: cw.compile(estimator, calibration, **options), estimator.predict, True)
    model = onnx_model(stranger, data, cache=settings.cache, again=settings.train_again)
    session = onnxruntime.InferenceSession(model.SerializeToString(), _one_thread(), ["CPUExecutionProvider"])
    seen = None if stranger.quantised else calibration
    return Prepared(
        data,
        lambda: cw.compile(model, seen, **options),
        lambda x: np.asarray(session.run(None, {"x": x})[0]),
        any(node.op_type == "Sigmoid" and "y" in node.output for node in model.graph.node),
    )


def evaluate(stranger: Stranger, settings: Settings) -> Record:
    """Everything of the table about it; `status` is "ok", "worse" (more than ALLOWED_LOSS points lost), "refused" (an error of the compiler) or
    "broken" (another)."""
    record: Record = {
        "name": stranger.name,
        "architecture": stranger.architecture,
        "data": stranger.data,
        "issue_row": is_issue_row(stranger),
    }
    try:
        with _time_limit(settings.limit_seconds):
            record |= _evaluated(stranger, settings)
    except CompileError as error:
        record |= {"status": "refused", "message": f"{type(error).__name__}: {error}"}
    except Exception as error:
        record |= {"status": "broken", "message": f"{type(error).__name__}: {error}"}
    return record


def option(text: str) -> tuple[str, Any]:
    """NAME=VALUE of a command line; the value is JSON or else text."""
    name, equals, value = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"expected NAME=VALUE, got '{text}'")
    try:
        return name, json.loads(value)
    except json.JSONDecodeError:
        return name, value


def _evaluated(stranger: Stranger, settings: Settings) -> Record:
    ready = prepare(stranger, settings)
    data, x, y = ready.data, ready.data.test_x[: settings.samples], ready.data.test_y[: settings.samples]
    clear = ready.clear(x)
    began = time.monotonic()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # values beyond the calibrated range, ranges that interval arithmetic gives
        try:
            compiled = ready.compile()
        except CompileError as error:
            refused = {"status": "refused", "message": f"{type(error).__name__}: {error}"}
            return {**refused, "clear": _score(ready, clear, y), "compile_seconds": time.monotonic() - began}
        compiled_after = time.monotonic() - began
        quantised = compiled.predict(x)
        repeats = max(1, -(-settings.simulated // len(x)))
        began = time.monotonic()
        simulated = [compiled.predict(x, how="simulate", seed=seed) for seed in range(repeats)]
    found = {
        "task": data.task,
        "samples": len(x),
        "simulations": repeats,
        "clear": _score(ready, clear, y),
        "quantised": _score(ready, quantised, y),
        "simulated": float(np.mean([_score(ready, answers, y) for answers in simulated])),
        "drop_deviation": float(np.mean([_drop_deviation(ready, clear, answers, y) for answers in simulated])),
        "quantised_agreement": _agreement(ready, quantised, clear),
        "simulated_agreement": _mean([_agreement(ready, answers, clear) for answers in simulated]),
        "quantised_error": _relative_error(quantised, clear),
        "simulated_error": _mean([_relative_error(answers, clear) for answers in simulated]),
        "compile_seconds": compiled_after,
        "simulate_seconds": (time.monotonic() - began) / repeats / len(x),
        **_facts(compiled),
    }
    found["status"] = "ok" if found["clear"] - found["simulated"] <= ALLOWED_LOSS else "worse"
    return found


def _facts(compiled: CompiledModel) -> Record:
    report = compiled.report()
    return {
        "lookups": report["bootstraps"],
        "levels": len(report["bootstraps_per_level"]),
        "parameter_set": report["parameter_set"],
        "profile": report.get("profile", report["noise_limit_percent"]),
        "layers": [
            {key: value for key, value in layer.items() if key in ("name", "noise_percent", "weight_bits")}
            for layer in report["layers"]
        ],
        "estimated_seconds": report["estimated_seconds"],
    }


def _decided(ready: Prepared, answers: Answers) -> Answers:
    """Class numbers [samples] from scores, a probability, a logit or from labels."""
    if answers.ndim > 1 and answers.shape[-1] > 1:
        return np.asarray(answers.reshape(len(answers), -1).argmax(axis=1))
    return (answers.reshape(-1) > (0.5 if ready.probabilities else 0.0)).astype(np.int64)


def _score(ready: Prepared, answers: Answers, y: Answers) -> float:
    """Accuracy, or the share of the variance that is explained (R2), in per cent."""
    if ready.data.task != "values":
        return 100 * float((_decided(ready, answers) == y).mean())
    residual = np.square(answers.reshape(y.shape) - y).sum()
    return 100 * float(1 - residual / np.square(y - y.mean(axis=0)).sum())


def _drop_deviation(ready: Prepared, clear: Answers, answers: Answers, y: Answers) -> float | None:
    """Standard error, in points, of the difference of two accuracies on the same samples."""
    if ready.data.task == "values":
        return float("nan")
    changed = (_decided(ready, clear) == y) != (_decided(ready, answers) == y)
    return 100 * float(np.sqrt(changed.sum())) / len(y)


def _agreement(ready: Prepared, answers: Answers, clear: Answers) -> float | None:
    if ready.data.task == "values":
        return None
    return 100 * float((_decided(ready, answers) == _decided(ready, clear)).mean())


def _relative_error(answers: Answers, clear: Answers) -> float | None:
    """Root mean square of the difference in deviations of the clear answers, per cent; None for labels."""
    if not np.issubdtype(clear.dtype, np.floating):
        return None
    difference = answers.reshape(clear.shape) - clear
    return 100 * float(np.sqrt(np.square(difference).mean()) / max(float(clear.std()), 1e-30))


def _mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None


def _one_thread() -> onnxruntime.SessionOptions:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    return options


@contextmanager
def _time_limit(seconds: int) -> Iterator[None]:
    def stop(*_: object) -> None:
        raise TimeoutError(f"took more than {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
