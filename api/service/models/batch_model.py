"""A model for batches among the models."""

from __future__ import annotations

from functools import cached_property
from typing import Final

from cloakwork.api.errors import MalformedError, TooLargeError, WrongParametersError
from cloakwork.api.service.models.index_model import named
from cloakwork.api.service.models.model import Model, RequestHeader
from cloakwork.api.service.models.program_model import ProgramModel
from cloakwork.api.service.object_headers import read_levelled_header
from cloakwork.fhe_core.levelled.noise import Noise
from cloakwork.fhe_core.levelled.parameters import LevelledParameters
from cloakwork.fhe_core.levelled.several import joined_size
from cloakwork.fhe_core.levelled.wire import Header, Kind

_UNIT_SECONDS: Final = 1e-4  # of the work of indices, a product of polynomials: both run on the same sets


class BatchProgramModel(ProgramModel):
    """Takes what the program of look-ups takes that its file holds; clients make labels of its scores."""

    kind = "batch"


class BatchModel(Model):
    """Takes a query, seeded levelled ciphertexts for each plaintext modulus, and answers with scores. What is counted is queries."""

    kind = "batch"

    @cached_property
    def parameters(self) -> tuple[LevelledParameters, ...]:
        return tuple(LevelledParameters.of(self.parameter_set, int(t)) for t in self.facts["plaintext_moduli"])

    @property
    def level(self) -> int:
        return int(self.facts["level"])

    @property
    def query_ciphertexts(self) -> int:
        """Ciphertexts of a query for each plaintext modulus."""
        return int(self.facts["query_ciphertexts"])

    @property
    def work(self) -> int:
        return max(1, round(self.foreseen_seconds / _UNIT_SECONDS))

    @property
    def foreseen_seconds(self) -> float:
        """Seconds that the plan forecasts for one thread of a CPU."""
        return float(self.facts["forecast_seconds"])

    @property
    def largest_run(self) -> int:
        return 1

    def input_bytes(self, samples: int) -> int:
        return joined_size([each.byte_count for each in self._query_headers(samples)])

    def _query_headers(self, samples: int) -> list[Header]:
        return [
            Header(
                kind=Kind.SEEDED_CIPHERTEXTS,
                parameters=each,
                key_id=b"",
                items=samples * self.query_ciphertexts,
                level=self.level,
            )
            for each in self.parameters
        ]

    def output_bytes(self, samples: int) -> int:
        noise = Noise(0.0, (0.0,) * int(self.facts["answer_variances"]))
        items, level = samples * int(self.facts["answer_ciphertexts"]), int(self.facts["answer_level"])
        return joined_size(
            [
                Header(
                    kind=Kind.CIPHERTEXTS, parameters=each, key_id=b"", items=items, level=level, noise=noise
                ).byte_count
                for each in self.parameters
            ]
        )

    def check_length(self, length: int, most: int) -> None:
        expected = self.input_bytes(1)
        if length > expected:
            raise TooLargeError(f"expected one query of {expected} bytes, got {length}; send one query a request")
        if length < expected:
            raise MalformedError(
                f"expected one query of {expected} bytes, got {length}; encrypt with the client specification"
            )

    def check_header(self, start: bytes, length: int, most: int) -> RequestHeader:
        """Reads the header of the first plaintext modulus; the engine checks the others."""
        header = read_levelled_header(start, self._query_headers(1)[0].byte_count, Kind.SEEDED_CIPHERTEXTS)
        if header.parameters != self.parameters[0]:
            raise WrongParametersError(
                f"these are ciphertexts of {named(header.parameters)}, the model takes {named(self.parameters[0])}; "
                "encrypt with the model's client specification"
            )
        if (header.items, header.level, header.dropped_bits) != (self.query_ciphertexts, self.level, 0):
            raise MalformedError(
                f"expected {self.query_ciphertexts} ciphertexts of level {self.level}, got {header.items} of level {header.level}; "
                "encrypt with the model's client specification"
            )
        return RequestHeader(header.key_id, 1)
