"""The engine's side of the socket: reads requests, runs them on a few threads, reports."""

from __future__ import annotations

import hashlib
import logging
import os
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

from cloakwork.api.engine.devices import build_facts
from cloakwork.api.engine.messages import Message, pack, receive_blocking
from cloakwork.api.engine.options import EngineOptions
from cloakwork.api.engine.parts import RequestPart, parts_of
from cloakwork.api.engine.requests import Outcome, Progress, RunRequest, shares
from cloakwork.api.engine.runner import Runner
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
        self._send(
            {
                "event": "hello",
                "pid": os.getpid(),
                "device": self._runner.residency.device,
                "workers": self._runner.workers,
                "spread": self._runner.spread,
                "build": build_facts(),
            }
        )
        # Not as a context manager: that would wait for runs whose results nobody takes.
        pool = ThreadPoolExecutor(self._runner.workers, thread_name_prefix="run")
        beside = ThreadPoolExecutor(1, thread_name_prefix="beside")  # a long run, which has the only worker
        with self._connection.makefile("rb") as stream:
            while (received := receive_blocking(stream)) is not None:
                message, body = received
                match message["op"]:
                    case "audit_key":
                        self._runner.take_audit_key(AuditKey(body))
                    case "run":
                        parts = parts_of(message, body)
                        self._accepted |= {part.id for part in parts}
                        (beside if message["beside"] else pool).submit(self._run, parts)
                    case "cancel":
                        self._cancelled |= self._accepted & {message["id"]}
                    case "forget":
                        self._runner.residency.forget(message["key"])
                    case "ping":
                        self._send(
                            {
                                "event": "pong",
                                "id": message["id"],
                                **self._runner.residency.facts(),
                                "keys": self._runner.residency.names(),
                                "runs": self._runs(),
                                "quiet": self._quiet(),
                            }
                        )

    def _send(self, message: Message, body: bytes = b"") -> None:
        data = pack(message, body)
        with self._send_lock:
            try:
                self._connection.sendall(data)
            except OSError:
                os._exit(0)  # the web process is gone

    def _run(self, parts: list[RequestPart]) -> None:
        began = time.perf_counter()
        ready: list[_Ready] = []
        self._move(parts)
        for part in parts:
            try:
                if part.id in self._cancelled:
                    raise CancelledError("cancelled before it began")
                if part.progress:
                    self._send({"event": "started", "id": part.id})
                request = part.request()
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
            times = {"busy_seconds": busy, "took_seconds": took, "together": len(parts)}
            try:
                if part.id in self._cancelled:
                    raise CancelledError("cancelled")
                done, body = _answered(part, outcome)
                self._send({**done, **times}, body)
                self._over(part)
            except BaseException as error:
                self._failed(part, error)

    def _over(self, part: RequestPart) -> None:
        self._accepted.discard(part.id)
        self._cancelled.discard(part.id)
        self._running.pop(part.id, None)
        self._moved.pop(part.id, None)

    def _failed(self, part: RequestPart, error: BaseException) -> None:
        failure = _told(error)
        if failure["code"] in ("out_of_memory", "internal_error"):
            _log.error("run %s failed", part.id, exc_info=error)
        self._send({"event": "failed", "id": part.id, **failure})
        self._over(part)

    def _runs(self) -> dict[str, dict[str, str | float]]:
        """Returns those that a thread has taken up, and read."""
        moment = time.monotonic()
        return {
            identity: {"device": self._runner.residency.device, "seconds": moment - began}
            for identity, began in self._running.copy().items()
        }

    def _move(self, parts: list[RequestPart]) -> None:
        self._moved |= dict.fromkeys((part.id for part in parts), time.monotonic())

    def _quiet(self) -> dict[str, float]:
        """Seconds since each that a thread has taken up began or reported something."""
        moment = time.monotonic()
        return {identity: moment - moved for identity, moved in self._moved.copy().items()}

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
                        counts = {"done": done * part.samples // every, "total": total * part.samples // every}
                        self._send({"event": "progress", "id": part.id, **counts})
            return any(part.id not in self._cancelled for part in parts)

        return report


def _answered(part: RequestPart, outcome: Outcome) -> tuple[Message, bytes]:
    done: Message = {
        "event": "done",
        "id": part.id,
        "seconds": outcome.seconds,
        "device": outcome.device,
        "bytes": len(outcome.body),
    }
    if part.output is None:
        return done, outcome.body
    with atomic_writer(part.output, SECRET_MODE) as stream:
        stream.write(outcome.body)
    return {**done, "sha256": hashlib.sha256(outcome.body).hexdigest()}, b""


def _is_of_one(error: BaseException) -> bool:
    """Whether a run of several may have failed because of one of them, or of their number."""
    ours = isinstance(error, FheError) and not isinstance(error, (CancelledError, DamagedKeyError, DamagedModelError))
    return ours or isinstance(error, MemoryError)


def _told(error: BaseException) -> Message:
    """Returns what whoever asked hears: of our own errors the text, of others their class at most."""
    if isinstance(error, FheError):
        lost = {"key_damaged": True} if isinstance(error, DamagedKeyError) else {}
        lost |= {"model_damaged": True} if isinstance(error, DamagedModelError) else {}
        return {"code": error.code, "http_status": error.http_status, "message": str(error), **lost}
    if isinstance(error, FileNotFoundError):
        text = (
            "a file that the run needs is gone: its key was deleted, or the job was cancelled; send the request again"
        )
        return {"code": "gone", "http_status": 410, "message": text}
    if isinstance(error, MemoryError):
        text = "the engine has not enough memory for this run; send fewer samples"
        return {"code": "out_of_memory", "http_status": 503, "message": text}
    if isinstance(error, OSError) and error.errno in NO_ROOM:
        text = "the service had no room left to store the result; send the job again later"
        return {"code": StorageFullError.code, "http_status": StorageFullError.http_status, "message": text}
    text = f"the engine failed with {type(error).__name__}; the operator's log has the rest"
    return {"code": "internal_error", "http_status": 500, "message": text}
