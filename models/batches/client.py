"""The client's half of batches: samples as integers, one ciphertext for every feature, scores as labels, probabilities or values."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from cloakwork.fhe_core.errors import FheError
from cloakwork.fhe_core.levelled.answer_masks import check_masks
from cloakwork.fhe_core.levelled.ciphertexts import LevelledCiphertexts, SeededLevelledCiphertexts
from cloakwork.fhe_core.levelled.expansion_keys import expansion_automorphisms
from cloakwork.fhe_core.levelled.inner_products import packed_query, rows_of
from cloakwork.fhe_core.levelled.parameters import LevelledParameters
from cloakwork.fhe_core.levelled.slots import Slots
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
from cloakwork.models.client_steps.range_report import RangeReport
from cloakwork.models.client_steps.unfit import REFUSED, Replaced, finite
from cloakwork.models.errors import CompileError

if TYPE_CHECKING:
    from cloakwork.fhe_core.levelled.ciphertexts import LevelledEvaluationKeys
    from cloakwork.fhe_core.levelled.client import LevelledClientKey

Packing = Literal["coefficients", "slots", "query"]
FORMAT: Final = "cloakwork batches client 1"
MOST_MODULI: Final = 3
_MOST_LIMIT: Final = 1 << 20
Queries: TypeAlias = Sequence[SeededLevelledCiphertexts | LevelledCiphertexts]  # one for every plaintext modulus


@dataclass(frozen=True, eq=False)
class BatchClient:
    """What a client needs beside its keys; public.

    Samples go through `input_steps`, which end in integers q of [-limit, limit]. Scores are unit times the integers that the server answers,
    and `told`.

    Attributes:
        parameters: one set with every plaintext modulus; the answers' integers are those of their residues. A key for each.
        packing: a ciphertext holds N samples' values of one feature, in "coefficients" or "slots"; of a "query" all features of one sample.
        level, answer_level: of queries and of answers.
        products: whether the server multiplies ciphertexts, and wants a key for it.
        unit, told: [outputs] of the server.
        radial: makes scores of the outputs.
        after: what decides by the scores.
    """

    parameters: tuple[LevelledParameters, ...]
    packing: Packing
    level: int
    answer_level: int
    products: bool
    limit: int
    features: int
    unit: Reals
    told: Reals
    input_steps: tuple[InputStep, ...]
    after: Votes | tuple[OutputStep, ...]
    radial: Radial | None = None

    # --- keys ---

    def evaluation_keys(self, keys: Sequence[LevelledClientKey]) -> list[LevelledEvaluationKeys]:
        """Makes what the server needs, once; none for sums alone."""
        self._check_keys(keys)
        if self.packing == "query":
            wanted = expansion_automorphisms(self.parameters[0], self.features)
            return [key.evaluation_keys(wanted, products=False) for key in keys]
        return [key.evaluation_keys() for key in keys] if self.products else []

    # --- samples ---

    @property
    def samples_at_once(self) -> int:
        """Counts the samples of one query."""
        return 1 if self.packing == "query" else self.parameters[0].polynomial_size

    def integers(self, samples: Any, *, refuse: bool = False) -> Indices:
        """[samples, features].

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
        found = finite(run_input_steps(self.input_steps, samples, report, unfit), unfit)
        report.warn()
        replaced.warn()
        return found.astype(np.int64)

    def encrypt(self, keys: Sequence[LevelledClientKey], integers: Indices) -> list[SeededLevelledCiphertexts]:
        """One query: up to `samples_at_once` samples [samples, features], to be sent."""
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
        """The integers of one query's answers, [samples, outputs].

        Raises:
            CompileError: another number of answers, outputs or levels than the specification says.
            SerializationError: masks that no evaluation gives.
        """
        self._check_keys(keys)
        if len(answers) != len(keys):
            raise CompileError(f"answers: expected one for each of {len(keys)} keys, got {len(answers)}")
        count, residues = self._answer_count, []
        for key, answer in zip(keys, answers, strict=True):
            if (len(answer), answer.level) != (count, self.answer_level) or answer.parameters != key.parameters:
                raise CompileError(
                    f"answers: expected {count} ciphertexts of level {self.answer_level} of the key's set, got {answer!r}"
                )
            check_masks(answer)
            found = key.decrypt(answer)
            if self.packing == "query":
                residues.append(rows_of(found, len(self.unit))[None])
            else:
                residues.append(
                    (slots_of(key.parameters).decode(found) if self.packing == "slots" else found)[:, :samples].T
                )
        return from_residues(residues, [each.plaintext_modulus for each in self.parameters])

    @property
    def _answer_count(self) -> int:
        return -(-len(self.unit) // self.parameters[0].polynomial_size) if self.packing == "query" else len(self.unit)

    def scores(self, outputs: NDArray[Any], integers: Indices) -> Reals:
        """[samples, scores] of the server's integers. Args: integers: the samples', for distances."""
        found: Reals = outputs.astype(np.float64) * self.unit + self.told
        if self.radial is None:
            return found
        last = self.input_steps[-2]
        assert isinstance(last, Rescale)
        return self.radial.scores(found, np.square(integers / last.scale).sum(axis=1))

    def decide(self, scores: Reals, stage: Stage = "labels") -> NDArray[Any]:
        """Labels or values; before them "probabilities" or "scores" of each class."""
        if isinstance(self.after, Votes):
            if stage == "probabilities":
                raise CompileError("output: votes of pairs of classes have no probabilities; expected labels or scores")
            return self.after.decisions(scores) if stage == "scores" else self.after.decide(scores)
        return np.asarray(run_output_steps(self.after, scores, stage))

    def _check_keys(self, keys: Sequence[LevelledClientKey]) -> None:
        if [key.parameters for key in keys] != list(self.parameters):
            raise CompileError(f"keys: expected one for each of {list(map(str, self.parameters))}")

    # --- files ---

    def to_json(self) -> str:
        """The specification as a text, which `from_json` reads: what the model's server gives its clients."""
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
            "told": self.told.tolist(),
            "input_steps": steps_to_fields(self.input_steps),
            "votes": self.after.to_fields() if isinstance(self.after, Votes) else None,
            "output_steps": [] if votes else steps_to_fields(self.after),  # type: ignore[arg-type]
            "radial": None if self.radial is None else self.radial.to_fields(),
        }
        return json.dumps(fields)

    @classmethod
    def from_json(cls, text: str | bytes) -> BatchClient:
        """Raises: CompileError: not what `to_json` wrote."""
        try:
            fields = typed.parsed_object(text)
            if fields["format"] != FORMAT:
                raise ValueError("another format")
            moduli = [typed.integer(each, 2) for each in typed.entries(fields["plaintext_moduli"], MOST_MODULI)]
            parameters = tuple(LevelledParameters.of(typed.text(fields["set"]), each) for each in moduli)
            votes, radial = fields["votes"], fields["radial"]
            steps = output_steps_from_fields(fields["output_steps"])
            found = cls(
                parameters=parameters,
                packing=fields["packing"],
                level=typed.integer(fields["level"], 1, 255),
                answer_level=typed.integer(fields["answer_level"], 1, 255),
                products=typed.flag(fields["products"]),
                limit=typed.integer(fields["limit"], 1, _MOST_LIMIT),
                features=typed.integer(fields["features"], 1),
                unit=typed.reals(fields["unit"]),
                told=typed.reals(fields["told"]),
                input_steps=input_steps_from_fields(fields["input_steps"]),
                after=steps if votes is None else Votes.from_fields(votes),
                radial=None if radial is None else Radial.from_fields(radial),
            )
            with np.errstate(all="ignore"):  # of numbers that are refused
                found._check()
        except (KeyError, TypeError, ValueError, AttributeError, FheError) as error:
            raise CompileError(f"batches: expected a client's specification of this release ({error})") from None
        return found

    def _check(self) -> None:
        """ValueError where fields do not fit each other."""
        fits = (
            len(self.parameters) >= 1
            and len({each.plaintext_modulus for each in self.parameters}) == len(self.parameters)
            and self.packing in ("coefficients", "slots", "query")
            and 1 <= self.answer_level <= self.level <= self.parameters[0].levels
            and self.unit.ndim == 1
            and 1 <= len(self.unit)
            and self.told.shape == self.unit.shape
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
        if self.packing == "slots":
            for each in self.parameters:
                slots_of(each)
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
        self.decide(np.zeros((1, scores)))


@lru_cache(maxsize=8)
def slots_of(parameters: LevelledParameters) -> Slots:
    """The slots of a parameter set; made once."""
    return Slots(parameters)


def from_residues(residues: Sequence[NDArray[np.int64]], moduli: Sequence[int]) -> NDArray[Any]:
    """The integers of least absolute value of these residues, element by element by mixed radix: int64, or Python's integers beyond 2^62."""
    whole = math.prod(moduli)
    wide = whole >= 1 << 62
    found: NDArray[Any] = residues[0].astype(object) if wide else residues[0]
    product = moduli[0]
    for rest, t in zip(residues[1:], moduli[1:], strict=True):
        digit = (rest - found % t) % t * pow(product, -1, t) % t
        found = found + digit * product
        product *= t
    return np.where(found > whole // 2, found - whole, found)
