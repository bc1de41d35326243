"""The machine of one GPU: ciphertexts stay on it from the input, which is expanded there, to the output. Words are those of machines/host.py.

Several GPUs take contiguous shares of the samples: a machine and a thread for each.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import numpy as np
from numpy.typing import NDArray

from cloakwork.fhe_core import engine
from cloakwork.fhe_core.arrays import Progress
from cloakwork.fhe_core.ciphertexts import Ciphertexts
from cloakwork.fhe_core.encoding import Encoding
from cloakwork.fhe_core.engine import DeviceArray, DeviceSession, DeviceWeights
from cloakwork.fhe_core.extraction import Packed, extract_values
from cloakwork.fhe_core.parameters import word_dtype
from cloakwork.fhe_core.phase_arithmetic import constant_words
from cloakwork.fhe_core.server import Session
from cloakwork.models.graph.schedule import Block, Drop, Extract, Gather, LookUp, Multiply
from cloakwork.models.graph.tables import batch_tables
from cloakwork.models.program import Program
from cloakwork.models.runtime.machines.machine import execute
from cloakwork.models.runtime.progress import BootstrapCount

MEMORY_SHARE: Final = 4  # of the free device memory, one part in so many for the ciphertexts of all wires; gathers and scratch need others


class DeviceProgram:
    """A program on a session of one GPU or several: what is made once for all runs. Weights are uploaded when they are first used."""

    def __init__(self, program: Program, session: Session) -> None:
        self.schedule, self.session, self.bootstraps = program.schedule, session, program.bootstraps
        self.tables = batch_tables(program.graph, program.schedule, program.parameters)
        self.bias = {
            step.writes: [
                constant_words(program.parameters, row, Encoding.TORUS) for row in program.phase_bias(step.node)
            ]
            for step in program.schedule.products
        }
        self._weights: dict[tuple[int, int, int], DeviceWeights] = {}
        self._lock = threading.Lock()

    def run(self, x: Packed, progress: Progress = None) -> Ciphertexts:
        """[samples, numbers] -> [samples, outputs] in host memory."""
        samples, devices = x.shape[0], len(self.session.device_sessions)
        bounds = [samples * i // devices for i in range(devices + 1)]
        shares = [i for i in range(devices) if bounds[i] < bounds[i + 1]]
        count = BootstrapCount(progress, self.bootstraps * samples)
        shape = (samples, self.schedule.output.wires.size, x.parameters.large_words)
        outputs = engine.host_array(shape, word_dtype(x.parameters))

        def share(number: int) -> None:
            part = slice(bounds[number], bounds[number + 1])
            execute(self.schedule, Device(self, number, x, part, count)).to_host(outputs[part])

        if len(shares) == 1:
            share(shares[0])
        else:
            with ThreadPoolExecutor(len(shares)) as pool:
                for future in [pool.submit(share, number) for number in shares]:
                    future.result()
        return Ciphertexts(
            x.parameters, outputs, outputs.shape[:2], encoding=Encoding.TORUS, key_id=self.session.expanded_key.key_id
        )

    def weights(self, number: int, step: Multiply, block: Block) -> DeviceWeights:
        """On a device."""
        key = (number, step.writes, block.number)
        with self._lock:
            if key not in self._weights:
                matrix = np.ascontiguousarray(step.node.weights[block.number], dtype=np.int32)
                self._weights[key] = self.session.device_sessions[number].upload_weights(matrix)
            return self._weights[key]


class Device:
    """Words of some samples, [samples, columns, kN + 1] for each value, on the session's device `number`."""

    def __init__(self, held: DeviceProgram, number: int, x: Packed, part: slice, count: BootstrapCount) -> None:
        """Args: part: which samples of x."""
        self._held, self._number = held, number
        self._session: DeviceSession = held.session.device_sessions[number]
        self._x, self._part = x, part
        self._count = count
        self._values: dict[int, DeviceArray] = {}

    def extract(self, step: Extract) -> None:
        numbers, part = self._x.shape[1], self._part
        rows = extract_values(self._session, self._x, part.start * numbers, part.stop * numbers)
        every = rows.reshape((part.stop - part.start, numbers, rows.shape[-1]))
        chosen = step.columns.astype(np.int32)
        self._values[step.writes] = every if step.is_everything else self._session.take(every, chosen)

    def multiply(self, step: Multiply) -> None:
        store, columns = self._side_by_side(step.reads), step.reads.columns
        out: DeviceArray | None = None
        for block in step.blocks:
            weights = self._held.weights(self._number, step, block)
            bias = self._held.bias[step.writes][block.number]
            local = columns[block.positions]
            if len(step.blocks) == 1:
                gather = None if _reads_all_in_order(local, store.shape[1]) else local
                out = self._session.gathered_linear(weights, store, gather, bias)
            else:
                places = (block.positions * step.rows).astype(np.int32)
                out = self._session.gathered_linear(weights, store, local, bias, places, step.node.size, out)
        assert out is not None
        self._values[step.writes] = out

    def look_up(self, step: LookUp) -> None:
        batch, held = self._read(step.reads), self._held.tables[step.writes]
        samples, count, width = batch.shape
        index = None if len(held.tables) == 1 else np.tile(held.index.astype(np.uint32), samples)
        coefficients = None if held.coefficients is None else held.coefficients.astype(np.uint32)
        flat = batch.reshape((samples * count, width))
        progress = self._count.of(self._number, len(flat))
        out = self._session.bootstrap(flat, held.tables.polynomials, index, coefficients, progress)
        self._values[step.writes] = out.reshape((samples, count * out.shape[1], width))

    def drop(self, step: Drop) -> None:
        for value in step.values:
            del self._values[value]

    def output(self, reads: Gather) -> DeviceArray:
        """[samples, numbers, kN + 1]"""
        return self._read(reads.flat)

    def _read(self, reads: Gather) -> DeviceArray:
        """[samples, wires, kN + 1] of a vector of wires; values as they are when they hold just these."""
        store = self._side_by_side(reads)
        return store if reads.is_everything else self._session.take(store, reads.columns)

    def _side_by_side(self, reads: Gather) -> DeviceArray:
        """One array that holds all values of a gather."""
        arrays = [self._values[value] for value in reads.values]
        if len(arrays) == 1:
            return arrays[0]
        samples, width = self._part.stop - self._part.start, self._x.parameters.large_words
        if not arrays:  # nothing but the zero wire
            nothing = np.zeros((samples, 1, width), word_dtype(self._x.parameters))
            return engine.upload(nothing, self._session.device)
        return engine.concatenated(arrays, samples, (samples, reads.width, width))


def device_samples(program: Program, session: Session) -> int:
    """Samples whose ciphertexts of every wire take at most a part of the free memory of each device."""
    free = min(engine.free_bytes(each.device) for each in session.device_sessions)
    return max(1, free // (MEMORY_SHARE * program.wire_bytes)) * len(session.device_sessions)


def _reads_all_in_order(local: NDArray[np.int32], width: int) -> bool:
    """Whether one position reads the whole array."""
    return len(local) == 1 and local.shape[1] == width and np.array_equal(local[0], np.arange(width))
