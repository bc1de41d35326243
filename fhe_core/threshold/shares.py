"""Messages between the parties of a joint key: shares of the keys and partial decryptions, as objects of the wire format.

All of it is public: parties and server may see every share. docs/howto/threshold.md says in which order they are made,
docs/reference/wire_format.md their bytes.
"""

from __future__ import annotations

import hashlib
import struct
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, Protocol, Self, TypeVar

import numpy as np

from cloakwork.fhe_core import wire
from cloakwork.fhe_core._engine import ParameterSet
from cloakwork.fhe_core.arrays.device_words import on_host
from cloakwork.fhe_core.ciphertexts import Ciphertexts
from cloakwork.fhe_core.errors import KeyMismatchError, ParameterError, SerializationError
from cloakwork.fhe_core.parameters import parameter_digest
from cloakwork.fhe_core.public_key import PublicKey
from cloakwork.fhe_core.session.evaluation_keys import EvaluationKeys
from cloakwork.fhe_core.switched_ciphertexts import SwitchedCiphertexts
from cloakwork.fhe_core.wire.objects import WireObject
from cloakwork.fhe_core.words import Phases, Small, Words

if TYPE_CHECKING:
    from cloakwork.fhe_core.wire import BytesSource

__all__ = [
    "EvaluationShare",
    "JointPublicKey",
    "PartialDecryption",
    "PublicShare",
    "ciphertexts_digest",
    "common_reference",
    "contribution_commitment",
    "joint_evaluation_keys",
    "joint_public_key",
]

_PARTY = struct.Struct("<I32s")  # a section of every share


@dataclass(frozen=True, eq=False)
class _Share(WireObject):
    """index: number of the party; belongs_to: 32 bytes that say what the share is a share of."""

    kind: ClassVar[wire.Kind]

    parameters: ParameterSet
    index: int
    belongs_to: bytes
    key_id: bytes | None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of party {self.index} {self.parameters.name}>"

    @property
    def shape(self) -> tuple[int, ...]:
        return ()

    @abstractmethod
    def _arrays(self) -> list[Words]: ...

    @classmethod
    @abstractmethod
    def _of(cls, header: wire.Header, index: int, belongs_to: bytes, arrays: list[Words]) -> Self: ...

    def _header(self) -> wire.Header:
        return wire.Header(
            kind=self.kind, parameters=self.parameters, seeded=True, key_id=self.key_id, shape=self.shape
        )

    def _sections(self) -> list[wire.Section]:
        return [_PARTY.pack(self.index, self.belongs_to), *self._arrays()]

    @classmethod
    def _from_source(cls, source: BytesSource, parameters: ParameterSet | None, max_bytes: int) -> Self:
        header, (party, *arrays) = wire.read(source, cls.kind, seeded=True, parameters=parameters, max_bytes=max_bytes)
        assert isinstance(party, bytes)
        index, belongs_to = _PARTY.unpack(party)
        if index >= header.parameters.party_count:
            raise SerializationError(
                f"{cls.kind.label}: expected a party below {header.parameters.party_count}, got {index}; the object is damaged or not valid"
            )
        return cls._of(header, index, belongs_to, [array for array in arrays if isinstance(array, np.ndarray)])


@dataclass(frozen=True, eq=False)
class PublicShare(_Share):
    """b_i = A z_i + e_i under the masks that all parties share. belongs_to: the common reference string."""

    kind = wire.Kind.PUBLIC_SHARE
    bodies: Words  # [k, N]

    @cached_property
    def commitment(self) -> bytes:
        """32 bytes that all parties exchange before any of them shows its share."""
        return _hash(b"public share", self.to_bytes())

    def _arrays(self) -> list[Words]:
        return [self.bodies]

    @classmethod
    def _of(cls, header: wire.Header, index: int, belongs_to: bytes, arrays: list[Words]) -> Self:
        if header.key_id is not None:
            raise SerializationError(
                "public share: expected no key id, as there is no joint key yet; the object is not valid"
            )
        return cls(header.parameters, index, belongs_to, None, *arrays)


@dataclass(frozen=True, eq=False)
class EvaluationShare(_Share):
    """A party's steps of the bootstrap key and its part of the keyswitch key. belongs_to: `JointPublicKey.transcript`."""

    kind = wire.Kind.EVALUATION_SHARE
    bootstrap_rows: Words  # [step_count / P, keys_per_step, row_count, k + 1, N]
    keyswitch_bodies: Small  # [large_dimension, level_count]

    def _arrays(self) -> list[Words]:
        return [self.bootstrap_rows, self.keyswitch_bodies]

    @classmethod
    def _of(cls, header: wire.Header, index: int, belongs_to: bytes, arrays: list[Words]) -> Self:
        rows, keyswitch = arrays
        return cls(header.parameters, index, belongs_to, header.key_id, rows, keyswitch.astype(np.uint32, copy=False))


