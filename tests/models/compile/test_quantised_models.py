"""QDQ and QOperator models as ONNX Runtime's quantiser writes them: equal to it in clear, compiled with and without calibration data."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx_models import model, runtime
from quantised_models import SHAPE, network, quantised

import cloakwork as cw
from cloakwork.models.errors import CompileError, UnsupportedOperatorError
from cloakwork.models.onnx_import.importer import import_onnx
from cloakwork.models.program.artefact import program_from_bytes, program_to_bytes
from cloakwork.models.program.client_specification import ClientSpecification
from cloakwork.models.runtime.interpreter import interpret

RNG = np.random.default_rng(12)
PROTO = network(RNG)
X = RNG.standard_normal((60, *SHAPE))


@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("operators", [False, True])
def test_network_quantised_by_onnx_runtime(tmp_path: Path, operators: bool, per_channel: bool) -> None:
    proto = quantised(tmp_path, PROTO, X, operators=operators, per_channel=per_channel)
    expected = runtime(proto, X)
    compiled = cw.compile(proto, X, precision="balanced", accuracy=0)
    np.testing.assert_allclose(compiled.predict_float(X), expected, atol=1e-5)
    assert np.abs(compiled.predict(X) - expected).std() < 0.04 * expected.std()
    assert np.abs(compiled.predict(X, how="simulate", seed=2) - expected).std() < 0.06 * expected.std()
    # The quantisers of input and output are the client's; a pool's and a ReLU's share one look-up: 4 for a 2x2 window.
    assert compiled.report()["bootstraps"] == 4 * 3 * 16 + 4 * 4 + 4
    without_data = cw.compile(proto, precision="balanced")
    assert without_data.report()["bootstraps"] == compiled.report()["bootstraps"]
    assert np.abs(without_data.predict(X, how="simulate", seed=2) - expected).std() < 0.3 * expected.std()


def test_quantisers_of_the_ends_travel_with_the_program(tmp_path: Path) -> None:
    compiled = cw.compile(quantised(tmp_path, PROTO, X, operators=True, per_channel=True))
    loaded = program_from_bytes(program_to_bytes(compiled.program))
    client = ClientSpecification.from_json(ClientSpecification.of(loaded).to_json())
    np.testing.assert_array_equal(client.phases(X), compiled.client.phases(X))
    phases = RNG.uniform(-0.3, 0.3, (4, 3))
    np.testing.assert_array_equal(client.output(phases), compiled.client.output(phases))
    unit = compiled.program.output_steps[0].unit
    np.testing.assert_allclose(client.output(phases) / unit, np.rint(client.output(phases) / unit), atol=1e-9)


def test_no_calibration_data_without_quantisers() -> None:
    with pytest.raises(CompileError, match="QuantizeLinear"):
        cw.compile(PROTO)


def integer_model(operator: str, weights: np.ndarray, **attributes: object) -> onnx.ModelProto:
    """Float input, quantised to uint8 with zero point 100, an integer product, back to float."""
    zero = np.uint8(100)
    constants = {"s": np.float32(0.02), "z": zero, "w": weights, "wz": weights.dtype.type(3)}
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"], name="in"),
        helper.make_node(operator, ["q", "w", "z", "wz"], ["i"], name="product", **attributes),
        helper.make_node("Cast", ["i"], ["f"], name="cast", to=TensorProto.FLOAT),
        helper.make_node("Mul", ["f", "unit"], ["y"], name="scale"),
    ]
    return model(nodes, [2, 5, 5] if operator == "ConvInteger" else [6], {**constants, "unit": np.float32(1e-3)})


@pytest.mark.parametrize(
    "proto",
    [
        integer_model("MatMulInteger", RNG.integers(-50, 50, (6, 4)).astype(np.int8)),
        integer_model("ConvInteger", RNG.integers(0, 255, (3, 2, 3, 3)).astype(np.uint8), pads=[1, 1, 1, 1]),
    ],
    ids=["MatMulInteger", "ConvInteger"],
)
def test_integer_products_equal_onnx_runtime(proto: onnx.ModelProto) -> None:
    extents = [d.dim_value for d in proto.graph.input[0].type.tensor_type.shape.dim[1:]]
    x = RNG.uniform(-2, 2, (5, *extents))
    np.testing.assert_allclose(interpret(import_onnx(proto), x), runtime(proto, x), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", [TensorProto.INT4, TensorProto.UINT4, TensorProto.INT16])
def test_other_widths(kind: int) -> None:
    """Four bits have no numpy type; ONNX Runtime may not have the kernel, so the expected values are the definition."""
    low, high = {TensorProto.INT4: (-8, 7), TensorProto.UINT4: (0, 15), TensorProto.INT16: (-32768, 32767)}[kind]
    zero = helper.make_tensor("z", kind, [], [1])
    nodes = [
        helper.make_node("Relu", ["x"], ["r"]),
        helper.make_node("QuantizeLinear", ["r", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"]),
    ]
    proto = model(nodes, [6], {"s": np.float32(0.25)}, opset=21)
    proto.graph.initializer.append(zero)
    x = RNG.uniform(-4, 4, (7, 6))
    expected = (np.clip(np.rint(np.maximum(x, 0) / 0.25) + 1, low, high) - 1) * 0.25
    np.testing.assert_allclose(interpret(import_onnx(proto), x), expected)


def test_float8_and_wrong_scales_are_refused() -> None:
    nodes = [helper.make_node("QuantizeLinear", ["x", "s", "z"], ["y"], name="eight")]
    proto = model(nodes, [3], {"s": np.float32(0.5)}, opset=21)
    proto.graph.initializer.append(helper.make_tensor("z", TensorProto.FLOAT8E4M3FN, [], [0.0]))
    with pytest.raises(UnsupportedOperatorError, match=r"'eight'.*integers"):
        import_onnx(proto)
    negative = model(nodes, [3], {"s": np.float32(-0.5), "z": np.uint8(0)})
    with pytest.raises(UnsupportedOperatorError, match=r"'eight'.*not positive"):
        import_onnx(negative)


def test_weights_of_onnx_runtimes_own_domain() -> None:
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "s"], ["real"], domain="com.microsoft"),
        helper.make_node("MatMul", ["x", "real"], ["y"]),
    ]
    weights = RNG.integers(-9, 9, (3, 2)).astype(np.int8)
    proto = model(nodes, [3], {"s": np.float32(0.5)})
    proto.graph.initializer.append(numpy_helper.from_array(weights, "w"))
    proto.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    x = RNG.standard_normal((4, 3))
    np.testing.assert_allclose(interpret(import_onnx(proto), x), x @ (0.5 * weights))
