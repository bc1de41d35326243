"""Detection of errors which say that the storage or the database is unavailable."""

from __future__ import annotations

from sqlalchemy.exc import SQLAlchemyError

from cloakwork.api.service.storage.disk import is_full


def is_away(error: BaseException) -> bool:
    """Whether the storage is away. A file that is missing, and a disk that is full, have their own answers."""
    outage = isinstance(error, (OSError, SQLAlchemyError)) and not isinstance(error, FileNotFoundError)
    return outage and not is_full(error)
