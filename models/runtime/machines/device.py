"""The machine of one GPU: ciphertexts stay on it from the input, which is expanded there, to the output. Words are those of machines/host.py.

Several GPUs take contiguous shares of the samples: a machine and a thread for each.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from cloakwork.fhe_core import engine
from cloakwork.fhe_core.arrays.encoding import Encoding
from cloakwork.fhe_core.arrays.phase_arithmetic import constant_words
from cloakwork.fhe_core.ciphertexts import Ciphertexts
from cloakwork.fhe_core.engine import DeviceArray
from cloakwork.fhe_core.parameters import word_dtype
from cloakwork.fhe_core.server import Session
from cloakwork.fhe_core.session.extraction import Packed, extract_values
from cloakwork.fhe_core.words import Progress
from cloakwork.models.graph.schedule import Block, Drop, Extract, Gather, LookUp, Multiply, Schedule, schedule
from cloakwork.models.graph.tables import batch_tables
from cloakwork.models.program import Program
from cloakwork.models.runtime.machines.machine import BootstrapCount, execute

if TYPE_CHECKING:
    from cloakwork.fhe_core._engine import CudaSession, CudaWeights

MEMORY_SHARE: Final = 4  # of the free device memory, one part in so many for values; the engine's scratch, and other runs, need the others
LEAST_LOOKUPS: Final = 256  # of a tile


class DeviceProgram:
    """A program on a session of one GPU or several: what is made once for all runs. Weights are uploaded when they are first used."""

    def __init__(self, program: Program, session: Session) -> None:
        self.schedule, self.session, self.bootstraps = fitting_schedule(program, session), session, program.bootstraps
        self.tables = batch_tables(program.graph, self.schedule, program.parameters)
        self.bias = {
            step.writes: [
                constant_words(program.parameters, row, Encoding.TORUS) for row in program.phase_bias(step.node)
            ]
            for step in self.schedule.products
        }
        self._ciphertext_bytes = program.ciphertext_bytes
        self._weights: dict[tuple[int, int, int], CudaWeights] = {}
        self._lock = threading.Lock()

    def run(self, inputs: Sequence[Packed], progress: Progress = None) -> Ciphertexts:
        """Runs each [samples, numbers] -> [samples of all, outputs] in host memory; as many after each other as a device's memory asks for."""
        samples, devices = sum(x.shape[0] for x in inputs), len(self.session.device_sessions)
        parameters = inputs[0].parameters
        bounds = [samples * i // devices for i in range(devices + 1)]
        shares = [i for i in range(devices) if bounds[i] < bounds[i + 1]]
        count = BootstrapCount(progress, self.bootstraps * samples)
        shape = (samples, self.schedule.output.wires.size, parameters.large_words)
        outputs = engine.host_array(shape, word_dtype(parameters))

        at_once = max(1, _room(self.session) // (self._ciphertext_bytes * self.schedule.most_columns))

        def share(number: int) -> None:
            first, device_samples = bounds[number], bounds[number + 1] - bounds[number]
            runs = -(-device_samples // at_once)  # of equal sizes
            for i in range(runs):
                part = slice(first + device_samples * i // runs, first + device_samples * (i + 1) // runs)
                execute(self.schedule, Device(self, number, inputs, part, count)).to_host(outputs[part])

        if len(shares) == 1:
            share(shares[0])
        else:
            with ThreadPoolExecutor(len(shares)) as pool:
                for future in [pool.submit(share, number) for number in shares]:
                    future.result()
        return Ciphertexts(
            parameters, outputs, outputs.shape[:2], encoding=Encoding.TORUS, key_id=self.session.expanded_key.key_id
        )

    def weights(self, number: int, step: Multiply, block: Block) -> CudaWeights:
        """Returns weights on a device; tiles of a node share them."""
        key = (number, id(step.node.weights), block.number)
        with self._lock:
            if key not in self._weights:
                matrix = np.ascontiguousarray(step.node.weights[block.number], dtype=np.int32)
                self._weights[key] = self.session.device_sessions[number].upload_weights(matrix)
            return self._weights[key]


class Device:
    """Words of some samples, [samples, columns, kN + 1] for each value, on the session's device `number`."""

    def __init__(
        self, held: DeviceProgram, number: int, inputs: Sequence[Packed], part: slice, count: BootstrapCount
    ) -> None:
        """Args: part: which samples, counted through all inputs."""
        self._held, self._number = held, number
        self._session: CudaSession = held.session.device_sessions[number]
        self._inputs, self._part = inputs, part
        self._parameters, self._samples = inputs[0].parameters, part.stop - part.start
        self._count = count
        self._values: dict[int, DeviceArray] = {}

    def extract(self, step: Extract) -> None:
        numbers, width = self._inputs[0].shape[1], self._parameters.large_words
        rows = [
            extract_values(self._session, x, first * numbers, last * numbers)
            for x, first, last in _shares(self._inputs, self._part)
        ]
        shape = (self._samples, numbers, width)
        every = rows[0].reshape(shape) if len(rows) == 1 else engine.concatenated(rows, 1, shape)
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
        """Returns [samples, numbers, kN + 1]"""
        return self._read(reads.flat)

    def _read(self, reads: Gather) -> DeviceArray:
        """Returns [samples, wires, kN + 1] of a vector of wires; values as they are when they hold just these."""
        store = self._side_by_side(reads)
        return store if reads.is_everything else self._session.take(store, reads.columns)

    def _side_by_side(self, reads: Gather) -> DeviceArray:
        """Returns one array that holds all values of a gather."""
        arrays = [self._values[value] for value in reads.values]
        if len(arrays) == 1:
            return arrays[0]
        samples, width = self._samples, self._parameters.large_words
        if not arrays:  # nothing but the zero wire
            nothing = np.zeros((samples, 1, width), word_dtype(self._parameters))
            return engine.upload(nothing, self._session.device)
        return engine.concatenated(arrays, samples, (samples, reads.width, width))


def _shares(inputs: Sequence[Packed], part: slice) -> Iterator[tuple[Packed, int, int]]:
    """Yields the shares of inputs, and the first and last of their samples, for samples that are counted through all of them."""
    before = 0
    for x in inputs:
        first, last = max(part.start - before, 0), min(part.stop - before, x.shape[0])
        if first < last:
            yield x, first, last
        before += x.shape[0]


def device_samples(program: Program, session: Session) -> int:
    """Returns samples whose values take at most a part of the free memory of each device."""
    held = program.ciphertext_bytes * fitting_schedule(program, session).most_columns
    return max(1, _room(session) // held) * len(session.device_sessions)


def fitting_schedule(program: Program, session: Session) -> Schedule:
    """Returns levels as they are, or in tiles as large as one sample's values leave room for, of which the smallest have LEAST_LOOKUPS."""
    fitted, most = program.schedule, max(program.schedule.bootstraps_per_level, default=0)
    room = _room(session) // program.ciphertext_bytes
    while fitted.most_columns > room and most > LEAST_LOOKUPS:
        most = max(LEAST_LOOKUPS, most // 2)
        tiled = schedule(program.graph, most)
        fitted = tiled if tiled.most_columns < fitted.most_columns else fitted
    return fitted


def _room(session: Session) -> int:
    """Returns bytes that values may take on each device."""
    return min(engine.free_bytes(each.device) for each in session.device_sessions) // MEMORY_SHARE


def _reads_all_in_order(local: NDArray[np.int32], width: int) -> bool:
    """Whether one position reads the whole array."""
    return len(local) == 1 and local.shape[1] == width and np.array_equal(local[0], np.arange(width))
