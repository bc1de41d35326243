"""Evaluation keys of the expansion of a packed vector (`inner_products.py`): their shape, which a server states before it gets them."""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from cloakwork.fhe_core.errors import ShapeError
from cloakwork.fhe_core.levelled import wire
from cloakwork.fhe_core.levelled.ciphertexts import SQUARE
from cloakwork.fhe_core.levelled.parameters import LevelledParameters

_LABEL: Final = b"cloakwork expansion keys 1\0"


def expansion_rounds(parameters: LevelledParameters, count: int) -> int:
    """Counts the rounds of the tree that expands this many coefficients."""
    if not 1 <= count <= parameters.polynomial_size:
        raise ShapeError(f"vector: expected 1 to {parameters.polynomial_size} numbers, got {count}")
    return (count - 1).bit_length()


def expansion_automorphisms(parameters: LevelledParameters, count: int) -> list[int]:
    """Lists the automorphisms that `expand` needs keys for. Args: count: of coefficients."""
    return ExpansionKeyShape.of(parameters, count).automorphisms


@dataclass(frozen=True)
class ExpansionKeyShape:
    """The shape of evaluation keys for vectors of up to 2^rounds numbers. Keys of one shape serve every table that takes this shape.

    Attributes:
        products: whether with the key for products of ciphertexts, which tables in cells take.
    """

    parameters: LevelledParameters
    rounds: int
    products: bool = False

    @classmethod
    def of(cls, parameters: LevelledParameters, count: int, *, products: bool = False) -> ExpansionKeyShape:
        """Args: count: numbers of a vector. Raises: ShapeError: none, or more than N."""
        return cls(parameters, expansion_rounds(parameters, count), products)

    @classmethod
    def of_header(cls, header: wire.Header, digest: bytes) -> ExpansionKeyShape:
        """Describes keys by their number: with the one for products where that has this digest, else without."""
        without = cls(header.parameters, header.items)
        if header.items == 0:
            return without
        several = cls(header.parameters, header.items - 1, products=True)
        return several if several.digest == digest else without

    @property
    def automorphisms(self) -> list[int]:
        """In the order that keys travel in, after the one for products."""
        return [self.parameters.polynomial_size // (1 << i) + 1 for i in range(self.rounds)]

    @property
    def numbers(self) -> list[int]:
        """Lists the numbers of the keys, in that order."""
        return [*([SQUARE] if self.products else []), *self.automorphisms]

    @property
    def byte_count(self) -> int:
        """Counts the bytes of the object, the only size that such keys have."""
        return wire.Header(
            kind=wire.Kind.EVALUATION_KEYS, parameters=self.parameters, key_id=b"", items=len(self.numbers)
        ).byte_count

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 of set, plaintext modulus, rounds and whether there is a key for products."""
        numbers = struct.pack("<II", self.parameters.plaintext_modulus, self.rounds) + b"\1" * self.products
        return hashlib.sha256(_LABEL + self.parameters.set.digest + numbers).digest()
