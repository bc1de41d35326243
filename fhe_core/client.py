"""The secret side: keys, encryption and decryption. Nothing on the evaluating side imports this module."""

from __future__ import annotations

import hashlib
import os
from typing import Any, Literal, get_args, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cloakwork.fhe_core import _engine
from cloakwork.fhe_core._engine import ParameterSet
from cloakwork.fhe_core.arrays.device_words import on_host
from cloakwork.fhe_core.arrays.encoding import (
    DEFAULT_TORUS_LIMIT,
    Encoding,
    Reals,
    decode,
    default_encoding,
    encode,
    phase_error,
)
from cloakwork.fhe_core.arrays.lanes import ciphertext_shape, lane_axis, packed_words, unpacked_words
from cloakwork.fhe_core.ciphertexts import (
    Ciphertexts,
    PackedCiphertexts,
    SeededCiphertexts,
    SeededPackedCiphertexts,
    check_same_key,
)
from cloakwork.fhe_core.errors import ParameterError, ShapeError, require_kind
from cloakwork.fhe_core.modular_integers import (
    ModularIntegers,
    checked_modulus,
    decode_integers,
    encode_integers,
    encryption_norm,
    residues_to_encrypt,
)
from cloakwork.fhe_core.parameters import is_paper_set, parameter_set
from cloakwork.fhe_core.public_key import PublicKey
from cloakwork.fhe_core.session.evaluation_keys import EvaluationKeys
from cloakwork.fhe_core.switched_ciphertexts import SwitchedCiphertexts
from cloakwork.fhe_core.wire import KEY_ID_BYTES, keystore
from cloakwork.fhe_core.wire.files import PathLike
from cloakwork.fhe_core.words import Phases, Progress

__all__ = ["ClientKey", "PublicKey"]


