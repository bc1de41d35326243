"""Runs a client in a process of its own against the servers of cases."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from types import TracebackType
from typing import Final, Self

import pytest
from servers.cases import CASES
from servers.honest import SET
from servers.server import serving

MOST_SECONDS: Final = 10.0
MOST_MIB: Final = 512.0
_SIDE_BY_SIDE: Final = 4
_PATIENCE: Final = 2.0  # how many times as long until a client is ended


@dataclass(frozen=True)
class Result:
    """How a case ended: in an "answer", an "error" of ours, a "bare" exception, the process's "death" or "late"."""

    ended: str
    error: str
    message: str
    seconds: float
    peak_mib: float


class _Client:
    """One process for many cases; another where one of them ended it."""

    def __init__(self, command: list[str], set_name: str) -> None:
        self._command = command
        self._set = set_name
        self._process: subprocess.Popen[str] | None = None

    def result(self, name: str) -> Result:
        """Of the case of this name."""
        case = CASES[name]
        with serving(case, self._set) as server:
            asked = {"name": name, "url": server.url, "samples": case.samples, "toys": case.toys}
            asked["patience"] = (
                MOST_SECONDS if case.ends == "answer" else 1.0
            )  # an honest server may be slow on a busy machine
            return self._ask(json.dumps(asked))

    def _ask(self, line: str) -> Result:
        process, start = self._running(), time.monotonic()
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(line + "\n")
        process.stdin.flush()
        ready, _, _ = select.select([process.stdout], [], [], _PATIENCE * MOST_SECONDS)
        answer = process.stdout.readline() if ready else ""
        seconds = time.monotonic() - start
        if not answer:
            peak = _peak_mib(process.pid) if ready == [] else 0.0
            self.close()
            return Result("death" if ready else "late", "", "", seconds, peak)
        fields = json.loads(answer)
        return Result(fields["ended"], fields["error"], fields["message"], fields["seconds"], fields["peak_mib"])

    def _running(self) -> subprocess.Popen[str]:
        if self._process is None:
            environment = {**os.environ, "OMP_NUM_THREADS": "1"}
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
            )
        return self._process

    def close(self) -> None:
        """Ends the process."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.close()


class Ahead:
    """Results of cases that several clients work on side by side: most of them wait for a server."""

    def __init__(self, make: Callable[[], _Client], names: Iterable[str]) -> None:
        self._clients: SimpleQueue[_Client] = SimpleQueue()
        self._pool = ThreadPoolExecutor(_SIDE_BY_SIDE)
        for _ in range(_SIDE_BY_SIDE):
            self._clients.put(make())
        self._results = {name: self._pool.submit(self._result, name) for name in names}

    def result(self, name: str) -> Result:
        """Of the case of this name, when it has ended."""
        return self._results[name].result()

    def _result(self, name: str) -> Result:
        client = self._clients.get()
        try:
            return client.result(name)
        finally:
            self._clients.put(client)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._pool.shutdown(cancel_futures=True)
        while not self._clients.empty():
            self._clients.get().close()


class PythonClient(_Client):
    """The one of app/client."""

    def __init__(self, *options: str) -> None:
        super().__init__([sys.executable, str(Path(__file__).with_name("python_client.py")), *options], SET)


class WebClient(_Client):
    """The one of web/dist in Node, which lets no server name a toy set."""

    def __init__(self, *options: str) -> None:
        script = Path(__file__).with_name("web_client.mjs")
        super().__init__(["node", "--expose-gc", "--max-old-space-size=512", str(script), *options], "nn2")


def _peak_mib(process: int) -> float:
    fields = dict(line.split(":", 1) for line in Path(f"/proc/{process}/status").read_text().splitlines())
    return float(fields["VmHWM"].split()[0]) / 1024


def names_asked(request: pytest.FixtureRequest, function: str) -> list[str]:
    """Of the cases that a test function of the module runs with here, in its order."""
    tests = [test for test in request.session.items if test.path == request.path and isinstance(test, pytest.Function)]
    return [test.callspec.params["name"] for test in tests if test.originalname == function]
