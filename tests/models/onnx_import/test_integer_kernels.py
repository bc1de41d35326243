"""`rounding="onnxruntime"`: every integer of quantised models is what ONNX Runtime's integer kernels answer."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import onnx
import pytest
from cases import in_tiers

pytest.importorskip("onnxruntime", reason="ONNX Runtime is what is compared with")
pytest.importorskip("torch", reason="the networks are trained with PyTorch")

from integer_networks import (
    IMAGE,
    Format,
    answers,
    evaluated,
    integers,
    kernels,
    quantise,
    trained_convolutional,
    trained_dense,
    with_outputs,
)
from onnx import TensorProto, helper
from onnx_models import model
from onnxruntime.quantization import QuantType
from requirements import needs
from sklearn.datasets import load_digits

import cloakwork as cw
from cloakwork.models.errors import CompileError
from cloakwork.models.graph.steps import apply_steps
from cloakwork.models.onnx_import.graph_order import constants_of, ordered_nodes
from cloakwork.models.onnx_import.importer import import_onnx
from cloakwork.models.onnx_import.integer_kernels import with_kernels
from cloakwork.models.program.artefact import program_from_bytes, program_to_bytes
from cloakwork.models.program.client_specification import ClientSpecification
from cloakwork.training.mnist_data import has_mnist, load_mnist

KERNELS: Final = ("QLinearConv", "QGemm", "QLinearMatMul")
UNSIGNED, SIGNED = QuantType.QUInt8, QuantType.QInt8
OPERATOR_FORMS: Final = [
    Format(operators=True, per_channel=per_channel, activations=activations, symmetric=symmetric)
    for per_channel in (False, True)
    for activations, symmetric in ((UNSIGNED, False), (SIGNED, False), (SIGNED, True))
]
QDQ_FORMS: Final = [
    Format(),
    Format(per_channel=True),
    Format(weights=UNSIGNED),
    Format(activations=SIGNED),
    Format(per_channel=True, activations=SIGNED, symmetric=True),
]

QUICK: Final = (OPERATOR_FORMS[0], QDQ_FORMS[4])


@dataclass(frozen=True)
class Trained:
    proto: onnx.ModelProto
    calibration: np.ndarray
    x: np.ndarray


@pytest.fixture(scope="module")
def digits() -> Trained:
    found = load_digits()
    x = found.data / 16
    return Trained(trained_dense(x[:1200], found.target[:1200], hidden=32), x[:200], x)


@pytest.fixture(scope="module")
def dense() -> Trained:
    x, labels = few_of_mnist()
    return Trained(trained_dense(x[:2000], labels[:2000], epochs=2), x[:60], x[2000:3000])


@pytest.fixture(scope="module")
def convolutional() -> Trained:
    x, labels = few_of_mnist()
    x = x.reshape(-1, *IMAGE)
    return Trained(trained_convolutional(x[:2000], labels[:2000], epochs=2), x[:60], x[2000:2200])


def few_of_mnist() -> tuple[np.ndarray, np.ndarray]:
    needs(has_mnist("test"), "MNIST is not there: set CLOAKWORK_DATA to the folder that holds mnist/")
    return load_mnist("test")


def differences(proto: onnx.ModelProto, x: np.ndarray, rounding: str) -> list[int]:
    """Largest difference, in steps, of every integer tensor that the model and ONNX Runtime's kernels both have."""
    optimised = kernels(proto)
    shared = [name for name in integers(optimised, x[:1]) if any(name in node.output for node in proto.graph.node)]
    expected = integers(optimised, x, shared)
    found = []
    for name in shared:
        ours = evaluated(proto, x, name, rounding=rounding)
        if expected[name].dtype.kind == "f":
            assert np.array_equal(ours.astype(np.float32), expected[name]) or rounding == "real"
            continue
        assert np.abs(ours - np.rint(ours)).max() < 1e-6
        found.append(int(np.abs(np.rint(ours) - expected[name]).max()))
    return found


def check_equal(trained: Trained, form: Format) -> None:
    proto = quantise(trained.proto, trained.calibration, form)
    assert set(differences(proto, trained.x, "onnxruntime")) <= {0}
    ours = evaluated(proto, trained.x, "y", rounding="onnxruntime").astype(np.float32)
    np.testing.assert_array_equal(ours, answers(proto, trained.x))
    assert max(differences(proto, trained.x, "real"), default=0) <= 1


