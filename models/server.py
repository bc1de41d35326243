"""`cloakwork.Server`: a compiled model under one client's public keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cloakwork.fhe_core.ciphertexts import SeededPackedCiphertexts
from cloakwork.fhe_core.evaluation_keys import EvaluationKeys
from cloakwork.fhe_core.levelled.ciphertexts import LevelledEvaluationKeys, SeededLevelledCiphertexts
from cloakwork.fhe_core.server import Session
from cloakwork.models.errors import CompileError
from cloakwork.models.neighbours.index import NeighbourIndex
from cloakwork.models.runtime import Progress, Runtime

if TYPE_CHECKING:
    from cloakwork.models.compiled import CompiledModel


class Server:
    """Answers encrypted requests; it has no secret key. `cloakwork serve` does the same over HTTP for many clients."""

    def __init__(self, model: CompiledModel | NeighbourIndex, keys: Any, device: str = "cpu", threads: int = 1) -> None:
        """Args:
            keys: of `Key.public`, or the bytes of them.
            device: "cpu", "cuda" or "cuda:N".
            threads: of the CPU.

        Raises:
            KeyMismatchError: keys of another parameter set.
            CompileError: another kind of model.
        """
        self.model = model
        if isinstance(model, NeighbourIndex):
            keys = LevelledEvaluationKeys.from_bytes(keys) if isinstance(keys, bytes) else keys
            self._scorer = model.scorer(keys, threads, device)
        elif hasattr(model, "program"):
            keys = EvaluationKeys.from_bytes(keys) if isinstance(keys, bytes) else keys
            self._runtime = Runtime(model.program, Session(keys, device, threads))
        else:
            raise CompileError(f"server: expected a compiled model or an index, got {type(model).__name__}")

    def answer(self, request: Any, progress: Progress = None) -> Any:
        """Compute the encrypted answer to an encrypted request.

        Args:
            request: of `model.client.encrypt`, or its bytes.
            progress: called with bootstraps done and in all.

        Raises:
            KeyMismatchError: encrypted with another key, or for another program.
            ShapeError: another number of values than the model takes.
        """
        if isinstance(self.model, NeighbourIndex):
            if isinstance(request, bytes):
                request = SeededLevelledCiphertexts.from_bytes(request)
            return self._scorer.score(request, progress)
        if isinstance(request, bytes):
            request = SeededPackedCiphertexts.from_bytes(request)
        return self._runtime.answer(request, progress)
