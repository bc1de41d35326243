"""Nearest neighbours: encrypted answers are the integers' in clear, which decide as scikit-learn does; queries and tables unlike each other."""

from __future__ import annotations

import json
import warnings
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_diabetes, load_digits, load_wine
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
from sklearn.preprocessing import StandardScaler

from cloakwork.fhe_core.errors import CancelledError, FheError, KeyMismatchError
from cloakwork.fhe_core.levelled.ciphertexts import (
    LevelledCiphertexts,
    LevelledEvaluationKeys,
    SeededLevelledCiphertexts,
)
from cloakwork.fhe_core.levelled.client import LevelledClientKey
from cloakwork.models.errors import AccuracyWarning, CalibratedRangeWarning, CompileError
from cloakwork.models.neighbours import quantise
from cloakwork.models.neighbours.client import Metric, NeighbourClient
from cloakwork.models.neighbours.index import NeighbourIndex


@pytest.fixture(scope="module")
def digits() -> tuple[np.ndarray, np.ndarray]:
    x, y = load_digits(return_X_y=True)
    return x, y


def test_digits_are_exact(digits: tuple[np.ndarray, np.ndarray]) -> None:
    """Whole numbers are not rounded: labels are scikit-learn's but where rows are equally far."""
    x, y = digits
    index = NeighbourIndex.build(x[:1400], y[:1400], n_neighbors=3)
    theirs = KNeighborsClassifier(3).fit(x[:1400], y[:1400])
    assert index.agreement == 1.0 and index.client.step == 1.0
    assert (index.predict(x[1400:]) == theirs.predict(x[1400:])).mean() > 0.99
    distances = ((x[1400:1500, None] - x[None, :1400]) ** 2).sum(axis=2)
    queries = index.client.integers(x[1400:1500])
    np.testing.assert_array_equal((queries**2).sum(axis=1)[:, None] - index.scores(queries), distances)
    key = LevelledClientKey.generate(index.client.parameters)
    np.testing.assert_array_equal(index.predict(x[1400:1408], "encrypted", key=key), index.predict(x[1400:1408]))


def cases() -> list[Any]:
    rng = np.random.default_rng(4)
    wine, wine_labels = load_wine(return_X_y=True)
    diabetes, progress = load_diabetes(return_X_y=True)
    names = np.array(["rosso", "bianco", "other"])[wine_labels]
    return [
        pytest.param(StandardScaler().fit_transform(wine), names, {"weights": "distance"}, id="scaled-texts"),
        pytest.param(wine, wine_labels, {"n_neighbors": 1}, id="raw"),
        pytest.param(diabetes, progress, {"classify": False, "weights": "distance"}, id="values"),
        pytest.param(rng.standard_normal((300, 100)), rng.integers(0, 4, 300), {"metric": "cosine"}, id="cosine"),
        pytest.param(rng.standard_normal((5000, 3)), rng.integers(0, 2, 5000), {"n_neighbors": 9}, id="two-blocks"),
        pytest.param(np.repeat(rng.standard_normal((4, 2)), 5, axis=0), np.arange(20) % 3, {}, id="equal-rows"),
        pytest.param(np.zeros((8, 2)), np.arange(8), {}, id="all-zero"),
        pytest.param(rng.standard_normal((1, 1)) * 1e9, ["only"], {"n_neighbors": 1}, id="one-row"),
        pytest.param(rng.standard_normal((40, 2)) * 1e-9, np.arange(40.0), {"classify": False}, id="tiny"),
    ]


QUICK = ("scaled-texts", "cosine", "one-row")


