"""The steps of a fitted pipeline before its estimator, as what the client does before encryption."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import numpy as np

from cloakwork.models.arrays import Reals, dense, is_missing
from cloakwork.models.client_steps import InputStep, OneHot, Project, Saturate
from cloakwork.models.client_steps.column_flow import Codes, ColumnFlow, Recipe
from cloakwork.models.client_steps.first import REFUSE
from cloakwork.models.errors import CompileError, UnsupportedNode, UnsupportedOperatorError
from cloakwork.training.importers import features
from cloakwork.training.importers.nodes import (
    as_fitted,
    check_own_methods,
    is_fitted,
    nearest_of,
    unsupported_option,
    unwrapped,
)
from cloakwork.training.importers.texts import VECTORIZERS, vectorized, weighted


def split_pipeline(estimator: Any, *, missing: bool = False) -> tuple[tuple[InputStep, ...], Any]:
    """Returns the client's steps and the last estimator; no steps for anything that is not a Pipeline.

    Args:
        missing: the estimator takes missing values, so that those which no step fills go on to it.
    """
    from sklearn.pipeline import Pipeline

    if not isinstance(estimator, Pipeline):
        return (), estimator
    before: list[Any] = []
    last = estimator
    while isinstance(last, Pipeline):
        check_own_methods(last, Pipeline)
        *first, last = [step for _, step in last.steps]
        before += [step for step in first if not _passes(step)]
        last = unwrapped(last)
    return (input_steps(before, missing=missing), last) if before else ((), last)


def given_to_last(estimator: Any, samples: Any) -> Any:
    """Returns samples, 2,000 of many, as the last estimator of a pipeline gets them, by its own fitted steps: as a sparse matrix, say."""
    from sklearn.pipeline import Pipeline

    given = samples[:_ENOUGH]
    given = as_fitted(estimator, given) if isinstance(estimator, Pipeline) else given
    while isinstance(estimator, Pipeline):
        for _, step in estimator.steps[:-1]:
            given = given if _passes(step) else step.transform(given)
        estimator = unwrapped(estimator.steps[-1][1])
    return given


_ENOUGH: Final = 2000


def input_steps(transformers: list[Any], *, missing: bool = False) -> tuple[InputStep, ...]:
    """Returns fitted transformers, one after the other; the first one names the columns, or takes texts."""
    from sklearn.feature_selection import SelectorMixin

    flat = [step for transformer in transformers for step in _flat(transformer) if not _passes(step)]
    if not flat:
        return ()
    first, *others = flat
    if _kind(first) in VECTORIZERS:
        flow, recipe = vectorized(first, _kind(first))
    elif _kind(first) not in _READERS and not isinstance(first, SelectorMixin):
        raise _no_counterpart(first)
    elif not is_fitted(first):
        raise CompileError(f"pipeline: {type(first).__name__} is not fitted; call fit(X, y) of the pipeline first")
    elif not hasattr(first, "n_features_in_"):
        raise UnsupportedOperatorError(
            f"pipeline: {type(first).__name__} does not say how many columns it takes, as several vectorizers side by side do not; expected a "
            "fitted transformer of a table, or one vectorizer"
        )
    else:
        names = getattr(first, "feature_names_in_", None)
        flow = ColumnFlow(int(first.n_features_in_), None if names is None else tuple(str(name) for name in names))
        recipe = _apply(first, flow, flow.start())
    for transformer in others:
        recipe = _apply(transformer, flow, recipe)
    _check_columns(recipe)
    try:
        return flow.finish(recipe, missing)
    except UnsupportedNode as error:
        raise UnsupportedOperatorError(f"pipeline: {error}") from error


def _flat(transformer: Any) -> list[Any]:
    """Returns the steps of a pipeline and of those within it, one after the other."""
    if _kind(transformer) != "Pipeline":
        return [transformer]
    return [inner for _, step in transformer.steps for inner in _flat(step)]


def _passes(step: Any) -> bool:
    return step is None or (isinstance(step, str) and step == "passthrough")


def _apply(transformer: Any, flow: ColumnFlow, recipe: Recipe) -> Recipe:
    """Returns one fitted transformer on the columns of a recipe."""
    from sklearn.feature_selection import SelectorMixin

    _check_columns(recipe)
    kind = _kind(transformer)
    if isinstance(transformer, SelectorMixin):
        return [recipe[int(i)] for i in transformer.get_support(indices=True)]
    if kind in VECTORIZERS:
        raise UnsupportedOperatorError(
            f"pipeline: {type(transformer).__name__} beside other columns cannot be imported; compile a pipeline of texts alone, which starts with it"
        )
    if kind not in _READERS:
        raise _no_counterpart(transformer)
    try:
        return _READERS[kind](transformer, flow, recipe)
    except UnsupportedNode as error:
        raise UnsupportedOperatorError(f"pipeline: {type(transformer).__name__} {error}") from error


def _no_counterpart(transformer: Any) -> UnsupportedOperatorError:
    return UnsupportedOperatorError(
        f"pipeline: {type(transformer).__name__} has no counterpart at the client; {nearest_of(_kind(transformer), _READERS)}; "
        "docs/howto/scikit-learn.md lists all; a step of your own goes before the pipeline"
    )


_SELECTION: Final = ("get_support", "_get_support_mask")  # which are asked, whoever wrote them


def _check_columns(recipe: Recipe) -> None:
    if not recipe:
        raise UnsupportedOperatorError("pipeline: its steps leave no column; expected one at least")


def _kind(transformer: Any) -> str:
    """Returns the name of scikit-learn's class, or of the first one that is extended."""
    for cls in type(transformer).__mro__:
        if cls.__module__.startswith("sklearn.") and not cls.__name__.startswith("_"):
            check_own_methods(transformer, cls, allowed=_SELECTION)
            return str(cls.__name__)
    return type(transformer).__name__


