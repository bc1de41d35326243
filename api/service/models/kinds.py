"""The kinds of models: a compiled program, an index of nearest neighbours, a model for batches."""

from __future__ import annotations

from functools import cached_property
from typing import Final

from cloakwork.api.errors import MalformedError, TooLargeError, WrongModelError, WrongParametersError
from cloakwork.api.service.models.model import Model, RequestHeader, read_header, read_levelled_header
from cloakwork.fhe_core.levelled.noise import Noise
from cloakwork.fhe_core.levelled.parameters import LevelledParameters
from cloakwork.fhe_core.levelled.several import joined_size
from cloakwork.fhe_core.levelled.wire import Header
from cloakwork.fhe_core.levelled.wire import Kind as LevelledKind
from cloakwork.fhe_core.parameters import ParameterSet, parameter_digest, parameter_set
from cloakwork.fhe_core.wire import PURPOSE_BYTES, Kind, object_bytes
from cloakwork.models.report.costs import cpu_estimate

_FIRST_GUESS: Final = 0.01  # seconds for each bootstrap, of a program that has no estimate
_FIRST_INDEX_GUESS: Final = (
    1e-4  # seconds for each product of polynomials, in the middle of docs/howto/levelled.md's measurements
)
_RUN_BYTES: Final = 1 << 30  # of ciphertexts that are held while some queries are scored together
_KEYSWITCH_PRODUCTS: Final = 5  # that take as long as the keyswitch of a feature, about: digits and MNIST there
_UNIT_SECONDS: Final = 1e-4  # of the work of indices, a product of polynomials: both run on the same sets


class ProgramModel(Model):
    """Takes seeded packed ciphertexts of any number of samples."""

    kind = "program"

    @cached_property
    def parameters(self) -> ParameterSet:
        return parameter_set(self.facts["parameter_set"])

    @property
    def work(self) -> int:
        return self.bootstraps

    @property
    def foreseen_seconds(self) -> float:
        """Seconds that the report forecasts for one thread of a CPU; a GPU corrects it with its first run."""
        known = cpu_estimate(self.facts["report"].get("estimated_seconds", {}))
        return known[0] if known else _FIRST_GUESS * self.bootstraps

    @property
    def largest_run(self) -> int:
        return int(self.facts["largest_batch"])

    def input_bytes(self, samples: int) -> int:
        shape = (samples, self.input_numbers)
        return object_bytes(Kind.PACKED_CIPHERTEXTS, self.parameters, True, shape, purpose=True)

    def output_bytes(self, samples: int) -> int:
        shape, bits = (samples, int(self.facts["output_numbers"])), int(self.facts["answer_word_bits"])
        kind = Kind.SWITCHED_CIPHERTEXTS if bits else Kind.CIPHERTEXTS
        return object_bytes(kind, self.parameters, False, shape, bits, purpose=True)

    def check_length(self, length: int, most: int) -> None:
        if self._is_length(length, most):
            return
        if self._is_length(length + PURPOSE_BYTES, most):
            raise _of_no_model()
        largest = self.input_bytes(most)
        if length > largest:
            raise TooLargeError(f"expected at most {largest} bytes ({most} samples), got {length}; send fewer")
        raise MalformedError(
            f"no number of samples has {length} bytes; one sample has {self.input_bytes(1)}, encrypt with the client specification"
        )

    def check_header(self, start: bytes, length: int, most: int) -> RequestHeader:
        header = read_header(start, length, Kind.PACKED_CIPHERTEXTS)
        if parameter_digest(header.parameters).hex() != self.parameter_digest:
            raise WrongParametersError(
                f"these are ciphertexts of parameter set '{header.parameters.name}', the model takes '{self.parameter_set}'; "
                "encrypt with the model's client specification"
            )
        if header.purpose is None:
            raise _of_no_model()
        if header.purpose.hex() != self.digest:
            raise WrongModelError(
                f"these are ciphertexts for program {header.purpose.hex()[:16]}, model '{self.name}' is program {self.digest[:16]}; "
                "encrypt with the model's client specification"
            )
        if len(header.shape) != 2 or header.shape[1] != self.input_numbers:
            raise MalformedError(
                f"expected ciphertexts of shape ['samples', {self.input_numbers}], got {list(header.shape)}; "
                "encrypt with the model's client specification"
            )
        if header.shape[0] > most:
            raise TooLargeError(f"expected at most {most} samples, got {header.shape[0]}; send fewer")
        if header.key_id is None:
            raise MalformedError("the ciphertexts do not say which key they belong to; encrypt them with this release")
        return RequestHeader(header.key_id, header.shape[0])

    @cached_property
    def _sizes(self) -> dict[int, int]:
        return {}

    def _is_length(self, length: int, most: int) -> bool:
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


def _of_no_model() -> WrongModelError:
    return WrongModelError(
        "the ciphertexts do not say which model they are for: an earlier release encrypted them; use a client of this release"
    )


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
        return _FIRST_INDEX_GUESS * self.work

    @property
    def largest_run(self) -> int:
        """Queries: of each the numbers that it is expanded into and a sum for each block of rows are held."""
        held = int(self.facts["expanded_numbers"]) + int(self.facts["products"]) // self.input_numbers
        return max(1, _RUN_BYTES // (held * self.parameters.ciphertext_bytes(self.level)))

    def input_bytes(self, samples: int) -> int:
        return Header(
            kind=LevelledKind.SEEDED_CIPHERTEXTS,
            parameters=self.parameters,
            key_id=b"",
            items=samples,
            level=self.level,
            dropped_bits=self.facts["dropped_bits"][0],
        ).byte_count

    def output_bytes(self, samples: int) -> int:
        return Header(
            kind=LevelledKind.CIPHERTEXTS,
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
        header = read_levelled_header(start, length, LevelledKind.SEEDED_CIPHERTEXTS)
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
                kind=LevelledKind.SEEDED_CIPHERTEXTS,
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
                    kind=LevelledKind.CIPHERTEXTS, parameters=each, key_id=b"", items=items, level=level, noise=noise
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
        header = read_levelled_header(start, self._query_headers(1)[0].byte_count, LevelledKind.SEEDED_CIPHERTEXTS)
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
