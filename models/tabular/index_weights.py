"""Integer weights that turn comparison bits into the index of one look-up table.

A look-up reads an index on a circle of 2M slots, and entry i + M is the negated entry i. The index is

    sum_j weights[j] * bit[j]  +  fail_weight * (number of the path's conditions that fail)

and has to tell outcomes apart that need different entries. Two ways: on a line, all indices within M slots, any entries; or on the whole circle,
when there are two entries a and b only: slot i + M must then be free or have the other one, since around (a + b) / 2 they are opposite.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

Pattern: TypeAlias = tuple[int, ...]
Masks: TypeAlias = NDArray[np.uint64]  # sets of slots, one for each candidate

MOST_BITS: Final = 4
MOST_SLOTS: Final = 32  # so that a circle is a word
_LARGEST: Final = {1: 1, 2: 4, 3: 4}  # weights tried, by the number of bits; for four bits powers of two
_POWERS: Final = (1, 2, 4)


@dataclass(frozen=True)
class IndexWeights:
    weights: Pattern
    fail_weight: int
    lowest: int  # the smallest index; 0 on the circle
    circle: bool


@lru_cache(maxsize=1 << 16)
def index_weights(
    outcomes: tuple[tuple[Pattern, int], ...], patterns: tuple[Pattern, ...], fails: int, slots: int
) -> IndexWeights | None:
    """The first weights that serve, small ones first; None when there are none.

    Args:
        outcomes: for the bit patterns that the path leaves: a number for each distinct entry, 0 for the entry of a path that fails.
        patterns: all bit patterns, those with a failing path included.
        fails: how many conditions of the path can fail at most; 0: no path.
        slots: M.
    """
    labels = sorted({label for _, label in outcomes} | ({0} if fails else set()))
    if len(labels) > slots or fails > 2 * slots:
        return None
    search = _Search(_candidates(len(patterns[0])), patterns, slots)
    by_label = {label: [pattern for pattern, other in outcomes if other == label] for label in labels}
    own = {label: search.slots_of(chosen) for label, chosen in by_label.items()}
    search.keep(search.disjoint(list(own.values())))
    own = {label: search.slots_of(chosen) for label, chosen in by_label.items()}
    largest = slots if len(labels) == 2 else (slots - 1) // max(fails, 1)  # more entries than two need a line
    for fail_weight in _fail_weights(fails, largest):
        sets = dict(own)
        if fails:
            sets[0] = sets[0] | search.failing(fail_weight, fails)
        line = search.on_line(fail_weight, fails) & search.disjoint(list(sets.values()))
        circle = search.on_circle(list(sets.values()))
        if (line | circle).any():
            position = int(np.argmax(line | circle))
            lowest = search.lowest(fail_weight, fails)[position] if line[position] else 0
            weights = tuple(int(weight) for weight in search.candidates[position])
            return IndexWeights(weights, fail_weight, int(lowest), circle=not bool(line[position]))
    return None


class _Search:
    """All candidates at once. Args: candidates: [candidates, bits]."""

    def __init__(self, candidates: NDArray[np.int64], patterns: tuple[Pattern, ...], slots: int) -> None:
        self._patterns = patterns
        self._turn = 2 * slots
        self._full = np.uint64((1 << self._turn) - 1)
        self._take(candidates)

    def _take(self, candidates: NDArray[np.int64]) -> None:
        self.candidates = candidates
        self._all = self.slots_of(self._patterns)
        levels = self._levels(self._patterns)
        self._low, self._high = levels.min(axis=0), levels.max(axis=0)

    def keep(self, chosen: NDArray[np.bool_]) -> None:
        """Forgets the other candidates."""
        if not chosen.all():
            self._take(self.candidates[chosen])

    def _levels(self, patterns: Any) -> NDArray[np.int64]:
        """[patterns, candidates]"""
        rows = np.array(list(patterns), dtype=np.int64).reshape(len(patterns), self.candidates.shape[1])
        levels: NDArray[np.int64] = rows @ self.candidates.T
        return levels

    def slots_of(self, patterns: Any) -> Masks:
        if not len(patterns):
            return np.zeros(len(self.candidates), dtype=np.uint64)
        masks: Masks = np.bitwise_or.reduce(
            np.uint64(1) << (self._levels(patterns) % self._turn).astype(np.uint64), axis=0
        )
        return masks

    def _turned(self, masks: Masks, by: int) -> Masks:
        by %= self._turn
        if by == 0:
            return masks
        turned: Masks = ((masks << np.uint64(by)) | (masks >> np.uint64(self._turn - by))) & self._full
        return turned

    def failing(self, fail_weight: int, fails: int) -> Masks:
        result = np.zeros_like(self._all)
        for count in range(1, fails + 1):
            result = result | self._turned(self._all, count * fail_weight)
        return result

    def lowest(self, fail_weight: int, fails: int) -> NDArray[np.int64]:
        return np.asarray(self._low + min(0, fail_weight * fails))

    def on_line(self, fail_weight: int, fails: int) -> NDArray[np.bool_]:
        return np.asarray(self._high - self._low + abs(fail_weight) * fails < self._turn // 2)

    def disjoint(self, sets: list[Masks]) -> NDArray[np.bool_]:
        seen, clash = np.zeros_like(self._all), np.zeros_like(self._all)
        for own in sets:
            clash |= seen & own
            seen |= own
        return np.asarray(clash == 0)

    def on_circle(self, sets: list[Masks]) -> NDArray[np.bool_]:
        if len(sets) != 2:
            return np.zeros(len(self._all), dtype=np.bool_)
        opposite = [self._turned(own, self._turn // 2) for own in sets]
        clash = (sets[0] & sets[1]) | (sets[0] & opposite[0]) | (sets[1] & opposite[1])
        return np.asarray(clash == 0)


def _fail_weights(fails: int, largest: int) -> list[int]:
    if fails == 0:
        return [0]
    return [sign * weight for weight in range(1, largest + 1) for sign in (1, -1)]


@cache
def _candidates(bits: int) -> NDArray[np.int64]:
    """Weights tried [candidates, bits], the first one positive: the mirror image of an index serves as well."""
    if bits == 0:
        return np.zeros((1, 0), dtype=np.int64)
    sizes = range(1, _LARGEST[bits] + 1) if bits in _LARGEST else _POWERS
    signed = [sign * size for size in sizes for sign in (1, -1)]
    made = itertools.product(sizes, *[signed] * (bits - 1))
    return np.array(sorted(made, key=lambda weights: sum(abs(w) for w in weights)), dtype=np.int64)
