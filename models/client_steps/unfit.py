"""Values that a step does not take: refused, or replaced by the nearest that it takes.

A request that is refused for its values tells the server something of them: it chose the steps, and sees whether a request arrives. So whoever
encrypts for a server runs the steps with `Replaced`, which refuses nothing but shapes and types; the owner of a model runs them with `REFUSED`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from cloakwork.models.arrays import Reals, dense, is_missing, real_numbers
from cloakwork.models.errors import CalibratedRangeWarning, ReplacedValuesWarning, ShapeError, warn_user

# Values that a model does not take as they are: collected over the steps of a call, reported to the user once.

_MOST_NAMED: Final = 8


class RangeReport:
    """A report of values outside their ranges: samples, counts and columns, never the values themselves."""

    def __init__(self) -> None:
        self._values = 0
        self._samples: NDArray[np.bool_] | None = None
        self._columns: dict[str, None] = {}  # a set in order

    def add(self, outside: NDArray[np.bool_], labels: tuple[str, ...] | None) -> None:
        """Adds values outside their ranges. Args: outside [samples, ..]; labels: of the columns of a table, None for what is no table."""
        if not outside.any():
            return
        outside = np.atleast_1d(outside)
        rows = outside.reshape(len(outside), -1)
        self._values += int(rows.sum())
        samples = np.asarray(rows.any(axis=1), dtype=np.bool_)
        self._samples = samples if self._samples is None else np.logical_or(self._samples, samples)
        if labels is not None and len(labels) == rows.shape[1]:
            self._columns.update(dict.fromkeys(labels[i] for i in np.flatnonzero(rows.any(axis=0))))

    def warn(self, what: str = "input", beyond: str = "the calibrated range") -> None:
        """Gives one CalibratedRangeWarning, at the user's line, when anything was added. Args: what: that is at fault; beyond: which range."""
        count = f"{self._values} value{'s' * (self._values != 1)}"
        self.tell(f"values beyond {beyond}", "they count as its end", CalibratedRangeWarning, what, count)

    def tell(self, which: str, then: str, category: type[Warning], what: str = "input", count: str = "") -> None:
        """Gives one warning, when anything was added. Args: which: the values; then: what becomes of them; count: how many there are, if that is
        told."""
        if self._samples is None:
            return
        names = [f"'{name}'" for name in self._columns]
        more = [f"{len(names) - _MOST_NAMED} more"] if len(names) > _MOST_NAMED else []
        where = f"in columns {', '.join(names[:_MOST_NAMED] + more)}" if names else ""
        brackets = " ".join(filter(None, (count, where)))
        warn_user(
            f"{what}: {int(self._samples.sum())} of {len(self._samples)} samples have {which}{f' ({brackets})' * bool(brackets)}; {then}",
            category,
        )


Labels: TypeAlias = tuple[str, ...]
LARGEST: Final = float(np.finfo(np.float64).max)
_TEXT: Final = ("S", "U", "T")  # kinds of arrays of texts


class Unfit:
    """A rule that refuses values."""

    def numbers(self, x: Any) -> Reals:
        """Returns [..] in float64. Raises: ShapeError."""
        return real_numbers(x)

    def taken(self, x: NDArray[Any], bad: NDArray[np.bool_], instead: Any, reason: str) -> NDArray[Any]:
        """Returns x, where no value is bad.

        Args:
            x, bad: [samples, ..].
            instead: what takes the place of bad values, of x's shape or one for all.
            reason: the message of a refusal.
        """
        if bad.any():
            raise ShapeError(reason)
        return x

    def at(self, labels: Callable[[Reals], Labels | None]) -> None:
        """Names the columns of the next array. Args: labels: what to call the columns of an array that is looked at next; None: nothing."""


class Replaced(Unfit):
    """A rule that replaces values by the nearest valid one, or 0 for a missing one, and reports where."""

    def __init__(self) -> None:
        self._report = RangeReport()
        self._labels: Callable[[Reals], Labels | None] = lambda x: None

    def numbers(self, x: Any) -> Reals:
        """Replaces cells that are no numbers by NaN, whole numbers that are too large by the largest. ShapeError: for arrays by their shape or type
        alone."""
        if getattr(getattr(x, "dtype", None), "kind", "") in _TEXT:
            raise ShapeError(
                "input: expected numbers, got an array of texts; encode them as the model was trained with"
            )
        try:
            return real_numbers(x)
        except ShapeError:
            cells = _cells(x)
            if cells is None:
                raise
        values, strange = (np.asarray(part) for part in np.frompyfunc(_number, 1, 2)(cells))
        values = values.astype(np.float64)
        return self.taken(values, strange.astype(np.bool_), values, "")

    def taken(self, x: NDArray[Any], bad: NDArray[np.bool_], instead: Any, reason: str) -> NDArray[Any]:
        if not bad.any():
            return x
        self._report.add(bad, self._labels(x))
        return np.where(bad, instead, x)

    def at(self, labels: Callable[[Reals], Labels | None]) -> None:
        self._labels = labels

    def warn(self) -> None:
        """Gives one ReplacedValuesWarning, at the user's line, when anything was replaced."""
        self._report.tell(
            "values that the model does not take",
            "the nearest that it takes are sent in their place (0 for missing ones), because a refusal would tell the server of them",
            ReplacedValuesWarning,
        )


class Refusing:
    """A step that some values do not suit: its call takes an `Unfit`, which says what becomes of them."""


REFUSED: Final = Unfit()


def without_missing(x: Reals, step: str, unfit: Unfit) -> Reals:
    """Replaces NaN by 0, or refuses it as the transformer of scikit-learn refuses it. Args: step: what it is called in an error."""
    bad = x != x
    if not bad.any():
        return x
    row, column = divmod(int(bad.argmax()), x.shape[1])
    reason = f"input: {step} takes no missing values (NaN), got one in row {row}, in column {column} of those that it takes; replace them first"
    return unfit.taken(x, bad, 0.0, reason)


def without_infinite(x: Reals, reason: str, unfit: Unfit) -> Reals:
    """Replaces infinite numbers by the largest ones. NaN passes."""
    bad = np.isinf(x)
    return unfit.taken(x, bad, np.clip(x, -LARGEST, LARGEST), reason) if bad.any() else x


def finite(x: Reals, unfit: Unfit) -> Reals:
    """Replaces infinite numbers by the largest ones and missing ones by 0."""
    reason = "input: expected finite numbers; replace missing values first"
    return unfit.taken(without_infinite(x, reason, unfit), np.isnan(x), 0.0, reason)


def _cells(x: Any) -> NDArray[Any] | None:
    """Objects; None for what is no array, and for complex numbers and dates."""
    try:
        if np.asarray(dense(x)).dtype.kind in "cmM":
            return None
        return np.asarray(dense(x), dtype=object)  # beside a text, numbers would become texts
    except ValueError:
        return None


def _number(cell: Any) -> tuple[float, bool]:
    """The number in a cell, and whether it is something else; NaN for both, a missing value and something else."""
    try:
        return (np.nan, False) if is_missing(cell) else (float(cell), False)
    except OverflowError:
        return (LARGEST if cell > 0 else -LARGEST), True
    except (TypeError, ValueError):
        return np.nan, True
