"""ONNX Runtime's integer kernels for sums of two numbers, products, means and concatenations: `rounding="onnxruntime"`.

Each operation in float32, fma rounded once, all of it saturated to the result's integers:

    QLinearAdd                round(fma(a, A, fma(b, B, zero - fma(zero_a, A, zero_b B)))),  A = scale_a / scale, B = scale_b / scale
    QLinearMul                round((a - zero_a) (b - zero_b) M + zero),  M = (scale_a scale_b) / scale
    QLinearConcat             round(((a - zero_a) scale_a) / scale) + zero; the integers as they are where scale and zero are the result's
    QLinearGlobalAveragePool  round(float32(sum of (a - zero_a)) M) + zero,  M = scale_a / (scale n)
    QLinearAveragePool        the same where the window is the image, else round(mean of ((a - zero_a) scale_a) / scale + zero)

None of them ever falls, so that each is a number of thresholds of one integer that are passed: the step `Staircase`. For QLinearAdd the
integer is p a + q b with the smallest weights p, q for which the answer to every pair is a function of it. The formulas were found by
comparing with ONNX Runtime 1.31, pair by pair.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, TypeAlias

import numpy as np

from cloakwork.models.arrays import Indices, Reals
from cloakwork.models.errors import RoundedIntegersWarning, UnsupportedNode, warn_user
from cloakwork.models.graph.ir import ZERO_WIRE, Lookup
from cloakwork.models.graph.steps import Step
from cloakwork.models.onnx_import.context import Constant, Context, Encrypted, Grid, OnnxNode, bounded, together
from cloakwork.models.onnx_import.linear import product
from cloakwork.models.onnx_import.windows import OUTSIDE, pooled_windows

_NEVER_PASSED: Final = 2.0**62  # fills rows of thresholds
_THIRDS: Final = 100  # that are cut off the range of a spacing
_LEAST_ROOM: Final = 1e-6  # for lines between integers
_LARGEST_WEIGHT: Final = 510  # that exact programs keep (exact_integers), but for the simplest
_MOST_TRIED: Final = 64  # pairs of weights


_Stairs: TypeAlias = tuple[int, Reals]  # the lowest answer, and thresholds that each add 1


@dataclass(frozen=True, eq=False)
class Integers:
    """A tensor of integers from low to high that stand for (integer - zero) scale; wires, or constants."""

    value: Indices
    is_encrypted: bool
    scale: np.float32
    zero: int
    low: int
    high: int

    @classmethod
    def of(cls, context: Context, node: OnnxNode, index: int) -> Integers:
        """Returns inputs index .. index + 2: integers, scale, zero point."""
        scale, zero, low, high = _form(node, index + 1)
        given = node.inputs[index]
        if not isinstance(given, Encrypted):
            return cls(np.asarray(node.constant(index)).astype(np.int64), False, scale, zero, low, high)
        grid = context.grid(given.wires)
        if grid is not None and grid.step == 1:
            low, high = max(low, round(grid.low)), min(high, round(grid.high))
        return cls(given.wires, True, scale, zero, low, high)

    @property
    def range(self) -> Indices:
        return np.arange(self.low, self.high + 1)


@dataclass(frozen=True)
class Target:
    """Scale, zero point and ends of a result."""

    scale: np.float32
    zero: int
    low: int
    high: int

    @classmethod
    def of(cls, node: OnnxNode, index: int) -> Target:
        """Returns scale at input `index`, zero point behind it."""
        return cls(*_form(node, index))

    def rounded(self, values: Constant) -> Indices:
        """Rounds half to even, saturated."""
        return np.clip(np.rint(values).astype(np.float64), self.low, self.high).astype(np.int64)


def added(context: Context, left: Integers, right: Integers, target: Target) -> Indices:
    """Computes QLinearAdd. RoundedIntegersWarning: of weights that separate the answers to most pairs only."""
    if left.is_encrypted and right.is_encrypted:
        table = _sums(left, left.range, right, right.range, target)
        x, y = together(left.value, right.value)
        if np.array_equal(x, y):
            return _looked_up(context, x, [_stairs(left.range, np.diagonal(table))], 0, target)
        ways = _separating(table, float(left.scale) / float(right.scale))
        first, second = next((way for way in ways if _is_even(_of_weights(left, right, way, table))), ways[0])
        weighted = first * left.range[:, None] + second * right.range
        stairs = _of_weights(left, right, (first, second), table)
        missed = int((_counted(weighted, stairs) != table).sum())
        if missed:
            _warn(context, f"{missed} of {table.size} pairs of integers are added otherwise, by a step")
        gather = np.stack([x.reshape(-1), y.reshape(-1)], axis=1)
        sums = context.linear(gather, [[[first, second]]]).reshape(x.shape)
        return _looked_up(context, sums, [stairs], 0, target)
    encrypted, other = (left, right) if left.is_encrypted else (right, left)
    x, constant = together(encrypted.value, other.value)
    distinct, function = np.unique(constant, return_inverse=True)
    a, b = (left.range, distinct) if left.is_encrypted else (distinct, right.range)
    table = _sums(left, a, right, b, target)
    rows = table.T if left.is_encrypted else table
    return _looked_up(context, x, [_stairs(encrypted.range, answers) for answers in rows], function, target)


def _of_weights(left: Integers, right: Integers, weights: tuple[int, int], table: Indices) -> _Stairs:
    weighted = weights[0] * left.range[:, None] + weights[1] * right.range
    return _stairs(weighted.reshape(-1), table.reshape(-1))


def _is_even(stairs: _Stairs) -> bool:
    """Whether a search of exact programs takes the thresholds."""
    apart = np.diff(stairs[1])
    return not len(apart) or bool(np.ptp(apart) <= 1)


def _sums(left: Integers, a: Indices, right: Integers, b: Indices, target: Target) -> Indices:
    """Returns [a, b]: the kernel's answers to all pairs."""
    first, second = left.scale / target.scale, right.scale / target.scale
    fixed = np.float32(target.zero) - _fma(np.asarray(left.zero), first, np.float32(right.zero) * second)
    return target.rounded(_fma(a[:, None], first, _fma(b, second, fixed)))


