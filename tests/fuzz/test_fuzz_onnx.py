"""ONNX models of strangers with seeded mutations: CompileError, never for a fault of ours, or a model that predicts; memory stays bounded."""

from __future__ import annotations

import random
import resource
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from onnx import AttributeProto, ModelProto, TensorProto, helper, numpy_helper
from onnx_models import mlp, model

import cloakwork as cw
from cloakwork.fhe_core.errors import CompileError, FheError, ShapeError
from cloakwork.models.errors import ImportFaultError
from cloakwork.models.onnx_import.context import OPERATORS
from cloakwork.models.onnx_import.faults import UNFORESEEN

RNG = np.random.default_rng(3)
MOST_BYTES = 3 << 30  # the importer's bound is 2^28 numbers together
EXTREMES = (0, 1, -1, 2, -2, 3, 7, 255, 2**31 - 1, -(2**31), 10**9, 2**40, 2**62, 2**63 - 1, -(2**63))
NUMBERS = (0.0, -1.0, 1e-45, 1e38, -1e38, float("nan"), float("inf"), float("-inf"))


def convolution() -> ModelProto:
    constants: dict[str, Any] = {
        "w": RNG.normal(size=(2, 1, 2, 2)).astype(np.float32),
        "g": RNG.normal(size=(3, 8)).astype(np.float32),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1], strides=[1, 1], group=1),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("MaxPool", ["r"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("AveragePool", ["p"], ["q"], kernel_shape=[1, 1]),
        helper.make_node("Flatten", ["q"], ["f"], axis=1),
        helper.make_node("Gemm", ["f", "g"], ["y"], transB=1, alpha=0.5),
    ]
    return model(nodes, [1, 3, 3], constants)


def shapes() -> ModelProto:
    constants: dict[str, Any] = {
        "four": np.array([1, 2, 2]), "twice": np.array([1, 1, 2]), "pads": np.array([0, 0, 1, 0, 0, 1]), "flat": np.array([1, -1]),
        "order": np.array([0, 2, 1]), "wide": np.array([3, 1, 12]), "three": np.array([3]), "one": np.float32(0.5),
        "zero": np.array([0]), "axes": np.array([1]), "end": np.array([4]),
    }  # fmt: skip
    nodes = [
        helper.make_node("Reshape", ["x", "four"], ["a"]),
        helper.make_node("Tile", ["a", "twice"], ["b"]),
        helper.make_node("Pad", ["b", "pads", "one"], ["c"], mode="constant"),
        helper.make_node("Transpose", ["c"], ["d"], perm=[0, 2, 1]),
        helper.make_node("Reshape", ["d", "flat"], ["e"]),
        helper.make_node(
            "ConstantOfShape", ["three"], ["k"], value=helper.make_tensor("v", TensorProto.FLOAT, [1], [2.0])
        ),
        helper.make_node("ReduceSum", ["k"], ["s"], keepdims=0),
        helper.make_node("Mul", ["e", "s"], ["m"]),
        helper.make_node("Gather", ["m", "order"], ["g"], axis=1),
        helper.make_node("Expand", ["g", "axes"], ["h"]),
        helper.make_node("Concat", ["h", "m"], ["i"], axis=1),
        helper.make_node("Slice", ["i", "zero", "end", "axes"], ["j"]),
        helper.make_node("Split", ["j"], ["l", "r"], axis=1, num_outputs=2),
        helper.make_node("Add", ["l", "r"], ["t"]),
        helper.make_node("Sigmoid", ["t"], ["u"]),
        helper.make_node("ReduceMax", ["u"], ["z"], axes=[1], keepdims=1),
        helper.make_node("Softmax", ["z"], ["y"], axis=1),
    ]
    return model(nodes, [4], constants, opset=17)


def quantised() -> ModelProto:
    constants: dict[str, Any] = {
        "s": np.float32(0.1), "z": np.int8(0), "w": np.array([[1, -2], [3, 4]], np.int8), "t": np.array([0.1, 0.2], np.float32),
        "tz": np.zeros(2, np.int8), "low": np.float32(-1), "high": np.float32(1),
    }  # fmt: skip
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["a"]),
        helper.make_node("DequantizeLinear", ["a", "s", "z"], ["b"]),
        helper.make_node("DequantizeLinear", ["w", "t", "tz"], ["v"], axis=1),
        helper.make_node("MatMul", ["b", "v"], ["m"]),
        helper.make_node("Clip", ["m", "low", "high"], ["c"]),
        helper.make_node("LeakyRelu", ["c"], ["l"], alpha=0.1),
        helper.make_node("Mul", ["l", "m"], ["y"]),
    ]
    return model(nodes, [2], constants)


