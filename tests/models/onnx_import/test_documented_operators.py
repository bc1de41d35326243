"""docs/reference/operators.md is what the registry says."""

from __future__ import annotations

from pathlib import Path

from cloakwork.models.onnx_import.context import OPERATORS
from cloakwork.models.onnx_import.documentation import operators_markdown

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "operators.md"


def test_the_page_of_operators_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == operators_markdown()
    assert all(f"`{name}`" in operators_markdown() for name in OPERATORS)
