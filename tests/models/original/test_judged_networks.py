"""Faults are put into the importer: the user's file, run by ONNX Runtime, finds each, and says which node is wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx_models import model

import cloakwork as cw
from cloakwork.models.errors import ImportFaultError
from cloakwork.models.graph import functions
from cloakwork.models.onnx_import.importer import import_onnx
from cloakwork.models.original import onnx_file
from cloakwork.models.original.network import Original, judge_import
from cloakwork.models.runtime.interpreter import clear_answers

RNG = np.random.default_rng(20261128)
SAMPLES = RNG.normal(size=(100, 4)).astype(np.float32)
WEIGHTS = {"w": RNG.normal(size=(4, 5)).astype(np.float32), "v": RNG.normal(size=(5, 2)).astype(np.float32)}
LAYERS = [
    helper.make_node("MatMul", ["x", "w"], ["sums"], name="first layer"),
    helper.make_node("LeakyRelu", ["sums"], ["bent"], name="bend", alpha=0.3),
    helper.make_node("MatMul", ["bent", "v"], ["y"], name="last layer"),
]


def network() -> onnx.ModelProto:
    return model(LAYERS, [4], WEIGHTS)


def compiled(proto: onnx.ModelProto) -> Any:
    return cw.compile(proto, SAMPLES, accuracy=0, precision="fast", sets=["toy_two_limb"])


def test_a_right_import_is_judged_by_onnx_runtime() -> None:
    original = Original.of(network(), import_onnx(network()), SAMPLES, ["y"])
    assert original is not None
    assert judge_import(original, lambda x: clear_answers(import_onnx(network()), x), import_again)
    said = onnx_file.answers_of(original.model, ["y"], original.samples)
    assert said is not None
    assert said.by == "ONNX Runtime"
    assert said.samples == len(SAMPLES) + original.edges


def test_values_on_a_step_may_go_either_way_in_few_samples_but_nothing_is_told_then() -> None:
    """The report says "as your model" where the graph says what the file says; what the program keeps of the graph is another question."""
    proto = model([*LAYERS[:2], helper.make_node("Round", ["bent"], ["y"])], [4], WEIGHTS)
    original = Original.of(proto, import_onnx(proto), SAMPLES, ["y"])
    assert original is not None
    calls: list[int] = []

    def but_one(x: np.ndarray) -> np.ndarray:
        calls.append(len(x))
        answers = clear_answers(import_onnx(proto), x)
        answers[0] += len(calls) == 1
        return answers

    assert not judge_import(original, but_one, import_again)
    calls.clear()
    with pytest.raises(ImportFaultError, match="as imported it gives"):
        judge_import(Original(network(), ["y"], original.samples, original.edges), but_one, import_again)


def import_again(part: onnx.ModelProto) -> Callable[[np.ndarray], np.ndarray]:
    graph = import_onnx(part)
    return lambda x: np.asarray(clear_answers(graph, x))


def test_a_function_that_is_imported_wrongly_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(functions.FUNCTIONS, "LeakyRelu", wrong_slope(functions.FUNCTIONS["LeakyRelu"]))
    with pytest.raises(ImportFaultError, match="the first node whose results differ is LeakyRelu 'bend'"):
        compiled(network())


def wrong_slope(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, *args, **options: np.where(np.asarray(x) > 0, x, 0.0)


def test_without_onnx_runtime_the_reference_judges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnx_file, "_WAYS", onnx_file._WAYS[1:])
    said = onnx_file.answers_of(network(), ["y"], {"x": SAMPLES})
    assert said is not None
    assert said.by == "onnx.reference"
    np.testing.assert_allclose(said.outputs["y"], clear_answers(import_onnx(network()), SAMPLES), rtol=1e-4, atol=1e-5)


def test_a_file_that_nobody_can_run_is_compiled_unjudged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnx_file, "_WAYS", ())
    assert compiled(network()).program.facts.original is None


def test_a_file_for_one_sample_at_a_time() -> None:
    proto = network()
    proto.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 1
    said = onnx_file.answers_of(proto, ["y"], {"x": SAMPLES[:20]})
    assert said is not None
    np.testing.assert_allclose(
        said.outputs["y"], clear_answers(import_onnx(network()), SAMPLES[:20]), rtol=1e-4, atol=1e-5
    )


def test_a_file_that_takes_one_sample_whatever_it_says() -> None:
    """A Reshape that was exported for one sample makes one row of many."""
    layers = [helper.make_node("Reshape", ["x", "one"], ["row"]), helper.make_node("Relu", ["row"], ["y"])]
    said = onnx_file.answers_of(model(layers, [4], {"one": np.array([1, -1])}), ["y"], {"x": SAMPLES[:20]})
    assert said is not None
    np.testing.assert_array_equal(said.outputs["y"], np.maximum(SAMPLES[:20], 0))


def test_samples_that_are_not_of_the_files_type_are_not_judged_by_it() -> None:
    """A boolean input that gets shares is another model to ONNX Runtime."""
    proto = model([helper.make_node("Cast", ["x"], ["y"], to=onnx.TensorProto.FLOAT)], [4])
    proto.graph.input[0].type.tensor_type.elem_type = onnx.TensorProto.BOOL
    graph = import_onnx(network())
    assert Original.of(proto, graph, SAMPLES, ["y"]) is None
    assert Original.of(proto, graph, (SAMPLES > 0).astype(float), ["y"]) is not None


def test_the_report_begins_with_it() -> None:
    made = cw.compile(network(), SAMPLES, task="regression", accuracy=0.5)
    assert str(made).startswith("as your model: values off by ")
    assert made.report()["original"]["samples"] == made.report()["check"]["samples"]
