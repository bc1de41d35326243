"""ONNX operator name -> the function that imports it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from cloakwork.models.onnx_import.context import Context, OnnxNode, Value

OperatorFunction: TypeAlias = Callable[[Context, OnnxNode], "Value | Sequence[Value]"]

OPERATORS: Final[dict[str, OperatorFunction]] = {}


def operator(*names: str) -> Callable[[OperatorFunction], OperatorFunction]:
    """Registers a function for these ONNX operators."""

    def register(function: OperatorFunction) -> OperatorFunction:
        for name in names:
            assert name not in OPERATORS, name
            OPERATORS[name] = function
        return function

    return register
