"""A batch spread over several devices of one host: a key copy, an engine session and a thread for each."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloakwork.fhe_core._engine import ParameterSet
from cloakwork.fhe_core.arrays import Progress, Small, Words

Shares = list[slice]


class ShardedKey:
    """The expanded keys of all devices; immutable and shared like one of them."""

    def __init__(self, keys: Sequence[Any]) -> None:
        self.keys = tuple(keys)

    @property
    def params(self) -> ParameterSet:
        params: ParameterSet = self.keys[0].params
        return params

    @property
    def nbytes(self) -> int:
        """Bytes on all devices together."""
        return sum(int(key.nbytes) for key in self.keys)


class ShardedSession:
    """The operations of an engine session; item i of a batch goes to one device, contiguous shares in the order of the devices.

    Results are those of one device, word for word. An error on one device cancels the others and is raised.
    """

    def __init__(self, sessions: Sequence[Any]) -> None:
        self._sessions = tuple(sessions)

    def keyswitch(self, lwe: Words) -> Small:
        return self._joined(len(lwe), lambda session, share, _: session.keyswitch(lwe[share]))

    def modulus_switch(self, small_lwe: Small) -> Small:
        return self._joined(len(small_lwe), lambda session, share, _: session.modulus_switch(small_lwe[share]))

    def blind_rotate(
        self, switched: Small, tables: Words, table_index: Small | None = None, progress: Progress = None
    ) -> Words:
        return self._joined(
            len(switched),
            lambda session, share, report: session.blind_rotate(
                switched[share], tables, None if table_index is None else table_index[share], report
            ),
            progress,
        )

    def sample_extract(self, glwe: Words, coefficients: Small | None = None) -> Words:
        return self._joined(len(glwe), lambda session, share, _: session.sample_extract(glwe[share], coefficients))

    def bootstrap(
        self,
        lwe: Words,
        tables: Words,
        table_index: Small | None = None,
        coefficients: Small | None = None,
        progress: Progress = None,
        out: Words | None = None,
    ) -> Words:
        outputs = 1 if coefficients is None else len(coefficients)
        result: Words = np.empty((len(lwe), outputs, lwe.shape[-1]), lwe.dtype) if out is None else out

        def run(session: Any, share: slice, report: Progress) -> None:
            index = None if table_index is None else table_index[share]
            session.bootstrap(lwe[share], tables, index, coefficients, report, result[share])

        self._run(len(lwe), run, progress)
        return result

    def linear(self, weights: Any, lwe: Words) -> Words:
        return self._joined(len(lwe), lambda session, share, _: session.linear(weights, lwe[share]))

    def combine(self, x: Words, scale_x: int, y: Words | None = None, scale_y: int = 0, constant: int = 0) -> Words:
        return self._joined(
            len(x),
            lambda session, share, _: session.combine(
                x[share], scale_x, None if y is None else y[share], scale_y, constant
            ),
        )

    # --- inside ---

    def _shares(self, batch: int) -> Shares:
        count = len(self._sessions)
        return [slice(batch * i // count, batch * (i + 1) // count) for i in range(count)]

    def _joined(
        self, batch: int, call: Callable[[Any, slice, Progress], Any], progress: Progress = None
    ) -> NDArray[Any]:
        return np.concatenate(self._run(batch, call, progress))

    def _run(self, batch: int, call: Callable[[Any, slice, Progress], Any], progress: Progress = None) -> list[Any]:
        """The results of all shares, one thread per device; the caller's thread waits, so that Ctrl-C reaches it."""
        gathered = _GatheredProgress(progress)
        with ThreadPoolExecutor(len(self._sessions)) as pool:
            futures = [
                pool.submit(call, session, share, gathered.of(i))
                for i, (session, share) in enumerate(zip(self._sessions, self._shares(batch), strict=True))
            ]
            try:
                finished, _ = wait(futures, return_when=FIRST_EXCEPTION)
                for future in finished:
                    future.result()  # raises the first error
            except BaseException:
                gathered.stop()
                raise
            return [future.result() for future in futures]


class _GatheredProgress:
    """One progress(done, total) from those of all shares; stops them all on request."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._lock = threading.Lock()
        self._states: dict[int, tuple[int, int]] = {}
        self._stopped = False

    def stop(self) -> None:
        self._stopped = True

    def of(self, share: int) -> Callable[[int, int], bool]:
        def report(done: int, total: int) -> bool:
            with self._lock:
                self._states[share] = (done, total)
                if self._progress is not None and not self._stopped:
                    states = self._states.values()
                    answer = self._progress(sum(d for d, _ in states), sum(t for _, t in states))
                    self._stopped = answer is False
                return not self._stopped

        return report
