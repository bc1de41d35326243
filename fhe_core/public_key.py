"""Encryption by anyone, for the owner of the secret key: section 10 of docs/reference/specification.md.

Source: [LPR10] for rings, [Joy24] for LWE ciphertexts. Ours: k rows, and one LWE ciphertext of each encryption of zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from cloakwork.fhe_core import _engine, wire
from cloakwork.fhe_core._engine import ParameterSet
from cloakwork.fhe_core.arrays.encoding import Encoding, default_encoding, encode
from cloakwork.fhe_core.arrays.lanes import ciphertext_shape, packed_words
from cloakwork.fhe_core.ciphertexts import PackedCiphertexts
from cloakwork.fhe_core.modular_integers import (
    checked_modulus,
    encode_integers,
    encryption_norm,
    residues_to_encrypt,
)
from cloakwork.fhe_core.parameters import word_dtype
from cloakwork.fhe_core.wire.objects import WireObject
from cloakwork.fhe_core.words import Phases, Words

if TYPE_CHECKING:
    from cloakwork.fhe_core.wire import BytesSource

LANES = 16  # encryptions that the engine makes together


@dataclass(frozen=True, eq=False)
class PublicKey(WireObject):
    """k GLWE-like rows as one seed and their bodies; encrypts and nothing else."""

    parameters: ParameterSet
    seed: bytes
    bodies: Words  # [k, N], with r > 1 lanes [k, r, N]
    key_id: bytes | None = None

    def __repr__(self) -> str:
        return f"<PublicKey {self.parameters.name}>"

    def encrypt(self, values: ArrayLike, *, encoding: Encoding | None = None) -> PackedCiphertexts:
        """Encrypts values of any shape (with r > 1 lanes [.., r]), N of a lane to a GLWE ciphertext; `Session.extract` makes LWE ciphertexts of
        them."""
        chosen = default_encoding(self.parameters) if encoding is None else encoding
        return self._packed(encode(self.parameters, values, chosen), chosen, 1.0)

    def _packed(self, words: Phases, encoding: Encoding, weight_norm: float) -> PackedCiphertexts:
        shape = ciphertext_shape(self.parameters, words.shape)
        glwe = _engine.public_encrypt_glwe(
            self.parameters, self.seed, self.bodies, packed_words(self.parameters, words)
        )
        return PackedCiphertexts(
            self.parameters, glwe, shape, encoding=encoding, weight_norm=weight_norm, key_id=self.key_id
        )

    def encrypt_integers(self, values: ArrayLike, modulus: int) -> PackedCiphertexts:
        """Encrypts integers modulo q as `ClientKey.encrypt_integers` takes them; the server computes with `ModularIntegers(session.extract(..),
        modulus)`."""
        modulus = checked_modulus(modulus)
        words = encode_integers(self.parameters, residues_to_encrypt(values, modulus), modulus)
        norm = encryption_norm(self.parameters, modulus, public=True)
        return self._packed(words, Encoding.TORUS, norm)

    def add_zeros(self, words: Words, threads: int = 1, seed: bytes | None = None) -> Words:
        """Adds to LWE words [count, kN + r] an encryption of zero each: coefficient 0 of a GLWE encryption of zero, a new one for each.

        Noise: plus `noise.public_key_variance` each, independent.

        Each has a u of its own although N coefficients of one encryption would decrypt as well: who made the key may have made it
        badly. The masks `A[r][c]` follow from a seed, so that A'_c hides whatever the bodies are; but bodies chosen by somebody who sees
        all coefficients of B' tell him u, and one coefficient tells no more than one word (r words) about it.

        Args:
            seed: 32 secret bytes that the zeros follow from, number i from (seed, i), with any number of threads; None: the operating
                system's entropy. One seed serves one call: two results with the same zeros differ by what was hidden.

        Cost: 0.02 ms (N = 512) to 0.1 ms (N = 4096) each on one thread, several times that for fewer than LANES.
        """
        return _engine.add_public_zeros(self.parameters, self.seed, self.bodies, words, seed, threads)

    def zeros(self, count: int, threads: int = 1, seed: bytes | None = None) -> Words:
        """Encrypts zeros as LWE words [count, kN + r], as `add_zeros` makes them."""
        none = np.zeros((count, self.parameters.large_words), dtype=word_dtype(self.parameters))
        return self.add_zeros(none, threads, seed)

    def _header(self) -> wire.Header:
        return wire.Header(kind=wire.Kind.PUBLIC_KEY, parameters=self.parameters, seeded=True, key_id=self.key_id)

    def _sections(self) -> list[wire.Section]:
        return [self.seed, self.bodies]

    @classmethod
    def _from_source(cls, source: BytesSource, parameters: ParameterSet | None, max_bytes: int) -> PublicKey:
        header, (seed, bodies) = wire.read(
            source, wire.Kind.PUBLIC_KEY, seeded=True, parameters=parameters, max_bytes=max_bytes
        )
        assert isinstance(seed, bytes) and isinstance(bodies, np.ndarray)
        return cls(header.parameters, seed, bodies, header.key_id)
