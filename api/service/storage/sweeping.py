"""Objects without a row: requests that ended between writing an object and writing its row. They are announced, and deleted a while later.

When most of the objects are unknown, it is the database that is wrong, and nothing is deleted.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

ORPHAN_SECONDS: Final = 3600.0  # a younger object may get its row yet
ANNOUNCED_SECONDS = 6 * 3600.0  # between the announcement and the end
_REPORT_SECONDS: Final = 3600.0

_log = logging.getLogger("cloakwork.storage")


@dataclass(frozen=True)
class Folder:
    """One kind of objects."""

    name: str
    names: Callable[[float], Awaitable[list[str]]]  # of objects that are so many seconds old
    known: Callable[[list[str]], Awaitable[set[str]]]  # those of the names that are still needed
    delete: Callable[[str], Awaitable[None]]


class Sweeper:
    """`adopt`: also when most objects are unknown."""

    def __init__(self, folders: list[Folder], adopt: bool) -> None:
        self._folders = folders
        self._adopt = adopt
        self._announced: dict[str, float] = {}
        self._reported = -_REPORT_SECONDS
        self.unknown = 0

    async def sweep(self) -> None:
        unknown = list[tuple[Folder, str]]()
        for folder in self._folders:
            old = await folder.names(ORPHAN_SECONDS)
            known = await folder.known(old) if old else set()
            unknown += [(folder, name) for name in old if name not in known]
        self.unknown = len(unknown)
        if unknown and not self._adopt:
            total = sum([len(await folder.names(0.0)) for folder in self._folders])
            if 2 * len(unknown) > total:
                self._announced.clear()
                self._refuse(len(unknown), total)
                return
        await self._delete([each for each in unknown if self._is_due(each[1])])
        self._announce(unknown)

    def _is_due(self, name: str) -> bool:
        return name in self._announced and time.monotonic() - self._announced[name] >= ANNOUNCED_SECONDS

    async def _delete(self, due: list[tuple[Folder, str]]) -> None:
        if due:
            _log.warning("objects without a row are deleted", extra={"objects": _counts(due)})
        for folder, name in due:
            await folder.delete(name)

    def _announce(self, unknown: list[tuple[Folder, str]]) -> None:
        new = [each for each in unknown if each[1] not in self._announced]
        moment = time.monotonic()
        self._announced = {name: self._announced.get(name, moment) for _, name in unknown}
        if new:
            _log.warning(
                "objects without a row will be deleted",
                extra={"objects": _counts(new), "first": new[0][1], "in_seconds": ANNOUNCED_SECONDS},
            )

    def _refuse(self, unknown: int, total: int) -> None:
        if time.monotonic() - self._reported >= _REPORT_SECONDS:
            self._reported = time.monotonic()
            _log.error(
                "most objects of the storage have no row: nothing is deleted. Is this the right database? If nobody needs them, start once with "
                "adopt_storage = true",
                extra={"unknown": unknown, "objects": total},
            )


def _counts(objects: list[tuple[Folder, str]]) -> dict[str, int]:
    return dict(Counter(folder.name for folder, _ in objects))
