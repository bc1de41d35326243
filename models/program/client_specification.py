"""The client specification of a compiled model, for the owner of the data: how to encrypt an input and how to read the result."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np

from cloakwork.fhe_core.arrays.encoding import Encoding
from cloakwork.fhe_core.arrays.lanes import laid_in_lanes, taken_from_lanes
from cloakwork.fhe_core.ciphertexts import SeededPackedCiphertexts
from cloakwork.fhe_core.errors import FheError, KeyMismatchError, ParameterError, SerializationError
from cloakwork.fhe_core.parameters import parameter_digest, parameter_set
from cloakwork.fhe_core.switched_ciphertexts import load_results
from cloakwork.models import fields as typed
from cloakwork.models.arrays import Reals
from cloakwork.models.client_steps import (
    STAGES,
    InputStep,
    OutputStep,
    Stage,
    checks_input,
    column_labels,
    input_steps_from_fields,
    named_inputs,
    no_samples,
    run_input_steps,
    run_output_steps,
    split_tail,
    steps_to_fields,
    tail_from_fields,
    tail_to_fields,
)
from cloakwork.models.client_steps.running import check_stage, offered_stages
from cloakwork.models.client_steps.unfit import REFUSED, RangeReport, Replaced, finite
from cloakwork.models.errors import ShapeError
from cloakwork.models.program.answers import AnswerGrid, least_unit
from cloakwork.models.program.program import Program
from cloakwork.models.program.purpose import check_purpose
from cloakwork.models.program.specification_limits import (
    TableSizes,
    check_step_count,
    check_text,
    run_on_no_samples,
)

if TYPE_CHECKING:
    from cloakwork.fhe_core.ciphertexts import Ciphertexts
    from cloakwork.fhe_core.client import ClientKey
    from cloakwork.fhe_core.switched_ciphertexts import SwitchedCiphertexts


class _Wrapped(Protocol):
    """A `cloakwork.Key`."""

    @property
    def only(self) -> Any: ...


SecretKey: TypeAlias = "ClientKey | _Wrapped"
_VERSION = 2  # 1 did not say which program it belongs to
_DIGEST_BYTES = 32
_MOST_PHASE = 0.25  # of the torus, either way: what `encrypt_packed` takes
_SLACK = 1e-9  # of the input's range, for rounding: what is reported as outside lies further


@dataclass(frozen=True, eq=False)
class ClientSpecification:
    """Phases of the input are value * input_scale; values of the output are phase / output_scale + output_offset.

    `input_steps` make the values of the input from what the user has, `output_steps` make what the user wants from those of the output.
    Inputs are encrypted for the program of digest `program`, and only its results are decrypted.
    """

    program: bytes
    parameters: str
    input_shape: tuple[int, ...]
    input_range: tuple[float, float]
    input_scale: float
    output_scale: Reals  # of the output's shape
    output_offset: Reals
    input_steps: tuple[InputStep, ...] = ()
    output_steps: tuple[OutputStep, ...] = ()
    output_unit: float = (
        0.0  # of exact models: phases of the output are multiples of it, the noise is rounded away; 0 for others
    )

    @classmethod
    def of(cls, program: Program) -> ClientSpecification:
        """Returns what a client of the program needs; none of its weights is in it."""
        graph = program.graph
        assert (
            graph.scale is not None and graph.offset is not None and graph.lower is not None and graph.upper is not None
        )
        first = graph.input.first_wire
        return cls(
            program.digest,
            program.parameters.name,
            graph.input.shape,
            (float(graph.lower[first]), float(graph.upper[first])),
            float(graph.scale[first]),
            graph.scale[graph.output],
            graph.offset[graph.output],
            program.input_steps,
            program.tail,
            program.output_unit,
        )

    def to_json(self) -> str:
        """Returns all that a client needs beside its key; holds no weights of the model."""
        tail = tail_to_fields(self.output_steps)
        fields = {
            "cloakwork_client": _VERSION,
            "program_digest": self.program.hex(),
            "parameter_set": self.parameters,
            "parameter_digest": parameter_digest(parameter_set(self.parameters)).hex(),
            "input_shape": list(self.input_shape),
            "input_range": list(self.input_range),
            "input_scale": self.input_scale,
            "output_scale": self.output_scale.tolist(),
            "output_offset": self.output_offset.tolist(),
            "client_steps": tail["client_steps"],
            "input_steps": steps_to_fields(self.input_steps),
            "output_steps": tail["output_steps"],
            "output_unit": self.output_unit,
        }
        return json.dumps(fields, indent=1)

    @classmethod
    def from_json(cls, text: str) -> ClientSpecification:
        """Parses a client specification.

        Raises:
            SerializationError: not such a specification, or of another version.
            KeyMismatchError: made for another version of the parameter set.
        """
        try:
            check_text(text)
            fields = typed.parsed_object(text)
            check_step_count(fields.get("input_steps", []))
            if fields["cloakwork_client"] != _VERSION:
                raise ValueError(_other_version(fields["cloakwork_client"]))
            name, digest = typed.text(fields["parameter_set"]), typed.text(fields["parameter_digest"])
            low, high = (typed.real(end) for end in typed.entries(fields["input_range"]))
            result = cls(
                _digest(fields["program_digest"]),
                name,
                typed.shape(fields["input_shape"]),
                (low, high),
                typed.real(fields["input_scale"]),
                typed.reals(fields["output_scale"]),
                typed.reals(fields["output_offset"]),
                input_steps_from_fields(fields.get("input_steps", [])),
                tail_from_fields(fields),
                typed.real(fields.get("output_unit", 0.0)),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise SerializationError(
                f"client specification: expected version {_VERSION} of its JSON; get it again ({_brief(error)})"
            ) from error
        _check_parameters(name, digest)
        return result.checked()

    def checked(self) -> ClientSpecification:
        """Returns the specification itself, when it is what `of` makes of a compiled program.

        Raises:
            SerializationError: its numbers, shapes and steps do not fit each other.
        """
        if not self._is_sound():
            raise SerializationError(
                "client specification: a field is out of its range; get it again from who compiled the model"
            )
        if 0 < self.output_unit < (least := least_unit(parameter_set(self.parameters))):
            raise SerializationError(
                f"client specification: its outputs are multiples of {self.output_unit:.3g}, which noise of parameter set '{self.parameters}' "
                f"does not leave room for: expected 0, or {least:.3g} at least"
            )
        self._check_steps()
        return self

    def _is_sound(self) -> bool:
        scale, offset, (low, high) = self.output_scale, self.output_offset, self.input_range
        if scale.shape != offset.shape or not 0 < scale.size <= typed.MOST_NUMBERS or not 0 <= self.output_unit <= 1:
            return False
        if math.prod(self.input_shape) > typed.MOST_NUMBERS or min(self.input_shape, default=1) < 1:
            return False
        with np.errstate(all="ignore"):
            derived = (
                1 / scale,
                offset,
                scale / self.output_unit if self.output_unit else scale,
                np.array([low, high]),
            )
            finite = all(bool(np.isfinite(numbers).all()) for numbers in derived)
        reach = max(abs(low), abs(high)) * self.input_scale
        sound = finite and bool((scale > 0).all()) and low <= high and self.input_scale > 0
        return (
            sound
            and reach <= _MOST_PHASE * (1 + _SLACK)
            and all(step.fits(scale.shape) for step in split_tail(self.output_steps)[0])
        )

    def _check_steps(self) -> None:
        """Checks that steps fit each other and the shapes: on no samples, as any values may be refused."""
        try:
            inputs, _ = self._tried
            with np.errstate(all="ignore"):
                for stage in STAGES:
                    self.finish(self.output_offset[None], stage)
        except (ArithmeticError, IndexError, KeyError, TypeError, ValueError, FheError) as error:
            raise SerializationError(
                "client specification: its steps do not fit each other; get it again from who compiled the model"
            ) from error
        if inputs.shape != (0, *self.input_shape):
            raise SerializationError(
                f"client specification: its steps do not give {list(self.input_shape)} numbers; get it again from who compiled the model"
            )

    @cached_property
    def _tried(self) -> tuple[Reals, TableSizes]:
        """The result of the input steps on no samples, and its size for one."""
        none, sizes = no_samples(self.input_steps), TableSizes()
        with np.errstate(all="ignore"):
            first = np.zeros((0, *self.input_shape)) if none is None else none
            return run_on_no_samples(self.input_steps, first, sizes), sizes

    def check_size(self, x: Any) -> None:
        """Raises ShapeError for samples of which the input steps, which a stranger may have written, would make far more numbers than these have."""
        self._tried[1].check(x)

    def inputs(self, x: Any, *, refuse: bool = False) -> Reals:
        """Returns samples as the numbers [samples, *input_shape] that are encrypted; what every mode of `predict` starts from.

        Of a model of several inputs x is a dict of arrays by name, or a tuple of them in the model's order.

        Values beyond the calibrated range count as its end; one CalibratedRangeWarning says how many and in which columns. Values that the
        steps do not take count as the nearest that they take, and missing ones as 0; one ReplacedValuesWarning says so. Nothing is refused for
        its values: the server, which chose the steps, would learn of them from the request that it does not get.

        Args:
            refuse: values that the steps do not take, as the owner of a model wants it, who sends nothing.

        Raises:
            ShapeError: no samples, another shape or type; with `refuse`, values that the steps do not take.
        """
        report, replaced = RangeReport(), Replaced()
        unfit = REFUSED if refuse else replaced
        if not checks_input(self.input_steps):
            x = finite(unfit.numbers(x), unfit)
        array = run_input_steps(self.input_steps, x, report, unfit)
        unfit.at(lambda x: column_labels(self.input_steps, x))
        array = finite(array, unfit)
        if array.ndim == 0 or array.shape[1:] != self.input_shape:
            raise ShapeError(
                f"input: expected an array of shape {['samples', *self.input_shape]}, got {list(array.shape)}; samples come first"
            )
        if not len(array):
            raise ShapeError("input: expected at least one sample, got none")
        low, high = self.input_range
        slack = _SLACK * (high - low)
        report.add((array < low - slack) | (array > high + slack), column_labels(self.input_steps, array))
        report.warn()
        replaced.warn()
        return np.clip(array, low, high)

    def phases(self, x: Any, *, refuse: bool = False) -> Reals:
        """Returns `inputs` as fractions of the torus [samples, numbers]."""
        values = self.inputs(x, refuse=refuse)
        # Ends of the range may be beyond what is encrypted, by rounding.
        return np.clip(values.reshape(len(values), -1) * self.input_scale, -_MOST_PHASE, _MOST_PHASE)

    def quiet_phases(self, x: Reals) -> Reals:
        """Returns the phases of finite samples of the right shape (of several inputs [samples, numbers]), silent about values beyond the range."""
        tensors = named_inputs(self.input_steps)
        values = np.clip(run_input_steps(self.input_steps, tensors.apart(x) if tensors else x), *self.input_range)
        return np.asarray(values.reshape(len(values), -1) * self.input_scale)

    def encrypt(self, key: SecretKey, x: Any) -> SeededPackedCiphertexts:
        """Encrypt samples for this program only: seeded and packed, about four bytes a number."""
        return self.encrypt_phases(_engine_key(key), self.phases(x))

    def encrypt_phases(self, key: ClientKey, phases: Reals) -> SeededPackedCiphertexts:
        """Returns [samples, numbers]; of sets with r lanes r samples to a row of ciphertexts, copies of the last one where it is not full."""
        packed = key.encrypt_packed(laid_in_lanes(key.parameters, phases), encoding=Encoding.TORUS)
        return packed.with_purpose(self.program)

    def decrypt(
        self,
        key: SecretKey,
        answer: Ciphertexts | SwitchedCiphertexts | bytes,
        x: Any = None,
        output: Stage = "labels",
        *,
        samples: int | None = None,
    ) -> Any:
        """Decrypts the model's output, the final steps (softmax, arg-max) included: an array, of several outputs a dict of arrays by name.

        Args:
            answer: of a server, or its bytes.
            x: the samples that were encrypted, or
            samples: how many they were, for sets of several lanes; None: all that the answer has room for.
            output: see `finish`.

        Raises:
            ShapeError: of so many samples there would be another number of results.
            KeyMismatchError: of another key, or the result of another program.
            ParameterError: probabilities of a model that has none.
            SerializationError: masks that no evaluation gives, of which decryption would show the secret key.
        """
        check_stage(output, self.output_steps)
        key = _engine_key(key)
        answer = load_results(answer) if isinstance(answer, bytes) else answer
        if isinstance(answer, SeededPackedCiphertexts):
            raise ShapeError("answer: expected what server.answer(request) returned, got a request")
        check_purpose(answer.purpose, self.program, "result", "decrypt it with the client specification of its model")
        phases = AnswerGrid(parameter_set(self.parameters), self.output_unit).phases(key, answer)
        samples = _count(x) if samples is None else samples
        return self.output(taken_from_lanes(key.parameters, phases, samples), output)

    def output(self, phases: Reals, until: Stage = "labels") -> Any:
        """Returns phases [samples, numbers] as the model's output [samples, ..]. ShapeError: the numbers are not this model's."""
        if phases.ndim == 0 or phases.size != len(phases) * self.output_scale.size:
            raise ShapeError(
                f"output: expected an array of shape ['samples', {self.output_scale.size}], got {list(phases.shape)}; it is of another model"
            )
        shaped = phases.reshape(len(phases), *self.output_scale.shape)
        return self.finish(shaped / self.output_scale + self.output_offset, until)

    @property
    def stages(self) -> tuple[Stage, ...]:
        """The outputs that a user of a service can ask for: "labels", "scores", "probabilities"."""
        return offered_stages(self.output_steps)

    def finish(self, values: Reals, until: Stage = "labels") -> Any:
        """Returns values of the graph's output as the model's. Args: until: models of tables can stop at "scores" or "probabilities"."""
        if self.output_unit > 0:
            multiples = np.rint((values - self.output_offset) * (self.output_scale / self.output_unit))
            values = multiples * (self.output_unit / self.output_scale) + self.output_offset
        return run_output_steps(self.output_steps, values, until)


def _count(x: Any) -> int | None:
    """Counts samples, of several inputs those of the first one."""
    first = next(iter(x.values())) if isinstance(x, dict) else x[0] if isinstance(x, tuple) else x
    return None if first is None else len(first)


def _engine_key(key: SecretKey) -> ClientKey:
    engine_key: Any = getattr(key, "only", key)
    if not hasattr(engine_key, "encrypt_packed"):
        raise KeyMismatchError(f"key: expected the secret key, a cloakwork.Key, got {type(engine_key).__name__}")
    return engine_key  # type: ignore[no-any-return]


def _check_parameters(name: str, digest: str) -> None:
    """Raises KeyMismatchError for a set that does not exist here, or has another row."""
    try:
        expected = parameter_digest(parameter_set(name)).hex()
    except ParameterError as error:
        raise KeyMismatchError(f"client specification: its parameter set cannot be used here ({error})") from error
    if digest != expected:
        raise KeyMismatchError(
            f"client specification: it was made for another version of parameter set '{name}'; compile the model again"
        )


def _brief(error: Exception) -> str:
    """Returns one line of bounded length: the text may quote the file."""
    line = " ".join(str(error).split())
    return f"the field {line[:200]} is missing" if isinstance(error, KeyError) else line[:200]


def _digest(text: Any) -> bytes:
    digest = bytes.fromhex(typed.text(text))
    if len(digest) != _DIGEST_BYTES or digest.hex() != text:
        raise ValueError("expected a digest of 64 hexadecimal digits")
    return digest


def _other_version(version: Any) -> str:
    if version == 1:
        return "it is of version 1, which did not say its program: 'cloakwork inspect --client' and the service write it anew"
    return "its version is another, of a newer release"
