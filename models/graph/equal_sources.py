"""Equal sources: wires of a levelled graph that hold the same ciphertext, and rows with the same combination.

Look-ups count as equal when they are the same function of the same integer combination q of wires, up to the signs of both and a rotation:

    f(q + b) = +-g(+-q + c)  for all q

A sign of the input or a rotation gives other words for the same function; a sign of the table gives the negated words on sets whose gadget
has one level, because the negated accumulator is decomposed into the negated digits (tests/noise/test_equal_lookups.py measures it).
Combinations are compared by two random functions of them modulo 2^64: sums over the wires, in whatever order, of a number for the weight times one
for the wire, which turn signs by themselves. A wire that a row reads twice has to be read once for that (merge_equal).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from itertools import repeat
from typing import Any, Final, TypeAlias
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from cloakwork.models.arrays import Indices, Reals
from cloakwork.models.graph.ir import Graph, Linear, Lookup, phase_bias, wires
from cloakwork.models.graph.tables import phase_functions

Hashes: TypeAlias = NDArray[np.uint64]  # [.., 2]
# Numbers that are equal when functions are, of an element, its turn and its constant; `still`: where its combination is always zero.
# A slice says which of the points.
_Values: TypeAlias = Callable[["_Element", slice], Reals]

_SEED: Final = 20261122  # of the random functions; any would do
_POINTS: Final = 4096  # of half a turn, halfway between the points of any table
_SAME: Final = 1e-9  # of the torus: tables that differ by less differ in no word, but for rounding
_ALL: Final = slice(None)
_SOME: Final = slice(
    0, _POINTS, 8
)  # few enough to be made of every function, so many that tables of one accumulator seldom agree on them
# Of distances from integers, which are the same for opposite values and move by no more than what they are of.
_MARK: Final = np.random.default_rng(_SEED).uniform(1, 2, _POINTS // _SOME.step)
_MARKS_APART: Final = 2 * _MARK.sum() * _SAME + 1e-9


@dataclass(frozen=True, eq=False)
class Sources:
    """Facts of every wire, [wires] each.

    It is `sign` times the wire `wire`, the first of its equals. `combination`, of results of linear nodes, is the same number for the same
    weights on the same sources, up to the sign `turn` and whatever the constant: equal ones get the same noise by keyswitch and modulus switch,
    opposite ones nearly the opposite one by the keyswitch.
    `still` results have no weights at all, so that nothing brings them noise.
    """

    wire: Indices
    sign: Indices
    combination: Indices
    turn: Indices
    still: NDArray[np.bool_]


_KNOWN: Final[WeakKeyDictionary[Graph, Sources]] = WeakKeyDictionary()


def find_sources(graph: Graph) -> Sources:
    """Finds equal sources.

    Args:
        graph: before quantisation (equal means written the same) or after. The same graph, the same answer: it is searched once.
    """
    if graph not in _KNOWN:
        _KNOWN[graph] = _Search(graph).run()
    return _KNOWN[graph]


class _Search:
    """A search through the nodes in order; every wire gets a hash, equal ones the same (or the negated) one."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        count = graph.wire_count
        self._random = np.random.default_rng(_SEED)
        self._hash: Hashes = np.zeros((count + 1, 2), dtype=np.uint64)  # the last entry is the zero wire's
        self._constant = np.zeros(count)  # of linear rows: a phase, or the bias before quantisation
        one = np.ones(count, dtype=np.int64)
        still = np.zeros(count, dtype=bool)
        self._found = Sources(np.arange(count), one, np.arange(count), one.copy(), still)
        self._rows: dict[bytes, int] = {}  # hash of a combination -> the first wire that holds it
        self._seen: dict[tuple[Any, ...], _Seen] = {}  # by what has to be the same beside the combination

    def run(self) -> Sources:
        for node in self._graph.nodes:
            if isinstance(node, Linear):
                self._linear(node)
                continue
            self._hash[wires(node)] = self._random.integers(0, 1 << 64, (node.size, 2), dtype=np.uint64)
            if isinstance(node, Lookup):
                self._lookup(node)
        return self._found

    def _linear(self, node: Linear) -> None:
        constants = _constants(self._graph, node)
        hashes = np.empty((len(node.gather), node.weights.shape[1], 2), dtype=np.uint64)
        for block in np.unique(node.block):
            chosen, weights = np.flatnonzero(node.block == block), _scrambled(node.weights[block]).T
            for part in range(2):
                hashes[chosen, :, part] = self._hash[node.gather[chosen], part] @ weights
        node_wires, flat = wires(node), hashes.reshape(-1, 2)
        turn = np.where(flat[:, 0] <= _negated(flat[:, 0]), 1, -1)
        self._hash[node_wires] = flat
        self._constant[node_wires] = constants[node.block].reshape(-1)
        self._found.turn[node_wires] = turn
        self._found.still[node_wires] = ~flat.any(axis=1)
        canonical, first, index = np.unique(
            np.where(turn[:, None] > 0, flat, _negated(flat)), axis=0, return_index=True, return_inverse=True
        )
        numbers = [
            self._rows.setdefault(row.tobytes(), node_wires.start + int(i))
            for row, i in zip(canonical, first, strict=True)
        ]
        self._found.combination[node_wires] = np.array(numbers, dtype=np.int64)[index.reshape(-1)]

    def _lookup(self, node: Lookup) -> None:
        """Looks for an earlier equal of every element. What has a combination of its own is not evaluated."""
        quantised = self._graph.scale is not None
        kind = tuple((step.operator, step.reads) for step in node.steps if not quantised)
        shifts = () if node.shifts is None else tuple(node.shifts.tolist())
        still = self._found.still & quantised & (not shifts)
        values = _samples(self._graph, node) if quantised else _as_written(node)
        outputs = node.size // len(node.gather)

        def element(i: int) -> _Element:
            row = int(node.gather[i])
            first, turn = node.first_wire + i * outputs, int(self._found.turn[row])
            return _Element(first, i, turn, float(self._constant[row]), bool(still[row]), values)

        read = self._found.combination[node.gather]
        if shifts:  # what is rotated has no sign
            read = 2 * read + (self._found.turn[node.gather] > 0)
        for i in self._seen.setdefault((kind, shifts), _Seen()).add(read, element):
            candidate = element(i)
            twin = self._seen[kind, shifts].like(int(read[i])).twin(candidate, quantised)
            if twin is None:
                continue
            other, sign = twin
            mine = slice(candidate.first_wire, candidate.first_wire + outputs)
            equals = slice(other.first_wire, other.first_wire + outputs)
            self._found.wire[mine], self._found.sign[mine] = np.arange(equals.start, equals.stop), sign
            self._hash[mine] = self._hash[equals] if sign > 0 else _negated(self._hash[equals])


