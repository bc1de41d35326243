"""The steps of a fitted pipeline before its estimator, as what the client does before encryption."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import numpy as np

from cloakwork.models.client_steps import InputStep
from cloakwork.models.client_steps.column_flow import ColumnFlow, Recipe
from cloakwork.models.errors import UnsupportedNode, UnsupportedOperatorError
from cloakwork.training.importers import features
from cloakwork.training.importers.nodes import check_own_methods, nearest_of, unsupported_option, unwrapped
from cloakwork.training.importers.texts import VECTORIZERS, vectorized, weighted


def split_pipeline(estimator: Any, *, missing: bool = False) -> tuple[tuple[InputStep, ...], Any]:
    """The client's steps and the last estimator; no steps for anything that is not a Pipeline.

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
    """Samples, 2,000 of many, as the last estimator of a pipeline gets them, by its own fitted steps: as a sparse matrix, say."""
    from sklearn.pipeline import Pipeline

    given = samples[:_ENOUGH]
    names = getattr(estimator, "feature_names_in_", None)
    if isinstance(estimator, Pipeline) and names is not None and not hasattr(given, "columns"):
        from pandas import DataFrame  # which had the names

        given = DataFrame(given, columns=names)
    while isinstance(estimator, Pipeline):
        for _, step in estimator.steps[:-1]:
            given = given if _passes(step) else step.transform(given)
        estimator = unwrapped(estimator.steps[-1][1])
    return given


_ENOUGH: Final = 2000


def input_steps(transformers: list[Any], *, missing: bool = False) -> tuple[InputStep, ...]:
    """Fitted transformers, one after the other; the first one names the columns, or takes texts."""
    first, *others = [step for transformer in transformers for step in _flat(transformer) if not _passes(step)]
    if _kind(first) in VECTORIZERS:
        flow, recipe = vectorized(first, _kind(first))
    else:
        names = getattr(first, "feature_names_in_", None)
        flow = ColumnFlow(int(first.n_features_in_), None if names is None else tuple(str(name) for name in names))
        recipe = _apply(first, flow, flow.start())
    for transformer in others:
        recipe = _apply(transformer, flow, recipe)
    try:
        return flow.finish(recipe, missing)
    except UnsupportedNode as error:
        raise UnsupportedOperatorError(f"pipeline: {error}") from error


def _flat(transformer: Any) -> list[Any]:
    """The steps of a pipeline and of those within it, one after the other."""
    if _kind(transformer) != "Pipeline":
        return [transformer]
    return [inner for _, step in transformer.steps for inner in _flat(step)]


def _passes(step: Any) -> bool:
    return step is None or (isinstance(step, str) and step == "passthrough")


def _apply(transformer: Any, flow: ColumnFlow, recipe: Recipe) -> Recipe:
    """One fitted transformer on the columns of a recipe."""
    from sklearn.feature_selection import SelectorMixin

    kind = _kind(transformer)
    if isinstance(transformer, SelectorMixin):
        return [recipe[int(i)] for i in transformer.get_support(indices=True)]
    if kind in VECTORIZERS:
        raise UnsupportedOperatorError(
            f"pipeline: {type(transformer).__name__} beside other columns cannot be imported; compile a pipeline of texts alone, which starts with it"
        )
    if kind not in _READERS:
        raise UnsupportedOperatorError(
            f"pipeline: {type(transformer).__name__} has no counterpart at the client; {nearest_of(kind, _READERS)}; docs/scikit-learn.md lists all"
        )
    try:
        return _READERS[kind](transformer, flow, recipe)
    except UnsupportedNode as error:
        raise UnsupportedOperatorError(f"pipeline: {type(transformer).__name__} {error}") from error


_SELECTION: Final = ("get_support", "_get_support_mask")  # which are asked, whoever wrote them


def _kind(transformer: Any) -> str:
    """The name of scikit-learn's class, or of the first one that is extended."""
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
    """Parts in their order, then the rest."""
    if transformer.transformer_weights:
        raise unsupported_option(transformer, "transformer_weights", transformer.transformer_weights, "leave it out")
    result: Recipe = []
    for _, part, columns in transformer.transformers_:
        if isinstance(part, str) and part == "drop":
            continue
        chosen = [recipe[i] for i in _positions(transformer, columns)]
        if chosen:
            result += chosen if _passes(part) else _apply(part, flow, chosen)
    return result


def _positions(transformer: Any, columns: Any) -> list[int]:
    """Columns by number, name, mask or slice."""
    count = int(transformer.n_features_in_)
    if isinstance(columns, slice):
        columns = np.arange(count)[columns]
    array = np.atleast_1d(np.asarray(columns))
    if array.size == 0:
        return []
    if array.dtype.kind == "b":
        return [int(i) for i in np.flatnonzero(array)]
    if array.dtype.kind in "iu":
        return [int(i) % count for i in array]
    names = list(transformer.feature_names_in_)
    return [names.index(name) for name in array]


