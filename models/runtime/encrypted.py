"""Runs a program on ciphertexts: its schedule, on the machine of the session's device (models/runtime/machines/). Public side only."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

from cloakwork.fhe_core.arrays import Progress
from cloakwork.fhe_core.ciphertexts import Ciphertexts, PackedCiphertexts, SeededPackedCiphertexts
from cloakwork.fhe_core.server import Session
from cloakwork.fhe_core.switched_ciphertexts import SwitchedCiphertexts
from cloakwork.models.errors import ShapeError
from cloakwork.models.program import Program
from cloakwork.models.program.answers import answer_bits
from cloakwork.models.program.purpose import check_purpose
from cloakwork.models.runtime.machines.device import DeviceProgram, device_samples
from cloakwork.models.runtime.machines.host import HostProgram

__all__ = ["WORKING_BYTES", "Progress", "Runtime", "samples_at_once", "samples_in_memory", "shifted_progress"]

WORKING_BYTES = 1 << 30


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

    def run(self, x: SeededPackedCiphertexts | PackedCiphertexts, progress: Progress = None) -> Ciphertexts:
        """Encrypted samples [samples, numbers] -> encrypted outputs [samples, numbers], without the client's steps.

        With lanes a row is that of lane_count samples.

        The same words on every device and in every run: for audits, and not for the client, whom they tell the model's weights; see `answer`.

        Args:
            progress: progress(bootstraps done, bootstraps of the batch); returning False cancels.

        Raises:
            ShapeError: another number of numbers for a sample.
            KeyMismatchError: encrypted for another program, or for none.
        """
        if len(x.shape) != 2 or x.shape[1] != self._numbers:
            raise ShapeError(
                f"input: expected packed ciphertexts of shape ['samples', {self._numbers}], got {list(x.shape)}; "
                "encrypt with the model's client specification"
            )
        check_purpose(x.purpose, self.program.digest, "input", "encrypt with the model's client specification")
        return self._held.run(x, progress).with_purpose(self.program.digest)

    def answer(
        self,
        x: SeededPackedCiphertexts | PackedCiphertexts,
        progress: Progress = None,
        *,
        seed: Callable[[Ciphertexts], bytes] | None = None,
    ) -> Ciphertexts | SwitchedCiphertexts:
        """`run`, re-randomised, and then in as few bits as its noise leaves: what may be sent to the client.

        Other words at every call, unless `seed` gives 32 secret bytes for what `run` gave (`models.audit.AuditKey.seed`).
        """
        return self.release(self.run(x, progress), seed=seed)

    def release(
        self, outputs: Ciphertexts, *, seed: Callable[[Ciphertexts], bytes] | None = None
    ) -> Ciphertexts | SwitchedCiphertexts:
        """What `run` gave -> what may be sent to the client, as `answer` does it. On CPUs alone: a GPU may `run` something else meanwhile."""
        words = outputs.to_host()
        result = self._session.rerandomise(words, None if seed is None else seed(words))
        if self._answer_bits is None:
            return result
        return SwitchedCiphertexts.switch(result, self._answer_bits, self._session.host_threads)

    @cached_property
    def _answer_bits(self) -> int | None:
        return answer_bits(self.program)


def samples_at_once(program: Program, session: Session | None = None) -> int:
    """Samples of one call of `run`: the ciphertexts that are held at once stay within WORKING_BYTES, on GPUs within a part of the free memory.

    As `run` counts them: with lanes rows of ciphertexts.
    """
    if session is not None and session.device != "cpu":
        return device_samples(program, session)
    return max(1, WORKING_BYTES // program.held_bytes)


def samples_in_memory(program: Program, memory_bytes: int) -> int:
    """The most samples of one call of `run` on a CPU: what is held at once takes at most half of so many bytes."""
    return max(1, samples_at_once(program) * (memory_bytes // 2) // WORKING_BYTES)


def shifted_progress(progress: Progress, done: int, total: int) -> Progress:
    """For one batch of several: counts from `done`, of `total`."""
    return None if progress is None else lambda part, _: progress(done + part, total)
