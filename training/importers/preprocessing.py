"""The steps of a fitted pipeline before its estimator, as what the client does before encryption.

A step that works column by column is a `Recipe`: an ordered choice of columns, each with a category list, a fill value, an affine map or a
one-hot code. A ColumnTransformer puts the recipes of its parts together.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from cloakwork.models.client_steps import (
    Categories,
    Columns,
    Complete,
    Impute,
    InputStep,
    Normalise,
    OneHot,
    Select,
    Standardise,
)
from cloakwork.models.errors import UnsupportedOperatorError
from cloakwork.models.tabular.columns import feature_labels
from cloakwork.training.importers.nodes import unsupported_option


@dataclass(frozen=True)
class Column:
    """What becomes of one column of the table: category -> fill -> affine -> one-hot, each optional."""

    source: int
    categories: tuple[Any, ...] | None = None
    unseen: str = "refuse"
    fill: float | None = None
    offset: float = 0.0
    scale: float = 1.0
    one_hot: tuple[int, ...] | None = None  # which categories have a column

    @property
    def width(self) -> int:
        return 1 if self.one_hot is None else len(self.one_hot)


Recipe = list[Column]


def split_pipeline(estimator: Any) -> tuple[tuple[InputStep, ...], Any]:
    """The client's steps and the last estimator; no steps for anything that is not a Pipeline."""
    from sklearn.pipeline import Pipeline

    if not isinstance(estimator, Pipeline):
        return (), estimator
    *before, last = [step for _, step in estimator.steps]
    before = [step for step in before if step is not None and step != "passthrough"]
    if not before:
        return (), last
    return input_steps(before), last


def input_steps(transformers: list[Any]) -> tuple[InputStep, ...]:
    """Fitted transformers, one after the other; the first one names the columns."""
    first = transformers[0]
    count = int(first.n_features_in_)
    names = _names(first)
    steps: list[InputStep] = []
    recipe: Recipe = [Column(i) for i in range(count)]
    for transformer in transformers:
        if _kind(transformer) == "Normalizer":
            steps += _flush(recipe, steps, count, names)
            steps.append(Normalise(str(transformer.norm)))
            recipe = [Column(i) for i in range(sum(column.width for column in recipe))]
            continue
        if any(column.one_hot is not None for column in recipe):
            steps += _flush(recipe, steps, count, names)
            recipe = [Column(i) for i in range(sum(column.width for column in recipe))]
        recipe = _apply(transformer, recipe, may_encode=not steps)
    steps += _flush(recipe, steps, count, names)
    return tuple(steps)


def _names(transformer: Any) -> tuple[str, ...] | None:
    names = getattr(transformer, "feature_names_in_", None)
    return None if names is None else tuple(str(name) for name in names)


def _kind(transformer: Any) -> str:
    """The name of scikit-learn's class, or of the first one that is extended."""
    for cls in type(transformer).__mro__:
        if cls.__module__.startswith("sklearn.") and not cls.__name__.startswith("_"):
            return str(cls.__name__)
    return type(transformer).__name__


# --- one transformer on a recipe ---------------------------------------------------------------------------------------------------


def _apply(transformer: Any, recipe: Recipe, may_encode: bool = True) -> Recipe:
    kind = _kind(transformer)
    if kind == "Pipeline":
        for _, step in transformer.steps:
            if step is not None and step != "passthrough":
                recipe = _apply(step, recipe, may_encode)
        return recipe
    if kind == "ColumnTransformer":
        return _column_transformer(transformer, recipe, may_encode)
    if hasattr(transformer, "get_support"):
        return [recipe[int(i)] for i in transformer.get_support(indices=True)]
    if kind not in _READERS:
        raise UnsupportedOperatorError(
            f"pipeline: {type(transformer).__name__} has no counterpart at the client; expected one of "
            f"{', '.join(sorted((*_READERS, 'ColumnTransformer', 'Normalizer')))}, or a selection of features"
        )
    if kind in ("OneHotEncoder", "OrdinalEncoder") and not may_encode:
        raise UnsupportedOperatorError(f"pipeline: {kind} is supported on the user's columns only; put it first")
    return _READERS[kind](transformer, recipe)


