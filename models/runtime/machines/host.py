"""The machine of a session on the CPU: ciphertexts in host memory."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Final
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from cloakwork.fhe_core.arrays.encoding import Encoding
from cloakwork.fhe_core.ciphertexts import Ciphertexts, PackedCiphertexts, SeededPackedCiphertexts
from cloakwork.fhe_core.parameters import word_dtype
from cloakwork.fhe_core.server import Session
from cloakwork.fhe_core.session.extraction import Packed
from cloakwork.fhe_core.words import Progress, Words
from cloakwork.models.arrays import Reals
from cloakwork.models.graph.schedule import INPUT, Block, Drop, Extract, Gather, LookUp, Multiply, Schedule
from cloakwork.models.graph.tables import batch_tables
from cloakwork.models.program import Program
from cloakwork.models.runtime.machines.machine import BootstrapCount, execute

PACKED_WEIGHT_BYTES: Final = 1 << 27
GATHERED_BYTES = 1 << 28


class _Prepared:
    """Data of a program that all keys share; it does not keep the program."""

    def __init__(self, program: Program) -> None:
        self.tables = batch_tables(program.graph, program.schedule, program.parameters)
        self.bias = {step.writes: program.phase_bias(step.node) for step in program.schedule.products}
        self.packed_weights = {step.writes: packed_weights(step) for step in packed_products(program.schedule)}


_prepared: Final[WeakKeyDictionary[Program, _Prepared]] = WeakKeyDictionary()
_preparing: Final = threading.Lock()


def _prepared_of(program: Program) -> _Prepared:
    with _preparing:
        known = _prepared.get(program)
        if known is None:
            known = _prepared[program] = _Prepared(program)
        return known


class HostProgram:
    """A program on a session. What does not depend on the key is made once for all sessions."""

    def __init__(self, program: Program, session: Session) -> None:
        self.schedule, self.session, self.bootstraps = program.schedule, session, program.bootstraps
        prepared = _prepared_of(program)
        self.tables, self.bias, self.packed_weights = prepared.tables, prepared.bias, prepared.packed_weights

    def run(self, inputs: Sequence[Packed], progress: Progress = None) -> Ciphertexts:
        """Runs each [samples, numbers] -> [samples of all, outputs]"""
        packed = [x.expand() if isinstance(x, SeededPackedCiphertexts) else x for x in inputs]
        count = BootstrapCount(progress, self.bootstraps * sum(x.shape[0] for x in packed))
        return execute(self.schedule, Host(self, packed, count))


def packed_products(schedule: Schedule) -> list[Multiply]:
    """Lists what reads the input while it stays packed; none when anything reads it together with other values or has too many rows, because then the
    input is extracted anyway, or when few of its numbers are read, which are then fewer than products have coefficients."""
    if INPUT in schedule.output.values or not all(
        step.is_everything for step in schedule.steps if isinstance(step, Extract)
    ):
        return []
    products: list[Multiply] = []
    for step in schedule.readers(INPUT):
        if not isinstance(step, Multiply) or len(step.reads.values) > 1 or _packed_bytes(step) > PACKED_WEIGHT_BYTES:
            return []
        products.append(step)
    return products


def _packed_bytes(step: Multiply) -> int:
    return 4 * step.node.size * step.reads.width


def packed_weights(step: Multiply) -> NDArray[np.int32]:
    """Returns a row of weights [P R, C] over the whole input for each output of a node that reads nothing else."""
    node, (positions, columns) = step.node, step.reads.columns.shape
    weights = np.zeros((positions, step.rows, step.reads.width + 1), dtype=np.int64)  # the last takes the zero wire
    spread = np.broadcast_to(step.reads.columns[:, None, :], (positions, step.rows, columns))
    place, row = np.arange(positions)[:, None, None], np.arange(step.rows)[None, :, None]
    np.add.at(weights, (place, row, spread), node.weights[node.block])
    return np.ascontiguousarray(weights[..., :-1].reshape(node.size, -1), dtype=np.int32)


class Host:
    """Words of some samples, [samples, columns, kN + 1] for each value."""

    def __init__(self, held: HostProgram, packed: Sequence[PackedCiphertexts], count: BootstrapCount) -> None:
        """Args: packed: whose samples follow each other; each begins a ciphertext of its own."""
        self._held, self._session = held, held.session
        self._packed = packed
        self._parameters, self._samples = held.session.parameters, sum(x.shape[0] for x in packed)
        self._count = count
        self._values: dict[int, Words] = {}

    def extract(self, step: Extract) -> None:
        if not self._held.packed_weights:
            session, every = self._session, step.is_everything
            extracted = [
                session.extract(x) if every else session.extract_columns(x, step.columns) for x in self._packed
            ]
            self._values[step.writes] = _following([each.words for each in extracted])

    def multiply(self, step: Multiply) -> None:
        packed, bias = self._held.packed_weights.get(step.writes), self._held.bias[step.writes]
        if packed is None:
            self._values[step.writes] = self._multiplied(step, bias)
        else:
            added = bias[step.node.block].reshape(-1)
            products = [(self._session.linear_packed(packed, x) + added).words for x in self._packed]
            self._values[step.writes] = _following(products)

    def _multiplied(self, step: Multiply, bias: Reals) -> Words:
        """Returns [samples, P R, kN + 1]"""
        out: Words | None = None
        for block in step.blocks:
            weights, parts = step.node.weights[block.number], self._parts(block)
            for positions, columns in zip(
                np.array_split(block.positions, parts), np.array_split(block.reads.columns, parts), strict=True
            ):
                x = self._wrapped(self._read(block.reads.values, columns))
                y = (self._session.linear(weights, x) + bias[block.number]).words
                if out is None:
                    out = np.empty((len(y), len(step.reads.wires), *y.shape[2:]), dtype=y.dtype)
                out[:, positions] = y
        assert out is not None
        return out.reshape(len(out), -1, out.shape[-1])

    def _parts(self, block: Block) -> int:
        """Calls into which the positions of a block are split, so that the gathered ciphertexts fit memory."""
        params = self._parameters
        ciphertext = self._samples * params.large_words * word_dtype(params).itemsize
        needed = int(ciphertext * block.reads.wires.size)
        return min(len(block.positions), max(1, -(-needed // GATHERED_BYTES)))

    def look_up(self, step: LookUp) -> None:
        batch, held = self._read(step.reads.values, step.reads.columns), self._held.tables[step.writes]
        result = self._session.activation(
            self._wrapped(batch),
            held.tables,
            table_index=held.index,
            coefficients=held.coefficients,
            allow_noise=True,
            progress=self._count.of(0, batch.shape[0] * batch.shape[1]),
        )
        self._values[step.writes] = result.words.reshape(len(batch), -1, batch.shape[-1])

    def drop(self, step: Drop) -> None:
        for value in step.values:
            self._values.pop(value, None)  # an input that stays packed is no value of its own

    def output(self, reads: Gather) -> Ciphertexts:
        """Returns [samples, numbers]"""
        return self._wrapped(self._read(reads.values, reads.columns.reshape(-1)))

    def _read(self, values: tuple[int, ...], columns: NDArray[np.int32]) -> Words:
        """Returns [samples, .., kN + 1] of columns of values side by side; the zero wire (-1) is the trivial ciphertext of zero."""
        if len(values) == 1 and int(columns.min()) >= 0:
            return self._values[values[0]][:, columns]
        params = self._parameters
        out = np.zeros((self._samples, *columns.shape, params.large_words), word_dtype(params))
        first = 0
        for value in values:
            words = self._values[value]
            mask = (columns >= first) & (columns < first + words.shape[1])
            out[:, mask] = words[:, columns[mask] - first]
            first += words.shape[1]
        return out

    def _wrapped(self, words: Words) -> Ciphertexts:
        key_id = self._session.expanded_key.key_id
        return Ciphertexts.from_words(self._parameters, words, encoding=Encoding.TORUS, key_id=key_id)


def _following(words: Sequence[Words]) -> Words:
    """Returns samples of several inputs, one after the other."""
    return words[0] if len(words) == 1 else np.concatenate(words)
