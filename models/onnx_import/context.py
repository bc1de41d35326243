"""The context of an operator's function: the node, its values, and how to add nodes to the graph."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, TypeAlias, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from onnx import NodeProto

from cloakwork.models.arrays import Indices, Reals
from cloakwork.models.errors import UnsupportedNode
from cloakwork.models.graph.ir import ZERO_WIRE, Input, Linear, Lookup, Node
from cloakwork.models.graph.last_steps import LastStep
from cloakwork.models.graph.steps import Step, never_negative

MOST_NUMBERS: Final = 1 << 25  # of one tensor of wires
MOST_NUMBERS_TOGETHER: Final = 1 << 28  # of all tensors of a model


def bounded(*extents: int) -> int:
    """Returns the product of extents, refused before anything of that size is allocated."""
    count = math.prod(int(extent) for extent in extents)
    if count > MOST_NUMBERS:
        raise UnsupportedNode(
            f"makes a tensor of {count} numbers; expected at most {MOST_NUMBERS}, use a smaller model"
        )
    return count


def together(*arrays: Indices) -> list[Indices]:
    """Broadcast to one shape."""
    bounded(*np.broadcast_shapes(*(array.shape for array in arrays)))
    return list(np.broadcast_arrays(*arrays))


@dataclass(frozen=True, eq=False)
class Encrypted:
    """A tensor of the model on encrypted data: the wire of each element, batch dimension (of 1) first; -1 is zero."""

    wires: Indices
    client_steps: tuple[LastStep, ...] = ()


# Functions whose parameters may be infinite: their values are finite all the same.
_UNBOUNDED: Final = frozenset({"Clip", "Max", "Min", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"})

Rounding: TypeAlias = Literal[
    "real", "onnxruntime"
]  # of what integers are requantised to: see models/onnx_import/integer_kernels.py
Constant: TypeAlias = NDArray[Any]
Value: TypeAlias = Encrypted | Constant


@dataclass(frozen=True)
class Grid:
    """Values that are multiples of step between low and high, as quantisers leave them."""

    step: float
    low: float
    high: float

    def within(self, step: float, low: float, high: float) -> bool:
        """Whether all of them are multiples of another step in another range."""
        ratio, slack = self.step / step, 1e-6 * step
        return (
            abs(ratio - round(ratio)) < 1e-6
            and round(ratio) > 0
            and self.low >= low - slack
            and self.high <= high + slack
        )


@dataclass(frozen=True, eq=False)
class OnnxNode:
    """One node: attributes by name, the values of its inputs (None for a missing optional one)."""

    name: str
    operator: str
    inputs: tuple[Value | None, ...]
    attributes: dict[str, Any]
    opset: int

    def has(self, index: int) -> bool:
        return index < len(self.inputs) and self.inputs[index] is not None

    def encrypted(self, index: int = 0) -> Indices:
        """Returns wires of an input that has to be encrypted."""
        value = self.inputs[index] if self.has(index) else None
        if not isinstance(value, Encrypted):
            raise UnsupportedNode(f"expected input {index} to be encrypted, it is a constant; fold it into the model")
        return value.wires

    def constant(self, index: int) -> Constant:
        value = self.inputs[index] if self.has(index) else None
        if not isinstance(value, np.ndarray):
            raise UnsupportedNode(
                f"expected a constant as input {index}, it depends on encrypted data; make it a constant"
            )
        return value

    def optional_constant(self, index: int) -> Constant | None:
        return self.constant(index) if self.has(index) else None

    def vector(self, index: int) -> list[int]:
        """Returns the integers of a constant, whatever its shape: run-times read one number or a matrix of one row as a vector."""
        return [int(v) for v in self.constant(index).reshape(-1)]

    def integers(self, index: int, attribute: str) -> list[int] | None:
        """Returns integers that newer opsets pass as an input and older ones as an attribute."""
        if self.has(index):
            return self.vector(index)
        numbers = self.attributes.get(attribute)
        return None if numbers is None else [int(v) for v in np.atleast_1d(numbers)]


@dataclass
class Context:
    """The graph while it grows."""

    nodes: list[Node] = field(default_factory=list)
    origin: str = ""
    wire_count: int = 0
    pools_first: bool = True  # whether a max-pool comes before the monotone look-up that it follows in the model
    rounding: Rounding = "real"
    evaluated: dict[int, tuple[Encrypted, Encrypted]] = field(default_factory=dict)  # by id of a tensor, which is kept
    _grids: dict[int, Grid] = field(default_factory=dict)  # by first wire of a node
    _starts: list[int] = field(default_factory=list)  # first wires of the nodes
    _taken: int = 0

    def add(self, node: Node) -> Indices:
        """Appends the node at the next free wires and returns them."""
        first = self.wire_count
        if node.size == 0:
            raise UnsupportedNode("works on an empty tensor; remove it")
        if first + node.size > MOST_NUMBERS_TOGETHER:
            raise UnsupportedNode(f"brings the model to more than {MOST_NUMBERS_TOGETHER} numbers; use a smaller model")
        self.nodes.append(replace(node, first_wire=first, origin=self.origin))
        self._starts.append(first)
        self.wire_count += node.size
        return np.arange(first, self.wire_count, dtype=np.int64)

    def take(self, count: int) -> None:
        """Counts the numbers of a tensor that stays in memory during the import."""
        self._taken += count
        if self._taken > MOST_NUMBERS_TOGETHER:
            raise UnsupportedNode(
                f"brings all tensors to more than {MOST_NUMBERS_TOGETHER} numbers; use a smaller model"
            )

    def input(self, shape: Sequence[int]) -> Encrypted:
        bounded(*shape)
        return Encrypted(self.add(Input(0, tuple(shape[1:]), "")).reshape(tuple(shape)))

    def linear(
        self, gather: Indices, weights: ArrayLike, bias: ArrayLike = 0.0, block: Indices | None = None
    ) -> Indices:
        """Returns wires [P, R] of weights [G, R, K] on gather [P, K]."""
        matrix: Reals = np.asarray(weights, dtype=np.float64)
        if gather.ndim != 2 or matrix.ndim != 3:
            raise UnsupportedNode("has weights or an input of another number of dimensions than it multiplies")
        bounded(*gather.shape)
        bounded(len(gather), matrix.shape[1])
        if gather.shape[1] != matrix.shape[2]:
            raise UnsupportedNode(
                f"weights of {matrix.shape[2]} columns do not multiply with {gather.shape[1]} numbers"
            )
        chosen = np.zeros(len(gather), dtype=np.int64) if block is None else block
        offsets = np.array(np.broadcast_to(np.asarray(bias, dtype=np.float64), matrix.shape[:2]))
        if not (np.isfinite(matrix).all() and np.isfinite(offsets).all()):
            raise UnsupportedNode("has weights that are not finite (NaN or infinite); train or export the model again")
        node = Linear(0, np.ascontiguousarray(gather), chosen, matrix, offsets, "")
        return self.add(node).reshape(len(gather), -1)

    def lookup(self, x: Indices, operator: str, *parameters: ArrayLike) -> Indices:
        """Returns wires of x's shape for a function with parameters that broadcast to it."""
        bounded(*x.shape)
        spread = [np.broadcast_to(np.asarray(p, dtype=np.float64), x.shape).reshape(-1) for p in parameters]
        if any(bool(np.isnan(p).any() if operator in _UNBOUNDED else ~np.isfinite(p).all()) for p in spread):
            raise UnsupportedNode(
                "has a constant that is not finite (NaN or infinite); train or export the model again"
            )
        if spread:
            rows, function = np.unique(np.stack(spread, axis=1), axis=0, return_inverse=True)
            step = Step(operator, tuple(np.ascontiguousarray(column) for column in rows.T))
            chosen: Indices = function.reshape(-1).astype(np.int64)
        else:
            step, chosen = Step(operator), np.zeros(x.size, dtype=np.int64)
        return self.add(Lookup(0, np.ascontiguousarray(x.reshape(-1)), (step,), chosen, "")).reshape(x.shape)

    def constant(self, values: ArrayLike) -> Indices:
        """Returns wires that hold constants: rows of no weight, folded into whatever reads them."""
        array: Reals = np.asarray(values, dtype=np.float64)
        if not array.any():
            return np.full(array.shape, ZERO_WIRE, dtype=np.int64)
        distinct, block = np.unique(array.reshape(-1), return_inverse=True)
        nowhere = np.full((array.size, 1), ZERO_WIRE, dtype=np.int64)
        weights = np.zeros((len(distinct), 1, 1))
        return self.linear(nowhere, weights, distinct[:, None], block.reshape(-1).astype(np.int64)).reshape(array.shape)

    def mark(self, x: Indices, grid: Grid) -> Indices:
        """Says that the values of these wires, all of a node or more, lie on a grid."""
        for node in self._owners(x):
            self._grids[node.first_wire] = grid
        return x

    def grid(self, x: Indices) -> Grid | None:
        """Returns the grid that all of these wires lie on."""
        grids = {self._grids.get(node.first_wire) for node in self._owners(x)}
        grid = grids.pop() if len(grids) == 1 else None
        holds_zero = grid is None or grid.low <= 0 <= grid.high or not bool((x == ZERO_WIRE).any())
        return grid if holds_zero else None

    def only_owner(self, x: Indices) -> Node | None:
        """Returns the node that makes all of these wires; None where that are several, or some are zero."""
        owners = [] if bool((x == ZERO_WIRE).any()) else self._owners(x)
        return owners[0] if len(owners) == 1 else None

    def is_never_negative(self, x: Indices) -> bool:
        """Whether functions that are at least 0 make all of these wires, zeros aside."""
        return all(isinstance(node, Lookup) and never_negative(node.steps) for node in self._owners(x))

    def _owners(self, x: Indices) -> list[Node]:
        used, owners, next_one = np.unique(x[x >= 0]), [], 0
        while next_one < len(used):
            node = self.nodes[bisect_right(self._starts, int(used[next_one])) - 1]
            owners.append(node)
            next_one = int(np.searchsorted(used, node.first_wire + node.size))
        return owners


# ONNX operator name (with its domain before it when that is not the standard one) -> the function that imports it, and what users ask of it.

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
