"""Values just beyond a range, where a look-up reads nonsense, and far beyond it."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper
from onnx_models import mlp, model

from cloakwork.models.compile.pipeline import restructure
from cloakwork.models.graph.ir import Graph
from cloakwork.models.onnx_import.importer import import_onnx
from cloakwork.models.passes.bound_ranges import bound_ranges
from cloakwork.models.passes.widen_ranges import reach_far, widen_ranges
from cloakwork.models.runtime.interpreter import wire_values

RNG = np.random.default_rng(20261128)


def lengths(*after: str) -> Graph:
    """Lengths of four numbers, through functions."""
    names = ["length", *after]
    nodes = [helper.make_node("ReduceL2", ["x"], ["n0"], name="length", axes=[1])]
    nodes += [
        helper.make_node(name, [f"n{i}"], [f"n{i + 1}"], name=name) for i, name in enumerate(after) if name != "length"
    ]
    nodes.append(helper.make_node("MatMul", [f"n{len(names) - 1}", "w"], ["y"], name="last"))
    return bounded(model(nodes, [4], {"w": np.ones((1, 1), dtype=np.float32)}), RNG.normal(size=(300, 4)))


def bounded(proto: object, x: np.ndarray) -> Graph:
    return bound_ranges(restructure(import_onnx(proto)), x)


def read_rows(graph: Graph) -> np.ndarray:
    """Wires that the last look-ups read."""
    return np.unique(graph.lookups[-1].gather)


@pytest.mark.parametrize("after", [(), ("Log",), ("Tanh", "Softplus")])
def test_roots_and_logarithms_get_room_above(after: tuple[str, ...]) -> None:
    graph = lengths(*after)
    wider, read = widen_ranges(graph), read_rows(graph)
    assert graph.lower is not None and graph.upper is not None and wider.lower is not None and wider.upper is not None
    width = (graph.upper - graph.lower)[read]
    np.testing.assert_allclose(wider.upper[read] - graph.upper[read], width / 4)
    np.testing.assert_array_equal(wider.lower[read], graph.lower[read])


@pytest.mark.parametrize("activation", ["Relu", "Sigmoid", "Abs"])
def test_what_reads_about_the_value_of_its_end_keeps_its_range(activation: str) -> None:
    graph = bounded(mlp(RNG, [5, 8, 3], activation=activation), RNG.normal(size=(300, 5)))
    assert widen_ranges(graph) is graph


def test_rows_reach_as_far_as_inputs_unlike_the_samples_but_no_further_than_allowed() -> None:
    """Sums of two numbers that are nearly opposite in all samples."""
    first = RNG.normal(size=(300, 1))
    x = np.concatenate([first, 0.2 * RNG.normal(size=(300, 1)) - first], axis=1)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"], name="sum"),
        helper.make_node("Relu", ["h"], ["r"], name="relu"),
        helper.make_node("MatMul", ["r", "v"], ["y"], name="last"),
    ]
    graph = bounded(model(nodes, [2], {"w": np.ones((2, 1), np.float32), "v": np.ones((1, 1), np.float32)}), x)
    inputs = np.stack([np.linspace(0, 2, 9)] * 2, axis=1)
    largest = wire_values(graph, inputs).max(axis=0)
    (row,) = read_rows(graph)
    assert graph.lower is not None and graph.upper is not None
    width = graph.upper[row] - graph.lower[row]
    assert largest[row] > graph.upper[row] + width
    for most, upper in ((0.5, graph.upper[row] + 0.5 * width), (10.0, largest[row] - 0.25 * width)):
        far = reach_far(graph, inputs, most)
        assert far.lower is not None and far.upper is not None
        assert (far.lower[row], far.upper[row]) == pytest.approx((graph.lower[row], upper))
