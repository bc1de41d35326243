"""One expanded key with the runtimes built on it: they go together when the key is evicted."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from cloakwork.fhe_core.server import Session
from cloakwork.fhe_core.session.evaluation_keys import ExpandedKey
from cloakwork.models.program import Program
from cloakwork.models.runtime import Runtime

_KINDS_KEPT: Final = 16


class ResidentKey:
    """A session computes one thing at a time, so that runs which overlap get runtimes of their own; idle ones are kept."""

    def __init__(self, key: ExpandedKey, sha256: bytes) -> None:
        self._key = key
        self.sha256 = sha256  # of the object that it was expanded from
        self._idle: OrderedDict[tuple[str, int], list[Runtime]] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def nbytes(self) -> int:
        return int(self._key.nbytes)

    @contextmanager
    def runtime(self, digest: str, program: Program, threads: int) -> Iterator[Runtime]:
        kind = (digest, threads)
        with self._lock:
            idle = self._idle.get(kind)
            runtime = idle.pop() if idle else None
        if runtime is None or runtime.program is not program:  # of a program that was dropped, and read again
            runtime = Runtime(program, Session(self._key, threads=threads))
        try:
            yield runtime
        finally:
            with self._lock:
                self._idle.setdefault(kind, []).append(runtime)
                self._idle.move_to_end(kind)
                while len(self._idle) > _KINDS_KEPT:
                    self._idle.popitem(last=False)

    def forget_program(self, digest: str) -> None:
        """Drops runtimes of a program, which would keep it in memory while idle."""
        with self._lock:
            for kind in [kind for kind in self._idle if kind[0] == digest]:
                del self._idle[kind]
