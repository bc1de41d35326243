"""Comparisons of two digits in the very indices that read them, which saves their look-ups.

Such a comparison is whether A + B + C >= 2, of three bits of the client (grid_bits.py). An index with room reads the sum in place of the comparison,
so that each value of it becomes two slots, {0, 1} and {2, 3}: weights stay small integers, and the sum has hardly any noise. A look-up is saved where
all indices that read a comparison have the room. Covers for half the slots leave it, and take more look-ups; every tree has what is cheaper for it.

What is chosen depends on the order of thresholds and on leaf values, not on where thresholds are.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from cloakwork.models.arrays import Indices
from cloakwork.models.trees.cover import Covers, Index, TreeLookup, canonical_table, index_of
from cloakwork.models.trees.ensemble import Edges
from cloakwork.models.trees.tree_program import squared_norm

_MOST_BITS: Final = 10  # of an index that is looked at: all their combinations are
_MOST_SUMS: Final = 2  # in an index: three have 64 values
_FEW_BITS: Final = 4  # of an index for which any small weights are tried
_AT_ONCE: Final = 16  # candidates
_FACTORS: Final = (1, 2, 3, 4)  # of the other bits' weights
_WEIGHTS: Final = (1, -1, 2, -2, 3, -3, 4, -4)  # of a sum
_Bits: TypeAlias = frozenset[int]


@dataclass(frozen=True, eq=False)
class Rules:
    """Rules of digit sums. Args: wide: [edges], compared by two digits. fits: whether a look-up may see this L2 norm of weights on results of
    look-ups."""

    edges: Edges
    wide: NDArray[np.bool_]
    slots: int
    correlation: float
    fits: Callable[[float], bool]

    def norm_fits(self, covers: Covers) -> bool:
        return all(self.fits(math.sqrt(squared_norm(lookup.weights, covers, self.edges.feature, self.correlation)))
                   for lookup in covers.lookups)  # fmt: skip


def widened(covers: Covers, factor: int) -> Covers:
    """Returns the same for `factor` times as many slots, of which it uses every `factor`th."""

    def wide(lookup: TreeLookup) -> TreeLookup:
        entries = np.zeros(factor * len(lookup.entries))
        entries[::factor] = lookup.entries
        weights = tuple((bit, factor * weight) for bit, weight in lookup.weights)
        return TreeLookup(weights, factor * lookup.constant, tuple(entries.tolist()))

    return replace(_mapped(covers, wide), flag_step=factor * covers.flag_step)


def with_digit_sums(ways: Sequence[Covers], rules: Rules) -> list[Covers]:
    """Returns some covers of the same trees with sums of digits in their indices, and one of trees from either; those that seem cheapest first.

    Args:
        ways: the first of which fits the noise as it is.
    """
    candidates = [_with_sums(covers, rules) for covers in ways]
    if len(candidates) > 1 and not any(covers.flags for covers in candidates):
        costs = np.array([_tree_costs(covers, rules) for covers in candidates])
        chosen = costs.argmin(axis=0)
        mixed = tuple(ways[way].trees[tree] for tree, way in enumerate(chosen.tolist()))
        candidates.append(_with_sums(replace(ways[0], trees=mixed), rules))
    return sorted((covers for covers in candidates if rules.norm_fits(covers)), key=lambda covers: _cost(covers, rules))


def compared_alone(covers: Covers, rules: Rules) -> set[tuple[int, int]]:
    """Returns feature and rank of the comparisons that take a look-up of their own."""
    read = {bit for lookup in covers.lookups for bit, _ in lookup.weights if bit < covers.edges}
    return {_point(rules.edges, edge) for edge in read - covers.digit_sums if rules.wide[edge]}


def _point(edges: Edges, edge: int) -> tuple[int, int]:
    return int(edges.feature[edge]), int(edges.rank[edge])


def _cost(covers: Covers, rules: Rules) -> int:
    return len({index_of(lookup) for lookup in covers.lookups}) + len(compared_alone(covers, rules))


def _tree_costs(covers: Covers, rules: Rules) -> list[float]:
    """Returns look-ups of each tree, those of comparisons shared out among the trees that read them."""
    points = [compared_alone(replace(covers, trees=(tree,)), rules) for tree in covers.trees]
    times = Counter(point for tree_points in points for point in tree_points)
    return [
        len({index_of(lookup) for lookup in tree.lookups}) + sum(1 / times[point] for point in sorted(tree_points))
        for tree, tree_points in zip(covers.trees, points, strict=True)
    ]


def _mapped(covers: Covers, change: Callable[[TreeLookup], TreeLookup]) -> Covers:
    trees = tuple(replace(tree, lookups=tuple(map(change, tree.lookups))) for tree in covers.trees)
    flags = tuple(replace(flag, lookup=change(flag.lookup)) for flag in covers.flags)
    return replace(covers, trees=trees, flags=flags)


def _with_sums(covers: Covers, rules: Rules) -> Covers:
    """Sums as many comparisons as all of their indices have room for, those first that have the fewest others beside them."""
    indices = _indices_of(covers, rules)
    readers: dict[int, list[_Read]] = {}
    for reader in indices.values():
        for bit in reader.bits:
            if bit < covers.edges and rules.wide[bit]:
                readers.setdefault(bit, []).append(reader)
    beside = {edge: len({bit for reader in reading for bit in reader.bits}) for edge, reading in readers.items()}
    chosen: set[int] = set()
    for edge in sorted(readers, key=lambda edge: (beside[edge], len(readers[edge]), edge)):
        if all(reader.weights(chosen | {edge}) is not None for reader in readers[edge]):
            chosen.add(edge)
    sums = frozenset(chosen)
    return replace(_mapped(covers, lambda lookup: indices[index_of(lookup)].changed(lookup, sums)), digit_sums=sums)


def _indices_of(covers: Covers, rules: Rules) -> dict[Index, _Read]:
    """Returns what is to be told apart by each index, in all of its look-ups."""
    lookups: dict[Index, list[TreeLookup]] = {}
    for lookup in covers.lookups:
        lookups.setdefault(index_of(lookup), []).append(lookup)
    search = _Search(covers, rules)
    return {index: _Read(index, index_lookups, search) for index, index_lookups in lookups.items()}


# --- one index -------------------------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class _Search:
    covers: Covers
    rules: Rules
    found: dict[tuple[object, ...], tuple[int, ...] | None] = field(default_factory=dict)

    def patterns(self, bits: Sequence[int]) -> Indices:
        """Returns [patterns, bits]: every combination that a sample may have."""
        edges, groups = self.rules.edges, dict[int, list[int]]()
        for place, bit in enumerate(bits):
            feature = int(edges.feature[bit]) if bit < self.covers.edges else -1 - bit  # a flag stands for itself
            groups.setdefault(feature, []).append(place)
        choices = [list(self._of_group(bits, places)) for places in groups.values()]
        order = np.argsort([place for places in groups.values() for place in places])
        rows = [[value for part in row for value in part] for row in itertools.product(*choices)]
        return np.array(rows, dtype=np.int64).reshape(len(rows), -1)[:, order]

    def _of_group(self, bits: Sequence[int], places: list[int]) -> Iterator[tuple[int, ...]]:
        edges = self.rules.edges
        if bits[places[0]] >= self.covers.edges:
            yield from ((0,), (1,))
            return
        rank = edges.rank[[bits[place] for place in places]]
        seen = [tuple((rank >= low).astype(int).tolist()) for low in (*np.unique(rank).tolist(), rank.max() + 1)]
        if edges.takes_missing:
            seen.append(tuple(edges.missing[[bits[place] for place in places]].tolist()))
        yield from dict.fromkeys(seen)


class _Read:
    """An index, the bits that it reads, and which of their combinations need different entries."""

    def __init__(self, index: Index, lookups: Sequence[TreeLookup], search: _Search) -> None:
        self.bits = tuple(bit for bit, _ in index)
        self._old = np.array([weight for _, weight in index], dtype=np.int64)
        self._search, self._turn = search, 2 * search.rules.slots
        self._lookups = lookups
        self._chosen: dict[_Bits, tuple[int, ...] | None] = {}
        self._told_apart: tuple[Indices, Indices, Indices] | None = None

    def weights(self, sums: set[int] | _Bits) -> tuple[int, ...] | None:
        """Returns weights with sums in place of these comparisons; None where there is no room."""
        summed_bits = frozenset(sums).intersection(self.bits)
        if summed_bits not in self._chosen:
            features = {
                int(self._search.rules.edges.feature[edge]) for edge in summed_bits
            }  # of one, sums may share bits of the client
            small = len(self.bits) <= _MOST_BITS and len(summed_bits) == len(features) <= _MOST_SUMS
            weights = self._searched(summed_bits) if small else None
            self._chosen[summed_bits] = tuple(self._old.tolist()) if weights is None and not summed_bits else weights
        return self._chosen[summed_bits]

    def changed(self, lookup: TreeLookup, sums: _Bits) -> TreeLookup:
        summed_bits = sums.intersection(self.bits)
        weights = self.weights(summed_bits)
        assert weights is not None, "there was room for them"
        if not summed_bits and weights == tuple(self._old.tolist()):
            return lookup
        patterns, _, _ = self._apart
        old, half = patterns @ self._old, self._turn // 2
        entries = np.zeros(self._turn)
        of_pattern = canonical_table(lookup)[old % self._turn]
        levels = self._levels(patterns, np.isin(self.bits, list(summed_bits)), np.array([weights]))[0]
        entries[levels] = of_pattern
        entries[(levels + half) % self._turn] = -of_pattern
        return TreeLookup(tuple(zip(self.bits, weights, strict=True)), 0, tuple(entries.tolist()))

    @property
    def _apart(self) -> tuple[Indices, Indices, Indices]:
        """[patterns, bits], and by pattern a label, equal where all look-ups have equal entries, and that of the opposite entries or -1."""
        if self._told_apart is None:
            patterns = self._search.patterns(self.bits)
            old = patterns @ self._old
            columns = [canonical_table(lookup)[old % self._turn] for lookup in self._lookups]
            number: dict[tuple[float, ...], int] = {}
            rows = [tuple(row) for row in (np.stack(columns, axis=1) + 0.0).tolist()]  # no -0
            labels = np.array([number.setdefault(row, len(number)) for row in rows], dtype=np.int64)
            opposite = np.array([number.get(tuple(0.0 - value for value in row), -1) for row in rows], dtype=np.int64)
            self._told_apart = patterns, labels, opposite
        return self._told_apart

    def _levels(self, patterns: Indices, summed: NDArray[np.bool_], weights: Indices) -> Indices:
        """Returns [candidates, 2^sums, patterns] on the circle, for every combination of what a sum has beside twice its comparison: 0 or 1."""
        base = np.where(summed, 2 * weights, weights) @ patterns.T
        halves = np.array(list(itertools.product((0, 1), repeat=int(summed.sum()))), dtype=np.int64)
        lowest = weights[:, summed] @ halves.T
        return (lowest[:, :, None] + base[:, None, :]) % self._turn

    def _searched(self, summed_bits: _Bits) -> tuple[int, ...] | None:
        patterns, labels, opposite = self._apart
        summed = np.array([bit in summed_bits for bit in self.bits])
        flags = np.array([bit >= self._search.covers.edges for bit in self.bits])
        key = tuple(part.tobytes() for part in (patterns, labels, opposite, self._old, summed, flags))
        known = self._search.found
        if key not in known:
            known[key] = next(self._found(summed_bits, summed, flags), None)
        return known[key]

    def _found(
        self, summed_bits: _Bits, summed: NDArray[np.bool_], flags: NDArray[np.bool_]
    ) -> Iterator[tuple[int, ...]]:
        """Yields weights that serve and are quiet."""
        patterns, labels, opposite = self._apart
        for some in self._candidates(summed, flags):
            for first in range(0, len(some), _AT_ONCE):
                weights = some[first : first + _AT_ONCE]
                serving = self._serve(self._levels(patterns, summed, weights), labels, opposite)
                yield from (tuple(each.tolist()) for each in weights[serving] if self._quiet(each, summed_bits))

    def _candidates(self, summed: NDArray[np.bool_], flags: NDArray[np.bool_]) -> Iterator[Indices]:
        """Yields [candidates, bits]: multiples of the old weights, and small ones for sums and for the flag."""
        others, step = ~(summed | flags), self._search.covers.flag_step
        common = np.gcd.reduce(self._old[others]) if others.any() else 1
        chosen = np.array(list(itertools.product(_FACTORS, *[_WEIGHTS] * int((~others).sum()))), dtype=np.int64)
        weights = chosen[:, :1] * (self._old // common)
        weights[:, ~others] = chosen[:, 1:]
        weights[:, flags] *= step
        yield weights
        if len(summed) <= _FEW_BITS and others.all():  # that are too noisy as they are
            yield np.array(list(itertools.product(_WEIGHTS, repeat=len(summed))), dtype=np.int64)

    def _serve(self, levels: Indices, labels: Indices, opposite: Indices) -> NDArray[np.bool_]:
        """Returns [candidates]: no slot has two entries, nor one and another than its opposite half a turn away."""
        free, rows = -2, np.arange(len(levels))[:, None, None]
        table = np.full((len(levels), self._turn), free, dtype=np.int64)
        table[rows, levels] = labels
        across = table[rows, (levels + self._turn // 2) % self._turn]
        serves = (table[rows, levels] == labels) & ((across == free) | (across == opposite))
        result: NDArray[np.bool_] = serves.all(axis=(1, 2))
        return result

    def _quiet(self, weights: Indices, summed_bits: _Bits) -> bool:
        rules, covers = self._search.rules, replace(self._search.covers, digit_sums=summed_bits)
        pairs = tuple(zip(self.bits, weights.tolist(), strict=True))
        return rules.fits(math.sqrt(squared_norm(pairs, covers, rules.edges.feature, rules.correlation)))
