"""A batch spread over several devices of one host: a key copy, an engine session and a thread for each."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from cloakwork.fhe_core import _engine
from cloakwork.fhe_core._engine import ParameterSet
from cloakwork.fhe_core.arrays import Progress, Small, Words
from cloakwork.fhe_core.device_words import ShardedArray
from cloakwork.fhe_core.errors import ShapeError

Shares: TypeAlias = list[slice]
Batch: TypeAlias = NDArray[Any] | ShardedArray
ShareCall: TypeAlias = Callable[[Any, Any, slice, Any, Progress], Any]
"""(session, part of the batch, which part, where to write, progress)"""


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

    numpy arrays go in and out; a `ShardedArray` goes in with the shares that it has and a `ShardedArray` comes out, each share on its own
    device. Results are those of one device, word for word. An error on one device cancels the others and is raised.
    """

    def __init__(self, sessions: Sequence[Any]) -> None:
        self.sessions = tuple(sessions)
        self._params: ParameterSet = sessions[0].params
        self._pool = ThreadPoolExecutor(len(sessions), thread_name_prefix="cloakwork-shard")

    def keyswitch(self, lwe: Batch) -> Any:
        shape = (self._params.lwe_dimension + 1,)
        return self._joined(
            lwe, shape, np.uint32, lambda session, part, share, out, _: session.keyswitch(part, out=out)
        )

    def modulus_switch(self, small_lwe: Batch) -> Any:
        return self._joined(
            small_lwe,
            small_lwe.shape[1:],
            np.uint32,
            lambda session, part, share, out, _: session.modulus_switch(part, out=out),
        )

    def blind_rotate(
        self, switched: Batch, tables: Words, table_index: Small | None = None, progress: Progress = None
    ) -> Any:
        shape = (self._params.glwe_dimension + 1, self._params.polynomial_size)
        return self._joined(
            switched,
            shape,
            tables.dtype,
            lambda session, part, share, out, report: session.blind_rotate(
                part, tables, None if table_index is None else table_index[share], report, out=out
            ),
            progress,
        )

    def sample_extract(self, glwe: Batch, coefficients: Small | None = None) -> Any:
        outputs = 1 if coefficients is None else len(coefficients)
        return self._joined(
            glwe,
            (outputs, self._params.large_dimension + 1),
            glwe.dtype,
            lambda session, part, share, out, _: session.sample_extract(part, coefficients, out=out),
        )

    def bootstrap(
        self,
        lwe: Batch,
        tables: Words,
        table_index: Small | None = None,
        coefficients: Small | None = None,
        progress: Progress = None,
        out: Words | None = None,
    ) -> Any:
        outputs = 1 if coefficients is None else len(coefficients)

        def call(session: Any, part: Any, share: slice, into: Any, report: Progress) -> Any:
            index = None if table_index is None else table_index[share]
            return session.bootstrap(part, tables, index, coefficients, report, out=into)

        return self._joined(lwe, (outputs, lwe.shape[-1]), lwe.dtype, call, progress, out)

    def linear(self, weights: Any, lwe: Batch) -> Any:
        return self._joined(
            lwe,
            (len(weights), lwe.shape[-1]),
            lwe.dtype,
            lambda session, part, share, out, _: session.linear(weights, part, out=out),
        )

    def combine(self, x: Batch, scale_x: int, y: Batch | None = None, scale_y: int = 0, constant: int = 0) -> Any:
        if y is not None and _sizes(x) != _sizes(y):
            raise ShapeError("combine: expected both operands on the host, or spread alike over their devices")

        def call(session: Any, part: Any, share: slice, out: Any, report: Progress) -> Any:
            second = None if y is None else _part_of(y, session, self.sessions, share)
            return session.combine(part, scale_x, second, scale_y, constant, out=out)

        return self._joined(x, x.shape[1:], x.dtype, call)

    def synchronize(self) -> None:
        for session in self.sessions:
            session.synchronize()

    # --- inside ---

    def _shares(self, batch: Batch) -> Shares:
        if isinstance(batch, ShardedArray):
            if len(batch.parts) != len(self.sessions):
                raise ShapeError(
                    f"ciphertexts: expected words spread over {len(self.sessions)} devices, got words on {batch.device}; gather them first"
                )
            bounds = np.concatenate([[0], np.cumsum([len(part) for part in batch.parts])]).tolist()
        else:
            bounds = [len(batch) * i // len(self.sessions) for i in range(len(self.sessions) + 1)]
        return [slice(start, stop) for start, stop in itertools.pairwise(bounds)]

    def _joined(
        self,
        batch: Batch,
        shape: tuple[int, ...],
        dtype: Any,
        call: ShareCall,
        progress: Progress = None,
        out: Words | None = None,
    ) -> Any:
        """Results [B, *shape] of all shares: one host array that every share writes its part of, or an array on each device."""
        shares = self._shares(batch)
        if isinstance(batch, ShardedArray):
            return ShardedArray(self._run(batch, shares, None, call, progress))
        result: Any = host_array((len(batch), *shape), dtype) if out is None else out
        self._run(batch, shares, result, call, progress)
        return result

    def _run(
        self, batch: Batch, shares: Shares, result: Words | None, call: ShareCall, progress: Progress = None
    ) -> list[Any]:
        """One thread per device; the caller's thread waits, so that Ctrl-C reaches it."""
        gathered = _GatheredProgress(progress)

        def run(number: int) -> Any:
            session, share = self.sessions[number], shares[number]
            part = _part_of(batch, session, self.sessions, share)
            report = None if isinstance(batch, ShardedArray) and progress is None else gathered.of(number)
            return call(session, part, share, None if result is None else result[share], report)

        futures = [self._pool.submit(run, number) for number in range(len(self.sessions))]
        try:
            finished, _ = wait(futures, return_when=FIRST_EXCEPTION)
            for future in finished:
                future.result()  # raises the first error
        except BaseException:
            gathered.stop()
            wait(futures)
            raise
        return [future.result() for future in futures]


def host_array(shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
    """Uninitialised; in page-locked memory where the engine has it, so that shares are downloaded into it without a copy."""
    if hasattr(_engine, "pinned_empty"):
        pinned: NDArray[Any] = _engine.pinned_empty(shape, dtype)
        return pinned
    return np.empty(shape, dtype)


def _part_of(batch: Batch, session: Any, sessions: Sequence[Any], share: slice) -> Any:
    return batch.parts[sessions.index(session)] if isinstance(batch, ShardedArray) else batch[share]


def _sizes(batch: Batch) -> list[int]:
    return [len(part) for part in batch.parts] if isinstance(batch, ShardedArray) else [len(batch)]


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
