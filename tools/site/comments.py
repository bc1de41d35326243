"""An extension of griffe: a comment behind a field or a constant is its docstring, as the sources have them."""

from __future__ import annotations

import io
import tokenize
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import griffe


@cache
def _comments(path: Path) -> Mapping[int, str]:
    """By line."""
    tokens = tokenize.generate_tokens(io.StringIO(path.read_text(encoding="utf-8")).readline)
    return {each.start[0]: each.string.lstrip("# ") for each in tokens if each.type == tokenize.COMMENT}


class TrailingComments(griffe.Extension):
    """The comment on an attribute's last line; instructions to linters are none."""

    def on_attribute_instance(self, *, attr: griffe.Attribute, **_: Any) -> None:
        if attr.docstring is not None or attr.lineno is None or not isinstance(attr.filepath, Path):
            return
        comment = _comments(attr.filepath).get(attr.endlineno or attr.lineno, "")
        if comment and not comment.startswith(("noqa", "type:")):
            attr.docstring = griffe.Docstring(
                comment[0].upper() + comment[1:], lineno=attr.lineno, endlineno=attr.lineno, parent=attr
            )
