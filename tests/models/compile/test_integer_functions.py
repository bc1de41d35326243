"""Networks of integers with functions at the end, or before a max-pool: the model's integers, or a warning that says which are not."""

from __future__ import annotations

import warnings

import numpy as np
import onnx
import pytest
from cases import in_tiers

pytest.importorskip("onnxruntime", reason="ONNX Runtime is what is compared with, and its tool quantises")
pytest.importorskip("torch", reason="shared helpers train with it")

from integer_networks import Format, answers, output_scale, quantise
from onnx import helper
from onnx_models import model

import cloakwork as cw
from cloakwork.models.compiled import CompiledModel
from cloakwork.models.errors import RoundedIntegersWarning

FORMATS = [Format(), Format(operators=True), Format(per_channel=True)]
IDS = ["qdq", "operators", "channels"]


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(15)


def ended(rng: np.random.Generator, function: str) -> onnx.ModelProto:
    """Gemm 12 -> 6 - Relu - Gemm 6 -> 3 - function."""
    nodes = [
        helper.make_node("Gemm", ["x", "w0", "b0"], ["h"], name="first"),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("Gemm", ["r", "w1", "b1"], ["s"], name="second"),
        helper.make_node(function, ["s"], ["y"], name="last"),
    ]
    return model(nodes, [12], weights(rng, (12, 6), (6, 3)))


def pooled(rng: np.random.Generator, function: str, size: int = 8) -> onnx.ModelProto:
    """Conv 3x3 -> 2 channels - function - max-pool 2x2 - Flatten - Gemm -> 4."""
    nodes = [
        helper.make_node("Conv", ["x", "w0", "b0"], ["h"], name="conv"),
        helper.make_node(function, ["h"], ["f"], name="function"),
        helper.make_node("MaxPool", ["f"], ["p"], kernel_shape=[2, 2], strides=[2, 2], name="pool"),
        helper.make_node("Flatten", ["p"], ["l"]),
        helper.make_node("Gemm", ["l", "w1", "b1"], ["y"], name="dense"),
    ]
    return model(nodes, [1, size, size], weights(rng, (2, 1, 3, 3), (2 * ((size - 2) // 2) ** 2, 4)))


def weights(rng: np.random.Generator, first: tuple[int, ...], second: tuple[int, ...]) -> dict[str, np.ndarray]:
    made = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in (("w0", first), ("w1", second))}
    outputs = first[0] if len(first) == 4 else first[1]
    return made | {f"b{i}": rng.standard_normal(n).astype(np.float32) for i, n in enumerate((outputs, second[1]))}


def steps_off(proto: onnx.ModelProto, ours: np.ndarray, x: np.ndarray) -> np.ndarray:
    return np.rint((ours - answers(proto, x)) / output_scale(proto)).astype(int)


@pytest.mark.parametrize(
    "form", [*in_tiers(FORMATS[:2], FORMATS[:1]), pytest.param(FORMATS[2], marks=pytest.mark.tier("release"))], ids=IDS
)
def test_a_sigmoid_at_the_end(rng: np.random.Generator, form: Format) -> None:
    """Its results were on no grid when their quantiser went to the client, and were rounded to 3 bits."""
    x = rng.standard_normal((300, 12)).astype(np.float32)
    proto = quantise(ended(rng, "Sigmoid"), x[:100], form)
    compiled = cw.compile(proto, x[:100], precision="exact", rounding="onnxruntime")
    np.testing.assert_array_equal(steps_off(proto, answers_of(compiled, wild(x)), wild(x)), 0)
    assert len(np.unique(compiled.predict(x))) > 20


@pytest.mark.tier("release")  # keys of three gigabytes
def test_a_sigmoid_at_the_end_encrypted(rng: np.random.Generator) -> None:
    x = rng.standard_normal((100, 12)).astype(np.float32)
    proto = quantise(ended(rng, "Sigmoid"), x, FORMATS[1])
    compiled = cw.compile(proto, x, precision="exact", rounding="onnxruntime")
    np.testing.assert_allclose(compiled.predict(x[:1], how="encrypted"), answers(proto, x[:1]), atol=1e-6)


@pytest.mark.tier("all")
def test_a_function_at_the_end_that_stays_in_floats(rng: np.random.Generator) -> None:
    """The tool quantises no Tanh."""
    x = rng.standard_normal((300, 12)).astype(np.float32)
    proto = quantise(ended(rng, "Tanh"), x[:100], Format())
    compiled = cw.compile(proto, x[:100], precision="exact", rounding="onnxruntime")
    np.testing.assert_allclose(answers_of(compiled, wild(x)), answers(proto, wild(x)), atol=1e-6)


def wild(x: np.ndarray) -> np.ndarray:
    """These, and some far beyond what the quantiser takes."""
    return np.concatenate([x, 5 * x, np.full_like(x[:1], 99)])


def answers_of(compiled: CompiledModel, x: np.ndarray) -> np.ndarray:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of inputs beyond the quantiser's
        return compiled.predict(x)


@pytest.mark.tier("all")
def test_a_function_before_a_pool(rng: np.random.Generator) -> None:
    """No quantiser follows it: the one behind pool and Flatten does, as the greatest of quantised values is the quantised greatest."""
    x = rng.standard_normal((200, 1, 4, 4)).astype(np.float32)
    proto = quantise(pooled(rng, "Tanh", 4), x[:100], Format())
    assert "Flatten" in [node.op_type for node in proto.graph.node]
    compiled = cw.compile(proto, x[:60], precision="exact", rounding="onnxruntime")
    assert compiled.program.facts.exact is not None and compiled.program.facts.exact.results_rounded is None
    off = steps_off(proto, compiled.predict(x), x)
    assert np.abs(off).max() <= 1 and (off != 0).mean() < 0.02


@pytest.mark.tier("all")
def test_what_has_to_be_rounded_is_told(rng: np.random.Generator) -> None:
    """HardSwish falls and rises, so that no set serves its integers here; and without rounding="onnxruntime" no quantiser is moved."""
    x = rng.standard_normal((60, 1, 8, 8)).astype(np.float32)
    proto = quantise(pooled(rng, "HardSwish"), x, Format())
    with pytest.warns(RoundedIntegersWarning, match=r"results of 'function' are rounded to \d bits") as told:
        compiled = cw.compile(proto, x, precision="exact", rounding="onnxruntime", accuracy=0.0)
    assert len([each for each in told if each.category is RoundedIntegersWarning]) == 1
    exact = compiled.program.facts.exact
    assert exact is not None and exact.results_rounded == ("function",) and exact.activation_bits is not None
    assert f"results rounded to {exact.activation_bits} bits, not the model's integers: function" in compiled.details
