"""Subgraphs that are functions of one wire become one look-up each, found in the graph: against ONNX Runtime, with their look-ups counted."""

from __future__ import annotations

import copy
import json
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, NodeProto, helper
from onnx_models import model, runtime

import cloakwork as cw
from cloakwork.fhe_core.errors import SerializationError
from cloakwork.fhe_core.parameters import parameter_set
from cloakwork.models.client_steps import run_output_steps
from cloakwork.models.compile.pipeline import restructure
from cloakwork.models.errors import CalibratedRangeWarning
from cloakwork.models.graph.equal_sources import find_sources
from cloakwork.models.graph.ir import Graph, Lookup
from cloakwork.models.graph.steps import Step, apply_steps, broken_rule, formula
from cloakwork.models.onnx_import.importer import import_onnx
from cloakwork.models.passes.quantise_ends import leave_functions
from cloakwork.models.program.artefact import program_from_bytes, program_to_bytes
from cloakwork.models.runtime.interpreter import interpret
from tests.models.onnx_import.test_torch_exporters import EXPORTERS, exported
from tests.models.program.test_artefact import resealed

RNG = np.random.default_rng(11)
ROOT = np.float32(np.sqrt(2 / np.pi))
CONSTANTS = {
    "half": 0.5,
    "one": 1.0,
    "three": 3.0,
    "six": 6.0,
    "zero": 0.0,
    "slope": 0.7,
    "cube": 0.044715,
    "root": ROOT,
    "two_root": np.sqrt(2),
}


def written(text: str, shape: tuple[int, ...] = (6,), opset: int = 17, **constants: Any) -> ModelProto:
    """One node for each `result = Operator operand ..`; the last result is the output."""
    lines = [line.split() for line in text.split(";")]
    nodes: list[NodeProto] = []
    for i, (result, _, operator, *operands) in enumerate(lines):
        attributes = {"axis": 1} if operator in ("Concat", "Split") else {}
        results = ["y"] if i == len(lines) - 1 else result.split(",")
        nodes.append(helper.make_node(operator, operands, results, name=f"node{i}", **attributes))
    used = {name for line in lines for name in line[3:]}
    fixed = {name: np.float32(value) for name, value in CONSTANTS.items() if name in used}
    return model(nodes, shape, {**fixed, **constants}, opset=opset)


