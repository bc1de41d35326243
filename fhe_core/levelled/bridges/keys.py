"""Keys between levelled arithmetic and look-ups, and how noisy what crosses them gets.

A polynomial modulo X^M + 1 of levelled arithmetic is R = M / N polynomials in Y = X^R modulo Y^N + 1, the ring of a set of look-ups: coefficients r,
r + R, r + 2R, .. are number r. So M coefficients are R ciphertexts of look-ups' GLWE form under the secrets z_1 .. z_k of those, or one of
polynomials modulo X^M + 1 under z_i(X^R): what the keys here switch to and from.

Source: [CDKS21] conversions by rings in one another; ours between modules of any rank and rings of any size.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from functools import lru_cache

from cloakwork.fhe_core._engine import ParameterSet
from cloakwork.fhe_core.ciphertexts import SeededPackedCiphertexts
from cloakwork.fhe_core.errors import KeyMismatchError, ParameterError, SerializationError
from cloakwork.fhe_core.levelled import wire
from cloakwork.fhe_core.levelled.bridges.torus_words import Gadget
from cloakwork.fhe_core.levelled.ciphertexts import LevelledEvaluationKeys, switch_keys
from cloakwork.fhe_core.levelled.parameters import SECRET_VARIANCE, LevelledParameters
from cloakwork.fhe_core.noise import (
    blind_rotation_variance,
    digit_moment,
    fresh_variance,
    gadget_rounding_variance,
)
from cloakwork.fhe_core.wire import DEFAULT_MAX_BYTES, Buffer

MOST_COMPONENTS = 4  # of a mask of look-ups' ciphertexts
_MOST_DIGITS = 9
_SHARE = 0.25  # of a look-up's output noise: as much as a bridge may bring before finer digits are taken


def require_bridge(parameters: LevelledParameters, lookups: ParameterSet) -> int:
    """R. ParameterError: a set of look-ups with several values to a ciphertext, or of several parties."""
    if lookups.lane_count > 1 or lookups.party_count > 1:
        raise ParameterError(
            f"bridge: expected a set of look-ups of one value to a ciphertext and one owner, got '{lookups.name}'"
        )
    return parameters.polynomial_size // lookups.polynomial_size


@lru_cache(maxsize=64)
def gadget_of(size: int, lookups: ParameterSet) -> Gadget:
    """Digits for polynomials of `size` coefficients: the fewest that bring little beside what a look-up's output has; else those that bring least."""
    tried = []
    for level_count in range(1, _MOST_DIGITS + 1):
        for base_log in range(1, 27 * lookups.limb_count // level_count + 1):
            gadget = Gadget(base_log, level_count)
            tried.append((switch_variance(size, lookups, gadget), gadget))
        best = min(tried, key=lambda each: each[0])
        if best[0] <= _SHARE * blind_rotation_variance(lookups):
            break
    return best[1]


def switch_variance(size: int, lookups: ParameterSet, gadget: Gadget) -> float:
    """Returns the variance that digits times keys and the rounding before them bring, in torus squared."""
    of_gadget = (gadget.base_log, gadget.level_count)
    keys = size * digit_moment(lookups, of_gadget) * fresh_variance(lookups)
    return keys + size * SECRET_VARIANCE * gadget_rounding_variance(lookups, of_gadget)


def rounding_variance(size: int, lookups: ParameterSet, level: int) -> float:
    """Returns the variance of rounding residues modulo these primes to torus words, in torus squared."""
    return (size * SECRET_VARIANCE + 1) * level / 12 / lookups.modulus**2


@dataclass(frozen=True, eq=False)
class ToLookupsKey:
    """The key from levelled arithmetic to look-ups: the levelled secret, digit by digit, under the key of the look-ups. Public.

    Attributes:
        key_id: of the levelled key.
        encrypted: values [digits, R, N], number (l, r, m) the weight of digit l times coefficient r + R m of the secret.
    """

    parameters: LevelledParameters
    key_id: bytes
    encrypted: SeededPackedCiphertexts

    @property
    def lookups(self) -> ParameterSet:
        """The set of the look-ups."""
        return self.encrypted.parameters

    @property
    def gadget(self) -> Gadget:
        """How the levelled secret is cut into digits."""
        return gadget_of(self.parameters.polynomial_size, self.lookups)

    def to_bytes(self) -> bytes:
        """Packed ciphertexts (docs/reference/wire_format.md) whose purpose is `bridge_purpose`."""
        return self.encrypted.to_bytes()

    @classmethod
    def from_bytes(
        cls,
        data: Buffer,
        parameters: LevelledParameters,
        key_id: bytes,
        lookups: ParameterSet | None = None,
        max_bytes: int = DEFAULT_MAX_BYTES,
    ) -> ToLookupsKey:
        """Args: parameters, key_id: of the levelled key. lookups: the set expected.

        Raises:
            SerializationError: damaged, or no such key.
            KeyMismatchError: between other keys or sets.
        """
        encrypted = SeededPackedCiphertexts.from_bytes(data, parameters=lookups, max_bytes=max_bytes)
        if encrypted.purpose != bridge_purpose(parameters, key_id):
            raise KeyMismatchError(
                f"bridge: expected a key from levelled key {key_id.hex()} of {parameters.label}, got "
                "packed ciphertexts that are for something else"
            )
        ratio = require_bridge(parameters, encrypted.parameters)
        gadget = gadget_of(parameters.polynomial_size, encrypted.parameters)
        expected = (gadget.level_count, ratio, encrypted.parameters.polynomial_size)
        if encrypted.shape != expected:
            raise SerializationError(f"bridge: expected values {list(expected)}, got {list(encrypted.shape)}")
        return cls(parameters, key_id, encrypted)


@dataclass(frozen=True, eq=False)
class FromLookupsKeys(LevelledEvaluationKeys):
    """The keys from look-ups to levelled arithmetic: keys from z_i(X^R) by `component`, and for the automorphisms of packing. Public.

    Attributes:
        lookups_digest, lookups_key_id: of the look-ups' set and key.
    """

    lookups_digest: bytes
    lookups_key_id: bytes

    def to_bytes(self) -> bytes:
        """Writes an object of the wire format, which `from_bytes` reads."""
        about = self.lookups_digest + self.lookups_key_id
        return wire.dump(self._header(wire.Kind.FROM_LOOKUPS_KEYS), [about, *self._sections()])

    @classmethod
    def from_bytes(
        cls, data: Buffer, parameters: LevelledParameters | None = None, max_bytes: int = DEFAULT_MAX_BYTES
    ) -> FromLookupsKeys:
        """Reads what `to_bytes` wrote.

        Raises:
            SerializationError: bytes that are cut off, altered, of another kind or more than `max_bytes`.
            KeyMismatchError: of another set or plaintext modulus than `parameters`, if given.
        """
        header, (about, *sections) = wire.read(data, wire.Kind.FROM_LOOKUPS_KEYS, parameters, max_bytes)
        keys = switch_keys(header, sections, {component(i) for i in range(MOST_COMPONENTS)})
        half = wire.LOOKUPS_DIGEST_BYTES
        return cls(header.parameters, header.key_id, keys, about[:half], about[half:])


def component(number: int) -> int:
    """Returns the number of the key from z_i in `FromLookupsKeys`: an even number, which no automorphism has."""
    return 2 + 2 * number


def packing_automorphisms(parameters: LevelledParameters) -> list[int]:
    """2^i + 1 for i = 1 .. log2 M."""
    return [(1 << i) + 1 for i in range(1, parameters.set.log_size + 1)]


def bridge_purpose(parameters: LevelledParameters, key_id: bytes) -> bytes:
    """Returns the purpose of a `ToLookupsKey`."""
    modulus = parameters.plaintext_modulus.to_bytes(4, "little")
    return hashlib.sha256(b"levelled to look-ups" + parameters.set.digest + modulus + key_id).digest()


def effective_norm(lookups: ParameterSet, variance: float, offset: float, margin: float, rest: float) -> float:
    """Returns the weight norm under which noise of this variance and an offset up to this one fails as seldom as it does.

    Args:
        margin, rest: of what reads it next: how far a phase may be off, and the variance that reading adds.

    Raises:
        ParameterError: an offset beyond the margin.
    """
    if not offset < margin or not variance < math.inf:
        raise ParameterError(
            "bridge: the ciphertexts are too noisy for this set of look-ups: take them at a higher level, or a smaller plaintext modulus"
        )
    widened = (variance + rest) * (margin / (margin - offset)) ** 2 - rest
    return math.sqrt(widened / blind_rotation_variance(lookups))
