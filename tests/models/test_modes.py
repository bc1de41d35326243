"""The modes of `predict` compute one function: the same client steps in the same order, inside, at the edge of and far beyond the range."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from cases import case
from onnx import helper
from onnx_models import mlp, model

import cloakwork as cw
from cloakwork.fhe_core.client import ClientKey
from cloakwork.fhe_core.parameters import parameter_set
from cloakwork.fhe_core.server import Session
from cloakwork.models.compiled import CompiledModel
from cloakwork.models.errors import CalibratedRangeWarning, ShapeError
from cloakwork.models.linear.compile_linear import compile_linear
from cloakwork.models.linear.linear_model import LinearModel
from cloakwork.models.trees.compile_ensemble import compile_ensemble
from cloakwork.models.trees.ensemble import Tree, TreeEnsemble

TOY = parameter_set("toy_two_limb")
Modes = tuple[dict[str, Any], ...]
CALIBRATION = np.random.default_rng(5).uniform(-1, 1, (200, 4))
LOW, HIGH = float(CALIBRATION.min()), float(CALIBRATION.max())
ROUNDED = (-1.0, 1.0)  # outwards
POSITIVE = CALIBRATION / 4 + 0.75  # a range without zero


def network(x: np.ndarray = CALIBRATION, **options: Any) -> CompiledModel:
    proto = mlp(np.random.default_rng(2), [4, 4, 2])
    return cw.compile(proto, x, sets=[TOY], accuracy=0, **options)


def exact(x: np.ndarray = CALIBRATION) -> CompiledModel:
    return network(x, precision="exact_64", weight_bits=2, input_bits=2, activation_bits=2)


def image_network() -> CompiledModel:
    """Tensors that are no table."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], name="conv"),
        helper.make_node("Flatten", ["c"], ["f"]),
        helper.make_node("Relu", ["f"], ["y"], name="relu"),
    ]
    weights = {"w": np.array([[[[1.0, -0.5]]]], dtype=np.float32)}
    return cw.compile(model(nodes, [1, 2, 2], weights), CALIBRATION.reshape(-1, 1, 2, 2), sets=[TOY], accuracy=0)


def linear() -> CompiledModel:
    rng = np.random.default_rng(3)
    found = LinearModel(rng.normal(size=(2, 4)), rng.normal(size=2), labels=np.array(["a", "b"]), transform="softmax")
    return compile_linear(found, CALIBRATION, sets=TOY, margin=0.0)


def tree() -> CompiledModel:
    columns = (
        [0, 1, 0, 0, 0],
        [0.5, -0.25, 0, 0, 0],
        [1, 3, -1, -1, -1],
        [2, 4, -1, -1, -1],
        [[0], [0], [9], [2], [5]],
    )
    return compile_ensemble(TreeEnsemble((Tree.of_nodes(*columns),), features=4), sets=[TOY], thresholds="client")


# name -> model, how far modes may differ, the end at which values saturate (None: no range)
KINDS: dict[str, tuple[Callable[[], CompiledModel], float, tuple[float, float] | None]] = {
    "network": (network, 0.5, ROUNDED),
    "network of images": (image_network, 0.5, ROUNDED),
    "exact network": (exact, 0.0, (LOW, HIGH)),
    "exact network without zero": (lambda: exact(POSITIVE), 0.0, (float(POSITIVE.min()), float(POSITIVE.max()))),
    "linear model": (linear, 0.0, None),  # a range for each column
    "tree": (tree, 0.0, None),
}


@pytest.fixture(scope="module")
def modes() -> Modes:
    """Options of `predict`."""
    key = ClientKey.generate(TOY)
    return (
        {},
        {"how": "simulate", "seed": 1},
        {"how": "encrypted", "key": key, "session": Session(key.evaluation_keys())},
    )


@pytest.fixture(scope="module")
def models() -> dict[str, CompiledModel]:
    return {kind: make() for kind, (make, _, _) in KINDS.items()}


