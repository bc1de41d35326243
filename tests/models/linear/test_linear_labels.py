"""Linear classifiers whose arg-max is taken on encrypted scores: the client gets the label of the rounded model, and nothing else."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from sessions import Sessions

from cloakwork.models.client_steps import Indicators
from cloakwork.models.compiled import CompiledModel
from cloakwork.models.errors import CompileError, NoParameterSetError
from cloakwork.models.linear.compile_linear import compile_linear
from cloakwork.models.linear.linear_model import LinearModel

TOY = "toy_large"


def classifier(
    random: np.random.Generator, classes: int, features: int, **options: Any
) -> tuple[LinearModel, NDArray[np.float64]]:
    outputs = 1 if classes == 2 else classes
    options = {"transform": "softmax" if outputs > 1 else "sigmoid", **options}
    scales = 10.0 ** random.integers(-2, 3, features)
    coefficients, intercept = random.normal(size=(outputs, features)) / scales, random.normal(size=outputs)
    model = LinearModel(coefficients, intercept, labels=np.array([f"class {i}" for i in range(classes)]), **options)
    return model, random.normal(size=(60, features)) * scales


@pytest.mark.filterwarnings("ignore::cloakwork.models.errors.AccuracyWarning")  # the toy set has room for few bits
@settings(max_examples=6, deadline=None)
@given(st.integers(0, 1 << 32), st.sampled_from([2, 3, 5, 9]), st.sampled_from([1, 2, 8, 30]))
def test_labels_are_those_of_the_rounded_scores(sessions: Sessions, seed: int, classes: int, features: int) -> None:
    random = np.random.default_rng(seed)
    model, x = classifier(random, classes, features)
    labels = compile_linear(model, x, sets=TOY, tell="labels", accuracy=0.0)
    found = labels.predict(x)
    scores = model.scores(x)
    ordered = np.sort(scores, axis=1)
    clear = np.abs(scores[:, 0]) if classes == 2 else ordered[:, -1] - ordered[:, -2]
    sure = clear > 0.1 * np.abs(scores).max()  # rounding is far below that
    expected = model.labels[(scores[:, 0] > 0).astype(int) if classes == 2 else scores.argmax(axis=1)]  # type: ignore[index]
    np.testing.assert_array_equal(found[sure], expected[sure])
    key, session = sessions(TOY)
    np.testing.assert_array_equal(labels.predict(x[:5], "encrypted", key=key, session=session), found[:5])
    assert set(np.unique(labels.predict(x, output="scores"))) <= set(range(classes))  # what the client decrypts


def test_equal_scores_are_the_first_class(sessions: Sessions) -> None:
    model = LinearModel(np.array([[1.0, 0], [1.0, 0], [0, 1.0]]), np.zeros(3), "softmax", labels=np.arange(3))
    x = np.array([[1.0, 0.5], [0.25, 0.25], [-1.0, -1.0], [-1.0, 1.0]])
    labels = compile_linear(model, ranges={0: (-1, 1), 1: (-1, 1)}, sets=TOY, tell="labels")
    key, session = sessions(TOY)
    for mode in ({}, {"how": "encrypted", "key": key, "session": session}):
        np.testing.assert_array_equal(labels.predict(x, **mode), [0, 0, 0, 2])


@pytest.mark.parametrize("intercept", [[0.0, 1e9, -1e12], [1e100, 0, -1e100], [5.0, 1e9, 1e9], [0, 0, 0]])
def test_constants_that_decide_alone(sessions: Sessions, intercept: list[float]) -> None:
    coefficients = np.array([[1.0, 0], [0, 1.0], [-1.0, 1.0]])
    model = LinearModel(coefficients, np.array(intercept, dtype=float), "softmax", labels=np.arange(3))
    x = np.random.default_rng(0).uniform(-1, 1, (40, 2))
    labels = compile_linear(model, x, sets=TOY, tell="labels")
    scores = model.scores(x)
    sure = np.sort(scores, axis=1)[:, -1] - np.sort(scores, axis=1)[:, -2] > 0.05
    key, session = sessions(TOY)
    found = labels.predict(x)
    np.testing.assert_array_equal(found[sure], (x @ coefficients.T + intercept).argmax(axis=1)[sure])
    np.testing.assert_array_equal(labels.predict(x[:8], "encrypted", key=key, session=session), found[:8])


@pytest.mark.tier("all")
def test_the_real_set(sessions: Sessions, tmp_path: Any) -> None:
    datasets, linear = pytest.importorskip("sklearn.datasets"), pytest.importorskip("cloakwork.estimators")
    x, y = datasets.load_wine(return_X_y=True)
    x = (x - x.mean(axis=0)) / x.std(axis=0)
    fitted = linear.LogisticRegression().fit(x[::2], y[::2])
    clear = fitted.predict(x[1::2])
    facts = fitted.compile(x, tell="labels").report()
    assert (facts["parameter_set"], facts["outputs"]) == ("large16", 1)
    assert facts["failure_log2"] <= -128 and facts["p_fail_log2"] <= -124
    told = {each["what"] for each in facts["discloses"]}
    assert told == {
        "ranges of features in round numbers",
        "levels of features",
        "labels",
        "scale of what is encrypted",
    }
    assert (fitted.predict(x[1::2]) == clear).mean() >= 0.97
    with pytest.raises(CompileError, match="tell='labels', so the client decrypts labels only"):
        fitted.predict_proba(x)
    fitted.save(tmp_path / "labels.clkm")
    loaded = CompiledModel.load(tmp_path / "labels.clkm")
    key, session = sessions("large16")
    np.testing.assert_array_equal(
        loaded.predict(x[1:60:30], "encrypted", key=key, session=session), fitted.predict(x[1:60:30])
    )


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        ({"labels": None}, CompileError, "expected a classifier whose label is that of the largest score"),
        ({"labels": None, "after": (Indicators(),)}, CompileError, "expected a classifier whose label"),
        ({"classes": 65}, CompileError, "expected at most 64 classes, got 65"),
        ({"parameters": "gate_64"}, NoParameterSetError, "look-ups of 'gate_64' are too noisy to compare sums of 4 features"),
        ({"parameters": "lut3"}, NoParameterSetError, "use large16"),
        ({"input_bits": 0}, CompileError, "input_bits: expected 4 to 20"),
        ({"input_bits": -3}, CompileError, "input_bits: expected 4 to 20"),
        ({"input_bits": 99}, CompileError, "input_bits: expected 4 to 20"),
        ({"input_bits": 20}, NoParameterSetError, "features of 20 bits; use large16, fewer bits, or"),
        ({"p_fail_log2": 0.0}, CompileError, "p_fail_log2: expected log2 of a probability"),
    ],
)  # fmt: skip
def test_what_has_no_encrypted_arg_max(changed: dict[str, Any], error: type[Exception], message: str) -> None:
    options = {key: changed[key] for key in ("labels", "after") if key in changed}
    wanted = {key: changed[key] for key in ("input_bits", "p_fail_log2") if key in changed}
    random, classes = np.random.default_rng(0), changed.get("classes", 3)
    model, x = classifier(random, classes, 4)
    with pytest.raises(error, match=message):
        compile_linear(
            replace(model, **options),
            x,
            sets=changed.get("parameters", TOY),
            tell="labels",
            accuracy=0.0,
            **wanted,
        )
