"""Trained models that come with the package, by name; docs/compiler.md says how they were trained and what they reach."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from cloakwork.models.errors import CompileError

NAMES: Final = ("mnist-mlp-1x30",)


def zoo_model(name: str) -> Path:
    """The ONNX file of a model of the zoo."""
    if name not in NAMES:
        raise CompileError(f"zoo: expected one of {', '.join(NAMES)}, got '{name}'")
    return Path(__file__).parent / f"{name}.onnx"