@dataclass(frozen=True, eq=False)
class PartialDecryption(_Share):
    """A party's flooded products with the masks of some ciphertexts. belongs_to: `ciphertexts_digest`."""

    kind = wire.Kind.PARTIAL_DECRYPTION
    words: Phases  # of the ciphertexts' shape

    @property
    def shape(self) -> tuple[int, ...]:
        """Returns the shape of the ciphertexts that it is a share of."""
        return self.words.shape

    def _arrays(self) -> list[Words]:
        return [self.words]

    @classmethod
    def _of(cls, header: wire.Header, index: int, belongs_to: bytes, arrays: list[Words]) -> Self:
        return cls(header.parameters, index, belongs_to, header.key_id, arrays[0].astype(np.uint64, copy=False))


@dataclass(frozen=True, eq=False)
class JointPublicKey:
    """The public shares of all parties, as each of them put them together. `public_key` is what anybody encrypts with."""

    parameters: ParameterSet
    common_reference: bytes
    shares: tuple[PublicShare, ...]

    @cached_property
    def transcript(self) -> bytes:
        """32 bytes that the set, the common reference string and all shares follow into: parties with the same have the same key."""
        digests = (hashlib.sha256(share.to_bytes()).digest() for share in self.shares)
        return _hash(b"joint public key", parameter_digest(self.parameters), self.common_reference, *digests)

    @property
    def key_id(self) -> bytes:
        """The first bytes of the transcript: the same for all parties of one key."""
        return self.transcript[: wire.KEY_ID_BYTES]

    @property
    def keyswitch_seed(self) -> bytes:
        """Returns the seed of the masks of the keyswitch key."""
        return _hash(b"keyswitch masks", self.common_reference)

    @cached_property
    def public_key(self) -> PublicKey:
        """Returns the key that others encrypt with."""
        seed = public_seed(self.common_reference)
        return PublicKey(self.parameters, seed, _sum(self.shares, self.parameters.modulus), self.key_id)

    def __repr__(self) -> str:
        return f"<JointPublicKey {self.parameters.name}>"


def _sum(shares: Sequence[PublicShare], modulus: int) -> Words:
    total = np.zeros_like(shares[0].bodies)
    for share in shares:
        total = (total + share.bodies) % np.uint64(modulus)  # both below 2^54
    return total


# --- the steps of a key ceremony ---------------------------------------------------------------------------------------------------


def contribution_commitment(parameters: ParameterSet, index: int, contribution: bytes) -> bytes:
    """Commits to a contribution to the common reference string, before a party shows it."""
    return _hash(b"contribution", parameter_digest(parameters), index.to_bytes(4, "little"), contribution)


def common_reference(parameters: ParameterSet, commitments: Sequence[bytes], contributions: Sequence[bytes]) -> bytes:
    """Returns 32 bytes that no party chose: the hash of all contributions, in the order of the parties, each as it was committed to.

    Raises:
        ParameterError: not one of each for every party.
        KeyMismatchError: a contribution that is not the one that its party committed to.
    """
    _require_one_each(parameters, len(commitments), "commitments")
    _require_one_each(parameters, len(contributions), "contributions")
    for index, (commitment, contribution) in enumerate(zip(commitments, contributions, strict=True)):
        if len(contribution) != wire.SEED_BYTES:
            raise ParameterError(
                f"contribution: expected {wire.SEED_BYTES} bytes of party {index}, got {len(contribution)}"
            )
        if contribution_commitment(parameters, index, contribution) != commitment:
            raise KeyMismatchError(
                f"contribution: that of party {index} is not the one that it committed to; begin again with new keys, or without that party"
            )
    return _hash(b"common reference", parameter_digest(parameters), *contributions)


def public_seed(reference: bytes) -> bytes:
    """Returns the seed of the masks of the public key."""
    return _hash(b"public key masks", reference)


def joint_public_key(shares: Sequence[PublicShare], commitments: Sequence[bytes]) -> JointPublicKey:
    """Returns the joint key of all parties' shares, each as it was committed to. Every party does this for itself.

    Raises:
        ParameterError: not one share for every party.
        KeyMismatchError: shares of different sets or common reference strings, or one that its party did not commit to.
    """
    parameters = _common_parameters(shares)
    _require_one_each(parameters, len(commitments), "commitments")
    ordered = _in_order(parameters, shares, "public shares")
    for share, commitment in zip(ordered, commitments, strict=True):
        if share.belongs_to != ordered[0].belongs_to:
            raise KeyMismatchError(
                f"public share: that of party {share.index} has another common reference string than party 0's; make both from the same "
                "contributions"
            )
        if share.commitment != commitment:
            raise KeyMismatchError(
                f"public share: that of party {share.index} is not the one that it committed to; begin again with new keys, or without that party"
            )
    return JointPublicKey(parameters, ordered[0].belongs_to, tuple(ordered))


