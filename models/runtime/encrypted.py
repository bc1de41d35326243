"""Runs a program on ciphertexts: its schedule, on the machine of the session's device (models/runtime/machines/). Public side only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TypeAlias

import numpy as np

from cloakwork.fhe_core.ciphertexts import Ciphertexts, check_same_key
from cloakwork.fhe_core.server import Session
from cloakwork.fhe_core.session.extraction import Packed
from cloakwork.fhe_core.switched_ciphertexts import SwitchedCiphertexts
from cloakwork.fhe_core.words import Progress
from cloakwork.models.errors import ShapeError
from cloakwork.models.program import Program
from cloakwork.models.program.answers import answer_bits
from cloakwork.models.program.purpose import check_purpose
from cloakwork.models.runtime.machines.device import DeviceProgram, device_samples
from cloakwork.models.runtime.machines.host import HostProgram

__all__ = ["WORKING_BYTES", "Progress", "Runtime", "samples_at_once", "samples_in_memory", "shifted_progress"]

WORKING_BYTES = 1 << 30

Answer: TypeAlias = Ciphertexts | SwitchedCiphertexts
Seed: TypeAlias = Callable[[Ciphertexts], bytes]
"""32 secret bytes for what `run` gave."""


class Runtime:
    """A program on one session. Tables are built once; `run` may be called any number of times, from several threads."""

    def __init__(self, program: Program, session: Session) -> None:
        if session.parameters != program.parameters:
            raise ShapeError(
                f"session: expected keys of parameter set '{program.parameters.name}', got '{session.parameters.name}'; "
                "make keys for the set that the program was compiled for"
            )
        self.program = program
        self._session = session
        self._numbers = program.graph.input.size
        self._held = HostProgram(program, session) if session.device == "cpu" else DeviceProgram(program, session)

    def run(self, x: Packed, progress: Progress = None) -> Ciphertexts:
        """Computes encrypted samples [samples, numbers] -> encrypted outputs [samples, numbers], without the client's steps.

        With lanes a row is that of lane_count samples.

        The same words on every device and in every run: for audits, and not for the client, whom they tell the model's weights; see `answer`.

        Args:
            progress: progress(bootstraps done, bootstraps of the batch); returning False cancels.

        Raises:
            ShapeError: another number of numbers for a sample.
            KeyMismatchError: encrypted for another program, or for none, or under another key.
        """
        return self.run_parts([x], progress)[0]

    def run_parts(self, parts: Sequence[Packed], progress: Progress = None) -> list[Ciphertexts]:
        """Computes `run` of each, with the same words, as one batch: what few samples leave idle has something to do. All of the session's key."""
        for x in parts:
            self._check(x)
        ciphertexts = self._held.run(parts, progress).with_purpose(self.program.digest)
        if len(parts) == 1:
            return [ciphertexts]
        ends = np.cumsum([x.shape[0] for x in parts])
        return [
            self._part(ciphertexts, slice(end - x.shape[0], end)) for x, end in zip(parts, ends.tolist(), strict=True)
        ]

    def answer(self, x: Packed, progress: Progress = None, *, seed: Seed | None = None) -> Answer:
        """Computes `run`, re-randomised, and then in as few bits as its noise leaves: what may be sent to the client.

        Other words at every call, unless `seed` gives 32 secret bytes for what `run` gave (`models.audit.AuditKey.seed`).
        """
        return self.answer_parts([x], progress, seeds=[seed])[0]

    def answer_parts(
        self, parts: Sequence[Packed], progress: Progress = None, *, seeds: Sequence[Seed | None]
    ) -> list[Answer]:
        """Computes `answer` of each, byte for byte, with a seed of its own, evaluated as one batch."""
        ciphertexts = self.run_parts(parts, progress)
        return [self.release(words, seed=seed) for words, seed in zip(ciphertexts, seeds, strict=True)]

    def release(self, outputs: Ciphertexts, *, seed: Seed | None = None) -> Answer:
        """Makes of what `run` gave what may be sent to the client, as `answer` does it. On CPUs alone: a GPU may `run` something else meanwhile."""
        words = outputs.to_host()
        result = self._session.rerandomise(words, None if seed is None else seed(words))
        if self._answer_bits is None:
            return result
        return SwitchedCiphertexts.switch(result, self._answer_bits, self._session.host_threads)

    def _check(self, x: Packed) -> None:
        if len(x.shape) != 2 or x.shape[1] != self._numbers:
            raise ShapeError(
                f"input: expected packed ciphertexts of shape ['samples', {self._numbers}], got {list(x.shape)}; "
                "encrypt with the model's client specification"
            )
        check_purpose(x.purpose, self.program.digest, "input", "encrypt with the model's client specification")
        key_id = self._session.expanded_key.key_id
        check_same_key(self.program.parameters, key_id, x.parameters, x.key_id, "packed ciphertexts")

    def _part(self, batch: Ciphertexts, part: slice) -> Ciphertexts:
        """Returns some samples, as a run of them alone gives them."""
        words = batch.words[part]
        alone = Ciphertexts(batch.parameters, words, words.shape[:-1], encoding=batch.encoding, key_id=batch.key_id)
        return alone.with_purpose(batch.purpose)

    @cached_property
    def _answer_bits(self) -> int | None:
        return answer_bits(self.program)


def samples_at_once(program: Program, session: Session | None = None) -> int:
    """Returns samples of one call of `run`: the ciphertexts that are held at once stay within WORKING_BYTES, on GPUs within a part of the free
    memory.

    As `run` counts them: with lanes rows of ciphertexts.
    """
    if session is not None and session.device != "cpu":
        return device_samples(program, session)
    return max(1, WORKING_BYTES // program.held_bytes)


def samples_in_memory(program: Program, memory_bytes: int) -> int:
    """Returns the most samples of one call of `run` on a CPU: what is held at once takes at most half of the free bytes."""
    return max(1, samples_at_once(program) * (memory_bytes // 2) // WORKING_BYTES)


def shifted_progress(progress: Progress, done: int, total: int) -> Progress:
    """Shifts the progress for one batch of several: counts from `done`, of `total`."""
    return None if progress is None else lambda part, _: progress(done + part, total)
