"""Which look-ups find the bits of a large value, lowest first, and how probably one of them fails: arithmetic on a parameter row alone.

A value m of B bits stands at m / 2^B of the torus. A *window* [position, top) reads its bits from 2^(B - top) times the ciphertext, where the
bits above have left the torus, less outputs of earlier rotations, which take bits below away. What remains below is less than a slot, and half
of it is subtracted. A window of several bits takes two rotations: a negacyclic one for its top bit (`sign`), and one for the other bits, which
without the top bit lie in half of the torus. An output that stands for bits d 2^i at *scale* t is d 2^i / 2^t of the torus; times 2^(t - s), with
as much more noise, it is the same at scale s.

Source: [LMP21] floor, sign and decomposition by two look-ups for each digit. Ours subtracts digits where the next window reads them, and not from
the value itself, so that their noise meets the scale of a digit (docs/decisions/large-precision.md).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, TypeAlias

from cloakwork.fhe_core._engine import ParameterSet
from cloakwork.fhe_core.noise import (
    blind_rotation_variance,
    keyswitch_variance,
    lookup_offset,
    modulus_switch_variance,
    p_fail_log2,
)

__all__ = [
    "Input",
    "Output",
    "Plan",
    "Rotation",
    "decomposition_plan",
    "floor_plan",
    "function_p_fail_log2",
    "sign_plan",
    "widest_window",
]

_NORM_STEPS: Final = 4  # norms of inputs are rounded up to powers of 2^(1/4), so that few plans are made


@dataclass(frozen=True)
class Input:
    """What a plan needs to know of the encrypted value.

    Args:
        bits: B.
        norm: standard deviation of its noise, in units of a fresh look-up's output.
        rounding: how far plaintext constants moved its phase, in words, at most.
    """

    bits: int
    norm: float
    rounding: float = 0.0

    def rounded(self) -> Input:
        """At least as noisy, of few different norms."""
        norm = 0.0 if self.norm == 0 else 2.0 ** (math.ceil(math.log2(self.norm) * _NORM_STEPS - 1e-6) / _NORM_STEPS)
        return Input(self.bits, norm, float(math.ceil(self.rounding)))


@dataclass(frozen=True)
class Rotation:
    """One look-up of a plan.

    Args:
        position, top: the window's bits are [position, top).
        removed: earlier rotations whose outputs are subtracted first.
        sign: it finds the top bit; else the bits below, the top bit being among `removed`.
        scale: of its output.
    """

    position: int
    top: int
    removed: tuple[int, ...]
    sign: bool
    scale: int

    @property
    def found(self) -> tuple[int, int]:
        """The bits that its output stands for, [lowest, end)."""
        return (self.top - 1, self.top) if self.sign else (self.position, self.top - 1)


@dataclass(frozen=True)
class Output:
    """A sum of outputs of rotations, at one scale: what a floor takes away, or a digit."""

    scale: int
    parts: tuple[int, ...]


@dataclass(frozen=True)
class Plan:
    """Rotations in order, what is made of them, and log2 of the probability that any of it is wrong (at most: the sum over all)."""

    bits: int
    rotations: tuple[Rotation, ...]
    outputs: tuple[Output, ...]
    p_fail_log2: float = 0.0

    def margin(self, rotation: Rotation) -> float:
        """Half a slot less half of what remains below it: (2^position - 2^c + 1) / 2^(top + 1), c the lowest bit that is taken away.

        It is what is added to the phase, too, so that both edges of a slot are as far.
        """
        return self.margin_words(rotation) / 2.0 ** (rotation.top + 1)

    def margin_words(self, rotation: Rotation) -> int:
        found = [self.rotations[i].found for i in rotation.removed]
        lowest = min([rotation.position, *(first for first, end in found if end <= rotation.position)])
        return (1 << rotation.position) - (1 << lowest) + 1


# --- failure ----------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Noise:
    """Variances of a row, torus squared: a look-up's output, what a look-up adds to its input; and the shift of the mean."""

    output: float
    added: float
    offset: float
    modulus: int

    @classmethod
    def of(cls, params: ParameterSet) -> _Noise:
        added = keyswitch_variance(params) + modulus_switch_variance(params)
        return cls(blind_rotation_variance(params), added, lookup_offset(params), params.modulus)


