"""Rows of constant tables by encrypted indices, against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx_models import model, runtime

import cloakwork as cw
from cloakwork.models.compile.pipeline import restructure
from cloakwork.models.errors import UnsupportedOperatorError
from cloakwork.models.graph.ir import check
from cloakwork.models.onnx_import.importer import import_onnx
from cloakwork.models.runtime.interpreter import interpret

RNG = np.random.default_rng(20261128)


def by_index(
    operator: str, shape: list[int], constants: dict[str, Any], inputs: list[str], **attributes: Any
) -> onnx.ModelProto:
    """A cast to integers, and the operator, which reads them as `i`."""
    cast = helper.make_node("Cast", ["x"], ["i"], name="cast", to=TensorProto.INT64)
    return model([cast, helper.make_node(operator, inputs, ["y"], name="rows", **attributes)], shape, constants)


def table(*shape: int) -> dict[str, np.ndarray]:
    return {"t": RNG.standard_normal(shape).astype(np.float32)}


ONE_HOT = {"depth": np.array(5), "values": np.array([-1, 2], dtype=np.float32)}
CASES: dict[str, tuple[onnx.ModelProto, int, int]] = {  # with the number of categories, and the look-ups of one index
    "wide rows": (by_index("Gather", [3], table(5, 9), ["t", "i"]), 5, 4),
    "narrow rows": (by_index("Gather", [2, 2], table(9, 2), ["t", "i"]), 9, 2),
    "numbers": (by_index("Gather", [3], table(6), ["t", "i"]), 6, 1),
    "matrices": (by_index("Gather", [2], table(3, 2, 2), ["t", "i"]), 3, 2),
    "one row": (by_index("Gather", [2], table(1, 3), ["t", "i"]), 1, 0),
    "one-hot": (by_index("OneHot", [3], ONE_HOT, ["i", "depth", "values"]), 5, 5),
    "one-hot along an axis": (by_index("OneHot", [3, 2], ONE_HOT, ["i", "depth", "values"], axis=1), 5, 5),
}


@pytest.mark.parametrize("name", CASES)
def test_rows_are_those_of_onnx_runtime(name: str) -> None:
    proto, count, lookups = CASES[name]
    beyond = 2 if "one-hot" in name else 0  # which is none of its categories
    low, high = -count - beyond, count + beyond  # below 0 from the end
    x = RNG.integers(low, high, (30, *[d.dim_value for d in proto.graph.input[0].type.tensor_type.shape.dim][1:]))
    wanted = runtime(proto, x)
    imported = check(import_onnx(proto))
    levelled = restructure(imported)
    for graph in (imported, levelled):
        np.testing.assert_allclose(interpret(graph, x), wanted, rtol=1e-6, atol=1e-6)
    assert levelled.bootstraps <= lookups * x[0].size


@pytest.mark.parametrize(
    ("proto", "what"),
    [
        (by_index("Gather", [1], table(300, 2), ["t", "i"]), "at most 256"),
        (by_index("Gather", [1], table(3, 4), ["t", "i"], axis=1), "another axis"),
    ],
)
def test_refusals_name_the_index_and_say_what_to_do(proto: onnx.ModelProto, what: str) -> None:
    with pytest.raises(UnsupportedOperatorError, match=rf"Gather 'rows': .*encrypted index.*{what}.*before encryption"):
        import_onnx(proto)


@pytest.mark.parametrize("first", [0, -6], ids=["from the start", "from either end"])
def test_a_network_with_an_embedding_decides_as_onnx_runtime(first: int) -> None:
    """A category of six, and three numbers."""
    nodes = [
        helper.make_node("Split", ["x", "sizes"], ["c", "rest"], name="columns", axis=1),
        helper.make_node("Cast", ["c"], ["i"], name="cast", to=TensorProto.INT64),
        helper.make_node("Gather", ["t", "i"], ["rows"], name="embedding"),
        helper.make_node("Flatten", ["rows"], ["e"], name="flat"),
        helper.make_node("Concat", ["e", "rest"], ["j"], name="joined", axis=1),
        helper.make_node("Gemm", ["j", "w"], ["h"], name="dense"),
        helper.make_node("Relu", ["h"], ["r"], name="relu"),
        helper.make_node("Gemm", ["r", "v"], ["y"], name="last"),
    ]
    constants = {
        "sizes": np.array([1, 3]),
        **table(6, 4),
        "w": RNG.standard_normal((7, 12)).astype(np.float32),
        "v": RNG.standard_normal((12, 3)).astype(np.float32),
    }
    proto = model(nodes, [4], constants)
    x = np.concatenate([RNG.integers(first, 6, (600, 1)), RNG.standard_normal((600, 3))], axis=1)
    made = cw.compile(proto, x[:300])
    inside = np.clip(x[300:], x[:300].min(axis=0), x[:300].max(axis=0))
    wanted = runtime(proto, inside).argmax(axis=1)
    found = made.predict(inside, how="simulate", seed=1).argmax(axis=1)
    assert (found == wanted).mean() >= 0.95