# --- transformers of transformers ------------------------------------------------------------------------------------------------------


def _pipeline(transformer: Any, flow: ColumnFlow, recipe: Recipe) -> Recipe:
    for _, step in transformer.steps:
        if not _passes(step):
            recipe = _apply(step, flow, recipe)
    return recipe


def _column_transformer(transformer: Any, flow: ColumnFlow, recipe: Recipe) -> Recipe:
    """Applies parts in their order, then the rest."""
    positions = transformer._transformer_to_input_indices  # of columns by number, name, mask, slice or function alike
    result: Recipe = []
    for name, part, _ in transformer.transformers_:
        if isinstance(part, str) and part == "drop":
            continue
        chosen = [recipe[int(i)] for i in positions[name]]
        if chosen:
            transformed = chosen if _passes(part) else _apply(part, flow, chosen)
            result += _weighed(transformer, name, flow, transformed)
    return result


def _weighed(transformer: Any, name: str, flow: ColumnFlow, recipe: Recipe) -> Recipe:
    """Returns a part of a transformer of transformers, times its weight."""
    weight = (transformer.transformer_weights or {}).get(name)
    return recipe if weight is None else flow.arithmetic(recipe, 0.0, weight)


def _feature_union(transformer: Any, flow: ColumnFlow, recipe: Recipe) -> Recipe:
    """Returns what each part makes of all columns, side by side."""
    result: Recipe = []
    for name, part in transformer.transformer_list:
        if not (isinstance(part, str) and part == "drop"):
            transformed = recipe if _passes(part) else _apply(part, flow, recipe)
            result += _weighed(transformer, name, flow, transformed)
    return result


# --- column by column --------------------------------------------------------------------------------------------------------------


def _standard_scaler(transformer: Any, flow: ColumnFlow, recipe: Recipe) -> Recipe:
    offset = transformer.mean_ if transformer.with_mean else 0.0
    return flow.arithmetic(recipe, offset, _one_or(transformer.scale_), "over")


def _robust_scaler(transformer: Any, flow: ColumnFlow, recipe: Recipe) -> Recipe:
    offset = 0.0 if transformer.center_ is None else transformer.center_
    return flow.arithmetic(recipe, offset, _one_or(transformer.scale_), "over")


def _one_or(scale: Any) -> Any:
    return 1.0 if scale is None else scale


def _min_max_scaler(transformer: Any, flow: ColumnFlow, recipe: Recipe) -> Recipe:
    scaled = flow.arithmetic(flow.arithmetic(recipe, 0.0, transformer.scale_), -transformer.min_, 1.0)
    return _clipped(flow, scaled, *transformer.feature_range) if transformer.clip else scaled


def _max_abs_scaler(transformer: Any, flow: ColumnFlow, recipe: Recipe) -> Recipe:
    scaled = flow.arithmetic(recipe, 0.0, transformer.scale_, "over")
    return _clipped(flow, scaled, -1.0, 1.0) if getattr(transformer, "clip", False) else scaled


def _clipped(flow: ColumnFlow, recipe: Recipe, low: float, high: float) -> Recipe:
    count = len(recipe)
    return flow.apply(recipe, (Saturate(np.full(count, float(low)), np.full(count, float(high))),), count)


def _normalizer(transformer: Any, flow: ColumnFlow, recipe: Recipe) -> Recipe:
    return flow.normalise(recipe, str(transformer.norm))


# --- missing values ------------------------------------------------------------------------------------------------------------------