@pytest.mark.filterwarnings("ignore::cloakwork.models.errors.AccuracyWarning")
@pytest.mark.filterwarnings("ignore::cloakwork.models.errors.CalibratedRangeWarning")
@pytest.mark.parametrize(
    ("table", "target", "options"),
    [
        pytest.param(*each.values, id=each.id, marks=() if each.id in QUICK else pytest.mark.tier("all"))
        for each in cases()
    ],
)
def test_encrypted_is_as_in_clear(table: np.ndarray, target: Any, options: dict[str, Any]) -> None:
    """Through bytes on both ways, by a client that has its specification alone."""
    index = NeighbourIndex.build(table, target, n_neighbors=options.pop("n_neighbors", 5), **options)
    client = NeighbourClient.from_json(index.client.to_json())
    key = LevelledClientKey.generate(client.parameters)
    keys = LevelledEvaluationKeys.from_bytes(client.evaluation_keys(key).to_bytes(), client.parameters)
    scorer = index.scorer(keys, threads=2)
    rng = np.random.default_rng(5)
    spread = np.ptp(table, axis=0) + (np.ptp(table) == 0)
    samples = np.concatenate([table[:2], table[:1] + spread * rng.standard_normal((2, table.shape[1]))])
    found = []
    for sample in samples:
        query = SeededLevelledCiphertexts.from_bytes(client.encrypt(key, sample).to_bytes(), client.parameters)
        answer = LevelledCiphertexts.from_bytes(scorer.score(query).to_bytes(), client.parameters)
        found.append(client.scores(key, answer))
    queries = client.integers(samples)
    np.testing.assert_array_equal(np.stack(found), index.scores(queries))
    np.testing.assert_array_equal(client.decide(np.stack(found), queries), index.predict(samples))


def test_raw_features_get_more_bits_or_a_warning() -> None:
    """A table whose nearest rows differ in features that one step for all rounds away."""
    x, y = load_wine(return_X_y=True)
    fine = NeighbourIndex.build(x, y)
    assert fine.input_bits > 8 and fine.agreement >= 0.97
    theirs = KNeighborsClassifier().fit(x, y)
    assert (fine.predict(x) == theirs.predict(x)).mean() >= 0.97
    with pytest.warns(AccuracyWarning, match="4 bits a feature decide as unrounded ones in .* scale them") as warned:
        coarse = NeighbourIndex.build(x, y, input_bits=4)
    assert warned[0].filename == __file__
    assert coarse.agreement < 0.97


def test_regression_is_close() -> None:
    x, y = load_diabetes(return_X_y=True)
    x = StandardScaler().fit_transform(x)
    index = NeighbourIndex.build(x[:300], y[:300], classify=False)
    theirs = KNeighborsRegressor().fit(x[:300], y[:300]).predict(x[300:])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CalibratedRangeWarning)
        ours = index.predict(x[300:])
    assert np.corrcoef(ours, theirs)[0, 1] > 0.97


def test_queries_beyond_the_table_are_told() -> None:
    rng = np.random.default_rng(6)
    index = NeighbourIndex.build(rng.standard_normal((50, 4)), np.arange(50) % 2)
    with pytest.warns(CalibratedRangeWarning, match="1 of 2 queries"):
        found = index.client.integers(np.array([[0.0] * 4, [1e30, 0, 0, -1e30]]))
    assert np.abs(found).max() == index.client.limit


def test_the_report(digits: tuple[np.ndarray, np.ndarray]) -> None:
    x, y = digits
    index = NeighbourIndex.build(x, y)
    report = index.report()
    key = LevelledClientKey.generate(index.client.parameters)
    query = index.client.encrypt(key, x[0])
    answer = index.scorer(index.client.evaluation_keys(key)).score(query)
    assert len(query.to_bytes()) == report["query_bytes"] + 80 + 32 + 32  # header, seed, checksum
    assert len(answer.to_bytes()) == report["answer_bytes"] + 80 + 8 * len(answer.noise.variances) + 32
    assert report["security_bits"] >= 132 and report["client_learns"] == "the score of every row"


