"""Composition of linear nodes and the order of pools and activations: fewer bootstraps, the same values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, helper
from onnx_models import model, residual_images, runtime

from cloakwork.models.compile.pipeline import restructure
from cloakwork.models.onnx_import.importer import import_onnx
from cloakwork.models.passes import compose_windows, separate_levels
from cloakwork.models.runtime.interpreter import interpret

RNG = np.random.default_rng(8)


def network(*tail: str, channels: int = 4, nodes: int = 8) -> ModelProto:
    """A convolution, then these operators, then a Gemm."""
    constants: dict[str, Any] = {
        "w": RNG.standard_normal((channels, 1, 3, 3)).astype(np.float32),
        "b": RNG.standard_normal(channels).astype(np.float32),
        "g": RNG.standard_normal((3, nodes)).astype(np.float32),
    }
    attributes: dict[str, dict[str, Any]] = {
        "MaxPool": {"kernel_shape": [2, 2], "strides": [2, 2]},
        "AveragePool": {"kernel_shape": [2, 2], "strides": [2, 2]},
    }
    parts = [helper.make_node("Conv", ["x", "w", "b"], ["t0"], name="conv", pads=[1, 1, 1, 1])]
    for i, operator in enumerate(tail):
        parts.append(
            helper.make_node(operator, [f"t{i}"], [f"t{i + 1}"], name=operator, **attributes.get(operator, {}))
        )
    parts.append(helper.make_node("Flatten", [f"t{len(tail)}"], ["f"]))
    parts.append(helper.make_node("Gemm", ["f", "g"], ["y"], transB=1, name="fc"))
    return model(parts, [1, 6, 6], constants)


@pytest.mark.parametrize(
    ("tail", "bootstraps"),
    [
        (("Relu", "MaxPool"), 36 * 4),  # of every 4 numbers: 3 to find the largest, 1 for its ReLU
        (("MaxPool", "Relu"), 36 * 4),
        (("Abs", "MaxPool"), 36 * 4 + 27 * 4),  # not monotone: stays before the pool
        (("Relu", "AveragePool"), 36 * 4),
        (("AveragePool", "Relu"), 9 * 4),
        (("Relu", "GlobalAveragePool"), 36 * 4),
    ],
)
@pytest.mark.parametrize("most_added", [1 << 24, 0])
def test_bootstraps_of_a_convolution_and_a_pool(
    tail: tuple[str, ...], bootstraps: int, most_added: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compose_windows, "_MOST_ADDED", most_added)
    proto = network(*tail, nodes=4 if "GlobalAveragePool" in tail else 36)
    graph = restructure(import_onnx(proto))
    assert graph.bootstraps == bootstraps
    x = RNG.standard_normal((5, 1, 6, 6))
    np.testing.assert_allclose(interpret(graph, x), runtime(proto, x), rtol=1e-4, atol=1e-4)


def test_rows_on_the_same_window_stay_together() -> None:
    """The differences of a max-pool on a convolution of 4 channels are positions of 4 rows, not rows of their own."""
    graph = restructure(import_onnx(network("MaxPool", nodes=36)))
    assert graph.linears[0].gather.shape == (18, 12) and graph.linears[0].weights.shape[1] == 4


def test_wide_rows_are_refreshed_instead(monkeypatch: pytest.MonkeyPatch) -> None:
    proto = network("MaxPool", nodes=36)
    few = restructure(import_onnx(proto))
    monkeypatch.setattr(separate_levels, "WEIGHTS_PER_BOOTSTRAP", 1)
    monkeypatch.setattr(separate_levels, "COMPOSED_WIDTH", 4)
    many = restructure(import_onnx(proto))
    assert many.bootstraps > few.bootstraps
    x = RNG.standard_normal((5, 1, 6, 6))
    np.testing.assert_allclose(interpret(many, x), interpret(few, x), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("channels", "size"), [(2, 6), (8, 12)])
def test_channels_of_a_residual_sum_are_rows_of_one_position(channels: int, size: int) -> None:
    """On the window of the convolution and what the sum adds, not each of them on a window of its own."""
    proto = residual_images(channels, size)
    graph = restructure(import_onnx(proto))
    (joined,) = (node for node in graph.linears if node.origin == "sum")
    assert joined.gather.shape == (size**2, 9 * channels + channels) and joined.weights.shape[1] == channels
    x = RNG.standard_normal((3, 3, size, size))
    np.testing.assert_allclose(interpret(graph, x), runtime(proto, x), rtol=1e-4, atol=1e-4)


def test_positions_at_a_border_share_the_weights_of_those_inside() -> None:
    """What padding reads is 0, so that one block serves all 144 positions: wide layers would have nine times the weights, too many to be composed."""
    graph = restructure(import_onnx(residual_images(8, 12)))
    (joined,) = (node for node in graph.linears if node.origin == "sum")
    assert joined.weights.shape == (1, 8, 9 * 8 + 8)
    assert int((joined.gather < 0).sum()) == 8 * (4 * 12 * 3 - 4)  # of 3 x 3 windows, what lies outside


def test_rows_that_share_little_keep_positions_of_their_own() -> None:
    """The sum of a depthwise convolution and what it read: nine weights and one of sixteen windows."""
    w = RNG.standard_normal((16, 1, 3, 3)).astype(np.float32)
    parts = [
        helper.make_node("Relu", ["x"], ["r"], name="first"),
        helper.make_node("Conv", ["r", "w"], ["c"], name="depthwise", pads=[1, 1, 1, 1], group=16),
        helper.make_node("Add", ["c", "r"], ["s"], name="sum"),
        helper.make_node("Relu", ["s"], ["y"], name="last"),
    ]
    proto = model(parts, [16, 5, 5], {"w": w})
    graph = restructure(import_onnx(proto))
    (joined,) = (node for node in graph.linears if node.origin == "sum")
    assert joined.gather.shape == (16 * 25, 9)  # the middle of the window is what the sum adds
    x = RNG.standard_normal((3, 16, 5, 5))
    np.testing.assert_allclose(interpret(graph, x), runtime(proto, x), rtol=1e-4, atol=1e-4)


def test_a_residual_dense_layer_is_one_position() -> None:
    w = RNG.standard_normal((2, 12, 12)).astype(np.float32)
    parts = [
        helper.make_node("Gemm", ["x", "w0"], ["h"], name="in"),
        helper.make_node("Relu", ["h"], ["r"], name="first"),
        helper.make_node("Gemm", ["r", "w1"], ["g"], name="inner"),
        helper.make_node("Add", ["g", "r"], ["s"], name="sum"),
        helper.make_node("Relu", ["s"], ["y"], name="last"),
    ]
    proto = model(parts, [12], {"w0": w[0], "w1": w[1]})
    graph = restructure(import_onnx(proto))
    (joined,) = (node for node in graph.linears if node.origin == "sum")
    assert joined.gather.shape == (1, 12) and joined.weights.shape[1] == 12
    x = RNG.standard_normal((3, 12))
    np.testing.assert_allclose(interpret(graph, x), runtime(proto, x), rtol=1e-4, atol=1e-4)
