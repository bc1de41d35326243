"""Models of tables beside their originals: what was imported, in real numbers, and how the program answers as the user's own model."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
import onnx
from numpy.typing import NDArray

from cloakwork.models.arrays import dense
from cloakwork.models.client_steps import InputStep, OutputStep, run_input_steps, run_output_steps
from cloakwork.models.client_steps.scored_model import ScoredModel
from cloakwork.models.compiled import CompiledModel
from cloakwork.models.criteria.intervals import ONE_SIDED, wilson
from cloakwork.models.errors import AccuracyError, CalibratedRangeWarning
from cloakwork.models.onnx_import.importer import import_onnx
from cloakwork.models.original.agreement import agreement_of, kept
from cloakwork.models.original.differences import difference
from cloakwork.models.original.table import Answered
from cloakwork.models.runtime.interpreter import interpret

_SEED: Final = 20261129


def imported_answers(
    model: ScoredModel | onnx.ModelProto, steps: Sequence[InputStep], after: Sequence[OutputStep] = ()
) -> Answered:
    """What was imported says of samples as the user has them. Args: after: what the client does with the result of a network."""
    if isinstance(model, onnx.ModelProto):
        graph = import_onnx(model)
        return lambda samples, stage: run_output_steps(
            after, interpret(graph, run_input_steps(steps, dense(samples))), stage
        )
    return lambda samples, stage: run_output_steps(
        model.output_steps, model.scores(run_input_steps(steps, dense(samples))), stage
    )


def judged(compiled: CompiledModel, name: str, samples: Any, expected: NDArray[Any], accuracy: float) -> CompiledModel:
    """The program with how it answers as the user's model does, with the noise of encryption.

    Args:
        name: of the model, for messages.
        samples, expected: labels or values that the model itself gives to them.
        accuracy: that is asked for, see `kept`; networks have been checked before.

    Raises:
        AccuracyError: less is kept.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CalibratedRangeWarning)  # ranges that were given are narrower; it was said
        answers = np.asarray(compiled.predict(samples, "simulate", seed=_SEED))
    answers = answers.reshape(expected.shape) if answers.size == expected.size else answers
    told = agreement_of(expected, answers)
    if compiled.program.facts.check is None and (share := kept(expected, answers)) < accuracy:
        wrong = difference(expected, answers)
        says = "decides as it on" if told.told == "labels" else "keeps its values (docs/trees.md) to"
        raise AccuracyError(
            f"{name}: the encrypted model {says} {100 * share:.1f} % of {told.samples} calibration samples (at least "
            f"{100 * wilson(share, told.samples, -ONE_SIDED):.1f} %), {100 * accuracy:g} % were asked for (accuracy=)"
            f"{'' if wrong is None else f'; it {wrong.text}'}"
        )
    facts = replace(compiled.program.facts, original=told)
    return replace(compiled, program=replace(compiled.program, facts=facts))