PER_CHANNEL = np.array([[1.0], [1.5], [2.0]], dtype=np.float32)
W = RNG.standard_normal((12, 5)).astype(np.float32)
# name -> model and look-ups; six numbers unless said otherwise
ONE_WIRE: dict[str, tuple[ModelProto, int]] = {
    "SiLU": (written("s = Sigmoid x; y = Mul x s"), 6),
    "SiLU of parts": (written("n = Neg x; e = Exp n; d = Add one e; y = Div x d"), 6),
    "Mish": (written("s = Softplus x; t = Tanh s; y = Mul t x"), 6),
    "Mish of parts": (written("e = Exp x; p = Add e one; l = Log p; t = Tanh l; y = Mul x t"), 6),
    "HardSwish": (written("a = Add x three; c = Clip a zero six; m = Mul x c; y = Div m six"), 6),
    "HardSwish of HardSigmoid": (written("c = HardSigmoid x; y = Mul x c"), 6),
    "GELU": (written("d = Div x two_root; e = Erf d; a = Add e one; m = Mul x a; y = Mul m half"), 6),
    "GELU tanh, Pow": (
        written("p = Pow x three; q = Mul p cube; a = Add x q; b = Mul a root; t = Tanh b; u = Add t one; h = Mul x half; y = Mul h u"), 6),
    "GELU tanh, products": (
        written("p = Mul x x; r = Mul p x; q = Mul r cube; a = Add x q; b = Mul a root; t = Tanh b; u = Add t one; h = Mul x half; y = Mul h u"), 6),
    "Softsign": (written("a = Abs x; b = Add a one; y = Div x b"), 6),
    "Softplus": (written("e = Exp x; a = Add e one; y = Log a"), 6),
    "square": (written("y = Mul x x"), 6),
    "polynomial": (written("b = Mul x x; c = Mul b x; d = Mul c slope; e = Sub d b; f = Add e x; y = Add f three"), 6),
    "Horner": (written("a = Mul x slope; b = Add a half; c = Mul b x; d = Add c one; e = Mul d x; y = Add e three"), 6),
    "Swish per channel": (written("b = Mul x beta; s = Sigmoid b; y = Mul x s", (3, 2), beta=PER_CHANNEL), 6),
    "shared subexpression": (written("e = Exp x; n = Mul e e; a = Add n e; d = Add a one; y = Div n d"), 6),
    "chain of SiLUs": (written("s = Sigmoid x; a = Mul x s; t = Sigmoid a; b = Mul a t; u = Tanh b; y = Mul b u"), 6),
    "ELU by Where": (written("g = Greater x zero; e = Exp x; f = Sub e one; h = Mul f slope; y = Where g x h"), 6),
    "Where that overflows": (written("t = Mul x six; q = Mul t t; e = Exp q; g = Less x zero; y = Where g x x"), 0),
    "Max": (written("s = Sigmoid x; t = Tanh x; y = Max s t"), 6),
    "Min": (written("s = Sigmoid x; y = Min x s"), 6),
    "Max of equals": (written("s = Mul x slope; y = Max s s"), 0),
    "sum": (written("s = Sigmoid x; t = Tanh x; y = Add s t"), 6),
    "sum with x": (written("s = Sigmoid x; t = Tanh x; u = Sub s t; y = Add u x"), 6),
    "linear": (written("a = Add x x; b = Sub a slope; c = Mul b six; y = Sub c x"), 0),
    "cancels": (written("s = Sigmoid x; d = Sub s s; t = Tanh d; y = Add t x"), 0),
    # Two sums of two parts each cost two either way, three of two only the parts.
    "two sums": (written("s = Sigmoid x; t = Tanh x; a = Add s t; b = Sub s t; c = Concat a b; y = MatMul c w", w=W), 12),
    "three sums": (written("s = Sigmoid x; t = Tanh x; a = Add s t; b = Sub s t; g = Mul t three; h = Add s g; c = Concat a b h; y = MatMul c w",
                           w=np.concatenate([W, W[:6]])), 12),
    "parts needed elsewhere": (written("s = Sigmoid x; a = Add s x; c = Concat a s; y = MatMul c w", w=W), 6),
    # The first half is a product with itself, the second with another wire: 3 + (2 * 3 + 3).
    "mixed": (written("a,b = Split x; s = Sigmoid a; c = Concat s s; y = Mul x c"), 12),
    "constants among operands": (written("k = Concat x c; s = Sigmoid k; y = Mul k s", c=np.float32([[0.5, -2.0]])), 6),
    "one feature": (written("a = MatMul x w; r = Relu a; b = MatMul r v; t = Tanh b; y = MatMul t u", (1,), w=W[:1], v=W[:5, :4], u=W[:4, :3]), 3),
    "quotient of two": (written("a,b = Split x; e = Exp b; y = Div a e"), 9),
}  # fmt: skip


def forms(proto: ModelProto) -> tuple[Graph, Graph]:
    imported = import_onnx(proto)
    return imported, restructure(imported)


@pytest.mark.parametrize("name", ONE_WIRE)
def test_equal_onnx_runtime_at_the_stated_cost(name: str) -> None:
    proto, lookups = ONE_WIRE[name]
    shape = [d.dim_value for d in proto.graph.input[0].type.tensor_type.shape.dim[1:]]
    x = 2 * RNG.standard_normal((9, *shape))
    expected = runtime(proto, x)
    imported, levelled = forms(proto)
    assert levelled.bootstraps == lookups
    for graph in (imported, levelled):
        np.testing.assert_allclose(interpret(graph, x), expected, rtol=1e-5, atol=1e-5)


