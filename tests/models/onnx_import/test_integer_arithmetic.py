"""`rounding="onnxruntime"`: sums of two numbers, products, means and concatenations are what ONNX Runtime's integer kernels answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import onnx
import pytest
from cases import in_tiers

pytest.importorskip("onnxruntime", reason="ONNX Runtime is what is compared with")
pytest.importorskip("torch", reason="the networks are trained with PyTorch")

from integer_networks import answers, kernels
from onnx import TensorProto, helper
from onnx_models import model

from cloakwork.models.errors import CompileError, RoundedIntegersWarning
from cloakwork.models.graph.ir import Linear
from cloakwork.models.onnx_import.importer import import_onnx
from cloakwork.models.runtime.interpreter import interpret

RNG: Final = np.random.default_rng(20261124)
KINDS: Final = {"uint8": TensorProto.UINT8, "int8": TensorProto.INT8}
# Both kinds and both forms in every run, the other two pairs in tier `all`.
FORMS: Final = [
    ("uint8", False),
    ("int8", True),
    pytest.param("uint8", True, marks=pytest.mark.tier("all")),
    pytest.param("int8", False, marks=pytest.mark.tier("all")),
]
PLAIN: Final = "Add", "Mul", "Concat"


def ends(kind: str) -> tuple[int, int]:
    found = np.iinfo(kind)
    return int(found.min), int(found.max)


def quantised(
    operator: str,
    kind: str,
    inputs: Sequence[str],
    forms: Sequence[tuple[float, int]],
    shape: Sequence[int],
    *,
    is_qdq: bool = False,
    constants: dict[str, Any] | None = None,
    before: Sequence[onnx.NodeProto] = (),
    **attributes: Any,
) -> onnx.ModelProto:
    """One operator on integers, the model's input x as it comes, or constants. Args: forms: scale and zero point of each and of the result."""
    given = {"one": np.float32(1), "none": np.asarray(0, kind), **(constants or {})}
    for number, (scale, zero) in enumerate(forms):
        given |= {f"s{number}": np.float32(scale), f"z{number}": np.asarray(zero, kind)}
    last = len(inputs)
    nodes = [helper.make_node("QuantizeLinear", ["x", "one", "none"], ["q"]), *before]
    operands = [[name, f"s{number}", f"z{number}"] for number, name in enumerate(inputs)]
    result = [f"s{last}", f"z{last}"]
    if is_qdq:
        nodes += [helper.make_node("DequantizeLinear", each, [f"d{number}"]) for number, each in enumerate(operands)]
        nodes.append(helper.make_node(operator, [f"d{number}" for number in range(last)], ["r"], **attributes))
        nodes.append(helper.make_node("QuantizeLinear", ["r", *result], ["y"]))
    else:
        flat = [name for each in operands for name in each]
        flat = [*result, *flat] if operator == "Concat" else [*flat, *result]
        nodes.append(helper.make_node("QLinear" + operator, flat, ["y"], domain="com.microsoft", **attributes))
    proto = model(nodes, shape, given, output_type=KINDS[kind])
    proto.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    return proto


def halves() -> list[onnx.NodeProto]:
    """x [2 n] as two tensors a and b [n]."""
    return [helper.make_node("Split", ["q"], ["a", "b"], axis=1)]


def differences(proto: onnx.ModelProto, x: np.ndarray) -> int:
    """How many integers are not the kernel's; int8 stays int8, as its kernels are other ones than those of uint8."""
    ours = interpret(import_onnx(proto, rounding="onnxruntime"), x)
    optimised = kernels(proto)
    assert any(node.op_type.startswith("QLinear") for node in optimised.graph.node)
    expected = answers(optimised, x)
    assert len(np.unique(expected)) > 1
    return int((ours != expected).sum())


def pairs(kind: str) -> np.ndarray:
    low, high = ends(kind)
    a, b = np.meshgrid(np.arange(low, high + 1), np.arange(low, high + 1), indexing="ij")
    return np.stack([a.reshape(-1), b.reshape(-1)], axis=1)


def forms_of(kind: str, operator: str) -> list[tuple[float, int]]:
    """Of both operands and the result, in which the result saturates for some pairs."""
    low, high = ends(kind)
    scales = RNG.uniform(0.01, 0.05, 2)
    result = scales.sum() * RNG.uniform(0.5, 1) if operator != "Mul" else scales.prod() * RNG.uniform(60, 250)
    zeros = RNG.integers(low, high + 1, 3).tolist()
    return list(zip([*scales, result], zeros, strict=True))


@pytest.mark.parametrize("operator", PLAIN)
@pytest.mark.parametrize(("kind", "is_qdq"), FORMS)
def test_all_pairs(operator: str, kind: str, is_qdq: bool) -> None:
    axis = {"axis": 1} if operator == "Concat" else {}
    for _ in range(3):
        forms = forms_of(kind, operator)
        proto = quantised(operator, kind, ["a", "b"], forms, [2], is_qdq=is_qdq, before=halves(), **axis)
        assert differences(proto, pairs(kind)) == 0


@pytest.mark.parametrize("scales", [(0.25, 0.25, 0.5), (0.02, 0.02, 0.02), (0.5, 0.125, 0.25), (0.03, 0.06, 0.06)])
def test_sums_that_are_ties(scales: tuple[float, float, float]) -> None:
    proto = quantised("Add", "uint8", ["a", "b"], [(scale, 3) for scale in scales], [2], before=halves())
    assert differences(proto, pairs("uint8")) == 0


