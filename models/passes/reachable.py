"""The few values that an integer sum can have: of bits and choices by bits, mostly far fewer than its range holds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from cloakwork.models.arrays import Indices, Reals
from cloakwork.models.graph.ir import Linear, Node

MOST_VALUES: Final = 1024


def reachable_sums(terms: Sequence[tuple[int, Indices | None]]) -> Indices | None:
    """Returns all sums of one value of each term times its weight, in order; None where they are many, or a term's values are not known."""
    sums: Indices = np.zeros(1, dtype=np.int64)
    if are_many(np.array([len(values) - 1 for weight, values in terms if values is not None and weight])):
        return None
    for weight, values in terms:
        if values is None or len(sums) * len(values) > 16 * MOST_VALUES:
            return None
        sums = np.unique(sums[:, None] + weight * values[None, :])
        if len(sums) > MOST_VALUES:
            return None
    return sums


def are_many(spans: Reals | Indices) -> bool:
    """Whether sums of integers have more values than are counted: those of one of m and one of n have m + n - 1 at least. Args: spans: m - 1, .."""
    return 1 + float(spans.sum()) > MOST_VALUES


def integers_between(low: float, high: float) -> Indices | None:
    """Returns None where they are many."""
    return np.arange(round(low), round(high) + 1) if high - low < MOST_VALUES else None


class FewValues:
    """The few values of the wires of an unfinished graph.

    Args:
        low, high: of every wire, integers; they become known with `nodes`, of which rows are looked up.
    """

    def __init__(self, low: Reals, high: Reals, nodes: Sequence[Node]) -> None:
        self.values: dict[int, Indices] = {}  # of results of look-ups, where they are fewer than their range has
        self._low, self._high, self._nodes = low, high, nodes
        self._sums: dict[int, Indices | None] = {}

    def sums(self, wire: int) -> Indices | None:
        """Returns the values that a row can have, where they are few."""
        if wire not in self._sums:
            node = next(each for each in self._nodes if each.first_wire <= wire < each.first_wire + each.size)
            assert isinstance(node, Linear)
            position, row = divmod(wire - node.first_wire, node.weights.shape[1])
            weights = node.weights[node.block[position], row]
            used = np.flatnonzero(weights)
            read = node.gather[position, used]
            known = np.array([wire in self.values for wire in read.tolist()], dtype=bool)
            whole = read[(read >= 0) & ~known]
            if are_many(self._high[whole] - self._low[whole]):
                self._sums[wire] = None
                return None
            terms = [(int(w), self._of(int(r))) for w, r in zip(weights[used], read, strict=True) if r >= 0]
            self._sums[wire] = reachable_sums(terms)
        return self._sums[wire]

    def _of(self, wire: int) -> Indices | None:
        known = self.values.get(wire)
        return integers_between(self._low[wire], self._high[wire]) if known is None else known
