"""Models of tables beside their originals: what was imported, in real numbers, and how the program answers as the user's own model."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, Final, TypeAlias

import numpy as np
import onnx
from numpy.typing import NDArray

from cloakwork.models.arrays import dense
from cloakwork.models.client_steps import InputStep, OutputStep, run_input_steps, run_output_steps
from cloakwork.models.client_steps.running import ScoredModel
from cloakwork.models.compiled import CompiledModel
from cloakwork.models.criteria.verdicts import Verdict
from cloakwork.models.errors import AccuracyError, AccuracyWarning, CalibratedRangeWarning, warn_user
from cloakwork.models.onnx_import.importer import import_onnx
from cloakwork.models.original.agreement import Difference, difference, facts_of, first_sure
from cloakwork.models.original.table import Answered
from cloakwork.models.program.facts import OriginalFacts
from cloakwork.models.runtime.interpreter import interpret

Original: TypeAlias = Iterable[tuple[Any, NDArray[Any]]]
_SEED: Final = 20261129


def imported_answers(
    model: ScoredModel | onnx.ModelProto, steps: Sequence[InputStep], after: Sequence[OutputStep] = ()
) -> Answered:
    """Computes what was imported says of samples as the user has them. Args: after: what the client does with the result of a network."""
    if isinstance(model, onnx.ModelProto):
        graph = import_onnx(model)
        return lambda samples, stage: run_output_steps(
            after, interpret(graph, run_input_steps(steps, dense(samples))), stage
        )
    return lambda samples, stage: run_output_steps(
        model.output_steps, model.scores(run_input_steps(steps, dense(samples))), stage
    )


def judged(compiled: CompiledModel, name: str, original: Original, accuracy: float) -> CompiledModel:
    """Compares and returns the program with how it answers as the user's model does, with the noise of encryption.

    Args:
        accuracy: see `settled`; networks have been checked before.
    """

    def answers(samples: Any) -> NDArray[Any]:
        return np.asarray(compiled.predict(samples, "simulate", seed=_SEED))

    facts = compiled.program.facts
    as_original = settled(name, original, answers, accuracy if facts.check is None else None)
    if facts.grid is not None and facts.grid.at_least is not None and as_original.told == "labels":
        as_original = replace(as_original, at_least=min(as_original.at_least, facts.grid.at_least))
    if facts.original is not None:  # on points between samples, too
        value, at_least = (
            min(as_original.value, facts.original.value),
            min(as_original.at_least, facts.original.at_least),
        )
        as_original = replace(as_original, value=value, at_least=at_least)
    return replace(compiled, program=replace(compiled.program, facts=replace(facts, original=as_original)))


def settled(
    name: str, original: Original, answers: Callable[[Any], NDArray[Any]], accuracy: float | None
) -> OriginalFacts:
    """Compares answers with those of the user's model.

    Args:
        name: of the model, for messages.
        original: samples and the labels or values that the model itself gives to them: first of few samples, then of more, if fewer do not show the
            accuracy.
        answers: of the program, to samples.
        accuracy: that is asked for, see `verdict_of`; None: it is not checked.

    Warns:
        AccuracyWarning: the samples are too few to show it.

    Raises:
        AccuracyError: less is kept, at the lower end of its confidence interval.
    """
    pairs = ((expected, _shaped(answers, samples, expected)) for samples, expected in original)
    verdict, (expected, answered) = first_sure(pairs, accuracy)
    if accuracy is not None and not verdict.reaches(accuracy):
        raise AccuracyError(_loss(name, verdict, accuracy, difference(expected, answered)))
    if accuracy is not None and not verdict.holds(accuracy):
        text = (
            f"{name}: {verdict.samples} samples show that the encrypted model keeps at least {100 * verdict.at_least:.1f} %, not the "
            f"{100 * accuracy:g} % that were asked for (accuracy=); give {verdict.samples_for(accuracy)} or more, or ask for less"
        )
        warn_user(text, AccuracyWarning)
    return facts_of(expected, answered)


def _shaped(answers: Callable[[Any], NDArray[Any]], samples: Any, expected: NDArray[Any]) -> NDArray[Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CalibratedRangeWarning)  # ranges that were given are narrower; it was said
        result = answers(samples)
    return result.reshape(expected.shape) if result.size == expected.size else result


def _loss(name: str, verdict: Verdict, accuracy: float, wrong: Difference | None) -> str:
    says = "decides as it on" if verdict.measure == "agreement" else "keeps its values (docs/howto/trees.md) to"
    end = f"for {verdict.where} at most" if verdict.where else "at least"
    return (
        f"{name}: the encrypted model {says} {100 * verdict.value:.1f} % of {verdict.samples} samples ({end} "
        f"{100 * verdict.at_least:.1f} %), {100 * accuracy:g} % were asked for (accuracy=){'' if wrong is None else f'; it {wrong.text}'}"
    )
