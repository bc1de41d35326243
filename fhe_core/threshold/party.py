"""Keys that several parties have together: each makes its share, anybody encrypts, a server computes, and only all of them decrypt.

The ring key is the sum of the parties' ring keys, the small key their small keys side by side; nobody ever has either. docs/howto/threshold.md says
which steps parties go through, and what is and is not proven: parties are semi-honest, and decrypt only what they agreed to decrypt.

Source: [AJL+12] joint keys made of shares; [CCS19] small keys side by side; [BS23] flooding. Ours: a step of the rotation is one party's, which
encrypts its bits under the joint public key.
"""

from __future__ import annotations

import hashlib
import math
import struct
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloakwork.fhe_core import _engine, wire
from cloakwork.fhe_core._engine import ParameterSet
from cloakwork.fhe_core.arrays.device_words import on_host
from cloakwork.fhe_core.arrays.encoding import decode
from cloakwork.fhe_core.ciphertexts import Ciphertexts, check_same_key
from cloakwork.fhe_core.errors import KeyMismatchError, ParameterError, SerializationError, ShapeError, require_kind
from cloakwork.fhe_core.parameters import parameter_set
from cloakwork.fhe_core.switched_ciphertexts import SwitchedCiphertexts
from cloakwork.fhe_core.threshold import flooding
from cloakwork.fhe_core.threshold.flooding import Leakage
from cloakwork.fhe_core.threshold.shares import (
    EvaluationShare,
    JointPublicKey,
    PartialDecryption,
    PublicShare,
    ciphertexts_digest,
    combined_phases,
    common_reference,
    contribution_commitment,
    joint_evaluation_keys,
    joint_public_key,
    public_seed,
)
from cloakwork.fhe_core.wire import keystore
from cloakwork.fhe_core.wire.files import PathLike
from cloakwork.fhe_core.words import Progress

__all__ = [
    "EvaluationShare",
    "JointPublicKey",
    "PartialDecryption",
    "Party",
    "PublicShare",
    "combine",
    "combined_phases",
    "common_reference",
    "joint_evaluation_keys",
    "joint_public_key",
]

_STATE = struct.Struct("<Idd")  # number of the party, what its decryptions told


