"""One version of a model: what its facts in the repository say, and which requests it takes."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from cloakwork.api.service.models.key_parameters import KeyParameters


@dataclass(frozen=True)
class RequestHeader:
    """The header of a model's request."""

    key_id: bytes  # of the secret key
    samples: int


@dataclass(frozen=True, eq=False)
class Model(ABC):
    """A model of any kind: a compiled program (`program_model.py`), an index of nearest neighbours (`index_model.py`), a model for batches
    (`batch_model.py`)."""

    name: str
    version: str
    artefact: Path
    facts: dict[str, Any]

    kind: ClassVar[str]  # as facts and the engine have it

    @property
    def digest(self) -> str:
        return str(self.facts["program_digest"])

    @property
    def artefact_sha256(self) -> str:
        return str(self.facts["artefact_sha256"])

    @property
    def parameter_set(self) -> str:
        """Its name."""
        return str(self.facts["parameter_set"])

    @property
    def parameter_digest(self) -> str:
        return str(self.facts["parameter_digest"])

    @property
    def key_parameters(self) -> KeyParameters:
        """Describes the evaluation keys that it needs."""
        return KeyParameters(self.parameter_set, self.parameter_digest, int(self.facts["evaluation_key_bytes"]))

    @property
    def structured_secret(self) -> bool:
        return bool(self.facts["structured_secret"])

    @property
    def input_numbers(self) -> int:
        return int(self.facts["input_numbers"])

    @property
    def bootstraps(self) -> int:
        return int(self.facts["bootstraps"])

    @property
    def client(self) -> str:
        return str(self.facts["client"])

    @cached_property
    def client_digest(self) -> str:
        return hashlib.sha256(self.client.encode()).hexdigest()

    @property
    @abstractmethod
    def work(self) -> int:
        """Counts the work of one sample, in what takes most of the time: runs of one parameter set take as long as they have of it, about."""

    @property
    @abstractmethod
    def foreseen_seconds(self) -> float:
        """Forecasts the seconds of one sample, before any has run."""

    @property
    @abstractmethod
    def largest_run(self) -> int:
        """Samples of several requests that are computed as one, at most: what is held at once fits memory."""

    @abstractmethod
    def input_bytes(self, samples: int) -> int:
        """Counts the bytes of one object of ciphertexts: the only size that this many samples have."""

    @abstractmethod
    def output_bytes(self, samples: int) -> int:
        """Counts the bytes of one answer."""

    @abstractmethod
    def check_length(self, length: int, most: int) -> None:
        """Checks that some number of samples, at most `most`, has this size.

        Raises:
            TooLargeError, MalformedError, WrongModelError.
        """

    @abstractmethod
    def check_header(self, start: bytes, length: int, most: int) -> RequestHeader:
        """Checks that an object which begins so claims to be what the model takes.

        Raises:
            SecretKeyError, MalformedError, KeyMismatchError, WrongParametersError, WrongModelError, TooLargeError.
        """
