"""Average pools are linear layers that become part of their neighbours: no look-up but those of the activations."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, helper
from onnx_models import model, runtime

from cloakwork.models.compile.pipeline import restructure
from cloakwork.models.onnx_import.importer import import_onnx
from cloakwork.models.runtime.interpreter import interpret

RNG = np.random.default_rng(8)
POOLS: dict[str, dict[str, Any]] = {
    "2x2": {"kernel_shape": [2, 2], "strides": [2, 2]},
    "4x4": {"kernel_shape": [4, 4], "strides": [4, 4]},
    "overlapping": {"kernel_shape": [3, 3], "strides": [1, 1], "pads": [1, 1, 1, 1]},
    "padding counted": {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1], "count_include_pad": 1},
    "padding not counted": {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1], "count_include_pad": 0},
}


def network(order: str, pool: dict[str, Any], channels: int = 16) -> ModelProto:
    """Layers by letters (c first convolution, r relu, a average pool), then convolution, relu, global average, gemm."""
    made = {
        "c": ("Conv", ["w"], {"pads": [1, 1, 1, 1]}),
        "r": ("Relu", [], {}),
        "a": ("AveragePool", [], pool),
        "d": ("Conv", ["v"], {"pads": [1, 1, 1, 1]}),
        "g": ("GlobalAveragePool", [], {}),
        "f": ("Flatten", [], {}),
        "m": ("MatMul", ["u"], {}),
    }
    nodes, last = [], "x"
    for i, letter in enumerate(word := f"{order}drgfm"):
        operator, constants, attributes = made[letter]
        result = "y" if i == len(word) - 1 else f"t{i}"
        nodes.append(helper.make_node(operator, [last, *constants], [result], name=f"{operator}{i}", **attributes))
        last = result
    inner = 8 if "c" in order else 1
    constants = {
        "w": RNG.standard_normal((8, 1, 3, 3)).astype(np.float32),
        "v": RNG.standard_normal((channels, inner, 3, 3)).astype(np.float32),
        "u": RNG.standard_normal((channels, 5)).astype(np.float32),
    }
    used = {name for node in nodes for name in node.input}
    return model(nodes, [1, 12, 12], {name: value for name, value in constants.items() if name in used})


@pytest.mark.parametrize("order", ["cra", "car", "a"])
@pytest.mark.parametrize("name", POOLS)
def test_a_pool_is_part_of_its_neighbours(name: str, order: str) -> None:
    """After a ReLU, before one, and on the input; `padding` of the counts by ONNX Runtime itself."""
    proto = network(order, POOLS[name])
    levelled = restructure(import_onnx(proto))
    assert all(lookup.steps for lookup in levelled.lookups), "a look-up that only refreshes"
    size = {"2x2": 6, "4x4": 3, "overlapping": 12}.get(name, 6)
    first = {"cra": 8 * 144, "car": 8 * size**2, "a": 0}[order]
    assert levelled.bootstraps == first + 16 * size**2
    x = RNG.standard_normal((2, 1, 12, 12))
    np.testing.assert_allclose(interpret(levelled, x), runtime(proto, x), rtol=1e-5, atol=2e-5)


def test_weights_stay_shared() -> None:
    """A convolution on a pool is one window sliding over the image: inner positions use one block."""
    levelled = restructure(import_onnx(network("cra", POOLS["2x2"], channels=48)))
    wide = next(node for node in levelled.linears if node.weights.shape[1] == 48)
    assert wide.weights.shape[2] == 8 * 36 and len(wide.weights) == 9  # corners, sides and the inside
