"""A compiled program among the models."""

from __future__ import annotations

from functools import cached_property
from typing import Final

from cloakwork.api.errors import MalformedError, TooLargeError, WrongModelError, WrongParametersError
from cloakwork.api.service.models.model import Model, RequestHeader
from cloakwork.api.service.object_headers import read_header
from cloakwork.fhe_core.parameters import ParameterSet, parameter_digest, parameter_set
from cloakwork.fhe_core.wire import PURPOSE_BYTES, Kind, object_bytes
from cloakwork.models.report.costs import cpu_estimate

_FIRST_GUESS: Final = 0.01  # seconds for each bootstrap, of a program that has no estimate


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
