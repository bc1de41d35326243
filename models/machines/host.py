"""The machine of a session on the CPU: ciphertexts in host memory."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from cloakwork.fhe_core.arrays import Progress, Words
from cloakwork.fhe_core.ciphertexts import Ciphertexts, PackedCiphertexts, SeededPackedCiphertexts
from cloakwork.fhe_core.encoding import Encoding
from cloakwork.fhe_core.parameters import word_dtype
from cloakwork.fhe_core.server import Session
from cloakwork.models.machines.machine import execute
from cloakwork.models.program import Program
from cloakwork.models.progress import BootstrapCount
from cloakwork.models.schedule import INPUT, Drop, Extract, Gather, LookUp, Multiply, Schedule
from cloakwork.models.tables import shift_coefficients, tables_by_level

PACKED_WEIGHT_BYTES: Final = 1 << 27
GATHERED_BYTES = 1 << 28


class HostProgram:
    """A program on a session: what is made once for all runs."""

    def __init__(self, program: Program, session: Session) -> None:
        self.program, self.session = program, session
        self.tables = tables_by_level(program.graph, program.schedule, program.parameters)
        self.packed_weights = {step.writes: packed_weights(step) for step in packed_products(program.schedule)}

    def run(self, x: SeededPackedCiphertexts | PackedCiphertexts, progress: Progress = None) -> Ciphertexts:
        """[samples, numbers] -> [samples, outputs]"""
        packed = x.expand() if isinstance(x, SeededPackedCiphertexts) else x
        count = BootstrapCount(progress, self.program.bootstraps * packed.shape[0])
        return execute(self.program.schedule, Host(self, packed, count))


def packed_products(schedule: Schedule) -> list[Multiply]:
    """What reads the input while it stays packed; none when anything reads it together with other values or has too many rows, because then the
    input is extracted anyway."""
    if INPUT in schedule.output.values:
        return []
    found: list[Multiply] = []
    for step in schedule.readers(INPUT):
        if not isinstance(step, Multiply) or len(step.reads.values) > 1 or _packed_bytes(step) > PACKED_WEIGHT_BYTES:
            return []
        found.append(step)
    return found


def _packed_bytes(step: Multiply) -> int:
    return 4 * step.node.size * step.reads.width


def packed_weights(step: Multiply) -> NDArray[np.int32]:
    """A row of weights [P R, C] over the whole input for each output of a node that reads nothing else."""
    node, (positions, columns) = step.node, step.reads.columns.shape
    weights = np.zeros((positions, step.rows, step.reads.width + 1), dtype=np.int64)  # the last takes the zero wire
    spread = np.broadcast_to(step.reads.columns[:, None, :], (positions, step.rows, columns))
    place, row = np.arange(positions)[:, None, None], np.arange(step.rows)[None, :, None]
    np.add.at(weights, (place, row, spread), node.weights[node.block])
    return np.ascontiguousarray(weights[..., :-1].reshape(node.size, -1), dtype=np.int32)


class Host:
    """Words of some samples, [samples, columns, kN + 1] for each value."""

    def __init__(self, held: HostProgram, packed: PackedCiphertexts, count: BootstrapCount) -> None:
        self._held, self._session, self._program = held, held.session, held.program
        self._packed = packed
        self._count = count
        self._values: dict[int, Words] = {}

    def extract(self, step: Extract) -> None:
        if not self._held.packed_weights:
            self._values[step.writes] = self._session.extract(self._packed).words

    def multiply(self, step: Multiply) -> None:
        packed = self._held.packed_weights.get(step.writes)
        if packed is None:
            self._values[step.writes] = self._multiplied(step)
        else:
            bias = self._program.phase_bias(step.node)[step.node.block].reshape(-1)
            self._values[step.writes] = (self._session.linear_packed(packed, self._packed) + bias).words

    def _multiplied(self, step: Multiply) -> Words:
        """[samples, P R, kN + 1]"""
        bias = self._program.phase_bias(step.node)
        out: Words | None = None
        for block in step.blocks:
            weights = step.node.weights[block.number]
            for part in np.array_split(block.positions, self._parts(step, len(block.positions))):
                x = self._wrapped(self._read(step.reads.part(part)))
                y = (self._session.linear(weights, x) + bias[block.number]).words
                if out is None:
                    out = np.empty((len(y), len(step.reads.wires), *y.shape[2:]), dtype=y.dtype)
                out[:, part] = y
        assert out is not None
        return out.reshape(len(out), step.node.size, -1)

    def _parts(self, step: Multiply, positions: int) -> int:
        """Calls into which the positions of a block are split, so that the gathered ciphertexts fit memory."""
        params = self._program.parameters
        ciphertext = self._packed.shape[0] * (params.large_dimension + 1) * word_dtype(params).itemsize
        needed = int(ciphertext * step.reads.wires.shape[1] * positions)
        return min(positions, max(1, -(-needed // GATHERED_BYTES)))

    def look_up(self, step: LookUp) -> None:
        batch = self._read(step.reads)
        level = self._held.tables[step.level]
        result = self._session.activation(
            self._wrapped(batch),
            level.tables,
            table_index=level.index[step.elements],
            coefficients=shift_coefficients(self._program.graph, step.nodes[0], self._program.parameters),
            allow_noise=True,
            progress=self._count.of(0, batch.shape[0] * batch.shape[1]),
        )
        self._values[step.writes] = result.words.reshape(len(batch), -1, batch.shape[-1])

    def drop(self, step: Drop) -> None:
        for value in step.values:
            self._values.pop(value, None)  # an input that stays packed is no value of its own

    def output(self, reads: Gather) -> Ciphertexts:
        """[samples, numbers]"""
        return self._wrapped(self._read(Gather(reads.wires.reshape(-1), reads.layout)))

    def _read(self, reads: Gather) -> Words:
        """[samples, .., kN + 1]; the zero wire is the trivial ciphertext of zero."""
        columns = reads.columns
        if len(reads.values) == 1 and int(columns.min()) >= 0:
            return self._values[reads.values[0]][:, columns]
        params = self._packed.parameters
        out = np.zeros((self._packed.shape[0], *columns.shape, params.large_dimension + 1), word_dtype(params))
        first = 0
        for value in reads.values:
            words = self._values[value]
            mask = (columns >= first) & (columns < first + words.shape[1])
            out[:, mask] = words[:, columns[mask] - first]
            first += words.shape[1]
        return out

    def _wrapped(self, words: Words) -> Ciphertexts:
        return Ciphertexts.from_words(
            self._packed.parameters, words, encoding=Encoding.TORUS, key_id=self._packed.key_id
        )
