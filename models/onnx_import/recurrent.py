"""RNN, GRU and LSTM over a sequence of fixed length, unrolled: a linear layer and look-ups for each step.

A unit of an RNN takes 1 look-up a step, one of a GRU 7 (3 gates, 2 products), one of an LSTM 11 (4 gates, 3 products, the cell's tanh); the first
step, from a state of zeros, fewer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from cloakwork.models.arrays import Indices, Reals
from cloakwork.models.errors import UnsupportedNode, some
from cloakwork.models.graph.ir import ZERO_WIRE
from cloakwork.models.onnx_import.context import Context, Encrypted, OnnxNode, bounded, operator
from cloakwork.models.onnx_import.linear import product

MOST_TIMES: Final = 64
_FUNCTIONS: Final = ("Relu", "Sigmoid", "Softsign", "Softplus", "Tanh")
_DEFAULTS: Final = {"RNN": ("Tanh",), "GRU": ("Sigmoid", "Tanh"), "LSTM": ("Sigmoid", "Tanh", "Tanh")}
_GATES: Final = {"RNN": 1, "GRU": 3, "LSTM": 4}
_RESTRICTIONS: Final = (
    f"weights constant; at most {MOST_TIMES} steps, all of them read; no clip, peepholes or input_forget; "
    + ", ".join(_FUNCTIONS)
)


@dataclass(frozen=True, eq=False)
class _Cell:
    """One direction: x [I], states [H] to states. Weights [gates H, I], [gates H, H], biases [gates H]."""

    context: Context
    w: Reals
    r: Reals
    w_bias: Reals
    r_bias: Reals
    functions: tuple[str, ...]
    reset_after: bool  # of a GRU: linear_before_reset

    def sums(self, x: Indices, h: Indices, rows: slice) -> Indices:
        """Returns x W' + h R' + biases of some gates."""
        weights = np.concatenate([self.w[rows], self.r[rows]], axis=1)
        bias = self.w_bias[rows] + self.r_bias[rows]
        sums: Indices = self.context.linear(np.concatenate([x, h])[None], weights[None], bias[None])[0]
        return sums

    def added(self, a: Indices, b: Indices, sign: float = 1.0) -> Indices:
        return self.context.linear(np.stack([a, b], axis=1), [[[1.0, sign]]])[:, 0]


def _rnn(cell: _Cell, x: Indices, h: Indices, c: Indices) -> tuple[Indices, Indices]:
    return cell.context.lookup(cell.sums(x, h, slice(None)), cell.functions[0]), c


def _gru(cell: _Cell, x: Indices, h: Indices, c: Indices) -> tuple[Indices, Indices]:
    """z, r = f(..); n = g(x W + r (h R + b)) or g(x W + (r h) R); h' = n + z (h - n)."""
    size, context = len(h), cell.context
    gates = context.lookup(cell.sums(x, h, slice(0, 2 * size)), cell.functions[0])
    z, r = gates[:size], gates[size:]
    last = slice(2 * size, None)
    if cell.reset_after:
        inner = context.linear(h[None], cell.r[None, last], cell.r_bias[None, last])[0]
        outer = context.linear(x[None], cell.w[None, last], cell.w_bias[None, last])[0]
        total = cell.added(outer, product(context, r, inner))
    else:
        total = cell.sums(x, product(context, r, h), last)
    new = context.lookup(total, cell.functions[1])
    return cell.added(new, product(context, z, cell.added(h, new, -1.0))), c


def _lstm(cell: _Cell, x: Indices, h: Indices, c: Indices) -> tuple[Indices, Indices]:
    """i, o, f = f(..); c' = f c + i g(..); h' = o h(c')."""
    size, context = len(h), cell.context
    sums = cell.sums(x, h, slice(None))
    i, o, f = np.split(context.lookup(sums[: 3 * size], cell.functions[0]), 3)
    new = context.lookup(sums[3 * size :], cell.functions[1])
    cell_state = cell.added(product(context, f, c), product(context, i, new))
    return product(context, o, context.lookup(cell_state, cell.functions[2])), cell_state


_STEP: Final[dict[str, Callable[[_Cell, Indices, Indices, Indices], tuple[Indices, Indices]]]] = {
    "RNN": _rnn,
    "GRU": _gru,
    "LSTM": _lstm,
}


