"""docs/compiler.md names every operator that the importer knows."""

from __future__ import annotations

import re
from pathlib import Path

from cloakwork.models.onnx_import import importer  # noqa: F401 (registers the operators)
from cloakwork.models.onnx_import.client_side import CLIENT_OPERATORS
from cloakwork.models.onnx_import.registry import OPERATORS

_BY_ANOTHER_NAME = {"Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"}  # "comparisons"


def test_every_operator_is_documented() -> None:
    text = (Path(__file__).resolve().parents[2] / "docs" / "compiler.md").read_text(encoding="utf-8")
    words = set(re.findall(r"\w+", text[text.index("## Operators") : text.index("## Limits")]))
    assert {*OPERATORS, *CLIENT_OPERATORS} - words == _BY_ANOTHER_NAME