def test_weights_of_a_sum_are_as_small_as_they_can_be() -> None:
    """1 and 1 for equal scales, 1 and 2 for twice the scale; never above what exact programs take."""
    for second, expected in ((0.02, (1, 1)), (0.04, (1, 2)), (0.0123, None)):
        proto = quantised("Add", "uint8", ["a", "b"], [(0.02, 0), (second, 0), (0.031, 0)], [2], before=halves())
        linear = next(node for node in import_onnx(proto, rounding="onnxruntime").nodes if isinstance(node, Linear))
        found = tuple(linear.weights.reshape(-1).astype(int).tolist())
        assert found == expected or (expected is None and 1 < max(found) <= 510)


@pytest.mark.parametrize("operator", ["Add", "Mul"])
@pytest.mark.parametrize("constant_first", [False, True])
@pytest.mark.parametrize(("kind", "is_qdq"), FORMS)
def test_constants(operator: str, constant_first: bool, kind: str, is_qdq: bool) -> None:
    """Every integer with 9 constants, at both ends of the range among them."""
    low, high = ends(kind)
    constant = np.array([low, high, *RNG.integers(low, high + 1, 7)]).astype(kind)
    names, x = ["q", "c"], np.repeat(np.arange(low, high + 1)[:, None], 9, axis=1)
    for _ in range(3):
        forms = forms_of(kind, operator)
        order = names[::-1] if constant_first else names
        proto = quantised(operator, kind, order, forms, [9], is_qdq=is_qdq, constants={"c": constant})
        assert differences(proto, x) == 0


def test_a_number_and_itself() -> None:
    for operator in ("Add", "Mul"):
        proto = quantised(operator, "uint8", ["q", "q"], [(0.02, 7), (0.02, 7), (0.05, 9)], [1])
        assert differences(proto, np.arange(256)[:, None]) == 0


@pytest.mark.parametrize(("kind", "is_qdq"), FORMS)
def test_global_means(kind: str, is_qdq: bool) -> None:
    low, high = ends(kind)
    for scale in (0.021, 0.013):  # the second with means that are ties
        proto = quantised("GlobalAveragePool", kind, ["q"], [(0.013, low + 9), (scale, low)], [3, 4, 2], is_qdq=is_qdq)
        assert differences(proto, RNG.integers(low, high + 1, (2000, 3, 4, 2))) == 0


WINDOWS: Final[dict[str, dict[str, Any]]] = {
    "apart": {"kernel_shape": [2, 2], "strides": [2, 2]},
    "overlapping": {"kernel_shape": [3, 2], "strides": [1, 2]},
    "padded": {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]},
    "padding counts": {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1], "count_include_pad": 1},
    "beyond the end": {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1},
    "the image": {"kernel_shape": [6, 5], "strides": [2, 2]},
    "the image, padded": {"kernel_shape": [6, 5], "pads": [1, 0, 0, 0]},
}


@pytest.mark.parametrize("window", in_tiers(WINDOWS, quick=("padded", "beyond the end")))
@pytest.mark.parametrize(("kind", "is_qdq"), FORMS)
def test_means_of_windows(window: str, kind: str, is_qdq: bool) -> None:
    """A scale of 8 bits: products and sums are exact in float32, ties among the means."""
    low, high = ends(kind)
    x = RNG.integers(low, high + 1, (1000, 2, 6, 5))
    for scale in (0.0703125, 0.05):
        forms = [(0.0703125, low + 3), (scale, low + 5)]
        proto = quantised("AveragePool", kind, ["q"], forms, [2, 6, 5], is_qdq=is_qdq, **WINDOWS[window])
        assert differences(proto, x) == 0


def test_means_that_depend_on_the_order_are_counted() -> None:
    """Equal scales of 24 bits: halves are ties, which float32 decides by what it added first."""
    x = RNG.integers(0, 256, (4000, 2, 2, 4))
    proto = quantised("AveragePool", "uint8", ["q"], [(0.0123, 9), (0.0123, 9)], [2, 2, 4], kernel_shape=[2, 2])
    with pytest.warns(RoundedIntegersWarning, match=r"the means of \d+ of 1021 sums of a window may depend"):
        assert 0 < differences(proto, x) < 0.25 * x.size


def test_a_sum_that_no_weights_separate_is_counted() -> None:
    forms = [(0.0155124115, 81), (0.031024823, 38), (0.09307447, -42)]
    proto = quantised("Add", "int8", ["a", "b"], forms, [2], before=halves())
    with pytest.warns(RoundedIntegersWarning, match="are added otherwise") as told:
        found = differences(proto, pairs("int8"))
    assert 0 < found < 0.1 * 65536
    assert f"{found} of 65536 pairs of integers" in str(told[0].message)


def test_scales_are_positive() -> None:
    for operator in PLAIN:
        axis = {"axis": 1} if operator == "Concat" else {}
        proto = quantised(operator, "uint8", ["a", "b"], [(0.1, 0), (0.0, 0), (0.1, 0)], [2], before=halves(), **axis)
        with pytest.raises(CompileError, match="scale that is not positive"):
            import_onnx(proto, rounding="onnxruntime")
