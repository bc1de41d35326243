"""One version of a model: what its facts in the repository say, and how long its requests and answers are."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from cloakwork.fhe_core.parameters import ParameterSet, parameter_set
from cloakwork.fhe_core.wire import Kind, object_bytes


@dataclass(frozen=True, eq=False)
class Model:
    """One version of a model."""

    name: str
    version: str
    artefact: Path
    facts: dict[str, Any]

    @property
    def digest(self) -> str:
        return str(self.facts["program_digest"])

    @property
    def artefact_sha256(self) -> str:
        return str(self.facts["artefact_sha256"])

    @property
    def parameter_digest(self) -> str:
        return str(self.facts["parameter_digest"])

    @cached_property
    def parameters(self) -> ParameterSet:
        return parameter_set(self.facts["parameter_set"])

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

    @property
    def client_digest(self) -> str:
        return hashlib.sha256(self.client.encode()).hexdigest()

    @cached_property
    def _sizes(self) -> dict[int, int]:
        return {}

    def is_length(self, length: int, most: int) -> bool:
        """Whether some number of samples, at most `most`, has this many bytes."""
        if length not in self._sizes:
            low, high = 1, most
            while low < high:
                middle = (low + high) // 2
                low, high = (middle + 1, high) if self.input_bytes(middle) < length else (low, middle)
            if self.input_bytes(low) != length:
                return False
            self._sizes[length] = low
        return self._sizes[length] <= most

    def input_bytes(self, samples: int) -> int:
        """Of one object of seeded packed ciphertexts: the only size that this many samples have."""
        shape = (samples, self.input_numbers)
        return object_bytes(Kind.PACKED_CIPHERTEXTS, self.parameters, True, shape, purpose=True)

    def output_bytes(self, samples: int) -> int:
        """Of one answer."""
        shape, bits = (samples, int(self.facts["output_numbers"])), int(self.facts["answer_word_bits"])
        kind = Kind.SWITCHED_CIPHERTEXTS if bits else Kind.CIPHERTEXTS
        return object_bytes(kind, self.parameters, False, shape, bits, purpose=True)
