"""The crew of Ray's actors. Program and keys lie in Ray's object store, once for each machine that has a worker."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

from cloakwork.app.batch.crew import Event, News
from cloakwork.app.batch.errors import one_line
from cloakwork.app.batch.options import BatchOptions
from cloakwork.app.batch.pieces import Piece
from cloakwork.app.batch.worker import Worker

_THREADS = 2  # of an actor: as many tasks as it has at once


class Actors:
    def __init__(self, ray: Any, options: BatchOptions, program: bytes, keys: bytes, settings: dict[str, Any]) -> None:
        """settings: as `Worker.prepare` takes them."""
        self._ray, self._settings = ray, settings
        self._held = (ray.put(program), ray.put(keys))
        self._class = ray.remote(Worker).options(
            num_cpus=options.threads,
            num_gpus=1 if options.device == "cuda" else 0,
            max_concurrency=_THREADS,
            max_restarts=0,
            scheduling_strategy="SPREAD",
        )
        self._numbers = itertools.count()
        self._workers: dict[int, Any] = {}
        self._calls: dict[Any, tuple[News, int, tuple[Piece, ...]]] = {}  # by what Ray calls their result

    def start(self) -> int:
        number = next(self._numbers)
        self._workers[number] = worker = self._class.remote()
        self._calls[worker.placed.remote()] = (News.PLACED, number, ())
        return number

    def submit(self, worker: int, task: Sequence[Piece]) -> None:
        call = self._workers[worker].carry_out.remote([piece.plain() for piece in task])
        self._calls[call] = (News.OUTCOMES, worker, tuple(task))

    def wait(self, seconds: float) -> list[Event]:
        calls = list(self._calls)
        if not calls:
            return []
        self._ray.wait(calls, num_returns=1, timeout=seconds, fetch_local=False)
        ready, _ = self._ray.wait(calls, num_returns=len(calls), timeout=0, fetch_local=False)
        return [event for call in ready for event in self._events(call)]

    def dismiss(self, worker: int) -> None:
        actor = self._workers.pop(worker, None)
        if actor is not None:
            self._ray.kill(actor)

    def stop(self) -> None:
        """Ends all, whatever they do: results appear whole or not at all."""
        for worker in list(self._workers):
            with contextlib.suppress(Exception):
                self.dismiss(worker)

    def _events(self, call: Any) -> Iterator[Event]:
        news, worker, task = self._calls.pop(call)
        try:
            answer = self._ray.get(call)
        except self._ray.exceptions.RayError as error:
            yield Event(News.LOST, worker, task, reason=one_line(error))
            return
        if news is News.OUTCOMES:
            yield Event(News.OUTCOMES, worker, task, tuple(answer))
        elif news is News.PLACED:
            if worker in self._workers:
                preparing = self._workers[worker].prepare.remote(*self._held, self._settings)
                self._calls[preparing] = (News.READY, worker, ())
                yield Event(News.PLACED, worker)
        else:
            yield Event(News.UNFIT if answer else News.READY, worker, reason=answer)
