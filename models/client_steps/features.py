"""Steps that make new features of several columns, or bend single ones: what scikit-learn's transformers of the same kind compute.

Whole numbers go through exactly as there; real ones within rounding. What scikit-learn refuses is refused here
too, with the same inputs, or replaced (unfit.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from statistics import NormalDist
from typing import Final

import numpy as np
from numpy.typing import NDArray

from cloakwork.models.arrays import Indices, Reals
from cloakwork.models.client_steps.checks import as_wide, demand
from cloakwork.models.client_steps.unfit import REFUSED, Refusing, Unfit, without_infinite, without_missing

_LARGEST_POWER: Final = 1000
_LARGEST_DEGREE: Final = 16
_EDGE: Final = 1e-7  # of a share: values so near to the ends of the training data count as the ends


def _finite(x: Reals, step: str, unfit: Unfit) -> Reals:
    """NaN passes, infinite numbers do not: no model takes them."""
    return without_infinite(
        x, f"input: {step} gives infinite numbers for it; expected values in the range of the training data", unfit
    )


@dataclass(frozen=True, eq=False)
class Project(Refusing):
    """Projection (x - offset) matrix of [columns] to [outputs]: principal components, random projections."""

    offset: Reals
    matrix: Reals  # [columns, outputs]

    def __post_init__(self) -> None:
        demand(
            self.matrix.ndim == 2 and self.offset.shape == self.matrix.shape[:1],
            "a matrix and an offset for each column",
        )
        demand(min(self.matrix.shape) > 0, "a matrix with entries")

    def __call__(self, x: Reals, unfit: Unfit = REFUSED) -> Reals:
        as_wide(x, len(self.offset))
        x = without_missing(x, "a projection", unfit)
        result: Reals = (x - self.offset) @ self.matrix
        return result


@dataclass(frozen=True, eq=False)
class Polynomials(Refusing):
    """Output r is the product of the columns to the powers `powers[r]`; all zeros give 1."""

    powers: Indices  # [outputs, columns]

    def __post_init__(self) -> None:
        demand(self.powers.ndim == 2 and min(self.powers.shape) > 0, "powers [outputs, columns]")
        demand(bool(((self.powers >= 0) & (self.powers <= _LARGEST_POWER)).all()), f"powers of 0 to {_LARGEST_POWER}")

    def __call__(self, x: Reals, unfit: Unfit = REFUSED) -> Reals:
        as_wide(x, self.powers.shape[1])
        x = without_missing(x, "a polynomial", unfit)
        result = np.ones((len(x), len(self.powers)))
        for column in reversed(
            range(self.powers.shape[1])
        ):  # factor by factor in the order of scikit-learn, to the last bit
            powers = self.powers[:, column]
            for factor in range(int(powers.max())):
                result[:, powers > factor] *= x[:, column, None]
        return _finite(result, "a polynomial", unfit)


@dataclass(frozen=True, eq=False)
class Power(Refusing):
    """The power transform of each column: `box-cox` of positive values, `yeo-johnson` of any. Missing values stay.

    Source: [BC64], [YJ00].
    """

    method: str
    exponent: Reals  # [columns], lambda

    def __post_init__(self) -> None:
        demand(self.method in ("box-cox", "yeo-johnson"), "a method: box-cox or yeo-johnson")
        demand(self.exponent.ndim == 1, "an exponent for each column")

    def __call__(self, x: Reals, unfit: Unfit = REFUSED) -> Reals:
        as_wide(x, len(self.exponent))
        if self.method == "box-cox":
            smallest = np.finfo(x.dtype).tiny
            x = unfit.taken(
                x, x <= 0, smallest, "input: the Box-Cox transform takes positive numbers only, got one of zero or less"
            )
        one = _box_cox if self.method == "box-cox" else _yeo_johnson
        with np.errstate(all="ignore"):
            columns = [one(column, float(exponent)) for column, exponent in zip(x.T, self.exponent, strict=True)]
        return _finite(np.stack(columns, axis=1), "a power transform", unfit)


def _box_cox(x: Reals, exponent: float) -> Reals:
    return _of_logarithm(np.log(x), exponent)


def _yeo_johnson(x: Reals, exponent: float) -> Reals:
    positive = _of_logarithm(np.log1p(np.maximum(x, 0)), exponent)
    negative = -_of_logarithm(np.log1p(-np.minimum(x, 0)), 2 - exponent)
    return np.where(x >= 0, positive, np.where(x < 0, negative, x))


def _of_logarithm(logarithm: Reals, exponent: float) -> Reals:
    """Returns (e^(l exponent) - 1) / exponent, l where that is 0."""
    if abs(exponent) < np.finfo(np.float64).eps:
        return logarithm
    result: Reals = np.expm1(exponent * logarithm) / exponent
    return result


@dataclass(frozen=True, eq=False)
class Quantiles:
    """The quantile of a value, the share of the training data below it: interpolated between its quantiles, as that share or as the normal
    distribution's value for it. Missing values stay."""

    quantiles: Reals  # [references, columns], ascending
    references: Reals  # shares
    output: str  # uniform, normal

    def __post_init__(self) -> None:
        demand(
            self.quantiles.ndim == 2 and self.references.shape == self.quantiles.shape[:1], "a share for each quantile"
        )
        demand(len(self.references) > 0 and bool((np.diff(self.references) >= 0).all()), "ascending shares")
        demand(bool((np.diff(self.quantiles, axis=0) >= 0).all()), "ascending quantiles")
        demand(self.output in ("uniform", "normal"), "an output: uniform or normal")

    def __call__(self, x: Reals) -> Reals:
        as_wide(x, self.quantiles.shape[1])
        return np.stack(
            [self._column(column, points) for column, points in zip(x.T, self.quantiles.T, strict=True)], axis=1
        )

    def _column(self, x: Reals, points: Reals) -> Reals:
        # Of equal quantiles a value lies at the middle of their shares.
        below = np.interp(x, points, self.references)
        above = -np.interp(-x, -points[::-1], -self.references[::-1])
        share = 0.5 * (below + above)
        edge = _EDGE if self.output == "normal" else 0.0
        # The lower end wins where both are the same.
        share = np.where(x + edge > points[-1] if edge else x == points[-1], 1.0, share)
        share = np.where(x - edge < points[0] if edge else x == points[0], 0.0, share)
        if self.output == "uniform":
            return np.where(np.isnan(x), x, share)
        low, high = _EDGE - np.spacing(1), 1 - (_EDGE - np.spacing(1))
        normal = _normal_value(np.clip(np.where(np.isnan(x), 0.5, share), low, high))
        return np.where(np.isnan(x), x, normal)


