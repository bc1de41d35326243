"""Every program's ranges fit what reads them: a last check, and the ways in which ranges once did not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from onnx import helper
from onnx_models import mlp, model

import cloakwork as cw
from cloakwork.models.compiled import CompiledModel
from cloakwork.models.criteria.choose_set import check_room
from cloakwork.models.errors import PrecisionOverflowError
from cloakwork.models.graph.ir import wires


def network() -> CompiledModel:
    rng = np.random.default_rng(1)
    return cw.compile(mlp(rng, [5, 8, 3]), rng.normal(size=(200, 5)), accuracy=0)


@pytest.mark.parametrize(("position", "layer", "times"), [(0, "layer0", 1.2), (1, "layer1", 1.5)])
def test_a_range_that_does_not_fit_is_an_error_that_names_its_layer(position: int, layer: str, times: float) -> None:
    graph = network().program.graph
    check_room(graph)
    node = graph.linears[position]
    assert graph.lower is not None and graph.upper is not None
    lower, upper, own = graph.lower.copy(), graph.upper.copy(), wires(node)
    middle, half = (lower[own] + upper[own]) / 2, (upper[own] - lower[own]) / 2
    lower[own], upper[own] = middle - times * half, middle + times * half
    with pytest.raises(PrecisionOverflowError, match=f"layer '{layer}': its range of -?[0-9.]+ to"):
        check_room(replace(graph, lower=lower, upper=upper))


def test_tokens_of_equal_weights_and_their_own_ranges_fit_their_tables() -> None:
    """A vision transformer's: one matrix for all positions, and what a table of positions adds to each. Rows once shared the first one's scale."""
    rng = np.random.default_rng(2)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"], name="tokens"),
        helper.make_node("Add", ["h", "e"], ["p"], name="positions"),
        helper.make_node("Tanh", ["p"], ["t"], name="activation"),
        helper.make_node("ReduceMean", ["t"], ["y"], name="mean", axes=[1], keepdims=0),
    ]
    constants = {
        "w": rng.uniform(0.1, 0.3, (6, 8)).astype(np.float32),
        "e": rng.normal(size=(1, 4, 8)).astype(np.float32),
    }
    alike = np.array([-0.15, 0, 0.5, 1])[
        :, None, None
    ]  # correlation of a token's numbers: rows of weights above 0 reach far where they are alike
    covariance = np.eye(6) * (1 - alike) + alike
    x = np.stack([rng.multivariate_normal(np.zeros(6), each, 300).clip(-3, 3) for each in covariance], axis=1)
    made = cw.compile(model(nodes, [4, 6], constants), x, accuracy=0, task="regression")
    graph = made.program.graph
    check_room(graph)
    wanted = made.predict_float(x)
    assert np.sqrt(np.square(made.predict(x) - wanted).mean()) < 0.1 * wanted.std()


def reconstruction_error() -> tuple[CompiledModel, np.ndarray]:
    """Mean square of what a projection on two directions leaves of six numbers; samples lie close to the plane of both."""
    rng = np.random.default_rng(3)
    plane = np.linalg.qr(rng.normal(size=(6, 2)))[0]
    nodes = [
        helper.make_node("MatMul", ["x", "p"], ["r"], name="projection"),
        helper.make_node("Sub", ["x", "r"], ["d"], name="residual"),
        helper.make_node("Mul", ["d", "d"], ["s"], name="square"),
        helper.make_node("ReduceMean", ["s"], ["y"], name="error", axes=[1]),
    ]
    proto = model(nodes, [6], {"p": (plane @ plane.T).astype(np.float32)})
    ordinary = 2 * rng.normal(size=(300, 2)) @ plane.T + 0.1 * rng.normal(size=(300, 6))
    return cw.compile(proto, ordinary), ordinary


def test_answers_of_anomalies_do_not_come_back_on_the_other_side() -> None:
    made, ordinary = reconstruction_error()
    anomalies = 4 * np.random.default_rng(4).choice([-1.0, 1.0], (200, 6))
    largest = made.predict_float(ordinary).max()
    with pytest.warns(UserWarning, match="range"):
        found = made.predict(np.concatenate([anomalies, 10 * anomalies]), how="simulate", seed=1)
    assert (found >= 0.95 * largest).all()