def _column_transformer(transformer: Any, recipe: Recipe, may_encode: bool) -> Recipe:
    """Parts in their order, then the rest."""
    result: Recipe = []
    for _, part, columns in transformer.transformers_:
        if isinstance(part, str) and part == "drop":
            continue
        chosen = [recipe[i] for i in _positions(transformer, columns)]
        if not chosen:
            continue
        through = (isinstance(part, str) and part == "passthrough") or _kind(part) == "FunctionTransformer"
        if through and not isinstance(part, str) and part.func is not None:
            raise unsupported_option(part, "func", part.func, "apply it to the table yourself")
        result += chosen if through else _apply(part, chosen, may_encode)
    if transformer.transformer_weights:
        raise unsupported_option(transformer, "transformer_weights", transformer.transformer_weights, "leave it out")
    return result


def _positions(transformer: Any, columns: Any) -> list[int]:
    count = int(transformer.n_features_in_)
    if callable(columns) or isinstance(columns, slice | str):
        columns = [columns] if isinstance(columns, str) else np.arange(count)[columns]
    array = np.asarray(columns)
    if array.dtype.kind == "b":
        return [int(i) for i in np.flatnonzero(array)]
    if array.dtype.kind in "iu":
        return [int(i) % count for i in array]
    names = list(transformer.feature_names_in_)
    return [names.index(name) for name in array]


def _affine(transformer: Any, recipe: Recipe, offset: Any, scale: Any) -> Recipe:
    """(x - offset) * scale after what the columns do already."""
    offsets = np.broadcast_to(np.asarray(0.0 if offset is None else offset, dtype=np.float64), len(recipe))
    scales = np.broadcast_to(np.asarray(1.0 if scale is None else scale, dtype=np.float64), len(recipe))
    result = []
    for column, o, s in zip(recipe, offsets, scales, strict=True):
        if column.one_hot is not None:
            raise UnsupportedOperatorError(
                f"pipeline: {type(transformer).__name__} comes after an encoder in a part of it; put it after the whole"
            )
        # ((x - o1) s1 - o) s = (x - (o1 + o / s1)) s1 s
        result.append(replace(column, offset=column.offset + float(o) / column.scale, scale=column.scale * float(s)))
    return result


def _standard_scaler(transformer: Any, recipe: Recipe) -> Recipe:
    scale = None if transformer.scale_ is None else 1 / transformer.scale_
    return _affine(transformer, recipe, transformer.mean_ if transformer.with_mean else None, scale)


def _robust_scaler(transformer: Any, recipe: Recipe) -> Recipe:
    scale = None if transformer.scale_ is None else 1 / transformer.scale_
    return _affine(transformer, recipe, transformer.center_, scale)


def _min_max_scaler(transformer: Any, recipe: Recipe) -> Recipe:
    if transformer.clip:
        raise unsupported_option(transformer, "clip", True, "values beyond the calibrated range saturate anyway")
    return _affine(transformer, recipe, -transformer.min_ / transformer.scale_, transformer.scale_)


def _max_abs_scaler(transformer: Any, recipe: Recipe) -> Recipe:
    return _affine(transformer, recipe, None, 1 / transformer.scale_)


def _imputer(transformer: Any, recipe: Recipe) -> Recipe:
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
    result = []
    for column, fill in zip(recipe, fills, strict=True):
        if column.categories is not None or column.fill is not None:
            raise UnsupportedOperatorError(
                "pipeline: SimpleImputer comes after another imputer or an encoder; put it first"
            )
        result.append(replace(column, fill=float(fill) / column.scale + column.offset))
    return result


def _one_hot_encoder(transformer: Any, recipe: Recipe) -> Recipe:
    if transformer.handle_unknown not in ("error", "ignore"):
        raise unsupported_option(transformer, "handle_unknown", transformer.handle_unknown, "use 'error' or 'ignore'")
    if transformer.min_frequency is not None or transformer.max_categories is not None:
        raise unsupported_option(transformer, "min_frequency or max_categories", "set", "leave them out")
    dropped = transformer.drop_idx_ if transformer.drop_idx_ is not None else [None] * len(recipe)
    unseen = "refuse" if transformer.handle_unknown == "error" else "ignore"
    result = []
    for column, categories, drop in zip(recipe, transformer.categories_, dropped, strict=True):
        kept = tuple(i for i in range(len(categories)) if i != drop)
        result.append(replace(_encoded(transformer, column, categories, unseen), one_hot=kept))
    return result


