"""Integer weights that turn comparison bits into the index of one look-up table.

A look-up reads an index on a circle of 2M slots, and entry i + M is the negated entry i. The index is

    sum_j weights[j] * bit[j]  +  fail_weight * (number of the path's conditions that fail)  +  flag_weight * (whether a flag fails)

and has to tell outcomes apart that need different entries. Two ways: on a line, all indices within M slots, any entries; or on the whole circle,
when there are two entries a and b only: slot i + M must then be free or have the other one, since around (a + b) / 2 they are opposite.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from cloakwork.models.trees.tops import Pattern

Masks: TypeAlias = NDArray[np.uint64]  # sets of slots, one for each candidate

MOST_SLOTS: Final = 32  # so that a circle is a word
_LARGEST: Final = {1: 1, 2: 4, 3: 4}  # weights tried, by the number of bits; for four bits powers of two
_POWERS: Final = (1, 2, 4)
_NO_PATTERN: Final = 7  # in place of a label, where no sample has these bits


@dataclass(frozen=True)
class FlagWeights:
    """Weights that an index may give a flag: multiples of `step`, at most `most` of them, which is what its noise allows."""

    step: int
    most: int


@dataclass(frozen=True)
class IndexWeights:
    weights: Pattern
    fail_weight: int
    flag_weight: int
    constant: int  # added to the index, which starts at 0 on a line
    circle: bool


@lru_cache(maxsize=1 << 16)
def index_weights(
    labels: Pattern, patterns: tuple[Pattern, ...], fails: int, slots: int, flag: FlagWeights | None = None
) -> IndexWeights:
    """Returns the first weights that serve, small ones first; `most_fails` says whether there are any.

    Args:
        labels: for each pattern a number for each distinct entry, 0 for the entry of a path that fails.
        patterns: all combinations of the bits.
        fails: how many conditions of the path can fail at most.
        slots: M.
        flag: None where the path from the root is counted.
    """
    table, order, flipped = _canonical(labels, patterns)
    return _moved_back(_searched(table, slots, flag)[fails], order, flipped)


def most_fails(labels: Pattern, patterns: tuple[Pattern, ...], slots: int, flag: FlagWeights | None = None) -> int:
    """Returns the largest `fails` for which there are index weights; -1 where there are none at all."""
    return len(_searched(_canonical(labels, patterns)[0], slots, flag)) - 1


@lru_cache(maxsize=1 << 16)
def _canonical(labels: Pattern, patterns: tuple[Pattern, ...]) -> tuple[Pattern, Pattern, Pattern]:
    """Returns one table for all orders and signs of the bits, and the order and the signs that lead there."""
    bits = len(patterns[0])
    table = np.full(1 << bits, float(_NO_PATTERN))
    table[_numbers(patterns)] = labels
    places, order, flipped, powers = _symmetries(bits)
    turned = table[places]
    number = int(np.argmin(turned @ powers))
    return tuple(turned[number].astype(int).tolist()), order[number], flipped[number]


@cache
def _numbers(patterns: tuple[Pattern, ...]) -> NDArray[np.int64]:
    return np.array([sum(bit << i for i, bit in enumerate(pattern)) for pattern in patterns])


def _moved_back(index_weights: IndexWeights, order: Pattern, flipped: Pattern) -> IndexWeights:
    """Moves weights from bits in another order, some negated."""
    weights = [0] * len(order)
    for weight, bit, negated in zip(index_weights.weights, order, flipped, strict=True):
        weights[bit] = -weight if negated else weight
    added = sum(weight for weight, negated in zip(index_weights.weights, flipped, strict=True) if negated)
    return replace(index_weights, weights=tuple(weights), constant=index_weights.constant + added)


@cache
def _symmetries(bits: int) -> tuple[NDArray[np.int64], list[Pattern], list[Pattern], NDArray[Any]]:
    """Orders and signs of bits: for each, where the entries of a table come from, the old number of every bit, and whether it is negated.
    Last, weights that make a number of a table."""
    places, orders, flips = [], [], []
    new = np.arange(1 << bits)
    for order in itertools.permutations(range(bits)):
        for flipped in itertools.product((0, 1), repeat=bits):
            old = np.zeros_like(new)
            for i, bit in enumerate(order):
                old |= ((new >> i & 1) ^ flipped[i]) << bit
            places.append(old)
            orders.append(order)
            flips.append(flipped)
    return np.array(places), orders, flips, 8.0 ** np.arange(1 << bits)


@lru_cache(maxsize=1 << 16)
def _searched(table: Pattern, slots: int, flag: FlagWeights | None) -> tuple[IndexWeights, ...]:
    """Args: table: labels of all combinations of bits, the first bit being the lowest of their numbers."""
    numbers = tuple(number for number, label in enumerate(table) if label != _NO_PATTERN)
    combinations = {
        label: [i for i, n in enumerate(numbers) if table[n] == label] for label in {table[n] for n in numbers}
    }
    if len(combinations | {0: []} if flag else combinations) > slots:
        return ()
    search = _Search(_levels((len(table) - 1).bit_length(), numbers, slots), combinations)
    if flag is None:
        first = search.without_conditions()
        fail = _signed(slots)
        turned = np.zeros_like(fail)
    else:
        steps = _signed(min(flag.most, 2 * slots // flag.step)) * flag.step
        first = search.with_fails(np.zeros_like(steps), steps).first()
        fail = _signed(flag.most * flag.step)
        turned = np.sign(fail) * -(-np.abs(fail) // flag.step) * flag.step
    if first is None:
        return ()
    by_fails, failing = [first], search.with_fails(fail, turned)
    while len(by_fails) <= 2 * slots:
        following = failing.one_more().first()
        if following is None:
            break
        by_fails.append(following)
    return tuple(by_fails)


@dataclass(frozen=True, eq=False)
class _Levels:
    """Levels that candidates for the weights of some bits give to their combinations."""

    turn: int  # 2M
    candidates: NDArray[np.int64]  # [candidates, bits]
    slots: Masks  # [combinations, candidates]
    low: NDArray[np.int64]  # [candidates], without the turn
    high: NDArray[np.int64]

    def some(self, chosen: NDArray[np.bool_]) -> _Levels:
        return _Levels(self.turn, self.candidates[chosen], self.slots[:, chosen], self.low[chosen], self.high[chosen])


@lru_cache(maxsize=1 << 10)
def _levels(bits: int, numbers: Pattern, slots: int) -> _Levels:
    candidates, turn = _candidates(bits), 2 * slots
    patterns = np.array(numbers)[:, None] >> np.arange(bits) & 1
    levels = patterns @ candidates.T
    masks = np.uint64(1) << (levels % turn).astype(np.uint64)
    return _Levels(turn, candidates, masks, levels.min(axis=0), levels.max(axis=0))


def _signed(most: int) -> NDArray[np.int64]:
    """Returns 1, -1, 2, -2, .."""
    return np.array([sign * size for size in range(1, most + 1) for sign in (1, -1)], dtype=np.int64)


class _Search:
    """All candidates for the weights of bits at once."""

    def __init__(self, levels: _Levels, combinations: dict[int, list[int]]) -> None:
        """Args: combinations: by label."""
        kept = _disjoint([_union(levels.slots[label_combinations]) for label_combinations in combinations.values()])
        self._levels = levels = levels.some(kept)
        self.own = {
            label: _union(levels.slots[label_combinations]) for label, label_combinations in combinations.items()
        }
        self.all = _union(levels.slots)

    def without_conditions(self) -> IndexWeights | None:
        """Returns the weights where no path fails."""
        sets = [masks[None] for masks in self.own.values()]
        zero = np.zeros(1, dtype=np.int64)
        return self.best(sets, zero, zero)

    def with_fails(self, fail: NDArray[np.int64], flag: NDArray[np.int64]) -> _Failing:
        return _Failing(self, fail, flag)

    def best(
        self, sets: list[Masks], fail: NDArray[np.int64], flag: NDArray[np.int64], count: int = 0
    ) -> IndexWeights | None:
        """Finds the best weights.

        Args:
            sets: of slots that need different entries, [weights of fail and flag, candidates] each.
            count: of conditions that can fail.
        """
        levels = self._levels
        span = (levels.high - levels.low)[None] + (np.abs(fail) * count + np.abs(flag))[:, None]
        line = (span < levels.turn // 2) & _disjoint(sets)
        serves = line | self._on_circle(sets)
        if not serves.any():
            return None
        pair, place = divmod(int(np.argmax(serves.reshape(-1))), len(levels.candidates))
        on_line = bool(line[pair, place])
        lowest = int(levels.low[place]) + min(0, int(fail[pair]) * count + int(flag[pair]))
        weights = tuple(int(weight) for weight in levels.candidates[place])
        return IndexWeights(weights, int(fail[pair]), int(flag[pair]), -lowest if on_line else 0, not on_line)

    def turned(self, masks: Masks, by: NDArray[np.int64]) -> Masks:
        places = (by % self._levels.turn).astype(np.uint64)
        back = (np.uint64(self._levels.turn) - places) % np.uint64(self._levels.turn)
        full = np.uint64((1 << self._levels.turn) - 1)
        result: Masks = ((masks << places) | (masks >> back)) & full
        return result

    def _on_circle(self, sets: list[Masks]) -> NDArray[np.bool_]:
        if len(sets) != 2:
            return np.zeros(sets[0].shape, dtype=np.bool_)
        half = np.array([self._levels.turn // 2])
        first, second = sets
        clash = (first & second) | (first & self.turned(first, half)) | (second & self.turned(second, half))
        return np.asarray(clash == 0)


class _Failing:
    """Paths that fail, with weights for a condition and for the flag. Arrays [weights, candidates]."""

    def __init__(self, search: _Search, fail: NDArray[np.int64], flag: NDArray[np.int64]) -> None:
        self._search, self._fail, self._flag, self._count = search, fail, flag, 0
        shape = (len(fail), len(search.all))
        self._failed = np.zeros(shape, dtype=np.uint64)
        if flag.any():
            self._failed = search.turned(search.all[None], flag[:, None])

    def one_more(self) -> _Failing:
        """Adds a condition that may fail."""
        self._count += 1
        by = self._count * self._fail
        for shift in (by, by + self._flag) if self._flag.any() else (by,):
            self._failed = self._failed | self._search.turned(self._search.all[None], shift[:, None])
        return self

    def first(self) -> IndexWeights | None:
        if not self._failed.size:
            return None
        label_masks = self._search.own
        sets = [self._failed | label_masks[0] if 0 in label_masks else self._failed]
        sets += [np.broadcast_to(masks, self._failed.shape) for label, masks in label_masks.items() if label]
        return self._search.best(sets, self._fail, self._flag, self._count)


def _union(masks: Masks) -> Masks:
    result: Masks = np.bitwise_or.reduce(masks, axis=0)
    return result


def _disjoint(sets: list[Masks]) -> NDArray[np.bool_]:
    seen, clash = np.zeros_like(sets[0]), np.zeros_like(sets[0])
    for masks in sets:
        clash = clash | (seen & masks)
        seen = seen | masks
    return np.asarray(clash == 0)


@cache
def _candidates(bits: int) -> NDArray[np.int64]:
    """Returns weights tried [candidates, bits], the first one positive: the mirror image of an index serves as well."""
    if bits == 0:
        return np.zeros((1, 0), dtype=np.int64)
    sizes = range(1, _LARGEST[bits] + 1) if bits in _LARGEST else _POWERS
    signed = [sign * size for size in sizes for sign in (1, -1)]
    candidates = itertools.product(sizes, *[signed] * (bits - 1))
    return np.array(sorted(candidates, key=lambda weights: sum(abs(w) for w in weights)), dtype=np.int64)
