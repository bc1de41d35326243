"""The engine's side of the socket: reads requests, runs them on a few threads, reports."""

from __future__ import annotations

import hashlib
import logging
import os
import socket
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from cloakwork.api.engine.devices import build_facts
from cloakwork.api.engine.messages import (
    AuditKeySecret,
    Cancel,
    Done,
    EngineOptions,
    Failed,
    ForgetKey,
    Hello,
    Message,
    Ping,
    Pong,
    Progressed,
    RequestPart,
    Started,
    StartRun,
    receive_blocking,
)
from cloakwork.api.engine.runner import Outcome, Progress, Runner, RunRequest, shares
from cloakwork.api.errors import NO_ROOM, DamagedKeyError, DamagedModelError, StorageFullError
from cloakwork.fhe_core.errors import CancelledError, FheError
from cloakwork.fhe_core.wire.files import SECRET_MODE, atomic_writer
from cloakwork.models.audit.audit_key import AuditKey

_REPORT_SECONDS: Final = 0.1

_log = logging.getLogger("cloakwork.engine")


@dataclass(frozen=True)
class _Ready:
    """A part that was read."""

    part: RequestPart
    request: RunRequest
    query: Any


class EngineProcess:
    def __init__(self, connection: socket.socket, options: EngineOptions) -> None:
        self._connection = connection
        self._runner = Runner(options)
        self._send_lock = threading.Lock()
        self._accepted: set[str] = set()
        self._cancelled: set[str] = set()
        self._running: dict[str, float] = {}  # since when
        self._moved: dict[str, float] = {}  # when each last began, or reported, something

    def serve(self) -> None:
        """Serves until the other side closes."""
        runner = self._runner
        self._send(Hello(os.getpid(), runner.residency.device, runner.workers, runner.spread, build_facts()))
        # Not as a context manager: that would wait for runs whose results nobody takes.
        pool = ThreadPoolExecutor(self._runner.workers, thread_name_prefix="run")
        beside = ThreadPoolExecutor(1, thread_name_prefix="beside")  # a long run, which has the only worker
        with self._connection.makefile("rb") as stream:
            while (message := receive_blocking(stream)) is not None:
                match message:
                    case AuditKeySecret(secret):
                        self._runner.take_audit_key(AuditKey(secret))
                    case StartRun(beside=is_long, parts=parts):
                        self._accepted |= {part.id for part in parts}
                        (beside if is_long else pool).submit(self._run, message)
                    case Cancel(identity):
                        self._cancelled |= self._accepted & {identity}
                    case ForgetKey(key):
                        self._runner.residency.forget(key)
                    case Ping(identity):
                        self._send(self._pong(identity))

    def _pong(self, identity: str) -> Pong:
        residency, moment = self._runner.residency, time.monotonic()
        return Pong(
            identity,
            residency.device,
            **residency.facts(),
            keys=residency.names(),
            runs={each: moment - began for each, began in self._running.copy().items()},
            quiet={each: moment - moved for each, moved in self._moved.copy().items()},
        )

    def _send(self, message: Message) -> None:
        data = message.to_bytes()
        with self._send_lock:
            try:
                self._connection.sendall(data)
            except OSError:
                os._exit(0)  # the web process is gone

    def _run(self, run: StartRun) -> None:
        began = time.perf_counter()
        ready: list[_Ready] = []
        self._move(run.parts)
        for part in run.parts:
            try:
                if part.id in self._cancelled:
                    raise CancelledError("cancelled before it began")
                if part.progress:
                    self._send(Started(part.id))
                body = part.body if part.input is None else Path(part.input).read_bytes()
                request = RunRequest(run.model, run.key, part.samples, body)
                ready.append(_Ready(part, request, self._runner.read(request)))
            except BaseException as error:
                self._failed(part, error)
        if ready:
            self._evaluate(ready, began)

    def _evaluate(self, ready: list[_Ready], began: float) -> None:
        """All as one; where that fails each by itself, so that the others go on and it has the message that it would have alone."""
        parts, requests = [each.part for each in ready], [each.request for each in ready]
        try:
            # Without anybody who wants to hear, none: a GPU would wait for each report. Such runs are short, and end by themselves.
            progress = self._progress(parts) if any(part.progress for part in parts) else None
            queries = [each.query for each in ready]
            self._running |= dict.fromkeys((part.id for part in parts), time.monotonic())
            self._move(parts)
            outcomes = self._runner.run(requests, queries, progress)
        except BaseException as error:
            if len(ready) > 1 and _is_of_one(error):
                for each in ready:
                    self._evaluate([each], time.perf_counter())
                return
            for part in parts:
                self._failed(part, error)
            return
        took = time.perf_counter() - began
        for part, outcome, busy in zip(parts, outcomes, shares(requests, took), strict=True):
            try:
                if part.id in self._cancelled:
                    raise CancelledError("cancelled")
                done = _answered(part, outcome)
                self._send(replace(done, busy_seconds=busy, took_seconds=took, together=len(parts)))
                self._over(part)
            except BaseException as error:
                self._failed(part, error)

    def _over(self, part: RequestPart) -> None:
        self._accepted.discard(part.id)
        self._cancelled.discard(part.id)
        self._running.pop(part.id, None)
        self._moved.pop(part.id, None)

    def _failed(self, part: RequestPart, error: BaseException) -> None:
        failure = _failure(part.id, error)
        if failure.code in ("out_of_memory", "internal_error"):
            _log.error("run %s failed", part.id, exc_info=error)
        self._send(failure)
        self._over(part)

    def _move(self, parts: Sequence[RequestPart]) -> None:
        self._moved |= dict.fromkeys((part.id for part in parts), time.monotonic())

    def _progress(self, parts: list[RequestPart]) -> Progress:
        """Of all as one, told to each as if it were alone, by its share; it ends when nobody wants any of them."""
        reported, every = 0.0, sum(part.samples for part in parts)

        def report(done: int, total: int) -> bool:
            nonlocal reported
            self._move(parts)
            if time.monotonic() - reported >= _REPORT_SECONDS:
                reported = time.monotonic()
                for part in parts:
                    if part.progress:
                        counts = done * part.samples // every, total * part.samples // every
                        self._send(Progressed(part.id, *counts))
            return any(part.id not in self._cancelled for part in parts)

        return report