def test_one_function_for_each_distinct_parameter() -> None:
    _, levelled = forms(ONE_WIRE["Swish per channel"][0])
    (lookup,) = levelled.lookups
    np.testing.assert_array_equal(lookup.function, [0, 0, 1, 1, 2, 2])
    assert formula(lookup.steps) == "(x * Sigmoid(Affine(x)))"


def test_a_linear_layer_before_stays_linear() -> None:
    """One feature into eight SiLUs and a second layer of several sources: look-ups read rows of the layer, not the input."""
    proto = written(
        "a = MatMul x w; s = Sigmoid a; m = Mul a s; c = Concat m x; y = MatMul c v", (2,), w=W[:2], v=W[:7]
    )
    _, levelled = forms(proto)
    assert levelled.bootstraps == 5
    assert next(node.origin for node in levelled.linears) == "node0"


def test_what_programs_look_like_and_which_are_refused() -> None:
    x, function = np.linspace(-2, 2, 5), np.zeros(5, dtype=np.int64)
    softsign = (Step("Abs"), Step("Affine", (np.ones(1), np.ones(1))), Step("Div", (), (3, 1)))
    assert formula(softsign) == "(x / Affine(Abs(x)))"
    np.testing.assert_allclose(apply_steps(softsign, x, function), x / (1 + np.abs(x)))
    twice = apply_steps(softsign, apply_steps(softsign, x, function), function)
    np.testing.assert_array_equal(apply_steps(softsign * 2, x, function), twice)
    rows = np.tile(np.linspace(-2, 2, 1 << 12)[:, None], (1, 3000))  # in several parts
    last = apply_steps(softsign, rows, np.zeros(3000, dtype=np.int64))[:, 2999]
    np.testing.assert_array_equal(last, rows[:, 0] / (1 + np.abs(rows[:, 0])))
    assert broken_rule(softsign) is None
    for wrong in (
        (Step("Relu", (), (2,)),), (Step("Mul", (), (1,)),), (Step("Relu", (), (1, 1)),),
        (Step("Sum", (np.ones(1),), (1, 1)),), (Step("Max", (np.ones(1),), (1, 1)),),
    ):  # fmt: skip
        assert broken_rule(wrong) is not None
    many = (*[Step("Relu", (), (i + 1,)) for i in range(600)], *[Step("Mul", (), (1, 2 * i + 2)) for i in range(600)])
    assert "keeps at most" in str(broken_rule(many))


def test_equal_programs_are_one_lookup_and_others_are_not() -> None:
    text = "s = Sigmoid x; a = Mul x s; t = Sigmoid x; b = {}; c = Concat a b; y = MatMul c w"
    for other, lookups in (("Mul x t", 6), ("Mul t x", 6), ("Div x t", 12)):
        assert forms(written(text.format(other), w=W))[1].bootstraps == lookups
    a, b = (
        Lookup(1, np.zeros(1, np.int64), (Step("Abs"), Step("Max", (), reads)), np.zeros(1, np.int64), "")
        for reads in ((1, 2), (2, 2))
    )
    graph = forms(written("y = Relu x", (1,)))[1]
    linear = graph.linears[0]
    two = Graph(
        (
            graph.input,
            linear,
            Lookup(7, np.array([linear.first_wire]), a.steps, a.function, ""),
            Lookup(8, np.array([linear.first_wire]), b.steps, b.function, ""),
        ),
        np.array([7, 8]),
    )
    assert find_sources(two).wire[8] == 8


def silu_net() -> ModelProto:
    w, v = RNG.standard_normal((4, 6)).astype(np.float32), RNG.standard_normal((6, 2)).astype(np.float32)
    return written("a = MatMul x w; s = Sigmoid a; m = Mul a s; y = MatMul m v", (4,), w=w, v=v)


def test_file_simulation_and_encryption() -> None:
    proto, x = silu_net(), RNG.uniform(-1, 1, (100, 4))
    made = cw.compile(proto, x, precision=4.0, weight_bits=3, accuracy=0, sets=[parameter_set("toy_two_limb")])
    assert made.report()["bootstraps"] == 6 and "6 look-ups of ((x * Sigmoid(x)) + w x)" in made.details
    data = program_to_bytes(made.program)
    loaded = program_from_bytes(data)
    assert program_to_bytes(loaded) == data
    expected = runtime(proto, x)
    simulated = made.predict(x, how="simulate", seed=1)
    assert np.corrcoef(simulated.reshape(-1), expected.reshape(-1))[0, 1] > 0.95
    assert np.abs(made.predict(x[:2], how="encrypted") - expected[:2]).max() <= 5 * np.abs(simulated - expected).std()


