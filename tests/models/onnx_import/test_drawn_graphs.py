"""Drawn graphs, and the smallest that were once wrong, against ONNX Runtime: as imported, and after the passes that restructure them."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import onnx
import pytest
from cases import case
from drawn_graphs import drawn_graph, expected
from onnx import helper
from onnx_models import model

from cloakwork.models.client_steps import run_output_steps
from cloakwork.models.compile.pipeline import restructure
from cloakwork.models.errors import UnsupportedOperatorError
from cloakwork.models.graph.ir import Lookup
from cloakwork.models.onnx_import.importer import import_onnx
from cloakwork.models.runtime.interpreter import interpret

RNG = np.random.default_rng(20261128)


def agrees(proto: onnx.ModelProto, samples: np.ndarray) -> None:
    wanted = expected(proto, samples)
    imported = import_onnx(proto)
    for graph in (imported, restructure(imported), import_onnx(proto, pools_first=False)):
        found = run_output_steps(graph.client_steps, interpret(graph, samples))
        assert found.shape == wanted.shape
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4 * max(1.0, float(np.abs(wanted).max())))


def counted(seeds: range) -> Counter[str]:
    found: Counter[str] = Counter()
    for seed in seeds:
        with case("seed", seed):
            try:
                agrees(*drawn_graph(seed))
                found["right"] += 1
            except UnsupportedOperatorError:
                found["refused"] += 1
    return found


@pytest.mark.parametrize(
    "seeds",
    [
        range(30),
        pytest.param(range(1000, 1060), marks=pytest.mark.tier("all")),
        pytest.param(range(2000, 3000), marks=pytest.mark.tier("release")),
    ],
    ids=str,
)
def test_drawn_graphs_answer_as_onnx_runtime(seeds: range) -> None:
    found = counted(seeds)
    assert found["right"] > 0.9 * len(seeds)


def nodes(*layers: tuple[str, list[str], dict[str, Any]]) -> list[onnx.NodeProto]:
    """One after the other; each reads what is made before it, and constants."""
    made = ["x", *(f"n{i}" for i in range(len(layers) - 1)), "y"]
    return [
        helper.make_node(operator, [made[i], *constants], [made[i + 1]], name=f"{operator}{i}", **attributes)
        for i, (operator, constants, attributes) in enumerate(layers)
    ]


PADS = {"pads": np.array([0, 0, 1, 1, 0, 0, 1, 0])}
POOL = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 0, 0, 1]}
ZEROS: dict[str, tuple[list[onnx.NodeProto], dict[str, Any]]] = {
    "pad, max pool": (nodes(("Pad", ["pads"], {}), ("MaxPool", [], POOL)), PADS),
    "pad, average pool": (nodes(("Pad", ["pads"], {}), ("AveragePool", [], POOL)), PADS),
    "convolution, pad, max pool": (
        nodes(("Conv", ["w"], {}), ("Pad", ["pads"], {}), ("MaxPool", [], POOL)),
        {**PADS, "w": RNG.standard_normal((2, 1, 2, 2)).astype(np.float32)},
    ),
    "ReLU, pad, max pool": (nodes(("Relu", [], {}), ("Pad", ["pads"], {}), ("MaxPool", [], POOL)), PADS),
    "concat, max pool": (
        nodes(("Concat", ["zeros"], {"axis": 3}), ("MaxPool", [], POOL)),
        {"zeros": np.zeros((1, 1, 5, 2), dtype=np.float32)},
    ),
    "trilu, average pool": (nodes(("Trilu", [], {}), ("AveragePool", [], POOL)), {}),
    "trilu, largest of a row": (nodes(("Trilu", [], {}), ("ReduceMax", [], {"axes": [3]})), {}),
}


@pytest.mark.parametrize("name", ZEROS)
def test_zeros_of_the_model_are_numbers_of_a_pool(name: str) -> None:
    layers, constants = ZEROS[name]
    agrees(model(layers, [1, 5, 5], constants), RNG.standard_normal((20, 1, 5, 5)).astype(np.float32))


def test_zeros_beside_a_relu_cost_a_pool_nothing() -> None:
    """Keras' ResNet: the ReLU is done behind the pool, on as many numbers as without the Pad."""
    layers, constants = ZEROS["ReLU, pad, max pool"]
    graph = import_onnx(model(layers, [1, 5, 5], constants))
    last = graph.lookups[-1]
    assert isinstance(last, Lookup)
    assert last.size == graph.output.size


def test_windows_of_nothing_but_padding_are_refused() -> None:
    layer = nodes(("MaxPool", [], {"kernel_shape": [2], "dilations": [3], "pads": [1, 1]}))
    with pytest.raises(UnsupportedOperatorError, match="nothing but padding"):
        import_onnx(model(layer, [1, 2]))


FALLING = {
    "Selu": {"gamma": -1.0},
    "Elu": {"alpha": -0.5},
    "LeakyRelu": {"alpha": -0.5},
    "ThresholdedRelu": {"alpha": -1.0},
    "HardSigmoid": {"alpha": -0.3},
    "HardSwish": {},
    "Gelu": {},
    "Mish": {},
    "Sin": {},
}


@pytest.mark.parametrize("name", FALLING)
def test_pools_stay_behind_functions_that_fall(name: str) -> None:
    layers = nodes((name, [], FALLING[name]), ("MaxPool", [], {"kernel_shape": [3]}))
    agrees(model(layers, [2, 9], opset=20), 2 * RNG.standard_normal((20, 2, 9)).astype(np.float32))
