"""Networks that PyTorch quantises in training and exports: weights behind a quantiser, and biases of floats, which ONNX Runtime makes integers."""

from __future__ import annotations

import warnings
from io import BytesIO

import numpy as np
import onnx
import pytest

pytest.importorskip("onnxruntime", reason="ONNX Runtime is what is compared with")
pytest.importorskip("torch", reason="PyTorch trains and exports")
pytest.importorskip("torch.ao.quantization", reason="this PyTorch does not quantise in training")

import torch
from integer_networks import answers, evaluated, integers, kernels
from onnx import TensorProto, helper, numpy_helper
from onnx_models import model
from sklearn.datasets import load_digits
from torch import nn
from torch.ao import quantization as quantisation

import cloakwork as cw
from cloakwork.models.onnx_import.importer import import_onnx
from cloakwork.models.onnx_import.integer_kernels import with_integer_biases

STEP_OF_A_TIE = 0.5  # a bias of n + 1/2 units


class Quantised(nn.Module):
    def __init__(self, body: nn.Sequential) -> None:
        super().__init__()
        self.before, self.body, self.after = quantisation.QuantStub(), body, quantisation.DeQuantStub()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.after(self.body(self.before(x)))


class Rows(nn.Module):
    """As `x.view(len(x), -1)`, which is exported as Reshape."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.reshape(-1, x.shape[1] * x.shape[2] * x.shape[3])


def exported(body: nn.Sequential, x: np.ndarray, labels: np.ndarray, per_channel: bool) -> onnx.ModelProto:
    """Trained for a few epochs with fake quantisers of 8 bits, as PyTorch's exporter writes it."""
    observer = quantisation.MovingAveragePerChannelMinMaxObserver if per_channel else quantisation.MinMaxObserver
    scheme = torch.per_channel_symmetric if per_channel else torch.per_tensor_symmetric
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch announces its next quantiser and its next exporter
        torch.manual_seed(15)
        network = Quantised(body).train()
        network.qconfig = quantisation.QConfig(
            quantisation.FakeQuantize.with_args(
                observer=quantisation.MovingAverageMinMaxObserver, quant_min=0, quant_max=255, dtype=torch.quint8
            ),
            quantisation.FakeQuantize.with_args(
                observer=observer, quant_min=-128, quant_max=127, dtype=torch.qint8, qscheme=scheme
            ),
        )
        pairs = [
            [f"body.{i}", f"body.{i + 1}"] for i, layer in enumerate(body) if isinstance(layer, nn.Linear | nn.Conv2d)
        ]
        quantisation.fuse_modules_qat(network, pairs[:-1], inplace=True)
        quantisation.prepare_qat(network, inplace=True)
        inputs, targets = torch.as_tensor(x, dtype=torch.float32), torch.as_tensor(labels)
        optimiser = torch.optim.Adam(network.parameters(), lr=3e-3)
        for _ in range(8):
            for batch in torch.randperm(len(inputs)).split(100):
                optimiser.zero_grad()
                nn.functional.cross_entropy(network(inputs[batch]), targets[batch]).backward()
                optimiser.step()
        network.eval().apply(quantisation.disable_observer)
        file = BytesIO()
        torch.onnx.export(
            network,
            (inputs[:1],),
            file,
            dynamo=False,
            input_names=["x"],
            output_names=["y"],
            opset_version=17,
            dynamic_axes={"x": {0: "n"}, "y": {0: "n"}},
        )
    return onnx.load_from_string(file.getvalue())


def dense() -> nn.Sequential:
    return nn.Sequential(nn.Linear(64, 24), nn.ReLU(), nn.Linear(24, 10))


def convolutional() -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(1, 4, 3, stride=2), nn.ReLU(), Rows(), nn.Linear(36, 10))


def pooled() -> nn.Sequential:
    """What is between a dequantiser and a layer ONNX Runtime computes on integers, and moves the dequantiser behind it."""
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(4, 6, 3),
        nn.ReLU(),
        Rows(),
        nn.Linear(24, 10),
    )


@pytest.fixture(scope="module")
def digits() -> tuple[np.ndarray, np.ndarray]:
    found = load_digits()
    return found.data / 16, found.target


