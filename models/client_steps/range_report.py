"""Values that a model does not take as they are: collected over the steps of a call, reported to the user once."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from cloakwork.models.errors import CalibratedRangeWarning, warn_user

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
