"""Integer weights that turn comparison bits into the index of one look-up table.

A look-up reads an index on a circle of 2M slots, and entry i + M is the negated entry i. The index is

    sum_j weights[j] * bit[j]  +  fail_weight * (number of the path's conditions that fail)

and has to tell outcomes apart that need different entries. Two ways: on a line, all indices within M slots, any entries; or on the whole circle,
when there are two entries a and b only: slot i + M must then be free or have the other one, since around (a + b) / 2 they are opposite.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Final, TypeAlias

Pattern: TypeAlias = tuple[int, ...]
LARGEST: Final = {1: 1, 2: 4, 3: 4}  # weights tried, by the number of bits; for four bits powers of two
_POWERS: Final = (1, 2, 4)
MOST_BITS: Final = 4


@dataclass(frozen=True)
class IndexWeights:
    weights: Pattern
    fail_weight: int
    lowest: int  # the smallest index; 0 on the circle
    circle: bool


@cache
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
    labels = {label for _, label in outcomes} | ({0} if fails else set())
    least = len(labels) if fails == 0 else max(len(labels), 2)
    if least > slots or fails > 2 * slots:
        return None
    for weights in _candidates(len(patterns[0])):
        levels = {pattern: sum(w * b for w, b in zip(weights, pattern, strict=True)) for pattern in patterns}
        by_label: dict[int, set[int]] = {}
        for pattern, label in outcomes:
            by_label.setdefault(label, set()).add(levels[pattern])
        if _overlap(by_label.values()):
            continue
        for fail_weight in _fail_weights(levels, fails, slots):
            found = _placed(weights, by_label, set(levels.values()), fail_weight, fails, slots)
            if found is not None:
                return found
    return None


def _placed(
    weights: Pattern, by_label: dict[int, set[int]], levels: set[int], fail_weight: int, fails: int, slots: int
) -> IndexWeights | None:
    """The weights, when every entry has slots of its own."""
    failing = {level + count * fail_weight for level in levels for count in range(1, fails + 1)}
    sets = dict(by_label)
    if failing:
        sets[0] = by_label.get(0, set()) | failing
    everything = levels | failing
    low, high = min(everything), max(everything)
    if high - low < slots and not _overlap(sets.values()):
        return IndexWeights(weights, fail_weight, low, circle=False)
    if len(sets) != 2:
        return None
    around = [{level % (2 * slots) for level in own} for own in sets.values()]
    opposite = [{(level + slots) % (2 * slots) for level in own} for own in around]
    if around[0] & around[1] or any(own & against for own, against in zip(around, opposite, strict=True)):
        return None
    return IndexWeights(weights, fail_weight, 0, circle=True)


def _fail_weights(levels: dict[Pattern, int], fails: int, slots: int) -> list[int]:
    if fails == 0:
        return [0]
    span = max(levels.values()) - min(levels.values()) + 1
    return [sign * weight for weight in range(1, min(span, slots) + 1) for sign in (1, -1)]


@cache
def _candidates(bits: int) -> tuple[Pattern, ...]:
    """Weights tried, the first one positive: the mirror image of an index serves as well."""
    if bits == 0:
        return ((),)
    sizes = range(1, LARGEST[bits] + 1) if bits in LARGEST else _POWERS
    signed = [sign * size for size in sizes for sign in (1, -1)]
    made = itertools.product(sizes, *[signed] * (bits - 1))
    return tuple(sorted(made, key=lambda weights: sum(abs(w) for w in weights)))


def _overlap(sets: Iterable[set[int]]) -> bool:
    seen: set[int] = set()
    for own in sets:
        if seen & own:
            return True
        seen |= own
    return False
