"""`python -m cloakwork.api.database.migrate < URL`: brings the tables to this release's form.

A process of its own, so that a running service does not carry Alembic in memory.
"""

from __future__ import annotations

import asyncio
import sys

from alembic.migration import MigrationContext
from alembic.operations import Operations
from sqlalchemy import Connection, text

from cloakwork.api.database.connection import Database
from cloakwork.api.database.steps import NEWEST, STEPS, revision
from cloakwork.fhe_core.errors import ParameterError

# Services that are started at once on an empty database would make its tables at once, and all but one fail.
_ONE_AT_A_TIME = "SELECT pg_advisory_xact_lock(7061204)"
_VERSION = """CREATE TABLE IF NOT EXISTS alembic_version
(version_num VARCHAR(32) NOT NULL, CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num))"""


def migrate(connection: Connection, steps: int = len(STEPS)) -> None:
    """Takes the steps that the database has not had, of the first `steps`.

    Raises:
        ParameterError: the tables are a later release's.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(text(_ONE_AT_A_TIME))
    connection.execute(text(_VERSION))
    current = connection.execute(text("SELECT version_num FROM alembic_version")).scalar() or revision(0)
    revisions = [revision(number) for number in range(len(STEPS) + 1)]
    if current not in revisions:
        raise ParameterError(f"the tables have revision {current}, of a later release; this one knows {NEWEST}")
    operations = Operations(MigrationContext.configure(connection))
    for number in range(revisions.index(current), steps):
        STEPS[number](operations)
        connection.execute(text("DELETE FROM alembic_version"))
        connection.execute(text(f"INSERT INTO alembic_version (version_num) VALUES ('{revision(number + 1)}')"))


async def migrate_url(url: str) -> None:
    database = Database(url, patient=True)
    try:
        async with database.write() as connection:
            await connection.run_sync(migrate)
    finally:
        await database.close()


if __name__ == "__main__":
    asyncio.run(migrate_url(sys.stdin.read().strip()))  # not an argument: it may hold a password
