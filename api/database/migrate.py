"""`python -m cloakwork.api.database.migrate < URL`: brings the tables to this release's form.

A process of its own, so that a running service does not carry Alembic in memory.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection, text

from cloakwork.api.database.connection import Database

# Services that are started at once on an empty database would make its tables at once, and all but one fail.
_ONE_AT_A_TIME = "SELECT pg_advisory_xact_lock(7061204)"


def migrate(connection: Connection) -> None:
    if connection.dialect.name == "postgresql":
        connection.execute(text(_ONE_AT_A_TIME))
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


async def migrate_url(url: str) -> None:
    database = Database(url, patient=True)
    try:
        async with database.write() as connection:
            await connection.run_sync(migrate)
    finally:
        await database.close()


if __name__ == "__main__":
    asyncio.run(migrate_url(sys.stdin.read().strip()))  # not an argument: it may hold a password