def _imputer(transformer: Any, flow: ColumnFlow, recipe: Recipe) -> Recipe:
    """Columns without any value in training are left out, unless they are kept; which values were missing comes last."""
    _check_marker(transformer)
    fills = [value.item() if isinstance(value, np.generic) else value for value in transformer.statistics_]
    kept = [i for i, value in enumerate(fills) if value is None or not is_missing(value)]
    if len(kept) < len(fills) and transformer.keep_empty_features:
        raise unsupported_option(transformer, "fill value", fills, "fill in numbers or texts")
    strange = [fills[i] for i in kept if not isinstance(fills[i], str | int | float)]
    if strange:
        raise unsupported_option(transformer, "fill value", strange[0], "fill in numbers or texts")
    filled = flow.fill([recipe[i] for i in kept], [fills[i] for i in kept]) if kept else []
    return filled + (_indicator(transformer.indicator_, flow, recipe) if transformer.add_indicator else [])


def _indicator(transformer: Any, flow: ColumnFlow, recipe: Recipe) -> Recipe:
    """1 where a value is missing, of the columns that had missing ones in training or of all."""
    _check_marker(transformer)
    chosen = [recipe[int(i)] for i in transformer.features_]
    return flow.missing(chosen) if chosen else []


def _check_marker(transformer: Any) -> None:
    if not is_missing(transformer.missing_values):
        raise unsupported_option(
            transformer, "missing_values", transformer.missing_values, "mark missing values by NaN"
        )


# --- categories ----------------------------------------------------------------------------------------------------------------------


def _one_hot_encoder(transformer: Any, flow: ColumnFlow, recipe: Recipe) -> Recipe:
    """A column of the encoder's output has the number at which its indicator is 1; rare categories share one, a dropped one has none."""
    answers = _answers(transformer)
    ends = np.cumsum(transformer._n_features_outs)
    result: Recipe = []
    for column, known, indicators in zip(
        recipe, transformer.categories_, np.split(answers, ends[:-1], axis=1), strict=True
    ):
        numbers = (
            np.where(indicators.any(axis=1), indicators.argmax(axis=1), -1.0)
            if indicators.shape[1]
            else np.full(len(indicators), -1.0)
        )
        codes = Codes.of(known, numbers[: len(known)], _unseen(transformer, numbers[len(known)]), indicators.shape[1])
        encoded = flow.encode(column, codes)
        result += [replace(encoded, indicator=i) for i in range(indicators.shape[1])]
    return result


def _ordinal_encoder(transformer: Any, flow: ColumnFlow, recipe: Recipe) -> Recipe:
    result: Recipe = []
    for column, known, numbers in zip(recipe, transformer.categories_, _answers(transformer).T, strict=True):
        codes = Codes.of(known, numbers[: len(known)], _unseen(transformer, numbers[len(known)]))
        result.append(flow.encode(column, codes))
    return result


def _target_encoder(transformer: Any, flow: ColumnFlow, recipe: Recipe) -> Recipe:
    """Returns the mean of the target for each category; of several classes a column for each of them, picked by the category's indicator."""
    answers = np.split(_answers(transformer), len(recipe), axis=1)
    result: Recipe = []
    for column, known, category_means in zip(recipe, transformer.categories_, answers, strict=True):
        count, means = len(known), category_means[: len(known) + 1]
        if means.shape[1] == 1:
            result.append(flow.encode(column, Codes.of(known, means[:count, 0], float(means[count, 0]))))
            continue
        number = flow.encode(column, Codes.of(known, range(count), float(count)))
        steps = (OneHot(np.array([count + 1])), Project(np.zeros(count + 1), means))
        result += flow.apply([number], steps, means.shape[1])
    return result


_UNSEEN: Final = "\0 no category"


def _answers(encoder: Any) -> Reals:
    """Returns what a fitted encoder itself gives: row k for the k-th category of each column, the row after a column's last category for an unseen
    one."""
    known = encoder.categories_
    table = np.empty((max(map(len, known)) + 1, len(known)), dtype=object)
    for column, categories in enumerate(known):
        table[:, column] = categories[0]
        table[: len(categories), column] = categories
        if getattr(encoder, "handle_unknown", "") != "error":
            table[len(categories), column] = _UNSEEN
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of names of columns, and of the unseen category
        return np.asarray(dense(encoder.transform(table)), dtype=np.float64)


def _unseen(encoder: Any, number: float) -> float | str:
    return REFUSE if encoder.handle_unknown == "error" else number


_READERS: Final[dict[str, Callable[[Any, ColumnFlow, Recipe], Recipe]]] = {
    "ColumnTransformer": _column_transformer,
    "FeatureUnion": _feature_union,
    "MaxAbsScaler": _max_abs_scaler,
    "MinMaxScaler": _min_max_scaler,
    "MissingIndicator": _indicator,
    "Normalizer": _normalizer,
    "OneHotEncoder": _one_hot_encoder,
    "OrdinalEncoder": _ordinal_encoder,
    "Pipeline": _pipeline,
    "RobustScaler": _robust_scaler,
    "SimpleImputer": _imputer,
    "StandardScaler": _standard_scaler,
    "TargetEncoder": _target_encoder,
    "TfidfTransformer": weighted,
    **features.READERS,
}