def joint_evaluation_keys(joint: JointPublicKey, shares: Sequence[EvaluationShare]) -> EvaluationKeys:
    """Joins what the server gets: all parties' steps one after the other, the sum of their parts of the keyswitch key, and the joint public key.

    Raises:
        ParameterError: not one share for every party.
        KeyMismatchError: a share of another joint key.
    """
    params = joint.parameters
    ordered = _in_order(params, shares, "evaluation shares")
    for share in ordered:
        _require_same(params, joint.key_id, share)
        if share.belongs_to != joint.transcript:
            raise KeyMismatchError(
                f"evaluation share: that of party {share.index} was made for another joint public key; make it for this one"
            )
    keyswitch = np.zeros_like(ordered[0].keyswitch_bodies)
    for share in ordered:  # modulo 2^32, of which 2^w is a divisor
        keyswitch += share.keyswitch_bodies
    keyswitch &= np.uint32((1 << params.keyswitch_modulus_log2) - 1)
    bootstrap = np.concatenate([share.bootstrap_rows for share in ordered])
    public = joint.public_key
    return EvaluationKeys(params, joint.keyswitch_seed, bootstrap, keyswitch, public.seed, public.bodies, joint.key_id)


# --- decryption --------------------------------------------------------------------------------------------------------------------


def ciphertexts_digest(ciphertexts: Ciphertexts | SwitchedCiphertexts) -> bytes:
    """Returns 32 bytes of the words that partial decryptions are of."""
    words = np.ascontiguousarray(on_host(_expanded(ciphertexts).words)).astype("<u8")
    shape = np.array(ciphertexts.shape, "<u8")
    return _hash(b"ciphertexts", parameter_digest(ciphertexts.parameters), shape.tobytes(), words.tobytes())


def combined_phases(ciphertexts: Ciphertexts | SwitchedCiphertexts, partials: Sequence[PartialDecryption]) -> Phases:
    """Returns message plus noise and all parties' flooding, torus words in [0, Q) of the ciphertexts' shape.

    Raises:
        ParameterError: not one partial decryption of every party.
        KeyMismatchError: one of another key, or of other ciphertexts.
    """
    params = ciphertexts.parameters
    ordered = _in_order(params, partials, "partial decryptions")
    digest, modulus = ciphertexts_digest(ciphertexts), np.uint64(params.modulus)
    phases = np.ascontiguousarray(on_host(_expanded(ciphertexts).words))[..., -1].astype(np.uint64)
    for partial in ordered:
        _require_same(params, ciphertexts.key_id, partial)
        if partial.belongs_to != digest or partial.shape != ciphertexts.shape:
            raise KeyMismatchError(
                f"partial decryption: that of party {partial.index} is of other ciphertexts; every party decrypts the same ones"
            )
        phases = (phases + (modulus - partial.words)) % modulus
    return phases


def _expanded(ciphertexts: Ciphertexts | SwitchedCiphertexts) -> Ciphertexts:
    return ciphertexts.expand() if isinstance(ciphertexts, SwitchedCiphertexts) else ciphertexts


# --- checks ------------------------------------------------------------------------------------------------------------------------


class _OfParty(Protocol):
    @property
    def parameters(self) -> ParameterSet: ...
    @property
    def index(self) -> int: ...
    @property
    def key_id(self) -> bytes | None: ...


Share = TypeVar("Share", bound=_OfParty)


def _common_parameters(shares: Sequence[_OfParty]) -> ParameterSet:
    if not shares:
        raise ParameterError("public shares: expected one of every party, got none")
    return shares[0].parameters


def _require_one_each(parameters: ParameterSet, count: int, what: str) -> None:
    if count != parameters.party_count:
        raise ParameterError(
            f"{what}: expected one of each of the {parameters.party_count} parties of '{parameters.name}', got {count}"
        )


def _in_order(parameters: ParameterSet, shares: Sequence[Share], what: str) -> list[Share]:
    """Sorts by party, one of each."""
    _require_one_each(parameters, len(shares), what)
    for share in shares:
        if share.parameters != parameters:
            raise KeyMismatchError(
                f"{what}: expected parameter set '{parameters.name}', got '{share.parameters.name}' of party {share.index}"
            )
    by_party = {share.index: share for share in shares}
    if len(by_party) != len(shares):
        raise ParameterError(
            f"{what}: expected one of every party, got those of {', '.join(str(share.index) for share in shares)}"
        )
    return [by_party[index] for index in sorted(by_party)]


def _require_same(parameters: ParameterSet, key_id: bytes | None, share: _OfParty) -> None:
    if key_id is None or share.key_id != key_id:
        raise KeyMismatchError(
            f"share of party {share.index}: it belongs to another joint key than these objects; use those of one key together"
        )


def _hash(what: bytes, *parts: bytes) -> bytes:
    """Returns SHA-256 of parts whose lengths, all but the last one's, follow from what they are."""
    return hashlib.sha256(b"cloakwork threshold 1: " + what + b"\0" + b"".join(parts)).digest()
