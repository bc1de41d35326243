"""A compiled model of batches: in clear by its integers, encrypted by its client and its server in one process, its report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from cloakwork.fhe_core.levelled.ciphertexts import LevelledEvaluationKeys
from cloakwork.fhe_core.levelled.evaluator import FAILURE_LOG2
from cloakwork.fhe_core.parameters import ParameterSet
from cloakwork.fhe_core.server import Session
from cloakwork.fhe_core.wire.files import PathLike
from cloakwork.models.arrays import Indices, Reals
from cloakwork.models.batches.batch_file import read_batch
from cloakwork.models.batches.batch_format import Alternative, BatchContents, SamplePacking, write_batch
from cloakwork.models.batches.client import BatchClient
from cloakwork.models.batches.formula import Formula
from cloakwork.models.batches.plan import BatchPlan, answer_noise
from cloakwork.models.batches.scorer import BatchScorer
from cloakwork.models.client_steps import Stage, no_samples
from cloakwork.models.compiled import CompiledModel
from cloakwork.models.errors import CompileError
from cloakwork.models.fresh_keys import fresh_keys
from cloakwork.models.modes import How, check_how
from cloakwork.models.program.facts import OriginalFacts
from cloakwork.models.report import bytes_line, four_lines, sample_p_fail_log2

if TYPE_CHECKING:
    from cloakwork.fhe_core.levelled.client import LevelledClientKey


_NEVER = -1000.0
_PACKINGS: Final[Mapping[SamplePacking, str]] = {"slots": "one sample a slot", "ciphertexts": "one ciphertext a sample"}


@dataclass(frozen=True, eq=False)
class BatchModel:
    """A model for batches of encrypted samples.

    Attributes:
        client: of levelled arithmetic; its steps and decisions are those of look-ups too.
        single: the program of one ciphertext a sample by look-ups' arithmetic; None where that is not what was chosen.
        batch: samples that it was compiled to score at once.
        considered: what was compared, the chosen alternative first.
        reason: of the choice.
        original: how it answers as the user's own model; None: that was not asked.
    """

    client: BatchClient
    formula: Formula
    plan: BatchPlan
    single: CompiledModel | None
    batch: int
    considered: tuple[Alternative, ...]
    reason: str
    original: OriginalFacts | None = None
    device: str = "cpu"  # of predict(how="encrypted"); not kept in files

    @property
    def packing(self) -> SamplePacking:
        """Returns how samples are packed: as the chosen alternative, the first of `considered`."""
        return self.considered[0].packing

    @property
    def key_parameters(self) -> Sequence[Any]:
        """Returns what keys are generated for: a set of look-ups, or a set and modulus for each of `BatchClient.parameters`."""
        return self.client.key_parameters

    def save(self, path: PathLike) -> None:
        """Write the model to one file, which `cloakwork.load`, the command line and the service read."""
        program = None if self.single is None else self.single.program
        given = (
            self.client,
            self.formula,
            self.plan,
            program,
            self.batch,
            self.considered,
            self.reason,
            self.original,
        )
        write_batch(path, BatchContents(*given))

    def __reduce__(self) -> Any:
        raise TypeError("a compiled model is not pickled; use save(path) and cloakwork.load(path)")

    @classmethod
    def load(cls, path: PathLike) -> BatchModel:
        """Read the file of a model for batches. Raises: SerializationError, KeyMismatchError: as `read_batch`."""
        contents = read_batch(path)
        single = None if contents.program is None else CompiledModel(contents.program)
        given = (
            contents.client,
            contents.formula,
            contents.plan,
            single,
            contents.batch,
            contents.considered,
            contents.reason,
        )
        return cls(*given, original=contents.original)

    def scorer(self, keys: Sequence[LevelledEvaluationKeys] = (), threads: int = 1, device: str = "cpu") -> BatchScorer:
        """Makes the server of levelled arithmetic. Args: keys: of `BatchClient.evaluation_keys`."""
        return BatchScorer(self.client, self.formula, keys, threads, device)

    def predict(
        self,
        x: Any,
        how: How = "clear",
        *,
        key: Any = None,
        session: Session | None = None,
        threads: int = 1,
        device: str | None = None,
        output: Stage = "labels",
    ) -> NDArray[Any]:
        """Returns labels or values; with `output` "scores" or "probabilities".

        Args:
            how: "clear" by the integers in clear; "simulate" the same, as nothing is approximate; "encrypted" encrypts, scores and decrypts.
            key: for "encrypted": as many as `key_parameters`, or one; None: they are made.
            session: of a program with that key; None: one is made.
            device: that scores, "cpu", "cuda" or "cuda:N". None: the one that it was compiled for.
        """
        scores = self.scores(x, how, key=key, session=session, threads=threads, device=device)
        return self.client.decide(scores, output)

    def predict_proba(self, x: Any, how: How = "clear", **options: Any) -> NDArray[Any]:
        """Predict the probabilities of a classifier, [samples, classes]. Args: as of `predict`. ParameterError: the model tells none."""
        return self.predict(x, how, output="probabilities", **options)

    def scores(
        self,
        x: Any,
        how: How = "clear",
        *,
        key: Any = None,
        session: Session | None = None,
        threads: int = 1,
        device: str | None = None,
    ) -> Reals:
        """Returns [samples, scores], before decisions. Args: as of `predict`."""
        check_how(how)
        device = device or self.device
        keys = self._keys(key, session) if how == "encrypted" else ()
        if self.single is not None:
            if not keys:
                return np.asarray(self.single.predict(x))
            session = session or Session(keys[0].evaluation_keys(), device=device, threads=threads)
            return np.asarray(self.single.predict(x, "encrypted", key=keys[0], session=session))
        integers = self.client.integers(x, refuse=True)
        outputs = self.encrypted_outputs(keys, integers, threads, device) if keys else self.outputs(integers)
        return self.client.scores(outputs, integers)

    def outputs(self, integers: Indices) -> NDArray[Any]:
        """Returns the server's integers [samples, outputs], in clear."""
        return self.formula.scores(integers, self.client.limit)

    def encrypted_outputs(
        self, keys: Sequence[LevelledClientKey], integers: Indices, threads: int = 1, device: str = "cpu"
    ) -> NDArray[Any]:
        """Returns the same by ciphertexts."""
        scorer = self.scorer(self.client.evaluation_keys(keys), threads, device)
        parts = [
            self.client.outputs(keys, scorer.score(self.client.encrypt_integers(keys, part)), len(part))
            for part in _parts(integers, self.client.samples_at_once)
        ]
        return np.concatenate(parts) if parts else np.zeros((0, self.formula.outputs), dtype=np.int64)

    def _keys(self, key: Any, session: Session | None) -> Sequence[Any]:
        if key is None:
            if session is not None:
                raise CompileError("predict: got a session without its key, which decrypts the result; pass key=")
            return fresh_keys(self.key_parameters)
        key = getattr(key, "parts", key)  # of a `cloakwork.Key`
        keys = tuple(key) if isinstance(key, Sequence) else (key,)
        if self.single is not None:
            parameters = [getattr(each, "parameters", None) for each in keys]
            if (
                len(parameters) != 1
                or not isinstance(parameters[0], ParameterSet)
                or parameters[0].name != self.single.program.parameters.name
            ):
                raise CompileError(f"key: expected a ClientKey of the set '{self.single.program.parameters.name}'")
        return keys

    def report(self) -> dict[str, Any]:
        """Reports what it costs, why so, how fine it is, and who learns what."""
        chosen = self.considered[0]
        first = self.client.parameters[0]
        return {
            "packing": chosen.packing,
            "kind": chosen.kind,
            "reason": self.reason,
            "batch": self.batch,
            "considered": [
                {
                    "packing": each.packing,
                    "kind": each.kind,
                    "agreement": each.agreement,
                    "milliseconds_a_sample": each.cost.total_ms,
                    "server_ms": each.cost.server_ms,
                    "client_ms": each.cost.client_ms,
                    "transfer_ms": each.cost.transfer_ms,
                    "up_bytes": each.cost.up_bytes,
                    "down_bytes": each.cost.down_bytes,
                }
                for each in self.considered
            ],
            "parameter_set": first.set.name if self.single is None else self.single.program.parameters.name,
            "plaintext_moduli": []
            if self.single is not None
            else [p.plaintext_modulus for p in self.client.parameters],
            "levels": None if self.single is not None else [self.client.level, self.client.answer_level],
            "security_bits": first.set.security_bits
            if self.single is None
            else self.single.program.parameters.security_bits,
            "failure_log2": self.plan.failure_log2 if self.single is None else sample_p_fail_log2(self.single.program),
            "evaluation_keys": self.single is not None or self.client.products or self.client.packing == "query",
            "feature_range": self.client.limit if self.single is None else None,
            "agreement": chosen.agreement,
            "original": None if self.original is None else self.original.to_fields(),
            "client_learns": _learns(self.client),
            "server_learns": "nothing of the samples",
        }

    def __str__(self) -> str:
        chosen = self.considered[0]
        accuracy = (
            f"as your model: {100 * chosen.agreement:.1f} % agreement" if self.original is None else self.original.text
        )
        seconds = f"seconds for one sample: {chosen.cost.server_ms / 1000:.3g} in batches of {self.batch} (forecast for one CPU thread)"
        sizes = bytes_line(
            chosen.cost.up_bytes, chosen.cost.down_bytes, None if self.report()["evaluation_keys"] else 0
        )
        return four_lines(accuracy, seconds, sizes, _learns(self.client))

    @property
    def details(self) -> str:
        """The report as text: why this packing, what the others would cost, and the failure probability. `str(model)` has four lines of it."""
        report = self.report()
        lines = [] if self.original is None else [self.original.text]
        lines += [f"{_PACKINGS[report['packing']]}: {report['kind']}", report["reason"]]
        lines += [
            f"{_PACKINGS[each['packing']]}, {each['kind']}: {each['milliseconds_a_sample']:.3g} ms a sample (server {each['server_ms']:.3g}, client "
            f"{each['client_ms']:.3g}, transfer {each['transfer_ms']:.3g}), {each['up_bytes']:.0f} bytes up, {each['down_bytes']:.0f} down"
            for each in report["considered"]
        ]
        lines.append(
            f"set {report['parameter_set']}, failure below 2^{max(report['failure_log2'], _NEVER):.0f}, agreement {100 * report['agreement']:.1f} %"
        )
        lines.append(f"the client learns {report['client_learns']}")
        return "\n".join(lines)


