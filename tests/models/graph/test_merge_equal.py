"""Equal look-ups are found whatever their sign, rotation, order and place, and done once; nothing else is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper
from onnx_models import model, runtime

import cloakwork as cw
from cloakwork.models.compile.pipeline import restructure
from cloakwork.models.compiled import CompiledModel
from cloakwork.models.graph.equal_sources import find_sources
from cloakwork.models.graph.graph_builder import GraphBuilder, Row, WireEncoding
from cloakwork.models.graph.ir import Graph, Input, Linear, Lookup, check_levelled, wires
from cloakwork.models.graph.merge_equal import merge_equal
from cloakwork.models.graph.steps import Step
from cloakwork.models.onnx_import.importer import import_onnx
from cloakwork.models.passes.separate_levels import separate_levels
from cloakwork.models.program import Program
from cloakwork.models.program.answers import weight_norms
from cloakwork.models.runtime.interpreter import interpret

SLOTS = 8


def random_graph(seed: int, copies: int) -> tuple[Graph, int]:
    """Integer look-ups on sums of bits, some of them the same as others: turned, mirrored, negated, in another order. And how many differ."""
    rng = np.random.default_rng(seed)
    builder = GraphBuilder()
    bits = builder.input(6, WireEncoding(1 / (2 * SLOTS), 0.0, 1.0), "bits")
    rows: list[Row] = []
    tables = []
    for _ in range(4):
        chosen = rng.choice(bits, 3, replace=False)
        weights = rng.choice([-2, -1, 1, 2], 3)
        half = rng.integers(-4, 5, SLOTS) + 0.25 * rng.integers(1, 4)
        rows.append(Row(dict(zip(chosen.tolist(), weights.tolist(), strict=True)), float(rng.integers(0, SLOTS))))
        tables.append(np.concatenate([half, -half]))
    places = np.arange(2 * SLOTS)
    for _ in range(copies):
        row, table = rows[of := int(rng.integers(4))], tables[of]
        turn, shift, sign = int(rng.choice([-1, 1])), int(rng.integers(2 * SLOTS)), int(rng.choice([-1, 1]))
        weights = {wire: turn * weight for wire, weight in reversed(row.weights.items())}
        rows.append(Row(weights, float((turn * row.constant + shift) % (2 * SLOTS))))
        tables.append(sign * table[(turn * (places - shift)) % (2 * SLOTS)])
    circle = WireEncoding(1 / (2 * SLOTS), 0.0, 2.0 * SLOTS - 1, (SLOTS - 1) / 2)
    indices = builder.linear(rows, circle, "indices")
    out = builder.lookup(indices, np.array(tables), WireEncoding(1 / 32, -8.0, 8.0), "tables")
    sums = [Row({int(wire): int(rng.integers(1, 3)) for wire in part}, 0.0) for part in np.array_split(out, 2)]
    return builder.graph(builder.linear(sums, WireEncoding(1 / 32, -100.0, 100.0), "sums")), 4


def torus(values: np.ndarray) -> np.ndarray:
    turned: np.ndarray = values - 32 * np.rint(values / 32)
    return turned


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), copies=st.integers(0, 12))
def test_turned_mirrored_and_negated_lookups_are_one(seed: int, copies: int) -> None:
    graph, different = random_graph(seed, copies)
    merged = check_levelled(merge_equal(graph))
    assert merged.bootstraps <= different
    x = np.random.default_rng(seed).integers(0, 2, (32, 6)).astype(float)
    np.testing.assert_allclose(torus(interpret(graph, x) - interpret(merged, x)), 0, atol=1e-9)
    assert merge_equal(merged) is merged


def test_a_graph_without_equal_lookups_stays_the_same_object() -> None:
    graph, _ = random_graph(3, 0)
    assert merge_equal(graph) is graph


@pytest.mark.parametrize("difference", ["table", "weight", "constant"])
def test_nearly_equal_is_not_equal(difference: str) -> None:
    builder = GraphBuilder()
    builder.input(2, WireEncoding(1 / 16, 0.0, 1.0), "bits")
    first = Row({0: 1, 1: 2}, 0.0)
    second = Row({0: 1, 1: 3 if difference == "weight" else 2}, 1.0 if difference == "constant" else 0.0)
    table = np.array([0, 1, 2, 3, 4, 5, 6, 7.5])
    other = table + (0.001 if difference == "table" else 0.0)
    tables = np.array([np.concatenate([t, -t]) for t in (table, other)])
    indices = builder.linear([first, second], WireEncoding(1 / 16, 0.0, 15.0, 3.5), "indices")
    out = builder.lookup(indices, tables, WireEncoding(1 / 32, -8.0, 8.0), "tables")
    graph = builder.graph(builder.linear([Row({int(w): 1 for w in out}, 0.0)], WireEncoding(1 / 32, -20, 20), "sum"))
    assert merge_equal(graph) is graph
    assert merge_equal(graph).bootstraps == 2


def planted(rng: np.random.Generator, equal: int, hidden: int, inputs: int) -> tuple[Any, np.ndarray]:
    """gemm - relu - gemm whose first `equal` hidden neurons are the same, with different weights behind them."""
    w = rng.standard_normal((hidden, inputs)).astype(np.float32)
    b = rng.standard_normal(hidden).astype(np.float32)
    w[:equal], b[:equal] = w[0], b[0]
    constants = {"w": w, "b": b, "v": rng.standard_normal((3, hidden)).astype(np.float32)}
    nodes = [
        helper.make_node("Gemm", ["x", "w", "b"], ["h"], transB=1, name="first"),
        helper.make_node("Relu", ["h"], ["a"], name="relu"),
        helper.make_node("Gemm", ["a", "v"], ["y"], transB=1, name="second"),
    ]
    return model(nodes, [inputs], constants), rng.uniform(-1, 1, (200, inputs)).astype(np.float32)


def test_equal_neurons_cost_one_bootstrap_and_the_network_stays_what_it_was() -> None:
    proto, x = planted(np.random.default_rng(5), 40, 48, 6)
    made = cw.compile(proto, x, precision="balanced", accuracy=0.9)
    assert made.program.bootstraps == 9
    np.testing.assert_allclose(made.predict_float(x), runtime(proto, x), atol=1e-5)
    error = np.abs(made.predict(x) - runtime(proto, x)).max() / np.ptp(runtime(proto, x))
    assert error < 0.05


def test_neurons_that_rounding_makes_equal_are_found_after_quantisation() -> None:
    """Weights near -1, 0 and 1 on two inputs: 60 rows that differ before rounding, at most eight different look-ups after it."""
    rng = np.random.default_rng(6)
    proto, x = planted(rng, 1, 60, 2)
    near = (rng.integers(-1, 2, (60, 2)) * (1 + 1e-4 * rng.standard_normal((60, 1)))).astype(np.float32)
    arrays = {"w": near, "b": np.zeros(60, np.float32), "v": rng.standard_normal((1, 60)).astype(np.float32)}
    proto = model(list(proto.graph.node), [2], arrays)
    x = np.rint(x * 3).astype(np.float32)
    exact = {"input_bits": 2, "activation_bits": 2}
    made = cw.compile(proto, x, precision="exact_64", weight_bits=2, **exact, accuracy=0)
    graph = made.program.graph
    assert made.program.bootstraps <= 9
    sources = find_sources(graph)
    assert bool((sources.wire == np.arange(graph.wire_count)).all())
    assert len(np.unique(near, axis=0)) > 30


def test_equal_channels_of_a_padded_convolution_are_one() -> None:
    """Merged columns meet the zero wire at the border and other wires inside."""
    rng = np.random.default_rng(7)
    w = rng.standard_normal((4, 1, 3, 3)).astype(np.float32)
    w[3] = w[1]
    constants = {"w": w, "v": rng.standard_normal((2, 4, 3, 3)).astype(np.float32)}
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], name="first", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["a"], name="relu"),
        helper.make_node("Conv", ["a", "v"], ["y"], name="second", pads=[1, 1, 1, 1]),
    ]
    proto = model(nodes, [1, 5, 5], constants)
    x = rng.uniform(0, 1, (50, 1, 5, 5)).astype(np.float32)
    made = cw.compile(proto, x, precision="balanced", accuracy=0.9)
    assert made.program.bootstraps == 3 * 25
    clear = runtime(proto, x)
    assert np.abs(made.predict(x) - clear).max() < 0.1 * np.ptp(clear)


def test_a_wire_that_a_row_reads_twice_counts_with_the_sum_of_its_weights() -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["a"], name="relu"),
        helper.make_node("Add", ["a", "a"], ["t"], name="twice"),
        helper.make_node("Add", ["t", "a"], ["z"], name="thrice"),
        helper.make_node("ReduceSum", ["z", "axes"], ["y"], name="total"),  # alone the function would be the client's
    ]
    x = np.linspace(-1, 1, 40, dtype=np.float32)[:, None] * np.ones((1, 2), np.float32)
    made = cw.compile(model(nodes, [2], {"axes": np.array([1])}), x, precision="balanced")
    last = weight_norms(made.program.graph)[-1]
    weights = made.program.graph.linears[-1].weights
    assert last.on_lookups == pytest.approx(float(np.linalg.norm(weights)))
    assert made.program.graph.linears[-1].gather.shape[1] == 2


def test_programs_of_older_versions_are_counted_over_distinct_sources() -> None:
    """As a file that was written without the pass: the report and the simulation see through it."""
    graph, _ = random_graph(11, 8)
    program = Program(graph, cw.compile(*planted(np.random.default_rng(1), 1, 4, 3)).program.parameters, 1.0)
    assert program.distinct.bootstraps < program.bootstraps
    norms, apart = weight_norms(program.distinct.graph)[-1], weight_norms(graph)[-1]
    assert norms.on_lookups != apart.on_lookups  # signs cancel some, others add up
    report = CompiledModel(program).report()
    assert report["bootstraps"] == program.bootstraps
    assert report["layers"][-1]["norm_on_lookups"] == norms.on_lookups


@pytest.mark.tier("all")
def test_weights_of_one_size_on_many_wires_are_told_apart() -> None:
    """A max-pool in three dimensions: 90,000 differences of two wires each, all weights 1 or -1, of which many are computed more than once."""
    nodes = [helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[2, 2, 2])]
    proto = model(nodes, [3, 16, 16, 16], {})
    x = np.random.default_rng(9).standard_normal((1, 3, 16, 16, 16)).astype(np.float32)
    made = restructure(import_onnx(proto))
    np.testing.assert_allclose(interpret(made, x), runtime(proto, x), atol=1e-5)
    assert made.bootstraps < separate_levels(import_onnx(proto)).bootstraps


def test_constants_and_zero_wires_survive() -> None:
    """Dead neurons (no weights left) are look-ups of a constant: equal ones are one, different ones are not."""
    zeros = np.zeros((1, 3, 1), dtype=np.int64)
    graph = Graph(
        (
            Input(0, (1,), "x"),
            Linear(1, np.zeros((1, 1), np.int64), np.zeros(1, np.int64), zeros, np.array([[0.1, 0.1, -0.2]]), "dead"),
            Lookup(4, np.arange(1, 4), (Step("Relu"),), np.zeros(3, np.int64), "relu"),
            Linear(
                7,
                np.arange(4, 7)[None],
                np.zeros(1, np.int64),
                np.array([[[3, 4, 5]]]),
                np.zeros((1, 1)),
                "sum",
            ),
        ),
        np.array([7]),
        lower=np.full(8, -1.0),
        upper=np.full(8, 1.0),
        scale=np.full(8, 0.125),
        offset=np.zeros(8),
    )
    merged = merge_equal(graph)
    assert merged.bootstraps == 2
    x = np.zeros((1, 1))
    np.testing.assert_allclose(interpret(merged, x), interpret(graph, x))
    assert find_sources(graph).still[wires(graph.nodes[1])].all()