@pytest.mark.parametrize(
    ("network", "per_channel"),
    [
        (dense, False),
        *(
            pytest.param(network, per_channel, marks=pytest.mark.tier("all"))
            for network, per_channel in ((dense, True), (convolutional, False), (pooled, True))
        ),
    ],
)
def test_integers_are_those_of_onnx_runtime(digits: tuple[np.ndarray, np.ndarray], network, per_channel: bool) -> None:
    x, labels = digits
    if network is not dense:
        x = x.reshape(-1, 1, 8, 8)
    proto = exported(network(), x[:1000], labels[:1000], per_channel)
    optimised = kernels(proto)
    assert sum(node.op_type in ("QGemm", "QLinearConv") for node in optimised.graph.node) == len(
        [part for part in network() if hasattr(part, "weight")]
    )
    made = {name for node in proto.graph.node for name in node.output}
    hidden = [name for name in integers(optimised, x[:1]) if name in made]
    assert len(hidden) >= 2
    expected = integers(optimised, x, hidden)
    for name in hidden:
        if expected[name].dtype.kind != "f":
            found = evaluated(proto, x, name, rounding="onnxruntime")
            np.testing.assert_array_equal(np.rint(found), expected[name])
    ours = evaluated(proto, x, "y", rounding="onnxruntime").astype(np.float32)
    np.testing.assert_array_equal(ours, answers(proto, x))


@pytest.mark.tier("release")
def test_encrypted(digits: tuple[np.ndarray, np.ndarray]) -> None:
    x, labels = digits
    proto = exported(nn.Sequential(nn.Linear(64, 3), nn.ReLU(), nn.Linear(3, 10)), x[:1000], labels[:1000], True)
    compiled = cw.compile(proto, x[:300], precision="exact", rounding="onnxruntime")
    expected = answers(proto, x[1000:1100])
    np.testing.assert_allclose(compiled.predict(x[1000:1100], how="simulate", seed=1), expected, rtol=1e-6)
    np.testing.assert_allclose(compiled.predict(x[1000:1001], how="encrypted"), expected[:1], rtol=1e-6)


# --- what integers pass through --------------------------------------------------------------------------------------------------------


def turned(*, seen: bool = False) -> onnx.ModelProto:
    """Quantiser - Transpose - Gemm 6 -> 6 - Reshape - Squeeze - quantiser; the dequantiser before the Transpose is read twice."""
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["xq"]),
        helper.make_node("DequantizeLinear", ["xq", "s", "z"], ["xd"]),
        helper.make_node("Unsqueeze", ["xd", "axes"], ["u"]),
        helper.make_node("Reshape", ["u", "rows"], ["t"]),
        helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["wd"]),
        helper.make_node("Gemm", ["t", "wd", "b"], ["h"], transB=1),
        helper.make_node("Reshape", ["h", "apart"], ["h1"]),
        helper.make_node("Squeeze", ["h1", "axes"], ["h2"]),
        helper.make_node("QuantizeLinear", ["h2", "s", "z"], ["hq"]),
        helper.make_node("DequantizeLinear", ["hq", "s", "z"], ["y0"]),
        helper.make_node("Reshape", ["xd", "rows"], ["y1"]),
        helper.make_node("Add", ["y0", "h" if seen else "y1"], ["y"]),
    ]
    rng = np.random.default_rng(6)
    constants = {
        "s": np.float32(0.07),
        "z": np.uint8(120),
        "w": rng.integers(-90, 90, (6, 6)).astype(np.int8),
        "ws": np.float32(0.011),
        "wz": np.int8(0),
        "b": rng.normal(0, 0.5, 6).astype(np.float32),
        "axes": np.array([1]),
        "rows": np.array([-1, 6]),
        "apart": np.array([-1, 1, 6]),
    }
    proto = model(nodes, [6], {})
    proto.graph.initializer.extend(
        numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()
    )
    return proto


@pytest.mark.parametrize("seen", [False, True], ids=["alone", "seen"])
def test_kernels_beside_what_integers_pass_through(seen: bool) -> None:
    proto = turned(seen=seen)
    assert ("QGemm" in [node.op_type for node in kernels(proto).graph.node]) == (not seen)
    x = np.random.default_rng(7).uniform(-9, 10, (4000, 6)).astype(np.float32)
    ours, theirs = evaluated(proto, x, "y", rounding="onnxruntime"), answers(proto, x)
    if seen:  # its sums of floats are in another order than ours
        np.testing.assert_allclose(ours, theirs, atol=0.0701)
    else:
        np.testing.assert_allclose(ours, theirs, atol=1e-5)