def _sum_log2(terms: Sequence[float]) -> float:
    """log2 of the sum of 2^term, at most 0."""
    largest = max(terms, default=-math.inf)
    if largest == -math.inf:
        return largest
    return min(0.0, largest + math.log2(sum(2.0 ** (term - largest) for term in terms)))


def _rotation_p_fail_log2(plan: Plan, rotation: Rotation, noise: _Noise, value: Input) -> float:
    """Of one look-up: its input is a sum of distinct sources, the value's noise and one output of each removed rotation."""
    times = 2.0 ** (value.bits - rotation.top)
    squares = (times * value.norm) ** 2 + sum(4.0 ** (plan.rotations[i].scale - rotation.top) for i in rotation.removed)
    offset = noise.offset + (times * value.rounding + 1) / noise.modulus
    return p_fail_log2(plan.margin(rotation), squares * noise.output + noise.added, offset)


def _total_p_fail_log2(plan: Plan, noise: _Noise, value: Input) -> float:
    return _sum_log2([_rotation_p_fail_log2(plan, rotation, noise, value) for rotation in plan.rotations])


def function_p_fail_log2(params: ParameterSet, modulus: int, value: Input, negacyclic: bool) -> float:
    """log2 of the failure probability of any function of an integer modulo q at m / q, two rotations, or of a negacyclic one, one rotation.

    Halving the phase halves its noise: the sign sees it with margin 1 / 4q, the look-up after it the sign's output as well.
    """
    noise = _Noise.of(params)
    squares, moved = value.norm**2, (value.rounding + 1) / params.modulus
    if negacyclic:
        variance = squares * noise.output + noise.added
        return p_fail_log2(1 / (2 * modulus), variance, noise.offset + moved)
    halved = [squares / 4 * noise.output, (squares / 4 + 1) * noise.output]
    offset = noise.offset + moved / 2
    return _sum_log2([p_fail_log2(1 / (4 * modulus), variance + noise.added, offset) for variance in halved])


def widest_window(params: ParameterSet, target_log2: float) -> int:
    """Bits of a window that one look-up of a noiseless input reads with at most that failure probability; 0: none."""
    noise = _Noise.of(params)
    width = 0
    while p_fail_log2(2.0 ** -(width + 2), noise.added, noise.offset) <= target_log2:
        width += 1
    return width


# --- how a plan is made -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Window:
    """Bits [position, end) to find; `overlapping`: its window has one bit more, which is looked at and left to the next."""

    position: int
    end: int
    overlapping: bool
    uses: tuple[int, ...]  # scales at which its bits are wanted

    @property
    def top(self) -> int:
        return self.end + self.overlapping

    @property
    def sign_uses(self) -> tuple[int, ...]:
        if self.top - self.position == 1:
            return self.uses
        return (self.top,) if self.overlapping else (self.top, *self.uses)


_Bits: TypeAlias = tuple[int, int]  # [position, end)
_Uses: TypeAlias = Callable[[int, int], tuple[int, ...]]  # of the bits [position, end), beside those of the windows that follow


def _shared(uses: Sequence[int], gap: int) -> list[tuple[int, ...]]:
    """Scales in groups of at most `gap` from the finest, each for one rotation at that; finest first."""
    groups: list[list[int]] = []
    for scale in sorted(set(uses), reverse=True):
        if groups and groups[-1][0] - scale <= gap:
            groups[-1].append(scale)
        else:
            groups.append([scale])
    return [tuple(group) for group in groups]


class _Builder:
    """Rotations one after the other, and for which scales each was made."""

    def __init__(self, gap: int) -> None:
        self.gap = gap
        self.rotations: list[Rotation] = []
        self.made: list[tuple[_Bits, tuple[int, ...]]] = []  # for each rotation: the bits of its window, scales

    def parts(self, bits: _Bits, scale: int) -> tuple[int, ...]:
        """Rotations that together stand for all bits of a window at this scale."""
        return tuple(i for i, (found, scales) in enumerate(self.made) if found == bits and scale in scales)

    def add(self, window: _Window, below: tuple[int, ...]) -> None:
        bits = (window.position, window.end)
        for scales in _shared(window.sign_uses, self.gap):
            self.rotations.append(Rotation(window.position, window.top, below, True, scales[0]))
            # Of an overlapping window the top bit is none of its bits.
            self.made.append((bits, () if window.overlapping else tuple(s for s in scales if s in window.uses)))
        if window.top - window.position == 1:
            return
        own = len(self.rotations) - 1  # of the signs the one at the coarsest scale, the window's own
        for scales in _shared(window.uses, self.gap):
            self.rotations.append(Rotation(window.position, window.top, (*below, own), False, scales[0]))
            self.made.append((bits, scales))