def _normal_value(shares: Reals) -> Reals:
    """Returns the inverse of the normal distribution's cumulative function."""
    distinct, place = np.unique(shares, return_inverse=True)
    inverse = NormalDist().inv_cdf
    return np.array([inverse(float(share)) for share in distinct])[place]


ZERO_IS_MISSING: Final = "zero is missing"


def _missing_for_zero(x: Reals) -> Reals:
    """Returns what is absent from a sparse matrix."""
    return np.where(x == 0, np.nan, x)


def _logarithm_of_counts(x: Reals) -> Reals:
    """1 + log(count), zeros stay: the sublinear frequencies of TF-IDF."""
    return np.where(x != 0, np.log(np.where(x != 0, x, 1.0)) + 1, 0.0)


# By the name that numpy gives them; functions by name alone travel in a client specification.
FUNCTIONS: Final[dict[str, Callable[[Reals], Reals]]] = {
    **{
        name: getattr(np, name)
        for name in (
            "absolute", "arccos", "arccosh", "arcsin", "arcsinh", "arctan", "arctanh", "cbrt", "ceil", "cos", "cosh", "deg2rad", "exp", "exp2",
            "expm1", "fabs", "floor", "log", "log10", "log1p", "log2", "negative", "positive", "rad2deg", "reciprocal", "rint", "sign", "sin",
            "sinh", "sqrt", "square", "tan", "tanh", "trunc",
        )
    },
    "logarithm of counts": _logarithm_of_counts,
    ZERO_IS_MISSING: _missing_for_zero,
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Function(Refusing):
    """A function of FUNCTIONS of every number. Missing values stay; outside of its domain it gives missing ones."""

    name: str

    def __post_init__(self) -> None:
        demand(self.name in FUNCTIONS, "a function that is known by name")

    def __call__(self, x: Reals, unfit: Unfit = REFUSED) -> Reals:
        with np.errstate(all="ignore"):
            return _finite(np.asarray(FUNCTIONS[self.name](x), dtype=np.float64), f"'{self.name}'", unfit)


@dataclass(frozen=True, eq=False)
class Splines(Refusing):
    """Each column as the values of its B-splines of `degree`, the first column's first.

    Beyond the ends of the base knots: `constant` the values there, `continue` the polynomial of the outermost piece, `periodic` from the
    other end on, `error` refused.

    Source: [PT97] algorithm A2.2.
    """

    knots: Reals  # [knots, columns], `degree` of them beyond either end
    degree: int
    outside: str
    bias: bool  # else the last spline of each column is left out

    def __post_init__(self) -> None:
        demand(
            self.knots.ndim == 2 and 0 <= self.degree <= _LARGEST_DEGREE,
            f"knots of splines of degree 0 to {_LARGEST_DEGREE}",
        )
        demand(len(self.knots) >= 2 * self.degree + 2 and self.knots.shape[1] > 0, "two base knots at least")
        demand(bool((np.diff(self.knots, axis=0) >= 0).all()), "ascending knots")
        demand(
            self.outside in ("constant", "continue", "periodic", "error"), "a known rule for values beyond the knots"
        )

    def __call__(self, x: Reals, unfit: Unfit = REFUSED) -> Reals:
        as_wide(x, self.knots.shape[1])
        x = without_missing(x, "a spline", unfit)
        if self.outside == "error":
            low, high = self.knots[self.degree], self.knots[-self.degree - 1]
            reason = "input: a spline takes no values beyond its knots, got one; the model was trained with extrapolation='error'"
            x = unfit.taken(x, (x < low) | (x > high), np.clip(x, low, high), reason)
        return np.concatenate([self._values(c, k) for c, k in zip(x.T, self.knots.T, strict=True)], axis=1)

    def _values(self, x: Reals, knots: Reals) -> Reals:
        degree, low, high = self.degree, knots[self.degree], knots[-self.degree - 1]
        below, above = x < low, x > high
        if self.outside == "constant":
            x = np.clip(x, low, high)
        elif self.outside == "periodic":
            x = low + (x - low) % (high - low)
        count = len(knots) - degree - 1
        piece = np.clip(np.searchsorted(knots, x, side="right") - 1, degree, count - 1)
        local = _spline_values(x, knots, piece, degree)
        result = np.zeros((len(x), count))
        result[np.arange(len(x))[:, None], piece[:, None] - degree + np.arange(degree + 1)] = local
        if self.outside == "constant":  # beyond the ends only the outermost splines count, of degree 0 none
            result[below, degree:] = 0.0
            result[above, : count - degree] = 0.0
        if self.outside == "periodic" and degree:
            result[:, :degree] += result[:, -degree:]
            result = result[:, :-degree]
        return result if self.bias else result[:, :-1]


def _spline_values(x: Reals, knots: Reals, piece: NDArray[np.int64], degree: int) -> Reals:
    """Returns [samples, degree + 1]: the splines that are not zero between knots `piece` and `piece` + 1."""
    values = np.zeros((len(x), degree + 1))
    values[:, 0] = 1.0
    with np.errstate(all="ignore"):
        for j in range(1, degree + 1):
            saved = np.zeros(len(x))
            for r in range(j):
                right, left = knots[piece + r + 1], knots[piece + r + 1 - j]
                part = np.where(right > left, values[:, r] / (right - left), 0.0)  # of equal knots there is no piece
                values[:, r] = saved + (right - x) * part
                saved = (x - left) * part
            values[:, j] = saved
    return values


@dataclass(frozen=True, eq=False)
class Binarise(Refusing):
    """Binarisation: 1 above the column's threshold, else 0."""

    threshold: Reals

    def __post_init__(self) -> None:
        demand(self.threshold.ndim == 1 and not np.isnan(self.threshold).any(), "a threshold for each column")

    def __call__(self, x: Reals, unfit: Unfit = REFUSED) -> Reals:
        as_wide(x, len(self.threshold))
        x = without_missing(x, "a threshold", unfit)
        return (x > self.threshold).astype(np.float64)


@dataclass(frozen=True, eq=False)
class Present(Refusing):
    """A check that no values are missing from here on."""

    def __call__(self, x: Reals, unfit: Unfit = REFUSED) -> Reals:
        return without_missing(x, "the model", unfit)