class ClientKey:
    """The secret key of one parameter set. It stays with the owner of the data; `evaluation_keys()` is what the server gets.

    `encrypt` and `decrypt` use the encoding of the set's kind unless told otherwise: booleans (gate), integers in [0, 2^p) (exact),
    fractions of the torus (approximate). Of a set with r > 1 lanes (`parameters.lane_count`) values are [.., r], r of them to a ciphertext.
    """

    def __init__(self, secret_key: _engine.SecretKey, key_id: bytes) -> None:
        self._secret_key = secret_key
        self._key_id = key_id

    @classmethod
    def generate(cls, parameters: str | ParameterSet) -> ClientKey:
        """Generates a fresh key from the operating system's entropy.

        Args:
            parameters: the name of a set ('cloakwork params' lists them), or a set.

        Raises:
            ParameterError: no such set, one that is insecure, or one whose keys several parties make (`Party`).
        """
        return cls(_engine.SecretKey.generate(_resolve(parameters)), os.urandom(KEY_ID_BYTES))

    @classmethod
    def _from_entropy(cls, parameters: str | ParameterSet, entropy: bytes) -> ClientKey:
        """Tests only: key, noise and seeds all follow from 32 bytes."""
        key_id = hashlib.sha256(b"key id" + entropy).digest()[:KEY_ID_BYTES]
        return cls(_engine.SecretKey.generate(_resolve(parameters), entropy), key_id)

    @property
    def parameters(self) -> ParameterSet:
        """The set that the key was made for."""
        return self._secret_key.params

    @property
    def key_id(self) -> bytes:
        """A random public identifier that ciphertexts and evaluation keys of this key carry."""
        return self._key_id

    def __repr__(self) -> str:
        return f"<ClientKey {self.parameters.name}>"

    def __reduce__(self) -> Any:
        raise TypeError("a secret key is not pickled; use save(path, passphrase)")

    # --- keys ---

    def evaluation_keys(self, progress: Progress = None) -> EvaluationKeys:
        """Makes what the server needs, a public key of its own included. New seeds and new noise every time; make them once and keep them."""
        keys, public = self._secret_key.evaluation_keys(progress), self._secret_key.public_key()
        return EvaluationKeys(self.parameters, *keys, *public, self._key_id)

    def public_key(self) -> PublicKey:
        """Lets others encrypt for this key."""
        return PublicKey(self.parameters, *self._secret_key.public_key(), self._key_id)

    def authentication_code(self, message: bytes) -> bytes:
        """Authenticate a message (HMAC-SHA-256): only the owner of the key can. It says nothing about the key."""
        return keystore.authentication_code(self._secret_key.export(), message)

    def save(self, path: PathLike, passphrase: str) -> None:
        """Encrypts the key into a file of mode 0600 (scrypt and AES-GCM). Any passphrase is taken: commands and clients refuse weak ones."""
        keystore.save_secret(path, self.parameters, self._secret_key.export(), self._key_id, passphrase)

    @classmethod
    def load(cls, path: PathLike, passphrase: str) -> ClientKey:
        """Loads a key from a file of `save`. Raises: KeyMismatchError: a wrong passphrase. SerializationError: a damaged file, or no key's."""
        header, secret = keystore.load_secret(path, passphrase)
        return cls(_engine.SecretKey.restore(header.parameters, secret), header.key_id or bytes(KEY_ID_BYTES))

    # --- encryption ---

    @overload
    def encrypt(
        self, values: ArrayLike, *, seeded: Literal[False] = False, encoding: Encoding | None = None
    ) -> Ciphertexts: ...
    @overload
    def encrypt(
        self, values: ArrayLike, *, seeded: Literal[True], encoding: Encoding | None = None
    ) -> SeededCiphertexts: ...
    def encrypt(
        self, values: ArrayLike, *, seeded: bool = False, encoding: Encoding | None = None
    ) -> Ciphertexts | SeededCiphertexts:
        """Returns one LWE ciphertext per value, of the same shape; with r > 1 lanes values [.., r] give ciphertexts [..].

        `seeded` ones are about kN / r times smaller and are expanded by the server (`cloakwork.engine.from_bytes` does so).

        Args:
            values: bits or integers for `boolean`, integers in [0, 2^p) for `message` and `full_domain`, real numbers in [-1/4, 1/4] for `torus`.
            encoding: None: that of the set's kind.

        Raises:
            ParameterError: a value out of range; the message names its position, never the value.
            ShapeError: no values, real numbers for integers, or a last axis that is not that of the lanes.
        """
        chosen = default_encoding(self.parameters) if encoding is None else encoding
        return self._encrypt_words(encode(self.parameters, values, chosen), chosen, seeded)

    def encrypt_bits(self, values: ArrayLike, *, seeded: bool = False) -> Ciphertexts | SeededCiphertexts:
        """Returns booleans at -1/8 and +1/8 of the torus, for gates."""
        return self._encrypt_words(encode(self.parameters, values, Encoding.BOOLEAN), Encoding.BOOLEAN, seeded)

    def encrypt_torus(
        self, values: ArrayLike, *, seeded: bool = False, limit: float = DEFAULT_TORUS_LIMIT
    ) -> Ciphertexts | SeededCiphertexts:
        """Returns fractions of the torus in [-limit, limit]. Beyond 1/4 they enter the padding that activations need."""
        words = encode(self.parameters, values, Encoding.TORUS, limit)
        return self._encrypt_words(words, Encoding.TORUS, seeded)

    @overload
    def encrypt_packed(
        self, values: ArrayLike, *, seeded: Literal[True] = True, encoding: Encoding | None = None
    ) -> SeededPackedCiphertexts: ...
    @overload
    def encrypt_packed(
        self, values: ArrayLike, *, seeded: Literal[False], encoding: Encoding | None = None
    ) -> PackedCiphertexts: ...
    def encrypt_packed(
        self, values: ArrayLike, *, seeded: bool = True, encoding: Encoding | None = None
    ) -> PackedCiphertexts | SeededPackedCiphertexts:
        """Returns N values of a lane to a GLWE ciphertext: one word each when seeded, k / r + 1 when not. `Session.extract` makes LWE ciphertexts
        of them."""
        chosen = default_encoding(self.parameters) if encoding is None else encoding
        words = encode(self.parameters, values, chosen)
        shape = ciphertext_shape(self.parameters, words.shape)
        seed, bodies = self._secret_key.encrypt_glwe_seeded(packed_words(self.parameters, words))
        packed = SeededPackedCiphertexts(self.parameters, seed, bodies, shape, encoding=chosen, key_id=self._key_id)
        return packed if seeded else packed.expand()

    def encrypt_integers(self, values: ArrayLike, modulus: int) -> ModularIntegers:
        """Encrypts integers in [-q/2, q) modulo q, 2 to 2^32, one ciphertext each, for `large_precision`.

        Raises:
            ParameterError: a value out of range (the message names its position, never the value), or a modulus beyond what encryptions of
                the set tell apart.
        """
        words, norm = self._integer_words(values, modulus)
        ciphertexts = self._encrypt_words(words, Encoding.TORUS, False, norm)
        assert isinstance(ciphertexts, Ciphertexts)
        return ModularIntegers(ciphertexts, modulus)

    def encrypt_integers_seeded(self, values: ArrayLike, modulus: int) -> SeededCiphertexts:
        """Encrypts the same kN + 1 times smaller; the server computes with `ModularIntegers(seeded.expand(), modulus)`."""
        words, norm = self._integer_words(values, modulus)
        ciphertexts = self._encrypt_words(words, Encoding.TORUS, True, norm)
        assert isinstance(ciphertexts, SeededCiphertexts)
        return ciphertexts

    def _integer_words(self, values: ArrayLike, modulus: int) -> tuple[Phases, float]:
        modulus = checked_modulus(modulus)
        residues = residues_to_encrypt(values, modulus)
        return encode_integers(self.parameters, residues, modulus), encryption_norm(self.parameters, modulus)

    def _encrypt_words(
        self, words: Phases, encoding: Encoding, seeded: bool, weight_norm: float = 1.0
    ) -> Ciphertexts | SeededCiphertexts:
        if words.size == 0:
            raise ShapeError(f"values: expected at least one value, got an array of shape {words.shape}")
        metadata: dict[str, Any] = {"encoding": encoding, "key_id": self._key_id, "weight_norm": weight_norm}
        shape = ciphertext_shape(self.parameters, words.shape)
        flat = np.ascontiguousarray(words.reshape(-1, *lane_axis(self.parameters)))
        if seeded:
            seed, bodies = self._secret_key.encrypt_lwe_seeded(flat)
            return SeededCiphertexts(self.parameters, seed, bodies.reshape(words.shape), shape, **metadata)
        lwe = self._secret_key.encrypt_lwe(flat)
        return Ciphertexts(self.parameters, lwe.reshape((*shape, -1)), shape, **metadata)

    # --- decryption ---

    @overload
    def decrypt(
        self, ciphertexts: AnyCiphertexts, *, return_noise: Literal[False] = False, expected: ArrayLike | None = None
    ) -> NDArray[Any]: ...
    @overload
    def decrypt(
        self, ciphertexts: AnyCiphertexts, *, return_noise: Literal[True], expected: ArrayLike | None = None
    ) -> tuple[NDArray[Any], Reals]: ...
    def decrypt(
        self, ciphertexts: AnyCiphertexts, *, return_noise: bool = False, expected: ArrayLike | None = None
    ) -> NDArray[Any] | tuple[NDArray[Any], Reals]:
        """Returns values of the ciphertexts' shape (with r > 1 lanes `shape` + [r]): bool, int64 or float64 by their encoding.

        A message is given modulo 2^(p+1), so that a sum that ran into the padding shows. Noise, on request, is the distance of the
        phase from the decoded value (from `expected`, where given) as a fraction of the torus; fractions of the torus need `expected`.

        Raises:
            KeyMismatchError: ciphertexts of another key or set.
            ShapeError: an empty array, or no ciphertexts.
        """
        phases = self.phases(ciphertexts)
        values = decode(self.parameters, phases, ciphertexts.encoding)
        if not return_noise:
            return values
        if expected is None and ciphertexts.encoding is Encoding.TORUS:
            raise ParameterError("return_noise: a real number has no nearest legal value; pass expected=")
        reference = values if expected is None else np.broadcast_to(np.asarray(expected), values.shape)
        return values, phase_error(self.parameters, phases, reference, ciphertexts.encoding)

    def decrypt_integers(self, integers: ModularIntegers, *, signed: bool = False) -> NDArray[np.int64]:
        """Decrypts to int64 in [0, q), or nearest to zero in [-q/2, q/2): of 2^B, two's complement."""
        require_kind(
            integers, ModularIntegers, "decrypt_integers", "wrap received ciphertexts as ModularIntegers(received, q)"
        )
        phases = self.phases(integers.ciphertexts)
        values = decode_integers(self.parameters, phases, integers.modulus)
        return np.where(values >= (integers.modulus + 1) // 2, values - integers.modulus, values) if signed else values

    def phases(self, ciphertexts: AnyCiphertexts) -> Phases:
        """Returns message plus noise of every ciphertext, torus words in [0, Q) of the shape of `decrypt`."""
        advice = "read bytes with from_bytes, and decrypt ModularIntegers with decrypt_integers"
        require_kind(ciphertexts, _ANY_CIPHERTEXTS, "decryption", advice)
        check_same_key(
            self.parameters, self._key_id, ciphertexts.parameters, ciphertexts.key_id, "ciphertexts to decrypt"
        )
        if isinstance(ciphertexts, SeededCiphertexts | SeededPackedCiphertexts | SwitchedCiphertexts):
            ciphertexts = ciphertexts.expand()
        if ciphertexts.size == 0:
            raise ShapeError(f"ciphertexts: expected at least one, got an array of shape {ciphertexts.shape}")
        words = np.ascontiguousarray(on_host(ciphertexts.words))
        if isinstance(ciphertexts, PackedCiphertexts):
            return unpacked_words(self.parameters, self._secret_key.phase_glwe(words), ciphertexts.shape)
        phases = self._secret_key.phase_lwe(words.reshape(-1, words.shape[-1]))
        return phases.reshape((*ciphertexts.shape, *lane_axis(self.parameters)))


AnyCiphertexts = Ciphertexts | PackedCiphertexts | SeededCiphertexts | SeededPackedCiphertexts | SwitchedCiphertexts
_ANY_CIPHERTEXTS = get_args(AnyCiphertexts)


def _resolve(parameters: str | ParameterSet) -> ParameterSet:
    if isinstance(parameters, str):
        return parameter_set(parameters)
    require_kind(parameters, ParameterSet, "parameters", "pass the name of a set, which 'cloakwork params' lists")
    return parameters if is_paper_set(parameters) else parameter_set(parameters.name)
