"""Runs steps in their order."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cloakwork.fhe_core.errors import ParameterError
from cloakwork.models.arrays import Reals, real_numbers
from cloakwork.models.client_steps.answers import Indicators, LabelGroups, Labels, Outliers, Pick, Squeeze, Transform
from cloakwork.models.client_steps.checks import STAGES, Stage
from cloakwork.models.client_steps.columns import Equal, OneHot, Quantise, Rescale, Saturate, Select
from cloakwork.models.client_steps.feature_tables import feature_labels
from cloakwork.models.client_steps.features import Polynomials, Project, Splines
from cloakwork.models.client_steps.kinds import FIRST_STEPS, InputStep, OutputStep
from cloakwork.models.client_steps.nested import Append, applied, is_single
from cloakwork.models.client_steps.tensors import Named, Tensors
from cloakwork.models.client_steps.texts import Texts
from cloakwork.models.client_steps.transforms import class_threshold, plain_labels
from cloakwork.models.client_steps.unfit import REFUSED, RangeReport, Unfit
from cloakwork.models.errors import ShapeError
from cloakwork.models.graph.last_steps import Softmax

FROM_SCORES: Final = (Labels, LabelGroups, Indicators)
"""Output steps that take scores, not probabilities."""


def run_input_steps(
    steps: Sequence[InputStep], x: Any, report: RangeReport | None = None, unfit: Unfit = REFUSED
) -> Reals:
    """Runs the steps before encryption. Args: report: takes what lies beyond a calibrated range; unfit: what becomes of values that a step does not
    take."""
    with np.errstate(all="ignore"):  # what overflows is beyond every range; what becomes of NaN follows the steps
        for i, step in enumerate(steps):
            if report is not None and isinstance(step, Saturate | Quantise | Rescale):
                numbers = real_numbers(x)
                outside = step.outside(numbers)
                if outside.any():  # names are made for those who read them
                    report.add(outside, column_labels(steps[:i], numbers))
            x = step(x, unfit, report) if isinstance(step, Tensors) else _after(step, steps[:i], x, unfit)
    return x.astype(np.float64) if is_single(x) else x  # type: ignore[no-any-return]


def _after(step: InputStep, before: Sequence[InputStep], x: Any, unfit: Unfit) -> Any:
    """Returns what a step makes of x. Args: before: the steps that made x, which say what its columns are called."""
    if isinstance(step, Append):
        part, path = step.part(x), (*before, Select(step.columns))
        for inner in step.steps:
            part, path = _after(inner, path, part, unfit), (*path, inner)
        return step.joined(x, part)
    unfit.at(lambda x: column_labels(before, x))
    return applied(step, x, unfit)


def column_labels(before: Sequence[InputStep], x: Reals) -> tuple[str, ...] | None:
    """Names the columns of a table x after these steps; None where x is no table."""
    if x.ndim != 2:
        return None
    labels: tuple[str, ...] = ()
    for step in before:
        if isinstance(step, Texts):
            labels = step.vocabulary
        elif isinstance(step, Tensors):
            labels = step.labels()
        elif isinstance(step, FIRST_STEPS):
            labels = feature_labels(step.names, step.count)
        else:
            labels = _labels_after(step, labels)
    return labels if len(labels) == x.shape[1] else feature_labels(None, x.shape[1])


def _labels_after(step: InputStep, labels: tuple[str, ...]) -> tuple[str, ...]:
    """Returns nothing where a step makes new columns."""
    if not labels or isinstance(step, Equal | Project | Polynomials | Splines):
        return ()
    if isinstance(step, Select):
        return tuple(labels[i] for i in step.columns)
    if isinstance(step, OneHot):
        return tuple(
            f"{label}[{k}]" if size else label
            for label, size in zip(labels, step.sizes.tolist(), strict=True)
            for k in range(max(size, 1))
        )
    if isinstance(step, Append):
        appended = tuple(labels[i] for i in step.columns)
        for inner in step.steps:
            appended = _labels_after(inner, appended)
        return (*labels, *appended) if appended else ()
    return labels


def run_output_steps(steps: Sequence[OutputStep], values: Any, until: Stage = "labels") -> Any:
    """Converts values [samples, ..] as the user wants them; of several outputs arrays by name. Stops before the first step of a later stage.

    Labels come from scores, so that saturated probabilities are no ties.
    """
    if until not in STAGES:
        raise ShapeError(f"output: expected one of {', '.join(STAGES)}, got '{until}'")
    if until == "labels" and any(isinstance(step, FROM_SCORES) for step in steps):
        steps = [step for step in steps if step.stage != "probabilities"]
    for step in steps:
        if STAGES.index(step.stage) > STAGES.index(until):
            break
        values = step(values)
    return values


def offered_stages(steps: Sequence[OutputStep]) -> tuple[Stage, ...]:
    """Lists what the client of a service can ask for: no scores that are not sent, no probabilities of regressors."""
    if any(isinstance(step, Pick) for step in steps):
        return ("labels",)
    classifies = any(isinstance(step, (*FROM_SCORES, Softmax)) for step in steps)
    return STAGES if classifies and _has_probabilities(steps) else ("labels", "scores")


def _has_probabilities(steps: Sequence[OutputStep]) -> bool:
    """Whether the client makes of scores something else than decision values or logits; the only class of a model has 1."""
    if any(
        isinstance(step, Softmax) or (isinstance(step, Pick) and len(set(step.labels.tolist())) == 1) for step in steps
    ):
        return True
    decisions = any(isinstance(step, Transform) and step.name == "decision" for step in steps)
    return not decisions and any(isinstance(step, (*FROM_SCORES, Outliers)) for step in steps)


def check_stage(stage: Stage, steps: Sequence[OutputStep]) -> None:
    """Raises ParameterError for an output that there is not, and for probabilities of a model without any."""
    if stage not in STAGES:
        raise ParameterError(f"output: expected one of {', '.join(STAGES)}, got {stage!r}")
    if stage == "probabilities" and not _has_probabilities(steps):
        raise ParameterError("output: the model has no probabilities; expected 'labels' or 'scores'")


def checks_input(steps: Sequence[InputStep]) -> bool:
    """Whether the first step checks what the user has: a table of columns, texts, several tensors; the others take any tensor."""
    return bool(steps) and isinstance(steps[0], (*FIRST_STEPS, Tensors))


def named_inputs(steps: Sequence[InputStep]) -> Tensors | None:
    """Returns the step that takes several inputs by name; None where the model has one."""
    return steps[0] if steps and isinstance(steps[0], Tensors) else None


def named_outputs(steps: Sequence[OutputStep]) -> Named | None:
    """Returns the step that gives several outputs by name; None where the model has one."""
    return steps[-1] if steps and isinstance(steps[-1], Named) else None


def no_samples(steps: Sequence[InputStep]) -> Any | None:
    """Returns what the first step takes, of no samples at all; None where it takes anything.

    Shapes can be tried with it, whatever values the steps refuse: a logarithm zeros, a spline numbers beyond its knots.
    """
    first = steps[0] if steps else None
    if isinstance(first, Tensors):
        return first.no_samples()
    if isinstance(first, Texts):
        return np.zeros(0, dtype=object)
    return np.zeros((0, first.count), dtype=object) if isinstance(first, FIRST_STEPS) else None


def final_steps(transform: str, parameter: float, labels: NDArray[Any] | None) -> tuple[OutputStep, ...]:
    """Returns the steps after the scores of a TreeEnsemble or a LinearModel."""
    last: OutputStep = Squeeze() if labels is None else Labels(plain_labels(labels), class_threshold(transform))
    return Transform(transform, float(parameter), labels is not None), last


# The base of models of tables, trees and linear models alike: scores, and the client's steps after them.


class ScoredModel(ABC):
    """`transform`, then `labels[argmax]` for classifiers; where those cannot say what follows the scores, `after` does, and takes their place."""

    transform: str
    transform_parameter: float
    labels: NDArray[Any] | None
    after: tuple[OutputStep, ...] | None

    @abstractmethod
    def scores(self, x: ArrayLike) -> Reals:
        """Returns [samples, outputs] for samples [samples, features]."""

    def evaluate(self, x: ArrayLike) -> NDArray[Any]:
        """Returns the prediction in clear: labels of classifiers, transformed values of others, [samples] where there is one output."""
        return np.asarray(run_output_steps(self.output_steps, self.scores(x)))

    def probabilities(self, x: ArrayLike) -> Reals:
        """Transforms the scores: [samples, classes], or [samples, outputs] without labels."""
        return np.asarray(run_output_steps(self.output_steps, self.scores(x), "probabilities"))

    @property
    def output_steps(self) -> tuple[OutputStep, ...]:
        """Returns what the client does with the scores."""
        return final_steps(self.transform, self.transform_parameter, self.labels) if self.after is None else self.after
