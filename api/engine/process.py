"""The engine's side of the socket: reads requests, runs them on a few threads, reports."""

from __future__ import annotations

import hashlib
import logging
import os
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from cloakwork.api.engine.devices import build_facts
from cloakwork.api.engine.messages import Message, pack, receive_blocking
from cloakwork.api.engine.options import EngineOptions
from cloakwork.api.engine.requests import ModelPlace, Progress, Request
from cloakwork.api.engine.residency import KeyPlace
from cloakwork.api.engine.runner import Runner
from cloakwork.api.errors import NO_ROOM, DamagedKeyError, StorageFullError
from cloakwork.fhe_core.errors import FheError
from cloakwork.fhe_core.files import SECRET_MODE, atomic_writer
from cloakwork.models.audit.audit_key import AuditKey

_REPORT_SECONDS: Final = 0.1

_log = logging.getLogger("cloakwork.engine")


class EngineProcess:
    def __init__(self, connection: socket.socket, options: EngineOptions) -> None:
        self._connection = connection
        self._runner = Runner(options)
        self._send_lock = threading.Lock()
        self._accepted: set[str] = set()
        self._cancelled: set[str] = set()
        self._running: dict[str, tuple[str, float]] = {}  # device, and since when

    def serve(self) -> None:
        """Until the other side closes."""
        hello: Message = {"devices": self._runner.devices, "workers": self._runner.workers, "build": build_facts()}
        self._send({"event": "hello", "pid": os.getpid(), **hello})
        # Not as a context manager: that would wait for runs whose results nobody takes.
        pool = ThreadPoolExecutor(self._runner.workers, thread_name_prefix="run")
        with self._connection.makefile("rb") as stream:
            while (received := receive_blocking(stream)) is not None:
                message, body = received
                match message["op"]:
                    case "audit_key":
                        self._runner.take_audit_key(AuditKey(body))
                    case "run":
                        self._accepted.add(message["id"])
                        pool.submit(self._run, message, body)
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
                            }
                        )

    def _send(self, message: Message, body: bytes = b"") -> None:
        data = pack(message, body)
        with self._send_lock:
            try:
                self._connection.sendall(data)
            except OSError:
                os._exit(0)  # the web process is gone

    def _run(self, message: Message, body: bytes) -> None:
        identity: str = message["id"]
        try:
            if message.get("progress"):
                self._send({"event": "started", "id": identity})
            began = time.perf_counter()
            done, result = self._outcome(message, body)
            self._send({**done, "busy_seconds": time.perf_counter() - began}, result)
        except FheError as error:
            lost = {"key_damaged": True} if isinstance(error, DamagedKeyError) else {}
            self._fail(identity, error.code, error.http_status, str(error), **lost)
        except FileNotFoundError:
            text = "a file that the run needs is gone: its key was deleted, or the job was cancelled; send the request again"
            self._fail(identity, "gone", 410, text)
        except MemoryError:
            _log.exception("run %s failed", identity)
            self._fail(
                identity, "out_of_memory", 503, "the engine has not enough memory for this run; send fewer samples"
            )
        except BaseException as error:
            if isinstance(error, OSError) and error.errno in NO_ROOM:
                text = "the service had no room left to store the result; send the job again later"
                self._fail(identity, StorageFullError.code, StorageFullError.http_status, text)
            else:
                _log.exception("run %s failed", identity)
                text = f"the engine failed with {type(error).__name__}; the operator's log has the rest"
                self._fail(identity, "internal_error", 500, text)
        finally:
            self._accepted.discard(identity)
            self._cancelled.discard(identity)
            self._running.pop(identity, None)

    def _runs(self) -> dict[str, dict[str, str | float]]:
        """Those that have a device now."""
        moment = time.monotonic()
        return {
            identity: {"device": device, "seconds": moment - began}
            for identity, (device, began) in self._running.copy().items()
        }

    def _fail(self, identity: str, code: str, http_status: int, text: str, **more: bool) -> None:
        failed = {"event": "failed", "id": identity, "code": code, "http_status": http_status, "message": text}
        self._send({**failed, **more})

    def _outcome(self, message: Message, body: bytes) -> tuple[Message, bytes]:
        request = Request(
            ModelPlace(message["model"]["kind"], message["model"]["digest"], Path(message["model"]["path"])),
            KeyPlace(message["key"]["name"], Path(message["key"]["path"])),
            message["samples"],
            Path(message["input"]).read_bytes() if message.get("input") else body,
        )
        identity: str = message["id"]

        def placed(device: str) -> None:
            self._running[identity] = device, time.monotonic()

        outcome = self._runner.run(request, self._progress(identity) if message.get("progress") else None, placed)
        done: Message = {
            "event": "done",
            "id": identity,
            "seconds": outcome.seconds,
            "device": outcome.device,
            "bytes": len(outcome.body),
        }
        if not message.get("output"):
            return done, outcome.body
        with atomic_writer(message["output"], SECRET_MODE) as stream:
            stream.write(outcome.body)
        return {**done, "sha256": hashlib.sha256(outcome.body).hexdigest()}, b""

    def _progress(self, identity: str) -> Progress:
        reported = 0.0

        def report(done: int, total: int) -> bool:
            nonlocal reported
            if time.monotonic() - reported >= _REPORT_SECONDS:
                reported = time.monotonic()
                self._send({"event": "progress", "id": identity, "done": done, "total": total})
            return identity not in self._cancelled

        return report
