"""Long lists in pages: each begins after the last row of the one before, found by an index, however many rows there are."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from sqlalchemy import ColumnElement, Select, tuple_

T = TypeVar("T")
R = TypeVar("R")

_MOMENT: Final = struct.Struct(">d")


@dataclass(frozen=True)
class Page(Generic[T]):
    """A page of rows, and where the next one begins; None: it is the last."""

    rows: list[T]
    next: str | None


def page_of(rows: Sequence[R], limit: int, shown: Callable[[R], T], place: Callable[[R], str]) -> Page[T]:
    """Makes a page of up to limit + 1 rows: the one too many says that there is another page."""
    more = len(rows) > limit
    return Page([shown(row) for row in rows[:limit]], place(rows[limit - 1]) if more else None)


def newest_first(
    query: Select[Any], moment: ColumnElement[float], identity: ColumnElement[str], after: str | None, limit: int
) -> Select[Any]:
    """Selects up to limit + 1 rows after that place."""
    if after is not None:
        query = query.where(tuple_(moment, identity) < tuple_(*_read(after)))
    return query.order_by(moment.desc(), identity.desc()).limit(limit + 1)


def place_of(moment: float, identity: str) -> str:
    """Returns 16 digits of the time and the identity, both hexadecimal."""
    return _MOMENT.pack(moment).hex() + identity


def _read(place: str) -> tuple[float, str]:
    return _MOMENT.unpack(bytes.fromhex(place[:16]))[0], place[16:]
