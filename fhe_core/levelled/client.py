"""The secret side of levelled arithmetic: keys, encryption, decryption."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cloakwork.fhe_core import _engine
from cloakwork.fhe_core.errors import KeyMismatchError, ParameterError, SerializationError, require_kind
from cloakwork.fhe_core.levelled import wire
from cloakwork.fhe_core.levelled.backends import on_host
from cloakwork.fhe_core.levelled.ciphertexts import (
    SQUARE,
    LevelledCiphertexts,
    LevelledEvaluationKeys,
    SeededLevelledCiphertexts,
    SeededSwitchKey,
    require_levelled,
    require_same_key,
)
from cloakwork.fhe_core.levelled.parameters import LevelledParameters, polynomials
from cloakwork.fhe_core.wire import CHECKSUM_BYTES, Buffer, keystore
from cloakwork.fhe_core.wire.files import SECRET_MODE, PathLike, atomic_writer
from cloakwork.fhe_core.wire.layout import AUTHENTICATION_TAG_BYTES, KEY_DERIVATION_BYTES, KEY_ID_BYTES

MOST_KEY_BYTES = 1 << 20
MOST_KEYS = 3  # of a file: one for each plaintext modulus


class LevelledClientKey:
    """The secret key of one set and plaintext modulus. It stays with the owner of the data.

    Who decrypts for others, or tells others what a ciphertext of theirs decrypted to, tells them of the noise and with it of the key, as in every
    exact scheme: answers go back to the owner of the key alone.
    """

    def __init__(self, parameters: LevelledParameters, secret: _engine.LevelledKey, key_id: bytes) -> None:
        self._parameters, self._secret, self._key_id = parameters, secret, key_id

    @classmethod
    def generate(cls, parameters: LevelledParameters) -> LevelledClientKey:
        """Generates a fresh key from the operating system's entropy. Args: parameters: `LevelledParameters.of(name, plaintext_modulus)`."""
        require_kind(
            parameters,
            LevelledParameters,
            "parameters",
            "make them with LevelledParameters.of(name, plaintext_modulus)",
        )
        return cls(parameters, _engine.LevelledKey.generate(parameters.engine), os.urandom(KEY_ID_BYTES))

    @classmethod
    def _from_entropy(cls, parameters: LevelledParameters, entropy: bytes) -> LevelledClientKey:
        """Tests only: key, noise and seeds all follow from 32 bytes."""
        key_id = hashlib.sha256(b"levelled key id" + entropy).digest()[:KEY_ID_BYTES]
        return cls(parameters, _engine.LevelledKey.generate(parameters.engine, entropy), key_id)

    @property
    def parameters(self) -> LevelledParameters:
        """The set that the key was made for."""
        return self._parameters

    @property
    def key_id(self) -> bytes:
        """A random public identifier that ciphertexts and evaluation keys of this key carry."""
        return self._key_id

    def __repr__(self) -> str:
        return f"<LevelledClientKey {self._parameters.set.name}>"

    def __reduce__(self) -> Any:
        raise TypeError("a secret key is not pickled; use save(path, passphrase)")

    def authentication_code(self, message: bytes) -> bytes:
        """Authenticate a message (HMAC-SHA-256): only the owner of the key can. It says nothing about the key."""
        return keystore.authentication_code(self._secret.export(), message)

    def save(self, path: PathLike, passphrase: str) -> None:
        """Encrypts the key into a file of mode 0600 (scrypt and AES-GCM)."""
        save_keys(path, [self], passphrase)

    @classmethod
    def load(cls, path: PathLike, passphrase: str) -> LevelledClientKey:
        """Raises: KeyMismatchError: a wrong passphrase. SerializationError: no such key's file, or a damaged one. Both name the file."""
        keys = load_keys(path, passphrase)
        if len(keys) != 1:
            raise SerializationError(f"{os.fspath(path)}: expected a key of one plaintext modulus, got {len(keys)}")
        return keys[0]

    def sealed(self, passphrase: str) -> bytes:
        """Returns the key encrypted with a passphrase, an object of the wire format."""
        header = self._header()
        return wire.dump(header, keystore.seal(self._secret.export(), header.pack(), passphrase))

    @classmethod
    def unsealed(cls, data: Buffer, passphrase: str) -> LevelledClientKey:
        """Inverts `sealed`. Raises: KeyMismatchError, SerializationError."""
        header, (section,) = wire.read(data, wire.Kind.SECRET_KEY, max_bytes=MOST_KEY_BYTES)
        if len(section) != _section_bytes(header):
            raise SerializationError("levelled secret key: of another size than its set's; it was cut off or extended")
        derivation, sealed = section[:KEY_DERIVATION_BYTES], section[KEY_DERIVATION_BYTES:]
        secret = keystore.unseal(derivation, sealed, header.pack(), passphrase)
        return cls(header.parameters, _engine.LevelledKey.restore(header.parameters.engine, secret), header.key_id)

    def _header(self) -> wire.Header:
        return wire.Header(kind=wire.Kind.SECRET_KEY, parameters=self._parameters, key_id=self._key_id)

    def evaluation_keys(self, automorphisms: Iterable[int] = (), *, products: bool = True) -> LevelledEvaluationKeys:
        """Makes what the server needs, public. New seeds and new noise every time; make them once and keep them.

        Args:
            automorphisms: numbers g of X -> X^g, odd and below 2N (`Slots.rotation`, `Slots.exchange`).
            products: whether with the key for products of ciphertexts.

        Raises:
            ParameterError: an even automorphism or one that is out of range.
        """
        numbers = [*([SQUARE] if products else []), *dict.fromkeys(automorphisms)]
        if any(g == SQUARE for g in numbers[products:]):
            raise ParameterError("automorphisms: expected odd numbers, got 0")
        keys = {g: SeededSwitchKey(*self._secret.switch_key(g)) for g in numbers}
        return LevelledEvaluationKeys(self._parameters, self._key_id, keys)

    def encrypt(self, messages: ArrayLike, level: int | None = None) -> LevelledCiphertexts:
        """Ciphertexts of polynomials.

        Args:
            messages: integers [batch, N] or [N]; they count modulo t.
            level: how many primes, by default all of the set's.

        Raises:
            ShapeError: another shape, numbers that are no integers, or a level that the set does not have.
        """
        return self.encrypt_seeded(messages, level).expand()

    def encrypt_seeded(self, messages: ArrayLike, level: int | None = None) -> SeededLevelledCiphertexts:
        """Encrypts to half as many bytes, to be sent."""
        parameters = self._parameters
        words = polynomials(messages, parameters.polynomial_size, parameters.plaintext_modulus).astype(np.uint32)
        seed, bodies = self._secret.encrypt(words, self._parameters.levels if level is None else level)
        return SeededLevelledCiphertexts(self._parameters, self._key_id, seed, bodies)

    def decrypt(self, ciphertexts: LevelledCiphertexts, *, signed: bool = False) -> NDArray[np.int64]:
        """Returns messages [batch, N] in [0, t), or from -t/2 to t/2.

        Raises:
            KeyMismatchError: ciphertexts of another key.
            ShapeError: no levelled ciphertexts, or seeded ones that are not expanded.
        """
        require_levelled(ciphertexts, "decryption")
        require_same_key(self._key_id, ciphertexts.key_id)
        t = self._parameters.plaintext_modulus
        scaled = self._secret.messages(self._secret.phase(on_host(ciphertexts.words))).astype(np.int64)
        values = scaled * pow(ciphertexts.scale, -1, t) % t
        return np.where(values > t // 2, values - t, values) if signed else values

    def phases(self, ciphertexts: LevelledCiphertexts) -> NDArray[np.uint32]:
        """Message and noise, coefficients modulo each prime [batch, level, N]: for measuring noise."""
        require_same_key(self._key_id, ciphertexts.key_id)
        return self._secret.phase(on_host(ciphertexts.words))


def save_keys(path: PathLike, keys: Sequence[LevelledClientKey], passphrase: str) -> None:
    """Encrypts keys into one file of mode 0600: sealed keys that follow each other."""
    with atomic_writer(path, SECRET_MODE) as stream:
        for key in keys:
            stream.write(key.sealed(passphrase))


def load_keys(path: PathLike, passphrase: str) -> tuple[LevelledClientKey, ...]:
    """Loads the keys of a file. Raises: KeyMismatchError: a wrong passphrase. SerializationError: no such file's content. Both name the file."""
    try:
        with Path(path).open("rb") as stream:
            data = stream.read(MOST_KEY_BYTES + 1)
        if len(data) > MOST_KEY_BYTES:
            raise SerializationError(f"levelled secret key: expected at most {MOST_KEY_BYTES} bytes, got more")
        return tuple(LevelledClientKey.unsealed(each, passphrase) for each in _sealed_keys(memoryview(data)))
    except (KeyMismatchError, SerializationError) as error:
        raise type(error)(f"{os.fspath(path)}: {error}") from None


def _sealed_keys(data: memoryview) -> list[memoryview]:
    """Splits off the first MOST_KEYS objects; what is left over is part of the last, which is refused for its size then."""
    objects = list[memoryview]()
    while len(data) and len(objects) < MOST_KEYS - 1:
        header = wire.header_of(data, wire.Kind.SECRET_KEY)
        size = wire.HEADER_BYTES + _section_bytes(header) + CHECKSUM_BYTES
        objects.append(data[:size])
        data = data[size:]
    return [*objects, data] if len(data) or not objects else objects


def _section_bytes(header: wire.Header) -> int:
    return KEY_DERIVATION_BYTES + header.parameters.polynomial_size + AUTHENTICATION_TAG_BYTES
