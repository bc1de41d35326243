"""The kinds of keys in a keyring: of look-ups, and of levelled arithmetic."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from cloakwork.fhe_core.client import ClientKey
from cloakwork.fhe_core.errors import KeyMismatchError
from cloakwork.fhe_core.levelled import wire as levelled
from cloakwork.fhe_core.levelled.client import LevelledClientKey, load_keys, save_keys
from cloakwork.fhe_core.levelled.neighbours.expansion_keys import ExpansionKeyShape
from cloakwork.fhe_core.levelled.several import KeyShapes, joined_bytes
from cloakwork.fhe_core.parameters import parameter_digest, parameter_set, upload_bytes
from cloakwork.fhe_core.wire import PREFIX_BYTES, Kind, peek
from cloakwork.fhe_core.wire.files import PUBLIC_MODE, atomic_writer
from cloakwork.fhe_core.words import Progress


class SecretKey(Protocol):
    """The protocol of both kinds of secret keys."""

    @property
    def key_id(self) -> bytes: ...
    def authentication_code(self, message: bytes) -> bytes: ...
    def save(self, path: Path, passphrase: str) -> None: ...


Key = TypeVar("Key", bound=SecretKey)


class KeyKind(Protocol[Key]):
    """A kind of key, and how it is generated and read."""

    @property
    def name(self) -> str:
        """The name of the secret key's file: it names what the key depends on, so that something else gets a new key."""

    @property
    def evaluation_name(self) -> str:
        """The same of the evaluation keys."""

    @property
    def digest(self) -> str:
        """The digest of the evaluation keys' parameters, in hexadecimal."""

    @property
    def upload_bytes(self) -> int:
        """Bytes of the evaluation keys."""

    def generate(self) -> Key: ...
    def load(self, path: Path, passphrase: str) -> Key: ...
    def save_evaluation_keys(self, key: Key, path: Path, progress: Progress) -> None: ...
    def key_id(self, start: bytes, size: int) -> bytes | None:
        """Reads the id of the key whose evaluation keys an object of `size` bytes holds that begins with `start`. Raises: FheError: it holds none."""


@dataclass(frozen=True)
class LookupKeys:
    """Keys of a parameter set of look-ups."""

    set_name: str

    @property
    def name(self) -> str:
        return f"{self.set_name}-{self.digest[:12]}"

    @property
    def evaluation_name(self) -> str:
        return self.name

    @property
    def digest(self) -> str:
        return parameter_digest(parameter_set(self.set_name)).hex()

    @property
    def upload_bytes(self) -> int:
        return upload_bytes(parameter_set(self.set_name))

    def generate(self) -> ClientKey:
        return ClientKey.generate(self.set_name)

    def load(self, path: Path, passphrase: str) -> ClientKey:
        return ClientKey.load(path, passphrase)

    def save_evaluation_keys(self, key: ClientKey, path: Path, progress: Progress) -> None:
        key.evaluation_keys(progress).save(path)

    def key_id(self, start: bytes, size: int) -> bytes | None:
        header = peek(start, size)
        return header.key_id if header.kind is Kind.EVALUATION_KEYS else None


@dataclass(frozen=True)
class LevelledKeys:
    """Keys of a set and a plaintext modulus; evaluation keys of a shape, several shapes under one secret key."""

    shape: ExpansionKeyShape

    @property
    def name(self) -> str:
        parameters = self.shape.parameters
        return f"{parameters.set.name}-modulo-{parameters.plaintext_modulus}-{parameters.set.digest.hex()[:12]}"

    @property
    def evaluation_name(self) -> str:
        return f"{self.name}-{self.shape.rounds}" + ("-products" if self.shape.products else "")

    @property
    def digest(self) -> str:
        return self.shape.digest.hex()

    @property
    def upload_bytes(self) -> int:
        return self.shape.byte_count

    def generate(self) -> LevelledClientKey:
        return LevelledClientKey.generate(self.shape.parameters)

    def load(self, path: Path, passphrase: str) -> LevelledClientKey:
        return LevelledClientKey.load(path, passphrase)

    def save_evaluation_keys(self, key: LevelledClientKey, path: Path, progress: Progress) -> None:
        keys = key.evaluation_keys(self.shape.automorphisms, products=self.shape.products)
        with atomic_writer(path, PUBLIC_MODE) as stream:
            stream.write(keys.to_bytes())

    def key_id(self, start: bytes, size: int) -> bytes | None:
        header = levelled.peek(start[: levelled.HEADER_BYTES], size, levelled.Kind.EVALUATION_KEYS)
        same = header.parameters == self.shape.parameters and header.items == len(self.shape.numbers)
        return header.key_id if same else None


@dataclass(frozen=True)
class LevelledParts:
    """The secret keys of several plaintext moduli, which say who they are by the first."""

    parts: tuple[LevelledClientKey, ...]

    @property
    def key_id(self) -> bytes:
        return self.parts[0].key_id

    def authentication_code(self, message: bytes) -> bytes:
        return self.parts[0].authentication_code(message)

    def save(self, path: Path, passphrase: str) -> None:
        save_keys(path, self.parts, passphrase)


@dataclass(frozen=True)
class SeveralLevelledKeys:
    """Keys of a set and several plaintext moduli, in one file each: secret keys, and evaluation keys."""

    shapes: KeyShapes

    @property
    def name(self) -> str:
        first = self.shapes.shapes[0].parameters
        moduli = "-".join(str(each.parameters.plaintext_modulus) for each in self.shapes.shapes)
        return f"{first.set.name}-modulo-{moduli}-{first.set.digest.hex()[:12]}"

    @property
    def evaluation_name(self) -> str:
        first = self.shapes.shapes[0]
        return f"{self.name}-{first.rounds}" + ("-products" if first.products else "")

    @property
    def digest(self) -> str:
        return self.shapes.digest.hex()

    @property
    def upload_bytes(self) -> int:
        return self.shapes.byte_count

    def generate(self) -> LevelledParts:
        return LevelledParts(tuple(LevelledClientKey.generate(each.parameters) for each in self.shapes.shapes))

    def load(self, path: Path, passphrase: str) -> LevelledParts:
        keys = load_keys(path, passphrase)
        if [each.parameters for each in keys] != [each.parameters for each in self.shapes.shapes]:
            raise KeyMismatchError(f"{path}: expected secret keys of {self.name}, got others")
        return LevelledParts(keys)

    def save_evaluation_keys(self, key: LevelledParts, path: Path, progress: Progress) -> None:
        objects = [
            each.evaluation_keys(shape.automorphisms, products=shape.products).to_bytes()
            for each, shape in zip(key.parts, self.shapes.shapes, strict=True)
        ]
        with atomic_writer(path, PUBLIC_MODE) as stream:
            stream.write(joined_bytes(objects))

    def key_id(self, start: bytes, size: int) -> bytes | None:
        header, first = levelled.header_of(start, levelled.Kind.EVALUATION_KEYS), self.shapes.shapes[0]
        same = header.parameters == first.parameters and header.items == len(first.numbers)
        return header.key_id if same and size == self.upload_bytes else None


assert levelled.HEADER_BYTES <= PREFIX_BYTES
