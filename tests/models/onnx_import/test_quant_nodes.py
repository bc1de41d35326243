"""Quantisers of Brevitas and QONNX: activations, weights, and networks of odd numbers of bits, encrypted."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from cases import case
from onnx import NodeProto, TensorProto, helper, numpy_helper
from sklearn.datasets import load_digits

import cloakwork as cw
from cloakwork.models.errors import UnsupportedOperatorError
from cloakwork.models.onnx_import.importer import import_onnx
from cloakwork.models.runtime.interpreter import interpret

QONNX, BREVITAS = "qonnx.custom_op.general", "onnx.brevitas"
MODES: dict[str, Callable[[Any], Any]] = {"ROUND": np.rint, "FLOOR": np.floor, "CEIL": np.ceil}
HOSTILE: dict[str, tuple[dict[str, Any], str]] = {
    "half a bit": ({"bits": 2.5}, "has 2.5 bits; expected one whole number from 1 to 32"),
    "no bits": ({"bits": 0}, "has 0 bits"),
    "very many bits": ({"bits": 1e9}, "has 1e[+]09 bits"),
    "not a number of bits": ({"bits": np.nan}, "has nan bits"),
    "bits of each channel": ({"bits": [8.0, 4.0]}, "has 2 numbers of bits"),
    "a negative scale": ({"scale": -0.5}, "scale that is not positive"),
    "an infinite scale": ({"scale": np.inf}, "scale that is not finite"),
    "an infinite zero point": ({"zero": np.inf}, "zero point that is not finite"),
    "a scale of another shape": ({"scale": [1.0, 2.0]}, r"scale of shape \[2\], which does not broadcast to"),
    "too many dimensions": ({"scale": np.ones((2, 1, 1))}, "does not broadcast"),
    "another rounding": ({"rounding_mode": "STOCHASTIC"}, "rounds by 'STOCHASTIC'; expected one of ROUND, FLOOR, CEIL"),
}


def reference(x: Any, scale: Any, zero: Any, bits: int, signed: int, narrow: int, mode: str) -> np.ndarray:
    """As QONNX says it."""
    low = narrow - 2 ** (bits - 1) if signed else 0
    high = 2 ** (bits - 1) - 1 if signed else 2**bits - 1 - narrow
    y = np.asarray(x) / scale + zero
    y = np.where(y >= 0, 1, -1) if signed and bits == 1 else MODES[mode](np.clip(y, low, high))
    result: np.ndarray = (y - zero) * scale
    return result


class Nodes:
    """A graph that grows."""

    def __init__(self, domain: str) -> None:
        self.domain, self.nodes, self.constants = domain, list[NodeProto](), dict[str, Any]()

    def quant(self, source: str, name: str, operator: str = "Quant", **given: Any) -> str:
        """Args: given: scale, zero, bits; attributes."""
        inputs = [source]
        for key, usual in (("scale", 1.0), ("zero", 0.0), ("bits", 8.0)):
            self.constants[f"{name}_{key}"] = np.float32(given.pop(key, usual))
            inputs.append(f"{name}_{key}")
        inputs = inputs[:2] if operator == "BipolarQuant" else inputs
        self.nodes.append(helper.make_node(operator, inputs, [name], domain=self.domain, **given))
        return name

    def model(self, shape: tuple[int, ...], output: str) -> onnx.ModelProto:
        """Of an input x."""
        opsets = [helper.make_opsetid("", 17), helper.make_opsetid(self.domain, 1)]
        x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", *shape])
        y = helper.make_tensor_value_info(output, TensorProto.FLOAT, None)
        constants = [numpy_helper.from_array(np.asarray(value), name) for name, value in self.constants.items()]
        return helper.make_model(
            helper.make_graph(self.nodes, "g", [x], [y], constants), opset_imports=opsets, ir_version=8
        )


def halves(count: int, scale: float) -> np.ndarray:
    """Values between integers, at them and far outside of all ranges; float32 has all of them."""
    return scale * np.concatenate([np.arange(-count, count) / 2, np.random.default_rng(5).uniform(-300, 300, 200)])


@pytest.mark.parametrize(
    ("bits", "signed", "narrow"), [(1, 0, 0), (1, 1, 0), (2, 1, 1), (6, 0, 1), (6, 1, 0), (8, 1, 1)]
)
def test_activations_are_rounded_as_qonnx_says(bits: int, signed: int, narrow: int) -> None:
    x = halves(150, 0.25)[:, None]
    for zero, mode in itertools.product((0.0, 3.0, -4.0, 2.5), MODES):
        made = Nodes(QONNX)
        options = {"zero": zero, "bits": bits, "signed": signed, "narrow": narrow, "rounding_mode": mode.lower()}
        graph = import_onnx(made.model((1,), made.quant("x", "y", "IntQuant", scale=0.25, **options)))
        expected = reference(x, 0.25, zero, bits, signed, narrow, mode)
        with case(zero, mode):
            np.testing.assert_allclose(interpret(graph, x), expected, atol=1e-9)


def test_each_channel_has_a_scale() -> None:
    """Of images, and signs of them."""
    scale = np.array([0.25, 0.5, 2.0], dtype=np.float32).reshape(1, 3, 1, 1)
    x = np.random.default_rng(6).uniform(-300, 300, (20, 3, 2, 2))
    for operator, wanted in (
        ("Quant", reference(x, scale, 0, 4, 1, 0, "ROUND")),
        ("BipolarQuant", np.where(x >= 0, scale, -scale)),
    ):
        made = Nodes(BREVITAS)
        name = made.quant("x", "y", operator, scale=scale, **({"bits": 4.0} if operator == "Quant" else {}))
        found = interpret(import_onnx(made.model((3, 2, 2), name)), x)
        np.testing.assert_allclose(found.reshape(x.shape), wanted, atol=1e-9)


@pytest.mark.parametrize("domain", [QONNX, BREVITAS, "finn.custom_op.general"])
def test_weights_are_rounded_at_import(domain: str) -> None:
    """Rows with scales of their own; 32 bits leave them as they are but for float32."""
    rng = np.random.default_rng(7)
    weights, scale = rng.normal(size=(4, 3)).astype(np.float32), np.float32([[0.1, 0.2, 0.3]])
    x = rng.normal(size=(30, 4))
    for bits, given in ((3, scale), (32, np.float32(1e-8))):
        made = Nodes(domain)
        made.constants["w"] = weights
        made.quant("w", "rounded", scale=given, bits=bits, narrow=1)
        made.nodes.append(helper.make_node("MatMul", ["x", "rounded"], ["y"]))
        found = interpret(import_onnx(made.model((4,), "y")), x)
        np.testing.assert_allclose(found, x @ reference(weights, given, 0, bits, 1, 1, "ROUND"), atol=1e-5)


@pytest.mark.parametrize("on", ["x", "w"])
@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_quantisers_are_refused(case: str, on: str) -> None:
    given, message = HOSTILE[case]
    made = Nodes(QONNX)
    made.constants["w"] = np.ones((3, 3), np.float32)
    read = made.quant(on, "rounded", **given)
    made.nodes.append(helper.make_node("MatMul", ["x", "w" if on == "x" else read], ["y"]))
    made.nodes[-1].input[0] = read if on == "x" else "x"
    with pytest.raises(UnsupportedOperatorError, match=f"Quant 'rounded': .*{message}"):
        import_onnx(made.model((3,), "y"))


@pytest.mark.parametrize("operator", ["Quant", "BipolarQuant"])
def test_weights_that_are_integers_are_refused(operator: str) -> None:
    """A scale below 1 would be 0 among them, and so would the weights."""
    made = Nodes(QONNX)
    made.constants["w"] = np.ones((3, 3), np.int64)
    made.nodes.append(helper.make_node("MatMul", ["x", made.quant("w", "rounded", operator, scale=0.5)], ["y"]))
    with pytest.raises(UnsupportedOperatorError, match="'rounded': expected floats as input 0, got int64"):
        import_onnx(made.model((3,), "y"))


@pytest.mark.tier("all")
def test_a_network_of_six_bits_is_exact() -> None:
    """Weights, inputs and activations of 6 bits on digits, without training: encrypted, the numbers of the reference."""
    x = load_digits().data.astype(np.float32)
    rng = np.random.default_rng(8)
    made, value = Nodes(BREVITAS), reference(x, 0.25, 0, 6, 0, 0, "ROUND")
    read = made.quant("x", "entering", scale=0.25, bits=6, signed=0)
    for i, (inputs, outputs) in enumerate(((64, 5), (5, 4), (4, 3))):
        weights = rng.normal(size=(inputs, outputs)).astype(np.float32)
        scale = np.float32(np.abs(weights).max() / 31)
        made.constants[f"w{i}"] = weights
        rounded = made.quant(f"w{i}", f"rounded{i}", scale=scale, bits=6, narrow=1)
        made.nodes.append(helper.make_node("MatMul", [read, rounded], [f"h{i}"], name=f"dense{i}"))
        value = value @ reference(weights, scale, 0, 6, 1, 1, "ROUND")
        if i < 2:
            made.nodes.append(helper.make_node("Relu", [f"h{i}"], [f"r{i}"]))
            step = np.float32(2.0 ** np.ceil(np.log2(value.max() / 63)) * 0.97)
            read = made.quant(f"r{i}", f"a{i}", scale=step, bits=6, signed=0)
            value = reference(np.maximum(value, 0), step, 0, 6, 0, 0, "ROUND")
    model = cw.compile(made.model((64,), "h2"), x[:200], precision="exact", accuracy=0, sets=["toy_fine"])
    assert model.program.bootstraps > 5 * (5 + 4)
    np.testing.assert_allclose(model.predict(x[200:], "simulate", seed=9), value[200:], rtol=1e-5, atol=1e-4)
    np.testing.assert_allclose(model.predict(x[200:203], "encrypted"), value[200:203], rtol=1e-5, atol=1e-4)
