"""A model of a server as its client sees it: which keys it needs, how samples are encrypted for it and answers decrypted."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from cloakwork.app.client.errors import ServiceError
from cloakwork.app.client.key_kinds import KeyKind, LevelledKeys, LookupKeys, SeveralLevelledKeys
from cloakwork.fhe_core.client import ClientKey
from cloakwork.fhe_core.errors import ParameterError, ShapeError
from cloakwork.fhe_core.levelled import wire
from cloakwork.fhe_core.levelled.ciphertexts import LevelledCiphertexts
from cloakwork.fhe_core.levelled.client import LevelledClientKey
from cloakwork.fhe_core.levelled.several import joined_bytes, split_bytes
from cloakwork.fhe_core.parameters import ParameterSet, ciphertext_bytes, is_insecure, parameter_set, word_dtype
from cloakwork.fhe_core.switched_ciphertexts import load_results
from cloakwork.models.batches.client import BatchClient, key_parts
from cloakwork.models.client_steps import Stage, named_inputs, named_outputs
from cloakwork.models.neighbours.client import NeighbourClient
from cloakwork.models.program.client_specification import ClientSpecification

_FRAME_BYTES: Final = 1 << 14  # of an answer beside its words: header, noise, checksum
_LEVELLED_WORD_BYTES: Final = 4
_REQUEST_BYTES: Final = 64 << 20  # of the words of a request and its answer in memory
_QUERY_WORDS: Final = 1 << 26  # of a query of a model for batches, and twice its numbers while it is made


@dataclass(frozen=True)
class RemoteModel(ABC):
    """A model of a server, in its newest or the requested version."""

    name: str
    version: str
    facts: dict[str, Any]  # parameters.fhe of its metadata
    specification_digest: str  # SHA-256 of the specification's text, in hexadecimal

    @property
    @abstractmethod
    def keys(self) -> KeyKind[Any]:
        """Those that it needs."""

    @property
    @abstractmethod
    def has_named_outputs(self) -> bool: ...

    @property
    @abstractmethod
    def program(self) -> bytes:
        """The digest that audits name."""

    @property
    def lookup_set(self) -> ParameterSet | None:
        """Its parameter set, where it is one of look-ups."""
        return None

    @property
    @abstractmethod
    def is_insecure(self) -> bool:
        """Whether its parameter set is for tests."""

    def require_answer(self, most_bytes: int) -> None:
        """Raises ParameterError for a model whose answer to one sample is larger than that."""
        if self.answer_bytes(1) > most_bytes:
            raise ParameterError(
                f"model '{self.name}': its answer to one sample would have {self.answer_bytes(1):,} bytes, more than {most_bytes:,}; pass "
                "largest_answer= to the client if that is right"
            )

    @abstractmethod
    def answer_bytes(self, samples: int) -> int:
        """Returns the most bytes that an answer to `samples` samples of one request has."""

    def samples_together(self, most: int) -> int:
        """Returns the number of samples in one request. Args: most: all samples."""
        largest = self.facts.get("largest_batch")
        return largest if type(largest) is int and largest > 0 else most

    @abstractmethod
    def rows(self, x: Any) -> NDArray[Any]:
        """Returns samples as they are encrypted, [samples, numbers]. Args: x: as `Client.score` takes them. Raises: ShapeError."""

    @abstractmethod
    def encrypt(self, key: Any, rows: NDArray[Any]) -> bytes: ...

    @abstractmethod
    def decrypt(self, key: Any, answer: bytes, rows: NDArray[Any], output: Stage = "labels") -> Any:
        """Returns predictions. Args: rows: that were asked; output: as of `require_output`."""

    @abstractmethod
    def outputs(self) -> Sequence[Stage]:
        """Lists what can be asked of an answer."""

    def require_output(self, output: Stage) -> None:
        """Refuses an output. ParameterError: the model tells no "scores" or "probabilities", or there is no such output."""
        outputs = self.outputs()
        if output not in outputs:
            raise ParameterError(
                f"model '{self.name}': expected output {' or '.join(map(repr, outputs))}, which is what it tells, got {output!r}"
            )


@dataclass(frozen=True)
class RemoteProgram(RemoteModel):
    specification: ClientSpecification

    @property
    def keys(self) -> LookupKeys:
        return LookupKeys(self.specification.parameters)

    @property
    def has_named_outputs(self) -> bool:
        return named_outputs(self.specification.output_steps) is not None

    @property
    def program(self) -> bytes:
        return self.specification.program

    @property
    def lookup_set(self) -> ParameterSet:
        return parameter_set(self.specification.parameters)

    @property
    def is_insecure(self) -> bool:
        return is_insecure(self.lookup_set)

    def answer_bytes(self, samples: int) -> int:
        ciphertexts = -(-samples // self.lookup_set.lane_count) * self.specification.output_scale.size
        return _FRAME_BYTES + ciphertexts * ciphertext_bytes(self.lookup_set)

    def samples_together(self, most: int) -> int:
        """Returns samples for one request: whatever the server takes, as many as fit the memory of a small machine."""
        parameters = self.lookup_set
        packed = (
            -(-math.prod(self.specification.input_shape) // parameters.polynomial_size) * parameters.polynomial_size
        )
        words = packed + self.specification.output_scale.size * parameters.large_words
        fitting = max(1, _REQUEST_BYTES // (words * word_dtype(parameters).itemsize))
        return min(super().samples_together(most), fitting) * parameters.lane_count

    def rows(self, x: Any) -> NDArray[Any]:
        self.specification.check_size(x)
        several = named_inputs(self.specification.input_steps) is not None
        return self.specification.phases(x if several else _one_input(self.name, x))

    def encrypt(self, key: ClientKey, rows: NDArray[Any]) -> bytes:
        return self.specification.encrypt_phases(key, rows).to_bytes()

    def decrypt(self, key: ClientKey, answer: bytes, rows: NDArray[Any], output: Stage = "labels") -> Any:
        result = load_results(answer, parameters=key.parameters)
        return self.specification.decrypt(key, result, output=output, samples=len(rows))

    def outputs(self) -> Sequence[Stage]:
        return self.specification.stages


@dataclass(frozen=True)
class RemoteIndex(RemoteModel):
    """Nearest neighbours: predictions are labels, or values of a regressor."""

    specification: NeighbourClient

    @property
    def keys(self) -> LevelledKeys:
        return LevelledKeys(self.specification.key_shape)

    @property
    def has_named_outputs(self) -> bool:
        return False

    @property
    def program(self) -> bytes:
        return _digest_of_file(self.name, self.facts)

    @property
    def is_insecure(self) -> bool:
        return self.specification.parameters.set.security_bits is None

    def answer_bytes(self, samples: int) -> int:
        client, size = self.specification, self.specification.parameters.polynomial_size
        return (
            _FRAME_BYTES + samples * client.answer_ciphertexts * 2 * size * client.answer_level * _LEVELLED_WORD_BYTES
        )

    def samples_together(self, most: int) -> int:
        return 1  # what an index takes

    def rows(self, x: Any) -> NDArray[Any]:
        samples = _one_input(self.name, x)
        features, shape = len(self.specification.centre), np.shape(samples)
        if len(shape) != 2 or shape[1] != features:
            raise ShapeError(f"input: expected shape [samples, {features}], got {list(shape)}")
        return self.specification.integers(samples)

    def encrypt(self, key: LevelledClientKey, rows: NDArray[Any]) -> bytes:
        (integers,) = rows
        return self.specification.encrypt_integers(key, integers).to_bytes()

    def outputs(self) -> Sequence[Stage]:
        return ("labels",)

    def decrypt(self, key: LevelledClientKey, answer: bytes, rows: NDArray[Any], output: Stage = "labels") -> Any:
        client = self.specification
        ciphertexts = LevelledCiphertexts.from_bytes(answer, key.parameters)
        if len(ciphertexts) != client.answer_ciphertexts:
            raise ServiceError(
                f"answer: expected the scores of {client.rows} rows in {client.answer_ciphertexts} ciphertexts, got {len(ciphertexts)}"
            )
        return client.decide(client.scores(key, ciphertexts, rows[0])[None], rows)


@dataclass(frozen=True)
class RemoteBatch(RemoteModel):
    """A model for batches: of a query's ciphertexts each holds up to N samples, or all features of one."""

    specification: BatchClient

    @property
    def keys(self) -> KeyKind[Any]:
        shapes = self.specification.key_shapes
        return LevelledKeys(shapes.shapes[0]) if len(shapes.shapes) == 1 else SeveralLevelledKeys(shapes)

    @property
    def has_named_outputs(self) -> bool:
        return False

    @property
    def program(self) -> bytes:
        return _digest_of_file(self.name, self.facts)

    @property
    def is_insecure(self) -> bool:
        return self.specification.parameters[0].set.security_bits is None

    def answer_bytes(self, samples: int) -> int:
        client, size = self.specification, self.specification.parameters[0].polynomial_size
        each = _FRAME_BYTES + client.answer_ciphertexts * 2 * size * client.answer_level * _LEVELLED_WORD_BYTES
        return len(client.parameters) * each

    def samples_together(self, most: int) -> int:
        return self.specification.samples_at_once

    def rows(self, x: Any) -> NDArray[Any]:
        samples, client = _one_input(self.name, x), self.specification
        numbers = client.query_ciphertexts * client.parameters[0].polynomial_size
        if numbers * (client.level + 2) > _QUERY_WORDS:
            raise ParameterError(
                f"model '{self.name}': its queries of {client.features} features take more memory than a model's should"
            )
        client.check_size(samples)
        return client.integers(samples)

    def encrypt(self, key: Any, rows: NDArray[Any]) -> bytes:
        queries = self.specification.encrypt_integers(key_parts(key), rows)
        return joined_bytes([each.to_bytes() for each in queries])

    def outputs(self) -> Sequence[Stage]:
        return self.specification.stages

    def decrypt(self, key: Any, answer: bytes, rows: NDArray[Any], output: Stage = "labels") -> Any:
        client, keys = self.specification, key_parts(key)
        parts = split_bytes(answer, wire.Kind.CIPHERTEXTS)
        if len(parts) != len(keys):
            raise ServiceError(f"answer: expected ciphertexts of {len(keys)} plaintext moduli, got {len(parts)}")
        ciphertexts = [
            LevelledCiphertexts.from_bytes(each, part_key.parameters)
            for each, part_key in zip(parts, keys, strict=True)
        ]
        return client.decide(client.scores(client.outputs(keys, ciphertexts, len(rows)), rows), output)


