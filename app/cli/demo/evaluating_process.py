"""The server's half of a demonstration, in a process of its own: `python -m cloakwork.app.cli.demo.evaluating_process`.

It gets a compiled program, evaluation keys and ciphertexts as frames on standard input, and answers on standard output. It never imports the
secret side (import-linter checks), so there is nothing in it that could decrypt.

| request | bytes | answer |
|---|---|---|
| `program` | a compiled program | `ready` with `seconds` |
| `keys` with `device`, `threads` | evaluation keys | `ready` with `seconds`, and `samples` that fit into one `run` |
| `run` | packed ciphertexts | any number of `progress`, then `result` with `seconds` and the ciphertexts |

A request that fails is answered with `error` and one line of text.
"""

from __future__ import annotations

import os
import sys
import time
from typing import IO, Any

from cloakwork.app.cli.demo.frames import FrameError, read_frame, write_frame
from cloakwork.fhe_core.ciphertexts import SeededPackedCiphertexts
from cloakwork.fhe_core.errors import FheError
from cloakwork.fhe_core.server import Session
from cloakwork.fhe_core.session.evaluation_keys import EvaluationKeys
from cloakwork.models.program import Program
from cloakwork.models.program.artefact import program_from_bytes
from cloakwork.models.runtime import Runtime, samples_at_once

_PROGRESS_SECONDS = 0.1


class Evaluation:
    """State between requests: a program, then a runtime."""

    def __init__(self, output: IO[bytes]) -> None:
        self._output = output
        self._program: Program | None = None
        self._runtime: Runtime | None = None

    def answer(self, fields: dict[str, Any], payload: bytes) -> None:
        start = time.perf_counter()
        match fields.get("request"):
            case "program":
                self._program, self._runtime = program_from_bytes(payload), None
                write_frame(self._output, {"answer": "ready", "seconds": time.perf_counter() - start})
            case "keys" if self._program is not None:
                keys = EvaluationKeys.from_bytes(payload)
                session = Session(keys, device=str(fields["device"]), threads=int(fields["threads"]))
                self._runtime = Runtime(self._program, session)
                ready = {"seconds": time.perf_counter() - start, "samples": samples_at_once(self._program, session)}
                write_frame(self._output, {"answer": "ready", **ready})
            case "run" if self._runtime is not None:
                result = self._runtime.answer(SeededPackedCiphertexts.from_bytes(payload), self._progress()).to_bytes()
                write_frame(self._output, {"answer": "result", "seconds": time.perf_counter() - start}, result)
            case request:
                raise FrameError(f"expected 'program', 'keys' and 'run' in this order, got '{request}'")

    def _progress(self) -> Any:
        """Reports at most ten times a second."""
        last = time.perf_counter()

        def report(done: int, total: int) -> bool:
            nonlocal last
            now = time.perf_counter()
            if now - last >= _PROGRESS_SECONDS:
                last = now
                write_frame(self._output, {"answer": "progress", "done": done, "total": total})
            return True

        return report


def serve(stream: IO[bytes], output: IO[bytes]) -> None:
    """Answers requests until the stream ends."""
    evaluation = Evaluation(output)
    while (frame := read_frame(stream)) is not None:
        try:
            evaluation.answer(*frame)
        except (FheError, FrameError, MemoryError, KeyError, TypeError, ValueError) as error:
            write_frame(output, {"answer": "error", "text": str(error) or "no reason given"})


def main() -> None:
    output = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # nothing that prints can disturb the frames
    try:
        serve(sys.stdin.buffer, output)
    except (KeyboardInterrupt, BrokenPipeError):
        sys.exit(130)


if __name__ == "__main__":
    main()
