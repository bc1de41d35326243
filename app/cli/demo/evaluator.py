"""A server without the key, started as a separate process; only bytes pass to it: a program, evaluation keys, ciphertexts."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from cloakwork.app.cli.demo.frames import FrameError, read_frame, write_frame
from cloakwork.app.cli.shared.console import FailureError, ProgressCallback
from cloakwork.app.cli.shared.passphrase import ENVIRONMENT_VARIABLE

_STOP_SECONDS = 5


@dataclass(frozen=True)
class Loaded:
    seconds: float  # that the server took to expand the keys for its device
    samples: int  # that fit into one run


@dataclass(frozen=True)
class Evaluated:
    ciphertexts: bytes
    seconds: float  # of the server's work: bytes in, bytes out


class Evaluator:
    """The client's handle on the server process; use it as a context."""

    def __init__(self) -> None:
        environment = {key: value for key, value in os.environ.items() if key != ENVIRONMENT_VARIABLE}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "cloakwork.app.cli.demo.evaluating_process"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            process_group=0,  # Ctrl-C in the terminal is for the client, which ends the server
        )

    @property
    def process_id(self) -> int:
        return self._process.pid

    def load(self, program: bytes, evaluation_keys: bytes, device: str, threads: int) -> Loaded:
        self._ask({"request": "program"}, program)
        fields, _ = self._ask({"request": "keys", "device": device, "threads": threads}, evaluation_keys)
        return Loaded(float(fields["seconds"]), int(fields["samples"]))

    def run(self, ciphertexts: bytes, progress: ProgressCallback | None = None) -> Evaluated:
        fields, payload = self._ask({"request": "run"}, ciphertexts, progress)
        return Evaluated(payload, float(fields["seconds"]))

    def _ask(
        self, fields: dict[str, Any], payload: bytes, progress: ProgressCallback | None = None
    ) -> tuple[dict[str, Any], bytes]:
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            write_frame(self._process.stdin, fields, payload)
            while (frame := read_frame(self._process.stdout)) is not None:
                answer = frame[0]["answer"]
                if answer == "error":
                    raise FailureError(f"server: {frame[0]['text']}")
                if answer != "progress":
                    return frame
                if progress is not None:
                    progress(int(frame[0]["done"]), int(frame[0]["total"]))
        except (BrokenPipeError, FrameError) as error:
            raise FailureError(f"the server process stopped: {error}") from error
        raise FailureError("the server process stopped; its messages are above")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Ends the process: by itself where its input ends, else by force."""
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            if error is not None:
                self._process.terminate()
            self._process.stdin.close()
        except BrokenPipeError:
            pass
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
