"""A batch spread over several devices of one host: a key copy, an engine session and a thread for each."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from cloakwork.fhe_core._engine import ParameterSet
from cloakwork.fhe_core.arrays.device_words import ShardedArray
from cloakwork.fhe_core.engine import DeviceArray, device_session, host_array
from cloakwork.fhe_core.errors import DeviceError, ShapeError
from cloakwork.fhe_core.words import Progress, Small, Words

if TYPE_CHECKING:
    from cloakwork.fhe_core._engine import CudaSession, EngineSession
    from cloakwork.fhe_core.engine import EngineKey

Shares: TypeAlias = list[slice]
Batch: TypeAlias = Words | ShardedArray
Share: TypeAlias = Words | DeviceArray
"""Of a batch, for one device."""
PartSession: TypeAlias = "EngineSession[Share]"
ShareCall: TypeAlias = "Callable[[PartSession, Share, slice, Words | None, Progress], Share]"
"""(session, part of the batch, which part, where to write, progress)"""


class ShardedSession:
    """The operations of an engine session; item i of a batch goes to one device, contiguous shares in the order of the devices.

    numpy arrays go in and out; a `ShardedArray` goes in with the shares that it has and a `ShardedArray` comes out, each share on its own
    device. Results are those of one device, word for word. An error on one device cancels the others and is raised.
    """

    def __init__(self, sessions: Sequence[PartSession]) -> None:
        self.sessions = tuple(sessions)
        self.params: ParameterSet = sessions[0].params
        self._pool = ThreadPoolExecutor(len(sessions), thread_name_prefix="cloakwork-shard")

    def keyswitch(self, lwe: Batch, out: Batch | None = None) -> Batch:
        def call(session: PartSession, part: Share, share: slice, into: Words | None, report: Progress) -> Share:
            return session.keyswitch(part, out=into)

        return self._joined(lwe, (self.params.small_words,), np.uint32, call, out=out)

    def modulus_switch(self, small_lwe: Batch, out: Batch | None = None) -> Batch:
        def call(session: PartSession, part: Share, share: slice, into: Words | None, report: Progress) -> Share:
            return session.modulus_switch(part, out=into)

        return self._joined(small_lwe, small_lwe.shape[1:], np.uint32, call, out=out)

    def blind_rotate(
        self,
        switched: Batch,
        tables: Words,
        table_index: Small | None = None,
        progress: Progress = None,
        out: Batch | None = None,
    ) -> Batch:
        def call(session: PartSession, part: Share, share: slice, into: Words | None, report: Progress) -> Share:
            index = None if table_index is None else table_index[share]
            return session.blind_rotate(part, tables, index, report, out=into)

        shape: tuple[int, ...] = (self.params.component_count, self.params.polynomial_size)
        if self.params.extension_factor > 1:
            shape = (self.params.extension_factor, *shape)
        return self._joined(switched, shape, tables.dtype, call, progress, out)

    def sample_extract(self, glwe: Batch, coefficients: Small | None = None, out: Batch | None = None) -> Batch:
        def call(session: PartSession, part: Share, share: slice, into: Words | None, report: Progress) -> Share:
            return session.sample_extract(part, coefficients, out=into)

        outputs = 1 if coefficients is None else len(coefficients)
        return self._joined(glwe, (outputs, self.params.large_words), glwe.dtype, call, out=out)

    def bootstrap(
        self,
        lwe: Batch,
        tables: Words,
        table_index: Small | None = None,
        coefficients: Small | None = None,
        progress: Progress = None,
        out: Batch | None = None,
    ) -> Batch:
        def call(session: PartSession, part: Share, share: slice, into: Words | None, report: Progress) -> Share:
            index = None if table_index is None else table_index[share]
            return session.bootstrap(part, tables, index, coefficients, report, out=into)

        outputs = 1 if coefficients is None else len(coefficients)
        return self._joined(lwe, (outputs, lwe.shape[-1]), lwe.dtype, call, progress, out)

    def linear(self, weights: NDArray[np.int32], lwe: Batch, out: Batch | None = None) -> Batch:
        def call(session: PartSession, part: Share, share: slice, into: Words | None, report: Progress) -> Share:
            return session.linear(weights, part, out=into)

        return self._joined(lwe, (len(weights), lwe.shape[-1]), lwe.dtype, call, out=out)

    def combine(
        self,
        x: Batch,
        scale_x: int,
        y: Batch | None = None,
        scale_y: int = 0,
        constant: int = 0,
        out: Batch | None = None,
    ) -> Batch:
        if y is not None and _sizes(x) != _sizes(y):
            raise ShapeError("combine: expected both operands on the host, or spread alike over their devices")

        def call(session: PartSession, part: Share, share: slice, into: Words | None, report: Progress) -> Share:
            second = None if y is None else _part_of(y, session, self.sessions, share)
            return session.combine(part, scale_x, second, scale_y, constant, out=into)

        return self._joined(x, x.shape[1:], x.dtype, call, out=out)

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
        out: Batch | None = None,
    ) -> Batch:
        """Returns results [B, *shape] of all shares: one host array that every share writes its part of, or an array on each device."""
        shares = self._shares(batch)
        if isinstance(batch, ShardedArray):
            results = self._run(batch, shares, None, call, progress)
            return ShardedArray([part for part in results if not isinstance(part, np.ndarray)])
        result = host_array((len(batch), *shape), dtype) if out is None else out
        assert isinstance(result, np.ndarray), "host arrays give host arrays"
        self._run(batch, shares, result, call, progress)
        return result

    def _run(
        self, batch: Batch, shares: Shares, result: Words | None, call: ShareCall, progress: Progress = None
    ) -> list[Share]:
        """Returns one thread per device; the caller's thread waits, so that Ctrl-C reaches it."""
        gathered = _GatheredProgress(progress)

        def run(number: int) -> Share:
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


def _part_of(batch: Batch, session: PartSession, sessions: Sequence[PartSession], share: slice) -> Share:
    return batch.parts[sessions.index(session)] if isinstance(batch, ShardedArray) else batch[share]


def _sizes(batch: Batch) -> list[int]:
    return [len(part) for part in batch.parts] if isinstance(batch, ShardedArray) else [len(batch)]


def device_sessions(keys: Sequence[EngineKey], device: str, stream: Any) -> tuple[CudaSession, ...]:
    """Opens sessions for the expanded key on each GPU. Args: stream: of one GPU; see `Session`."""
    if stream is not None and len(keys) > 1:
        raise DeviceError(f"stream: expected a session on one GPU, got '{device}'; a stream belongs to one device")
    return tuple(device_session(key, stream) for key in keys)


def session_over(sessions: Sequence[CudaSession]) -> CudaSession | ShardedSession:
    return sessions[0] if len(sessions) == 1 else ShardedSession(sessions)


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