def _feature_union(transformer: Any, flow: ColumnFlow, recipe: Recipe) -> Recipe:
    """What each part makes of all columns, side by side."""
    if transformer.transformer_weights:
        raise unsupported_option(transformer, "transformer_weights", transformer.transformer_weights, "leave it out")
    result: Recipe = []
    for _, part in transformer.transformer_list:
        if not (isinstance(part, str) and part == "drop"):
            result += recipe if _passes(part) else _apply(part, flow, recipe)
    return result


# --- column by column --------------------------------------------------------------------------------------------------------------


def _standard_scaler(transformer: Any, flow: ColumnFlow, recipe: Recipe) -> Recipe:
    scale = 1.0 if transformer.scale_ is None else 1 / transformer.scale_
    return flow.affine(recipe, transformer.mean_ if transformer.with_mean else 0.0, scale)


def _robust_scaler(transformer: Any, flow: ColumnFlow, recipe: Recipe) -> Recipe:
    scale = 1.0 if transformer.scale_ is None else 1 / transformer.scale_
    return flow.affine(recipe, 0.0 if transformer.center_ is None else transformer.center_, scale)


def _min_max_scaler(transformer: Any, flow: ColumnFlow, recipe: Recipe) -> Recipe:
    if transformer.clip:
        raise unsupported_option(transformer, "clip", True, "values beyond the calibrated range saturate anyway")
    return flow.affine(recipe, -transformer.min_ / transformer.scale_, transformer.scale_)


def _max_abs_scaler(transformer: Any, flow: ColumnFlow, recipe: Recipe) -> Recipe:
    return flow.affine(recipe, 0.0, 1 / transformer.scale_)


def _normalizer(transformer: Any, flow: ColumnFlow, recipe: Recipe) -> Recipe:
    return flow.normalise(recipe, str(transformer.norm))


def _imputer(transformer: Any, flow: ColumnFlow, recipe: Recipe) -> Recipe:
    fills = transformer.statistics_
    if transformer.add_indicator or transformer.keep_empty_features:
        raise unsupported_option(transformer, "add_indicator or keep_empty_features", True, "leave them out")
    if not (isinstance(transformer.missing_values, float) and np.isnan(transformer.missing_values)):
        raise unsupported_option(
            transformer, "missing_values", transformer.missing_values, "mark missing values by NaN"
        )
    if np.asarray(fills).dtype.kind not in "iuf" or not bool(np.isfinite(fills).all()):
        raise unsupported_option(
            transformer, "fill value", list(fills), "impute numbers only, in columns that have some"
        )
    return flow.fill(recipe, fills)


def _one_hot_encoder(transformer: Any, flow: ColumnFlow, recipe: Recipe) -> Recipe:
    if transformer.handle_unknown not in ("error", "ignore"):
        raise unsupported_option(transformer, "handle_unknown", transformer.handle_unknown, "use 'error' or 'ignore'")
    if transformer.min_frequency is not None or transformer.max_categories is not None:
        raise unsupported_option(transformer, "min_frequency or max_categories", "set", "leave them out")
    dropped = [None] * len(recipe) if transformer.drop_idx_ is None else transformer.drop_idx_
    unseen = "refuse" if transformer.handle_unknown == "error" else "ignore"
    result: Recipe = []
    for column, categories, drop in zip(recipe, transformer.categories_, dropped, strict=True):
        encoded = flow.encode(column, categories, unseen)
        result += [replace(encoded, indicator=i) for i in range(len(categories)) if i != drop]
    return result


def _ordinal_encoder(transformer: Any, flow: ColumnFlow, recipe: Recipe) -> Recipe:
    if transformer.handle_unknown != "error":
        raise unsupported_option(transformer, "handle_unknown", transformer.handle_unknown, "use 'error'")
    pairs = zip(recipe, transformer.categories_, strict=True)
    return [flow.encode(column, categories, "refuse") for column, categories in pairs]


_READERS: Final[dict[str, Callable[[Any, ColumnFlow, Recipe], Recipe]]] = {
    "ColumnTransformer": _column_transformer,
    "FeatureUnion": _feature_union,
    "MaxAbsScaler": _max_abs_scaler,
    "MinMaxScaler": _min_max_scaler,
    "Normalizer": _normalizer,
    "OneHotEncoder": _one_hot_encoder,
    "OrdinalEncoder": _ordinal_encoder,
    "Pipeline": _pipeline,
    "RobustScaler": _robust_scaler,
    "SimpleImputer": _imputer,
    "StandardScaler": _standard_scaler,
    "TfidfTransformer": weighted,
    **features.READERS,
}
