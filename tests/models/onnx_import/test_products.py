"""Products and choices of encrypted tensors: networks that compute both sides themselves."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper
from onnx_models import model, runtime, single

import cloakwork as cw
from cloakwork.models.compile.pipeline import restructure
from cloakwork.models.errors import UnsupportedOperatorError
from cloakwork.models.graph.ir import Graph
from cloakwork.models.onnx_import.importer import import_onnx
from cloakwork.models.program.artefact import program_from_bytes, program_to_bytes
from cloakwork.models.program.client_specification import ClientSpecification
from cloakwork.models.runtime.interpreter import interpret

RNG = np.random.default_rng(31)


def two_sided(
    last: list[Any], shapes: tuple[tuple[int, ...], tuple[int, ...]], constants: dict[str, Any] | None = None
) -> ModelProto:
    """`a` and `b` of these shapes, cut out of one input, then the given nodes to `y`."""
    sizes = [int(np.prod(shape)) for shape in shapes]
    fixed = {"cuts": np.array(sizes), **(constants or {})}
    nodes = [helper.make_node("Split", ["x", "cuts"], ["fa", "fb"], axis=1)]
    for name, shape in zip("ab", shapes, strict=True):
        fixed[f"shape_{name}"] = np.array([1, *shape])
        nodes.append(helper.make_node("Reshape", [f"f{name}", f"shape_{name}"], [name]))
    return model([*nodes, *last], [sum(sizes)], fixed)


def positive(*names: str) -> list[Any]:
    return [helper.make_node("Greater", [name, "zero"], [f"{name}_positive"]) for name in names]


def as_float(name: str) -> Any:
    return helper.make_node("Cast", [name], ["y"], to=TensorProto.FLOAT)


def normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


ZERO = {"zero": np.float32(0)}
CASES = {
    "Mul": two_sided([helper.make_node("Mul", ["a", "b"], ["y"])], ((3, 4), (3, 4))),
    "Mul broadcast": two_sided([helper.make_node("Mul", ["a", "b"], ["y"])], ((3, 1), (1, 4))),
    "Div": two_sided([helper.make_node("Exp", ["b"], ["e"]), helper.make_node("Div", ["a", "e"], ["y"])], ((5,), (5,))),
    "MatMul": two_sided([helper.make_node("MatMul", ["a", "b"], ["y"])], ((3, 4), (4, 2))),
    "batched MatMul": two_sided([helper.make_node("MatMul", ["a", "b"], ["y"])], ((2, 3, 4), (2, 4, 2))),
    "Where": two_sided([*positive("a"), helper.make_node("Where", ["a_positive", "a", "b"], ["y"])], ((5,), (5,)), ZERO),
    "Where constants": two_sided(
        [*positive("a"), helper.make_node("Where", ["a_positive", "p", "q"], ["w"]), helper.make_node("Add", ["w", "b"], ["y"])],
        ((5,), (5,)), {**ZERO, "p": np.float32([1, 2, 3, 4, 5]), "q": np.float32([-1])}),
    "And": two_sided([*positive("a", "b"), helper.make_node("And", ["a_positive", "b_positive"], ["z"]), as_float("z")], ((5,), (5,)), ZERO),
    "Or": two_sided([*positive("a", "b"), helper.make_node("Or", ["a_positive", "b_positive"], ["z"]), as_float("z")], ((5,), (5,)), ZERO),
    "Xor": two_sided([*positive("a", "b"), helper.make_node("Xor", ["a_positive", "b_positive"], ["z"]), as_float("z")], ((5,), (5,)), ZERO),
    "Not": two_sided([*positive("a"), helper.make_node("Not", ["a_positive"], ["n"]), helper.make_node("And", ["n", "mask"], ["z"]), as_float("z")],
                     ((5,), (5,)), {**ZERO, "mask": np.array([True, False, True, True, False])}),
    "constant MatMul": two_sided([helper.make_node("MatMul", ["m", "a"], ["y"])], ((3, 4, 2), (1,)), {"m": normal(3, 3, 4)}),
    "Pad": two_sided([helper.make_node("Pad", ["a", "amounts", "value"], ["y"])], ((2, 3), (1,)),
                     {"amounts": np.array([0, 1, 0, 0, 0, 2]), "value": np.float32(0.75)}),
    "Concat": two_sided([helper.make_node("Concat", ["a", "c"], ["k"], axis=1), helper.make_node("Relu", ["k"], ["y"])], ((3,), (1,)),
                        {"c": np.float32([[0.5, -0.5]])}),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_two_encrypted_sides_equal_onnx_runtime(name: str) -> None:
    proto = CASES[name]
    x = RNG.standard_normal((5, proto.graph.input[0].type.tensor_type.shape.dim[1].dim_value))
    expected = runtime(proto, x)
    graph = import_onnx(proto)
    for form in (graph, restructure(graph)):
        np.testing.assert_allclose(interpret(form, x), expected, rtol=1e-5, atol=1e-5)


def bootstraps(proto: ModelProto) -> Graph:
    return restructure(import_onnx(proto))


def test_bootstraps_of_products() -> None:
    assert bootstraps(CASES["Mul"]).bootstraps == 2 * 12
    assert bootstraps(CASES["MatMul"]).bootstraps == 2 * 3 * 4 * 2
    assert bootstraps(single("Mul", [6], inputs=["x", "x"])).bootstraps == 6
    assert bootstraps(CASES["And"]).bootstraps == 3 * 5
    assert bootstraps(CASES["Pad"]).bootstraps == 0


def test_products_under_noise() -> None:
    proto = CASES["Mul"]
    x = RNG.uniform(-1, 1, (300, 24))
    made = cw.compile(proto, x, precision="balanced", accuracy=0.96)
    expected = runtime(proto, x)
    error = made.predict(x, how="simulate", seed=4) - expected
    assert error.std() < 0.1 * expected.std()


@pytest.mark.parametrize("largest", [0, 1])
def test_top_k_is_the_clients(largest: int) -> None:
    node = helper.make_node("TopK", ["x", "k"], ["y", "indices"], name="best", axis=-1, largest=largest)
    x = RNG.uniform(-1, 1, (30, 7))
    for output, kind in (("y", TensorProto.FLOAT), ("indices", TensorProto.INT64)):
        proto = model([node], [7], {"k": np.array([3])}, output=output, output_type=kind)
        made = cw.compile(proto, x, accuracy=0)
        assert made.report()["bootstraps"] == 0
        np.testing.assert_allclose(made.predict_float(x), runtime(proto, x), atol=1e-6)
        loaded = program_from_bytes(program_to_bytes(made.program))
        client = ClientSpecification.from_json(ClientSpecification.of(loaded).to_json())
        phases = RNG.uniform(-0.3, 0.3, (4, 7))
        np.testing.assert_array_equal(client.output(phases), made.client.output(phases))


def test_unsupported_operators_name_what_to_use() -> None:
    for operator, hint in (
        ("Upsample", "Resize"),
        ("Loop", "unrolled"),
        ("Relv", "Relu"),
    ):
        node = helper.make_node(operator, ["x", "x"], ["y"], name="odd")
        with pytest.raises(UnsupportedOperatorError, match=rf"'odd'.*{hint}"):
            import_onnx(model([node], [3]))