class _Seen:
    """The elements of look-ups by what they read; most are the only ones, and are not made before a second comes."""

    def __init__(self) -> None:
        self._alone: dict[int, tuple[Callable[[int], _Element], int]] = {}
        self._made: dict[int, _Alike] = {}

    def add(self, read: Indices, element: Callable[[int], _Element]) -> list[int]:
        """Takes in what reads something new; the others are to be compared with those that `like` gives. Args: read: [E]."""
        keys, first, count = np.unique(read, return_index=True, return_counts=True)
        known = [key in self._alone or key in self._made for key in keys.tolist()]
        new = (count == 1) & ~np.array(known, dtype=bool)
        self._alone.update(zip(keys[new].tolist(), zip(repeat(element), first[new].tolist()), strict=False))
        left = np.ones(len(read), dtype=bool)
        left[first[new]] = False
        return np.flatnonzero(left).tolist()

    def like(self, key: int) -> _Alike:
        """Returns those that read the same, to be added to."""
        alike = self._made.setdefault(key, _Alike())
        if key in self._alone:
            element, i = self._alone.pop(key)
            alike.first = element(i)
        return alike


class _Alike:
    """Elements that read the same combination, none equal to another: by a number that equal and opposite functions have in common."""

    def __init__(self) -> None:
        self.first: _Element | None = None  # compared with nothing yet
        self._elements: list[_Element] = []
        self._marks: list[float] = []  # sorted, and of each where its element is
        self._places: list[int] = []

    def twin(self, element: _Element, on_torus: bool) -> tuple[_Element, int] | None:
        """Returns the first equal or opposite one and the sign; else the element is one of them from now on."""
        if self.first is not None:
            first, self.first = self.first, None
            self._add(first, first.mark(on_torus))
        mark = element.mark(on_torus)
        near = slice(bisect_left(self._marks, mark - _MARKS_APART), bisect_right(self._marks, mark + _MARKS_APART))
        for place in sorted(self._places[near]):
            if sign := element.relation(self._elements[place], on_torus):
                return self._elements[place], sign
        self._add(element, mark)
        return None

    def _add(self, element: _Element, mark: float) -> None:
        at = bisect_left(self._marks, mark)
        self._marks.insert(at, mark)
        self._places.insert(at, len(self._elements))
        self._elements.append(element)