def _fma(x: Indices, factor: np.float32, addend: Constant | np.float32) -> Constant:
    """Products of 8 and 24 bits are exact in float64."""
    return (x * np.float64(factor) + np.asarray(addend, dtype=np.float64)).astype(np.float32)


def multiplied(context: Context, left: Integers, right: Integers, target: Target) -> Indices:
    """Computes QLinearMul: a function of the product of integers."""
    if left.is_encrypted and right.is_encrypted:
        shifted = [context.lookup(each.value, "Affine", 1.0, -each.zero) for each in (left, right)]
        factors = product(context, *shifted)
    else:
        encrypted, other = (left, right) if left.is_encrypted else (right, left)
        x, constant = together(encrypted.value, other.value)
        weight = (constant - other.zero).astype(np.float64)
        factors = context.lookup(x, "Affine", weight, -encrypted.zero * weight)
    ends = np.multiply.outer(*([each.low - each.zero, each.high - each.zero] for each in (left, right)))
    integers = np.arange(ends.min(), ends.max() + 1)
    multiplier = left.scale * right.scale / target.scale
    answers = target.rounded(integers.astype(np.float32) * multiplier + np.float32(target.zero))
    return _looked_up(context, factors, [_stairs(integers, answers)], 0, target)


def joined(context: Context, parts: Sequence[Integers], axis: int, target: Target) -> Indices:
    """Computes QLinearConcat of encrypted tensors."""
    return np.concatenate([_rescaled(context, part, target) for part in parts], axis=axis)


def _rescaled(context: Context, part: Integers, target: Target) -> Indices:
    if (part.scale, part.zero) == (target.scale, target.zero):
        return part.value
    real = (part.range - part.zero).astype(np.float32) * part.scale
    answers = target.rounded(np.rint(real / target.scale) + target.zero)
    return _looked_up(context, part.value, [_stairs(part.range, answers)], 0, target)


# --- means -----------------------------------------------------------------------------------------------------------------------


def global_mean(context: Context, x: Integers, target: Target) -> Indices:
    """Computes QLinearGlobalAveragePool of [batch, channels, ..]: [batch, channels, 1, ..]."""
    shape = x.value.shape
    sums = _window_sums(context, x, x.value.reshape(*shape[:2], -1))
    return _requantised(context, sums, x, int(np.prod(shape[2:])), target).reshape(*shape[:2], *(1 for _ in shape[2:]))


def windowed_mean(context: Context, x: Integers, attributes: dict[str, object], target: Target) -> Indices:
    """Computes QLinearAveragePool of an image [1, channels, ..]. RoundedIntegersWarning: of sums whose mean depends on the order in which float32
    adds."""
    kernel = [int(extent) for extent in attributes["kernel_shape"]]  # type: ignore[attr-defined]
    patches = pooled_windows(x.value, kernel, attributes)
    sums = _window_sums(context, x, patches)
    if tuple(kernel) == x.value.shape[2:] and (patches != OUTSIDE).all():
        return _requantised(context, sums, x, patches.shape[-1], target)[None]
    inside = (patches != OUTSIDE).sum(axis=-1)
    count = np.full_like(inside, patches.shape[-1]) if attributes.get("count_include_pad", 0) else inside
    kinds, function = np.unique(np.stack([inside, count], axis=-1).reshape(-1, 2), axis=0, return_inverse=True)
    stairs, unsure, total = [], 0, 0
    for terms, divisor in kinds.tolist():
        integers, answers, open_ones = _means(x, terms, divisor, target)
        stairs.append(_stairs(integers, answers))
        unsure, total = unsure + open_ones, total + len(integers)
    if unsure:
        _warn(
            context,
            f"the means of {unsure} of {total} sums of a window may depend on the order in which they are added",
        )
    return _looked_up(context, sums, stairs, function, target)[None]


