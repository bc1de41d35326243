"""`cloakwork.Server`: a compiled model under one client's public keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from cloakwork.fhe_core.ciphertexts import SeededPackedCiphertexts
from cloakwork.fhe_core.evaluation_keys import EvaluationKeys
from cloakwork.fhe_core.levelled.ciphertexts import LevelledEvaluationKeys, SeededLevelledCiphertexts
from cloakwork.fhe_core.server import Session
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
    ) -> None:
        """Args:
            keys: of `Key.public`, or the bytes of them; of models for batches those for each plaintext modulus.
            device: "cpu", "cuda" or "cuda:N".
            threads: of the CPU.

        Raises:
            KeyMismatchError: keys of another parameter set.
            CompileError: another kind of model.
        """
        self.model = model
        self._batch: BatchScorer | None = None
        batch = cast("BatchModel | None", model if hasattr(model, "formula") else None)
        if batch is not None and batch.single is None:
            self._batch = batch.scorer([_levelled_keys(each) for each in keys], threads, device)
        elif isinstance(model, NeighbourIndex):
            self._scorer = model.scorer(_levelled_keys(keys), threads, device)
        elif (program := _program(model)) is not None:
            keys = EvaluationKeys.from_bytes(keys) if isinstance(keys, bytes) else keys
            self._runtime = Runtime(program, Session(keys, device, threads))
        else:
            raise CompileError(f"server: expected a compiled model or an index, got {type(model).__name__}")

    def answer(self, request: Any, progress: Progress = None) -> Any:
        """Compute the encrypted answer to an encrypted request.

        Args:
            request: of `model.client.encrypt`, or its bytes; of models for batches one for each plaintext modulus.
            progress: called with bootstraps done and in all.

        Raises:
            KeyMismatchError: encrypted with another key, or for another program.
            ShapeError: another number of values than the model takes.
        """
        if self._batch is not None:
            return self._batch.score([_query(each) for each in request], progress)
        if isinstance(self.model, NeighbourIndex):
            return self._scorer.score(_query(request), progress)
        if isinstance(request, bytes):
            request = SeededPackedCiphertexts.from_bytes(request)
        return self._runtime.answer(request, progress)


def _levelled_keys(keys: Any) -> LevelledEvaluationKeys:
    return LevelledEvaluationKeys.from_bytes(keys) if isinstance(keys, bytes) else keys


def _query(request: Any) -> SeededLevelledCiphertexts:
    return SeededLevelledCiphertexts.from_bytes(request) if isinstance(request, bytes) else request


def _program(model: Any) -> Program | None:
    return getattr(getattr(model, "single", model), "program", None)