class Party:
    """One party's secret share of one joint key. It stays with that party; what its methods return goes to the others.

    The steps, each after all parties have sent the result of the one before to all others: `commitment`, `contribution`, `public_share`'s
    commitment, the public share, `evaluation_share`. After that it decrypts with the others, `partial_decrypt`, as often as `decryptions_left` says.
    """

    def __init__(self, key: _engine.PartyKey, key_id: bytes | None = None, leakage: Leakage | None = None) -> None:
        self._key = key
        self._key_id = key_id
        self._leakage = leakage or Leakage()
        self._lock = threading.Lock()  # of what was told: threads count one after the other

    @classmethod
    def generate(cls, parameters: str | ParameterSet, index: int) -> Party:
        """Generates a fresh share of party `index`, 0 to the set's `party_count` less 1. One share serves one joint key.

        Raises:
            ParameterError: a set of one owner, or no such party.
        """
        return cls(_engine.PartyKey.generate(_resolve(parameters), index))

    @classmethod
    def _from_entropy(cls, parameters: str | ParameterSet, index: int, entropy: bytes) -> Party:
        """Tests only: key and noise all follow from 32 bytes."""
        return cls(_engine.PartyKey.generate(_resolve(parameters), index, entropy))

    @property
    def parameters(self) -> ParameterSet:
        """The set that the joint key is made for."""
        return self._key.params

    @property
    def index(self) -> int:
        """The party's number, from 0."""
        return self._key.index

    @property
    def key_id(self) -> bytes | None:
        """Returns the id of the joint key, once `evaluation_share` has been made for it."""
        return self._key_id

    def __repr__(self) -> str:
        return f"<Party {self.index} of {self.parameters.party_count} {self.parameters.name}>"

    def __reduce__(self) -> Any:
        raise TypeError("a party's key is not pickled; use save(path, passphrase)")

    # --- keys ---

    @property
    def contribution(self) -> bytes:
        """32 bytes for the common reference string, always the same of one key; shown when all commitments are there."""
        return self._key.contribution()

    @property
    def commitment(self) -> bytes:
        """Returns the commitment to the contribution, which is shown first."""
        return contribution_commitment(self.parameters, self.index, self.contribution)

    def public_share(self, commitments: Sequence[bytes], contributions: Sequence[bytes]) -> PublicShare:
        """Makes this party's part of the joint public key. The same contributions give the same share.

        Raises:
            KeyMismatchError: contributions that their parties did not commit to, or this party's own is not among them.
        """
        reference = common_reference(self.parameters, commitments, contributions)
        if contributions[self.index] != self.contribution:
            raise KeyMismatchError(
                f"contributions: number {self.index} is not this party's; list them in the order of the parties"
            )
        return self._public_share(reference)

    def _public_share(self, reference: bytes) -> PublicShare:
        bodies = self._key.public_share(public_seed(reference))
        return PublicShare(self.parameters, self.index, reference, None, bodies)

    def evaluation_share(self, joint: JointPublicKey, progress: Progress = None) -> EvaluationShare:
        """Makes this party's part of the evaluation keys; from now on it is a party of this joint key. Save it after that.

        Raises:
            KeyMismatchError: the joint key is not made of this party's public share, or the party belongs to another joint key already.
        """
        public_share = self._public_share(joint.common_reference)
        if joint.parameters != self.parameters or joint.shares[self.index].to_bytes() != public_share.to_bytes():
            raise KeyMismatchError(
                f"joint public key: it is not made of the share of this party, number {self.index}; put it together from the shares that all "
                "parties sent"
            )
        if self._key_id not in (None, joint.key_id):
            raise KeyMismatchError(
                "joint public key: this party belongs to another one already; a new joint key takes new keys of all parties"
            )
        public = joint.public_key
        rows = self._key.bootstrap_share(public.seed, public.bodies, progress)
        keyswitch = self._key.keyswitch_share(joint.keyswitch_seed)
        self._key_id = joint.key_id
        return EvaluationShare(self.parameters, self.index, joint.transcript, joint.key_id, rows, keyswitch)

    def save(self, path: PathLike, passphrase: str) -> None:
        """Encrypts the key and its leakage so far into a file of mode 0600 (scrypt and AES-GCM). Save it after decryptions."""
        state = _STATE.pack(self.index, self._leakage.total, self._leakage.largest)
        secret = self._key.export() + state
        keystore.save_secret(path, self.parameters, secret, self._key_id, passphrase, kind=wire.Kind.PARTY_KEY)

    @classmethod
    def load(cls, path: PathLike, passphrase: str) -> Party:
        """Loads a party from a file of `save`. Raises: KeyMismatchError: a wrong passphrase. SerializationError: a damaged file, or no party's."""
        header, secret = keystore.load_secret(path, passphrase, kind=wire.Kind.PARTY_KEY)
        index, total, largest = _STATE.unpack(secret[-_STATE.size :])
        if not (0 <= largest <= total < math.inf):
            raise SerializationError(
                "party key: expected the leakage of decryptions as two numbers; the file is not a valid party key"
            )
        key = _engine.PartyKey.restore(header.parameters, index, secret[: -_STATE.size])
        return cls(key, header.key_id, Leakage(total, largest))

    # --- decryption ---

    @property
    def bits_lost(self) -> float:
        """Returns the bits that an attack on this party's keys gains by its partial decryptions so far, at most (`flooding`); 4 is where it
        refuses."""
        return self._leakage.bits_lost(self.parameters.security_bits or _TOY_BITS)

    def decryptions_left(self, ciphertexts: Ciphertexts | SwitchedCiphertexts, margin: float | None = None) -> int:
        """Counts the values like these that it still decrypts. Args: margin: as of `partial_decrypt`."""
        _, ratio = self._flooding(ciphertexts, margin)
        return self._leakage.decryptions_left(self.parameters.security_bits or _TOY_BITS, ratio)

    def partial_decrypt(
        self, ciphertexts: Ciphertexts | SwitchedCiphertexts, *, margin: float | None = None
    ) -> PartialDecryption:
        """Makes this party's part of the decryption of ciphertexts that it agreed to decrypt.

        Whoever may have it decrypt what they like learns its key: decrypt results of agreed programs on agreed inputs alone. Evaluation is
        exact, so that a party can compute them again and compare.

        Args:
            margin: distance in torus units between a value's phase and the next wrong one, of which flooding takes what a failure of 2^-64 leaves;
                None: that of the encoding. Fractions of the torus have none and need it.

        Noise: flooding of `flooding.flooding_sigma`, this party's alone.

        Raises:
            ParameterError: noise leaves no room for flooding, or so much was decrypted that the key is used up.
            KeyMismatchError: ciphertexts of another key.
        """
        params = self.parameters
        require_kind(
            ciphertexts, (Ciphertexts, SwitchedCiphertexts), "partial decryption", "read bytes with load_ciphertexts"
        )
        check_same_key(params, self._own_key_id(), ciphertexts.parameters, ciphertexts.key_id, "ciphertexts to decrypt")
        if ciphertexts.size == 0:
            raise ShapeError(f"ciphertexts: expected at least one, got an array of shape {ciphertexts.shape}")
        sigma, ratio = self._flooding(ciphertexts, margin)
        self._count(ciphertexts.size, ratio)
        full = ciphertexts.expand() if isinstance(ciphertexts, SwitchedCiphertexts) else ciphertexts
        words = np.ascontiguousarray(on_host(full.words)).reshape(-1, params.large_words)
        masks = np.ascontiguousarray(words[:, : params.large_dimension])
        deviation = sigma * params.modulus
        phases = self._key.partial_phases(masks, _flooding_tags(masks, deviation), deviation)
        digest = ciphertexts_digest(ciphertexts)
        return PartialDecryption(params, self.index, digest, self._key_id, phases.reshape(ciphertexts.shape))

    def _count(self, size: int, ratio: float) -> None:
        """Before anything is told."""
        with self._lock:
            left = self._leakage.decryptions_left(self.parameters.security_bits or _TOY_BITS, ratio)
            if size > left:
                raise ParameterError(
                    f"partial decryption: {size} values are asked for and {left} are left of what this key's flooding hides; decrypt fewer, or make "
                    "a new joint key"
                )
            self._leakage = self._leakage.after(size, ratio)

    def _own_key_id(self) -> bytes:
        if self._key_id is None:
            raise KeyMismatchError(
                "partial decryption: this party has made no evaluation share, so that there is no joint key that it decrypts for"
            )
        return self._key_id

    def _flooding(self, ciphertexts: Ciphertexts | SwitchedCiphertexts, margin: float | None) -> tuple[float, float]:
        """Returns standard deviation in torus units, and noise ratio."""
        params = self.parameters
        chosen = flooding.decryption_margin(params, ciphertexts.encoding) if margin is None else margin
        if chosen is None or not 0 < chosen <= 0.25:
            raise ParameterError(
                f"margin: expected a fraction of the torus in (0, 1/4], got {chosen}; values without an encoding of messages need it"
            )
        sigma = flooding.flooding_sigma(params, chosen, ciphertexts.weight_norm)
        return sigma, flooding.noise_ratio(params, sigma, ciphertexts.weight_norm)


