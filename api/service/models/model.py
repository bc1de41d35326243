"""A model as the service has it, the parameters of its keys, and what the first bytes of an object say."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from cloakwork.api.errors import MalformedError, SecretKeyError
from cloakwork.fhe_core.errors import FheError, KeyMismatchError, SerializationError
from cloakwork.fhe_core.levelled import wire as levelled
from cloakwork.fhe_core.parameters import ParameterSet, parameter_digest, upload_bytes
from cloakwork.fhe_core.wire import PREFIX_BYTES, Header, Kind, peek
from cloakwork.fhe_core.wire.layout import MAGIC

__all__ = ["PREFIX_BYTES", "is_levelled", "read_header", "read_levelled_header", "refuse_secret_key"]

_KIND_OFFSET = 6
_SECRET_KINDS = {
    MAGIC: frozenset(kind for kind in Kind if kind.is_secret),
    levelled.MAGIC: frozenset([levelled.Kind.SECRET_KEY]),
}
assert levelled.HEADER_BYTES <= PREFIX_BYTES


def refuse_secret_key(start: bytes) -> None:
    """Refuses a secret key as soon as the byte that tells is there."""
    if len(start) > _KIND_OFFSET and start[_KIND_OFFSET] in _SECRET_KINDS.get(start[: len(MAGIC)], ()):
        raise SecretKeyError(
            "this is a secret key: it must stay with its owner and nothing of it was kept; send evaluation keys or ciphertexts"
        )


def read_header(start: bytes, size: int, kind: Kind) -> Header:
    """Returns the header of an object of `size` bytes that begins with `start`, of this kind and seeded.

    Raises:
        SecretKeyError, MalformedError, KeyMismatchError.
    """
    refuse_secret_key(start)
    try:
        header = peek(start[:PREFIX_BYTES] if size > PREFIX_BYTES else start, size)
    except (SerializationError, KeyMismatchError):
        raise
    except FheError as error:
        raise MalformedError(str(error)) from None
    if header.kind is not kind or not header.seeded:
        form = "seeded" if header.seeded else "full"
        raise MalformedError(f"expected seeded {kind.label}, got {form} {header.kind.label}")
    return header


def is_levelled(start: bytes) -> bool:
    """Whether an object that begins so is one of levelled arithmetic."""
    return start[: len(levelled.MAGIC)] == levelled.MAGIC


def read_levelled_header(start: bytes, size: int, kind: levelled.Kind) -> levelled.Header:
    """Returns the same of an object of levelled arithmetic: evaluation keys or seeded ciphertexts.

    Raises:
        SecretKeyError, SerializationError, KeyMismatchError.
    """
    refuse_secret_key(start)
    return levelled.peek(start[: levelled.HEADER_BYTES], size, kind)


@dataclass(frozen=True)
class KeyParameters:
    """Keys of one digest serve every model that names it.

    Attributes:
        name: of the parameter set.
        digest: hexadecimal; of the set, and of what else levelled keys depend on (`ExpansionKeyShape`).
        bytes: the only size that such keys have.
    """

    name: str
    digest: str
    bytes: int

    @classmethod
    def of_set(cls, params: ParameterSet) -> KeyParameters:
        return cls(params.name, parameter_digest(params).hex(), upload_bytes(params))


@dataclass(frozen=True)
class RequestHeader:
    """The header of a model's request."""

    key_id: bytes  # of the secret key
    samples: int


@dataclass(frozen=True, eq=False)
class Model(ABC):
    """A model of any kind: a compiled program (`ProgramModel`), an index of nearest neighbours (`IndexModel`), a model for batches
    (`BatchModel`)."""

    name: str
    version: str
    artefact: Path
    facts: dict[str, Any]

    kind: ClassVar[str]  # as facts and the engine have it

    @property
    def digest(self) -> str:
        return str(self.facts["program_digest"])

    @property
    def artefact_sha256(self) -> str:
        return str(self.facts["artefact_sha256"])

    @property
    def parameter_set(self) -> str:
        """Its name."""
        return str(self.facts["parameter_set"])

    @property
    def parameter_digest(self) -> str:
        return str(self.facts["parameter_digest"])

    @property
    def key_parameters(self) -> KeyParameters:
        """Describes the evaluation keys that it needs."""
        return KeyParameters(self.parameter_set, self.parameter_digest, int(self.facts["evaluation_key_bytes"]))

    @property
    def structured_secret(self) -> bool:
        return bool(self.facts["structured_secret"])

    @property
    def input_numbers(self) -> int:
        return int(self.facts["input_numbers"])

    @property
    def bootstraps(self) -> int:
        return int(self.facts["bootstraps"])

    @property
    def client(self) -> str:
        return str(self.facts["client"])

    @cached_property
    def client_digest(self) -> str:
        return hashlib.sha256(self.client.encode()).hexdigest()

    @property
    @abstractmethod
    def work(self) -> int:
        """Counts the work of one sample, in what takes most of the time: runs of one parameter set take as long as they have of it, about."""

    @property
    @abstractmethod
    def foreseen_seconds(self) -> float:
        """Forecasts the seconds of one sample, before any has run."""

    @property
    @abstractmethod
    def largest_run(self) -> int:
        """Samples of several requests that are computed as one, at most: what is held at once fits memory."""

    @abstractmethod
    def input_bytes(self, samples: int) -> int:
        """Counts the bytes of one object of ciphertexts: the only size that this many samples have."""

    @abstractmethod
    def output_bytes(self, samples: int) -> int:
        """Counts the bytes of one answer."""

    @abstractmethod
    def check_length(self, length: int, most: int) -> None:
        """Checks that some number of samples, at most `most`, has this size.

        Raises:
            TooLargeError, MalformedError, WrongModelError.
        """

    @abstractmethod
    def check_header(self, start: bytes, length: int, most: int) -> RequestHeader:
        """Checks that an object which begins so claims to be what the model takes.

        Raises:
            SecretKeyError, MalformedError, KeyMismatchError, WrongParametersError, WrongModelError, TooLargeError.
        """
