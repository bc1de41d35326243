"""S3 and its like through obstore: whole objects under names that the service makes, never a client."""

from __future__ import annotations

import asyncio
import hashlib
import math
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Final

from cloakwork.api.service.clock import retention
from cloakwork.api.service.storage.data_folder import write_all
from cloakwork.fhe_core.errors import ParameterError, how_to_install
from cloakwork.fhe_core.wire.files import SECRET_MODE, atomic_writer

ANSWER_SECONDS: Final = 10.0
"""That the storage may bring nothing: obstore's own limit is three minutes, with ten attempts, and somebody waits meanwhile."""
_RETRIES: Final = {
    "max_retries": 3,
    "retry_timeout": timedelta(seconds=5),
    "backoff": {"init_backoff": timedelta(seconds=0.1), "max_backoff": timedelta(seconds=1), "base": 2},
}
_PIECE_BYTES: Final = 5 << 20  # the least that S3 takes as a part
_AT_ONCE: Final = 4
_BYTES_A_SECOND: Final = 1 << 20  # a line that is slower counts as none


class ObjectStore:
    """An object appears under its name when all of it is there. FileNotFoundError: there is none of a name; any other OSError: the storage does
    not answer, or refuses."""

    def __init__(self, url: str) -> None:
        try:
            import obstore
        except ImportError:
            raise ParameterError(f"storage: object storage needs the extra 's3'; {how_to_install('s3')}") from None
        self._obstore: Any = obstore
        try:
            # No client_options: they would take the place of those in the environment, such as AWS_ALLOW_HTTP.
            options = {} if url.startswith(("file:", "memory:")) else {"retry_config": _RETRIES}
            self._store = self._obstore.store.from_url(url, **options)
        except Exception as error:
            raise ParameterError(f"storage: '{url.split('?')[0]}' cannot be used: {error}") from None

    @asynccontextmanager
    async def _answering(self) -> AsyncIterator[_Patience]:
        try:
            async with asyncio.timeout(ANSWER_SECONDS) as leash:
                yield _Patience(leash)
        except self._obstore.exceptions.BaseError as error:
            raise OSError(f"the object storage does not do it ({type(error).__name__})") from error
        except TimeoutError as error:
            if not leash.expired():
                raise
            raise OSError("the object storage does not answer") from error

    async def put(self, name: str, content: Path | bytes) -> None:
        """Uploads an object. one that is larger than a piece goes in parts; it is visible when its upload has ended."""
        async with self._answering() as patience:
            size = len(content) if isinstance(content, bytes) else content.stat().st_size
            if size <= _PIECE_BYTES:
                patience.sent(size)
                whole = content if isinstance(content, bytes) else await asyncio.to_thread(content.read_bytes)
                await self._obstore.put_async(self._store, name, whole)
                return
            pieces = _pieces(content, patience)
            await self._obstore.put_async(self._store, name, pieces, chunk_size=_PIECE_BYTES, max_concurrency=_AT_ONCE)

    async def read_into(self, name: str, stream: BinaryIO) -> str:
        """Writes the object where the stream stands; its SHA-256 in hexadecimal."""
        digest = hashlib.sha256()
        async with self._answering() as patience:
            response = await self._obstore.get_async(self._store, name)
            async for chunk in response.stream():
                patience.begin_anew()
                digest.update(chunk)
                await asyncio.to_thread(write_all, stream, chunk)
        return digest.hexdigest()

    async def read(self, name: str) -> bytes:
        """Reads a small object."""
        async with self._answering():
            response = await self._obstore.get_async(self._store, name)
            return bytes(await response.bytes_async())

    async def fetch(self, name: str, path: Path) -> str:
        """Fetches the object as a file, which appears when it is complete; its SHA-256."""
        with atomic_writer(path, SECRET_MODE) as stream:
            return await self.read_into(name, stream)

    async def byte_count(self, name: str) -> int | None:
        try:
            async with self._answering():
                return int((await self._obstore.head_async(self._store, name))["size"])
        except FileNotFoundError:
            return None

    async def delete(self, name: str) -> None:
        with suppress(FileNotFoundError):
            async with self._answering():
                await self._obstore.delete_async(self._store, name)

    async def names(self, folder: str, older_than: float = 0.0) -> list[str]:
        """Names objects below a folder that are at least this old, in seconds."""
        names: list[str] = []
        async with self._answering() as patience:
            async for batch in self._obstore.list(self._store, prefix=f"{folder}/"):
                patience.begin_anew()
                latest = retention.now() - older_than if older_than else math.inf
                names += [entry["path"] for entry in batch if entry["last_modified"].timestamp() <= latest]
        return names


class _Patience:
    """A time limit that begins anew whenever bytes came or went."""

    def __init__(self, leash: asyncio.Timeout) -> None:
        self._leash = leash

    def begin_anew(self, seconds: float = ANSWER_SECONDS) -> None:
        self._leash.reschedule(asyncio.get_running_loop().time() + seconds)

    def sent(self, count: int) -> None:
        """Counts bytes that are on their way."""
        self.begin_anew(ANSWER_SECONDS + count / _BYTES_A_SECOND)


async def _pieces(content: Path | bytes, patience: _Patience) -> AsyncIterator[bytes]:
    """Each is asked for when there is room for it: one before it has gone."""
    on_their_way = _AT_ONCE * _PIECE_BYTES
    for piece in _blocks(content):
        patience.sent(on_their_way)
        yield await asyncio.to_thread(piece)
    patience.sent(on_their_way)


def _blocks(content: Path | bytes) -> Iterator[Callable[[], bytes]]:
    size = len(content) if isinstance(content, bytes) else content.stat().st_size
    for start in range(0, size, _PIECE_BYTES):
        yield partial(_block, content, start)


def _block(content: Path | bytes, start: int) -> bytes:
    if isinstance(content, bytes):
        return content[start : start + _PIECE_BYTES]
    with content.open("rb") as stream:
        stream.seek(start)
        return stream.read(_PIECE_BYTES)
