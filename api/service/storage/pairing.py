"""A database and a storage belong together: both carry one identity. Objects without a row are announced, and deleted a while later."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sqlalchemy import func, insert, select
from sqlalchemy.exc import IntegrityError

from cloakwork.api.database.connection import Database
from cloakwork.api.database.tables import evaluation_keys, identity, jobs
from cloakwork.api.service.clock import new_id
from cloakwork.api.service.storage.objects import Storage
from cloakwork.fhe_core.errors import ParameterError

ORPHAN_SECONDS: Final = 3600.0  # a younger object may get its row yet
ANNOUNCED_SECONDS = 6 * 3600.0  # between the announcement and the end
_REPORT_SECONDS: Final = 3600.0

_log = logging.getLogger("cloakwork.storage")
_ROW: Final = 1
_ADOPT: Final = "check database_url, storage_url and data_folder; if nobody needs what only one of them has, set adopt_storage = true for one start"


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


class Pairing:
    """`adopt`: the storage becomes this database's, whatever it carries."""

    def __init__(self, database: Database, storage: Storage, adopt: bool) -> None:
        self._database = database
        self._storage = storage
        self._adopt = adopt
        self.differs = False

    async def require(self, folders: list[Folder]) -> None:
        """Checks the pair before anything listens. A pair that carries nothing yet, new or of an earlier release, gets an identity.

        Raises:
            ParameterError: the storage belongs to another database, or the database to another storage.
            OSError: a storage that this database has not seen yet does not answer.
        """
        try:
            mark = await self._storage.mark()
        except OSError as error:
            if await self._own() is None:
                raise
            _log.warning("the storage cannot be asked yet which database it belongs to (%s)", error)
            return
        # After the mark: another process of a new fleet writes the row first, so a mark that is read has its row.
        database_identity = await self._own()
        if database_identity is not None and database_identity == mark:
            return
        if not self._adopt:
            if mark is not None:
                raise self._foreign(database_identity, mark)
            await self._require_known(folders)
        elif mark is not None or database_identity is not None:
            _log.warning("the database takes over the storage: objects that it does not know are deleted in time")
        await self._storage.set_mark(database_identity or await self._new())

    async def look(self) -> None:
        """Checks the pair while the service runs: another database may have taken over the storage, or somebody have emptied it.

        Raises:
            OSError: the storage does not answer.
        """
        database_identity, mark = await self._own(), await self._storage.mark()
        differs = database_identity != mark
        if differs and not self.differs:
            _log.error(
                "storage and database do not belong together any more: nothing is deleted, and the service is not ready",
                extra={
                    "storage": self._storage.where,
                    "storage_identity": mark,
                    "database_identity": database_identity,
                },
            )
        self.differs = differs

    async def _own(self) -> str | None:
        async with self._database.read() as connection:
            database_identity: str | None = (await connection.execute(select(identity.c.value))).scalar()
        return database_identity

    async def _new(self) -> str:
        """Returns the row, by whichever service is first."""
        try:
            async with self._database.write() as connection:
                await connection.execute(insert(identity).values(row=_ROW, value=new_id()))
        except IntegrityError:
            pass
        database_identity = await self._own()
        assert database_identity is not None
        return database_identity

    def _foreign(self, database_identity: str | None, mark: str) -> ParameterError:
        which = "this database has none yet" if database_identity is None else f"this one has {database_identity}"
        return ParameterError(
            f"storage: what is in {self._storage.where} belongs to another database (identity {mark}, {which}); {_ADOPT}"
        )

    async def _require_known(self, folders: list[Folder]) -> None:
        """Nothing says whose the storage is: its objects do."""
        total = unknown = 0
        for folder in folders:
            names = await folder.names(0.0)
            known = await folder.known(names)
            total, unknown = total + len(names), unknown + len(names) - len(known)
        if 2 * unknown > total:
            raise ParameterError(
                f"database: {unknown} of {total} objects in {self._storage.where} are not known to it, so they belong to another one, or "
                f"its rows are lost; {_ADOPT}"
            )
        rows = 0 if total else await self._rows()
        if rows:
            raise ParameterError(
                f"storage: {self._storage.where} is empty, and the database has {rows} keys and jobs whose objects should be there; {_ADOPT}"
            )

    async def _rows(self) -> int:
        """Returns those that name an object."""
        keys = select(func.count()).select_from(evaluation_keys).where(evaluation_keys.c.state == "ready")
        named = jobs.c.state.in_(("queued", "running", "done"))
        async with self._database.read() as connection:
            count = int((await connection.execute(keys)).scalar() or 0)
            return count + int((await connection.execute(select(func.count()).where(named))).scalar() or 0)


async def refuse_lost_file(file: Path, storage: Storage, adopt: bool) -> None:
    """Refuses to begin: an SQLite file that is missing beside a storage that was in use is lost, and nothing begins anew without being asked to.

    Raises:
        ParameterError: it is.
    """
    if file.exists() or adopt:
        return
    used = await storage.mark() is not None
    for folder in ("keys", "inputs", "results"):
        used = used or bool(await storage.names(folder))
    if used:
        raise ParameterError(
            f"database: {file} is missing, and {storage.where} has objects that belong to it; put it back from a backup; {_ADOPT}"
        )