@pytest.mark.parametrize("form", in_tiers(OPERATOR_FORMS + QDQ_FORMS, QUICK), ids=str)
def test_dense_digits(digits: Trained, form: Format) -> None:
    check_equal(digits, form)


@pytest.mark.tier("all")
@pytest.mark.parametrize("form", [OPERATOR_FORMS[0], QDQ_FORMS[1]], ids=str)
def test_dense_mnist(dense: Trained, form: Format) -> None:
    check_equal(dense, form)


@pytest.mark.tier("all")
@pytest.mark.parametrize("form", [OPERATOR_FORMS[3], OPERATOR_FORMS[5], QDQ_FORMS[0], QDQ_FORMS[4]], ids=str)
def test_convolutional_mnist(convolutional: Trained, form: Format) -> None:
    check_equal(convolutional, form)


# --- every accumulator ---------------------------------------------------------------------------------------------------------------

RNG: Final = np.random.default_rng(20261123)
# 3.0: thirds, and halves that are ties; 2^11: every tie there is; below them scales as training leaves them.
STEPS: Final = np.array([3.0, 2.0**11, 1885.0, 366.36, 4967.11, 40103.8, *np.exp(RNG.uniform(2, 9, 4))])


@pytest.mark.parametrize(
    ("operator", "kind"), [("QGemm", "uint8"), pytest.param("QLinearConv", "int8", marks=pytest.mark.tier("all"))]
)
def test_requantisation_of_every_accumulator(operator: str, kind: str) -> None:
    """The input is its zero point, so that accumulators are the bias: all that the result does not saturate for, and beyond 2^24."""
    for step in STEPS:
        reach = int(min(300 * step, 2**15))
        accumulators = np.concatenate([np.arange(-reach, reach + 1), [-(2**31), -(2**24) - 1, 2**24 + 1, 2**31 - 1]])
        proto = _of_bias(operator, kind, accumulators.astype(np.int32), step)
        graph = import_onnx(proto, rounding="onnxruntime")
        lookup = graph.lookups[-1]
        assert [each.operator for each in lookup.steps] == ["Requantize"]
        unit = lookup.steps[0].parameters[0][0]
        ours = apply_steps(lookup.steps, accumulators * unit, np.zeros(len(accumulators), dtype=np.int64))
        np.testing.assert_array_equal(ours, answers(proto, np.zeros((1, 1, 1, 1))).reshape(-1))


def _of_bias(operator: str, kind: str, bias: np.ndarray, step: float) -> onnx.ModelProto:
    zero = np.asarray(7, dtype=kind)
    x_scale, w_scale = np.float32(0.0217), np.float32(0.00313)
    constants: dict[str, Any] = {
        "sx": x_scale, "zx": zero, "sw": w_scale, "zw": np.int8(0), "sy": np.float32(step * x_scale * w_scale), "zy": np.asarray(100, kind),
        "w": np.ones((len(bias), 1, 1, 1), dtype=np.int8), "b": bias,
    }  # fmt: skip
    quantiser = helper.make_node("QuantizeLinear", ["x", "sx", "zx"], ["q"])
    output = TensorProto.UINT8 if kind == "uint8" else TensorProto.INT8
    if operator == "QLinearConv":
        layer = helper.make_node(operator, ["q", "sx", "zx", "w", "sw", "zw", "sy", "zy", "b"], ["y"])
        return model([quantiser, layer], [1, 1, 1], constants, output_type=output)
    constants["w"] = constants["w"].reshape(-1, 1)
    flatten = helper.make_node("Flatten", ["q"], ["f"])
    inputs = ["f", "sx", "zx", "w", "sw", "zw", "b", "sy", "zy"]
    layer = helper.make_node(operator, inputs, ["y"], transB=1, alpha=0.3, domain="com.microsoft")
    proto = model([quantiser, flatten, layer], [1, 1, 1], constants, output_type=output)
    proto.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    return proto