def points(kind: str) -> np.ndarray:
    """Inside, at both edges, a little and far outside."""
    low, high = KINDS[kind][2] or (-1.0, 1.0)
    middle = np.full(4, (low + high) / 2)
    rows = [
        middle,
        np.full(4, low),
        np.full(4, high),
        middle + np.array([0, 0, 0, (high - low) * 0.7]),
        [low - 3, high + 50, low, high],
        np.full(4, 1e6),
        np.full(4, -1e300),
    ]
    return shaped(kind, np.array(rows))


def shaped(kind: str, rows: np.ndarray) -> np.ndarray:
    """Rows of four numbers as the model takes them."""
    return rows.reshape(-1, 1, 2, 2) if kind == "network of images" else rows


@pytest.mark.parametrize("kind", KINDS)
def test_modes_agree_inside_at_the_edge_and_beyond(models: dict[str, CompiledModel], modes: Modes, kind: str) -> None:
    (_, tolerance, ends), made = KINDS[kind], models[kind]
    x = points(kind)
    results = []
    for mode in modes:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            results.append(made.predict(x, **mode, output="scores"))
        reports = [w for w in caught if issubclass(w.category, CalibratedRangeWarning)]
        assert len(reports) == (kind != "tree")  # trees have no range
        assert len(caught) == len(reports)
        assert all(w.filename == __file__ for w in reports)  # at the user's line
    clear, simulated, encrypted = results
    if tolerance == 0:
        np.testing.assert_array_equal(simulated, clear)
        np.testing.assert_array_equal(encrypted, clear)
    else:
        assert np.abs(simulated - clear).max() < tolerance * np.ptp(clear)
        assert np.abs(encrypted - clear).max() < tolerance * np.ptp(clear)
    if ends is not None:
        np.testing.assert_array_equal(clear, made.predict(np.clip(x, *ends), output="scores"))


def test_the_report_counts_values_and_names_columns(models: dict[str, CompiledModel], modes: Modes) -> None:
    made, x = models["network"], np.zeros((3, 4))
    x[0, 1], x[2, 1], x[2, 3] = 7.5, -1.5, 1.5
    for mode in modes:
        with pytest.warns(CalibratedRangeWarning) as caught:
            made.predict(x, **mode)
        assert len(caught) == 1
        assert str(caught[0].message) == (
            "input: 2 of 3 samples have values beyond the calibrated range (3 values in columns 'feature 1', 'feature 3'); "
            "they count as its end"
        )


BAD: tuple[Any, ...] = (
    np.zeros((0, 4)),
    np.zeros(4),
    np.float64(0.5),
    np.zeros((1, 5)),
    np.full((1, 4), np.nan),
    np.full((1, 4), np.inf),
    np.full((1, 4), "a"),
    np.ones((1, 4), dtype=complex),
    np.full((1, 4), None),
    [[10**400, 0, 0, 0]],
    [[1.0, 2.0], [3.0]],
    [{}, {}],
    "abcd",
    None,
)


@pytest.mark.parametrize("kind", KINDS)
def test_modes_refuse_the_same_input(models: dict[str, CompiledModel], modes: Modes, kind: str) -> None:
    for given in BAD:
        x = shaped(kind, given) if isinstance(given, np.ndarray) and given.ndim == 2 and given.shape[1] == 4 else given
        for mode in modes:
            with case(given, mode), pytest.raises(ShapeError):
                models[kind].predict(x, **mode)


@pytest.mark.parametrize("kind", KINDS)
def test_integers_and_booleans_are_numbers(models: dict[str, CompiledModel], modes: Modes, kind: str) -> None:
    for dtype in (np.int8, np.uint64, np.bool_, np.float16, object):
        x = shaped(kind, np.ones((1, 4), dtype=dtype))
        expected = None
        for mode in modes:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", CalibratedRangeWarning)
                found = models[kind].predict(x, **mode, output="scores")
            expected = found if expected is None else expected
            assert found.shape == expected.shape and np.isfinite(found).all()
