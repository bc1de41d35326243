"""Whose fault it is that an import fails: files that ONNX Runtime refuses, and faults of ours."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, helper
from onnx_models import model, runtime

import cloakwork as cw
from cloakwork.models.errors import ImportFaultError, UnsupportedOperatorError
from cloakwork.models.onnx_import import faults
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
        one("GatherElements", np.array([[[[1, 0]]]]), axis=2),
        one("Trilu", np.array([0])),
        one("Resize", NO_VALUES, np.array([[1, 1, 2, 2]], np.float32), mode="nearest"),
        one("Resize", NO_VALUES, NO_VALUES, np.array([[1, 1, 4, 4]]), mode="nearest"),
    ],
    ids=["Expand", "GatherElements, one row", "Trilu", "Resize by scales", "Resize by sizes"],
)
def test_shapes_that_only_a_generator_tried(proto: ModelProto) -> None:
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
    with pytest.raises(ImportFaultError, match="ONNX Runtime does not refuse it") as caught:
        import_onnx(one("Relu"))
    (path,) = re.findall(r"\S+cloakwork-error-\S+\.txt", str(caught.value))
    assert "0.25" not in Path(path).read_text(encoding="utf-8")
    Path(path).unlink()


@pytest.mark.parametrize(
    "proto",
    [one("Reshape", np.array([3, 5])), one("Transpose", perm=[0, 0, 1, 7]), one("Transpose", perm=[0, 1, 2, 9])],
    ids=["another size", "no permutation", "an axis that is not there"],
)
def test_what_onnx_runtime_refuses_is_the_files_fault(proto: ModelProto) -> None:
    with pytest.raises(
        UnsupportedOperatorError, match="'secret name': is not valid ONNX of opset 19 .*ONNX Runtime says: "
    ):
        cw.compile(proto, X)


def test_nobody_is_blamed_where_onnx_runtime_cannot_be_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    proto = one("Transpose", perm=[0, 0, 1, 7])
    assert faults.refusal(proto) is not None
    monkeypatch.setattr(faults.sys, "executable", "/no/such/python")
    assert faults.refusal(proto) is None
    monkeypatch.setattr(faults.sys, "executable", "/bin/false")
    assert faults.refusal(proto) is None