def _windows(parts: Sequence[_Bits], overlaps: Sequence[bool], depth: int, last_top: int, uses: _Uses) -> list[_Window]:
    """Windows whose bits are taken away from the `depth` windows that follow, the last of which may be a final one that ends at `last_top`."""
    tops = [end + overlap for (_, end), overlap in zip(parts, overlaps, strict=True)]
    if last_top:
        tops.append(last_top)
    made = []
    for i, ((position, end), overlap) in enumerate(zip(parts, overlaps, strict=True)):
        following = tuple(tops[i + 1 : i + 1 + depth])
        made.append(_Window(position, end, overlap, (*following, *uses(position, end))))
    return made


def _built(windows: Sequence[_Window], depth: int, gap: int) -> _Builder:
    builder = _Builder(gap)
    for i, window in enumerate(windows):
        builder.add(window, _below(builder, windows[max(0, i - depth) : i], window.top))
    return builder


def _below(builder: _Builder, windows: Sequence[_Window], top: int) -> tuple[int, ...]:
    return tuple(i for window in windows for i in builder.parts((window.position, window.end), top))


def _gaps(windows: Sequence[_Window]) -> list[int]:
    """All that make a difference."""
    gaps = {0}
    for window in windows:
        gaps |= {abs(s - t) for uses in (window.sign_uses, window.uses) for s in uses for t in uses}
    return sorted(gaps)


