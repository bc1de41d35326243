"""Modes of prediction."""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

from cloakwork.models.errors import CompileError

How: TypeAlias = Literal["clear", "simulate", "encrypted"]


def check_how(how: str) -> None:
    """Raises CompileError for another word."""
    if how not in get_args(How):
        raise CompileError(f"how: expected 'clear', 'simulate' or 'encrypted', got '{how}'")
