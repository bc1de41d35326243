"""Web processes and workers on one database and one storage."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from scoring_server import Server
from sqlalchemy import text

from cloakwork.api.database.connection import Database


@dataclass
class Processes:
    folder: Path
    fill: Callable[[Path], Path]
    database: str
    common: dict[str, str] = field(default_factory=dict)
    insecure: bool = True
    all: list[Server] = field(default_factory=list)

    def start(self, role: str, **settings: str) -> Server:
        objects = self.folder / "objects"
        objects.mkdir(exist_ok=True)
        shared = {
            "DATABASE_URL": self.database,
            "STORAGE_URL": objects.as_uri(),
            "TAKEOVER_SECONDS": "2",
            "THREADS": "1",
            "ROLE": role,
            "ADOPT_STORAGE": str(not self.all).lower(),  # tests of a module share the database
            **self.common,
            **settings,
        }
        server = Server(self.fill(self.folder / f"{role}-{len(self.all)}"), environment=shared, insecure=self.insecure)
        self.all.append(server)
        server.start()
        return server


@contextmanager
def processes(
    folder: Path, fill: Callable[[Path], Path], database: str, *, insecure: bool = True, **common: str
) -> Iterator[Processes]:
    group = Processes(folder, fill, database, common, insecure)
    try:
        yield group
    finally:
        for server in group.all:
            if server.process and server.process.poll() is None:
                server.kill()


def rows(database: str, query: str) -> list[tuple[object, ...]]:
    """What the database answers to a statement."""

    async def ask() -> list[tuple[object, ...]]:
        opened = Database(database)
        try:
            async with opened.write() as connection:
                return [tuple(row) for row in (await connection.execute(text(query))).all()]
        finally:
            await opened.close()

    return asyncio.run(ask())