def _layouts(start: int, bits: int, widest: int) -> Iterator[list[_Bits]]:
    """Bits [start, start + bits) in windows of at most `widest`: all of that width but the lowest, or all about as wide."""
    if bits == 0:
        yield []
        return
    count = -(-bits // widest)
    ragged = [bits - widest * (count - 1)] + [widest] * (count - 1)
    even = [bits // count + (i >= count - bits % count) for i in range(count)]
    for widths in [ragged] if ragged == even else [ragged, even]:
        edges = [start + sum(widths[:i]) for i in range(count + 1)]
        yield list(zip(edges, edges[1:], strict=False))


def _arrangements(
    layout: Callable[[int], Iterator[list[_Bits]]], widest: int, bits: int
) -> Iterator[tuple[list[_Bits], list[bool]]]:
    """Windows without overlap, all overlapping, and the last one alone; none wider than `widest`, none beyond the value."""
    seen = set()
    for width in {1, *range(max(1, widest - 3), widest + 1)}:
        for parts in layout(width):
            for choice in ("none", "all", "last"):
                overlaps = [
                    choice != "none"
                    and (choice == "all" or i == len(parts) - 1)
                    and end < bits
                    and 1 < end + 1 - position <= widest
                    for i, (position, end) in enumerate(parts)
                ]
                key = (tuple(parts), tuple(overlaps))
                if key not in seen:
                    seen.add(key)
                    yield parts, overlaps


# --- plans ------------------------------------------------------------------------------------------------------------------------


def _cheapest(plans: Iterator[Plan], rate: Callable[[Plan], float], target_log2: float) -> Plan | None:
    """Fewest rotations, then least failure probability, among those that reach the target."""
    ordered = sorted(plans, key=lambda plan: len(plan.rotations))
    best: Plan | None = None
    for plan in ordered:
        if best is not None and len(plan.rotations) > len(best.rotations):
            break
        p_fail = rate(plan)
        if p_fail <= target_log2 and (best is None or p_fail < best.p_fail_log2):
            best = Plan(plan.bits, plan.rotations, plan.outputs, p_fail)
    return best


def sign_plan(params: ParameterSet, value: Input, scale: int, target_log2: float) -> Plan | None:
    """The top bit, by one rotation at `scale` after those that take the bits below away; None: the target is out of reach."""
    return _sign_plan(params, value.rounded(), scale, target_log2)


@lru_cache(maxsize=256)
def _sign_plan(params: ParameterSet, value: Input, scale: int, target_log2: float) -> Plan | None:
    noise, widest = _Noise.of(params), widest_window(params, target_log2)

    def plans() -> Iterator[Plan]:
        for final in range(1, min(widest, value.bits) + 1):
            below = value.bits - final
            for parts, overlaps in _arrangements(lambda w, below=below: _layouts(0, below, w), widest, value.bits):  # type: ignore[misc]
                for depth in (1, 2):
                    windows = _windows(parts, overlaps, depth, value.bits, lambda position, end: ())
                    for gap in _gaps(windows):
                        builder = _built(windows, depth, gap)
                        removed = _below(builder, windows[-depth:], value.bits)
                        last = Rotation(below, value.bits, removed, True, scale)
                        rotations = (*builder.rotations, last)
                        yield Plan(value.bits, rotations, (Output(scale, (len(rotations) - 1,)),))

    return _cheapest(plans(), lambda plan: _total_p_fail_log2(plan, noise, value), target_log2)


def floor_plan(params: ParameterSet, value: Input, bits: int, target_log2: float) -> Plan | None:
    """The lowest `bits` bits at the value's own scale, to be taken away; the result counts as wrong when it does not decode."""
    return _floor_plan(params, value.rounded(), bits, target_log2)


@lru_cache(maxsize=256)
def _floor_plan(params: ParameterSet, value: Input, bits: int, target_log2: float) -> Plan | None:
    noise, widest = _Noise.of(params), widest_window(params, target_log2)

    def plans() -> Iterator[Plan]:
        for parts, overlaps in _arrangements(lambda w: _layouts(0, bits, w), widest, value.bits):
            for depth in (1, 2):
                windows = _windows(parts, overlaps, depth, 0, lambda position, end: (value.bits,))
                for gap in _gaps(windows):
                    builder = _built(windows, depth, gap)
                    outputs = Output(value.bits, _below(builder, windows, value.bits))
                    yield Plan(value.bits, tuple(builder.rotations), (outputs,))

    def rate(plan: Plan) -> float:
        (removed,) = plan.outputs
        squares = value.norm**2 + sum(4.0 ** (plan.rotations[i].scale - removed.scale) for i in removed.parts)
        margin = 2.0 ** (bits - value.bits - 1)
        result = p_fail_log2(margin, squares * noise.output, (value.rounding + 1) / noise.modulus)
        return _sum_log2([_total_p_fail_log2(plan, noise, value), result])

    return _cheapest(plans(), rate, target_log2)


def decomposition_plan(
    params: ParameterSet, value: Input, digits: tuple[int, ...], slots_log2: int, target_log2: float
) -> Plan | None:
    """Digits of these lengths, lowest first, at d / 2^slots_log2, each with a noise that a look-up of the set takes."""
    return _decomposition_plan(params, value.rounded(), digits, slots_log2, target_log2)


@lru_cache(maxsize=256)
def _decomposition_plan(
    params: ParameterSet, value: Input, digits: tuple[int, ...], slots_log2: int, target_log2: float
) -> Plan | None:
    noise, widest = _Noise.of(params), widest_window(params, target_log2)
    starts = [sum(digits[:i]) for i in range(len(digits))]

    def layout(width: int) -> Iterator[list[_Bits]]:
        ways = [list(_layouts(start, bits, width)) for start, bits in zip(starts, digits, strict=True)]
        for way in range(max(map(len, ways))):
            yield [part for parts in ways for part in parts[min(way, len(parts) - 1)]]

    def scale(position: int) -> int:
        return max(start for start in starts if start <= position) + slots_log2

    def plans() -> Iterator[Plan]:
        for parts, overlaps in _arrangements(layout, widest, value.bits):
            for depth in (1, 2):
                windows = _windows(parts, overlaps, depth, 0, lambda position, end: (scale(position),))
                for gap in _gaps(windows):
                    builder = _built(windows, depth, gap)
                    outputs = [
                        Output(
                            start + slots_log2,
                            _below(
                                builder, [w for w in windows if start <= w.position < start + bits], start + slots_log2
                            ),
                        )
                        for start, bits in zip(starts, digits, strict=True)
                    ]
                    yield Plan(value.bits, tuple(builder.rotations), tuple(outputs))

    def rate(plan: Plan) -> float:
        norms = [
            math.sqrt(sum(4.0 ** (plan.rotations[i].scale - output.scale) for i in output.parts))
            for output in plan.outputs
        ]
        return 0.0 if max(norms) > params.max_weight_norm else _total_p_fail_log2(plan, noise, value)

    return _cheapest(plans(), rate, target_log2)
