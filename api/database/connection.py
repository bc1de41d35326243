"""Connections to the database."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, Final

from sqlalchemy import Column, ColumnElement, event, inspect, select, text
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
from sqlalchemy.pool import NullPool

from cloakwork.fhe_core.errors import ParameterError, how_to_install

DATABASE_FILE: Final = "cloakwork.db"  # in the data folder

_DRIVERS: Final = {"sqlite": "sqlite+aiosqlite", "postgresql": "postgresql+asyncpg", "postgres": "postgresql+asyncpg"}
_BUSY_SECONDS: Final = 15
_CONNECT_SECONDS: Final = 5.0
_STATEMENT_SECONDS: Final = 10.0  # a server that was stopped takes statements and never answers
_CHORE_SECONDS: Final = 600.0  # one of housekeeping may read or delete very much, and nobody waits for it
_CLOSE_SECONDS: Final = 5.0  # for all connections
_POOL_SECONDS: Final = 5.0  # until one of the connections is free
_VALUES_AT_ONCE: Final = 1000


def database_url(url: str | None, data_folder: Path) -> str:
    """Returns the URL of the database: as it is set, or of the data folder's file."""
    return url or f"sqlite:///{data_folder.resolve() / DATABASE_FILE}"


class Database:
    """`read` and `write` give a connection in a transaction that is committed when the block ends well. TimeoutError, which is an OSError: the
    server does not answer. `chore`: of housekeeping, whose statements have longer. `patient`: all may take as long as they need."""

    def __init__(self, url: str, *, patient: bool = False) -> None:
        try:
            parsed = make_url(url)
        except ArgumentError:
            raise ParameterError("database: expected a URL such as postgresql://user@host/name") from None
        family = parsed.get_backend_name()
        if family not in _DRIVERS:
            raise ParameterError(f"database: expected sqlite or postgresql, got '{family}'")
        self.is_sqlite = family == "sqlite"
        options: dict[str, Any] = {"connect_args": {"timeout": _BUSY_SECONDS if self.is_sqlite else _CONNECT_SECONDS}}
        if not self.is_sqlite:
            options |= {"pool_pre_ping": True, "pool_size": 10, "pool_timeout": _POOL_SECONDS}
            options["connect_args"] |= {} if patient else {"command_timeout": _STATEMENT_SECONDS}
        try:
            self._engine = create_async_engine(parsed.set(drivername=_DRIVERS[family]), **options)
            self._chores = self._engine if self.is_sqlite or patient else _unpooled(self._engine.url, _CHORE_SECONDS)
        except ImportError:
            raise ParameterError(
                f"database: {family} needs the extra 'postgresql'; {how_to_install('service,postgresql')}"
            ) from None
        # SQLite has one writer; waiting here is fairer than its busy loop.
        self._writing = asyncio.Lock() if self.is_sqlite else nullcontext()
        if self.is_sqlite:
            event.listen(self._engine.sync_engine, "connect", _prepare_sqlite)
            event.listen(self._engine.sync_engine, "begin", _begin_sqlite)

    @asynccontextmanager
    async def read(self, *, chore: bool = False) -> AsyncIterator[AsyncConnection]:
        engine = self._chores if chore else self._engine
        async with engine.connect() as connection, connection.begin():
            yield connection

    @asynccontextmanager
    async def write(self, *, chore: bool = False) -> AsyncIterator[AsyncConnection]:
        engine = self._chores if chore else self._engine
        async with self._writing, engine.connect() as connection:
            await connection.execution_options(cloakwork_write=True)
            async with connection.begin():
                yield connection

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[Any]:
        """Yields asyncpg's own connection, for LISTEN, beside the pool."""
        connection = await self._engine.connect()
        try:
            raw = await connection.get_raw_connection()
            yield raw.driver_connection
        finally:
            await connection.invalidate()  # it has listeners: nobody else gets it
            await connection.close()

    async def require_whole(self) -> None:
        """Requires a complete database.

        Raises:
            ParameterError: a damaged file; it opens, and would lose rows one by one.
        """
        if not self.is_sqlite:
            return
        async with self.read() as connection:
            report = str((await connection.exec_driver_sql("PRAGMA quick_check(1)")).scalar())
        if report != "ok":
            report = " ".join(report.removeprefix("*** in database main ***").split())
            raise ParameterError(
                f"database: {self._engine.url.database} is damaged ({report}); restore it from a backup"
            )

    async def revision(self) -> str | None:
        """Returns the revision of the tables; None when there are none."""
        async with self.read() as connection:
            if not await connection.run_sync(lambda each: inspect(each).has_table("alembic_version")):
                return None
            revision: str | None = (await connection.execute(text("SELECT version_num FROM alembic_version"))).scalar()
            return revision

    async def close(self) -> None:
        """Closes the connections; waits for no server that was stopped and does not say goodbye."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_SECONDS):
                await self._engine.dispose()
                await self._chores.dispose()


def _unpooled(url: URL, seconds: float) -> AsyncEngine:
    """Its connections are made when they are needed: one that is kept would be asked for so long whether it lives."""
    return create_async_engine(
        url, poolclass=NullPool, connect_args={"timeout": _CONNECT_SECONDS, "command_timeout": seconds}
    )


def _prepare_sqlite(connection: Any, _: Any) -> None:
    connection.isolation_level = None  # the driver must not begin transactions by itself: _begin_sqlite does
    cursor = connection.cursor()
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _begin_sqlite(connection: Any) -> None:
    # A write transaction takes its lock at once: one that starts by reading and then fails to upgrade cannot wait.
    writes = connection.get_execution_options().get("cloakwork_write")
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


async def known_rows(
    database: Database, column: Column[Any], values: list[str], *where: ColumnElement[bool]
) -> set[str]:
    """Selects those of the values that the column has, in rows of this kind; asked for in parts, because a statement has few parameters."""
    known: set[str] = set()
    async with database.read() as connection:
        for first in range(0, len(values), _VALUES_AT_ONCE):
            query = select(column).where(column.in_(values[first : first + _VALUES_AT_ONCE]), *where)
            known |= {str(row[0]) for row in (await connection.execute(query)).all()}
    return known
