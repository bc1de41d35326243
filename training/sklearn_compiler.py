"""`compile_estimator` compiles a fitted estimator or pipeline of scikit-learn, XGBoost or LightGBM."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from typing import Any, Final

import numpy as np
import onnx

from cloakwork.models.arrays import Reals, dense, real_numbers
from cloakwork.models.client_steps import (
    Columns,
    Indicators,
    InputStep,
    OutputStep,
    Transform,
    final_steps,
    run_input_steps,
)
from cloakwork.models.compile.labels import after_network, with_score_of_each
from cloakwork.models.compile.options import NetworkOptions
from cloakwork.models.compile.pipeline import OnStep
from cloakwork.models.compile.scaled_columns import ScaledColumns
from cloakwork.models.compile.tables import imported_answers
from cloakwork.models.compiled import CompiledModel
from cloakwork.models.compiler import compile_file
from cloakwork.models.criteria.verdicts import Task
from cloakwork.models.errors import CompileError, ShapeError
from cloakwork.models.linear.compile_linear import compile_linear
from cloakwork.models.linear.linear_model import LinearModel
from cloakwork.models.options import ModelKind, Options
from cloakwork.models.trees.compile_ensemble import compile_ensemble
from cloakwork.models.trees.ensemble import TreeEnsemble
from cloakwork.training.importers.combining import makes_missing
from cloakwork.training.importers.estimator import Given, feature_names, features_of, import_part, labels_of
from cloakwork.training.importers.networks import OUTPUTS
from cloakwork.training.importers.nodes import unwrapped
from cloakwork.training.importers.preprocessing import given_to_last, split_pipeline
from cloakwork.training.importers.ties import above_ties
from cloakwork.training.original import compared, judge_import


def compile_estimator(
    estimator: Any, samples: Any, options: Options | None = None, on_step: OnStep | None = None, **named: Any
) -> CompiledModel:
    """Read the numbers of a fitted estimator and compile them; the steps of a pipeline before it become the client's.

    Args:
        samples: typical samples [samples, columns], such as the training data. Linear models and networks take the ranges of their
            features from them, trees their public grid. Missing values in it say that some may come.
        options: of `cloakwork.compile`; or by name.
        on_step: called with the name of each step of the compiler, and the graph after it.

    Raises:
        CompileError: not fitted, or an option that the compiler does not have.
        UnsupportedOperatorError: an estimator, a step or an option of it that has no encrypted counterpart.
    """
    options = Options.of(options, named)
    brought, given_samples = estimator, samples
    estimator, samples = unwrapped(estimator), dense(samples)
    _check_samples(samples)
    steps, last = split_pipeline(estimator)
    open_steps, _ = split_pipeline(estimator, missing=True)
    features = _features(open_steps, last, samples)
    missing = bool(np.isnan(features).any())
    given = cache(partial(given_to_last, estimator, given_samples))
    part = import_part(last, missing=missing, given=given)
    model = part.model
    if missing and isinstance(model, TreeEnsemble) and model.takes_missing:
        steps = open_steps
    elif steps and missing:
        features = run_input_steps(steps, samples)  # which says what is missing
    if isinstance(model, TreeEnsemble):
        model = above_ties(model, (*steps, *part.steps))
    if part.steps:
        steps = (*(steps or (_columns(last, given, missing and makes_missing(part.steps)),)), *part.steps)
    kind = next(kind for cls, kind in _KINDS if isinstance(model, cls))
    options.check(kind)
    first = steps or (_columns(last, given, isinstance(model, TreeEnsemble) and model.takes_missing),)
    after = _network_results(last) if isinstance(model, onnx.ModelProto) else ()
    judge_import(brought, imported_answers(model, first, after), given_samples, first, _transformed(estimator))
    if isinstance(model, LinearModel):
        compiled = compile_linear(model, samples, options, preprocessing=steps or None)
    elif isinstance(model, TreeEnsemble):
        compiled = compile_ensemble(model, samples, options, preprocessing=steps or None)
    else:
        compiled = _compile_network(model, last, first, samples, options, on_step)
    return compared(brought, compiled, given_samples, 0.0 if options.allow_loss else options.accuracy)


def _transformed(estimator: Any) -> Callable[[Any], Any] | None:
    """Returns the user's own steps before the last estimator."""
    steps = getattr(estimator, "steps", ())
    return estimator[:-1].transform if len(steps) > 1 else None


def _features(steps: tuple[InputStep, ...], estimator: Any, samples: Any) -> Reals:
    """Returns what the estimator is given. CompileError for samples with texts and categories that nothing encodes."""
    if steps:
        return run_input_steps(steps, samples)
    try:
        return real_numbers(samples)
    except ShapeError as error:
        import_part(estimator)  # which may say what it does with categories
        raise CompileError(
            f"samples: expected numbers for {type(estimator).__name__}, got texts or categories; encode them in a pipeline before it, "
            "by OneHotEncoder or OrdinalEncoder"
        ) from error


def _check_samples(samples: Any) -> None:
    if samples is None or (hasattr(samples, "__len__") and len(samples) == 0):
        raise CompileError("samples: expected typical samples, such as the training data, got none")


_KINDS: Final[tuple[tuple[type, ModelKind], ...]] = (
    (LinearModel, "linear"),
    (TreeEnsemble, "trees"),
    (onnx.ModelProto, "network"),
)


def _compile_network(
    model: onnx.ModelProto,
    estimator: Any,
    steps: tuple[InputStep, ...],
    samples: Any,
    options: Options,
    on_step: OnStep | None,
) -> CompiledModel:
    several = (
        estimator.out_activation_ == "logistic" and estimator.n_outputs_ > 1
    )  # labels that do not exclude each other
    task: Task = "classification" if hasattr(estimator, "classes_") and not several else "regression"
    if options.tell == "labels":
        if task != "classification":
            raise CompileError(
                "tell: expected a classifier of one label for 'labels'; this model has none, or several that hold together"
            )
        model = with_score_of_each(model, 0.0)
    exact = options.tell == "labels" or NetworkOptions.from_options(options).is_exact
    columns = ScaledColumns.of(model, steps, samples, options.ranges, rounded=not exact)
    network_options = replace(options, task=options.task or task, ranges=columns.ranges)
    compiled = compile_file(columns.model, columns.samples, network_options, on_step)
    inner = compiled.program  # with steps of its own where its profile or the model rounds
    program = replace(
        inner,
        input_steps=(*columns.steps, *inner.input_steps),
        output_steps=after_network(inner, _network_results(estimator)),
    )
    return replace(compiled, program=program)


def _columns(estimator: Any, given: Given, missing: bool = False) -> Columns:
    """Returns the first step of an estimator without a pipeline."""
    return Columns(features_of(estimator), feature_names(estimator, given), missing)


def _network_results(estimator: Any) -> tuple[OutputStep, ...]:
    """Returns what follows the last layer: values, one label of several, or several labels that may hold together."""
    transform = OUTPUTS[estimator.out_activation_]
    if transform == "sigmoid" and estimator.n_outputs_ > 1:
        return Transform(transform), Indicators()
    return final_steps(transform, 1.0, labels_of(estimator))
