"""Quantisers of wide integers: which of many thresholds a sum has passed, by a few look-ups that need not be exact, and one comparison that is.

    q(A) = number of thresholds t_1 < t_2 < .. < t_m that are at most A

A look-up of a wide sum is wrong where the sum lies near an edge between two slots. So a digit is chosen as in SRT division: whatever slot is read
where noise leaves a choice, the digit that it stands for can be made right by what follows. With the residual r = A - T of a digit's threshold T:

    clamp    where no thresholds are, A is brought near the first or the last one
    coarse   a group of K neighbouring thresholds that has all those which the reading leaves open
    fine     the only one of the group that the reading leaves open
    compare  A less that threshold: its sign is exact (graph/signs.py)

Thresholds are integers about a step P apart that is none: the distances within a group are not those within another, but one more at most. That one,
eps(coarse, fine), is 1 where rank(coarse) + class(fine) is large enough. Both are added to the thresholds that are subtracted, in bits that are whole
turns wherever the residual is read, and one sign of them gives eps.

Source: [Rob58] digits with redundancy, for division. Ours: for look-ups with noise; the correction by ranks.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from typing import Final

import numpy as np

from cloakwork.fhe_core import noise
from cloakwork.fhe_core.parameters import ParameterSet
from cloakwork.models.arrays import Indices, Reals
from cloakwork.models.criteria.choose_set import plan_highest_bits
from cloakwork.models.exact.step_functions import StepFunction
from cloakwork.models.graph.signs import SignPlan

SLOTS: Final = 256  # of half the circle: finer than any reading
_MOST_CLAMPS: Final = 4
_PARTS: Final = 4  # of a power of two, between factors
_MOST_SPACING: Final = 16  # thresholds from one group to the next
_HALVINGS: Final = 40
_SAME_HEIGHT: Final = 1e-9


@dataclass(frozen=True)
class Reading:
    """A reading of a residual: `factor` times its phase.

    Attributes:
        margin: phase by which what is read may be wrong.
    """

    factor: int
    margin: float

    @property
    def place(self) -> int:
        """Multiples of 2^-place of the torus are not read."""
        return (self.factor & -self.factor).bit_length() - 1

    def reach(self, bits: int) -> float:
        """Returns by how much what a slot stands for may differ from its centre, in integers of 2^-bits of the torus."""
        return (self.margin + 0.25 / SLOTS) * 2.0**bits / self.factor

    def slot(self, bits: int) -> float:
        """Returns integers between two slots."""
        return 2.0**bits / (2 * SLOTS * self.factor)


class ReadingKind(Enum):
    """The kind of a reading: a digit counts thresholds, beside what is subtracted."""

    CLAMP = "clamp"
    DIGIT = "digit"


@dataclass(frozen=True)
class DigitPlan:
    """The plan that look-ups of all elements of a kind share.

    Attributes:
        bits: integers are 2^-bits of the torus apart.
        ranks: bits of the circle on which ranks are compared, with their margin; 0 where there are none.
        place: ranks are multiples of 2^-place of the torus.
        ranked: readings that are looked up for their ranks alone, where what is subtracted has no room for them.
    """

    bits: int
    readings: tuple[Reading, ...]
    kinds: tuple[ReadingKind, ...]
    ranks: int
    rank_margin: float
    place: int
    ranked: tuple[int, ...]
    sign: SignPlan

    @property
    def lookups(self) -> int:
        digits = sum(kind is ReadingKind.DIGIT for kind in self.kinds)
        return len(self.readings) + digits + len(self.ranked) + (self.ranks > 0) + self.sign.lookups


@dataclass(frozen=True, eq=False)
class DigitTables:
    """Tables of an element: for each reading its centre, and for each slot what is subtracted from A and how many thresholds that stands for.

    Attributes:
        subtracted, passed: [readings, SLOTS]; nothing is passed by clamps.
        ranks: [2, SLOTS], of the coarse and of the fine reading.
        count: of ranks; eps is 1 where two add up to that.
    """

    plan: DigitPlan
    centres: tuple[float, ...]
    subtracted: Reals
    passed: Reals
    ranks: Reals
    count: int


class Noise:
    """Room for noise that a set leaves in a sum of some variance, as a fraction of the torus."""

    def __init__(self, params: ParameterSet, variance: float, p_fail_log2: float) -> None:
        self.params, self.variance, self.p_fail_log2 = params, variance, p_fail_log2
        self._found: dict[tuple[float, int], float] = {}

    def margin(self, factor: float, subtracted: int) -> float:
        """Returns the least phase that a reading is wrong by with no more than the probability, once these look-ups are subtracted."""
        if (factor, subtracted) not in self._found:
            of_row = self.variance + subtracted * noise.blind_rotation_variance(self.params)
            seen = noise.lookup_variance(self.params, 0.0) + factor**2 * of_row
            offset = noise.lookup_offset(self.params)
            low, high = 0.0, 1.0
            for _ in range(_HALVINGS):
                middle = (low + high) / 2
                fits = noise.p_fail_log2(middle, seen, offset) <= self.p_fail_log2
                low, high = (low, middle) if fits else (middle, high)
            self._found[factor, subtracted] = high
        return self._found[factor, subtracted]

    def reading(self, bits: int, low: float, high: float, subtracted: int, place: int) -> Reading | None:
        """Returns the finest of what lies in [low, high], beside multiples of 2^-place; None where half of the circle has no room for it."""
        most = 2.0 ** (bits - 1) / max(high - low, 1.0)
        for exponent in range(math.floor(math.log2(most)) if most >= 1 else -1, -1, -1):
            for part in range(2 * _PARTS - 1, _PARTS - 1, -1):
                factor = part * (1 << exponent) // _PARTS
                if factor % (1 << place):
                    continue
                width = (high - low) * factor * 2.0**-bits
                if width + 2 * self.margin(factor, subtracted) + 1.0 / SLOTS <= 0.5:
                    return Reading(factor, self.margin(factor, subtracted))
        return None


def digit_tables(steps: StepFunction, high: int, bits: int, room: Noise) -> DigitTables | None:
    """Returns the search for a step function of equal steps, with few look-ups; None where it has others, or noise leaves no room.

    Args:
        steps: of integers from `steps.low` to `high`, 2^-bits of the torus apart.
    """
    heights = steps.heights
    if len(heights) < 2 or float(np.ptp(heights)) > _SAME_HEIGHT * float(np.abs(heights).max()):
        return None
    best: DigitTables | None = None
    for clamps in range(_MOST_CLAMPS + 1):
        tables = _Search(steps.thresholds, float(steps.low), float(high), bits, room).after(clamps)
        if tables is not None and (best is None or tables.plan.lookups < best.plan.lookups):
            best = tables
    return best


class _Search:
    def __init__(self, thresholds: Indices, low: float, high: float, bits: int, room: Noise) -> None:
        self.thresholds, self.low, self.high, self.bits, self.room = thresholds, low, high, bits, room
        self.most = 0  # that one of the thresholds may be greater by
        self.outer = 0  # readings up to the coarse one
        self.place = 0  # ranks are multiples of 2^-place of the torus
        self.readings: list[Reading] = []
        self.centres: list[float] = []
        self.subtracted: list[Reals] = []
        self.passed: list[Reals] = []

    def after(self, clamps: int) -> DigitTables | None:
        """Returns the tables after these clamps; None where they do not lead to anything."""
        for _ in range(clamps):
            if not self._clamp():
                return None
        fine = self._next_reading()
        if fine is None:
            return None
        return self._finished(None, False) if self._open_at_once(fine) <= 1 else self._grouped(fine)

    def _next_reading(self) -> Reading | None:
        return self.room.reading(self.bits, self.low, self.high, len(self.readings), self.place)

    def _ends(self, reading: Reading) -> tuple[Reals, Reals]:
        """Returns [SLOTS] each: the least and the greatest integer for which a slot may be read."""
        reach, centre = reading.reach(self.bits), (self.low + self.high) / 2
        at = centre + (np.arange(SLOTS) - (SLOTS - 1) / 2) * reading.slot(self.bits)
        return np.clip(np.ceil(at - reach), self.low, self.high), np.clip(np.floor(at + reach), self.low, self.high)

    def _take(self, reading: Reading, subtracted: Reals, passed: Reals) -> None:
        self.readings.append(reading)
        self.centres.append((self.low + self.high) / 2)
        self.subtracted.append(subtracted)
        self.passed.append(passed)

    def _open_at_once(self, reading: Reading) -> int:
        """Returns the most thresholds that a reading does not decide."""
        low, high = self._ends(reading)
        return int(self._open(low, high, self.thresholds).max())

    @staticmethod
    def _open(low: Reals, high: Reals, thresholds: Indices) -> Indices:
        opened: Indices = np.searchsorted(thresholds, high, "right") - np.searchsorted(thresholds, low, "right")
        return opened

    def _clamp(self) -> bool:
        reading = self._next_reading()
        if reading is None:
            return False
        first, last = float(self.thresholds[0]), float(self.thresholds[-1]) + self.most
        low, high = self._ends(reading)
        above, below = low - last, high - (first - 1)
        moved = np.where(above > 0, above, np.where(below < 0, below, 0.0))
        self._take(reading, moved, np.zeros(SLOTS))
        self.low, self.high = float((low - moved).min()), float((high - moved).max())
        return True

    def _grouped(self, reading: Reading) -> DigitTables | None:
        """Puts a coarse reading before the fine one. Of some spacings of groups distances within one are alike."""
        thresholds, count = self.thresholds, len(self.thresholds)
        low, high = self._ends(reading)
        first = np.searchsorted(thresholds, low, "right")  # that is open
        opened = self._open(low, high, thresholds)
        for apart in (False, True):
            for spacing in range(_MOST_SPACING, 0, -1):
                size = int(opened.max()) + spacing
                if size >= count:
                    continue
                group = np.minimum(first // spacing * spacing, count - size)
                tables = self._with_groups(reading, group, size, (low, high), apart)
                if tables is not None:
                    return tables
        return None

    def _with_groups(
        self, reading: Reading, group: Indices, size: int, ends: tuple[Reals, Reals], apart: bool
    ) -> DigitTables | None:
        """Args: group: of each slot, its first threshold; ends: of slots; apart: ranks are looked up by themselves."""
        low, high = ends
        thresholds = self.thresholds
        used = np.unique(group)
        distances = thresholds[used[:, None] + np.arange(size)] - thresholds[used][:, None]
        least = distances.min(axis=0)
        ranked = _ranks(distances - least)
        if ranked is None:
            return None
        ranks, classes, count = ranked
        subtracted = thresholds[group].astype(np.float64)
        # Where no threshold is open the residual may go to just above, or below, all of them.
        above, below = low > thresholds[-1], high < thresholds[0]
        subtracted = np.where(above, low - (least[-1] + 1), np.where(below, high + 1, subtracted))
        inner = _Search(least, float((low - subtracted).min()), float((high - subtracted).max()), self.bits, self.room)
        inner.most, inner.outer = int(count > 0), len(self.readings) + 1
        inner.place = 0 if apart else _rank_bits(count)
        inner.readings, inner.centres = [*self.readings, reading], [*self.centres, (self.low + self.high) / 2]
        inner.passed = [*self.passed, group.astype(np.float64)]
        inner.subtracted = [*self.subtracted, subtracted]
        for _ in range(2):
            tables = inner._finished((ranks[np.searchsorted(used, group)], classes, count), apart)
            if tables is not None or not inner._clamp():
                return tables
        return None

    def _finished(self, ranked: tuple[Indices, Indices, int] | None, apart: bool) -> DigitTables | None:
        """Returns the last reading, and the comparison.

        Args:
            ranked: the rank of each coarse slot, the class of each threshold, and how many ranks.
            apart: of `_with_groups`.
        """
        reading = self._next_reading()
        if reading is None:
            return None
        thresholds, most = self.thresholds, self.most
        low, high = self._ends(reading)
        sure = np.searchsorted(thresholds + most, low, "right")
        opened = np.searchsorted(thresholds, high, "right") - sure
        if int(opened.max()) > 1:
            return None
        candidate = np.minimum(sure, len(thresholds) - 1)
        subtracted = np.where(opened == 1, thresholds[candidate], low - most)
        passed = np.where(opened == 1, sure, sure - 1.0)
        farthest = float(max(np.abs(low - subtracted).max(), np.abs(high - subtracted).max())) + 1 + most
        before, ranks, bits_and_margin = list(self.subtracted), np.zeros((2, SLOTS)), (0, 0.0)
        count = ranked[2] if ranked is not None else 0
        place = 0 if apart or not count else min(each.place for each in [*self.readings[self.outer :], reading])
        if ranked is not None and count:
            rank_reading = self._rank_reading(count, place, 0.0 if apart else farthest)
            if rank_reading is None:
                return None
            bits_and_margin, turn = rank_reading, 0.0 if apart else 2.0 ** (self.bits - place)
            ranks = np.stack([ranked[0], np.where(opened == 1, ranked[1][candidate], 0)]).astype(np.float64)
            before[self.outer - 1] = before[self.outer - 1] - ranks[0] * turn
            subtracted = subtracted - ranks[1] * turn
        sign = self._sign(farthest, place)
        if sign is None:
            return None
        tables = np.stack([*before, subtracted])
        kinds = [ReadingKind.CLAMP] * (len(self.readings) + 1)
        if ranked is not None:
            kinds[self.outer - 1] = ReadingKind.DIGIT
        kinds[-1] = ReadingKind.DIGIT
        alone = (self.outer - 1, len(self.readings)) if apart and count else ()
        plan = DigitPlan(self.bits, (*self.readings, reading), tuple(kinds), *bits_and_margin, place, alone, sign)
        centres = (*self.centres, (self.low + self.high) / 2)
        return DigitTables(plan, centres, tables, np.stack([*self.passed, passed]), ranks, count)

    def _sign(self, farthest: float, place: int) -> SignPlan | None:
        """Returns the sign of what is less than `farthest` either way, beside multiples of 2^-place of the torus."""
        wide = math.ceil(math.log2(farthest + 1)) + 1
        if wide >= self.bits or self.bits - wide < place:
            return None
        subtractions = len(self.readings) + 1 + self.most
        of_row = self.room.variance + subtractions * noise.blind_rotation_variance(self.room.params)
        variance = 4.0 ** (self.bits - wide) * of_row
        return plan_highest_bits(wide, variance, self.room.params, self.room.p_fail_log2)

    def _rank_reading(self, count: int, place: int, farthest: float) -> tuple[int, float] | None:
        """Returns bits of the circle for sums of two ranks, and the margin; beside them what is left of the residual disturbs."""
        bits = _rank_bits(count)
        disturbed = farthest * 2.0 ** (place - self.bits - bits)
        margin = 2.0 ** -(bits + 1) - disturbed
        fits = margin >= self.room.margin(max(1.0, 2.0 ** (place - bits)), len(self.readings) + 1)
        return (bits, margin) if fits else None


def _rank_bits(count: int) -> int:
    """Returns the rank bits of a circle for the sum of two ranks, of which half are below `count`."""
    return (2 * count - 1).bit_length() if count else 0


def _ranks(excess: Indices) -> tuple[Indices, Indices, int] | None:
    """Of bits [groups, thresholds]: rank of groups, class of thresholds, count, so that a bit is 1 where rank + class >= count.

    All 0 where no bit is; None where there is no such order, or a number is no bit.
    """
    if int(excess.max()) > 1:
        return None
    if not excess.any():
        return np.zeros(len(excess), dtype=np.int64), np.zeros(excess.shape[1], dtype=np.int64), 0
    ones, ranks = np.unique(excess.sum(axis=1), return_inverse=True)
    ranks = ranks.reshape(-1).astype(np.int64)
    count = len(ones)
    met = [int(ranks[column > 0].min()) if column.any() else count for column in excess.T]
    classes = count - np.array(met, dtype=np.int64)
    same = (ranks[:, None] + classes[None] >= count) == (excess > 0)
    return (ranks, classes, count) if bool(same.all()) else None
