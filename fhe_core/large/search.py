"""The cheapest plan for a sign, a floor or digits: fewest rotations, then least failure probability, among arrangements of windows.

An arrangement says how wide windows are, which of them look at one bit more than they find (its window has no further output then, and the
sign's noise matters less), from how many of the windows that follow digits are taken away, and up to how many powers of two apart scales share a
rotation. Each is rated by its look-ups (plan.py), so that nothing here can make a plan wrong, only dear.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Final, TypeAlias

from cloakwork.fhe_core._engine import ParameterSet
from cloakwork.fhe_core.large.plan import (
    Input,
    LookupNoise,
    Output,
    Plan,
    Rotation,
    rotations_p_fail_log2,
    sum_log2,
    widest_window,
)
from cloakwork.fhe_core.noise import p_fail_log2

__all__ = ["decomposition_plan", "floor_plan", "sign_plan"]


# --- arrangements -----------------------------------------------------------------------------------------------------------------


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


_BELOW_NOISE_LOG2: Final = 2
_BELOW_MARGIN_LOG2: Final = 8

_Bits: TypeAlias = tuple[int, int]  # [position, end)
_Uses: TypeAlias = Callable[
    [int, int], tuple[int, ...]
]  # of the bits [position, end), beside those of the windows that follow


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
        self.windows: list[tuple[_Bits, tuple[int, ...]]] = []  # for each rotation: the bits of its window, scales

    def parts(self, bits: _Bits, scale: int) -> tuple[int, ...]:
        """Returns rotations that together stand for all bits of a window at this scale."""
        return tuple(
            i for i, (window_bits, scales) in enumerate(self.windows) if window_bits == bits and scale in scales
        )

    def add(self, window: _Window, below: tuple[int, ...]) -> None:
        bits = (window.position, window.end)
        for scales in _shared(window.sign_uses, self.gap):
            self.rotations.append(Rotation(window.position, window.top, below, True, scales[0]))
            # Of an overlapping window the top bit is none of its bits.
            self.windows.append((bits, () if window.overlapping else tuple(s for s in scales if s in window.uses)))
        if window.top - window.position == 1:
            return
        sign_index = len(self.rotations) - 1  # of the signs the one at the coarsest scale, the window's own
        for scales in _shared(window.uses, self.gap):
            self.rotations.append(Rotation(window.position, window.top, (*below, sign_index), False, scales[0]))
            self.windows.append((bits, scales))


def _windows(parts: Sequence[_Bits], overlaps: Sequence[bool], depth: int, last_top: int, uses: _Uses) -> list[_Window]:
    """Returns windows whose bits are taken away from the `depth` windows that follow, the last of which may be a final one that ends at
    `last_top`."""
    tops = [end + overlap for (_, end), overlap in zip(parts, overlaps, strict=True)]
    if last_top:
        tops.append(last_top)
    windows = []
    for i, ((position, end), overlap) in enumerate(zip(parts, overlaps, strict=True)):
        following = tuple(tops[i + 1 : i + 1 + depth])
        windows.append(_Window(position, end, overlap, (*following, *uses(position, end))))
    return windows


def _built(windows: Sequence[_Window], depth: int, gap: int) -> _Builder:
    builder = _Builder(gap)
    for i, window in enumerate(windows):
        builder.add(window, _below(builder, windows[max(0, i - depth) : i], window.top))
    return builder


def _below(builder: _Builder, windows: Sequence[_Window], top: int) -> tuple[int, ...]:
    return tuple(i for window in windows for i in builder.parts((window.position, window.end), top))


def _gaps(windows: Sequence[_Window]) -> list[int]:
    """Returns all that make a difference."""
    gaps = {0}
    for window in windows:
        gaps |= {abs(s - t) for uses in (window.sign_uses, window.uses) for s in uses for t in uses}
    return sorted(gaps)


def _layouts(start: int, bits: int, widest: int) -> Iterator[list[_Bits]]:
    """Yields bits [start, start + bits) in windows of at most `widest`: all of that width but the lowest, or all about as wide."""
    if bits == 0:
        yield []
        return
    count = -(-bits // widest)
    ragged = [bits - widest * (count - 1)] + [widest] * (count - 1)
    even = [bits // count + (i >= count - bits % count) for i in range(count)]
    for widths in [ragged] if ragged == even else [ragged, even]:
        edges = [start + sum(widths[:i]) for i in range(count + 1)]
        yield list(pairwise(edges))


def _arrangements(
    layout: Callable[[int], Iterator[list[_Bits]]], widest: int, bits: int
) -> Iterator[tuple[list[_Bits], list[bool]]]:
    """Yields windows without overlap, all overlapping, and the last one alone; none wider than `widest`, none beyond the value."""
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
    """Returns fewest rotations, then least failure probability, among those that reach the target."""
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
    """Returns the top bit, by one rotation at `scale` after those that take the bits below away; None: the target is out of reach."""
    return _sign_plan(params, value.rounded(), scale, target_log2)


@lru_cache(maxsize=256)
def _sign_plan(params: ParameterSet, value: Input, scale: int, target_log2: float) -> Plan | None:
    noise, widest = LookupNoise.of(params), widest_window(params, target_log2)

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

    return _cheapest(plans(), lambda plan: rotations_p_fail_log2(plan, noise, value), target_log2)


def floor_plan(params: ParameterSet, value: Input, bits: int, target_log2: float) -> Plan | None:
    """Returns the lowest `bits` bits at the value's own scale, to be taken away; the result counts as wrong when it does not decode.

    Bits that come to no more than a quarter of an output's noise, or 1/256 of half a slot of the result, either way, are left (`Plan.left_below`).
    """
    return _floor_plan(params, value.rounded(), bits, target_log2)


@lru_cache(maxsize=256)
def _floor_plan(params: ParameterSet, value: Input, bits: int, target_log2: float) -> Plan | None:
    noise, widest = LookupNoise.of(params), widest_window(params, target_log2)

    below_noise = math.floor(value.bits + 1 + math.log2(noise.output) / 2) - _BELOW_NOISE_LOG2
    least = max(0, min(below_noise, bits - 1), bits - _BELOW_MARGIN_LOG2)

    def plans() -> Iterator[Plan]:
        for parts, overlaps in _arrangements(lambda w: _layouts(0, bits, w), widest, value.bits):
            for depth in (1, 2):
                windows = _windows(
                    parts, overlaps, depth, 0, lambda position, end: (value.bits,) if end > least else ()
                )
                for gap in _gaps(windows):
                    builder = _built(windows, depth, gap)
                    outputs = Output(value.bits, _below(builder, windows, value.bits))
                    yield Plan(value.bits, tuple(builder.rotations), (outputs,))

    def rate(plan: Plan) -> float:
        (removed,) = plan.outputs
        squares = value.norm**2 + sum(4.0 ** (plan.rotations[i].scale - removed.scale) for i in removed.parts)
        margin, left = 2.0 ** (bits - value.bits - 1), plan.left_below(removed) / 2.0 ** (value.bits + 1)
        result = p_fail_log2(margin, squares * noise.output, left + (value.rounding + 1) / noise.modulus)
        return sum_log2([rotations_p_fail_log2(plan, noise, value), result])

    return _cheapest(plans(), rate, target_log2)


def decomposition_plan(
    params: ParameterSet, value: Input, digits: tuple[int, ...], slots_log2: int, target_log2: float
) -> Plan | None:
    """Returns digits of these lengths, lowest first, at d / 2^slots_log2, each with a noise that a look-up of the set takes."""
    return _decomposition_plan(params, value.rounded(), digits, slots_log2, target_log2)


@lru_cache(maxsize=256)
def _decomposition_plan(
    params: ParameterSet, value: Input, digits: tuple[int, ...], slots_log2: int, target_log2: float
) -> Plan | None:
    noise, widest = LookupNoise.of(params), widest_window(params, target_log2)
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
        return 0.0 if max(norms) > params.max_weight_norm else rotations_p_fail_log2(plan, noise, value)

    return _cheapest(plans(), rate, target_log2)
