"""Normalisation, inner Softmax, Lp pools, transposed convolutions and Resize: against ONNX Runtime, at their documented cost."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, helper
from onnx_models import model, runtime, single

import cloakwork as cw
from cloakwork.models.compile.pipeline import restructure
from cloakwork.models.errors import UnsupportedOperatorError
from cloakwork.models.onnx_import.importer import import_onnx
from cloakwork.models.runtime.interpreter import interpret
from tests.models.onnx_import.test_torch_exporters import EXPORTERS, exported

RNG = np.random.default_rng(77)


def normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def between(*nodes: Any, inner: int = 4, opset: int = 17, **constants: Any) -> ModelProto:
    """A dense layer to `a` [batch, inner], these nodes to `b`, and a dense layer."""
    first = helper.make_node("MatMul", ["x", "w"], ["a"], name="first")
    last = helper.make_node("MatMul", ["b", "v"], ["y"], name="last")
    return model([first, *nodes, last], [6], {"w": normal(6, inner), "v": normal(inner, 3), **constants}, opset=opset)


def node(operator: str, inputs: str, output: str, **attributes: Any) -> Any:
    return helper.make_node(operator, inputs.split(), [output], name=f"{operator}_{output}", **attributes)


DECOMPOSED = [
    node("ReduceMean", "a", "m", axes=[-1]), node("Sub", "a m", "c"), node("Pow", "c two", "q"), node("ReduceMean", "q", "s", axes=[-1]),
    node("Add", "s eps", "e"), node("Sqrt", "e", "d"), node("Div", "c d", "n"), node("Mul", "n g", "h"), node("Add", "h o", "b"),
]  # fmt: skip
SHAPE = {"shape": np.array([1, 2, 2]), "back": np.array([1, 4])}
# model -> look-ups
COSTS: dict[str, tuple[ModelProto, int]] = {
    "LayerNormalization": (between(node("LayerNormalization", "a g o", "b"), g=normal(4), o=normal(4)), 3 * 4 + 1),
    "LayerNormalization in parts": (between(*DECOMPOSED, two=np.float32(2), eps=np.float32(1e-5), g=normal(4), o=normal(4)), 3 * 4 + 1),
    "SimplifiedLayerNormalization": (between(node("SimplifiedLayerNormalization", "a g", "b", axis=-1), g=normal(4)), 3 * 4 + 1),
    "InstanceNormalization": (single("InstanceNormalization", [2, 3, 2], {"g": normal(2), "o": normal(2)}, epsilon=0.1), 2 * (3 * 6 + 1)),
    "GroupNormalization": (single("GroupNormalization", [4, 3], {"g": normal(2), "o": normal(2)}, num_groups=2, opset=18), 2 * (3 * 6 + 1)),
    "GroupNormalization 21": (single("GroupNormalization", [4, 3], {"g": normal(4), "o": normal(4)}, num_groups=2, opset=21), 2 * (3 * 6 + 1)),
    "Softmax of 2": (between(node("Softmax", "a", "b", axis=-1), inner=2), 1),
    "Softmax of 5": (between(node("Softmax", "a", "b", axis=-1), inner=5), 15),
    "Softmax over rows": (
        between(node("Reshape", "a shape", "r"), node("Softmax", "r", "s", axis=1), node("Reshape", "s back", "b"), **SHAPE), 2),
    "LogSoftmax of 2": (between(node("LogSoftmax", "a", "b", axis=-1), inner=2), 2),
    "LogSoftmax of 5": (between(node("LogSoftmax", "a", "b", axis=-1), inner=5), 4 + 5 + 1),
    "Softmax read twice": (between(node("Softmax", "a", "s"), node("Add", "s s", "t"), node("Add", "t s", "b"), inner=3), 9),
    "LpPool": (single("LpPool", [2, 4, 4], kernel_shape=[2, 2], strides=[2, 2], p=2, opset=18), 2 * 16 + 2 * 4),
    "LpPool of 1": (single("LpPool", [1, 4], kernel_shape=[3], pads=[1, 1], p=1, opset=18), 4),
    "GlobalLpPool": (single("GlobalLpPool", [2, 3, 3], p=3), 2 * 9 + 2),
    "ConvTranspose": (
        single("ConvTranspose", [2, 4, 3], {"w": normal(2, 3, 3, 2), "b": normal(3)}, strides=[2, 1], pads=[1, 0, 0, 1]), 0),
    "ConvTranspose groups": (
        single("ConvTranspose", [4, 5], {"w": normal(4, 2, 3)}, group=2, strides=[3], dilations=[2], output_padding=[1]), 0),
    "ConvTranspose same": (single("ConvTranspose", [1, 3, 3], {"w": normal(1, 2, 3, 3)}, strides=[2, 2], auto_pad="SAME_UPPER"), 0),
    "ConvTranspose shape": (single("ConvTranspose", [1, 3, 3], {"w": normal(1, 2, 3, 3)}, strides=[3, 2], output_shape=[10, 8]), 0),
    **{f"Resize {mode} {place} {scale}": (
        single("Resize", [2, 4, 5], {"s": np.float32([1, 1, scale, scale])}, inputs=["x", "", "s"], mode=mode,
               coordinate_transformation_mode=place), 0)
       for mode in ("nearest", "linear") for place in ("half_pixel", "pytorch_half_pixel", "asymmetric") for scale in (2.0, 0.5, 1.5)},
    "Resize to sizes": (single("Resize", [2, 4, 5], {"s": np.array([1, 2, 7, 3])}, inputs=["x", "", "", "s"], mode="linear",
                               coordinate_transformation_mode="align_corners"), 0),
    "Resize, floor": (single("Resize", [1, 5], {"s": np.array([1, 1, 8])}, inputs=["x", "", "", "s"], nearest_mode="floor"), 0),
    "frames": (model([node("Reshape", "x shape", "f"), node("Conv", "f w", "c", pads=[1, 1]),
                      node("MaxPool", "c", "p", kernel_shape=[2], strides=[2]),
                      node("AveragePool", "p", "q", kernel_shape=[2]), node("Reshape", "q back", "y")],
                     [3, 8], {"shape": np.array([3, 1, 8]), "w": normal(2, 1, 3), "back": np.array([1, -1])}), 3 * 2 * 4),
}  # fmt: skip


@pytest.mark.parametrize("name", COSTS)
def test_equals_onnx_runtime_at_the_documented_cost(name: str) -> None:
    proto, lookups = COSTS[name]
    shape = [d.dim_value for d in proto.graph.input[0].type.tensor_type.shape.dim[1:]]
    x = RNG.standard_normal((4, *shape))
    expected = runtime(proto, x)
    imported = import_onnx(proto)
    levelled = restructure(imported)
    for graph in (imported, levelled):
        y = interpret(graph, x)
        assert y.shape == expected.shape
        np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-5)
    assert levelled.bootstraps == lookups


def test_what_is_refused_says_why() -> None:
    wide = between(node("Softmax", "a", "b"), inner=80)
    cases = {
        "at most 64": wide,
        "use nearest or linear": single("Resize", [1, 4], {"s": np.float32([1, 1, 2])}, inputs=["x", "", "s"], mode="cubic"),
        "equal size": single("GroupNormalization", [3, 4], {"g": normal(2), "o": normal(2)}, num_groups=2, opset=18),
        "resizes the batch": single("Resize", [4], {"s": np.float32([2, 1])}, inputs=["x", "", "s"]),
        "do not fit an input": single("ConvTranspose", [3, 4], {"w": normal(2, 2, 3)}),
    }  # fmt: skip
    for reason, proto in cases.items():
        with pytest.raises(UnsupportedOperatorError, match=reason):
            import_onnx(proto)


def test_softmax_between_layers_under_noise() -> None:
    """Each look-up of the log-sum-exp form works on a range of its own size."""
    proto = between(node("Softmax", "a", "b"), inner=3)
    x = RNG.uniform(-1, 1, (300, 6))
    made = cw.compile(proto, x, precision=0.5)
    expected = runtime(proto, x)
    assert (made.predict(x, how="simulate", seed=1) - expected).std() < 0.3 * expected.std()


torch = pytest.importorskip("torch", reason="PyTorch is not installed")


class Block(torch.nn.Module):  # type: ignore[misc,name-defined]
    """One head of attention over three positions, with layer normalisation and a residual, then upsampling and a transposed convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value = (torch.nn.Linear(4, 4) for _ in range(3))
        self.norm, self.groups = torch.nn.LayerNorm(4), torch.nn.GroupNorm(1, 3)
        self.up, self.head = torch.nn.ConvTranspose1d(3, 2, 3, stride=2), torch.nn.Linear(34, 2)

    def forward(self, x: Any) -> Any:
        scores = self.query(x) @ self.key(x).transpose(1, 2) / 2
        y = self.norm(x + torch.softmax(scores, dim=-1) @ self.value(x))
        y = torch.nn.functional.interpolate(self.groups(y), scale_factor=2, mode="linear")
        return self.head(self.up(y).flatten(1))


