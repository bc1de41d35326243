"""A database and a storage belong together: both carry one identity, and a service refuses a pair that differs.

Objects without a row are deleted in time. A service with another database, or an empty one, would delete all of them.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Final

from sqlalchemy import func, insert, select
from sqlalchemy.exc import IntegrityError

from cloakwork.api.database.connection import Database
from cloakwork.api.database.tables import evaluation_keys, identity, jobs
from cloakwork.api.service.clock import new_id
from cloakwork.api.service.storage.objects import Storage
from cloakwork.api.service.storage.sweeping import Folder
from cloakwork.fhe_core.errors import ParameterError

_ROW: Final = 1
_ADOPT: Final = "check database_url, storage_url and data_folder; if nobody needs what only one of them has, set adopt_storage = true for one start"

_log = logging.getLogger("cloakwork.storage")


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
        database_identity = await self._own()
        try:
            mark = await self._storage.mark()
        except OSError as error:
            if database_identity is None:
                raise
            _log.warning("the storage cannot be asked yet which database it belongs to (%s)", error)
            return
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