def test_made_up_programs_in_files_are_refused() -> None:
    made = cw.compile(silu_net(), RNG.uniform(-1, 1, (50, 4)), accuracy=0)
    data = program_to_bytes(made.program)
    length = int.from_bytes(data[8:16], "little")
    header = json.loads(data[16 : 16 + length])
    (node,) = (node for node in header["nodes"] if node["kind"] == "Lookup")
    assert [step.get("reads") for step in node["steps"]] == [None, [2, 1], [1, 3], None]  # less a line, and centred
    for reads in ([3, 1], [0, 1], [1], [1, 1, 1], [-1, 1], ["1", 1], 1, [1.5, 1], None, [1] * 600):
        changed = copy.deepcopy(header)
        (other,) = (node for node in changed["nodes"] if node["kind"] == "Lookup")
        other["steps"][1]["reads"] = reads
        text = json.dumps(changed, sort_keys=True, separators=(",", ":")).encode()
        body = data[:8] + len(text).to_bytes(8, "little") + text + data[16 + length : -32]
        with pytest.raises(SerializationError):
            program_from_bytes(resealed(body))


def quantiser(name: str, source: str, scale: str) -> list[NodeProto]:
    return [
        helper.make_node("QuantizeLinear", [source, scale, "zero_point"], [f"{name}_q"]),
        helper.make_node("DequantizeLinear", [f"{name}_q", scale, "zero_point"], [name]),
    ]


@pytest.mark.parametrize("profile", ["fast", "exact"])
def test_quantisers_in_between_are_part_of_the_function(profile: str) -> None:
    """QDQ SiLU after a layer: one look-up for each number, whose values are the quantised model's. Exactly, inputs are those of the samples: of all
    256 no set finds that many steps which are not alike."""
    constants = {"w": np.float32([[1, 0], [1, 1], [0, -1]]), "v": np.float32([[1], [-1]]), "zero_point": np.int8(0),
                 "wide": np.float32(0.5), "unit": np.float32(0.25)}  # fmt: skip
    nodes = [
        *quantiser("xd", "x", "wide"),
        helper.make_node("MatMul", ["xd", "w"], ["a"], name="first"),
        *quantiser("ad", "a", "wide"),
        helper.make_node("Sigmoid", ["ad"], ["s"]),
        *quantiser("sd", "s", "unit"),
        helper.make_node("Mul", ["ad", "sd"], ["m"]),
        *quantiser("md", "m", "wide"),
        helper.make_node("MatMul", ["md", "v"], ["y"], name="second"),
    ]
    proto = model(nodes, [3], constants)
    x = RNG.uniform(-1.2, 1.2, (60, 3))
    settings = {"input_bits": 3, "activation_bits": 4}
    with pytest.warns(CalibratedRangeWarning, match="-1 to 1, count as") if profile == "exact" else nullcontext():
        made = cw.compile(proto, x, precision=profile, weight_bits=2, accuracy=0, **settings)
    assert made.report()["bootstraps"] == 2
    expected = runtime(proto, x)
    np.testing.assert_allclose(made.predict_float(x), expected, atol=1e-5)
    if profile == "exact":
        np.testing.assert_allclose(made.predict(x), expected, atol=1e-5)
        with pytest.warns(CalibratedRangeWarning, match="20 samples"):
            found = made.predict(3 * x[:20] + 5)
        np.testing.assert_allclose(found, runtime(proto, np.ones((20, 3))), atol=1e-5)


