"""Wires of an imported graph that are functions of one other wire.

Every wire has a `source`: itself where it mixes several (or is the input), none where it is a constant, else the one wire that all of its operands
are functions of. Read off in one sweep: operands with one source have it in common. That source is the last one on every way from the input
(the dominator next to the root) and is computed in any case, so that a function of it never costs more than one look-up.

Wires of one node whose operands are alike, and theirs, share a `pattern`: the same program computes all of them, with parameters of their own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from cloakwork.models.arrays import Indices, Reals
from cloakwork.models.graph.functions import FUNCTIONS
from cloakwork.models.graph.ir import Graph, Input, Linear, Lookup, Node, Product, wires
from cloakwork.models.graph.merge_equal import affine_of, reader_counts
from cloakwork.models.graph.steps import apply_steps

CONSTANT: Final = -1  # as a source, and as a pattern
MOST_SHARED_STEPS: Final = 64  # of a program that several others would repeat
MOST_JOINED_STEPS: Final = 256  # of a program that several operands join
_MOST_STEPS: Final = 1 << 14
_SOURCE: Final = -2  # as a pattern
_NUMBERS_AT_ONCE: Final = 1 << 22
_HIGHEST: Final = np.iinfo(np.int64).max


class WireFunctions:
    """Facts [wires + 1], the last entry for the zero wire.

    Attributes:
        source: of each wire, as above.
        affine, scale, offset: a wire is scale times wire `affine` plus offset; of a constant the offset is its value.
        pattern: equal for wires whose programs differ in parameters alone.
        own_source, own_pattern: the same, as the wire itself is computed: later ones begin at a function whose program is long and shared.
        is_linear: computed by a linear node or an affine look-up, without a bootstrap of its own.
    """

    def __init__(self, graph: Graph) -> None:
        count = graph.wire_count + 1
        self.graph = graph
        self.owner = graph.owners()
        self.source = np.full(count, CONSTANT, dtype=np.int64)
        self.affine = np.full(count, CONSTANT, dtype=np.int64)
        self.scale, self.offset = np.zeros(count), np.zeros(count)
        self.pattern = np.full(count, CONSTANT, dtype=np.int64)
        self.own_source, self.own_pattern = self.source.copy(), self.pattern.copy()
        self.is_linear = np.zeros(count, dtype=bool)
        self._steps: list[int] = []  # of each pattern, about
        self._with_rows: list[bool] = []  # whether a linear node computes a part of it
        self._numbers: dict[tuple[int, bytes], int] = {}
        readers = reader_counts(graph)
        for position, node in enumerate(graph.nodes):
            if isinstance(node, Input):
                self._begin(np.arange(node.first_wire, node.first_wire + node.size))
            elif isinstance(node, Linear):
                self._linear(position, node)
            elif isinstance(node, Lookup):
                self._lookup(position, node)
            else:
                self._product(position, node)
            self._bound(node, int(readers[position]))

    # --- what a wire reads ---

    def reads(self, wire: Indices) -> list[Indices]:
        """Returns operands [wires] each of wires of one pattern; of a linear row those with weights that are no constants."""
        node = self.graph.nodes[int(self.owner[wire[0]])]
        local = wire - node.first_wire
        if isinstance(node, Lookup):
            return [node.gather[local]]
        if isinstance(node, Product):
            return list(node.gather[local].T)
        assert isinstance(node, Linear)
        gather = node.gather[local // node.weights.shape[1]]
        return list(gather[:, self._varying_columns(node, int(local[0]))].T)

    def linear_row(self, wire: Indices) -> tuple[Reals, Reals]:
        """Returns weights [wires, operands] on `reads` and the bias [wires], constants among the operands added to it."""
        node = self.graph.nodes[int(self.owner[wire[0]])]
        assert isinstance(node, Linear)
        position, row = np.divmod(wire - node.first_wire, node.weights.shape[1])
        weights, gather = node.weights[node.block[position], row], node.gather[position]
        varying = self._varying_columns(node, int(wire[0]) - node.first_wire)
        constant = np.where(self.source[gather] == CONSTANT, weights * self.offset[gather], 0.0).sum(axis=1)
        return weights[:, varying], node.bias[node.block[position], row] + constant

    def _varying_columns(self, node: Linear, local: int) -> Indices:
        position = local // node.weights.shape[1]
        used = (node.weights[node.block[position]] != 0).any(axis=0)
        return np.flatnonzero(used & (self.source[node.gather[position]] != CONSTANT))

    def has_rows(self, pattern: int) -> bool:
        """Whether linear nodes compute parts of the wires of this pattern."""
        return self._with_rows[pattern]

    # --- node by node ---

    def _begin(self, node_wires: Indices) -> None:
        self.source[node_wires] = self.affine[node_wires] = node_wires
        self.scale[node_wires], self.offset[node_wires], self.pattern[node_wires] = 1.0, 0.0, _SOURCE

    def _set_constant(self, node_wires: Indices, value: Reals) -> None:
        """What is not finite is left as it is: `check` has to see it."""
        finite = np.isfinite(value)
        self._begin(node_wires[~finite])
        node_wires = node_wires[finite]
        self.source[node_wires] = self.affine[node_wires] = self.pattern[node_wires] = CONSTANT
        self.scale[node_wires], self.offset[node_wires] = 0.0, value[finite]

    def _set_affine(self, node_wires: Indices, of: Indices, scale: Reals, offset: Reals) -> None:
        self.affine[node_wires], self.scale[node_wires], self.offset[node_wires] = of, scale, offset
        still = (scale == 0) | ~np.isfinite(scale)
        self._set_constant(node_wires[still], np.where(scale == 0, offset, np.nan)[still])

    def _lookup(self, position: int, node: Lookup) -> None:
        node_wires, read = np.arange(node.first_wire, node.first_wire + node.size), node.gather
        self.source[node_wires] = self.source[read]
        factors = affine_of(node)
        if factors is not None:
            scale, offset = factors
            self.is_linear[node_wires] = True
            self._set_affine(
                node_wires, self.affine[read], scale * self.scale[read], scale * self.offset[read] + offset
            )
        else:
            self.affine[node_wires], self.scale[node_wires] = node_wires, 1.0
            fixed = self.source[read] == CONSTANT
            if fixed.any():
                value = apply_steps(node.steps, self.offset[read[fixed]], node.function[fixed])
                self._set_constant(node_wires[fixed], value)
        self._number(position, node_wires[:, None], read[:, None], len(node.steps))

    def _product(self, position: int, node: Product) -> None:
        node_wires, read = np.arange(node.first_wire, node.first_wire + node.size), node.gather
        self.source[node_wires] = self._common(self.source[read], node_wires)
        self.affine[node_wires], self.scale[node_wires] = node_wires, 1.0
        fixed = self.source[node_wires] == CONSTANT
        if fixed.any():
            with np.errstate(all="ignore"):
                self._set_constant(node_wires[fixed], FUNCTIONS[node.operator](*self.offset[read[fixed]].T))
        if node.operator != "Div" and node.operator != "Mul":  # a choice of equals, or their larger one
            same = (self.source[node_wires] != CONSTANT) & (read[:, -1] == read[:, -2])
            x = read[same, -1]
            self.is_linear[node_wires[same]] = True
            self._set_affine(node_wires[same], self.affine[x], self.scale[x], self.offset[x])
            self.source[node_wires[same]] = self.source[x]
        if node.operator == "Mul":
            constant = self.source[read] == CONSTANT
            for known, other in ((0, 1), (1, 0)):
                some = constant[:, known] & ~constant[:, other]
                factor, x = self.offset[read[some, known]], read[some, other]
                self.is_linear[node_wires[some]] = True
                self._set_affine(node_wires[some], self.affine[x], factor * self.scale[x], factor * self.offset[x])
        self._number(position, node_wires[:, None], read, 1)

    def _linear(self, position: int, node: Linear) -> None:
        rows = node.weights.shape[1]
        used = (node.weights != 0).any(axis=1)
        self.is_linear[wires(node)] = True
        for chosen in _parts(len(node.gather), max(node.gather.shape[1], rows)):
            node_wires = node.first_wire + np.arange(chosen.start * rows, chosen.stop * rows).reshape(-1, rows)
            gather, block = node.gather[chosen], node.block[chosen]
            source = np.where(used[block], self.source[gather], CONSTANT)
            common = self._common(source, node_wires[:, 0])
            mixed = common == node_wires[:, 0]
            self._begin(node_wires[mixed].reshape(-1))
            self._functions_of_one(node, node_wires[~mixed], gather[~mixed], block[~mixed], common[~mixed])
            read = np.where(source == CONSTANT, -1, gather)[~mixed]
            self._number(position, node_wires[~mixed], read, 1)

    def _functions_of_one(
        self, node: Linear, node_wires: Indices, gather: Indices, block: Indices, common: Indices
    ) -> None:
        """Args: node_wires [P, R] of positions that read gather [P, K]; common [P]: the one source of each."""
        for part in _parts(len(node_wires), node.weights.shape[1] * node.weights.shape[2]):
            wire, read = node_wires[part], gather[part]
            weights, bias = node.weights[block[part]], node.bias[block[part]]
            varying = (self.source[read] != CONSTANT) & (weights != 0).any(axis=1)
            offset = bias + np.einsum("prk,pk->pr", weights, self.offset[read])
            scale = np.einsum("prk,pk->pr", weights, np.where(varying, self.scale[read], 0.0))
            high = np.where(varying, self.affine[read], CONSTANT).max(axis=1)
            same = high == np.where(varying, self.affine[read], _HIGHEST).min(axis=1)
            self.source[wire] = common[part, None]
            self.affine[wire], self.scale[wire], self.offset[wire] = wire, 1.0, 0.0
            fixed = common[part] == CONSTANT
            self._set_constant(wire[fixed].reshape(-1), offset[fixed].reshape(-1))
            of = np.broadcast_to(high[:, None], wire.shape)
            self._set_affine(
                wire[same].reshape(-1), of[same].reshape(-1), scale[same].reshape(-1), offset[same].reshape(-1)
            )

    def _common(self, source: Indices, node_wires: Indices) -> Indices:
        """Returns the one source of each row [E, K], CONSTANT where there is none at all, itself where there are several."""
        high = source.max(axis=1)
        low = np.where(source == CONSTANT, _HIGHEST, source).min(axis=1)
        return np.where((high == CONSTANT) | (high == low), high, node_wires)

    # --- patterns ---

    def _number(self, position: int, node_wires: Indices, read: Indices, steps: int) -> None:
        """Numbers patterns of node_wires [E, R] that read [E, K]; sources and constants have none."""
        if not node_wires.size:
            return
        distinct, first, index = np.unique(self.pattern[read], axis=0, return_index=True, return_inverse=True)
        numbers = []
        for key, example in zip(distinct, first.tolist(), strict=True):
            number = self._numbers.setdefault((position, key.tobytes()), len(self._steps))
            numbers.append(number)
            if number == len(self._steps):
                self._steps.append(steps + self._steps_before(key[key != CONSTANT], read[example]))
                is_row = isinstance(self.graph.nodes[position], Linear)
                self._with_rows.append(is_row or any(self._with_rows[k] for k in key.tolist() if k >= 0))
        pattern = np.broadcast_to(np.array(numbers, dtype=np.int64)[index.reshape(-1)][:, None], node_wires.shape)
        some = (self.source[node_wires] != node_wires) & (self.source[node_wires] != CONSTANT)
        self.pattern[node_wires[some]] = pattern[some]

    def _steps_before(self, patterns: Indices, read: Indices) -> int:
        if len(patterns) == 1:
            return 0 if patterns[0] == _SOURCE else self._steps[int(patterns[0])]
        visited: set[int] = set()
        waiting = [int(wire) for wire in read if self._is_inner(int(wire))]
        total = 0
        while waiting and total <= MOST_JOINED_STEPS:
            wire = waiting.pop()
            if wire in visited:
                continue
            visited.add(wire)
            node = self.graph.nodes[int(self.owner[wire])]
            total += len(node.steps) if isinstance(node, Lookup) else 1
            waiting += [int(other[0]) for other in self.reads(np.array([wire])) if self._is_inner(int(other[0]))]
        return total

    def _is_inner(self, wire: int) -> bool:
        return self.source[wire] not in (CONSTANT, wire)

    def _bound(self, node: Node, readers: int) -> None:
        """Ends programs that get too long: later ones begin behind them, and operands are not joined."""
        node_wires = np.arange(node.first_wire, node.first_wire + node.size)
        some = node_wires[self.pattern[node_wires] >= 0]
        steps = np.array([self._steps[number] for number in self.pattern[some].tolist()], dtype=np.int64)
        is_lookup = isinstance(node, Lookup)
        if not is_lookup:
            self._begin(some[steps > MOST_JOINED_STEPS])
        self.own_source[node_wires], self.own_pattern[node_wires] = self.source[node_wires], self.pattern[node_wires]
        most = MOST_SHARED_STEPS if readers > 1 else _MOST_STEPS
        self._begin(some[steps > most])


def _parts(count: int, width: int) -> Iterator[slice]:
    """Slices of `count` positions with a bounded number of numbers each."""
    size = max(1, _NUMBERS_AT_ONCE // max(width, 1))
    for start in range(0, count, size):
        yield slice(start, min(start + size, count))