def table(node: Any) -> ModelProto:
    graph = helper.make_graph(
        [helper.make_node("Scaler", ["x"], ["a"], domain="ai.onnx.ml", offset=[0.5, 0.5], scale=[1.0, 2.0]), node],
        "table",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 2])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)], ir_version=8
    )


def tree() -> ModelProto:
    node = helper.make_node(
        "TreeEnsembleRegressor", ["a"], ["y"], domain="ai.onnx.ml", n_targets=1,
        nodes_treeids=[0] * 5, nodes_nodeids=[0, 1, 2, 3, 4], nodes_featureids=[0, 1, 0, 0, 0], nodes_values=[0.5, 1.5, 0.0, 0.0, 0.0],
        nodes_modes=["BRANCH_LEQ", "BRANCH_LEQ", "LEAF", "LEAF", "LEAF"], nodes_truenodeids=[1, 2, 0, 0, 0], nodes_falsenodeids=[4, 3, 0, 0, 0],
        target_treeids=[0, 0, 0], target_nodeids=[2, 3, 4], target_ids=[0, 0, 0], target_weights=[1.0, 2.0, 3.0],
    )  # fmt: skip
    return table(node)


def logistic() -> ModelProto:
    node = helper.make_node(
        "LinearClassifier", ["a"], ["l", "y"], domain="ai.onnx.ml", coefficients=[1.0, -1.0, -1.0, 1.0], intercepts=[0.1, -0.1],
        classlabels_ints=[0, 1], post_transform="LOGISTIC",
    )  # fmt: skip
    return table(node)


MODELS: dict[str, Callable[[], ModelProto]] = {
    "mlp": lambda: mlp(np.random.default_rng(1), [3, 4, 2]),
    "convolution": convolution,
    "shapes": shapes,
    "quantised": quantised,
    "tree": tree,
    "logistic": logistic,
}
TABLES = ("tree", "logistic")  # which take no options of networks


def mutate(proto: ModelProto, rng: random.Random) -> ModelProto:
    made = ModelProto.FromString(proto.SerializeToString())
    for _ in range(rng.choice((1, 1, 2, 3))):
        rng.choice(
            (rewire, rewire, change_attribute, change_attribute, change_constant, change_constant, restructure, resize)
        )(made, rng)
    return made


def rewire(made: ModelProto, rng: random.Random) -> None:
    """Inputs read anything: what comes later, what does not exist, themselves."""
    node = rng.choice(made.graph.node)
    names = [n for each in made.graph.node for n in (*each.input, *each.output)] + ["nowhere", ""]
    if node.input:
        node.input[rng.randrange(len(node.input))] = rng.choice(names)


def change_attribute(made: ModelProto, rng: random.Random) -> None:
    nodes = [node for node in made.graph.node if node.attribute]
    if not nodes:
        return
    node = rng.choice(nodes)
    i = rng.randrange(len(node.attribute))
    attribute, kind = node.attribute[i], rng.randrange(6)
    if kind == 0:
        del node.attribute[i]
    elif kind == 1:
        attribute.CopyFrom(helper.make_attribute(attribute.name, rng.choice([1.5, "text", [1, 2], [0.5], 3, ["a"]])))
    elif kind == 2:
        attribute.type = rng.choice([t for t in AttributeProto.AttributeType.values() if t])
    elif attribute.type == AttributeProto.INT:
        attribute.i = rng.choice(EXTREMES)
    elif attribute.type == AttributeProto.FLOAT:
        attribute.f = rng.choice(NUMBERS)
    elif attribute.type == AttributeProto.INTS and attribute.ints:
        attribute.ints[rng.randrange(len(attribute.ints))] = rng.choice(EXTREMES)
        if kind == 3:
            attribute.ints.extend(list(attribute.ints))
    elif attribute.type == AttributeProto.FLOATS and attribute.floats:
        attribute.floats[rng.randrange(len(attribute.floats))] = rng.choice(NUMBERS)
        if kind == 3:
            del attribute.floats[0]
    elif attribute.type == AttributeProto.STRING:
        attribute.s = rng.choice([b"", b"\xff\xfe", b"reflect", b"NONE"])


