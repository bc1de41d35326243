"""Runs a program on ciphertexts: level by level, all samples and all look-ups of a level in one batch. Public side only."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from cloakwork.fhe_core.arrays import Words
from cloakwork.fhe_core.ciphertexts import Ciphertexts, PackedCiphertexts, SeededPackedCiphertexts
from cloakwork.fhe_core.encoding import Encoding
from cloakwork.fhe_core.parameters import word_dtype
from cloakwork.fhe_core.server import Session
from cloakwork.models.errors import ShapeError
from cloakwork.models.ir import Graph, Indices, Linear, Node, source_nodes
from cloakwork.models.program import Program
from cloakwork.models.tables import level_tables

Progress: TypeAlias = Callable[[int, int], bool | None] | None
"""progress(bootstraps done, bootstraps of the batch); returning False cancels."""

GATHERED_BYTES = 1 << 28
WORKING_BYTES = 1 << 30


class Runtime:
    """A program on one session. Tables are built once; `run` may be called any number of times."""

    def __init__(self, program: Program, session: Session) -> None:
        if session.parameters != program.parameters:
            raise ShapeError(
                f"session: expected keys of parameter set '{program.parameters.name}', got '{session.parameters.name}'; "
                "make keys for the set that the program was compiled for"
            )
        self.program = program
        self._session = session
        self._owner = program.graph.owners()
        self._tables = [
            level_tables(program.graph, level.lookups, program.parameters) if level.lookups else None
            for level in program.levels
        ]

    def run(self, x: SeededPackedCiphertexts | PackedCiphertexts, progress: Progress = None) -> Ciphertexts:
        """Encrypted samples [samples, numbers] -> encrypted outputs [samples, numbers], without the client's steps."""
        graph = self.program.graph
        if len(x.shape) != 2 or x.shape[1] != graph.input.size:
            raise ShapeError(
                f"input: expected packed ciphertexts of shape ['samples', {graph.input.size}], got {list(x.shape)}; "
                "encrypt with the model's client specification"
            )
        packed = x.expand() if isinstance(x, SeededPackedCiphertexts) else x
        start = self._session.extract(packed)
        values = _Values(graph, self._owner, {0: start.words}, start)
        done, total = 0, self.program.bootstraps * x.shape[0]
        positions = {node.first_wire: i for i, node in enumerate(graph.nodes)}
        for level, tables in zip(self.program.levels, self._tables, strict=True):
            for linear in level.linears:
                values.words[positions[linear.first_wire]] = self._linear(linear, values)
            if tables is None:
                continue
            batch = np.concatenate([values.read(node.gather) for node in level.lookups], axis=1)
            report = _offset_progress(progress, done, batch.shape[0] * batch.shape[1], total)
            result = self._session.activation(
                values.wrap(batch), tables[0], table_index=tables[1], allow_noise=True, progress=report
            )
            start_column = 0
            for node in level.lookups:
                values.words[positions[node.first_wire]] = result.words[:, start_column : start_column + node.size]
                start_column += node.size
            done += result.size
        return values.wrap(values.read(graph.output.reshape(-1)))

    def _linear(self, node: Linear, values: _Values) -> Words:
        """[samples, P R, kN + 1]"""
        bias = self.program.phase_bias(node)
        positions, rows = len(node.gather), node.weights.shape[1]
        out: Words | None = None
        for block in range(len(node.weights)):
            chosen = np.flatnonzero(node.block == block)
            if not len(chosen):
                continue
            for part in np.array_split(chosen, self._parts(node, len(chosen), values)):
                x = values.wrap(values.read(node.gather[part]))
                y = (self._session.linear(node.weights[block], x) + bias[block]).words
                if out is None:
                    out = np.empty((y.shape[0], positions, rows, y.shape[-1]), dtype=y.dtype)
                out[:, part] = y
        assert out is not None
        return out.reshape(out.shape[0], positions * rows, -1)

    @staticmethod
    def _parts(node: Linear, positions: int, values: _Values) -> int:
        """Calls into which the positions of a block are split, so that the gathered ciphertexts fit memory."""
        needed = values.sample_bytes * node.gather.shape[1] * positions
        return min(positions, max(1, -(-int(needed) // GATHERED_BYTES)))


def samples_at_once(program: Program) -> int:
    """Samples whose ciphertexts of every wire stay within WORKING_BYTES."""
    one = program.graph.wire_count * (program.parameters.large_dimension + 1) * word_dtype(program.parameters).itemsize
    return max(1, WORKING_BYTES // int(one))


class _Values:
    """Words of the nodes computed so far, [samples, wires of the node, kN + 1]."""

    def __init__(self, graph: Graph, owner: Indices, words: dict[int, Words], example: Ciphertexts) -> None:
        self._nodes: tuple[Node, ...] = graph.nodes
        self._graph = graph
        self._owner = owner
        self.words = words
        self._example = example

    def read(self, gather: Indices) -> Words:
        """[samples, *gather.shape, kN + 1]; the zero wire is the trivial ciphertext of zero."""
        sources = source_nodes(self._graph, gather, self._owner)
        if len(sources) == 1 and int(gather.min()) >= 0:
            return self.words[sources[0]][:, gather - self._nodes[sources[0]].first_wire]
        out = np.zeros(
            (len(self._example.words), *gather.shape, self._example.words.shape[-1]), self._example.words.dtype
        )
        owner = self._owner[gather]
        for source in sources:
            mask = (owner == source) & (gather >= 0)
            out[:, mask] = self.words[source][:, gather[mask] - self._nodes[source].first_wire]
        return out

    @property
    def sample_bytes(self) -> int:
        """One ciphertext for each sample."""
        return int(self._example.words[:, 0].nbytes)

    def wrap(self, words: Words) -> Ciphertexts:
        example = self._example
        return Ciphertexts.from_words(example.parameters, words, encoding=Encoding.TORUS, key_id=example.key_id)


def _offset_progress(progress: Progress, done: int, batch: int, total: int) -> Progress:
    """The engine counts in units of its own, part of the batch."""
    return None if progress is None else lambda part, whole: progress(done + part * batch // whole, total)


def shifted_progress(progress: Progress, done: int, total: int) -> Progress:
    """For one batch of several: counts from `done`, of `total`."""
    return None if progress is None else lambda part, _: progress(done + part, total)