@pytest.mark.parametrize(
    ("table", "target", "options", "message"),
    [
        (np.zeros(3), np.zeros(3), {}, "shapes"),
        (np.zeros((3, 2)), np.zeros(2), {}, "shapes"),
        (np.zeros((0, 2)), np.zeros(0), {}, "shapes"),
        (np.full((3, 2), np.nan), np.zeros(3), {"n_neighbors": 1}, "finite"),
        (np.zeros((3, 2)), np.zeros(3), {"n_neighbors": 4}, "1 to 3"),
        (np.zeros((3, 2)), np.zeros(3), {"n_neighbors": 0}, "1 to 3"),
        (np.zeros((3, 2)), np.zeros(3), {"n_neighbors": 1, "metric": "manhattan"}, "metric"),
        (np.zeros((3, 2)), np.zeros(3), {"n_neighbors": 1, "input_bits": 13}, "2 to 12"),
        (np.random.default_rng(7).standard_normal((60, 9000)), np.zeros(60), {}, "fewer"),
    ],
)
def test_wrong_tables(table: np.ndarray, target: np.ndarray, options: dict[str, Any], message: str) -> None:
    with pytest.raises(CompileError, match=message):
        NeighbourIndex.build(table, target, **options)


def test_wrong_queries_and_keys() -> None:
    rng = np.random.default_rng(8)
    index = NeighbourIndex.build(rng.standard_normal((30, 3)), np.arange(30) % 2)
    for wrong in (np.zeros((2, 4)), np.zeros(3), np.full((1, 3), np.inf)):
        with pytest.raises(CompileError, match="samples"):
            index.predict(wrong)
    with pytest.raises(CompileError, match="how"):
        index.predict(np.zeros((1, 3)), "execute")  # type: ignore[arg-type]
    key, stranger = (LevelledClientKey.generate(index.client.parameters) for _ in range(2))
    scorer = index.scorer(index.client.evaluation_keys(key))
    with pytest.raises(KeyMismatchError):
        scorer.score(index.client.encrypt(stranger, np.zeros(3)))
    with pytest.raises(FheError):
        scorer.score(key.encrypt(np.zeros(index.client.parameters.polynomial_size, int), 1))


def test_hostile_specifications() -> None:
    rng = np.random.default_rng(9)
    text = NeighbourIndex.build(rng.standard_normal((30, 3)), np.arange(30) % 2).client.to_json()
    fields = json.loads(text)
    changes: list[dict[str, Any]] = [
        {"format": "x"}, {"set": "bgv99"}, {"plaintext_modulus": 1}, {"level": 9}, {"answer_level": 0}, {"rows": 29}, {"step": 0}, {"step": "x"},
        {"limit": -1}, {"metric": "l1"}, {"weights": 3}, {"n_neighbors": 31}, {"centre": []}, {"centre": [[1]]}, {"target": None},
        {"step": float("nan")}, {"step": float("inf")}, {"limit": float("inf")}, {"centre": [1.0, float("nan"), 0.0]}, {"classes": [0]},
        {"classes": [1, 0]}, {"classes": [0, 1, 2]}, {"classes": None, "target": ["a"] * 30}, {"target": [[0]] * 30}, {"target": [{}] * 30},
    ]  # fmt: skip
    for change in changes:
        with pytest.raises(FheError):
            NeighbourClient.from_json(json.dumps(fields | change))
    for name in fields:
        with pytest.raises(FheError):
            NeighbourClient.from_json(json.dumps({k: v for k, v in fields.items() if k != name}))
    for wrong in ("", "[]", "3", "{", text[:-2], "[" * 100_000):
        with pytest.raises(CompileError):
            NeighbourClient.from_json(wrong)


