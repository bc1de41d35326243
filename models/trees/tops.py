"""The tops of subtrees that one look-up can serve, and what two of them have to have in common to take the same index.

A top is a subtree's root and further splits below it, at most MOST_BITS; it ends in leaves or in further subtrees. Places are numbered as in a heap:
the root is 1, the children of place i are 2 i, where its comparison holds, and 2 i + 1.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Final, TypeAlias

import numpy as np

from cloakwork.models.arrays import Indices
from cloakwork.models.trees.ensemble import Edges

Pattern: TypeAlias = tuple[int, ...]

MOST_BITS: Final = 4
MOST_ENDS: Final = MOST_BITS + 1

# How two splits of a top are related; beyond SAME_EDGE they compare one feature.
_APART, SAME_EDGE, _BELOW, _ABOVE = range(
    4
)  # other features; one edge; the first threshold is below, or above, the second
_BELOW_MIXED, _ABOVE_MIXED, _HOLDS_MIXED, _FAILS_MIXED = range(
    4, 8
)  # NaN gives a pattern of its own: the first bit 1 0 1 0, the second 0 1 0 1
_RELATIONS: Final = 8


@dataclass(frozen=True)
class Top:
    splits: tuple[int, ...]  # places, parents before children
    ends: tuple[int, ...]


def _tops(place: int, splits: int) -> list[Top]:
    """Returns the tops with exactly this number of splits."""
    if splits == 0:
        return [Top((), (place,))]
    tops = []
    for on_left in range(splits):
        sides = itertools.product(_tops(2 * place, on_left), _tops(2 * place + 1, splits - 1 - on_left))
        tops += [Top((place, *a.splits, *b.splits), a.ends + b.ends) for a, b in sides]
    return tops


TOPS: Final = tuple(top for splits in range(MOST_BITS, 0, -1) for top in _tops(1, splits))
LEAF_TOP: Final = Top((), (1,))
PLACES: Final = tuple(sorted({place for top in TOPS for place in (*top.splits, *top.ends)}))


@dataclass(frozen=True)
class TopClass:
    """A top and the relations of its splits: which bits it reads, and which combinations of them there are."""

    top: Top
    relations: tuple[int, ...]  # of every pair of splits, in the order of itertools.combinations

    @cached_property
    def bit_of_split(self) -> tuple[int, ...]:
        """Splits on one edge read one bit."""
        bits: list[int] = []
        for second in range(len(self.top.splits)):
            twin = next((first for first in range(second) if self._relation(first, second) == SAME_EDGE), None)
            bits.append(max(bits, default=-1) + 1 if twin is None else bits[twin])
        return tuple(bits)

    @cached_property
    def patterns(self) -> tuple[Pattern, ...]:
        """Every combination of the bits that some sample may have."""
        first_split = [self.bit_of_split.index(bit) for bit in range(max(self.bit_of_split, default=-1) + 1)]
        groups: list[list[int]] = []  # bits of one feature
        for bit, split in enumerate(first_split):
            feature_group = next((g for g in groups if self._relation(first_split[g[0]], split) != _APART), None)
            if feature_group is None:
                groups.append([bit])
            else:
                feature_group.append(bit)
        choices = [self._of_feature([(bit, first_split[bit]) for bit in group]) for group in groups]
        rows = []
        for combination in itertools.product(*choices):
            merged = {bit: value for part in combination for bit, value in part}
            rows.append(tuple(merged[bit] for bit in range(len(first_split))))
        return tuple(sorted(rows))

    @cached_property
    def ends(self) -> tuple[int, ...]:
        """[patterns]: the number of the end that a sample with these bits reaches."""
        return tuple(self._end_of(pattern) for pattern in self.patterns)

    def _end_of(self, pattern: Pattern) -> int:
        place, bit = 1, dict(zip(self.top.splits, self.bit_of_split, strict=True))
        while place in bit:
            place = 2 * place + (1 - pattern[bit[place]])
        return self.top.ends.index(place)

    def _relation(self, first: int, second: int) -> int:
        pairs = itertools.combinations(range(len(self.top.splits)), 2)
        return self.relations[next(i for i, pair in enumerate(pairs) if pair == (first, second))]

    def _of_feature(self, group: list[tuple[int, int]]) -> list[tuple[tuple[int, int], ...]]:
        """Returns bits of thresholds on one feature: those above the value hold. NaN's where it gives others."""
        below = {bit: 0 for bit, _ in group}  # number of different thresholds below
        nan: dict[int, int] = {}
        for (a, first), (b, second) in itertools.combinations(group, 2):
            relation = self._relation(first, second)
            if relation in (_BELOW, _BELOW_MIXED):
                below[b] += 1
            elif relation in (_ABOVE, _ABOVE_MIXED):
                below[a] += 1
            if relation in (_BELOW_MIXED, _HOLDS_MIXED):
                nan.update({a: 1, b: 0})
            elif relation in (_ABOVE_MIXED, _FAILS_MIXED):
                nan.update({a: 0, b: 1})
        levels = sorted(set(below.values()))
        patterns = [tuple((bit, int(below[bit] >= level)) for bit, _ in group) for level in (*levels, len(group) + 1)]
        if nan:
            patterns.append(tuple((bit, value) for bit, value in self._nan_pattern(group, nan)))
        return list(dict.fromkeys(patterns))

    def _nan_pattern(self, group: list[tuple[int, int]], nan: dict[int, int]) -> list[tuple[int, int]]:
        """Returns a bit that no pair settles agrees with the pairs that it has."""
        for bit, _ in group:
            if bit in nan:
                continue
            nan[bit] = next(v for v in (0, 1) if self._agrees(group, {**nan, bit: v}, bit))
        return [(bit, nan[bit]) for bit, _ in group]

    def _agrees(self, group: list[tuple[int, int]], nan: dict[int, int], bit: int) -> bool:
        """Whether NaN's bits give no pair with `bit` a pattern that its relation does not have."""
        for (a, first), (b, second) in itertools.combinations(group, 2):
            if bit not in (a, b) or a not in nan or b not in nan:
                continue
            relation, pair = self._relation(first, second), (nan[a], nan[b])
            if (relation == _BELOW and pair == (1, 0)) or (relation == _ABOVE and pair == (0, 1)):
                return False
        return True