def _ordinal_encoder(transformer: Any, recipe: Recipe) -> Recipe:
    if transformer.handle_unknown != "error":
        raise unsupported_option(transformer, "handle_unknown", transformer.handle_unknown, "use 'error'")
    return [
        _encoded(transformer, column, categories, "refuse")
        for column, categories in zip(recipe, transformer.categories_, strict=True)
    ]


def _encoded(transformer: Any, column: Column, categories: Any, unseen: str) -> Column:
    known = tuple(category.item() if isinstance(category, np.generic) else category for category in categories)
    if any(not isinstance(category, str | bool | int | float) or category != category for category in known):
        raise unsupported_option(transformer, "categories", list(known), "expected texts and numbers, none missing")
    if column != Column(column.source):
        raise UnsupportedOperatorError(f"pipeline: {type(transformer).__name__} comes after another step; put it first")
    return replace(column, categories=known, unseen=unseen)


_READERS: Final[dict[str, Callable[[Any, Recipe], Recipe]]] = {
    "StandardScaler": _standard_scaler,
    "RobustScaler": _robust_scaler,
    "MinMaxScaler": _min_max_scaler,
    "MaxAbsScaler": _max_abs_scaler,
    "SimpleImputer": _imputer,
    "OneHotEncoder": _one_hot_encoder,
    "OrdinalEncoder": _ordinal_encoder,
}


# --- a recipe as steps --------------------------------------------------------------------------------------------------------------


def _flush(recipe: Recipe, done: list[InputStep], count: int, names: tuple[str, ...] | None) -> list[InputStep]:
    """Categories or Columns where it is the first, then selection, fill, affine, one-hot; what does nothing is left out."""
    steps: list[InputStep] = []
    if not done:
        steps.append(_first_step(recipe, count, names))
    width = count if not done else len(recipe)
    sources = np.array([column.source for column in recipe], dtype=np.int64)
    if not np.array_equal(sources, np.arange(width)):
        steps.append(Select(sources))
    if any(column.fill is not None for column in recipe):
        labels = feature_labels(None if done else names, width)
        steps += _impute(recipe, labels)
    offset, scale = np.array([c.offset for c in recipe]), np.array([c.scale for c in recipe])
    if offset.any() or (scale != 1).any():
        steps.append(Standardise(offset, scale))
    steps += _one_hot(recipe)
    return steps


def _impute(recipe: Recipe, labels: tuple[str, ...]) -> list[InputStep]:
    """Fills; a column without one must be complete."""
    unfilled = [column for column in recipe if column.fill is None]
    fills = Impute(np.array([0.0 if column.fill is None else column.fill for column in recipe]))
    if all(column.categories is not None for column in unfilled):
        return [fills]
    kept = np.flatnonzero([column.fill is None for column in recipe])
    return [Complete(tuple(labels[recipe[i].source] for i in kept), kept), fills]


def _first_step(recipe: Recipe, count: int, names: tuple[str, ...] | None) -> InputStep:
    missing = any(column.fill is not None for column in recipe)
    encoded = {column.source: column for column in recipe if column.categories is not None}
    if any(column.categories is None and column.source in encoded for column in recipe):
        raise UnsupportedOperatorError("pipeline: a column is used encoded and as it is; give it to one part only")
    if not encoded:
        return Columns(count, names, missing)
    if len({column.unseen for column in encoded.values()}) > 1:
        raise UnsupportedOperatorError("pipeline: encoders differ in handle_unknown; expected one rule for all columns")
    columns = np.array(sorted(encoded), dtype=np.int64)
    known = tuple(encoded[int(i)].categories or () for i in columns)
    return Categories(count, columns, known, next(iter(encoded.values())).unseen, names, missing)


def _one_hot(recipe: Recipe) -> list[InputStep]:
    if all(column.one_hot is None for column in recipe):
        return []
    sizes = np.array([0 if c.one_hot is None else len(c.categories or ()) for c in recipe], dtype=np.int64)
    steps: list[InputStep] = [OneHot(sizes)]
    kept: list[int] = []
    start = 0
    for column, size in zip(recipe, sizes, strict=True):
        kept += [start] if column.one_hot is None else [start + i for i in column.one_hot]
        start += max(int(size), 1) if column.one_hot is None else int(size)
    if len(kept) != start:
        steps.append(Select(np.array(kept, dtype=np.int64)))
    return steps
