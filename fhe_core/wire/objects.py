"""The base of objects of the wire format: bytes and files, both ways."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Self

from cloakwork.fhe_core import wire
from cloakwork.fhe_core._engine import ParameterSet

if TYPE_CHECKING:
    from cloakwork.fhe_core.wire import Buffer, BytesSource
    from cloakwork.fhe_core.wire.files import PathLike


class WireObject(ABC):
    """An object that is written as a header and sections, and read from a source of bytes."""

    @abstractmethod
    def _header(self) -> wire.Header: ...

    @abstractmethod
    def _sections(self) -> list[wire.Section]: ...

    @classmethod
    @abstractmethod
    def _from_source(cls, source: BytesSource, parameters: ParameterSet | None, max_bytes: int) -> Self: ...

    def to_bytes(self) -> bytes:
        """Writes one object of the wire format; words on a device are copied to the host."""
        return wire.dump(self._header(), self._sections())

    def save(self, path: PathLike) -> None:
        """Writes the file atomically and without a second copy in memory."""
        wire.save(path, self._header(), self._sections())

    @classmethod
    def from_bytes(
        cls, data: Buffer, *, parameters: ParameterSet | None = None, max_bytes: int = wire.DEFAULT_MAX_BYTES
    ) -> Self:
        """Reads one object of this class.

        Args:
            parameters: the set that it has to be of; None: any.
            max_bytes: the most that it may take, in full form.

        Raises:
            SerializationError: bytes that are cut off, altered, of another class or too many.
            KeyMismatchError: an object of another set, or of another version of it.
        """
        return cls._from_source(wire.bytes_source(data), parameters, max_bytes)

    @classmethod
    def load(
        cls, path: PathLike, *, parameters: ParameterSet | None = None, max_bytes: int = wire.DEFAULT_MAX_BYTES
    ) -> Self:
        """Reads one object from a file, errors as of `from_bytes`."""
        with wire.file_source(path) as source:
            return cls._from_source(source, parameters, max_bytes)