@operator("RNN", cost="1 for each unit and step", restrictions=_RESTRICTIONS)
@operator("GRU", cost="7 for each unit and step, fewer in the first", restrictions=_RESTRICTIONS)
@operator("LSTM", cost="11 for each unit and step, fewer in the first", restrictions=_RESTRICTIONS)
def recurrent(context: Context, node: OnnxNode) -> list[Encrypted]:
    """Computes recurrent layers. Outputs: all hidden states [times, directions, batch, H], the last ones and, of an LSTM, the last cells
    [directions, batch, H]."""
    x = node.encrypted(0)
    batch_first = bool(node.attributes.get("layout", 0))
    x = np.swapaxes(x, 0, 1) if batch_first else x
    _check(node, x)
    directions = list(_directions(context, node, x.shape[-1]))
    hidden, last, cells = [], [], []
    for number, (cell, backwards) in enumerate(directions):
        outputs, h, c = _unrolled(node, cell, x, number, backwards)
        hidden.append(outputs)
        last.append(h)
        cells.append(c)
    results = [np.stack(hidden, axis=1), np.stack(last), np.stack(cells)]
    if batch_first:
        results = [results[0].transpose(2, 0, 1, 3), *(state.swapaxes(0, 1) for state in results[1:])]
    return [Encrypted(result) for result in (results if node.operator == "LSTM" else results[:2])]


def _check(node: OnnxNode, x: Indices) -> None:
    if x.ndim != 3 or not 1 <= x.shape[0] <= MOST_TIMES:
        raise UnsupportedNode(
            f"over a sequence of shape {list(x.shape)}; expected [times, batch, inputs] with 1 to {MOST_TIMES} times"
        )
    lengths = node.optional_constant(4)
    if lengths is not None and bool((lengths != x.shape[0]).any()):
        raise UnsupportedNode("has sequences of different lengths; pad them before, and read all steps")
    if node.attributes.get("clip") is not None or node.attributes.get("input_forget", 0) or node.has(7):
        raise UnsupportedNode("has a clip, peepholes or input_forget; export without")


def _directions(context: Context, node: OnnxNode, inputs: int) -> Iterator[tuple[_Cell, bool]]:
    """Yields cells, and whether they read backwards."""
    direction = _text(node.attributes.get("direction", "forward"))
    backwards = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}[direction]
    w, r = (np.asarray(node.constant(i), dtype=np.float64) for i in (1, 2))
    gates, size = _GATES[node.operator], r.shape[-1]
    expected = [(len(backwards), gates * size, inputs), (len(backwards), gates * size, size)]
    if [w.shape, r.shape] != expected:
        raise UnsupportedNode(f"has weights of shapes {list(w.shape)} and {list(r.shape)}; expected {expected}")
    given = node.optional_constant(3)
    bias = np.zeros((len(backwards), 2 * gates * size)) if given is None else np.asarray(given, dtype=np.float64)
    default = _DEFAULTS[node.operator]
    functions = [_text(name).capitalize() for name in node.attributes.get("activations", default * len(backwards))]
    if len(functions) != len(default) * len(backwards) or not set(functions) <= set(_FUNCTIONS):
        raise UnsupportedNode(
            f"has activations {some(functions)}; expected {len(default)} of {', '.join(_FUNCTIONS)} for each direction"
        )
    for k, reverse in enumerate(backwards):
        chosen = tuple(functions[k * len(default) : (k + 1) * len(default)])
        halves = bias[k, : gates * size], bias[k, gates * size :]
        yield _Cell(context, w[k], r[k], *halves, chosen, bool(node.attributes.get("linear_before_reset", 0))), reverse


def _unrolled(
    node: OnnxNode, cell: _Cell, x: Indices, number: int, backwards: bool
) -> tuple[Indices, Indices, Indices]:
    """Returns all hidden states [times, batch, H], the last one and the last cell [batch, H]."""
    times, batch, _ = x.shape
    size = cell.r.shape[1]
    bounded(times, batch, len(cell.w))
    h, c = (_state(cell.context, node, index, number, (batch, size)) for index in (5, 6))
    outputs = np.empty((times, batch, size), dtype=np.int64)
    for time in reversed(range(times)) if backwards else range(times):
        for sample in range(batch):
            h[sample], c[sample] = _STEP[node.operator](cell, x[time, sample], h[sample].copy(), c[sample].copy())
        outputs[time] = h
    return outputs, h, c


def _state(context: Context, node: OnnxNode, index: int, number: int, shape: tuple[int, int]) -> Indices:
    """Returns the state that a direction begins with: an input, or zeros."""
    value = node.inputs[index] if node.has(index) and (index == 5 or node.operator == "LSTM") else None
    if value is None:
        return np.full(shape, ZERO_WIRE, dtype=np.int64)
    wires = value.wires if isinstance(value, Encrypted) else context.constant(value)
    wires = np.swapaxes(wires, 0, 1) if node.attributes.get("layout", 0) else wires
    if wires.shape[1:] != shape or number >= len(wires):
        raise UnsupportedNode(
            f"has a first state of shape {list(wires.shape)}; expected [directions, {shape[0]}, {shape[1]}]"
        )
    return np.array(wires[number])


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
