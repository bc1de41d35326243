"""`compile_estimator`: a fitted estimator or pipeline of scikit-learn, XGBoost or LightGBM as a compiled model."""

from __future__ import annotations

import inspect
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
from cloakwork.models.compile.options import DEFAULT_ACCURACY
from cloakwork.models.compile.scaled_columns import ScaledColumns
from cloakwork.models.compile.tables import imported_answers
from cloakwork.models.compiler import CompiledModel, compile_onnx
from cloakwork.models.criteria.feature_ranges import OPTION
from cloakwork.models.criteria.noise_limits import AUTO, noise_limits
from cloakwork.models.errors import CompileError, ShapeError, some
from cloakwork.models.linear.compile_linear import compile_linear
from cloakwork.models.linear.linear_model import LinearModel
from cloakwork.models.trees.compile_ensemble import compile_ensemble
from cloakwork.models.trees.ensemble import TreeEnsemble
from cloakwork.training.importers.combining import makes_missing
from cloakwork.training.importers.estimator import Given, Imported, feature_names, features_of, import_part, labels_of
from cloakwork.training.importers.networks import OUTPUTS
from cloakwork.training.importers.nodes import unwrapped
from cloakwork.training.importers.preprocessing import given_to_last, split_pipeline
from cloakwork.training.importers.ties import above_ties
from cloakwork.training.original import compared, judge_import


def compile_estimator(estimator: Any, calibration: Any, **options: Any) -> CompiledModel:
    """Reads the numbers of a fitted estimator and compiles them; the steps of a pipeline before it become the client's.

    Args:
        calibration: typical samples [samples, columns], such as the training data. Linear models and networks take the ranges of their
            features from them, trees their public grid. Missing values in it say that some may come.
        options: of `compile_linear`, `compile_ensemble` or `compile_onnx`, whichever the estimator leads to.

    Raises:
        CompileError: not fitted, or an option that the compiler does not have.
        UnsupportedOperatorError: an estimator, a step or an option of it that has no encrypted counterpart.
    """
    brought, given_samples = estimator, calibration
    estimator, calibration = unwrapped(estimator), dense(calibration)
    _check_samples(calibration)
    steps, last = split_pipeline(estimator)
    open_steps, _ = split_pipeline(estimator, missing=True)
    features = _features(open_steps, last, calibration)
    missing = bool(np.isnan(features).any())
    given = cache(partial(given_to_last, estimator, given_samples))
    part = import_part(last, missing=missing, given=given)
    model = part.model
    if missing and isinstance(model, TreeEnsemble) and model.takes_missing:
        steps = open_steps
    elif steps and missing:
        features = run_input_steps(steps, calibration)  # which says what is missing
    if isinstance(model, TreeEnsemble):
        model = above_ties(model, (*steps, *part.steps))
    if part.steps:
        steps = (*(steps or (_columns(last, given, missing and makes_missing(part.steps)),)), *part.steps)
    _check_options(model, last, options)
    first = steps or (_columns(last, given, isinstance(model, TreeEnsemble) and model.takes_missing),)
    after = _network_results(last) if isinstance(model, onnx.ModelProto) else ()
    judge_import(brought, imported_answers(model, first, after), given_samples, first, _transformed(estimator))
    if isinstance(model, LinearModel):
        compiled = compile_linear(model, calibration, preprocessing=steps or None, **options)
    elif isinstance(model, TreeEnsemble):
        compiled = compile_ensemble(model, preprocessing=steps or None, calibration=calibration, **options)
    else:
        compiled = _compile_network(model, last, first, calibration, options)
    return compared(brought, compiled, given_samples, _least(options))


def _least(options: dict[str, Any]) -> float:
    """The accuracy that was asked for; any, where a loss is allowed."""
    return 0.0 if options.get("allow_loss") else float(options.get("accuracy", DEFAULT_ACCURACY) or 0.0)


