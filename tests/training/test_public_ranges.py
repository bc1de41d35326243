"""What clients learn of fitted estimators: with the same `feature_ranges`, of two models the same but for what the report names."""

from __future__ import annotations

import itertools
import json
import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from cases import in_tiers

pytest.importorskip("sklearn", reason="scikit-learn is not installed")

import pandas as pd
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_breast_cancer, load_diabetes, load_wine
from sklearn.decomposition import PCA
from sklearn.exceptions import ConvergenceWarning
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, OneHotEncoder, StandardScaler
from sklearn.svm import LinearSVC

import cloakwork as cw
from cloakwork.models.compiled import CompiledModel
from cloakwork.models.errors import CompileError, ShapeError

ROUND, OTHER = "ranges of features in round numbers", "ranges of features to all digits"
SCALING = "means and scales of features"
LEVELS, UNITS, SCALE = "levels of features", "units of scores", "scale of what is encrypted"
CONSTANTS, OUTPUTS = "constants of scores", "scales and offsets of outputs"

# What the report names, and which fields of a specification are told by it.
FIELDS: dict[str, set[tuple[str, ...]]] = {
    LEVELS: {("input_range",), ("Rescale", "scale")},
    SCALE: {("input_scale",), ("output_scale",)},
    UNITS: {("Combine", "matrix")},
    CONSTANTS: {("Combine", "offset")},
    OUTPUTS: {("output_scale",), ("output_offset",)},
}
ELSEWHERE = {("program_digest",), ("parameter_set",), ("parameter_digest",)}  # which the report says too


def leaves(value: Any) -> list[Any]:
    """Numbers and texts of nested lists."""
    return [leaf for each in value for leaf in leaves(each)] if isinstance(value, list) else [value]


def told(compiled: CompiledModel) -> dict[str, int]:
    return {each["what"]: each["count"] for each in compiled.report()["discloses"]}


def fields(compiled: CompiledModel) -> dict[tuple[str, ...], list[Any]]:
    """Of its client specification: (field,) or (kind of step, field) to its numbers and texts. No kind of step is there twice."""
    content = json.loads(compiled.client.to_json())
    steps = [*content.pop("input_steps"), *content.pop("output_steps")]
    assert len({step["step"] for step in steps}) == len(steps)
    found = {(name,): leaves(value) for name, value in content.items()}
    return found | {(step["step"], name): leaves(value) for step in steps for name, value in step.items()}


def differences(first: CompiledModel, second: CompiledModel) -> set[tuple[str, ...]]:
    """Fields in which two specifications differ, but for what both reports name. One factor may be in all scales of the input."""
    one, other = fields(first), fields(second)
    assert one.keys() == other.keys()
    named = set().union(*(FIELDS[what] for what in FIELDS.keys() & told(first).keys() & told(second).keys()))
    scales = ("Rescale", "scale")
    if scales in one and scales in named:
        factor = np.array(one[scales]) / np.array(other[scales])
        assert np.ptp(np.log2(factor)) < 1e-9 and math.log2(factor[0]) == pytest.approx(round(math.log2(factor[0])))
    return {field for field in one if one[field] != other[field]} - named - ELSEWHERE


def halves(load: Callable[..., Any], seed: int) -> tuple[list[tuple[Any, Any]], dict[int, tuple[float, float]]]:
    """Two disjoint samples of a population, and public ranges: whole numbers around all of it."""
    x, y = load(return_X_y=True)
    order = np.random.default_rng(seed).permutation(len(x))
    parts = [(x[own], y[own]) for own in np.array_split(order, 2)]
    ends = zip(np.floor(x.min(axis=0)) - 1, np.ceil(x.max(axis=0)) + 1, strict=True)
    return parts, {i: (float(low), float(high)) for i, (low, high) in enumerate(ends)}


