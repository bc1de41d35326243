"""Whose fault it is that an import fails: files that ONNX Runtime refuses, faults of ours, and mutated node cases of the onnx package."""

from __future__ import annotations

import random
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import AttributeProto, ModelProto, helper, numpy_helper
from onnx_models import model, runtime

import cloakwork as cw
from cloakwork.models.errors import CompileError, ImportFaultError, UnsupportedOperatorError
from cloakwork.models.onnx_import.context import OPERATORS
from cloakwork.models.onnx_import.importer import import_onnx
from cloakwork.models.runtime.interpreter import interpret

pytestmark = pytest.mark.os_entropy  # ONNX Runtime is asked in a process of its own
X = np.random.default_rng(3).uniform(-1, 1, (5, 4))


def one(operator: str, *constants: Any, **attributes: Any) -> ModelProto:
    """A model of one operator on the input and constants, between reshapes to [4, 1, 2, 2] and back."""
    names = [f"c{i}" for i in range(len(constants))]
    nodes = [
        helper.make_node("Reshape", ["x", "inner"], ["before"]),
        helper.make_node(operator, ["before", *names], ["after"], name="secret name", **attributes),
        helper.make_node("Flatten", ["after"], ["y"]),
    ]
    return model(nodes, [4], {"inner": np.array([-1, 1, 2, 2]), **dict(zip(names, constants, strict=True))}, opset=19)


NO_VALUES = np.zeros(0, np.float32)


@pytest.mark.parametrize(
    "proto",
    [
        one("Expand", np.array([[1, 1, 2, 2]])),
        one("Trilu", np.array([0])),
        one("Resize", NO_VALUES, np.array([[1, 1, 2, 2]], np.float32), mode="nearest"),
        one("Resize", NO_VALUES, NO_VALUES, np.array([[1, 1, 4, 4]]), mode="nearest"),
    ],
    ids=["Expand", "Trilu", "Resize by scales", "Resize by sizes"],
)
def test_vectors_that_are_matrices_of_one_row(proto: ModelProto) -> None:
    """ONNX Runtime takes them; each ended in an error once."""
    batch = X[:1]
    np.testing.assert_allclose(interpret(import_onnx(proto), batch), runtime(proto, batch), atol=1e-6)


def raises(error: Exception) -> Callable[..., Any]:
    def imported(*_arguments: Any) -> Any:
        raise error

    return imported


def test_a_fault_of_ours_says_so_and_its_report_holds_no_data(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = OPERATORS["Relu"]
    monkeypatch.setitem(
        OPERATORS, "Relu", entry.__class__(**{**vars(entry), "function": raises(IndexError("weight 0.25"))})
    )
    with pytest.raises(ImportFaultError, match="a fault of cloakwork, not of your model") as caught:
        cw.compile(one("Relu"), X)
    (path,) = re.findall(r"\S+cloakwork-error-\S+\.txt", str(caught.value))
    report = Path(path).read_text(encoding="utf-8")
    Path(path).unlink()
    assert "Relu of opset 19" in report and "IndexError" in report and "onnx_import/importer.py:" in report
    assert "secret name" not in report and "0.25" not in report


def test_a_fault_outside_of_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cloakwork.models.onnx_import.importer.read_inputs", raises(AssertionError("weight 0.25")))
    with pytest.raises(ImportFaultError, match="it is valid ONNX") as caught:
        import_onnx(one("Relu"))
    (path,) = re.findall(r"\S+cloakwork-error-\S+\.txt", str(caught.value))
    assert "0.25" not in Path(path).read_text(encoding="utf-8")
    Path(path).unlink()


@pytest.mark.parametrize(
    "proto",
    [one("Conv", np.ones((1, 2, 1), np.float32)), one("Softmax", axis=9), one("Transpose", perm=[0, 0, 1, 7])],
    ids=["weights of another rank", "an axis that is not there", "no permutation"],
)
def test_what_onnx_runtime_refuses_is_the_files_fault(proto: ModelProto) -> None:
    with pytest.raises(UnsupportedOperatorError, match="'secret name'"):
        cw.compile(proto, X)


# --- mutated node cases -----------------------------------------------------------------------------------------------------------


def _attribute(attribute: AttributeProto, rng: random.Random) -> None:
    if attribute.type == AttributeProto.INT:
        attribute.i = rng.choice([attribute.i + 1, attribute.i - 1, 0, 1, -1, 2, 7, 2**31])
    elif attribute.type == AttributeProto.FLOAT:
        attribute.f = rng.choice([0.0, -1.0, 2 * attribute.f, float("nan"), float("inf")])
    elif attribute.type == AttributeProto.INTS and attribute.ints:
        place = rng.randrange(len(attribute.ints))
        change = rng.randrange(3)
        if change == 0:
            attribute.ints[place] = rng.choice([0, 1, 2, -1, 3, attribute.ints[place] + 1])
        elif change == 1:
            attribute.ints.append(rng.choice([0, 1, 2]))
        else:
            del attribute.ints[place]
    elif attribute.type == AttributeProto.STRING:
        attribute.s = rng.choice([b"", b"other", b"SAME_UPPER", b"nearest", b"linear", b"constant"])


def _constant(tensor: onnx.TensorProto, rng: random.Random) -> None:
    array = numpy_helper.to_array(tensor).copy()
    change = rng.randrange(5)
    if change == 0 and array.size:
        array.reshape(-1)[rng.randrange(array.size)] = rng.choice([0, 1, 2, 3])
    elif change == 1 and array.ndim:
        array = array[:-1]
    elif change == 2:
        array = array[None]
    elif change == 3 and array.ndim:
        array = array[0]
    else:
        array = array.astype(rng.choice([np.float32, np.int64, np.int32, np.float64, np.uint8, np.bool_]))
    tensor.CopyFrom(numpy_helper.from_array(np.asarray(array), tensor.name))


def mutate(proto: ModelProto, rng: random.Random) -> None:
    """Changes an attribute, a constant or the inputs of a case's node (of `test_onnx_node_cases.wrapped`)."""
    graph = proto.graph
    node = graph.node[1] if len(graph.node) == 3 else graph.node[0]
    constants = [tensor for tensor in graph.initializer if tensor.name not in ("case_shape", "batch_shape")]
    kind = rng.randrange(5)
    if kind < 2 and node.attribute:
        _attribute(rng.choice(list(node.attribute)), rng)
    elif kind == 2 and node.attribute:
        node.attribute.remove(rng.choice(list(node.attribute)))
    elif constants:
        _constant(rng.choice(constants), rng)
    elif len(node.input) > 1:
        del node.input[rng.randrange(len(node.input)) :]


@pytest.mark.tier("release")
@pytest.mark.parametrize("seed", range(4))
def test_no_mutated_case_finds_a_fault_of_ours(seed: int) -> None:
    """ONNX Runtime judges each case at which an importer failed unforeseen: minutes."""
    import test_onnx_node_cases as node_cases

    rng = random.Random(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        counts = dict.fromkeys(("imported", "refused"), 0)
        for case in node_cases.collected().values():
            proto, _, _ = node_cases.wrapped(case)
            mutate(proto, rng)
            try:
                import_onnx(proto)
                counts["imported"] += 1
            except ImportFaultError as error:
                raise AssertionError(case.name) from error
            except CompileError:
                counts["refused"] += 1
    assert min(counts.values()) > 100
