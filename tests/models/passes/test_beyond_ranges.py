"""Values beyond the range of their row, with and without a straight part beside the look-up: never further off for it."""

from __future__ import annotations

import numpy as np
import pytest
from cases import in_tiers
from onnx import ModelProto, helper
from onnx_models import mlp, model

import cloakwork as cw
import cloakwork.models.compile.stages as stages
from cloakwork.fhe_core.parameters import parameter_set
from cloakwork.models.arrays import Reals
from cloakwork.models.compile.pipeline import restructure
from cloakwork.models.compiled import CompiledModel
from cloakwork.models.graph.ir import Graph, wires
from cloakwork.models.onnx_import.importer import import_onnx
from cloakwork.models.passes.bound_ranges import bound_ranges
from cloakwork.models.passes.carry_lines import greatest_lines, reachable
from cloakwork.models.runtime.interpreter import simulate, wire_values

_LITTLE = 0.05131  # no fraction of small numbers: weights that are integers get no room
ACTIVATIONS = ["Tanh", "Sigmoid", "Relu", "Softplus", "LeakyRelu", "Elu", "Softsign"]


def difference(activation: str, offset: float) -> ModelProto:
    """f(x0 + x1 + offset) + |x0|, a little: inputs that cancel in calibration, and add up at the corners of its box."""
    nodes = [
        helper.make_node("Gemm", ["x", "w", "b"], ["h"], name="hidden", transB=1),
        helper.make_node(activation, ["h"], ["a"], name="activation"),
        helper.make_node("Gemm", ["x", "one"], ["i"], name="other", transB=1),
        helper.make_node("Abs", ["i"], ["c"], name="absolute"),
        helper.make_node("Mul", ["c", "small"], ["d"], name="little"),
        helper.make_node("Add", ["a", "d"], ["y"], name="answer"),
    ]
    constants = {"w": [[1, 1]], "b": [offset], "one": [[1, 0]], "small": [_LITTLE]}
    return model(nodes, [2], {name: np.array(value, dtype=np.float32) for name, value in constants.items()})


def cancelling(rng: np.random.Generator, width: float) -> Reals:
    """Samples [600, 2] whose sums stay within about a third of what the corners' reach."""
    first = rng.uniform(-1, 1, 600)
    return width * np.stack([first, -0.6 * first + 0.1 * rng.uniform(-1, 1, 600)], axis=1)


def compiled(proto: ModelProto, x: Reals, monkeypatch: pytest.MonkeyPatch) -> tuple[CompiledModel, CompiledModel]:
    """Without lines, and with what carry_lines lets pass."""
    options = {"sets": [parameter_set("nn05")], "precision": 4.0, "accuracy": 0}
    made = cw.compile(proto, x, **options)
    with monkeypatch.context() as patched:
        patched.setattr(stages, "carry_lines", lambda *_: None)
        return cw.compile(proto, x, **options), made


def without_noise(made: CompiledModel, x: Reals) -> Reals:
    client = made.client
    return np.asarray(client.output(simulate(made.program, client.phases(x), noisy=False)))


@pytest.mark.parametrize("activation", in_tiers(ACTIVATIONS, quick=("Tanh", "LeakyRelu")))
def test_what_lies_beyond_is_no_further_off_for_a_line(activation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tables that the engine uses, without noise, up to the width of the range beyond it: no further from the function than the larger of what
    a table without a line has there, where its range fills it, and the value of the end."""
    carried = 0
    for case in range(16):
        rng = np.random.default_rng(case)
        x, offset = cancelling(rng, float(rng.choice([0.3, 1.0, 3.0]))), float(rng.uniform(-2, 2))
        bare, made = compiled(difference(activation, offset), x, monkeypatch)
        carried += "w x" in made.details
        low, high = _range(made)
        width = high - low
        out = np.linspace(0, 1, 200) * min(
            width, 1.9 * np.abs(x).max(axis=0).min() - np.abs([low - offset, high - offset]).max()
        )

        def f(h: Reals, made: CompiledModel = made, offset: float = offset) -> Reals:
            x = (h - offset) / 2
            return np.asarray(made.predict_float(np.stack([x, x], axis=1)))[:, 0] - np.abs(x) * _LITTLE

        tolerance = 1e-4 + 0.08 * np.ptp(
            f(np.linspace(low - width, high + width, 50))
        )  # weights of few bits, noise's guard
        for end, far, other in ((high, high + out, low + out), (low, low - out, high - out)):
            wanted, held = f(far), f(np.array([end]))
            filled = held - (f(other) - f(other[:1]))
            allowed = max(np.abs(filled - wanted).max(), np.abs(held - wanted).max())
            each = (far - offset) / 2
            for compiled_one in (bare, made):
                found = without_noise(compiled_one, np.stack([each, each], axis=1))[:, 0] - np.abs(each) * _LITTLE
                assert np.abs(found - wanted).max() <= allowed + tolerance, (case, end)
    assert carried > 4


def _range(made: CompiledModel) -> tuple[float, float]:
    """Of the activation's argument."""
    graph = made.program.graph
    assert graph.lower is not None and graph.upper is not None
    (node,) = (node for node in graph.lookups if node.origin == "activation")
    return float(graph.lower[node.gather].item()), float(graph.upper[node.gather].item())


def test_flat_ends_keep_their_value() -> None:
    """A tanh that is calibrated over its flat ends has no line, one that hardly bends has."""
    for width, expected in ((0.3, True), (6.0, False)):
        rng = np.random.default_rng(3)
        made = cw.compile(difference("Tanh", 0.0), cancelling(rng, width), sets=["nn05"], precision=4.0, accuracy=0)
        assert ("w x" in made.details) == expected


def test_what_inputs_can_reach() -> None:
    rng = np.random.default_rng(4)
    graph = _bounded(mlp(rng, [5, 8, 6, 2], activation="Sigmoid"), x := rng.standard_normal((200, 5)))
    low, high = reachable(graph)
    from_corners = wire_values(graph, np.where(rng.random((400, 5)) < 0.5, x.min(), x.max()))
    assert (from_corners[:, :-1] >= low - 1e-9).all() and (from_corners[:, :-1] <= high + 1e-9).all()
    first = graph.linears[0]
    assert graph.lower is not None and (low[wires(first)] < graph.lower[wires(first)]).all()


def test_a_function_that_is_not_finite_beyond_its_range_has_no_line() -> None:
    rng = np.random.default_rng(5)
    nodes = [
        helper.make_node("Gemm", ["x", "w", "b"], ["h"], name="hidden", transB=1),
        helper.make_node("Log", ["h"], ["a"], name="logarithm"),
    ]
    constants = {"w": np.ones((1, 2)), "b": np.array([1.3])}
    proto = model(nodes, [2], {name: value.astype(np.float32) for name, value in constants.items()}, output="a")
    graph = _bounded(proto, cancelling(rng, 1.0))
    (node,) = graph.lookups
    with np.errstate(all="raise"):
        assert greatest_lines(graph, node, np.full(len(node.gather), 0.7), reachable(graph)).tolist() == [0.0]


def _bounded(proto: ModelProto, x: Reals) -> Graph:
    return bound_ranges(restructure(import_onnx(proto)), x)
