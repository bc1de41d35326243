"""Storage of an upload's bytes until they are a key: `local_parts.py`, `shared_parts.py`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from io import FileIO
from pathlib import Path
from typing import Final, Protocol

from cloakwork.api.errors import (
    ConflictError,
    MalformedError,
    StorageFullError,
    TooLargeError,
    UnknownKeyError,
    WrongParametersError,
)
from cloakwork.api.service.keys.checks import check_header
from cloakwork.api.service.keys.keys import KeyRecord
from cloakwork.api.service.object_headers import PREFIX_BYTES, refuse_secret_key
from cloakwork.api.service.storage.sweeping import Folder
from cloakwork.fhe_core.errors import KeyMismatchError, SerializationError

REFUSED: Final = (MalformedError, SerializationError, KeyMismatchError, WrongParametersError)
"""What is said of bytes that are no evaluation keys, or not those that were announced: nothing of such an upload is worth keeping."""


class Parts(Protocol):
    def exclusively(self, record: KeyRecord) -> AbstractAsyncContextManager[None]:
        """Raises ConflictError: another request is writing to this upload."""

    def busy(self, record: KeyRecord) -> bool:
        """Whether a request is."""

    async def received(self, record: KeyRecord) -> int:
        """Returns bytes that are here, from 0 on."""

    def stood(self, record: KeyRecord) -> int:
        """Returns the bytes that were here when the record was read, without asking the database."""

    async def write(self, record: KeyRecord, offset: int, chunks: AsyncIterator[bytes]) -> None:
        """Adds what comes; what came before the connection broke is kept.

        Raises:
            TooLargeError, StorageFullError, SecretKeyError, and REFUSED.
            WrongOffsetError, UnknownKeyError: another service was faster, or the key is deleted.
        """

    def assembled(self, record: KeyRecord) -> AbstractAsyncContextManager[Path]:
        """Yields all of them as one file, which may be renamed. FileNotFoundError: they are not all here any more."""

    async def discard(self, record: KeyRecord) -> None:
        """Deletes all that is here, of an upload that is over."""

    async def refuse(self, record: KeyRecord) -> None:
        """Deletes all that is here, of an upload that is complete and not what it claims to be; it begins again at 0."""

    async def abandon(self) -> None:
        """Ends what comes for keys that are deleted elsewhere."""

    def folders(self) -> list[Folder]:
        """Returns objects beside those that `object_folders` knows."""


def being_written() -> ConflictError:
    return ConflictError("another request is writing to this upload; wait for it, then ask with HEAD how far it is")


def deleted(record: KeyRecord) -> UnknownKeyError:
    return UnknownKeyError(f"key '{record.id}' was deleted while its bytes came; nothing of it was kept")


def no_room(offset: int) -> StorageFullError:
    return StorageFullError(
        f"the service has no room left for this part, which is removed; the upload stands at {offset} bytes, go on later"
    )


def require_within(record: KeyRecord, end: int) -> None:
    if end > record.bytes:
        raise TooLargeError(f"the upload has {record.bytes} bytes, and more came; nothing of the surplus was kept")


def check_start(record: KeyRecord, stream: FileIO, block: bytes) -> None:
    """Checks the header, as soon as there is enough of it: `block` comes where the stream stands.

    Raises:
        SecretKeyError, and REFUSED.
    """
    position = stream.tell()
    if position >= PREFIX_BYTES:
        return
    stream.seek(0)
    start = stream.read(position) + block[:PREFIX_BYTES]
    stream.seek(position)
    refuse_secret_key(start)
    if len(start) >= PREFIX_BYTES:
        check_header(record, start)