def _answered(part: RequestPart, outcome: Outcome) -> Done:
    done = Done(part.id, outcome.seconds, outcome.device, len(outcome.body))
    if part.output is None:
        return replace(done, body=outcome.body)
    with atomic_writer(part.output, SECRET_MODE) as stream:
        stream.write(outcome.body)
    return replace(done, sha256=hashlib.sha256(outcome.body).hexdigest())


def _is_of_one(error: BaseException) -> bool:
    """Whether a run of several may have failed because of one of them, or of their number."""
    ours = isinstance(error, FheError) and not isinstance(error, (CancelledError, DamagedKeyError, DamagedModelError))
    return ours or isinstance(error, MemoryError)


def _failure(part: str, error: BaseException) -> Failed:
    """Returns what whoever asked hears: of our own errors the text, of others their class at most."""
    if isinstance(error, FheError):
        damaged = isinstance(error, DamagedKeyError), isinstance(error, DamagedModelError)
        return Failed(part, error.code, error.http_status, str(error), *damaged)
    if isinstance(error, FileNotFoundError):
        text = (
            "a file that the run needs is gone: its key was deleted, or the job was cancelled; send the request again"
        )
        return Failed(part, "gone", 410, text)
    if isinstance(error, MemoryError):
        text = "the engine has not enough memory for this run; send fewer samples"
        return Failed(part, "out_of_memory", 503, text)
    if isinstance(error, OSError) and error.errno in NO_ROOM:
        text = "the service had no room left to store the result; send the job again later"
        return Failed(part, StorageFullError.code, StorageFullError.http_status, text)
    text = f"the engine failed with {type(error).__name__}; the operator's log has the rest"
    return Failed(part, "internal_error", 500, text)