@pytest.mark.filterwarnings("ignore::cloakwork.models.errors.AccuracyWarning")
@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
@pytest.mark.parametrize("dtype", [np.int8, np.float32, np.uint16, bool, np.float64])
def test_parts_of_a_table_change_nothing(monkeypatch: pytest.MonkeyPatch, metric: Metric, dtype: type) -> None:
    """Of a few rows each: the same integers, scores and agreement as of the whole; equal rows stay in order."""
    rng = np.random.default_rng(4)
    table = (rng.standard_normal((211, 7)) * 40 + 120 * (dtype is np.uint16)).astype(dtype)
    table[100:140] = table[:40]
    target = rng.integers(0, 3, 211)
    whole = NeighbourIndex.build(table, target, n_neighbors=4, metric=metric)
    monkeypatch.setattr(quantise, "_NUMBERS_AT_ONCE", 200)
    told: list[tuple[int, int]] = []
    parts = NeighbourIndex.build(
        table, target, n_neighbors=4, metric=metric, progress=lambda done, total: told.append((done, total))
    )
    np.testing.assert_array_equal(parts.integers, whole.integers)
    assert parts.integers.dtype == np.int16
    assert parts.client.to_json() == whole.client.to_json() and parts.agreement == whole.agreement
    queries = whole.client.integers(table[:5])
    np.testing.assert_array_equal(parts.scores(queries), whole.scores(queries))
    factor, wide = (2 if metric == "euclidean" else 1), whole.integers.astype(np.int64)
    np.testing.assert_array_equal(whole.scores(queries), factor * queries @ wide.T + whole.offsets)
    assert told[-1] == (422, 422) and {total for _, total in told} == {422}


def test_agreement_is_that_of_all_pairs() -> None:
    """Rows that decide otherwise by coarse integers are counted, those among equal rows too."""
    rng = np.random.default_rng(5)
    table, target = rng.standard_normal((300, 5)), rng.integers(0, 4, 300)
    with pytest.warns(AccuracyWarning):
        index = NeighbourIndex.build(table, target, n_neighbors=3, input_bits=3)
    wide = index.integers.astype(np.int64)
    decided = []
    for scores in (2 * wide @ wide.T - (wide**2).sum(axis=1), -np.square(table[:, None] - table).sum(axis=2)):
        near = np.argsort(-np.where(np.eye(300, dtype=bool), -np.inf, scores), axis=1, kind="stable")
        decided.append(index.client.of_rows(near[:, :3], np.ones((300, 3))))
    assert index.agreement == (decided[0] == decided[1]).mean() < 0.97


def test_tables_that_are_no_numbers() -> None:
    for table in (np.array([["a", "b"]]), np.zeros((2, 2), dtype=complex), np.array([[None, 1]])):
        with pytest.raises(CompileError, match="table"):
            NeighbourIndex.build(table, np.arange(len(table)), n_neighbors=1)
    with pytest.raises(CompileError, match="finite"):
        NeighbourIndex.build(np.array([[1.0, np.nan]]), [0], n_neighbors=1)


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
@pytest.mark.parametrize("scale", [2.0**990, 2.0**-990])
def test_units_change_nothing(metric: Metric, scale: float) -> None:
    """Squares of such numbers are beyond doubles, or zero."""
    rng = np.random.default_rng(6)
    table, target = rng.standard_normal((120, 6)), rng.integers(0, 3, 120)
    options: dict[str, Any] = {"n_neighbors": 4, "metric": metric, "weights": "distance"}
    plain, other = (NeighbourIndex.build(table * factor, target, **options) for factor in (1.0, scale))
    np.testing.assert_array_equal(other.integers, plain.integers)
    assert (other.input_bits, other.agreement) == (plain.input_bits, plain.agreement)
    np.testing.assert_array_equal(other.predict(table[:20] * scale), plain.predict(table[:20]))


def test_progress_cancels() -> None:
    table, target = np.arange(40.0).reshape(10, 4), np.arange(10) % 2
    with pytest.raises(CancelledError):
        NeighbourIndex.build(table, target, n_neighbors=2, progress=lambda done, total: False)
    index = NeighbourIndex.build(table, target, n_neighbors=2, progress=lambda done, total: None)
    keys = index.client.evaluation_keys(LevelledClientKey.generate(index.client.parameters))
    with pytest.raises(CancelledError):
        index.scorer(keys, progress=lambda done, total: False)
