"""An index of nearest neighbours among the models."""

from __future__ import annotations

from functools import cached_property
from typing import Final

from cloakwork.api.errors import MalformedError, TooLargeError, WrongParametersError
from cloakwork.api.service.models.model import Model, RequestHeader
from cloakwork.api.service.object_headers import read_levelled_header
from cloakwork.fhe_core.levelled.noise import Noise
from cloakwork.fhe_core.levelled.parameters import LevelledParameters
from cloakwork.fhe_core.levelled.wire import Header, Kind

_FIRST_GUESS: Final = (
    1e-4  # seconds for each product of polynomials, in the middle of docs/howto/levelled.md's measurements
)
_RUN_BYTES: Final = 1 << 30  # of ciphertexts that are held while some queries are scored together
_KEYSWITCH_PRODUCTS: Final = 5  # that take as long as the keyswitch of a feature, about: digits and MNIST there


class IndexModel(Model):
    """Takes one seeded levelled ciphertext, a query, and answers with the scores of all rows, or of the cells that it asks for."""

    kind = "index"

    @cached_property
    def parameters(self) -> LevelledParameters:
        return LevelledParameters.of(self.parameter_set, int(self.facts["plaintext_modulus"]))

    @property
    def level(self) -> int:
        return int(self.facts["level"])

    @property
    def answer_level(self) -> int:
        return int(self.facts["answer_level"])

    @property
    def work(self) -> int:
        """Products of polynomials, and keyswitches in as many as they take."""
        return int(self.facts["products"]) + _KEYSWITCH_PRODUCTS * int(self.facts["expanded_numbers"])

    @property
    def foreseen_seconds(self) -> float:
        return _FIRST_GUESS * self.work

    @property
    def largest_run(self) -> int:
        """Queries: of each the numbers that it is expanded into and a sum for each block of rows are held."""
        held = int(self.facts["expanded_numbers"]) + int(self.facts["products"]) // self.input_numbers
        return max(1, _RUN_BYTES // (held * self.parameters.ciphertext_bytes(self.level)))

    def input_bytes(self, samples: int) -> int:
        return Header(
            kind=Kind.SEEDED_CIPHERTEXTS,
            parameters=self.parameters,
            key_id=b"",
            items=samples,
            level=self.level,
            dropped_bits=self.facts["dropped_bits"][0],
        ).byte_count

    def output_bytes(self, samples: int) -> int:
        return Header(
            kind=Kind.CIPHERTEXTS,
            parameters=self.parameters,
            key_id=b"",
            items=samples * int(self.facts["answer_ciphertexts"]),
            level=self.answer_level,
            dropped_bits=self.facts["dropped_bits"][1],
            noise=Noise(0.0, (0.0,) * int(self.facts["answer_variances"])),
        ).byte_count

    def check_length(self, length: int, most: int) -> None:
        expected = self.input_bytes(1)
        if length > expected:
            raise TooLargeError(f"expected one query of {expected} bytes, got {length}; send one ciphertext a request")
        if length < expected:
            raise MalformedError(
                f"expected one query of {expected} bytes, got {length}; encrypt with the client specification"
            )

    def check_header(self, start: bytes, length: int, most: int) -> RequestHeader:
        header = read_levelled_header(start, length, Kind.SEEDED_CIPHERTEXTS)
        if header.parameters != self.parameters:
            raise WrongParametersError(
                f"these are ciphertexts of {named(header.parameters)}, the model takes {named(self.parameters)}; "
                "encrypt with the model's client specification"
            )
        if (header.items, header.level) != (1, self.level):
            raise MalformedError(
                f"expected one ciphertext of level {self.level}, got {header.items} of level {header.level}; "
                "encrypt with the model's client specification"
            )
        if header.dropped_bits != self.facts["dropped_bits"][0]:
            raise MalformedError(
                f"expected a query without the last {self.facts['dropped_bits'][0]} bits of its words, got one without "
                f"{header.dropped_bits}; encrypt with the model's client specification"
            )
        return RequestHeader(header.key_id, 1)


def named(parameters: LevelledParameters) -> str:
    """Returns a set and a plaintext modulus in words."""
    return f"parameter set '{parameters.set.name}' modulo {parameters.plaintext_modulus}"
