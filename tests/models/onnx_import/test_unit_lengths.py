"""Divided by its length at the end, in the ways of exporters: the client does it, and ONNX's reference gives the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper
from onnx_models import model, runtime
from several_tensors import network

import cloakwork as cw
from cloakwork.models.errors import CompileError, UnsupportedOperatorError
from cloakwork.models.graph.last_steps import L2Normalization
from cloakwork.models.onnx_import.importer import import_onnx
from cloakwork.models.runtime.interpreter import interpret

RNG = np.random.default_rng(37)
X = RNG.uniform(-1, 1, (240, 5))
W, V = RNG.standard_normal((5, 8)), RNG.standard_normal((8, 4))
BODY: list[Any] = [("MatMul", "x w", "h"), ("Relu", "h", "a"), ("MatMul", "a v", "e")]
WAYS: dict[str, list[Any]] = {
    "LpNormalization": [("LpNormalization", "e", "y", {"axis": -1, "p": 2})],
    "PyTorch": [
        ("ReduceL2", "e", "n", {"axes": [1], "keepdims": 1}),
        ("Clip", "n eps", "c"),
        ("Shape", "e", "s"),
        ("Expand", "c s", "d"),
        ("Div", "e d", "y"),
    ],
    "plain": [("ReduceL2", "e", "n", {"axes": [-1]}), ("Div", "e n", "y")],
    "by hand": [
        ("Pow", "e two", "q"),
        ("ReduceSum", "q last", "t", {"keepdims": 1}),
        ("Sqrt", "t", "n"),
        ("Add", "n eps", "d"),
        ("Div", "e d", "y"),
    ],
    "of products": [
        ("Mul", "e e", "q"),
        ("ReduceSum", "q last", "t"),
        ("Add", "eps t", "u"),
        ("Pow", "u half", "n"),
        ("Div", "e n", "y"),
    ],
    "Keras": [
        ("ReduceSumSquare", "e", "t", {"axes": [1]}),
        ("Max", "t eps", "m"),
        ("Sqrt", "m", "n"),
        ("Reciprocal", "n", "r"),
        ("Mul", "e r", "y"),
    ],
    "one over": [("ReduceL2", "e", "n", {"axes": [1]}), ("Div", "one n", "r"), ("Mul", "r e", "y")],
    "a power": [("ReduceSumSquare", "e", "t", {"axes": [1]}), ("Pow", "t minus", "r"), ("Mul", "r e", "y")],
}
CONSTANTS = {
    "w": W, "v": V, "eps": np.float32(1e-12), "two": np.float32(2), "half": np.float32(0.5), "one": np.float32(1), "minus": np.float32(-0.5),
    "last": np.array([-1]),
}  # fmt: skip


def built(nodes: list[Any], outputs: tuple[str, ...] = ("y",)) -> Any:
    return network([*BODY, *nodes], {"x": [5]}, list(outputs), CONSTANTS)


@pytest.mark.parametrize("way", WAYS)
def test_the_client_divides(way: str) -> None:
    proto = built(WAYS[way])
    graph = import_onnx(proto)
    assert [type(step) for step in graph.client_steps] == [L2Normalization] and graph.bootstraps == 8
    made = cw.compile(proto, X)
    wanted = np.maximum(X @ W.astype(np.float32), 0) @ V.astype(np.float32)
    wanted /= np.linalg.norm(wanted, axis=1, keepdims=True)
    np.testing.assert_allclose(made.predict_float(X), wanted, atol=1e-5)
    np.testing.assert_allclose(made.predict_float(X), runtime(proto, X), atol=1e-5)
    assert made.report()["check"]["measure"] == "cosine" and made.report()["bootstraps"] == 8
    found = made.predict(X, how="simulate", seed=1)
    assert np.square(found @ found.T - wanted @ wanted.T).mean() < 0.04**2


def test_what_is_no_length_of_it_stays() -> None:
    """Another tensor's length, another sum, more than a trifle added, or a result that other nodes read."""
    ways: list[list[Any]] = [
        [("ReduceL2", "a", "n", {"axes": [1]}), ("Div", "e n", "y")],
        [("ReduceL1", "e", "n", {"axes": [1]}), ("Div", "e n", "y")],
        [("ReduceL2", "e", "n", {"axes": [1]}), ("Add", "n one", "d"), ("Div", "e d", "y")],
        [("ReduceL2", "e", "n", {"axes": [1]}), ("Div", "e n", "u"), ("Mul", "u two", "y")],
    ]
    for way in ways:
        graph = import_onnx(built(way))
        assert not graph.client_steps and graph.bootstraps > 8
        np.testing.assert_allclose(interpret(graph, X), runtime(built(way), X), rtol=1e-3)


def test_an_output_beside_it_keeps_what_it_reads() -> None:
    proto = built(WAYS["PyTorch"], ("y", "n"))
    found = cw.compile(proto, X, accuracy=0).predict_float(X)
    np.testing.assert_allclose(found["y"] * found["n"], np.maximum(X @ W, 0) @ V, atol=1e-4)


def test_other_lengths_are_refused() -> None:
    for way, error in (
        ([("LpNormalization", "e", "y", {"p": 1})], "only p=2"),
        (
            [("LpNormalization", "e", "u"), ("Relu", "u", "y")],
            "comes after L2Normalization, which the client evaluates",
        ),
        ([("LpNormalization", "e", "y", {"axis": 0})], "along the batch"),
    ):
        with pytest.raises(UnsupportedOperatorError, match=error):
            import_onnx(built(way))
    odd = model([helper.make_node("ReduceL2", ["x"], ["n"]), helper.make_node("Div", ["x", "n"], ["y"])], [5], {})
    with pytest.raises(CompileError):
        import_onnx(odd)