def change_constant(made: ModelProto, rng: random.Random) -> None:
    if not made.graph.initializer:
        return
    i = rng.randrange(len(made.graph.initializer))
    tensor, kind = made.graph.initializer[i], rng.randrange(8)
    if kind == 0:
        del made.graph.initializer[i]
    elif kind == 1:
        tensor.raw_data = tensor.raw_data[:-1]
    elif kind == 2:
        tensor.dims[:] = rng.choice(
            [[], [-1], [0], [2**62, 4], [2**31, 2**31], [1] * 40, [*tensor.dims, 1], list(tensor.dims)[1:]]
        )
    elif kind == 3:
        tensor.data_type = rng.choice(list(TensorProto.DataType.values()))
    elif kind == 4:
        made.graph.initializer.append(tensor)
    else:
        try:
            array = np.array(numpy_helper.to_array(tensor))
        except Exception:
            return  # changed before
        if array.size and array.dtype.kind in "fiu":
            if array.dtype.kind == "f":
                array.reshape(-1)[rng.randrange(array.size)] = rng.choice(NUMBERS)
            else:
                info = np.iinfo(array.dtype)
                array.reshape(-1)[rng.randrange(array.size)] = min(max(rng.choice(EXTREMES), info.min), info.max)
            if kind == 7:
                array = array[None] if rng.random() < 0.5 else array.reshape(-1)
            tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))


def restructure(made: ModelProto, rng: random.Random) -> None:
    nodes = made.graph.node
    i, kind = rng.randrange(len(nodes)), rng.randrange(6)
    if kind == 0 and len(nodes) > 1:
        del nodes[i]
    elif kind == 1:
        nodes.append(nodes[i])
    elif kind == 2:
        nodes[i].op_type = rng.choice(sorted(name for name in OPERATORS if ":" not in name))
    elif kind == 3:
        shuffled = list(nodes)
        rng.shuffle(shuffled)
        del nodes[:]
        nodes.extend(shuffled)
    elif kind == 4:
        nodes[i].domain = rng.choice(["", "ai.onnx.ml", "com.microsoft", "x"])
    else:
        made.graph.output[0].name = rng.choice([n for node in nodes for n in node.output] + ["nowhere"])


def resize(made: ModelProto, rng: random.Random) -> None:
    """The declared input, the opset, or a node that makes much of little."""
    kind, dims = rng.randrange(4), made.graph.input[0].type.tensor_type.shape.dim
    if kind == 0 and dims:
        dims[rng.randrange(len(dims))].dim_value = rng.choice(EXTREMES)
    elif kind == 1 and dims:
        del dims[-1]
    elif kind == 2:
        made.opset_import[0].version = rng.choice((0, 7, 11, 13, 18, 21, 10**6))
    else:
        many = numpy_helper.from_array(
            np.array(rng.choice([[10**12], [1, 10**9], [2**40, 2**40], [-1, 5], [3000, 3000, 3000]])), "many"
        )
        made.graph.initializer.append(many)
        name = rng.choice(("Expand", "Tile", "ConstantOfShape", "Pad", "RandomNormal", "Range"))
        node = made.graph.node[rng.randrange(len(made.graph.node))]
        inputs = ["many"] if name == "ConstantOfShape" else [node.output[0], "many"]
        made.graph.node.append(
            helper.make_node(name, inputs, ["much"], **({"shape": [10**6, 10**6]} if name == "RandomNormal" else {}))
        )
        made.graph.output[0].name = "much"


CASES = [(name, profile) for profile in ("fast", "exact") for name in MODELS]
FIRST = [("mlp", "fast"), ("shapes", "exact"), ("tree", "fast")]


@pytest.mark.os_entropy  # ONNX Runtime is asked in a process of its own
@pytest.mark.parametrize(
    ("name", "profile"), [pytest.param(*case, marks=() if case in FIRST else pytest.mark.tier("all")) for case in CASES]
)
def test_mutated_models_compile_or_are_refused(name: str, profile: str) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    rng, compiled = random.Random(f"{name} {profile}"), 0
    proto = MODELS[name]()
    shape = [dim.dim_value for dim in proto.graph.input[0].type.tensor_type.shape.dim][1:]
    x = np.random.default_rng(0).uniform(-1, 1, (20, *shape))
    options: dict[str, Any] = {} if name in TABLES else {"allow_loss": True}
    chosen = (
        options
        if name in TABLES
        else {**options, "precision": profile, "input_bits": 2, "activation_bits": 2, "accumulator_bits": 3}
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cw.compile(proto, x, **options)
        for _ in range(100):
            made = mutate(proto, rng)
            try:
                found = cw.compile(made, x, **chosen)
            except CompileError as error:
                assert str(error)
                assert not isinstance(error.__cause__, UNFORESEEN) or not isinstance(error, ImportFaultError), error
                continue
            except ShapeError as error:
                assert "input" in str(error) or "calibration" in str(error)  # the samples are of the model before
                continue
            compiled += 1
            try:
                found.predict(x[:2])
            except FheError:
                continue
    assert compiled < 100
    assert 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) < MOST_BYTES