def _window_sums(context: Context, x: Integers, windows: Indices) -> Indices:
    """Sums [..] of (integer - zero) over windows [.., n]; OUTSIDE is padding, which adds nothing."""
    gather = windows.reshape(-1, windows.shape[-1])
    inside, block = np.unique((gather != OUTSIDE).sum(axis=1), return_inverse=True)
    gather = np.where(gather == OUTSIDE, ZERO_WIRE, gather)
    weights = np.ones((len(inside), 1, gather.shape[1]))
    return context.linear(gather, weights, -x.zero * inside[:, None], block.reshape(-1)).reshape(windows.shape[:-1])


def _requantised(context: Context, sums: Indices, x: Integers, count: int, target: Target) -> Indices:
    multiplier = x.scale / (target.scale * np.float32(count))
    out = context.lookup(sums, "Requantize", 1.0, multiplier, target.zero, target.low, target.high)
    return context.mark(out, Grid(1.0, target.low, target.high))


def _means(x: Integers, terms: int, divisor: int, target: Target) -> tuple[Indices, Indices, int]:
    """Sums of a number of integers, the answer to each, and how many of them have another in some order of adding."""
    least, most = x.low - x.zero, x.high - x.zero
    bounded(terms * (most - least) + 1)
    integers = np.arange(terms * least, terms * most + 1)
    real = integers * np.float64(x.scale)
    error = _summing_error(x.scale, integers, max(abs(least), abs(most)), terms, least * most < 0)

    def answers(total: Reals) -> Indices:
        return target.rounded(total.astype(np.float32) / np.float32(divisor) / target.scale + np.float32(target.zero))

    outwards = np.where(error > 0, np.abs(real) * 2.0**-23, 0.0) + error  # the sum itself is rounded as well
    unsure = answers(real - outwards) != answers(real + outwards)
    return integers, answers(real), int(unsure.sum())


def _summing_error(scale: np.float32, integers: Indices, largest: int, terms: int, mixed: bool) -> Reals:
    """Bounds on what adding `terms` products of scale and integers up to `largest`, one after another, loses. Args: mixed: of both signs."""
    reach = np.full(integers.shape, terms * largest) if mixed else np.abs(integers)
    mantissa = round(float(np.frexp(scale)[0]) * 2**24)
    width = 24 - ((mantissa & -mantissa).bit_length() - 1)
    if width + int(reach.max()).bit_length() <= 24:
        return np.zeros(integers.shape)
    half_places = [
        np.spacing((each * np.float64(scale)).astype(np.float32)) / 2 for each in (np.asarray(largest), reach)
    ]
    total: Reals = terms * half_places[0].astype(np.float64) + (terms - 1) * half_places[1].astype(np.float64)
    return total


# --- staircases ------------------------------------------------------------------------------------------------------------------


def _stairs(integers: Indices, answers: Indices) -> _Stairs:
    """Of answers that never fall with the integers; otherwise of as many integers for each answer as there are."""
    x, y = np.sort(integers), np.sort(answers)
    rises = np.diff(y)
    below, up_to = np.repeat(x[:-1], rises), np.repeat(x[1:], rises)
    even = _evenly_spaced(below, up_to)
    return int(y[0]), (below + up_to) / 2 if even is None else even - 0.5


def _evenly_spaced(below: Indices, up_to: Indices) -> Reals | None:
    """Returns integers ceil(k P + c) above `below` and up to `up_to`, as searches of exact programs want them; None where there are none, or one."""
    if len(below) < 2:
        return None
    number = np.arange(len(below))

    def ends(spacing: float) -> tuple[float, float]:
        """Returns the ends of c."""
        return float((below - number * spacing).max()), float((up_to - number * spacing).min())

    def room(spacing: float) -> float:
        least, most = ends(spacing)
        return most - least

    low, high = 0.0, float(up_to[-1] - below[0])
    for _ in range(_THIRDS):  # the room is concave in the spacing
        third = (high - low) / 3
        low, high = (low + third, high) if room(low + third) < room(high - third) else (low, high - third)
    spacing = (low + high) / 2
    return np.ceil(number * spacing + sum(ends(spacing)) / 2) if room(spacing) > _LEAST_ROOM else None


