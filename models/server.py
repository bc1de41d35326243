"""`cloakwork.Server`: a compiled model under one client's public keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from cloakwork.fhe_core.ciphertexts import SeededPackedCiphertexts
from cloakwork.fhe_core.errors import KeyMismatchError
from cloakwork.fhe_core.levelled.ciphertexts import LevelledEvaluationKeys, SeededLevelledCiphertexts
from cloakwork.fhe_core.levelled.neighbours.expansion_keys import ExpansionKeyShape
from cloakwork.fhe_core.levelled.several import split_bytes
from cloakwork.fhe_core.levelled.wire import Kind
from cloakwork.fhe_core.server import Session
from cloakwork.fhe_core.session.evaluation_keys import EvaluationKeys
from cloakwork.models.batches.scorer import BatchScorer
from cloakwork.models.errors import CompileError
from cloakwork.models.neighbours.index import NeighbourIndex
from cloakwork.models.program import Program
from cloakwork.models.runtime import Progress, Runtime

if TYPE_CHECKING:
    from cloakwork.models.batches.model import BatchModel
    from cloakwork.models.compiled import CompiledModel


class Server:
    """Answers encrypted requests; it has no secret key. `cloakwork serve` does the same over HTTP for many clients."""

    def __init__(
        self,
        model: CompiledModel | BatchModel | NeighbourIndex,
        keys: Any,
        device: str = "cpu",
        threads: int = 1,
        progress: Progress = None,
    ) -> None:
        """Args:
            keys: of `Key.public`, or the bytes of them (`Key.save_public`).
            device: "cpu", "cuda" or "cuda:N".
            threads: of the CPU.
            progress: called with steps done and in all, while keys are expanded or the table is prepared.

        Raises:
            KeyMismatchError: keys of another parameter set, or made for another model.
            CompileError: another kind of model.
        """
        if hasattr(keys, "public"):
            raise KeyMismatchError(
                "server: expected public keys, got the secret key, which stays with the client; pass key.public()"
            )
        self.model = model
        self._batch: BatchScorer | None = None
        batch = cast("BatchModel | None", model if hasattr(model, "formula") else None)
        if batch is not None and batch.single is None:
            self._batch = batch.scorer(_levelled_keys(keys, batch.client.key_shapes.shapes), threads, device)
        elif isinstance(model, NeighbourIndex):
            (evaluation_keys,) = _levelled_keys(keys, [model.client.key_shape])
            self._scorer = model.scorer(evaluation_keys, threads, device, progress)
        elif (program := _program(model)) is not None:
            keys = EvaluationKeys.from_bytes(keys) if isinstance(keys, bytes) else keys
            self._runtime = Runtime(program, Session(keys, device, threads, progress=progress))
        else:
            raise CompileError(f"server: expected a compiled model or an index, got {type(model).__name__}")

    def answer(self, request: Any, progress: Progress = None) -> Any:
        """Compute the encrypted answer to an encrypted request.

        Args:
            request: of `model.client.encrypt`, or its bytes; of models for batches one for each plaintext modulus, or the bytes of all; of
                indices one query or a list.
            progress: called with bootstraps done and in all.

        Raises:
            KeyMismatchError: encrypted with another key, or for another program.
            ShapeError: another number of values than the model takes.
        """
        if self._batch is not None:
            each = split_bytes(request, Kind.SEEDED_CIPHERTEXTS) if isinstance(request, bytes) else request
            return self._batch.score([_query(one) for one in each], progress)
        if isinstance(self.model, NeighbourIndex):
            if isinstance(request, list):
                return self._scorer.score_all([_query(each) for each in request], progress)
            return self._scorer.score(_query(request), progress)
        if isinstance(request, bytes):
            request = SeededPackedCiphertexts.from_bytes(request)
        return self._runtime.answer(request, progress)


def _levelled_keys(keys: Any, shapes: Sequence[ExpansionKeyShape]) -> list[LevelledEvaluationKeys]:
    """Returns keys of each plaintext modulus; none if the model needs none, though its client's file holds their headers."""
    given = split_bytes(keys, Kind.EVALUATION_KEYS) if isinstance(keys, bytes) else keys
    evaluation_keys = [
        LevelledEvaluationKeys.from_bytes(each) if isinstance(each, bytes | memoryview) else each
        for each in (given if isinstance(given, Sequence) else [given])
    ]
    if not any(each.numbers for each in shapes) and not any(each.keys for each in evaluation_keys):
        return []
    required = [(shape.parameters, set(shape.numbers)) for shape in shapes]
    if len(evaluation_keys) != len(required) or not all(
        each.parameters == parameters and numbers <= set(each.keys)
        for each, (parameters, numbers) in zip(evaluation_keys, required, strict=True)
    ):
        names = " and ".join(parameters.label for parameters, _ in required)
        raise KeyMismatchError(f"keys: expected evaluation keys of {names}, made for this model, got others")
    return evaluation_keys


def _query(request: Any) -> SeededLevelledCiphertexts:
    return SeededLevelledCiphertexts.from_bytes(request) if isinstance(request, bytes | memoryview) else request


def _program(model: Any) -> Program | None:
    return getattr(getattr(model, "single", model), "program", None)