@pytest.mark.parametrize("kind", ["uint8", "int8"])
def test_matrix_products_with_a_scale_for_each_column(kind: str) -> None:
    """[1, 127] and [-1, -127] on all pairs of 8-bit numbers: every sum up to 2^15; columns of scales of their own."""
    ends = np.iinfo(kind)
    weights = np.stack([[1, 127], [-1, -127], [127, -128]], axis=1).astype(np.int8)
    scales = RNG.uniform(0.002, 0.02, 3).astype(np.float32)
    constants = {
        "one": np.float32(1), "zero": np.asarray(0, kind), "sx": np.float32(0.031), "zx": np.asarray(ends.max // 2, kind), "w": weights,
        "sw": scales, "zw": np.zeros(3, dtype=np.int8), "sy": np.float32(0.9), "zy": np.asarray(ends.max // 2, kind),
    }  # fmt: skip
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "one", "zero"], ["q"]),
        helper.make_node("QLinearMatMul", ["q", "sx", "zx", "w", "sw", "zw", "sy", "zy"], ["y"]),
    ]
    output = TensorProto.UINT8 if kind == "uint8" else TensorProto.INT8
    proto = model(nodes, [2], constants, output_type=output)
    x = np.stack(np.meshgrid(*2 * [np.arange(ends.min, ends.max + 1)]), axis=-1).reshape(-1, 2)
    np.testing.assert_array_equal(evaluated(proto, x, "y", rounding="onnxruntime"), answers(proto, x))


# --- groups --------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "form", [*QDQ_FORMS, Format(weights=QuantType.QInt4), Format(activations=QuantType.QUInt16)], ids=str
)
def test_groups_are_those_of_onnx_runtime(digits: Trained, form: Format) -> None:
    proto = quantise(digits.proto, digits.calibration, form)
    ours = with_kernels(ordered_nodes(proto.graph), constants_of(proto.graph), ["y"])
    names = [node.op_type for node in ours if node.op_type in KERNELS]
    assert names == [node.op_type for node in kernels(proto).graph.node if node.op_type in KERNELS]


def test_what_somebody_sees_stays_real(digits: Trained) -> None:
    """The values before a quantiser are an output, or read twice: there is no kernel for them."""
    proto = quantise(digits.proto, digits.calibration, Format())
    nodes, constants = ordered_nodes(proto.graph), constants_of(proto.graph)
    before = next(node.input[0] for node in nodes if node.op_type == "QuantizeLinear" and node.input[0] != "x")
    assert sum(node.op_type == "QGemm" for node in with_kernels(nodes, constants, ["y"])) == 2
    assert sum(node.op_type == "QGemm" for node in with_kernels(nodes, constants, ["y", before])) == 1
    again = [*nodes, helper.make_node("Relu", [before], ["again"])]
    assert sum(node.op_type == "QGemm" for node in with_kernels(again, constants, ["y", "again"])) == 1


@pytest.mark.parametrize("operator", ["Relu", "Gemm", "DequantizeLinear", "QuantizeLinear"])
def test_damaged_groups_are_left_to_the_importer(digits: Trained, operator: str) -> None:
    """Nodes that lost inputs, and scales and zero points of any shape: a CompileError, as ever, or a model."""
    proto = quantise(digits.proto, digits.calibration, Format(per_channel=True, activations=SIGNED, symmetric=True))
    for number, original in enumerate(proto.graph.node):
        for kept in range(3 if original.op_type == operator else 0):
            damaged = onnx.ModelProto.FromString(proto.SerializeToString())
            del damaged.graph.node[number].input[kept:]
            for constant in damaged.graph.initializer:
                if constant.name in original.input[kept:]:
                    constant.dims[:] = [*constant.dims, 1]
            with suppress(CompileError):
                import_onnx(damaged, rounding="onnxruntime")


@pytest.mark.parametrize("scale", ["sx", "sw", "sy"])
@pytest.mark.parametrize("value", [0.0, -1.0])
def test_scales_are_positive(scale: str, value: float) -> None:
    proto = _of_bias("QGemm", "uint8", np.arange(4, dtype=np.int32), 3.0)
    found = next(constant for constant in proto.graph.initializer if constant.name == scale)
    found.CopyFrom(onnx.numpy_helper.from_array(np.float32(value), scale))
    with pytest.raises(CompileError, match="scale"):
        import_onnx(proto, rounding="onnxruntime")