@dataclass(eq=False)
class _Element:
    """One function of a row: of turn * q + constant, q the canonical combination."""

    first_wire: int
    index: int
    turn: int
    constant: float
    still: bool  # q is always zero
    values_of: _Values
    _values: Reals | None = None

    def relation(self, other: _Element, on_torus: bool) -> int:
        """Returns 1 or -1 when the functions are equal or opposite, 0 when they are neither."""
        a, b = self.values, other.values
        if a.shape != b.shape:
            return 0
        if not on_torus:
            return int(np.array_equal(a, b))
        for sign in (1, -1):
            difference = a - sign * b
            if np.abs(difference - np.rint(difference)).max() <= _SAME:
                return sign
        return 0

    def mark(self, on_torus: bool) -> float:
        """Returns a mark that equal and opposite functions share, but for less than _MARKS_APART."""
        values = self.values_of(self, _SOME)
        if not on_torus:
            return float(hash((values + 0.0).tobytes()))  # + 0.0: of -0.0 too
        return 0.0 if self.still else float(_MARK @ np.abs(values - np.rint(values)))

    @property
    def values(self) -> Reals:
        if self._values is None:
            self._values = self.values_of(self, _ALL)
        return self._values


def _as_written(node: Lookup) -> _Values:
    """Before quantisation: sign, constant and parameters."""

    def values(element: _Element, chosen: slice) -> Reals:
        function = int(node.function[element.index])
        parameters = [np.ravel(parameter[function]) for step in node.steps for parameter in step.parameters]
        return np.concatenate([[element.turn, element.constant], *parameters])

    return values


def _samples(graph: Graph, node: Lookup) -> _Values:
    """Returns the result's phase for q on half a turn; the other half gives the negated ones."""
    functions, index = phase_functions(graph, node)
    points = (np.arange(_POINTS) + 0.5) / (2 * _POINTS) - 0.25

    def values(element: _Element, chosen: slice) -> Reals:
        q = np.zeros(1) if element.still else points[chosen]
        phase = element.turn * q + element.constant
        half_turns = np.floor(2 * (phase + 0.25))
        result = functions[int(index[element.index])](phase - half_turns / 2)
        return np.where(half_turns % 2 == 0, result, -result)

    return values


def _scrambled(weights: NDArray[Any]) -> NDArray[np.uint64]:
    """Returns odd numbers modulo 2^64 that stand for the weights, with their signs, and 0 for 0: products with odd numbers lose no bit of a hash,
    where those with 2^49 would leave 15. Source: [SLF14] the finaliser of SplitMix64; ours makes the result odd."""
    bits = np.abs(weights.astype(np.float64)).view(np.uint64).copy()
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        bits = (bits ^ (bits >> np.uint64(shift))) * np.uint64(factor)
    odd = (bits ^ (bits >> np.uint64(31))) | np.uint64(1)
    signed: NDArray[np.uint64] = np.where(weights < 0, _negated(odd), odd)
    return np.where(weights == 0, np.uint64(0), signed)


def _constants(graph: Graph, node: Linear) -> Reals:
    """Returns [G, R]: phases of the rows' constants, biases before quantisation."""
    return node.bias if graph.scale is None else phase_bias(graph, node)


def _negated(hashes: NDArray[np.uint64]) -> NDArray[np.uint64]:
    result: NDArray[np.uint64] = np.uint64(0) - hashes
    return result
