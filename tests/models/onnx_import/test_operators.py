"""Every operator: the graph as imported, and after the passes that restructure it, against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cases import case
from onnx import TensorProto, helper
from onnx_models import model, runtime, single

from cloakwork.models.compile.pipeline import restructure
from cloakwork.models.graph.ir import check, check_levelled
from cloakwork.models.onnx_import.importer import import_onnx
from cloakwork.models.runtime.interpreter import interpret

RNG = np.random.default_rng(20261121)


def normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def compare(proto: Any, x: np.ndarray, tolerance: float = 2e-5) -> None:
    expected = runtime(proto, x).astype(np.float64)
    imported = check(import_onnx(proto))
    levelled = check_levelled(restructure(imported))
    for graph in (imported, levelled):
        y = interpret(graph, x)
        assert y.shape == expected.shape
        np.testing.assert_allclose(y, expected, rtol=tolerance, atol=tolerance)


LINEAR = {
    "gemm": single("Gemm", [5], {"w": normal(5, 3), "b": normal(3)}, alpha=0.5, beta=2.0),
    "gemm transB": single("Gemm", [5], {"w": normal(3, 5)}, transB=1),
    "matmul": single("MatMul", [5], {"w": normal(5, 4)}),
    "matmul of matrices": single("MatMul", [3, 5], {"w": normal(5, 4)}),
    "matmul by a vector": single("MatMul", [3, 5], {"w": normal(5)}),
    "matmul from the left": single("MatMul", [3, 5], {"w": normal(2, 3)}, inputs=["w", "x"]),
    "conv 1-D": single("Conv", [2, 9], {"w": normal(3, 2, 3), "b": normal(3)}, pads=[1, 2], strides=[2]),
    "conv 2-D": single("Conv", [2, 7, 6], {"w": normal(4, 2, 3, 2), "b": normal(4)}, strides=[2, 1], pads=[1, 0, 2, 1]),
    "conv groups": single("Conv", [4, 5, 5], {"w": normal(6, 2, 3, 3)}, group=2),
    "conv depthwise": single("Conv", [3, 5, 5], {"w": normal(3, 1, 3, 3), "b": normal(3)}, group=3, pads=[1, 1, 1, 1]),
    "conv dilated": single("Conv", [2, 8, 8], {"w": normal(2, 2, 3, 3)}, dilations=[2, 3], pads=[1, 1, 1, 1]),
    "conv same": single("Conv", [1, 6, 5], {"w": normal(2, 1, 4, 3)}, auto_pad="SAME_LOWER", strides=[2, 2]),
    "average pool": single("AveragePool", [2, 5, 6], kernel_shape=[2, 3], strides=[2, 2], pads=[1, 1, 1, 0]),
    "average pool with padding": single("AveragePool", [2, 5, 5], kernel_shape=[3, 3], pads=[1, 1, 1, 1], count_include_pad=1),
    "average pool ceil": single("AveragePool", [1, 6, 6], kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1),
    "global average pool": single("GlobalAveragePool", [3, 4, 5]),
    "reduce sum": single("ReduceSum", [3, 4], {"axes": np.array([-1])}, keepdims=0),
    "reduce sum kept": single("ReduceSum", [3, 4], {"axes": np.array([1, 2])}),
    "reduce mean": single("ReduceMean", [3, 4, 2], axes=[1, 3], keepdims=0),
    "reduce mean opset 18": single("ReduceMean", [3, 4], {"axes": np.array([2])}, opset=18),
    "add of two": single("Add", [4], inputs=["x", "x"]),
    "batch normalisation": single(
        "BatchNormalization", [3, 2, 2], {"s": normal(3), "b": normal(3), "m": normal(3), "v": np.abs(normal(3)) + 0.1}
    ),
    "add constant": single("Add", [2, 3], {"c": normal(2, 1)}),
    "constant minus": single("Sub", [3], {"c": normal(3)}, inputs=["c", "x"]),
    "mul": single("Mul", [3], {"c": normal(3)}),
    "div": single("Div", [3], {"c": normal(3)}),
    "neg": single("Neg", [3]),
}  # fmt: skip

MOVING = {
    "flatten": single("Flatten", [2, 3, 4]),
    "reshape": single("Reshape", [2, 6], {"s": np.array([0, -1, 4])}),
    "transpose": single("Transpose", [2, 3, 4], perm=[0, 3, 1, 2]),
    "slice": single("Slice", [6, 5], {"a": np.array([4, -4]), "b": np.array([-100, -1]), "c": np.array([1, 2]), "d": np.array([-2, 1])}),
    "squeeze": single("Squeeze", [1, 3], {"a": np.array([1])}),
    "unsqueeze": single("Unsqueeze", [3], {"a": np.array([-1, 1])}),
    "expand": single("Expand", [1, 3], {"s": np.array([1, 4, 3])}),
    "pad": single("Pad", [2, 3], {"p": np.array([0, 1, -1, 0, 0, 2])}),
    "pad reflect": single("Pad", [4], {"p": np.array([0, 2, 0, 1])}, mode="reflect"),
    "gather": single("Gather", [4, 3], {"i": np.array([[2, 0], [1, -1]])}, axis=1),
    "identity": single("Identity", [3]),
    "dropout": single("Dropout", [3]),
    "cast": single("Cast", [3], to=TensorProto.DOUBLE, output_type=TensorProto.DOUBLE),
}  # fmt: skip

FUNCTIONS = {
    **{name: single(name, [6]) for name in (
        "Abs", "Atan", "Asinh", "Ceil", "Celu", "Cos", "Cosh", "Elu", "Erf", "Exp", "Floor", "HardSigmoid", "HardSwish", "LeakyRelu",
        "Reciprocal", "Relu", "Round", "Selu", "Sigmoid", "Sign", "Sin", "Sinh", "Softplus", "Softsign", "Tan", "Tanh", "ThresholdedRelu",
    )},
    "Gelu": single("Gelu", [6], opset=20),
    "Gelu tanh": single("Gelu", [6], opset=20, approximate="tanh"),
    "Mish": single("Mish", [6], opset=18),
    "PRelu": single("PRelu", [3, 2], {"s": normal(3, 1)}),
    "Clip": single("Clip", [6], {"a": np.float32(-0.5), "b": np.float32(0.7)}),
    "Clip one side": single("Clip", [6], {"b": np.float32(0.7)}, inputs=["x", "", "b"]),
    "Max": single("Max", [6], {"a": np.float32(0.1), "b": normal(6)}),
    "Min": single("Min", [6], {"a": normal(6)}),
    "Max of two": single("Max", [6], inputs=["x", "x"]),
    "Pow": single("Pow", [6], {"e": np.float32(3)}),
    "Less": single("Less", [6], {"e": np.float32(0.2)}, output_type=TensorProto.BOOL),
    "constant greater": single("Greater", [6], {"e": np.float32(0.2)}, inputs=["e", "x"], output_type=TensorProto.BOOL),
    "constant by": single("Div", [6], {"c": normal(6)}, inputs=["c", "x"]),
    "max pool": single("MaxPool", [2, 5, 5], kernel_shape=[3, 2], strides=[2, 1], pads=[1, 0, 1, 1]),
    "max pool ceil": single("MaxPool", [1, 6], kernel_shape=[3], strides=[2], ceil_mode=1, dilations=[1]),
    "global max pool": single("GlobalMaxPool", [2, 3, 3]),
    "reduce max": single("ReduceMax", [3, 5], axes=[2], keepdims=0),
    "reduce min": single("ReduceMin", [3, 5], axes=[2], keepdims=0),
    "reduce l1": single("ReduceL1", [3, 5], axes=[1]),
    "reduce l2": single("ReduceL2", [3, 5], axes=[2]),
    "reduce sum of squares": single("ReduceSumSquare", [3, 5], axes=[2], keepdims=0),
    "reduce log sum exp": single("ReduceLogSumExp", [3, 5], axes=[2]),
    "reduce prod": single("ReduceProd", [3, 5], axes=[2]),
    "product of two": single("Mul", [6], inputs=["x", "x"]),
    "matrix times itself": single("MatMul", [4, 4], inputs=["x", "x"]),
    "base to the power": single("Pow", [6], {"b": np.float32(1.7)}, inputs=["b", "x"]),
    "mod": single("Mod", [6], {"d": np.float32(0.7)}, fmod=1),
    "where constant condition": single("Where", [4], {"c": np.array([True, False, True, True]), "d": normal(4)}, inputs=["c", "x", "d"]),
    "sum": single("Sum", [6], {"c": normal(6), "d": normal(1)}, inputs=["x", "c", "x", "d"]),
    "mean": single("Mean", [6], {"c": normal(6)}, inputs=["x", "c", "x"]),
}  # fmt: skip

POSITIVE = {name: single(name, [6]) for name in ("Log", "Sqrt")} | {"Acosh": single("Acosh", [6])}


def extents(proto: Any) -> list[int]:
    return [d.dim_value for d in proto.graph.input[0].type.tensor_type.shape.dim[1:]]


@pytest.mark.parametrize("operators", [LINEAR, MOVING, FUNCTIONS], ids=["linear", "moving", "functions"])
def test_operators_equal_onnx_runtime(operators: dict[str, Any]) -> None:
    for name, proto in operators.items():
        with case(name):
            compare(proto, normal(4, *extents(proto)))


def test_functions_of_positive_numbers() -> None:
    for name, proto in POSITIVE.items():
        with case(name):
            compare(proto, 1.1 + np.abs(normal(4, 6)))


@pytest.mark.parametrize("opset", [11, 13, 17, 21])
def test_split_and_concat_in_every_opset(opset: int) -> None:
    sizes: dict[str, Any] = {} if opset < 13 else {"sizes": np.array([1, 3])}
    attributes: dict[str, Any] = {"split": [1, 3]} if opset < 13 else {}
    nodes = [
        helper.make_node("Split", ["x", *sizes], ["a", "b"], axis=1, **attributes),
        helper.make_node("Relu", ["a"], ["ra"]),
        helper.make_node("Concat", ["b", "ra"], ["y"], axis=1),
    ]
    compare(model(nodes, [4, 2], sizes, opset=opset), normal(3, 4, 2))


def test_residual_block_with_normalisation_and_pooling() -> None:
    """conv - norm - relu - conv, plus the skip, relu, max-pool, flatten, gemm: structure as in real networks."""
    constants: dict[str, Any] = {"w0": normal(3, 2, 3, 3), "w1": normal(2, 3, 3, 3), "g": normal(2, 8)}
    constants |= {
        "s": normal(3),
        "b": normal(3),
        "m": normal(3),
        "v": np.abs(normal(3)) + 0.2,
        "shape": np.array([-1, 8]),
    }
    nodes = [
        helper.make_node("Relu", ["x"], ["r"]),
        helper.make_node("Conv", ["r", "w0"], ["c0"], pads=[1, 1, 1, 1]),
        helper.make_node("BatchNormalization", ["c0", "s", "b", "m", "v"], ["n0"]),
        helper.make_node("Relu", ["n0"], ["r0"]),
        helper.make_node("Conv", ["r0", "w1"], ["c1"], pads=[1, 1, 1, 1]),
        helper.make_node("Add", ["c1", "r"], ["sum"]),
        helper.make_node("Relu", ["sum"], ["r1"]),
        helper.make_node("MaxPool", ["r1"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Reshape", ["p", "shape"], ["f"]),
        helper.make_node("Gemm", ["f", "g"], ["y"], transB=1),
    ]
    compare(model(nodes, [2, 4, 4], constants), normal(3, 2, 4, 4), 1e-4)


def test_reduced_shape_arithmetic_of_exporters_is_folded() -> None:
    """Shape, Gather, Unsqueeze, Concat, Reshape, as the TorchScript exporter writes view(x.size(0), -1)."""
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Constant", [], ["zero"], value=helper.make_tensor("zero", TensorProto.INT64, [], [0])),
        helper.make_node("Gather", ["shape", "zero"], ["batch"], axis=0),
        helper.make_node("Unsqueeze", ["batch", "axis"], ["one"]),
        helper.make_node("Concat", ["one", "rest"], ["wanted"], axis=0),
        helper.make_node("Reshape", ["x", "wanted"], ["y"]),
    ]
    compare(model(nodes, [2, 3], {"axis": np.array([0]), "rest": np.array([-1])}), normal(2, 2, 3))


def test_constants_of_a_shape_are_folded() -> None:
    """Shape, ConstantOfShape, Range: whatever depends on shapes alone is known at import."""
    one = helper.make_tensor("one", TensorProto.FLOAT, [1], [1.5])
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("ConstantOfShape", ["shape"], ["filled"], value=one),
        helper.make_node("Add", ["x", "filled"], ["y"]),
    ]
    graph = import_onnx(model(nodes, [2, 3]))
    assert restructure(graph).bootstraps == 0
    compare(model(nodes, [2, 3]), normal(2, 2, 3))
