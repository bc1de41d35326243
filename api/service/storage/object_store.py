"""S3 and its like through obstore: whole objects under names that the service makes, never a client."""

from __future__ import annotations

import asyncio
import hashlib
import math
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from cloakwork.api.service.clock import retention
from cloakwork.api.service.storage.blocks import write_all
from cloakwork.fhe_core.errors import ParameterError, how_to_install
from cloakwork.fhe_core.files import SECRET_MODE, atomic_writer


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
            self._store = obstore.store.from_url(url)
        except Exception as error:
            raise ParameterError(f"storage: '{url.split('?')[0]}' cannot be used: {error}") from None

    @contextmanager
    def _answering(self) -> Iterator[None]:
        try:
            yield
        except self._obstore.exceptions.BaseError as error:
            raise OSError(f"the object storage does not do it ({type(error).__name__})") from error

    async def put(self, name: str, content: Path | bytes) -> None:
        # A path is uploaded in parts; an object is visible when its upload has ended.
        with self._answering():
            await self._obstore.put_async(self._store, name, content)

    async def read_into(self, name: str, stream: BinaryIO) -> str:
        """Writes the object where the stream stands; its SHA-256 in hexadecimal."""
        digest = hashlib.sha256()
        with self._answering():
            response = await self._obstore.get_async(self._store, name)
            async for chunk in response.stream():
                digest.update(chunk)
                await asyncio.to_thread(write_all, stream, chunk)
        return digest.hexdigest()

    async def read(self, name: str) -> bytes:
        """Of a small object."""
        with self._answering():
            response = await self._obstore.get_async(self._store, name)
            return bytes(await response.bytes_async())

    async def fetch(self, name: str, path: Path) -> str:
        """The object as a file, which appears when it is complete; its SHA-256."""
        with atomic_writer(path, SECRET_MODE) as stream:
            return await self.read_into(name, stream)

    async def byte_count(self, name: str) -> int | None:
        try:
            with self._answering():
                return int((await self._obstore.head_async(self._store, name))["size"])
        except FileNotFoundError:
            return None

    async def delete(self, name: str) -> None:
        with self._answering(), suppress(FileNotFoundError):
            await self._obstore.delete_async(self._store, name)

    async def names(self, folder: str, older_than: float = 0.0) -> list[str]:
        """Of objects below a folder that are so many seconds old."""
        found: list[str] = []
        with self._answering():
            async for batch in self._obstore.list(self._store, prefix=f"{folder}/"):
                latest = retention.now() - older_than if older_than else math.inf
                found += [entry["path"] for entry in batch if entry["last_modified"].timestamp() <= latest]
        return found
