"""Trained models that come with the package, by name; docs/models has a card for each."""

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
