"""Whether an error says that the storage or the database is away, and not that something is wrong here."""

from __future__ import annotations

from sqlalchemy.exc import SQLAlchemyError

from cloakwork.api.service.storage.disk import is_full


def is_away(error: BaseException) -> bool:
    """A file that is missing, and a disk that is full, have their own answers."""
    outage = isinstance(error, (OSError, SQLAlchemyError)) and not isinstance(error, FileNotFoundError)
    return outage and not is_full(error)
