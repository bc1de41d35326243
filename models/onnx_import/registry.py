"""ONNX operator name (with its domain before it when that is not the standard one) -> the function that imports it, and what users ask of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias, TypeVar

from onnx import NodeProto

from cloakwork.models.onnx_import.context import Context, OnnxNode, Value

OperatorFunction: TypeAlias = Callable[[Context, OnnxNode], "Value | Sequence[Value]"]
_Function = TypeVar("_Function", bound=OperatorFunction)

MICROSOFT: Final = "com.microsoft:"  # before the name of an operator of ONNX Runtime's own domain

# What an operator costs, in bootstraps; the sections of docs/reference/operators.md.
FREE: Final = "none: index arithmetic"
FOLDED: Final = "none: folded into a linear layer"
LINEAR: Final = "none: a linear layer"
LOOKUP: Final = "1 for each number, shared"
OF_ONE: Final = "1 where all are functions of one number"


@dataclass(frozen=True)
class Entry:
    function: OperatorFunction
    cost: str
    restrictions: str


OPERATORS: Final[dict[str, Entry]] = {}


def operator(*names: str, cost: str = LOOKUP, restrictions: str = "") -> Callable[[_Function], _Function]:
    """Registers a function for these ONNX operators, with what docs/reference/operators.md says of them."""

    def register(function: _Function) -> _Function:
        for name in names:
            assert name not in OPERATORS, name
            OPERATORS[name] = Entry(function, cost, restrictions)
        return function

    return register


def registered_name(node: NodeProto) -> str:
    return node.op_type if node.domain in ("", "ai.onnx") else f"{node.domain}:{node.op_type}"