def _learns(client: BatchClient) -> str:
    if client.radial is None:
        return "the decision scores"
    return (
        "inner products with every support vector, and with the weights that it is told the support vectors themselves"
    )


def _parts(integers: Indices, count: int) -> Iterator[Indices]:
    for first in range(0, len(integers), count):
        yield integers[first : first + count]


# Facts of a model for batches that a service needs: sizes, keys, the client's specification.


def batch_facts(model: BatchModel) -> dict[str, Any]:
    """Returns plain JSON, in the words that facts of programs use (`cloakwork.models.repository`); of one by look-ups what its program's do not say.

    What a service counts is queries, each of up to `samples_per_ciphertext` samples.
    """
    facts = {"packing": "program", "client": model.client.to_json(), "report": model.report()}
    return facts if model.single is not None else _levelled_facts(model) | facts | {"packing": model.client.packing}


def _levelled_facts(model: BatchModel) -> dict[str, Any]:
    client, keys = model.client, model.client.key_shapes
    first, levels = client.parameters[0], (client.level, client.answer_level)
    key_count = sum(len(each.numbers) for each in keys.shapes)
    return {
        "parameter_set": first.set.name,
        "plaintext_moduli": [each.plaintext_modulus for each in client.parameters],
        "parameter_digest": keys.digest.hex(),
        "security_bits": first.set.security_bits,
        "structured_secret": False,
        "samples_per_ciphertext": client.samples_at_once,
        "p_fail_log2_per_lookup": None,
        "p_fail_log2_per_program": FAILURE_LOG2,  # at most, of every ciphertext of an answer
        "input_shape": list(np.shape(np.asarray(no_samples(client.input_steps)))[1:]),
        "input_numbers": client.features,
        "output_shape": [len(client.unit)],
        "output_numbers": len(client.unit),
        "level": client.level,
        "answer_level": client.answer_level,
        "query_ciphertexts": client.query_ciphertexts,  # for each plaintext modulus
        "answer_ciphertexts": client.answer_ciphertexts,
        "answer_variances": len(answer_noise(model.formula, first, client.packing, levels).variances),
        "forecast_seconds": _query_seconds(model),
        "bootstraps": 0,
        "evaluation_key_bytes": keys.byte_count,
        "expanded_key_bytes": key_count * 2 * first.switch_key_bytes,
        "largest_batch": 1,
    }


def _query_seconds(model: BatchModel) -> float:
    """Returns the query seconds of the server, as foreseen: costs are of a sample among `model.batch`."""
    queries = -(-model.batch // model.client.samples_at_once)
    return model.plan.cost.server_ms / 1000 * model.batch / queries