def test_real_rounding_is_the_default(digits: Trained) -> None:
    proto = quantise(digits.proto, digits.calibration, Format(operators=True))
    operators = {step.operator for node in import_onnx(proto).lookups for step in node.steps}
    assert "QuantizeLinear" in operators and "Requantize" not in operators


# --- compiled ------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("with_data", [True, pytest.param(False, marks=pytest.mark.tier("all"))])
@pytest.mark.parametrize("form", [Format(), Format(operators=True, per_channel=True)], ids=str)
def test_compiled_networks_answer_the_same(digits: Trained, form: Format, with_data: bool) -> None:
    """One scale for the last layer is the client's, ten are looked up; a file keeps the rounding."""
    proto, samples = quantise(digits.proto, digits.calibration, form), digits.calibration if with_data else None
    compiled = cw.compile(proto, samples, precision="balanced", accuracy=0, rounding="onnxruntime")
    expected = answers(proto, digits.x)
    np.testing.assert_array_equal(compiled.predict_float(digits.x).astype(np.float32), expected)
    assert compiled.report()["bootstraps"] == 32 + (10 if form.per_channel else 0)
    loaded = program_from_bytes(program_to_bytes(compiled.program))
    client = ClientSpecification.from_json(ClientSpecification.of(loaded).to_json())
    phases = RNG.uniform(-0.3, 0.3, (4, 10))
    np.testing.assert_array_equal(client.output(phases), compiled.client.output(phases))


def test_an_exact_program_answers_the_same() -> None:
    """Small integers, so that there is a set: in clear and simulated."""
    constants = {
        "sx": np.float32(0.1), "zx": np.uint8(0), "sh": np.float32(0.31), "zh": np.uint8(0), "sy": np.float32(0.11), "zy": np.uint8(5),
        "w0": RNG.integers(-1, 2, (3, 4)).astype(np.int8), "s0": RNG.uniform(0.1, 0.3, 3).astype(np.float32), "z0": np.zeros(3, np.int8),
        "b0": np.array([1, 0, -1], np.int32), "w1": RNG.integers(-1, 2, (2, 3)).astype(np.int8), "s1": np.float32(0.2), "z1": np.int8(0),
        "b1": np.array([1, 2], np.int32),
    }  # fmt: skip
    dense = [
        helper.make_node("QGemm", inputs.split(), [output], name=output, transB=1, domain="com.microsoft")
        for inputs, output in (("q sx zx w0 s0 z0 b0 sh zh", "h"), ("h sh zh w1 s1 z1 b1 sy zy", "o"))
    ]
    ends = [
        helper.make_node("QuantizeLinear", ["x", "sx", "zx"], ["q"]),
        helper.make_node("DequantizeLinear", ["o", "sy", "zy"], ["y"]),
    ]
    proto = model([ends[0], *dense, ends[1]], [4], constants)
    proto.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    x = 0.1 * RNG.integers(0, 4, (200, 4))
    exact = {"accumulator_ranges": "calibrated"}
    compiled = cw.compile(proto, x, precision="exact", accuracy=0, **exact, rounding="onnxruntime")
    assert {"Requantize"} <= {step.operator for node in compiled.program.graph.lookups for step in node.steps}
    for mode in ("clear", "simulate"):
        np.testing.assert_array_equal(compiled.predict(x, how=mode, seed=1).astype(np.float32), answers(proto, x))


@pytest.mark.tier("all")
def test_a_max_pool_comes_before_kernels_with_a_scale_for_each_channel(convolutional: Trained) -> None:
    proto = quantise(convolutional.proto, convolutional.calibration, Format(operators=True, per_channel=True))
    pooled = with_outputs(proto, ["p0_quantized"])
    counts = [import_onnx(pooled, rounding=rounding).bootstraps for rounding in ("real", "onnxruntime")]
    assert counts[0] == counts[1]


def test_rounding_is_one_of_two(digits: Trained) -> None:
    with pytest.raises(CompileError, match="rounding: expected one of 'real', 'onnxruntime', got 'even'"):
        cw.compile(digits.proto, digits.calibration, rounding="even")  # type: ignore[arg-type]