def _transformed(estimator: Any) -> Callable[[Any], Any] | None:
    """The user's own steps before the last estimator."""
    steps = getattr(estimator, "steps", ())
    return estimator[:-1].transform if len(steps) > 1 else None


def _features(steps: tuple[InputStep, ...], estimator: Any, calibration: Any) -> Reals:
    """What the estimator is given. CompileError for samples with texts and categories that nothing encodes."""
    if steps:
        return run_input_steps(steps, calibration)
    try:
        return real_numbers(calibration)
    except ShapeError as error:
        import_part(estimator)  # which may say what it does with categories
        raise CompileError(
            f"calibration: expected numbers for {type(estimator).__name__}, got texts or categories; encode them in a pipeline before it, "
            "by OneHotEncoder or OrdinalEncoder"
        ) from error


def _check_samples(calibration: Any) -> None:
    if calibration is None or (hasattr(calibration, "__len__") and len(calibration) == 0):
        raise CompileError("calibration: expected typical samples, such as the training data, got none")


def _check_options(model: Imported, estimator: Any, options: dict[str, Any]) -> None:
    """CompileError for an option that the compiler of this kind of model does not have."""
    compiler, kind = next((c, k) for of, c, k in _COMPILERS if isinstance(model, of))
    signature = inspect.signature(inspect.unwrap(compiler)).parameters.values()
    known = [p.name for p in signature if p.kind is p.KEYWORD_ONLY and p.name not in _OWN_OPTIONS]
    strange = sorted(set(options) - set(known))
    if strange:
        raise CompileError(
            f"{type(estimator).__name__}: {some(strange)} is no option of {kind}; expected {', '.join(known)}, or none of them"
        )


_OWN_OPTIONS: Final = ("preprocessing", "calibration")  # which compile_estimator gives itself
_COMPILERS: Final[tuple[tuple[type, Callable[..., CompiledModel], str], ...]] = (
    (LinearModel, compile_linear, "a linear model"),
    (TreeEnsemble, compile_ensemble, "an ensemble of trees"),
    (onnx.ModelProto, compile_onnx, "a network"),
)


def _compile_network(
    model: onnx.ModelProto, estimator: Any, steps: tuple[InputStep, ...], calibration: Any, options: dict[str, Any]
) -> CompiledModel:
    several = (
        estimator.out_activation_ == "logistic" and estimator.n_outputs_ > 1
    )  # labels that do not exclude each other
    task = "classification" if hasattr(estimator, "classes_") and not several else "regression"
    argmax = bool(options.get("encrypted_argmax"))
    if argmax:
        if task != "classification":
            raise CompileError(
                "encrypted_argmax: expected a classifier of one label; this model has none, or several that hold together"
            )
        model = with_score_of_each(model, 0.0)
    exact = argmax or noise_limits(options.get("profile", AUTO)).p_fail_log2 is not None
    columns = ScaledColumns.of(model, steps, calibration, options.get(OPTION), rounded=not exact)
    compiled = compile_onnx(columns.model, columns.samples, **{"task": task, **options, OPTION: columns.ranges})
    inner = compiled.program  # with steps of its own where its profile or the model rounds
    program = replace(
        inner,
        input_steps=(*columns.steps, *inner.input_steps),
        output_steps=after_network(inner, _network_results(estimator)),
    )
    return replace(compiled, program=program)


def _columns(estimator: Any, given: Given, missing: bool = False) -> Columns:
    """The first step of an estimator without a pipeline."""
    return Columns(features_of(estimator), feature_names(estimator, given), missing)


def _network_results(estimator: Any) -> tuple[OutputStep, ...]:
    """What follows the last layer: values, one label of several, or several labels that may hold together."""
    transform = OUTPUTS[estimator.out_activation_]
    if transform == "sigmoid" and estimator.n_outputs_ > 1:
        return Transform(transform), Indicators()
    return final_steps(transform, 1.0, labels_of(estimator))