def fitted(estimator: Any, x: Any, y: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return estimator.fit(x, y)


ESTIMATORS: dict[str, tuple[Callable[[], Any], Callable[..., Any]]] = {
    "logistic regression": (lambda: LogisticRegression(max_iter=300), load_breast_cancer),
    "scaled logistic regression": (lambda: make_pipeline(StandardScaler(), LogisticRegression()), load_wine),
    "scaled support vectors": (lambda: make_pipeline(MinMaxScaler(), LinearSVC()), load_breast_cancer),
    "ridge regression": (lambda: make_pipeline(StandardScaler(), Ridge()), load_diabetes),
    "least squares": (lambda: LinearRegression(), load_diabetes),
    "scaled network": (
        lambda: make_pipeline(StandardScaler(), MLPClassifier((8,), max_iter=100, random_state=0)),
        load_wine,
    ),
}


@pytest.mark.parametrize(
    ("name", "seed"),
    in_tiers(
        itertools.product(ESTIMATORS, (0, 1)),
        quick=[("scaled logistic regression", 0), ("ridge regression", 1), ("scaled support vectors", 0)],
    ),
)
def test_two_models_tell_the_same_but_for_what_the_report_names(name: str, seed: int) -> None:
    make, load = ESTIMATORS[name]
    parts, ranges = halves(load, seed)
    first, second = (cw.compile(fitted(make(), x, y), x, ranges=ranges, accuracy=0.9) for x, y in parts)
    assert first.program.digest != second.program.digest
    assert differences(first, second) == set()
    for compiled in (first, second):
        assert SCALING not in told(compiled)
        assert told(compiled)[ROUND] + told(compiled).get(OTHER, 0) == len(ranges)
        if OUTPUTS not in told(compiled):  # linear: few round numbers
            assert told(compiled)[LEVELS] == told(compiled)[SCALE] == told(compiled)[UNITS] == 1
            assert told(compiled).get(CONSTANTS, 0) <= 1


def test_the_comparison_finds_what_is_not_named() -> None:
    """Without public ranges, and with statistics of the training data in the client's steps."""
    parts, ranges = halves(load_wine, 0)
    free = [cw.compile(fitted(LogisticRegression(max_iter=50), x, y), x) for x, y in parts]
    assert differences(free[0], free[0]) == set()
    with pytest.raises(AssertionError):
        differences(*free)
    pipelines = [make_pipeline(StandardScaler(), PCA(5), LogisticRegression()) for _ in parts]
    projected = [cw.compile(fitted(each, x, y), x) for each, (x, y) in zip(pipelines, parts, strict=True)]
    one, other = (fields(each) for each in projected)
    assert all(one[("Divide", name)] != other[("Divide", name)] for name in ("offset", "divisor"))
    assert told(projected[0])[SCALING] == len(ranges) and told(projected[0])["numbers of a projection"] == 5 * len(
        ranges
    )


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("network", [False, True])
def test_ranges_go_by_the_columns_of_the_table(network: bool, scaled: bool) -> None:
    x, y = load_wine(return_X_y=True, as_frame=True)
    last = MLPClassifier((6,), max_iter=100, random_state=0) if network else LogisticRegression(max_iter=300)
    estimator = fitted(make_pipeline(StandardScaler(), last) if scaled else last, x, y)
    given = {"alcohol": (10.0, 16.0), "proline": (200.0, 2000.0)}
    compiled = cw.compile(estimator, x, ranges=given, accuracy=0.9)
    (step,) = [step for step in compiled.program.input_steps if hasattr(step, "lower")]
    for column, ends in given.items():
        place = list(x.columns).index(column)
        assert (step.lower[place], step.upper[place]) == ends
    assert told(compiled)[ROUND] == x.shape[1] and SCALING not in told(compiled)
    agreement = float((compiled.predict(x) == estimator.predict(x)).mean())
    assert agreement > 0.97
    with pytest.raises(CompileError, match="there is no feature 'alcool'; expected alcohol, "):
        cw.compile(estimator, x, ranges={"alcool": (10, 16)})


def test_a_scaled_column_with_a_large_offset_keeps_its_digits() -> None:
    """Seconds since 1970, of one day: what the scaler takes away cancels in float64."""
    rng = np.random.default_rng(0)
    x = np.column_stack([1.7e9 + rng.uniform(0, 86400, 500), rng.normal(size=500)])
    y = ((x[:, 0] - 1.7e9) / 86400 + 0.2 * x[:, 1] > 0.5).astype(int)
    for last in (LogisticRegression(), MLPClassifier((8,), max_iter=300, random_state=0)):
        estimator = fitted(make_pipeline(StandardScaler(), last), x, y)
        compiled = cw.compile(estimator, x)
        assert float((compiled.predict(x) == estimator.predict(x)).mean()) > 0.98
        assert SCALING not in told(compiled)


@pytest.mark.parametrize("network", [False, True])
def test_an_onnx_pipeline_takes_in_its_scaler(network: bool) -> None:
    skl2onnx = pytest.importorskip("skl2onnx", reason="skl2onnx is not installed")
    x, y = load_wine(return_X_y=True)
    x = x.astype(np.float32)
    last = MLPClassifier((6,), max_iter=300, random_state=0) if network else LogisticRegression(max_iter=300)
    estimator = fitted(make_pipeline(StandardScaler(), last), x, y)
    proto = skl2onnx.to_onnx(estimator, x[:1], options={id(estimator): {"zipmap": False}}, target_opset=17)
    compiled = cw.compile(proto, x, ranges={12: (200.0, 2000.0)})
    assert float((compiled.predict(x) == estimator.predict(x)).mean()) > 0.97
    assert SCALING not in told(compiled) and told(compiled)[ROUND] == x.shape[1]
    (step,) = [step for step in compiled.program.input_steps if hasattr(step, "lower")]
    assert (step.lower[12], step.upper[12]) == (200.0, 2000.0)


def test_a_dataframe_of_another_order_is_still_refused() -> None:
    x, y = load_wine(return_X_y=True, as_frame=True)
    for last in (LogisticRegression(), MLPClassifier((4,), max_iter=50, random_state=0)):
        compiled = cw.compile(fitted(make_pipeline(StandardScaler(), last), x, y), x, accuracy=0.5)
        with pytest.raises(ShapeError, match="the order differs"):
            compiled.predict(pd.DataFrame(x[x.columns[::-1]]))


@pytest.mark.parametrize("network", [False, True])
def test_scalers_beside_one_hot_codes_and_imputers(network: bool) -> None:
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        {
            "age": rng.integers(18, 80, 400),
            "city": rng.choice(["a", "b", "c"], 400),
            "income": rng.lognormal(10, 1, 400),
        }
    )
    labels = (table.age / 60 + (table.city == "a") + np.log(table.income) / 20 > 1.6).astype(int)
    table.loc[::7, "income"] = np.nan
    columns = make_column_transformer(
        (StandardScaler(), ["age"]),
        (OneHotEncoder(), ["city"]),
        (make_pipeline(SimpleImputer(), StandardScaler()), ["income"]),
    )
    last = MLPClassifier((8,), max_iter=300, random_state=0) if network else LogisticRegression()
    estimator = fitted(make_pipeline(columns, last), table, labels)
    compiled = cw.compile(estimator, table, ranges={"age": (0, 120), "city[1]": (0, 1)})
    assert SCALING not in told(compiled) and told(compiled)[ROUND] == 5
    assert float((compiled.predict(table) == estimator.predict(table)).mean()) > 0.98
    (step,) = [step for step in compiled.program.input_steps if hasattr(step, "lower")]
    assert (step.lower[0], step.upper[0]) == (0, 120)
    scores = compiled.predict(table, output="probabilities")
    assert np.abs(scores - estimator.predict_proba(table)).max() < 0.1