@cache
def top_class(number: int) -> TopClass:
    """Returns the class that `class_numbers` gives this number."""
    top_number, relations = number % len(TOPS), number // len(TOPS)
    top, pair_relations = TOPS[top_number], []
    for _ in itertools.combinations(range(len(top.splits)), 2):
        pair_relations.append(relations % _RELATIONS)
        relations //= _RELATIONS
    return TopClass(top, tuple(pair_relations))


def class_numbers(top_number: int, split_edges: Indices, edges: Edges) -> Indices:
    """Returns [tops]: for tops of one form. Args: split_edges: [tops, splits]."""
    numbers = np.zeros(len(split_edges), dtype=np.int64)
    feature = edges.feature[split_edges]
    factor = 1
    for first, second in itertools.combinations(range(split_edges.shape[1]), 2):
        related = np.flatnonzero(feature[:, first] == feature[:, second])
        if len(related):
            numbers[related] += factor * _relations(split_edges[related, first], split_edges[related, second], edges)
        factor *= _RELATIONS
    return numbers * len(TOPS) + top_number


def _relations(first: Indices, second: Indices, edges: Edges) -> Indices:
    """Returns the relations of edges on one feature."""
    rank, other = edges.rank[first], edges.rank[second]
    relations = np.select([first == second, rank < other, rank > other], [SAME_EDGE, _BELOW, _ABOVE], _HOLDS_MIXED)
    if edges.takes_missing:
        holds, other_holds = edges.missing[first] == 1, edges.missing[second] == 1
        relations = np.where((relations == _BELOW) & holds & ~other_holds, _BELOW_MIXED, relations)
        relations = np.where((relations == _ABOVE) & ~holds & other_holds, _ABOVE_MIXED, relations)
        relations = np.where((relations == _HOLDS_MIXED) & ~holds, _FAILS_MIXED, relations)
    return relations


# --- numbers for what the ends of a top are given ------------------------------------------------------------------------------------

# Labels of ends: 0 for what surrounds the subtree, equal numbers for equal values, new numbers in order. `LABELS` has them all.


def _labelled(ends: int) -> list[tuple[int, ...]]:
    rows: list[tuple[int, ...]] = [()]
    for _ in range(ends):
        rows = [(*row, label) for row in rows for label in range(max(row, default=0) + 2)]
    return rows


LABELS: Final = tuple(_labelled(MOST_ENDS))
LABEL_NUMBER: Final = np.full((MOST_ENDS + 1) ** MOST_ENDS, -1, dtype=np.int64)
LABEL_NUMBER[[sum(label * (MOST_ENDS + 1) ** i for i, label in enumerate(row)) for row in LABELS]] = range(len(LABELS))