def random_network(rng: np.random.Generator) -> ModelProto:
    """Functions, products, sums, choices, layers and permutations of whatever came before."""
    lines, constants, names = [], {}, ["x"]
    for i in range(int(rng.integers(4, 16))):
        a, b, c = (names[max(0, len(names) - int(rng.geometric(0.4)))] for _ in range(3))
        made = f"t{i}"
        constants[f"w{i}"] = (0.5 * np.eye(6) + 0.5 * (rng.random((6, 6)) < 0.1)).astype(np.float32)
        constants[f"c{i}"] = rng.standard_normal((1, 6) if i % 2 else ()).astype(np.float32)
        constants[f"p{i}"] = rng.permutation(6)
        forms = [
            f"{made} = Tanh {a}", f"{made} = Relu {a}", f"{made} = Mul {a} {b}", f"{made} = Sub {a} {b}", f"{made} = Add {a} c{i}",
            f"{made} = Mul {a} c{i}", f"{made} = Max {a} {b}", f"{made} = MatMul {a} w{i}", f"g{i} = Greater {a} half; {made} = Where g{i} {b} {c}",
            f"{made} = GatherElements {a} p{i}", f"a{i} = Abs {b}; s{i} = Add a{i} one; {made} = Div {a} s{i}",
        ]  # fmt: skip
        lines.append(forms[int(rng.integers(len(forms)))])
        constants[f"p{i}"] = constants[f"p{i}"][None]
        names.append(made)
    text = "; ".join([*lines, f"y = Identity {names[-1]}"])
    proto = written(text, **{name: value for name, value in constants.items() if f" {name}" in text})
    for node in proto.graph.node:
        if node.op_type == "GatherElements":
            node.attribute.append(helper.make_attribute("axis", 1))
    return proto


def test_random_networks_keep_their_values() -> None:
    for seed in range(20):
        rng = np.random.default_rng(seed)
        imported = import_onnx(random_network(rng))
        x = rng.standard_normal((4, 6))
        expected = interpret(imported, x)
        left = leave_functions(imported)
        for graph in (restructure(imported), restructure(left)):
            values = run_output_steps(graph.client_steps, interpret(graph, x))
            np.testing.assert_allclose(
                values, expected, rtol=1e-7, atol=1e-7 * np.abs(expected).max(), err_msg=str(seed)
            )


torch = pytest.importorskip("torch", reason="PyTorch is not installed")
MODULES = {
    "SiLU": torch.nn.SiLU, "Mish": torch.nn.Mish, "GELU": torch.nn.GELU, "GELU tanh": lambda: torch.nn.GELU(approximate="tanh"),
    "Hardswish": torch.nn.Hardswish, "Softsign": torch.nn.Softsign, "Softplus": lambda: torch.nn.Softplus(beta=2.0, threshold=15.0),
    "Tanhshrink": torch.nn.Tanhshrink, "Hardshrink": torch.nn.Hardshrink, "Softshrink": torch.nn.Softshrink, "LogSigmoid": torch.nn.LogSigmoid,
}  # fmt: skip


@pytest.mark.parametrize("exporter", EXPORTERS)
def test_activations_as_both_exporters_write_them(exporter: str) -> None:
    """One network with every activation behind its own layer: five look-ups for each."""

    class Network(torch.nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.layers = torch.nn.Sequential(
                *(torch.nn.Sequential(torch.nn.Linear(5, 5), kind()) for kind in MODULES.values())
            )
            self.head = torch.nn.Linear(5, 2)

        def forward(self, x: Any) -> Any:
            for layer in self.layers:
                x = x + layer(2 * x)
            return self.head(x)

    torch.manual_seed(3)
    made = Network().eval()
    proto = exported(made, (5,), exporter)
    x = RNG.uniform(-2, 2, (20, 5))
    with torch.no_grad():
        expected = made(torch.tensor(x, dtype=torch.float32)).numpy()
    imported, levelled = forms(proto)
    for graph in (imported, levelled):
        np.testing.assert_allclose(interpret(graph, x), expected, rtol=1e-4, atol=1e-4)
    refreshed = sum(lookup.bootstraps for lookup in levelled.lookups if not lookup.steps)
    assert levelled.bootstraps - refreshed == 5 * len(MODULES)
