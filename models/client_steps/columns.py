"""Steps on a table of numbers, column by column or sample by sample, and what brings values into the range that is encrypted."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from cloakwork.models.arrays import Indices, Reals
from cloakwork.models.client_steps.checks import MOST_COLUMNS, Stage, demand
from cloakwork.models.client_steps.unfit import REFUSED, Refusing, Unfit

_SLACK: Final = 1e-9  # of a range: values beyond it by less count as its end without a word


@dataclass(frozen=True, eq=False)
class Impute:
    """Missing values become fill [columns]."""

    fill: Reals

    def __post_init__(self) -> None:
        demand(self.fill.ndim == 1, "a number for each column")

    def __call__(self, x: Reals) -> Reals:
        return np.where(np.isnan(x), self.fill, x)


@dataclass(frozen=True, eq=False)
class Complete(Refusing):
    """A check that columns have no missing values; `names` are theirs."""

    names: tuple[str, ...]
    columns: Indices

    def __post_init__(self) -> None:
        demand(self.columns.shape == (len(self.names),), "a name for each column")
        demand(all(isinstance(name, str) for name in self.names), "names of columns that are texts")

    def __call__(self, x: Reals, unfit: Unfit = REFUSED) -> Reals:
        bad = np.zeros(x.shape, dtype=np.bool_)
        bad[:, self.columns] = np.isnan(x[:, self.columns])
        if not bad.any():
            return x
        name = self.names[int(np.argmax(bad[:, self.columns].any(axis=0)))]
        reason = f"input: column '{name}' has missing values (NaN), which are replaced in other columns only; replace them first"
        return unfit.taken(x, bad, 0.0, reason)


@dataclass(frozen=True, eq=False)
class Standardise:
    """Standardisation: (x - offset) * scale, column by column."""

    offset: Reals
    scale: Reals

    def __post_init__(self) -> None:
        demand(self.offset.ndim == self.scale.ndim == 1, "an offset and a scale for each column")

    def __call__(self, x: Reals) -> Reals:
        result: Reals = (x - self.offset) * self.scale
        return result


@dataclass(frozen=True, eq=False)
class Divide:
    """Division: (x - offset) / divisor, column by column, to the last bit what scalers of scikit-learn make, which trees compare with values so
    made."""

    offset: Reals
    divisor: Reals

    def __post_init__(self) -> None:
        demand(self.offset.ndim == self.divisor.ndim == 1, "an offset and a divisor for each column")
        demand(bool(self.divisor.all()), "divisors other than zero")

    def __call__(self, x: Reals) -> Reals:
        # Of float32 both are rounded first.
        offset, divisor = (each.astype(x.dtype, copy=False) for each in (self.offset, self.divisor))
        result: Reals = (x - offset) / divisor
        return result


@dataclass(frozen=True, eq=False)
class Normalise:
    """Each sample divided by its norm; samples of zeros stay."""

    norm: str  # l1, l2, max

    def __post_init__(self) -> None:
        demand(self.norm in ("l1", "l2", "max"), "one of the norms l1, l2, max")

    def __call__(self, x: Reals) -> Reals:
        size = {"l1": np.abs(x).sum(axis=1), "l2": np.sqrt(np.square(x).sum(axis=1)), "max": np.abs(x).max(axis=1)}
        length = size[self.norm][:, None]
        result: Reals = x / np.where(length > 0, length, 1.0)
        return result


@dataclass(frozen=True, eq=False)
class OneHot:
    """Column j with `sizes[j]` > 0 holds category numbers and becomes that many columns of 0 and 1; -1 gives zeros. Others stay."""

    sizes: Indices

    def __post_init__(self) -> None:
        demand(self.sizes.ndim == 1 and bool((self.sizes >= 0).all()), "a number of categories for each column")
        total = sum(max(int(size), 1) for size in self.sizes)
        demand(0 < total <= MOST_COLUMNS, f"1 to {MOST_COLUMNS} columns of categories")

    def __call__(self, x: Reals) -> Reals:
        demand(x.shape[1] == len(self.sizes), "as many columns as the encoder has")
        parts = [
            x[:, j : j + 1] if size == 0 else (x[:, j : j + 1] == np.arange(size)).astype(np.float64)
            for j, size in enumerate(self.sizes)
        ]
        return np.concatenate(parts, axis=1)


@dataclass(frozen=True, eq=False)
class Equal:
    """Output b of a sample: 1 where column feature[b] is value[b], else 0: one-hot codes of numbers."""

    feature: Indices
    value: Reals

    def __post_init__(self) -> None:
        demand(self.feature.shape == self.value.shape == (len(self.feature),), "a value for each comparison")
        demand(bool((self.feature >= 0).all()), "features that exist")

    def __call__(self, x: Reals) -> Reals:
        result: Reals = (x[:, self.feature] == self.value).astype(np.float64)
        return result


@dataclass(frozen=True, eq=False)
class Select:
    """The named columns, in that order."""

    columns: Indices

    def __post_init__(self) -> None:
        demand(self.columns.ndim == 1, "a list of columns")

    def __call__(self, x: Reals) -> Reals:
        return x[:, self.columns]


@dataclass(frozen=True, eq=False)
class Saturate:
    """Values beyond [lower, upper] of their column count as its end; `run_input_steps` reports them. In linear models of earlier releases."""

    lower: Reals
    upper: Reals

    def __post_init__(self) -> None:
        demand(self.lower.shape == self.upper.shape == (self.lower.size,), "a range for each column")

    def __call__(self, x: Reals) -> Reals:
        return np.clip(x, self.lower, self.upper)

    def outside(self, x: Reals) -> NDArray[np.bool_]:
        return _outside(x, self.lower, self.upper)


@dataclass(frozen=True, eq=False)
class Rescale:
    """Tensors of any shape to (x - offset) scale, each column or channel with its own; values beyond [lower, upper] count as the end.

    The arrays have the shape of a sample, or one that broadcasts to it; `run_input_steps` reports values beyond.
    """

    lower: Reals
    upper: Reals
    offset: Reals
    scale: Reals

    def __post_init__(self) -> None:
        demand(
            self.lower.shape == self.upper.shape == self.offset.shape == self.scale.shape and self.lower.ndim > 0,
            "a range, an offset and a scale for each column",
        )
        demand(bool((self.lower <= self.upper).all() and (self.scale > 0).all()), "ranges and positive scales")

    def __call__(self, x: Any) -> Reals:
        clipped = np.clip(np.asarray(x, dtype=np.float64), self.lower, self.upper)
        return np.asarray((clipped - self.offset) * self.scale)

    def outside(self, x: Reals) -> NDArray[np.bool_]:
        return _outside(x, self.lower, self.upper)


def _outside(x: Reals, lower: Reals, upper: Reals) -> NDArray[np.bool_]:
    """By more than rounding."""
    slack = _SLACK * (upper - lower)
    result: NDArray[np.bool_] = (x < lower - slack) | (x > upper + slack)
    return result


@dataclass(frozen=True, eq=False)
class Round:
    """Rounding to whole numbers, halves to the even one."""

    def __call__(self, x: Reals) -> Reals:
        return np.rint(x)


@dataclass(frozen=True, eq=False)
class Quantise:
    """Tensors of any shape to multiples of unit in [low, high], halves to the even one: input and output of a model on a grid.

    The ends are the model's own (its quantiser saturates, encrypted or not), or `calibrated`: then `run_input_steps` reports values beyond.
    """

    unit: float
    low: float
    high: float
    calibrated: bool = False
    stage: ClassVar[Stage] = "scores"

    def __post_init__(self) -> None:
        demand(self.unit > 0 and self.low <= self.high, "a positive unit and a range")

    def __call__(self, x: Any) -> Reals:
        return np.clip(np.rint(np.asarray(x, dtype=np.float64) / self.unit) * self.unit, self.low, self.high)

    def outside(self, x: Reals) -> NDArray[np.bool_]:
        """Finds what rounding to the grid alone would not bring into the range."""
        slack = self.unit / 2 * (1 + 1e-9) if self.calibrated else math.inf
        result: NDArray[np.bool_] = (x < self.low - slack) | (x > self.high + slack)
        return result


@dataclass(frozen=True, eq=False)
class Compare:
    """Bit b of a sample: whether column feature[b] <= threshold[b] (< when strict); of a missing value missing[b]."""

    feature: Indices
    threshold: Reals
    missing: Indices  # 0 or 1
    strict: bool = False
    single: bool = False  # columns are rounded to float32 first

    def __post_init__(self) -> None:
        if not self.feature.shape == self.threshold.shape == self.missing.shape == (len(self.feature),):
            raise ValueError("expected a feature, a threshold and a direction for each comparison")
        demand(bool((self.feature >= 0).all()), "features that exist")

    def __call__(self, x: Reals) -> Reals:
        columns = x.astype(np.float32).astype(np.float64) if self.single else x
        columns = columns[:, self.feature]
        holds = columns < self.threshold if self.strict else columns <= self.threshold
        return np.where(np.isnan(columns), self.missing, holds).astype(np.float64)


@dataclass(frozen=True, eq=False)
class Bins:
    """Column c: how many comparisons with `threshold[start[c] : start[c + 1]]` (ascending) of column feature[c] fail; digits in base `radix`.

    Column c of the result is digit `digit[c]` of that count, the lowest first.
    """

    feature: Indices
    start: Indices
    threshold: Reals
    digit: Indices
    radix: int
    strict: bool = False
    single: bool = False

    def __post_init__(self) -> None:
        columns = (len(self.feature),)
        if not (self.feature.shape == self.digit.shape == columns and self.start.shape == (columns[0] + 1,)):
            raise ValueError("expected a feature, a digit and a range of thresholds for each column")
        if self.radix < 2 or (self.digit < 0).any():
            raise ValueError("expected digits of a radix of at least 2")
        demand(int(self.digit.max(initial=0)) * math.log2(self.radix) < 62, "digits of numbers below 2^62")
        ends = np.concatenate([[0], self.start, [len(self.threshold)]])
        demand(self.threshold.ndim == 1 and bool((np.diff(ends) >= 0).all()), "ranges of the thresholds")
        demand(bool((self.feature >= 0).all()), "features that exist")

    def __call__(self, x: Reals) -> Reals:
        columns = x.astype(np.float32).astype(np.float64) if self.single else x
        out = np.empty((len(x), len(self.feature)))
        for c, feature in enumerate(self.feature):
            edges = self.threshold[self.start[c] : self.start[c + 1]]
            count = np.searchsorted(edges, columns[:, feature], side="right" if self.strict else "left")
            out[:, c] = count // self.radix ** int(self.digit[c]) % self.radix
        return out
