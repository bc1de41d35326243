"""Transformers of scikit-learn that make features of several columns, or bend single ones, as steps of the client."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from cloakwork.models.arrays import dense
from cloakwork.models.client_steps import (
    FUNCTIONS,
    Binarise,
    Bins,
    Function,
    InputStep,
    OneHot,
    Polynomials,
    Power,
    Project,
    Quantiles,
    Splines,
)
from cloakwork.models.client_steps.column_flow import ColumnFlow, Recipe
from cloakwork.training.importers.nodes import unsupported_option


def _principal_components(transformer: Any, flow: ColumnFlow, recipe: Recipe) -> Recipe:
    """Keeps the order of scikit-learn: a component of no deviation, whitened, is nothing but rounding."""
    matrix = np.asarray(transformer.components_, dtype=np.float64).T
    projected = flow.apply(recipe, (Project(np.zeros(len(matrix)), matrix),), matrix.shape[1])
    deviation = np.maximum(np.sqrt(transformer.explained_variance_), np.finfo(np.float64).eps)
    return flow.arithmetic(projected, transformer.mean_ @ matrix, deviation if transformer.whiten else 1.0, "over")


def _components(transformer: Any, flow: ColumnFlow, recipe: Recipe) -> Recipe:
    """Truncated SVD, ICA, random projections: all are one matrix."""
    matrix = np.asarray(dense(transformer.components_), dtype=np.float64).T
    mean = getattr(transformer, "mean_", None)
    offset = np.zeros(len(matrix)) if mean is None else np.asarray(mean, dtype=np.float64)
    return flow.apply(recipe, (Project(offset, matrix),), matrix.shape[1])


def _polynomials(transformer: Any, flow: ColumnFlow, recipe: Recipe) -> Recipe:
    powers = np.asarray(transformer.powers_, dtype=np.int64)
    return flow.apply(recipe, (Polynomials(powers),), len(powers))


def _power(transformer: Any, flow: ColumnFlow, recipe: Recipe) -> Recipe:
    exponents = np.asarray(transformer.lambdas_, dtype=np.float64)
    if not np.isfinite(exponents).all():
        raise unsupported_option(transformer, "lambdas_", "NaN", "leave out columns without values")
    transformed = flow.apply(recipe, (Power(transformer.method, exponents),), len(exponents))
    if not transformer.standardize:
        return transformed
    return flow.arithmetic(transformed, transformer._scaler.mean_, transformer._scaler.scale_, "over")


def _bins(transformer: Any, flow: ColumnFlow, recipe: Recipe) -> Recipe:
    counts = np.asarray(transformer.n_bins_, dtype=np.int64)
    inner = [np.asarray(edges, dtype=np.float64)[1:-1] for edges in transformer.bin_edges_]
    start = np.concatenate([[0], np.cumsum([len(edges) for edges in inner])]).astype(np.int64)
    columns = np.arange(len(counts), dtype=np.int64)
    radix = max(2, int(counts.max()) + 1)  # above every number of a bin
    bins = Bins(columns, start, np.concatenate(inner), np.zeros_like(columns), radix, strict=True)
    binned = flow.apply(recipe, (bins,), len(counts), takes_missing=False)
    return binned if transformer.encode == "ordinal" else flow.apply(binned, (OneHot(counts),), int(counts.sum()))


def _quantiles(transformer: Any, flow: ColumnFlow, recipe: Recipe) -> Recipe:
    quantiles = np.asarray(transformer.quantiles_, dtype=np.float64)
    if not np.isfinite(quantiles).all():
        raise unsupported_option(transformer, "quantiles_", "NaN", "leave out columns without values")
    shares = np.asarray(transformer.references_, dtype=np.float64)
    return flow.apply(recipe, (Quantiles(quantiles, shares, transformer.output_distribution),), quantiles.shape[1])


def _function(transformer: Any, flow: ColumnFlow, recipe: Recipe) -> Recipe:
    """Functions of numpy by their names; none at all is the identity."""
    if transformer.func is None:
        return recipe
    name = getattr(transformer.func, "__name__", "")
    if name not in FUNCTIONS or getattr(np, name, None) is not transformer.func or transformer.kw_args:
        remedy = "apply it to the table yourself, or use a function of numpy that travels by its name, such as log1p, sqrt or exp"
        raise unsupported_option(transformer, "func", transformer.func, remedy)
    return flow.apply(recipe, (Function(name),), len(recipe))


def _splines(transformer: Any, flow: ColumnFlow, recipe: Recipe) -> Recipe:
    if transformer.extrapolation == "linear":
        raise unsupported_option(
            transformer, "extrapolation", "linear", "use 'constant', 'continue', 'periodic' or 'error'"
        )
    if getattr(transformer, "handle_missing", "error") != "error":
        raise unsupported_option(
            transformer, "handle_missing", transformer.handle_missing, "impute missing values first"
        )
    knots = np.stack([spline.t for spline in transformer.bsplines_], axis=1).astype(np.float64)
    degree = int(transformer.degree)
    if transformer.extrapolation == "periodic" and bool((knots[degree] == knots[-degree - 1]).any()):
        raise unsupported_option(transformer, "extrapolation", "periodic", "leave out columns that are constant")
    step = Splines(knots, degree, transformer.extrapolation, bool(transformer.include_bias))
    return flow.apply(recipe, (step,), int(transformer.n_features_out_))


def _binarizer(transformer: Any, flow: ColumnFlow, recipe: Recipe) -> Recipe:
    return flow.apply(recipe, (Binarise(np.full(len(recipe), float(transformer.threshold))),), len(recipe))


def expanded(
    count: int, names: tuple[str, ...] | None, steps: tuple[InputStep, ...], width: int
) -> tuple[InputStep, ...]:
    """Replaces a table of `count` columns by the `width` columns that steps make of it."""
    flow = ColumnFlow(count, names)
    return flow.finish(flow.apply(flow.start(), steps, width))


READERS: Final[dict[str, Callable[[Any, ColumnFlow, Recipe], Recipe]]] = {
    **dict.fromkeys(
        ("FastICA", "GaussianRandomProjection", "SparseRandomProjection", "TruncatedSVD"),
        _components,
    ),
    **dict.fromkeys(("IncrementalPCA", "PCA"), _principal_components),
    "Binarizer": _binarizer,
    "FunctionTransformer": _function,
    "KBinsDiscretizer": _bins,
    "PolynomialFeatures": _polynomials,
    "PowerTransformer": _power,
    "QuantileTransformer": _quantiles,
    "SplineTransformer": _splines,
}
