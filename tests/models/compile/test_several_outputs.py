"""Networks of several outputs: a dict by name, each output checked by itself and with its own last steps; and two-input nets really encrypted."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper
from several_tensors import image_and_table, network, runtime, samples

import cloakwork as cw
from cloakwork.fhe_core.client import ClientKey
from cloakwork.fhe_core.parameters import parameter_set
from cloakwork.fhe_core.server import Session
from cloakwork.models.client_steps import Named
from cloakwork.models.compile.pipeline import restructure
from cloakwork.models.compiled import CompiledModel
from cloakwork.models.errors import AccuracyError, CompileError
from cloakwork.models.graph.ir import check_levelled
from cloakwork.models.onnx_import.importer import import_onnx
from cloakwork.models.passes.separate_levels import separate_levels
from cloakwork.models.program.artefact import program_from_bytes, program_to_bytes
from cloakwork.models.program.client_specification import ClientSpecification
from cloakwork.models.runtime import Runtime
from cloakwork.models.runtime.interpreter import interpret

RNG = np.random.default_rng(31)
TOY = parameter_set("toy_two_limb")
W, V, U = RNG.standard_normal((5, 6)), RNG.standard_normal((6, 3)), RNG.standard_normal((5, 1))
X = RNG.standard_normal((300, 5))
HEADS = [
    ("MatMul", "x w", "hidden"), ("Relu", "hidden", "active"), ("MatMul", "active v", "scores"), ("Softmax", "scores", "shares", {"axis": 1}),
    ("ArgMax", "scores", "label", {"axis": 1, "keepdims": 0}), ("TopK", "scores two", "best places"), ("MatMul", "x u", "line"),
    ("Sigmoid", "line", "bent"), ("Identity", "x", "copy"),
]  # fmt: skip
KINDS = {"label": TensorProto.INT64, "places": TensorProto.INT64}


def heads(*outputs: str) -> Any:
    return network(HEADS, {"x": [5]}, outputs, {"w": W, "v": V, "u": U, "two": np.array([2])}, KINDS)


ALL = ["shares", "label", "best", "places", "hidden", "active", "line", "bent", "copy", "x"]


def test_every_kind_of_output_as_onnx_runtime() -> None:
    """Last steps of the client, an inner layer before and after its function, what is linear in the input, and the input itself."""
    proto = heads(*ALL)
    wanted = runtime(proto, {"x": X})
    made = cw.compile(proto, X, precision="balanced", accuracy=0)
    found, quantised = made.predict_float(X), made.predict(X)
    assert list(found) == ALL and made.program.bootstraps == 6
    for name in ALL:
        assert found[name].shape == quantised[name].shape == wanted[name].shape
        np.testing.assert_allclose(found[name], wanted[name], atol=1e-5)
        if name in KINDS:
            assert found[name].dtype.kind == "i" and (quantised[name] == wanted[name]).mean() > 0.8
        else:
            assert 1 - np.square(quantised[name] - wanted[name]).mean() / wanted[name].var() > 0.98
    simulated = made.predict(X, how="simulate", seed=1)
    assert (simulated["label"] == wanted["label"]).mean() > 0.8


def test_numbers_that_outputs_share_are_sent_once() -> None:
    """A label, probabilities and the best of them are one set of scores."""
    proto = heads("label", "shares", "best", "places", "line")
    made = cw.compile(proto, X, accuracy=0.8)
    assert made.program.graph.output.size == 3 + 1
    wanted, found = runtime(proto, {"x": X}), made.predict(X, how="simulate", seed=1)
    for name, clear in wanted.items():
        assert found[name].shape == clear.shape
        assert (
            (found[name] == clear).mean() > 0.7
            if name in KINDS
            else np.abs(found[name] - clear).mean() < 0.3 * clear.std()
        )
    loaded = CompiledModel(program_from_bytes(program_to_bytes(made.program)))
    np.testing.assert_array_equal(loaded.predict(X)["shares"], made.predict(X)["shares"])


def test_chosen_outputs_alone_are_computed() -> None:
    one = cw.compile(heads(*ALL), X, outputs=["line"], accuracy=0)
    assert one.program.bootstraps == 0 and one.predict(X).shape == (300, 1) and not one.program.output_steps
    two = cw.compile(heads(*ALL), X, outputs=["line", "hidden"], accuracy=0)
    assert list(two.predict(X)) == ["hidden", "line"]
    for wrong, message in (
        (["lin"], "none named 'lin'"),
        ([], "at least one"),
        ("line", "a list of names"),
        ([1], "a list of names"),
    ):
        with pytest.raises(CompileError, match=message):
            cw.compile(heads(*ALL), X, outputs=wrong)  # type: ignore[arg-type]
    unsupported = network(
        [("Relu", "x", "y"), ("NonZero", "x", "z")], {"x": [5]}, ["y", "z"], kinds={"z": TensorProto.INT64}
    )
    assert cw.compile(unsupported, X, outputs=["y"]).predict(X).shape == X.shape
    with pytest.raises(CompileError, match="NonZero"):
        cw.compile(unsupported, X)


def test_rows_that_look_ups_read_are_not_the_outputs_own() -> None:
    """The client takes phases further out than a look-up does."""
    imported = import_onnx(heads("hidden", "scores"))
    graph, before = restructure(imported), separate_levels(imported)
    check_levelled(graph)
    read = {int(wire) for lookup in graph.lookups for wire in lookup.gather}
    assert not read & set(graph.output.tolist())
    assert graph.bootstraps == before.bootstraps == 6 and len(graph.linears) == len(before.linears) + 1
    np.testing.assert_allclose(interpret(graph, X), interpret(imported, X), atol=1e-12)


def test_a_hidden_layer_of_one_output_is_not_read_beyond_the_tables() -> None:
    """One output that joins a layer and what follows it: the same rule."""
    joined = network([*HEADS[:3], ("Concat", "hidden scores", "y", {"axis": 1})], {"x": [5]}, ["y"], {"w": W, "v": V})
    wanted = runtime(joined, {"x": X})["y"]
    made = cw.compile(joined, X, precision="balanced", accuracy=0)
    found = made.predict(X, how="simulate", seed=2)
    assert 1 - np.square(found - wanted).mean(axis=0).max() / wanted.var() > 0.97


# --- the check ---------------------------------------------------------------------------------------------------------------------


def test_every_output_is_judged_as_what_it_is() -> None:
    made = cw.compile(heads("shares", "hidden", "line"), X, accuracy=0.8)
    check = made.report()["check"]
    assert {name: each["measure"] for name, each in check["outputs"].items()} == {
        "shares": "agreement", "hidden": "closeness", "line": "closeness"
    }  # fmt: skip
    assert check["at_least"] == min(each["at_least"] for each in check["outputs"].values()) >= 0.8
    text = made.details
    assert "shares: decides as the clear model on" in text and "line: is off by" in text
    assert "outputs: shares [3] (the client does Softmax), hidden [6], line [1]" in text


def test_what_an_output_is_for_can_be_said_by_name() -> None:
    said = cw.compile(
        heads("scores", "hidden"), X, accuracy=0.5, task={"scores": "regression", "hidden": "classification"}
    )
    measures = {name: each["measure"] for name, each in said.report()["check"]["outputs"].items()}
    assert measures == {"scores": "closeness", "hidden": "agreement"}
    both = cw.compile(heads("scores", "hidden"), X, accuracy=0.5, task="regression")
    assert {each["measure"] for each in both.report()["check"]["outputs"].values()} == {"closeness"}
    for wrong in ({"score": "regression"}, {"scores": "ranking"}, "ranking"):
        with pytest.raises(CompileError, match="task: "):
            cw.compile(heads("scores", "hidden"), X, task=wrong)  # type: ignore[arg-type]
    with pytest.raises(CompileError, match="model of one output"):
        cw.compile(heads("scores"), X, task={"scores": "regression"})


def test_an_error_names_the_output() -> None:
    """`far` hangs on the difference of two nearly equal numbers, which noise drowns."""
    near = np.concatenate([U, U + 1e-4 * RNG.standard_normal((5, 1))], axis=1)
    nodes = [*HEADS[:3], ("MatMul", "x near", "pair"), ("Sigmoid", "pair", "bent"), ("MatMul", "bent minus", "far")]
    constants = {"w": W, "v": V, "near": near, "minus": np.array([[1.0], [-1.0]])}
    proto = network(nodes, {"x": [5]}, ["scores", "far"], constants)
    with pytest.raises(AccuracyError, match="in its output 'far' would"):
        cw.compile(proto, X, task="regression")


# --- files -------------------------------------------------------------------------------------------------------------------------


def test_names_and_last_steps_travel_in_both_files() -> None:
    made = cw.compile(heads("shares", "bent", "label"), X, accuracy=0)
    loaded = CompiledModel(program_from_bytes(program_to_bytes(made.program)))
    assert loaded.program.digest == made.program.digest and loaded.client.to_json() == made.client.to_json()
    client = ClientSpecification.from_json(made.client.to_json())
    assert isinstance(client.output_steps[-1], Named)
    for name, array in made.predict(X).items():
        np.testing.assert_array_equal(loaded.predict(X)[name], array)


def test_made_up_outputs_are_compile_errors() -> None:
    twice = heads("line", "hidden")
    twice.graph.output[1].name = "line"
    with pytest.raises(CompileError, match="output 'line' is listed twice"):
        import_onnx(twice)
    nameless = heads("line", "hidden")
    nameless.graph.output[1].name = ""
    with pytest.raises(CompileError):
        import_onnx(nameless)
    none = heads("line")
    del none.graph.output[:]
    with pytest.raises(CompileError, match="has no output"):
        import_onnx(none)
    many = heads("line")
    many.graph.output.extend(helper.make_tensor_value_info(f"y{i}", TensorProto.FLOAT, None) for i in range(3000))
    with pytest.raises(CompileError, match="at most 1024 outputs, got 3001"):
        import_onnx(many)
    constant = network([("Relu", "x", "y"), ("Relu", "w", "z")], {"x": [5]}, ["y", "z"], {"w": W})
    with pytest.raises(CompileError, match="output 'z' does not depend on the input"):
        import_onnx(constant)
    turned = network([("Transpose", "x", "y", {"perm": [1, 0]}), ("Relu", "x", "z")], {"x": [5]}, ["z", "y"])
    with pytest.raises(CompileError, match="output 'y' whose first dimension is the batch"):
        import_onnx(turned)


# --- quantisers and functions at the end ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("last", ["Sigmoid", "Softmax", "Tanh"])
@pytest.mark.parametrize("count", [1, 2])
def test_a_function_after_the_last_quantiser_is_the_clients(last: str, count: int) -> None:
    """QuantizeLinear, DequantizeLinear and then a function: no look-up for any of them, with or without data, for each of several outputs."""
    constants = {"w": 0.1 * RNG.integers(-7, 8, (5, 6)), "v": 0.1 * RNG.integers(-7, 8, (6, 3))}
    nodes, outputs = list[Any](), []
    for name, scale in (("i", 1 / 64), ("o", 0.05), ("p", 0.1)):
        constants |= {f"s{name}": np.float32(scale), f"z{name}": np.int8(0)}
    nodes += [
        ("QuantizeLinear", "x si zi", "iq"),
        ("DequantizeLinear", "iq si zi", "xd"),
        ("MatMul", "xd w", "h"),
        ("Relu", "h", "g"),
    ]
    nodes += [("MatMul", "g v", "scores")]
    for name in ("o", "p")[:count]:
        nodes += [
            ("QuantizeLinear", f"scores s{name} z{name}", f"{name}q"), ("DequantizeLinear", f"{name}q s{name} z{name}", f"{name}d"),
            (last, f"{name}d", f"y{name}"),
        ]  # fmt: skip
        outputs.append(f"y{name}")
    proto, x = network(nodes, {"x": [5]}, outputs, constants), RNG.uniform(-1.9, 1.9, (200, 5))
    wanted = runtime(proto, {"x": x})
    for calibration in (None, x):
        made = cw.compile(proto, calibration, accuracy=0)
        assert made.program.bootstraps == 6  # of the Relu
        found = made.predict(x) if count > 1 else {"yo": made.predict(x)}
        for name in outputs:
            assert np.square(found[name] - wanted[name]).mean() < 0.02 * wanted[name].var()


# --- encrypted ---------------------------------------------------------------------------------------------------------------------


def test_two_inputs_and_two_outputs_really_encrypted() -> None:
    """On a toy set: what the client decrypts is within the noise that the simulation shows, and near to ONNX Runtime."""
    proto, x = image_and_table(np.random.default_rng(2)), samples(np.random.default_rng(3), 300)
    made = cw.compile(proto, x, precision=2.0, weight_bits=4, accuracy=0, sets=[TOY])
    few = {name: array[:3] for name, array in x.items()}
    key = ClientKey.generate(TOY)
    session = Session(key.evaluation_keys())
    found = made.predict(few, how="encrypted", key=key, session=session)
    client = ClientSpecification.from_json(made.client.to_json())
    again = client.decrypt(key, Runtime(made.program, session).answer(client.encrypt(key, tuple(few.values()))))
    wanted = runtime(proto, few)
    draws = [made.predict(few, how="simulate", seed=seed) for seed in range(60)]
    for name, clear in wanted.items():
        deviation = np.std([draw[name] for draw in draws], axis=0)
        middle = np.mean([draw[name] for draw in draws], axis=0)
        for answer in (found[name], again[name]):
            assert answer.shape == clear.shape and (np.abs(answer - middle) < 7 * deviation + 0.01).all()
            assert np.abs(answer - clear).max() < 0.3 * max(1.0, np.abs(clear).max())


def test_exact_heads_encrypted_are_the_clear_integers() -> None:
    constants = {"w": np.array([[0.93, 0.031], [0.071, 1.013], [0.417, 0.459]]), "v": np.array([[1.0], [1.0]])}
    nodes = [("Concat", "a b", "c", {"axis": 1}), ("MatMul", "c w", "h"), ("Relu", "h", "g"), ("MatMul", "g v", "y")]
    proto = network(nodes, {"a": [2], "b": [1]}, ["y", "h"], constants)
    x = {"a": RNG.uniform(-1, 1, (200, 2)), "b": RNG.uniform(-2, 2, (200, 1))}
    settings = {"input_bits": 2, "activation_bits": 2}
    made = cw.compile(
        proto, x, precision="exact_64", **settings, weight_bits=2, accuracy=0, sets=[TOY]
    )  # fmt: skip
    assert made.program.output_unit > 0 and not made.report()["rounded"]
    few = {name: array[:8] for name, array in x.items()}
    clear, found = made.predict(few), made.predict(few, how="encrypted")
    for name in ("y", "h"):
        np.testing.assert_allclose(found[name], clear[name], atol=1e-9)
