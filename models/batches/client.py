"""The client's half of batches: samples as integers, one ciphertext for every feature, scores as labels, probabilities or values."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from cloakwork.fhe_core.errors import FheError
from cloakwork.fhe_core.levelled.answer_masks import check_masks
from cloakwork.fhe_core.levelled.ciphertexts import LevelledCiphertexts, SeededLevelledCiphertexts
from cloakwork.fhe_core.levelled.neighbours.expansion_keys import ExpansionKeyShape, expansion_rounds
from cloakwork.fhe_core.levelled.neighbours.inner_products import packed_query, rows_of
from cloakwork.fhe_core.levelled.parameters import LevelledParameters
from cloakwork.fhe_core.levelled.several import KeyShapes
from cloakwork.fhe_core.levelled.slots import Slots
from cloakwork.fhe_core.parameters import parameter_set
from cloakwork.models import fields as typed
from cloakwork.models.arrays import Indices, Reals
from cloakwork.models.batches.decisions import Radial, Votes
from cloakwork.models.client_steps import (
    InputStep,
    OutputStep,
    Rescale,
    Round,
    Stage,
    input_steps_from_fields,
    no_samples,
    output_steps_from_fields,
    run_input_steps,
    run_output_steps,
    steps_to_fields,
)
from cloakwork.models.client_steps.running import check_stage, offered_stages
from cloakwork.models.client_steps.unfit import REFUSED, RangeReport, Replaced, finite
from cloakwork.models.errors import CompileError
from cloakwork.models.program.client_specification import ClientSpecification
from cloakwork.models.program.specification_limits import TableSizes, check_step_count, check_text, run_on_no_samples

if TYPE_CHECKING:
    from cloakwork.fhe_core.ciphertexts import Ciphertexts, SeededPackedCiphertexts
    from cloakwork.fhe_core.levelled.ciphertexts import LevelledEvaluationKeys
    from cloakwork.fhe_core.levelled.client import LevelledClientKey
    from cloakwork.fhe_core.switched_ciphertexts import SwitchedCiphertexts

Packing = Literal["coefficients", "slots", "query"]
FORMAT: Final = "cloakwork batches client 1"
MOST_MODULI: Final = 3
_MOST_LIMIT: Final = 1 << 20
_MOST_WORDS: Final = 1 << 28  # of a query or an answer, for each plaintext modulus
Queries: TypeAlias = Sequence[SeededLevelledCiphertexts | LevelledCiphertexts]  # one for every plaintext modulus
Request: TypeAlias = "list[SeededLevelledCiphertexts] | SeededPackedCiphertexts"
Answer: TypeAlias = "Sequence[LevelledCiphertexts] | Ciphertexts | SwitchedCiphertexts"


@dataclass(frozen=True, eq=False)
class BatchClient:
    """The client's specification of a batch: all that it needs beside its keys; public.

    Samples go through `input_steps`, which end in integers q of [-limit, limit]. Scores are unit times the integers that the server answers,
    and `public_offset`.

    Attributes:
        parameters: one set with every plaintext modulus; the answers' integers are those of their residues. A key for each.
        packing: a ciphertext holds N samples' values of one feature, in "coefficients" or "slots"; of a "query" all features of one sample.
        level, answer_level: of queries and of answers.
        products: whether the server multiplies ciphertexts, and wants a key for it.
        unit, public_offset: [outputs] of the server.
        radial: makes scores of the outputs.
        after: what decides by the scores.
        program: of the chosen packing, if it is one ciphertext a sample by look-ups' arithmetic: encrypts samples and gives scores.
    """

    parameters: tuple[LevelledParameters, ...]
    packing: Packing
    level: int
    answer_level: int
    products: bool
    limit: int
    features: int
    unit: Reals
    public_offset: Reals
    input_steps: tuple[InputStep, ...]
    after: Votes | tuple[OutputStep, ...]
    radial: Radial | None = None
    program: ClientSpecification | None = None

    # --- keys ---

    @property
    def key_shapes(self) -> KeyShapes:
        """Returns the shapes of the evaluation keys of a levelled model, for each plaintext modulus; for sums they hold no key."""
        rounds = expansion_rounds(self.parameters[0], self.features) if self.packing == "query" else 0
        return KeyShapes(tuple(ExpansionKeyShape(each, rounds, self.products) for each in self.parameters))

    @property
    def key_parameters(self) -> tuple[Any, ...]:
        """Returns what keys are generated for: a set of look-ups, or a levelled set for each plaintext modulus."""
        return self.parameters if self.program is None else (parameter_set(self.program.parameters),)

    def evaluation_keys(self, keys: Sequence[LevelledClientKey]) -> list[LevelledEvaluationKeys]:
        """Makes what the server needs, once; none for sums alone."""
        evaluation_keys = self.keys_to_send(keys)
        return evaluation_keys if self.key_shapes.shapes[0].numbers else []

    def keys_to_send(self, keys: Sequence[LevelledClientKey]) -> list[LevelledEvaluationKeys]:
        """Makes the same for a file: of sums objects without a key."""
        self._check_keys(keys)
        return [
            key.evaluation_keys(shape.automorphisms, products=shape.products)
            for key, shape in zip(keys, self.key_shapes.shapes, strict=True)
        ]

    # --- samples ---

    @property
    def samples_at_once(self) -> int:
        """Counts the samples of one query."""
        return 1 if self.packing == "query" else self.parameters[0].polynomial_size

    @property
    def query_ciphertexts(self) -> int:
        """Counts the ciphertexts of a query, for each plaintext modulus."""
        return 1 if self.packing == "query" else self.features

    def check_size(self, samples: Any) -> None:
        """Raises ShapeError for samples of which the input steps, which a stranger may have written, would make far more numbers than these have."""
        sizes, none = TableSizes(), no_samples(self.input_steps)
        assert none is not None, "the first step checks columns"
        with np.errstate(all="ignore"):
            run_on_no_samples(self.input_steps, none, sizes)
        sizes.check(samples)

    def integers(self, samples: Any, *, refuse: bool = False) -> Indices:
        """Returns [samples, features].

        Args:
            refuse: values that the steps do not take, as the owner of the model wants it, who sends nothing: a server would learn of them.

        Raises:
            ShapeError: another number of columns; with `refuse`, values that the steps do not take.

        Warns:
            CalibratedRangeWarning: some lie beyond the range that the model was compiled for and count as its end.
            ReplacedValuesWarning: the steps do not take some, and the nearest were taken.
        """
        report, replaced = RangeReport(), Replaced()
        unfit = REFUSED if refuse else replaced
        rounded = finite(run_input_steps(self.input_steps, samples, report, unfit), unfit)
        report.warn()
        replaced.warn()
        return rounded.astype(np.int64)

    def encrypt(self, key: Any, x: Any) -> Request:
        """Encrypt x, samples [samples, ..], to be sent: one query. Args: key: a `cloakwork.Key`, or the engine's keys."""
        keys = key_parts(key)
        if self.program is not None:
            return self.program.encrypt(_only(keys), x)
        return self.encrypt_integers(keys, self.integers(x))

    def decrypt(self, key: Any, answer: Answer, x: Any = None, output: Stage = "labels") -> NDArray[Any]:
        """Decrypt the answer to one query, or its bytes. Args: x: samples that were encrypted, of which distances are. output: as of `decide`."""
        keys = key_parts(key)
        if x is None:
            raise CompileError("decrypt: expected the samples that were encrypted, got none")
        if self.program is not None:
            scores = self.program.decrypt(_only(keys), cast("Ciphertexts | SwitchedCiphertexts", answer))
            return self.decide(scores[: len(x)], output)
        integers = self.integers(x)
        parts = [
            LevelledCiphertexts.from_bytes(each) if isinstance(each, bytes) else each
            for each in cast("Sequence[Any]", answer)
        ]
        outputs = self.outputs(keys, parts, len(integers))
        return self.decide(self.scores(outputs, integers), output)

    def encrypt_integers(self, keys: Sequence[LevelledClientKey], integers: Indices) -> list[SeededLevelledCiphertexts]:
        """Encrypts one query: up to `samples_at_once` samples [samples, features], to be sent."""
        self._check_keys(keys)
        if not 1 <= len(integers) <= self.samples_at_once or integers.shape[1] != self.features:
            raise CompileError(
                f"integers: expected 1 to {self.samples_at_once} samples of {self.features} features, got {list(integers.shape)}"
            )
        return [key.encrypt_seeded(self._packed(key.parameters, integers), self.level) for key in keys]

    def _packed(self, parameters: LevelledParameters, integers: Indices) -> NDArray[np.integer[Any]]:
        if self.packing == "query":
            return packed_query(parameters, integers[0])
        values = np.zeros((self.features, parameters.polynomial_size), dtype=np.int64)
        values[:, : len(integers)] = integers.T
        return slots_of(parameters).encode(values) if self.packing == "slots" else values

    # --- answers ---

    def outputs(
        self, keys: Sequence[LevelledClientKey], answers: Sequence[LevelledCiphertexts], samples: int
    ) -> NDArray[Any]:
        """Returns the integers of one query's answers, [samples, outputs].

        Raises:
            CompileError: another number of answers, outputs or levels than the specification says.
            SerializationError: masks that no evaluation gives.
        """
        self._check_keys(keys)
        if len(answers) != len(keys):
            raise CompileError(f"answers: expected one for each of {len(keys)} keys, got {len(answers)}")
        count, residues = self.answer_ciphertexts, []
        for key, answer in zip(keys, answers, strict=True):
            if (len(answer), answer.level) != (count, self.answer_level) or answer.parameters != key.parameters:
                raise CompileError(
                    f"answers: expected {count} ciphertexts of level {self.answer_level} of the key's set, got {answer!r}"
                )
            check_masks(answer)
            plaintexts = key.decrypt(answer)
            if self.packing == "query":
                residues.append(rows_of(plaintexts, len(self.unit))[None])
            else:
                residues.append(
                    (slots_of(key.parameters).decode(plaintexts) if self.packing == "slots" else plaintexts)[
                        :, :samples
                    ].T
                )
        return from_residues(residues, [each.plaintext_modulus for each in self.parameters])

    @property
    def answer_ciphertexts(self) -> int:
        """Counts the ciphertexts of an answer, for each plaintext modulus."""
        return -(-len(self.unit) // self.parameters[0].polynomial_size) if self.packing == "query" else len(self.unit)

    def scores(self, outputs: NDArray[Any], integers: Indices) -> Reals:
        """Returns [samples, scores] of the server's integers. Args: integers: the samples', for distances."""
        scores: Reals = outputs.astype(np.float64) * self.unit + self.public_offset
        if self.radial is None:
            return scores
        last = self.input_steps[-2]
        assert isinstance(last, Rescale)
        return self.radial.scores(scores, np.square(integers / last.scale).sum(axis=1))

    @property
    def stages(self) -> tuple[Stage, ...]:
        """The outputs that the model tells; votes of pairs of classes have no probabilities."""
        return ("labels", "scores") if isinstance(self.after, Votes) else offered_stages(self.after)

    def decide(self, scores: Reals, stage: Stage = "labels") -> NDArray[Any]:
        """Returns labels or values; before them "probabilities" or "scores" of each class. ParameterError: it has none."""
        check_stage(stage, () if isinstance(self.after, Votes) else self.after)
        if isinstance(self.after, Votes):
            return self.after.decisions(scores) if stage == "scores" else self.after.decide(scores)
        return np.asarray(run_output_steps(self.after, scores, stage))

    def _check_keys(self, keys: Sequence[LevelledClientKey]) -> None:
        if [key.parameters for key in keys] != list(self.parameters):
            raise CompileError(f"keys: expected one for each of {list(map(str, self.parameters))}")

    # --- files ---

    def to_json(self) -> str:
        """Returns the specification as a text, which `from_json` reads: what the model's server gives its clients."""
        votes = isinstance(self.after, Votes)
        fields = {
            "format": FORMAT,
            "set": self.parameters[0].set.name,
            "plaintext_moduli": [each.plaintext_modulus for each in self.parameters],
            "packing": self.packing,
            "level": self.level,
            "answer_level": self.answer_level,
            "products": self.products,
            "limit": self.limit,
            "features": self.features,
            "unit": self.unit.tolist(),
            "told": self.public_offset.tolist(),
            "input_steps": steps_to_fields(self.input_steps),
            "votes": self.after.to_fields() if isinstance(self.after, Votes) else None,
            "output_steps": [] if votes else steps_to_fields(self.after),  # type: ignore[arg-type]
            "radial": None if self.radial is None else self.radial.to_fields(),
            "program": None if self.program is None else json.loads(self.program.to_json()),
        }
        return json.dumps(fields)

    @classmethod
    def from_json(cls, text: str | bytes) -> BatchClient:
        """Parses a specification. Raises: CompileError: not what `to_json` wrote."""
        try:
            check_text(text if isinstance(text, str) else text.decode())
            fields = typed.parsed_object(text)
            check_step_count(fields["input_steps"])
            if fields["format"] != FORMAT:
                raise ValueError("another format")
            moduli = [typed.integer(each, 2) for each in typed.entries(fields["plaintext_moduli"], MOST_MODULI)]
            parameters = tuple(LevelledParameters.of(typed.text(fields["set"]), each) for each in moduli)
            votes, radial, program = fields["votes"], fields["radial"], fields["program"]
            steps = output_steps_from_fields(fields["output_steps"])
            specification = cls(
                parameters=parameters,
                packing=fields["packing"],
                level=typed.integer(fields["level"], 1, 255),
                answer_level=typed.integer(fields["answer_level"], 1, 255),
                products=typed.flag(fields["products"]),
                limit=typed.integer(fields["limit"], 1, _MOST_LIMIT),
                features=typed.integer(fields["features"], 1),
                unit=typed.reals(fields["unit"]),
                public_offset=typed.reals(fields["told"]),
                input_steps=input_steps_from_fields(fields["input_steps"]),
                after=steps if votes is None else Votes.from_fields(votes),
                radial=None if radial is None else Radial.from_fields(radial),
                program=None if program is None else ClientSpecification.from_json(json.dumps(program)),
            )
            with np.errstate(all="ignore"):  # of numbers that are refused
                specification._check()
        except (KeyError, TypeError, ValueError, AttributeError, FheError) as error:
            raise CompileError(f"batches: expected a client's specification of this release ({error})") from None
        return specification

    def _check(self) -> None:
        """Raises ValueError where fields do not fit each other."""
        fits = (
            len(self.parameters) >= 1
            and len({each.plaintext_modulus for each in self.parameters}) == len(self.parameters)
            and self.packing in ("coefficients", "slots", "query")
            and 1 <= self.answer_level <= self.level <= self.parameters[0].levels
            and self.unit.ndim == 1
            and 1 <= len(self.unit)
            and self.public_offset.shape == self.unit.shape
            and bool((self.unit > 0).all())
            and len(self.input_steps) >= 3
            and isinstance(self.input_steps[-2], Rescale)
            and isinstance(self.input_steps[-1], Round)
        )
        if not fits:
            raise ValueError("fields that do not fit each other")
        last = self.input_steps[-2]
        assert isinstance(last, Rescale)
        ends = np.abs((np.stack([last.lower, last.upper]) - last.offset) * last.scale)
        if last.scale.shape != (self.features,) or not (np.rint(ends) <= self.limit).all():
            raise ValueError("ranges of features that do not fit the limit")
        size = self.parameters[0].polynomial_size
        counts = (self.query_ciphertexts * self.level, 2 * self.answer_ciphertexts * self.answer_level)
        if max(counts) * size > _MOST_WORDS:
            raise ValueError("more ciphertexts than fit memory")
        if self.packing == "slots":
            for each in self.parameters:
                slots_of(each)
        if self.packing == "query" and (
            self.features > size or not all(each.plaintext_modulus % 2 for each in self.parameters)
        ):
            raise ValueError("queries that cannot be expanded")
        moduli = [each.plaintext_modulus for each in self.parameters]
        if any(math.gcd(a, b) > 1 for i, a in enumerate(moduli) for b in moduli[:i]):
            raise ValueError("plaintext moduli that have a divisor in common")
        scores = len(self.unit) if self.radial is None else len(self.radial.intercept)
        if self.radial is not None and self.radial.squares.shape != self.unit.shape:
            raise ValueError("another number of vectors than of outputs")
        if isinstance(self.after, Votes) and self.after.scores != scores:
            raise ValueError("another number of scores than of pairs of classes")
        nobody = run_input_steps(self.input_steps, no_samples(self.input_steps))
        if nobody.shape != (0, self.features):
            raise ValueError("steps that do not make the features")
        if self.program is not None and self.program.output_scale.size != scores:
            raise ValueError("a program of another number of scores")
        self.decide(np.zeros((1, scores)))


def key_parts(key: Any) -> Sequence[Any]:
    """Returns the engine's keys. Args: key: a `cloakwork.Key`, the engine's keys, or one of them."""
    parts = getattr(key, "parts", key)
    return parts if isinstance(parts, Sequence) else (parts,)


def _only(keys: Sequence[Any]) -> Any:
    if len(keys) != 1:
        raise CompileError(f"key: expected a key of one part, got one of {len(keys)}")
    return keys[0]


@lru_cache(maxsize=8)
def slots_of(parameters: LevelledParameters) -> Slots:
    """Returns the slots of a parameter set; made once."""
    return Slots(parameters)


def from_residues(residues: Sequence[NDArray[np.int64]], moduli: Sequence[int]) -> NDArray[Any]:
    """Returns the integers of least absolute value of these residues, element by element by mixed radix: int64, or Python's integers beyond 2^62."""
    whole = math.prod(moduli)
    wide = whole >= 1 << 62
    integers: NDArray[Any] = residues[0].astype(object) if wide else residues[0]
    product = moduli[0]
    for rest, t in zip(residues[1:], moduli[1:], strict=True):
        digit = (rest - integers % t) % t * pow(product, -1, t) % t
        integers = integers + digit * product
        product *= t
    return np.where(integers > whole // 2, integers - whole, integers)
