"""Small networks of many kinds, random but for what each is about, for tests that hold for any network."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import numpy as np
import onnx
from onnx import TensorProto
from quantised_models import SHAPE, quantised
from quantised_models import network as plain_network
from several_tensors import image_and_table, network, runtime, samples

RNG = np.random.default_rng(20261122)  # drawn from by one call of `kinds`
COUNT: Final = 150


@dataclass(frozen=True, eq=False)
class Kind:
    """`x` by name where the network has several inputs; `on_edges`: share of outputs that may fall to the other side of a quantiser's edge."""

    proto: onnx.ModelProto
    x: Any
    on_edges: float = 0.0

    def runtime(self) -> dict[str, np.ndarray]:
        given = self.x if isinstance(self.x, Mapping) else {self.proto.graph.input[0].name: self.x}
        return runtime(self.proto, given)


def _weights(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape) / math.sqrt(math.prod(shape[1:]) if len(shape) > 2 else shape[0])


def _kind(nodes: list[tuple[Any, ...]], shape: list[int], spread: Any = 1.0, **constants: Any) -> Kind:
    """The last node's first result is the output."""
    output = nodes[-1][2].split()[0]
    integers = {output: TensorProto.INT64} if nodes[-1][0] == "ArgMax" else {}
    proto = network(nodes, {"x": shape}, [output], constants, integers)
    return Kind(proto, spread * RNG.standard_normal((COUNT, *shape)))


def _quantised() -> Kind:
    x = RNG.standard_normal((COUNT, *SHAPE))
    with TemporaryDirectory() as folder:
        proto = quantised(Path(folder), plain_network(RNG), x, operators=False, per_channel=True)
    return Kind(proto, x, on_edges=0.02)


NAMES: Final = (
    "perceptron",
    "raw columns, batch normalisation, arg-max",
    "convolution, padding, max-pool, softmax",
    "residual, average pool",
    "SiLU and HardSwish written out",
    "gates: products of two wires",
    "layer normalisation",
    "concatenated branches, last Sigmoid",
    "linear on linear, shared columns",
    "transposed convolution, upsampling",
    "quantised, QDQ",
    "several inputs and outputs",
)


def kinds() -> dict[str, Kind]:
    """Makes all of them, by name."""
    every = {
        "perceptron": _kind(
            [("MatMul", "x w", "h"), ("Relu", "h", "a"), ("MatMul", "a v", "b"), ("Tanh", "b", "c"), ("MatMul", "c u", "y")],
            [7], w=_weights(7, 9), v=_weights(9, 6), u=_weights(6, 3),
        ),
        "raw columns, batch normalisation, arg-max": _kind(
            [("BatchNormalization", "x s b m v", "n"), ("MatMul", "n w", "h"), ("Relu", "h", "a"), ("MatMul", "a u", "z"),
             ("ArgMax", "z", "y", {"axis": 1})],
            [4], np.array([1.0, 100.0, 0.01, 5000.0]), s=np.ones(4), b=np.zeros(4), m=np.zeros(4), v=np.array([1.0, 1e4, 1e-4, 2.5e7]),
            w=_weights(4, 8), u=_weights(8, 3),
        ),
        "convolution, padding, max-pool, softmax": _kind(
            [("Conv", "x k c", "h", {"pads": [1, 1, 1, 1]}), ("Relu", "h", "a"), ("MaxPool", "a", "p", {"kernel_shape": [2, 2], "strides": [2, 2]}),
             ("Conv", "p l", "g"), ("Relu", "g", "e"), ("Flatten", "e", "f"), ("MatMul", "f u", "z"), ("Softmax", "z", "y", {"axis": 1})],
            [1, 6, 6], k=_weights(3, 1, 3, 3), c=_weights(3), l=_weights(4, 3, 2, 2), u=_weights(16, 3),
        ),
        "residual, average pool": _kind(
            [("Conv", "x k", "h", {"pads": [1, 1, 1, 1]}), ("Relu", "h", "a"), ("Conv", "a l", "g", {"pads": [1, 1, 1, 1]}), ("Add", "g x", "s"),
             ("Relu", "s", "r"), ("GlobalAveragePool", "r", "p"), ("Flatten", "p", "f"), ("MatMul", "f u", "y")],
            [2, 4, 4], k=_weights(2, 2, 3, 3), l=_weights(2, 2, 3, 3), u=_weights(2, 3),
        ),
        "SiLU and HardSwish written out": _kind(
            [("MatMul", "x w", "h"), ("Sigmoid", "h", "s"), ("Mul", "h s", "a"), ("MatMul", "a v", "g"), ("Add", "g three", "t"),
             ("Clip", "t zero six", "c"), ("Mul", "g c", "m"), ("Div", "m six", "b"), ("MatMul", "b u", "y")],
            [6], w=_weights(6, 8), v=_weights(8, 6), u=_weights(6, 2), three=np.array(3.0), zero=np.array(0.0), six=np.array(6.0),
        ),
        "gates: products of two wires": _kind(
            [("MatMul", "x w", "h"), ("Sigmoid", "h", "g"), ("MatMul", "x v", "z"), ("Mul", "g z", "p"), ("MatMul", "p u", "y")],
            [5], w=_weights(5, 4), v=_weights(5, 4), u=_weights(4, 2),
        ),
        "layer normalisation": _kind(
            [("MatMul", "x w", "h"), ("LayerNormalization", "h s b", "n", {"axis": -1}), ("Relu", "n", "a"), ("MatMul", "a u", "y")],
            [5], w=_weights(5, 6), s=np.ones(6), b=np.zeros(6), u=_weights(6, 2),
        ),
        "concatenated branches, last Sigmoid": _kind(
            [("Slice", "x zero three one", "left"), ("Slice", "x three six one", "right"), ("MatMul", "left w", "a"), ("Relu", "a", "b"),
             ("MatMul", "right v", "c"), ("Tanh", "c", "d"), ("Concat", "b d", "e", {"axis": 1}), ("MatMul", "e u", "z"), ("Sigmoid", "z", "y")],
            [6], w=_weights(3, 4), v=_weights(3, 4), u=_weights(8, 1), zero=np.array([0]), three=np.array([3]), six=np.array([6]), one=np.array([1]),
        ),
        "linear on linear, shared columns": _kind(
            [("MatMul", "x w", "h"), ("MatMul", "h v", "g"), ("Relu", "g", "a"), ("Add", "a a", "b"), ("MatMul", "b u", "y")],
            [5], w=_weights(5, 5), v=np.repeat(_weights(5, 3), 2, axis=1), u=_weights(6, 2),
        ),
        "transposed convolution, upsampling": _kind(
            [("ConvTranspose", "x k", "h", {"strides": [2, 2]}), ("Relu", "h", "a"),
             ("AveragePool", "a", "p", {"kernel_shape": [2, 2], "strides": [2, 2]}),
             ("Flatten", "p", "f"), ("MatMul", "f u", "y")],
            [1, 3, 3], k=_weights(1, 2, 2, 2), u=_weights(18, 2),
        ),
        "quantised, QDQ": _quantised(),
        "several inputs and outputs": Kind(image_and_table(np.random.default_rng(2)), samples(np.random.default_rng(3), COUNT)),
    }  # fmt: skip
    assert tuple(every) == NAMES
    return every