_TOY_BITS = 132  # what toy sets count with, which have none to lose


def combine(ciphertexts: Ciphertexts | SwitchedCiphertexts, partials: Sequence[PartialDecryption]) -> NDArray[Any]:
    """Combines the values of ciphertexts that every party has partially decrypted, as `ClientKey.decrypt` gives them. Whoever has all parts learns
    them.

    Args:
        partials: one of each party, in any order.

    Raises:
        ParameterError: not one part of every party.
        KeyMismatchError: a part of other ciphertexts, or of another joint key.
    """
    return decode(ciphertexts.parameters, combined_phases(ciphertexts, partials), ciphertexts.encoding)


def _flooding_tags(masks: NDArray[np.unsignedinteger], deviation: float) -> NDArray[np.uint8]:
    """Returns 32 bytes of each mask and the deviation: what its flooding follows from, beside the party's noise key."""
    start = b"cloakwork threshold 1: flooding\0" + struct.pack("<d", deviation)
    tags = [hashlib.sha256(start + mask.astype("<u8").tobytes()).digest() for mask in masks]
    return np.frombuffer(b"".join(tags), np.uint8).reshape(-1, 32)


def _resolve(parameters: str | ParameterSet) -> ParameterSet:
    return parameter_set(parameters if isinstance(parameters, str) else parameters.name)