@pytest.mark.parametrize("exporter", EXPORTERS)
def test_a_small_attention_block_as_exported(exporter: str) -> None:
    torch.manual_seed(2)
    made = Block().eval()
    proto = exported(made, (3, 4), exporter)
    x = RNG.standard_normal((5, 3, 4))
    with torch.no_grad():
        expected = made(torch.tensor(x, dtype=torch.float32)).numpy()
    levelled = restructure(import_onnx(proto))
    np.testing.assert_allclose(interpret(levelled, x), expected, rtol=1e-4, atol=1e-4)
    # scores, softmax, values; layer norm of three rows of 4; group norm of 12: products of two wires take two look-ups each.
    products, softmax, norms = 2 * 3 * 4 * 3 + 2 * 3 * 3 * 4, 3 * 9, 3 * 13 + 37
    refreshed = sum(lookup.bootstraps for lookup in levelled.lookups if not lookup.steps)
    assert levelled.bootstraps - refreshed == products + softmax + norms


class Recurrent(torch.nn.Module):  # type: ignore[misc,name-defined]
    """An LSTM and a GRU, one after the other, over four steps."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.gru = torch.nn.LSTM(2, 3, batch_first=True), torch.nn.GRU(3, 2, batch_first=True)
        self.head = torch.nn.Linear(2, 2)

    def forward(self, x: Any) -> Any:
        return self.head(self.gru(self.lstm(x)[0])[0][:, -1])


@pytest.mark.parametrize("exporter", EXPORTERS)
def test_recurrent_layers_as_exported(exporter: str) -> None:
    torch.manual_seed(4)
    made = Recurrent().eval()
    proto = exported(made, (4, 2), exporter)
    x = RNG.standard_normal((5, 4, 2))
    with torch.no_grad():
        expected = made(torch.tensor(x, dtype=torch.float32)).numpy()
    levelled = restructure(import_onnx(proto))
    np.testing.assert_allclose(interpret(levelled, x), expected, rtol=1e-5, atol=1e-5)
    assert levelled.bootstraps <= 4 * (11 * 3 + 7 * 2)


@pytest.mark.parametrize(
    ("operator", "gates", "attributes", "lookups"),
    [
        ("RNN", 1, {}, 6),
        ("RNN", 1, {"activations": ["Relu"]}, 6),
        ("GRU", 3, {"linear_before_reset": 1}, 38),
        ("GRU", 3, {"direction": "reverse"}, 38),
        ("LSTM", 4, {"direction": "reverse"}, 62),
        ("LSTM", 4, {"direction": "bidirectional"}, 124),
    ],
)
def test_recurrent_layers_equal_onnx_runtime(
    operator: str, gates: int, attributes: dict[str, Any], lookups: int
) -> None:
    """Two units over three steps, 6 times 1, 7 or 11 look-ups; a constant first state saves one product, of both directions."""
    times, inputs, size, directions = 3, 4, 2, 2 if "bidirectional" in attributes.values() else 1
    state = {"h": normal(directions, 1, size), **({"c": normal(directions, 1, size)} if operator == "LSTM" else {})}
    nodes = [
        helper.make_node("Transpose", ["x"], ["t"], perm=[1, 0, 2]),
        helper.make_node(operator, ["t", "w", "r", "b", "", *state], ["all", "last"], hidden_size=size, **attributes),
        helper.make_node("Reshape", ["all", "flat"], ["f"]),
        helper.make_node("Reshape", ["last", "flat"], ["g"]),
        helper.make_node("Concat", ["f", "g"], ["k"], axis=1),
        helper.make_node("MatMul", ["k", "v"], ["y"]),
    ]
    constants = {
        "w": normal(directions, gates * size, inputs),
        "r": normal(directions, gates * size, size),
        "b": normal(directions, 2 * gates * size),
        "flat": np.array([1, -1]),
        "v": normal((times + 1) * directions * size, 3),
        **state,
    }
    proto = model(nodes, [times, inputs], constants)
    x = RNG.standard_normal((4, times, inputs))
    levelled = restructure(import_onnx(proto))
    np.testing.assert_allclose(interpret(levelled, x), runtime(proto, x), rtol=1e-5, atol=1e-5)
    assert levelled.bootstraps == lookups
