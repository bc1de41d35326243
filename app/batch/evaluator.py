"""A program with one key on one device: bytes of ciphertexts in, bytes of encrypted results out. Knows neither Ray nor stores."""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass

from cloakwork.fhe_core.ciphertexts import Ciphertexts, SeededPackedCiphertexts
from cloakwork.fhe_core.errors import ShapeError
from cloakwork.fhe_core.machine import memory_bytes
from cloakwork.fhe_core.server import Session
from cloakwork.fhe_core.session.evaluation_keys import EvaluationKeys
from cloakwork.models.program.artefact import program_from_bytes
from cloakwork.models.program.purpose import check_purpose
from cloakwork.models.runtime import Runtime, samples_in_memory


@dataclass(frozen=True)
class Answer:
    body: bytes
    samples: int
    seconds: float  # of the engine alone


class Evaluator:
    def __init__(self, program: bytes, keys: bytes, *, device: str, threads: int, deterministic: bool) -> None:
        self._program = program_from_bytes(program)
        session = Session(EvaluationKeys.from_bytes(keys, parameters=self._program.parameters), device, threads)
        self._runtime, self._deterministic = Runtime(self._program, session), deterministic
        self._overlaps = device != "cpu"
        self._most = samples_in_memory(self._program, _memory_bytes(threads)) if device == "cpu" else None
        self._lock = threading.Lock()  # a session computes one thing at a time

    def answer(self, data: bytes) -> Answer:
        """Evaluates one object of seeded packed ciphertexts [samples, numbers] -> what `cloakwork run` writes of it.

        Raises:
            FheError: damaged, of another key or model, or too large for this machine's memory.
        """
        inputs = SeededPackedCiphertexts.from_bytes(data, parameters=self._program.parameters)
        check_purpose(inputs.purpose, self._program.digest, "input", "encrypt with the model's client specification")
        if self._most is not None and inputs.shape and inputs.shape[0] > self._most:
            raise ShapeError(
                f"input: expected at most {self._most} samples for the memory of a worker, got {inputs.shape[0]}; encrypt them to several files"
            )
        with self._lock:
            start = time.perf_counter()
            outputs = self._runtime.run(inputs)
            body = None if self._overlaps else self._released(outputs)
            seconds = time.perf_counter() - start
        if body is None:  # on the CPUs, while the GPU computes the next input
            body = self._released(outputs)
        return Answer(body, inputs.shape[0], seconds)

    def _released(self, outputs: Ciphertexts) -> bytes:
        return (outputs if self._deterministic else self._runtime.release(outputs)).to_bytes()


def _memory_bytes(threads: int) -> int:
    """This worker's share, where every CPU of the machine belongs to one."""
    workers = max(1, (os.cpu_count() or 1) // threads)
    return memory_bytes() // workers
