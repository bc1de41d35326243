"""Affine functions between linear nodes go into the weights and biases of those that read them: the model stays what it is."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import ModelProto, helper
from onnx_models import model

from cloakwork.models.graph.merge_equal import affine_of
from cloakwork.models.onnx_import.importer import import_onnx
from cloakwork.models.passes.fold_affine import fold_affine
from cloakwork.models.runtime.interpreter import interpret

onnxruntime = pytest.importorskip("onnxruntime", reason="ONNX Runtime is what is compared with")


def drawn(rng: np.random.Generator, readers: int) -> ModelProto:
    """Gemm 3 -> 4 - Relu - Mul, Add, number by number - one or two Gemm 4 -> 2, and the numbers themselves without a reader that is linear."""
    nodes = [
        helper.make_node("Gemm", ["x", "w", "b"], ["h"], name="first"),
        helper.make_node("Relu", ["h"], ["r"], name="relu"),
        helper.make_node("Mul", ["r", "scale"], ["m"], name="scaled"),
        helper.make_node("Add", ["m", "offset"], ["a"], name="moved"),
        *(helper.make_node("Gemm", ["a", f"w{i}", f"b{i}"], [f"g{i}"], name=f"reader{i}") for i in range(readers)),
        helper.make_node("Concat", [*(f"g{i}" for i in range(readers)), "a"], ["y"], axis=1, name="all"),
    ]
    shapes = {"w": (3, 4), "b": (4,), "scale": (4,), "offset": (4,)}
    shapes |= {f"{name}{i}": shape for i in range(readers) for name, shape in (("w", (4, 2)), ("b", (2,)))}
    return model(nodes, [3], {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()})


@pytest.mark.parametrize("readers", [0, 1, 2])
@pytest.mark.parametrize("seed", range(4))
def test_the_model_stays_what_it_is(seed: int, readers: int) -> None:
    rng = np.random.default_rng(seed)
    proto = drawn(rng, readers)
    graph = import_onnx(proto)
    assert any(affine_of(node) is not None for node in graph.nodes)
    folded = fold_affine(graph)
    assert all(affine_of(node) is None for node in folded.nodes)
    x = rng.normal(size=(50, 3)).astype(np.float32)
    (expected,) = onnxruntime.InferenceSession(proto.SerializeToString()).run(None, {"x": x})
    np.testing.assert_allclose(interpret(folded, x), expected, rtol=1e-4, atol=1e-5)
