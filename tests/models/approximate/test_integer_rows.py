"""Weights that are integers times a step per row are recognised, and kept where the noise allows."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper
from onnx_models import model

import cloakwork as cw
from cloakwork.models.approximate.integer_rows import RowNoise, integer_scales, row_steps
from cloakwork.models.graph.ir import wires
from cloakwork.models.runtime.interpreter import interpret

RNG = np.random.default_rng(2)


@pytest.mark.parametrize("largest", [1, 3, 7, 127])
def test_steps_of_float32_weights_are_found(largest: int) -> None:
    integers = RNG.integers(-largest, largest + 1, (2, 5, 40))
    integers[:, :, 0], integers[:, :, 1] = largest, 1
    steps = RNG.uniform(0.001, 0.2, (2, 5))
    weights = (integers * steps[:, :, None]).astype(np.float32).astype(np.float64)
    np.testing.assert_allclose(row_steps(weights), steps, rtol=1e-5)


def test_real_weights_have_no_step_and_zeros_have_any() -> None:
    weights = RNG.standard_normal((1, 3, 40))
    weights[0, 1] = 0
    assert row_steps(weights).tolist() == [[0.0, 1.0, 0.0]]


def test_scales_keep_integers_fill_ranges_and_respect_the_noise() -> None:
    integers = RNG.integers(-3, 4, (1, 6, 20)).astype(np.float64)
    integers[0, :, 0] = 3
    steps, half = RNG.uniform(0.1, 0.3, (1, 6)), 0.2 / RNG.uniform(1, 1.4, (1, 6))
    norms = np.sqrt((integers**2).sum(axis=2))
    weights, widest = integers * steps[:, :, None], 0.2 / half
    quiet = integer_scales(weights, half, 0.2, 10.0, RowNoise(1e-9, 1e-4, 1e-3))  # what counts comes behind the rows
    assert quiet is not None
    factors = quiet.rows * steps / quiet.source
    np.testing.assert_allclose(factors, np.rint(factors), atol=1e-9)
    assert (quiet.rows <= widest * (1 + 1e-9)).all() and (
        quiet.rows >= 0.8 * widest
    ).all()  # 0.83 is the least of 200 draws
    loud = integer_scales(weights, half, 0.2, 10.0, RowNoise(1e-6, 1e-12, 1.0))  # what counts is on the wires
    assert loud is not None and loud.source > quiet.source
    room = 1e-6 * float(norms.max()) ** 2
    tight = integer_scales(weights, half, 0.2, 10.0, RowNoise(1e-6, 1e-4, room * (1 + 1e-9)))
    assert tight is not None
    assert (tight.rows * steps / tight.source * norms <= norms.max() * (1 + 1e-9)).all()
    assert integer_scales(weights, half, 0.2, 10.0, RowNoise(1e-6, 1e-4, 0.8 * room)) is None


def test_low_bit_network_is_compiled_without_rounding_to_a_set_for_small_weights() -> None:
    """Ternary weights of bounded norm: the cheapest set serves, and the integer weights are multiples of the model's."""
    ternary = [RNG.choice([-1, 0, 1], shape, p=[0.06, 0.88, 0.06]) for shape in ((24, 16), (24, 24), (4, 24))]
    for layer in ternary:
        layer[:, 0] = 1
    constants, nodes = {}, []
    for i, layer in enumerate(ternary):
        steps = RNG.uniform(0.2, 0.4, (len(layer), 1))
        constants[f"w{i}"] = (layer * steps).astype(np.float32)
        nodes.append(
            helper.make_node(
                "Gemm", [f"a{i}" if i else "x", f"w{i}"], [f"z{i}" if i < 2 else "y"], name=f"fc{i}", transB=1
            )
        )
        if i < 2:
            nodes.append(helper.make_node("Relu", [f"z{i}"], [f"a{i + 1}"], name=f"relu{i}"))
    proto = model(nodes, [16], constants)
    x = RNG.uniform(-1, 1, (300, 16))
    compiled = cw.compile(proto, x, precision=3.0, weight_bits=6, accuracy=0)
    graph = compiled.program.graph
    assert compiled.report()["parameter_set"] == "nn2"
    for node, layer in zip(graph.linears, ternary, strict=True):
        factor = np.abs(node.weights[0]).max(axis=1, keepdims=True)
        np.testing.assert_array_equal(node.weights[0], factor * layer)
    np.testing.assert_allclose(interpret(graph, compiled.client.inputs(x)), compiled.predict_float(x), atol=1e-5)
    assert graph.scale is not None and (graph.scale[wires(graph.linears[0])] > 0).all()
