"""Networks of several inputs: by name or in order, each with a scale and quantiser of its own, whatever becomes of them in the network."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper
from onnx_models import mlp, model
from several_tensors import image_and_table, network, runtime, samples

import cloakwork as cw
from cloakwork.fhe_core.errors import SerializationError, ShapeError
from cloakwork.fhe_core.parameters import parameter_set
from cloakwork.models.calibration import Calibration
from cloakwork.models.client_steps import Rescale, Tensors
from cloakwork.models.compile.options import NetworkOptions
from cloakwork.models.compile.pipeline import PREPARING, RANGES, RESTRUCTURING, begin, restructure, stages
from cloakwork.models.compiled import CompiledModel
from cloakwork.models.compiler import calibrate
from cloakwork.models.errors import CalibratedRangeWarning, CompileError, UnsupportedOperatorError
from cloakwork.models.onnx_import.importer import import_onnx
from cloakwork.models.passes.rescale_input import InputRanges, rescale_input
from cloakwork.models.program.client_specification import ClientSpecification
from cloakwork.models.runtime.interpreter import interpret

RNG = np.random.default_rng(29)
DENSE = ("MatMul", "c w", "h"), ("Relu", "h", "g"), ("MatMul", "g v", "y")
JOINED = (("Concat", "a b", "c", {"axis": 1}), *DENSE)


def weights(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape)


PROTO = image_and_table(np.random.default_rng(2))
X = samples(np.random.default_rng(3), 300)


@pytest.fixture(scope="module")
def compiled() -> CompiledModel:
    return cw.compile(PROTO, X, accuracy=0.7)  # weights are random: many samples hardly decide


# --- the numbers -------------------------------------------------------------------------------------------------------------------


NETWORKS: dict[str, tuple[Any, dict[str, np.ndarray]]] = {
    "used after a look-up": (
        network(
            [("MatMul", "a w", "h"), ("Relu", "h", "g"), ("Concat", "g b", "c", {"axis": 1}), ("MatMul", "c v", "y")],
            {"a": [3], "b": [2]}, ["y"], {"w": weights(3, 4), "v": weights(6, 2)},
        ),
        {"a": weights(200, 3), "b": 50 * weights(200, 2)},
    ),
    "multiplied": (
        network([("Mul", "a b", "c"), ("MatMul", "c w", "y")], {"a": [3], "b": [3]}, ["y"], {"w": weights(3, 1)}),
        {"a": weights(200, 3), "b": 100 * weights(200, 3)},
    ),
    "images of different range": (
        network(
            [("Concat", "a b", "s", {"axis": 1}), ("Conv", "s k", "m", {"pads": [1, 1, 1, 1]}), ("Relu", "m", "r"), ("Flatten", "r", "f"),
             ("MatMul", "f w", "y")],
            {"a": [2, 3, 3], "b": [1, 3, 3]}, ["y"], {"k": weights(2, 3, 3, 3), "w": weights(18, 2)},
        ),
        {"a": RNG.uniform(0, 255, (200, 2, 3, 3)), "b": RNG.uniform(-1, 1, (200, 1, 3, 3))},
    ),
    "side by side in one convolution": (
        network(
            [("Concat", "a b", "s", {"axis": 3}), ("Conv", "s k", "m", {"pads": [1, 1, 1, 1]}), ("Relu", "m", "r"), ("Flatten", "r", "f"),
             ("MatMul", "f w", "y")],
            {"a": [1, 3, 3], "b": [1, 3, 2]}, ["y"], {"k": weights(2, 1, 3, 3), "w": weights(30, 2)},
        ),
        {"a": RNG.uniform(0, 255, (200, 1, 3, 3)), "b": RNG.uniform(-1, 1, (200, 1, 3, 2))},
    ),
    "whole numbers and a number without a dimension": (
        network(
            [("Cast", "a", "f", {"to": TensorProto.FLOAT}), ("Unsqueeze", "b one", "u"), ("Concat", "f u", "c", {"axis": 1}), *DENSE],
            {"a": [2], "b": []}, ["y"], {"w": weights(3, 4), "v": weights(4, 2), "one": np.array([1])}, {"a": TensorProto.INT64},
        ),
        {"a": RNG.integers(0, 9, (200, 2)), "b": weights(200)},
    ),
    "always the same": (
        network(JOINED, {"a": [2], "b": [2]}, ["y"], {"w": weights(4, 4), "v": weights(4, 2)}),
        {"a": np.ones((200, 2)), "b": weights(200, 2)},
    ),
    "always zero": (
        network(JOINED, {"a": [2], "b": [2]}, ["y"], {"w": weights(4, 4), "v": weights(4, 2)}),
        {"a": np.zeros((200, 2)), "b": weights(200, 2)},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", NETWORKS)
def test_as_onnx_runtime_before_and_after_the_inputs_are_brought_to_one_scale(name: str) -> None:
    proto, x = NETWORKS[name]
    wanted = runtime(proto, x)["y"]
    *_, begun, ready, _ = (
        each for _, each in stages(begin(proto, x, NetworkOptions()), (*PREPARING, *RESTRUCTURING, *RANGES))
    )
    assert ready.samples is not None and np.abs(ready.samples).max() <= 1
    tolerance = 1e-5 * np.abs(wanted).max()
    np.testing.assert_allclose(interpret(begun.graph, begun.entered(x)), wanted, atol=tolerance)
    np.testing.assert_allclose(interpret(ready.graph, ready.samples), wanted, atol=tolerance)
    assert ready.seen is not None
    ready.seen.check(ready.graph)


def test_an_input_loses_nothing_by_the_size_of_another() -> None:
    """The same network whether a column of thousands beside one of ones comes as such or rescaled by hand."""
    w, v = weights(4, 6), weights(6, 2)
    large = w / np.array([1, 1, 1000, 1000])[:, None]
    x = {"a": weights(300, 2), "b": weights(300, 2)}
    protos = [network(JOINED, {"a": [2], "b": [2]}, ["y"], {"w": each, "v": v}) for each in (w, large)]
    wanted = runtime(protos[0], x)["y"]
    options: dict[str, Any] = {"precision": "balanced", "accuracy": 0}
    errors = [
        np.square(cw.compile(proto, given, **options).predict(given) - wanted).mean()
        for proto, given in zip(protos, (x, {"a": x["a"], "b": 1000 * x["b"]}), strict=True)
    ]
    assert errors[1] < 2 * errors[0] and errors[0] < 0.02 * wanted.var()


def test_one_compiled_network_in_every_mode(compiled: CompiledModel) -> None:
    wanted = runtime(PROTO, X)
    clear, quantised = compiled.predict_float(X), compiled.predict(X)
    for name in wanted:
        np.testing.assert_allclose(clear[name], wanted[name], atol=1e-5)
        assert 1 - np.square(quantised[name] - wanted[name]).mean() / wanted[name].var() > 0.98
    in_order = compiled.predict((X["image"], X["table"]), how="simulate", seed=1)
    by_name = compiled.predict({"table": X["table"], "image": X["image"]}, how="simulate", seed=1)
    for name in wanted:
        np.testing.assert_array_equal(in_order[name], by_name[name])


def test_ranges_of_samples_travel_as_json(compiled: CompiledModel) -> None:
    text = calibrate(PROTO, X).to_json()
    recorded = cw.compile(PROTO, Calibration.from_json(text))
    assert recorded.client.input_steps[0].names == compiled.client.input_steps[0].names
    wanted = runtime(PROTO, X)["embedding"]
    assert 1 - np.square(recorded.predict(X)["embedding"] - wanted).mean() / wanted.var() > 0.97
    fields = json.loads(text)
    assert fields["inputs"][0][0] >= 0 and fields["inputs"][1][0] < 0
    for inputs in ([], [[0, 1]], [[1, 0], [0, 1]], [[0], [1]], "all", [[0, 1]] * 3):
        with pytest.raises((SerializationError, CompileError)):
            cw.compile(PROTO, Calibration.from_json(json.dumps({**fields, "inputs": inputs})))


def test_an_input_that_nothing_reads_is_not_encrypted() -> None:
    proto = network(JOINED, {"a": [2], "nothing": [500], "b": [2]}, ["y"], {"w": weights(4, 3), "v": weights(3, 1)})
    x = {"a": weights(200, 2), "b": weights(200, 2)}
    made = cw.compile(proto, x, task="regression")
    assert made.program.graph.input.size == 4 and made.report()["unused_inputs"] == ["nothing"]
    np.testing.assert_array_equal(made.predict({**x, "nothing": "whatever"}), made.predict(x))
    assert "nothing depends on nothing" in made.details
    with pytest.raises(CompileError, match="no output depends on an input"):
        import_onnx(network([("Relu", "w", "y")], {"a": [2], "b": [2]}, ["y"], {"w": weights(1, 4)}))


def test_exact_networks_round_every_input_on_a_grid_of_its_own() -> None:
    w, v = np.array([[1.0, -1], [1, 1], [-0.01, 0.01], [0.01, 0.01]]), np.array([[1.0], [2.0]])
    proto = network(JOINED, {"a": [2], "b": [2]}, ["y"], {"w": w, "v": v})
    x = {"a": RNG.uniform(-1, 1, (300, 2)), "b": RNG.uniform(-100, 100, (300, 2))}
    settings = {"input_bits": 4, "activation_bits": 4, "accumulator_bits": 4}
    made = cw.compile(proto, x, precision="exact_64", **settings, weight_bits=3, accuracy=0)
    wanted = runtime(proto, x)["y"]
    assert 1 - np.square(made.predict(x) - wanted).mean() / wanted.var() > 0.8
    simulated = made.predict(x, how="simulate", seed=3)  # accumulators are rounded: now and then one step off
    assert made.program.output_unit > 0 and np.isclose(simulated, made.predict(x)).mean() > 0.9


# --- quantised networks ------------------------------------------------------------------------------------------------------------


def quantised(scales: tuple[float, float], kinds: tuple[type, type]) -> Any:
    """JOINED on two inputs that QuantizeLinear rounds, a grid for each."""
    nodes: list[Any] = []
    constants: dict[str, Any] = {"w": RNG.integers(-3, 4, (4, 5)) * 0.1, "v": RNG.integers(-3, 4, (5, 1)) * 0.1}
    for name, scale, kind in zip(("p", "q"), scales, kinds, strict=True):
        constants |= {f"s{name}": np.float32(scale), f"z{name}": kind(0)}
        nodes += [
            ("QuantizeLinear", f"{name} s{name} z{name}", f"i{name}"),
            ("DequantizeLinear", f"i{name} s{name} z{name}", "a" if name == "p" else "b"),
        ]
    return network([*nodes, *JOINED], {"p": [2], "q": [2]}, ["y"], constants)


def test_inputs_that_the_network_rounds_need_no_samples() -> None:
    proto = quantised((1 / 64, 10.0), (np.int8, np.uint8))
    x = {"p": RNG.uniform(-2.5, 2.5, (100, 2)), "q": RNG.uniform(0, 3000, (100, 2))}
    wanted = runtime(proto, x)["y"]
    made = cw.compile(proto)
    assert made.program.bootstraps == 5
    values = made.client.inputs(x)
    np.testing.assert_array_equal(values, np.rint(values))
    np.testing.assert_allclose(made.predict_float(x), wanted, atol=1e-4 * np.abs(wanted).max())
    assert 1 - np.square(made.predict(x) - wanted).mean() / wanted.var() > 0.97
    assert cw.compile(proto, x, accuracy=0).program.input_steps[0].steps[0][0].unit == pytest.approx(1 / 64)


def test_exact_programs_take_all_that_quantisers_of_inputs_let_through() -> None:
    """Two inputs of unlike steps, added up and rounded: far beyond the samples, and beyond the quantisers, as in ONNX Runtime."""
    constants: dict[str, Any] = {"w": RNG.integers(-3, 4, (4, 3)) * 1.0, "v": RNG.integers(-3, 4, (3, 2)) * 1.0}
    constants |= {"sa": np.float32(0.1), "sb": np.float32(0.05), "st": np.float32(0.93), "z": np.int8(0)}

    def rounded(source: str, name: str) -> list[tuple[str, str, str]]:
        return [("QuantizeLinear", f"{source} s{name} z", f"i{name}"), ("DequantizeLinear", f"i{name} s{name} z", name)]

    nodes = [
        *rounded("p", "a"),
        *rounded("q", "b"),
        ("MatMul", "a w", "c"),
        ("MatMul", "b w", "d"),
        ("Add", "c d", "e"),
    ]
    nodes += [("Relu", "e", "h"), *rounded("h", "t"), ("MatMul", "t v", "y")]
    proto = network(nodes, {"p": [4], "q": [4]}, ["y"], constants)
    made = cw.compile(proto, {name: RNG.uniform(-1, 1, (100, 4)) for name in "pq"}, precision="exact", accuracy=0)
    wild = {name: RNG.uniform(-15, 15, (500, 4)) for name in "pq"}
    np.testing.assert_allclose(made.predict(wild), runtime(proto, wild)["y"], atol=1e-3)


def test_every_input_has_to_say_how_it_is_rounded() -> None:
    half = quantised((1 / 64, 1 / 64), (np.int8, np.int8))
    del half.graph.node[2:4]
    half.graph.node[2].input[1] = "q"
    with pytest.raises(CompileError, match="input 'q' does not go into a QuantizeLinear"):
        cw.compile(half)
    x = {"p": RNG.uniform(-2, 2, (200, 2)), "q": RNG.uniform(0, 100, (200, 2))}
    wanted = runtime(half, x)["y"]
    found = cw.compile(half, x, precision="balanced", accuracy=0).predict(x)
    assert 1 - np.square(found - wanted).mean() / wanted.var() > 0.97


# --- wrong samples -----------------------------------------------------------------------------------------------------------------


WRONG: dict[str, tuple[Any, str]] = {
    "an array": (np.zeros((2, 19)), r"several inputs; expected a dict .* 'image' \['samples', 1, 4, 4\], 'table' \['samples', 3\]; got ndarray"),
    "a list": ([X["image"], X["table"]], "got list"),
    "nothing": (None, "got NoneType"),
    "a missing name": ({"image": X["image"]}, "missing 'table'"),
    "another name": ({**X, "tabel": X["table"]}, "unexpected 'tabel'"),
    "no names": ({}, "missing 'image', 'table'"),
    "too short a tuple": ((X["image"],), "a tuple of 2 arrays .*, got 1"),
    "exchanged": ((X["table"], X["image"]), r"input 'image': expected an array of shape \['samples', 1, 4, 4\], got \[300, 3\]"),
    "no batch": ({"image": X["image"][0], "table": X["table"]}, "input 'image': .* samples come first"),
    "as many numbers in another shape": ({"image": X["image"].reshape(300, 16), "table": X["table"]}, "input 'image'"),
    "fewer samples": ({"image": X["image"], "table": X["table"][:5]}, "input 'table': expected 300 samples as in input 'image', got 5"),
    "no samples": ({"image": X["image"][:0], "table": X["table"][:0]}, "at least one sample"),
    "text": ({"image": X["image"], "table": np.full((300, 3), "a")}, "input 'table': expected an array of numbers"),
    "ragged": ({"image": X["image"], "table": [[1, 2, 3], [1]]}, "input 'table': expected an array of numbers"),
    "NaN": ({"image": X["image"], "table": np.full((300, 3), np.nan)}, "input 'table': expected finite numbers"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_wrong_samples_are_told_by_name(compiled: CompiledModel, case: str) -> None:
    x, message = WRONG[case]
    with pytest.raises(ShapeError, match=message):
        compiled.predict(x)
    with pytest.raises((ShapeError, CompileError)):
        cw.compile(PROTO, x)


def test_a_network_of_one_input_takes_arrays_as_ever() -> None:
    proto = mlp(np.random.default_rng(0), [3, 4, 2])
    x = np.random.default_rng(1).uniform(-1, 1, (200, 3))
    made = cw.compile(proto, x, accuracy=0)
    assert made.predict(x).shape == (200, 2) and not made.program.input_steps and not made.program.output_steps
    for wrong in ({"x": x}, (x, x)):
        with pytest.raises(ShapeError):
            made.predict(wrong)


def test_values_beyond_the_range_are_reported_by_input(compiled: CompiledModel) -> None:
    table = X["table"][:4].copy()
    table[1, 2], table[3, 0] = 1e3, -1e3
    with pytest.warns(CalibratedRangeWarning, match=r"2 of 4 samples .* in columns 'table\[0\]', 'table\[2\]'"):
        compiled.predict({"image": X["image"][:4], "table": table})
    with pytest.warns(CalibratedRangeWarning, match="in columns 'image'"):
        compiled.predict({"image": X["image"][:4] + 9, "table": X["table"][:4]})


# --- the client's file -------------------------------------------------------------------------------------------------------------


def test_the_specification_keeps_names_and_shapes(compiled: CompiledModel) -> None:
    text = compiled.client.to_json()
    client = ClientSpecification.from_json(text)
    assert client.to_json() == text
    first = client.input_steps[0]
    assert isinstance(first, Tensors) and first.names == ("image", "table") and first.shapes == ((1, 4, 4), (3,))
    assert all(isinstance(step, Rescale) for own in first.steps for step in own)
    np.testing.assert_array_equal(client.inputs(X), compiled.client.inputs(X))


# --- strangers' files --------------------------------------------------------------------------------------------------------------


def with_inputs(*names: str, shape: tuple[int, ...] = (2,)) -> Any:
    proto = model([helper.make_node("Relu", ["x"], ["y"])], [2])
    del proto.graph.input[:]
    proto.graph.input.extend(
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", *shape]) for name in names
    )
    return proto


@pytest.mark.os_entropy  # ONNX Runtime is asked in a process of its own
def test_made_up_inputs_are_compile_errors() -> None:
    with pytest.raises(CompileError, match="input 'x' is listed twice"):
        import_onnx(with_inputs("x", "x"))
    with pytest.raises(CompileError, match="an input has no name"):
        import_onnx(with_inputs("x", ""))
    with pytest.raises(CompileError, match="has no input"):
        import_onnx(with_inputs())
    with pytest.raises(CompileError, match="at most 1024 inputs, got 3000"):
        import_onnx(with_inputs(*(f"x{i}" for i in range(3000))))
    proto = network([("Add", "a b", "y")], {"a": [1 << 24, 3], "b": [1 << 24, 3]}, ["y"])
    with pytest.raises(CompileError, match="at most"):
        import_onnx(proto)
    with pytest.raises(CompileError, match="inputs of at most"):
        import_onnx(network([("Add", "a b", "y")], {"a": [1 << 24, 1], "b": [1, 1 << 25]}, ["y"]))
    for dims in ([], [8, 2]):
        broken = with_inputs("x")
        broken.graph.input[0].type.tensor_type.ClearField("shape")
        broken.graph.input[0].type.tensor_type.shape.dim.extend(
            [helper.make_tensor_value_info("t", 1, [d]).type.tensor_type.shape.dim[0] for d in dims]
        )
        with pytest.raises(CompileError, match="batch"):
            import_onnx(broken)
    texts = with_inputs("x")
    texts.graph.input[0].type.tensor_type.elem_type = TensorProto.STRING
    with pytest.raises(CompileError, match="'x' holds STRING"):
        import_onnx(texts)
    listed = with_inputs("x")
    listed.graph.input[0].CopyFrom(helper.make_tensor_sequence_value_info("x", TensorProto.FLOAT, [1, 2]))
    with pytest.raises(CompileError, match="'x' is no tensor"):
        import_onnx(listed)
    with pytest.raises((CompileError, UnsupportedOperatorError)):
        import_onnx(network([("Add", "a b", "y")], {"a": [2, 3], "b": [5, 7]}, ["y"]))


def test_a_thousand_inputs_of_a_number_each() -> None:
    names = [f"x{i}" for i in range(1000)]
    nodes = [("Concat", " ".join(names), "c", {"axis": 1}), ("MatMul", "c w", "y")]
    proto = network(nodes, {name: [1] for name in names}, ["y"], {"w": weights(1000, 2)})
    x = {name: weights(20, 1) for name in names}
    made = cw.compile(proto, x, accuracy=0, sets=[parameter_set("lut1")])
    found = made.predict_float(x)
    np.testing.assert_allclose(found, runtime(proto, x)["y"], atol=1e-4)
    with pytest.raises(ShapeError, match="and 992 more"):
        made.predict(np.zeros((2, 1000)))


# --- one input ---------------------------------------------------------------------------------------------------------------------


def test_columns_that_a_lookup_reads_first_are_rescaled_one_by_one() -> None:
    """They share weights (of ones): each has to get a factor of its own."""
    nodes = [helper.make_node("Relu", ["x"], ["r"]), helper.make_node("MatMul", ["r", "w"], ["y"])]
    graph = restructure(import_onnx(model(nodes, [3], {"w": weights(3, 2).astype(np.float32)})))
    x = weights(200, 3) * [1, 10, 1000]
    rescaled, step = rescale_input(graph, x, InputRanges())
    assert step is not None
    np.testing.assert_allclose(interpret(rescaled, step(x)), interpret(graph, x), rtol=1e-9)
