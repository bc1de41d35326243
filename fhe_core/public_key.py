"""Encryption by anyone, for the owner of the secret key: section 10 of docs/specification.md.

Source: [LPR10] for rings, [Joy24] for LWE ciphertexts. Ours: k rows, and one LWE ciphertext of each encryption of zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from cloakwork.fhe_core import _engine, wire
from cloakwork.fhe_core._engine import ParameterSet
from cloakwork.fhe_core.arrays import Phases, Words
from cloakwork.fhe_core.ciphertexts import PackedCiphertexts
from cloakwork.fhe_core.cores import in_parts
from cloakwork.fhe_core.encoding import Encoding, default_encoding, encode
from cloakwork.fhe_core.lanes import ciphertext_shape, lane_axis, packed_words
from cloakwork.fhe_core.modular_integers import (
    checked_modulus,
    encode_integers,
    encryption_norm,
    residues_to_encrypt,
)
from cloakwork.fhe_core.parameters import word_dtype
from cloakwork.fhe_core.phase_arithmetic import negate_words
from cloakwork.fhe_core.wire_object import WireObject

if TYPE_CHECKING:
    from cloakwork.fhe_core.wire import BytesSource


_ZEROS_AT_ONCE = 256  # GLWE encryptions in memory for each thread; 17 MB of the largest set
LANES = 16  # encryptions that one call of the engine works on together


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
        """Values of any shape (with r > 1 lanes [.., r]), N of a lane to a GLWE ciphertext; `Session.extract` makes LWE ciphertexts of them."""
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
        """Integers modulo q as `ClientKey.encrypt_integers` takes them; the server computes with `ModularIntegers(session.extract(..), modulus)`."""
        modulus = checked_modulus(modulus)
        words = encode_integers(self.parameters, residues_to_encrypt(values, modulus), modulus)
        norm = encryption_norm(self.parameters, modulus, public=True)
        return self._packed(words, Encoding.TORUS, norm)

    def zeros(self, count: int, threads: int = 1, seed: bytes | None = None) -> Words:
        """LWE encryptions of zero [count, kN + r]: coefficient 0 of a GLWE encryption of zero, a new one for each.

        Noise: `noise.public_key_variance` each, independent.

        Each has a u of its own although N coefficients of one encryption would decrypt as well: who made the key may have made it
        badly. The masks A[r][c] follow from a seed, so that A'_c hides whatever the bodies are; but bodies chosen by somebody who sees
        all coefficients of B' tell him u, and one coefficient tells no more than one word (r words) about it.

        Args:
            seed: 32 secret bytes that the zeros follow from, number i from (seed, i), with any number of threads; None: the operating
                system's entropy. One seed serves one call: two results with the same zeros differ by what was hidden.

        Cost: about 0.3 ms each on one thread.
        """
        params = self.parameters
        words = np.empty((count, params.large_words), dtype=word_dtype(params))
        share = max(LANES, -(-count // (max(threads, 1) * LANES)) * LANES)  # whole groups of lanes for each thread

        def fill(part: slice) -> None:
            self._fill_with_zeros(words[part], seed, part.start)

        in_parts(fill, count, min(share, _ZEROS_AT_ONCE), threads)
        return words

    def _fill_with_zeros(self, words: Words, seed: bytes | None, first: int) -> None:
        params = self.parameters
        k, size = params.glwe_dimension, params.polynomial_size
        zero = np.zeros((len(words), *lane_axis(params), size), dtype=np.uint64)
        glwe = _engine.public_encrypt_glwe(params, self.seed, self.bodies, zero, seed, first)
        masks = words[:, : k * size].reshape(len(words), k, size)  # section 7 of docs/specification.md at c = 0
        masks[:, :, 0] = glwe[:, :k, 0]
        negated = negate_words(params, glwe[:, :k, :0:-1])
        assert isinstance(negated, np.ndarray)
        masks[:, :, 1:] = negated
        words[:, k * size :] = glwe[:, k:, 0]

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
