"""Ciphertexts and evaluation keys of levelled arithmetic."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace

from cloakwork.fhe_core import _engine
from cloakwork.fhe_core.errors import KeyMismatchError, ParameterError, SerializationError, require_kind
from cloakwork.fhe_core.levelled import wire
from cloakwork.fhe_core.levelled.backends import AnyPrepared, AnyWords, LevelledBackend, Words, backend_of, on_host
from cloakwork.fhe_core.levelled.noise import MOST_DEGREE, Noise, dropped, failure_log2, fresh
from cloakwork.fhe_core.levelled.parameters import LevelledParameters
from cloakwork.fhe_core.levelled.rounded import without_bits
from cloakwork.fhe_core.wire import DEFAULT_MAX_BYTES, Buffer

SQUARE = 0  # what `EvaluationKeys` calls the key for products; others are numbers of automorphisms


@dataclass(frozen=True, eq=False)
class LevelledCiphertexts:
    """Some polynomials of messages, all at one level.

    Attributes:
        key_id: of the key they are under.
        words: [batch, 2, level, N] uint32, transformed: an array of numpy, or words of a device (`to_host`).
        scale: messages are this times those meant, modulo t: divisions by primes leave it.
        noise: of every phase, as foreseen.
        dropped_bits: last bits of coefficients that are not sent (`rounded`).
    """

    parameters: LevelledParameters
    key_id: bytes
    words: AnyWords
    scale: int
    noise: Noise
    dropped_bits: int = 0

    def __len__(self) -> int:
        return int(self.words.shape[0])

    @property
    def level(self) -> int:
        """Counts the primes of their modulus."""
        return int(self.words.shape[2])

    @property
    def nbytes(self) -> int:
        """Counts the bytes of the words in memory."""
        return int(self.words.nbytes)

    def to_host(self) -> LevelledCiphertexts:
        """Copies to words of numpy."""
        return replace(self, words=on_host(self.words))

    def rounded(self, bits: int) -> LevelledCiphertexts:
        """Drops this many of the last bits of every coefficient, 0 to 27: fewer bytes, more noise; on the host."""
        words = without_bits(self.parameters, on_host(self.words), bits)
        noise = self.noise.plus(dropped(self.parameters, bits), independent=True)
        return replace(self, words=words, noise=noise, dropped_bits=bits)

    @property
    def failure_log2(self) -> float:
        """log2 of the probability that one of these decrypts wrongly."""
        return failure_log2(self.noise, self.parameters, self.level)

    def to_bytes(self) -> bytes:
        """Raises: ParameterError: of so high a degree of noise (hundreds of products without a division) that the format has no room for it."""
        if self.noise.degree > MOST_DEGREE or not self.noise.deviation < math.inf:
            raise ParameterError(
                f"noise: expected degree at most {MOST_DEGREE}, got {self.noise.degree}; divide before (rescale)"
            )
        header = wire.Header(
            kind=wire.Kind.CIPHERTEXTS, parameters=self.parameters, key_id=self.key_id, items=len(self), level=self.level,
            scale=self.scale, dropped_bits=self.dropped_bits, noise=self.noise,
        )  # fmt: skip
        words = wire.pack_rounded(self.parameters, on_host(self.words), self.dropped_bits)
        return wire.dump(header, [wire.pack_variances(self.noise), words])

    @classmethod
    def from_bytes(
        cls, data: Buffer, parameters: LevelledParameters | None = None, max_bytes: int = DEFAULT_MAX_BYTES
    ) -> LevelledCiphertexts:
        """Reads what `to_bytes` wrote. The noise is what their sender says it is.

        Raises:
            SerializationError: bytes that are cut off, altered, of another kind or more than `max_bytes`.
            KeyMismatchError: of another set or plaintext modulus than `parameters`, if given.
        """
        header, (_, packed) = wire.read(data, wire.Kind.CIPHERTEXTS, parameters, max_bytes)
        assert header.noise is not None
        shape = (header.items, 2, header.level, header.parameters.polynomial_size)
        words = wire.unpack_rounded(header, packed, shape)
        return cls(header.parameters, header.key_id, words, header.scale, header.noise, header.dropped_bits)

    def __repr__(self) -> str:
        return f"<LevelledCiphertexts {len(self)} of {self.parameters.set.name} modulo {self.parameters.plaintext_modulus}, level {self.level}>"


@dataclass(frozen=True, eq=False)
class SeededLevelledCiphertexts:
    """Fresh ciphertexts as they are sent: half of each follows from the seed.

    Attributes:
        bodies: [batch, level, N] uint32, transformed.
        dropped_bits: last bits of the bodies' coefficients that are not sent (`rounded`).
    """

    parameters: LevelledParameters
    key_id: bytes
    seed: bytes
    bodies: Words
    dropped_bits: int = 0

    def __len__(self) -> int:
        return len(self.bodies)

    def expand(self) -> LevelledCiphertexts:
        """Expands the masks from the seed."""
        words = self.parameters.engine.expand(self.seed, self.bodies)
        noise = fresh(self.parameters).plus(dropped(self.parameters, self.dropped_bits, 1), independent=True)
        return LevelledCiphertexts(self.parameters, self.key_id, words, 1, noise)

    def rounded(self, bits: int) -> SeededLevelledCiphertexts:
        """Drops this many of the last bits of every coefficient, 0 to 27: fewer bytes, more noise."""
        return replace(self, bodies=without_bits(self.parameters, self.bodies, bits), dropped_bits=bits)

    def to_bytes(self) -> bytes:
        """Writes an object of the wire format, which `from_bytes` reads."""
        header = wire.Header(
            kind=wire.Kind.SEEDED_CIPHERTEXTS, parameters=self.parameters, key_id=self.key_id, items=len(self),
            level=self.bodies.shape[1], dropped_bits=self.dropped_bits,
        )  # fmt: skip
        return wire.dump(header, [self.seed, wire.pack_rounded(self.parameters, self.bodies, self.dropped_bits)])

    @classmethod
    def from_bytes(
        cls, data: Buffer, parameters: LevelledParameters | None = None, max_bytes: int = DEFAULT_MAX_BYTES
    ) -> SeededLevelledCiphertexts:
        """Reads what `to_bytes` wrote.

        Raises:
            SerializationError: bytes that are cut off, altered, of another kind or more than `max_bytes`.
            KeyMismatchError: of another set or plaintext modulus than `parameters`, if given.
        """
        header, (seed, packed) = wire.read(data, wire.Kind.SEEDED_CIPHERTEXTS, parameters, max_bytes)
        shape = (header.items, header.level, header.parameters.polynomial_size)
        bodies = wire.unpack_rounded(header, packed, shape)
        return cls(header.parameters, header.key_id, seed, bodies, header.dropped_bits)


@dataclass(frozen=True, eq=False)
class SeededSwitchKey:
    """The uploaded half of a key; the other half follows from the seed."""

    seed: bytes
    bodies: Words  # [digits, primes, N]


@dataclass(frozen=True, eq=False)
class LevelledEvaluationKeys:
    """Keys for products (`SQUARE`) and for automorphisms X -> X^g, by g. Public."""

    parameters: LevelledParameters
    key_id: bytes
    keys: Mapping[int, SeededSwitchKey]

    @property
    def nbytes(self) -> int:
        """Counts the bytes of bodies and seeds, as they are sent."""
        return sum(key.bodies.nbytes + len(key.seed) for key in self.keys.values())

    def to_bytes(self) -> bytes:
        """Writes an object of the wire format, which `from_bytes` reads."""
        return wire.dump(self._header(wire.Kind.EVALUATION_KEYS), self._sections())

    def _header(self, kind: wire.Kind) -> wire.Header:
        return wire.Header(kind=kind, parameters=self.parameters, key_id=self.key_id, items=len(self.keys))

    def _sections(self) -> list[bytes]:
        return [
            each
            for g, key in self.keys.items()
            for each in (struct.pack("<I", g) + key.seed, wire.pack_words(key.bodies))
        ]

    @classmethod
    def from_bytes(
        cls, data: Buffer, parameters: LevelledParameters | None = None, max_bytes: int = DEFAULT_MAX_BYTES
    ) -> LevelledEvaluationKeys:
        """Reads what `to_bytes` wrote.

        Raises:
            SerializationError: bytes that are cut off, altered, of another kind or more than `max_bytes`.
            KeyMismatchError: of another set or plaintext modulus than `parameters`, if given.
        """
        header, sections = wire.read(data, wire.Kind.EVALUATION_KEYS, parameters, max_bytes)
        return cls(header.parameters, header.key_id, switch_keys(header, sections, {SQUARE}))

    def expanded(self, threads: int) -> dict[int, _engine.LevelledPrepared]:
        """Returns by element of the group keys with their masks, transformed."""
        engine = self.parameters.engine
        return {g: engine.expand_key(key.seed, key.bodies, threads) for g, key in self.keys.items()}


def switch_keys(header: wire.Header, sections: Sequence[bytes], others: Set[int]) -> dict[int, SeededSwitchKey]:
    """Reads the keys of an object's sections. Args: others: numbers that are no automorphisms'. Raises: SerializationError."""
    size, row, keys = header.parameters.polynomial_size, header.parameters.set, dict[int, SeededSwitchKey]()
    for named, packed in zip(sections[::2], sections[1::2], strict=True):
        g = int.from_bytes(named[:4], "little")
        if g in keys or not (g in others or (g % 2 == 1 and g < 2 * size)):
            raise SerializationError(
                f"{header.kind.label}: expected automorphisms each once, odd and below {2 * size}, got {g}"
            )
        bodies = wire.unpack_words(packed, (-1, len(row.primes), size))
        wire.check_below(bodies, row.primes, header.kind)
        keys[g] = SeededSwitchKey(named[4:], bodies)
    return keys


def require_levelled(value: object, what: str) -> None:
    """Raises ShapeError unless the value is an array of levelled ciphertexts."""
    require_kind(value, LevelledCiphertexts, what, "encrypt polynomials, expand seeded ones")


def require_same_key(a: bytes, b: bytes) -> None:
    """KeyMismatchError unless both are one key's."""
    if a != b:
        raise KeyMismatchError(f"expected ciphertexts of key {a.hex()}, got some of key {b.hex()}")


# Evaluation keys where they are used: expanded once, for any number of evaluators.


@dataclass(frozen=True, eq=False)
class ExpandedLevelledKeys:
    """Both halves of every key, prepared for keyswitches on one device. Public."""

    parameters: LevelledParameters
    key_id: bytes
    device: str
    prepared: Mapping[int, AnyPrepared]
    backend: LevelledBackend  # that prepared them

    @classmethod
    def of(cls, keys: LevelledEvaluationKeys, device: str = "cpu", threads: int = 1) -> ExpandedLevelledKeys:
        """Args: device: "cpu", "cuda" or "cuda:N"."""
        backend = backend_of(keys.parameters.engine, device, threads)
        return cls(keys.parameters, keys.key_id, device, backend.keys(keys.expanded(threads)), backend)

    @property
    def nbytes(self) -> int:
        return sum(int(key.nbytes) for key in self.prepared.values())