# --- biases ------------------------------------------------------------------------------------------------------------------------


def layer(bias: np.ndarray, weights_scale: np.ndarray, *between: str, read_twice: bool = False) -> onnx.ModelProto:
    """Quantiser - Gemm 3 -> 2 with a bias of floats - `between` - quantiser."""
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["xq"]),
        helper.make_node("DequantizeLinear", ["xq", "s", "z"], ["xd"]),
        helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["wd"], axis=0),
        helper.make_node("Gemm", ["xd", "wd", "b"], ["h0"], transB=1),
        *(helper.make_node(operator, [f"h{i}"], [f"h{i + 1}"]) for i, operator in enumerate(between)),
        helper.make_node("QuantizeLinear", [f"h{len(between)}", "s", "z"], ["yq"]),
        helper.make_node("DequantizeLinear", ["yq", "s", "z"], ["y" if not read_twice else "yd"]),
    ]
    if read_twice:
        nodes.append(helper.make_node("Add", ["yd", "h0"], ["y"]))
    constants = {
        "s": np.float32(2**-5),
        "z": np.uint8(100),
        "w": np.arange(-3, 3, dtype=np.int8).reshape(2, 3),
        "ws": weights_scale.astype(np.float32),
        "wz": np.zeros(weights_scale.shape, np.int8),
        "b": bias.astype(np.float32),
    }
    proto = model(nodes, [3], {})
    proto.graph.initializer.extend(
        numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()
    )
    return proto


ONE, EACH = np.float32(0.25), np.array([0.25, 0.5], np.float32)


@pytest.mark.parametrize("scale", [ONE, EACH], ids=["tensor", "channel"])
@pytest.mark.parametrize("between", [(), ("Relu",)], ids=["alone", "relu"])
def test_ties_round_to_even(scale: np.ndarray, between: tuple[str, ...]) -> None:
    """2.5 and 3.5 units; sums that then lie on, or beside, the middle between two results."""
    bias = np.array([2 + STEP_OF_A_TIE, 3 + STEP_OF_A_TIE]) * (2**-5 * scale)
    proto = layer(bias, scale, *between)
    x = np.random.default_rng(3).uniform(-3, 4, (2000, 3)).astype(np.float32)
    np.testing.assert_array_equal(evaluated(proto, x, "y", rounding="onnxruntime"), answers(proto, x))
    nodes, made = with_integer_biases(
        list(proto.graph.node), {t.name: numpy_helper.to_array(t) for t in proto.graph.initializer}
    )
    assert [list(value) for value in made.values() if value.dtype == np.int32] == [[2, 4]]
    assert len(nodes) == len(proto.graph.node) + 1


@pytest.mark.parametrize(
    "proto",
    [
        layer(np.array([0.1, 0.2]), ONE, "Sigmoid"),
        layer(np.array([0.1, 0.2]), ONE, read_twice=True),
        layer(np.array([1e30, 0.2]), ONE),
        layer(np.array([np.nan, 0.2]), ONE),
        layer(np.array([0.1, 0.2]), np.float32(0)),
        layer(np.array([0.3]), EACH),
    ],
    ids=["sigmoid", "read twice", "beyond int32", "not a number", "no scale", "other rows"],
)
def test_other_biases_stay_floats(proto: onnx.ModelProto) -> None:
    constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in proto.graph.initializer}
    nodes, made = with_integer_biases(list(proto.graph.node), constants)
    assert nodes == list(proto.graph.node) and not made


def test_names_that_are_taken(digits: tuple[np.ndarray, np.ndarray]) -> None:
    proto = layer(np.array([0.1, 0.2]), ONE)
    proto.graph.initializer.append(helper.make_tensor("h0/bias", TensorProto.FLOAT, [1], [7.0]))
    proto.graph.initializer.append(helper.make_tensor("h0/bias_/scale", TensorProto.FLOAT, [1], [7.0]))
    graph = import_onnx(proto, rounding="onnxruntime")
    assert graph.nodes
    x = np.random.default_rng(4).uniform(-3, 4, (500, 3)).astype(np.float32)
    np.testing.assert_array_equal(evaluated(proto, x, "y", rounding="onnxruntime"), answers(proto, x))