@dataclass(frozen=True)
class RemoteBatchProgram(RemoteProgram):
    """A model for batches whose packing is a program of look-ups: of its scores the client makes decisions."""

    decisions: BatchClient

    def decrypt(self, key: ClientKey, answer: bytes, rows: NDArray[Any], output: Stage = "labels") -> Any:
        return self.decisions.decide(np.asarray(super().decrypt(key, answer, rows)), output)

    def outputs(self) -> Sequence[Stage]:
        return self.decisions.stages


def _digest_of_file(name: str, facts: Mapping[str, Any]) -> bytes:
    """Returns the digest of the model's file, as the server says. Raises: ServiceError: it says none."""
    try:
        return bytes.fromhex(facts["program_digest"])
    except (KeyError, TypeError, ValueError) as error:
        raise ServiceError(f"model '{name}': the server does not say the digest of its file") from error


def _one_input(name: str, x: Any) -> Any:
    samples = None if isinstance(x, Mapping) else _array(x)
    if samples is None:
        raise ShapeError(
            f"input: model '{name}' has one input; expected an array [samples, ..], got {type(x).__name__}"
        )
    return samples


def require_samples(x: Any) -> None:
    """Raises ShapeError for none at all, which no model takes."""
    samples = None if isinstance(x, Mapping) else _array(x)
    if samples is not None and (np.ndim(samples) == 0 or len(samples) == 0):
        raise ShapeError(f"input: expected samples first, at least one, got shape {list(np.shape(samples))}")


def _array(x: Any) -> Any:
    """Returns a table as it is, with the names of its columns; None for arrays of different shapes, which only a model of several inputs takes.

    Lists with a text in them keep the types of their cells: they are no array of texts, which models of numbers refuse.
    """
    if hasattr(x, "columns") or isinstance(x, np.ndarray):
        return x
    try:
        array = np.asarray(x)
        return np.asarray(x, dtype=object) if array.dtype.kind in "SU" else array
    except ValueError:
        if isinstance(x, tuple):
            return None
        raise ShapeError("input: expected an array [samples, ..], got rows of different lengths") from None