def _counted(integers: Indices, stairs: _Stairs) -> Indices:
    lowest, thresholds = stairs
    return lowest + np.searchsorted(thresholds, integers, side="right")


def _looked_up(
    context: Context, x: Indices, stairs: Sequence[_Stairs], function: Indices | int, target: Target
) -> Indices:
    """Returns wires of x's shape. Args: function: of each wire."""
    longest = max(len(thresholds) for _, thresholds in stairs)
    rows = np.full((len(stairs), max(longest, 1)), _NEVER_PASSED)
    for row, (_, thresholds) in zip(rows, stairs, strict=True):
        row[: len(thresholds)] = thresholds
    step = Step("Staircase", (rows, np.array([float(lowest) for lowest, _ in stairs])))
    chosen = np.array(np.broadcast_to(np.reshape(function, -1), x.size), dtype=np.int64)
    out = context.add(Lookup(0, np.ascontiguousarray(x.reshape(-1)), (step,), chosen, "")).reshape(x.shape)
    return context.mark(out, Grid(1.0, target.low, target.high))


def _separating(table: Indices, ratio: float) -> list[tuple[int, int]]:
    """Weights p, q for which table [a, b] never falls with p a + q b, and is a function of it, smallest first; of this ratio where there are none.

    Pairs (a, b) of an answer up to k and (c, d) of a larger one ask for p (c - a) + q (d - b) > 0: for a largest or a least p / q.
    """
    least, most = Fraction(0), Fraction(1 << 20)
    for answer in range(int(table.min()), int(table.max())):
        below = (table <= answer).sum(axis=0) - 1  # the last a of each b
        lower, upper = np.flatnonzero(below >= 0), np.flatnonzero(below < len(table) - 1)
        rise = (below[upper] + 1)[None] - below[lower][:, None]
        run = upper[None] - lower[:, None]
        least = max(least, _extreme(-run, rise, rise > 0, largest=True))
        most = min(most, _extreme(run, -rise, rise < 0, largest=False))
    if least >= most:
        return [Fraction(ratio).limit_denominator(_LARGEST_WEIGHT).as_integer_ratio()]
    simplest = _simplest(least, most).as_integer_ratio()
    larger = [
        (p, q)
        for q in range(simplest[1], _LARGEST_WEIGHT + 1)
        for p in range(int(least * q) + 1, min(math.ceil(most * q), _LARGEST_WEIGHT + 1))
        if math.gcd(p, q) == 1 and (p, q) != simplest
    ]
    return [simplest, *sorted(larger, key=sum)[:_MOST_TRIED]]


def _extreme(above: Indices, below: Indices, chosen: Indices, largest: bool) -> Fraction:
    """Returns the largest or the least fraction of those chosen; one that asks nothing where there are none."""
    if not chosen.any():
        return Fraction(0) if largest else Fraction(1 << 20)
    numerators, denominators = above[chosen], below[chosen]
    quotients = numerators / denominators
    place = int(quotients.argmax() if largest else quotients.argmin())
    return Fraction(int(numerators[place]), int(denominators[place]))


def _simplest(least: Fraction, most: Fraction) -> Fraction:
    """Finds what lies between both, exclusive, with the smallest numerator and denominator: a walk down the Stern-Brocot tree."""
    low, high = (0, 1), (1, 0)
    while True:
        mediant = low[0] + high[0], low[1] + high[1]
        if mediant[0] * least.denominator <= least.numerator * mediant[1]:
            low = mediant
        elif mediant[0] * most.denominator >= most.numerator * mediant[1]:
            high = mediant
        else:
            return Fraction(*mediant)


# --- inputs ----------------------------------------------------------------------------------------------------------------------


def _form(node: OnnxNode, index: int) -> tuple[np.float32, int, int, int]:
    """Returns scale, zero point and ends of the integers from inputs index and index + 1."""
    scale = np.float32(node.constant(index).reshape(()))
    zero = node.constant(index + 1).reshape(()) if node.has(index + 1) else np.uint8(0)
    if not (np.isfinite(scale) and scale > 0):
        raise UnsupportedNode("has a scale that is not positive; quantise the model again")
    if zero.dtype.name not in ("int8", "uint8"):
        raise UnsupportedNode(f"has integers of type {zero.dtype}; ONNX Runtime's kernel takes int8 and uint8")
    ends = np.iinfo(zero.dtype)
    return scale, int(zero), int(ends.min), int(ends.max)


def _warn(context: Context, what: str) -> None:
    warn_user(
        f"'{context.origin}': {what}; ONNX Runtime's kernel rounds them in float32, as no function of an integer does",
        RoundedIntegersWarning,
    )
