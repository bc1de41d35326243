"""Runs a program on ciphertexts: level by level, all samples and all look-ups of a level in one batch. Public side only.

On GPUs `models/resident.py` does the same on device arrays, word for word.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from cloakwork.fhe_core.arrays import Words
from cloakwork.fhe_core.ciphertexts import Ciphertexts, PackedCiphertexts, SeededPackedCiphertexts
from cloakwork.fhe_core.encoding import Encoding
from cloakwork.fhe_core.lookup_tables import LookupTables
from cloakwork.fhe_core.parameters import word_dtype
from cloakwork.fhe_core.server import Session
from cloakwork.fhe_core.switched_ciphertexts import SwitchedCiphertexts
from cloakwork.models.answers import answer_bits
from cloakwork.models.errors import ShapeError
from cloakwork.models.ir import Graph, Indices, Linear, Lookup, Node, source_nodes
from cloakwork.models.program import Program
from cloakwork.models.purpose import check_purpose
from cloakwork.models.resident import ResidentRuntime, lookup_batches, resident_samples, wire_bytes
from cloakwork.models.tables import level_tables, shift_coefficients

Progress: TypeAlias = Callable[[int, int], bool | None] | None
"""progress(bootstraps done, bootstraps of the batch); returning False cancels."""

PACKED_WEIGHT_BYTES = 1 << 27
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
        self._resident = ResidentRuntime(program, session, self._tables) if session.device != "cpu" else None
        self._packed = packed_weights(program.graph, self._owner) if self._resident is None else {}

    def run(self, x: SeededPackedCiphertexts | PackedCiphertexts, progress: Progress = None) -> Ciphertexts:
        """Encrypted samples [samples, numbers] -> encrypted outputs [samples, numbers], without the client's steps.

        The same words on every device and in every run: for audits, and not for the client, whom they tell the model's weights; see `answer`.

        Raises:
            ShapeError: another number of numbers for a sample.
            KeyMismatchError: encrypted for another program, or for none.
        """
        graph = self.program.graph
        if len(x.shape) != 2 or x.shape[1] != graph.input.size:
            raise ShapeError(
                f"input: expected packed ciphertexts of shape ['samples', {graph.input.size}], got {list(x.shape)}; "
                "encrypt with the model's client specification"
            )
        check_purpose(x.purpose, self.program.digest, "input", "encrypt with the model's client specification")
        return self._run(x, progress).with_purpose(self.program.digest)

    def _run(self, x: SeededPackedCiphertexts | PackedCiphertexts, progress: Progress) -> Ciphertexts:
        graph = self.program.graph
        if self._resident is not None:
            return self._resident.run(x, progress)
        packed = x.expand() if isinstance(x, SeededPackedCiphertexts) else x
        values = _Values(graph, self._owner, packed)
        if not self._packed:
            values.words[0] = self._session.extract(packed).words
        done, total = 0, self.program.bootstraps * x.shape[0]
        positions = {node.first_wire: i for i, node in enumerate(graph.nodes)}
        for level, tables in zip(self.program.levels, self._tables, strict=True):
            for linear in level.linears:
                position = positions[linear.first_wire]
                if position in self._packed:
                    values.words[position] = self._linear_packed(linear, self._packed[position], packed)
                else:
                    values.words[position] = self._linear(linear, values)
            if tables is None:
                continue
            start = 0
            for nodes in lookup_batches(level.lookups):
                elements = slice(start, start + sum(node.bootstraps for node in nodes))
                result = self._look_up(nodes, (tables[0], tables[1][elements]), values, (progress, done, total))
                done += (elements.stop - start) * x.shape[0]
                start, column = elements.stop, 0
                for node in nodes:
                    values.words[positions[node.first_wire]] = result[:, column : column + node.size]
                    column += node.size
        return values.wrap(values.read(graph.output.reshape(-1)))

    def answer(
        self, x: SeededPackedCiphertexts | PackedCiphertexts, progress: Progress = None
    ) -> Ciphertexts | SwitchedCiphertexts:
        """`run`, re-randomised, and then in as few bits as its noise leaves: what may be sent to the client. Other words at every call."""
        result = self._session.rerandomise(self.run(x, progress))
        return result if self._answer_bits is None else SwitchedCiphertexts.switch(result, self._answer_bits)

    @cached_property
    def _answer_bits(self) -> int | None:
        return answer_bits(self.program)

    def _look_up(
        self,
        nodes: list[Lookup],
        tables: tuple[LookupTables, Indices],
        values: _Values,
        progress: tuple[Progress, int, int],
    ) -> Words:
        """[samples, wires of the nodes, kN + 1] in one batch of bootstraps. Args: progress: with those done and those of the program."""
        batch = np.concatenate([values.read(node.gather) for node in nodes], axis=1)
        report = _offset_progress(progress[0], progress[1], batch.shape[0] * batch.shape[1], progress[2])
        result = self._session.activation(
            values.wrap(batch),
            tables[0],
            table_index=tables[1],
            coefficients=shift_coefficients(self.program.graph, nodes[0], self.program.parameters),
            allow_noise=True,
            progress=report,
        )
        return result.words.reshape(len(result.words), -1, result.words.shape[-1])

    def _linear_packed(self, node: Linear, weights: NDArray[np.int32], packed: PackedCiphertexts) -> Words:
        """[samples, P R, kN + 1] of a node on the input, which stays packed."""
        bias = self.program.phase_bias(node)[node.block].reshape(-1)
        return (self._session.linear_packed(weights, packed) + bias).words

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


def packed_nodes(graph: Graph, owner: Indices) -> list[int]:
    """Positions of the nodes that read the input while it stays packed; none when a node mixes the input with others or its rows are too many,
    because then the input is unpacked anyway."""
    found = []
    for position, node in enumerate(graph.nodes):
        sources = source_nodes(graph, node.gather, owner)
        if 0 not in sources:
            continue
        if not isinstance(node, Linear) or len(sources) > 1 or 4 * node.size * graph.input.size > PACKED_WEIGHT_BYTES:
            return []
        found.append(position)
    return found


def packed_weights(graph: Graph, owner: Indices) -> dict[int, NDArray[np.int32]]:
    """By position: a row of weights [P R, C] over the whole input for each output of the `packed_nodes`."""
    dense = {}
    for position in packed_nodes(graph, owner):
        node = graph.nodes[position]
        assert isinstance(node, Linear)
        positions, rows = len(node.gather), node.weights.shape[1]
        weights = np.zeros(
            (positions, rows, graph.input.size + 1), dtype=np.int64
        )  # the last column takes the zero wire
        spread = np.broadcast_to(node.gather[:, None, :], (positions, rows, node.gather.shape[1]))
        place, row = np.arange(positions)[:, None, None], np.arange(rows)[None, :, None]
        np.add.at(weights, (place, row, spread), node.weights[node.block])
        dense[position] = np.ascontiguousarray(weights[..., :-1].reshape(node.size, -1), dtype=np.int32)
    return dense


def samples_at_once(program: Program, session: Session | None = None) -> int:
    """Samples of one call of `run`: their ciphertexts of every wire stay within WORKING_BYTES, on GPUs within a part of the free memory."""
    if session is not None and session.device != "cpu":
        return resident_samples(program, session)
    return max(1, WORKING_BYTES // wire_bytes(program.graph, program))


class _Values:
    """Words of the nodes computed so far, [samples, wires of the node, kN + 1]."""

    def __init__(self, graph: Graph, owner: Indices, packed: PackedCiphertexts) -> None:
        self._nodes: tuple[Node, ...] = graph.nodes
        self._graph = graph
        self._owner = owner
        self.words: dict[int, Words] = {}
        self._packed = packed

    def read(self, gather: Indices) -> Words:
        """[samples, *gather.shape, kN + 1]; the zero wire is the trivial ciphertext of zero."""
        sources = source_nodes(self._graph, gather, self._owner)
        if len(sources) == 1 and int(gather.min()) >= 0:
            return self.words[sources[0]][:, gather - self._nodes[sources[0]].first_wire]
        params = self._packed.parameters
        shape = (self._packed.shape[0], *gather.shape, params.large_dimension + 1)
        out = np.zeros(shape, word_dtype(params))
        owner = self._owner[gather]
        for source in sources:
            mask = (owner == source) & (gather >= 0)
            out[:, mask] = self.words[source][:, gather[mask] - self._nodes[source].first_wire]
        return out

    @property
    def sample_bytes(self) -> int:
        """One ciphertext for each sample."""
        params = self._packed.parameters
        return self._packed.shape[0] * (params.large_dimension + 1) * word_dtype(params).itemsize

    def wrap(self, words: Words) -> Ciphertexts:
        return Ciphertexts.from_words(
            self._packed.parameters, words, encoding=Encoding.TORUS, key_id=self._packed.key_id
        )


def _offset_progress(progress: Progress, done: int, batch: int, total: int) -> Progress:
    """The engine counts in units of its own, part of the batch."""
    return None if progress is None else lambda part, whole: progress(done + part * batch // whole, total)


def shifted_progress(progress: Progress, done: int, total: int) -> Progress:
    """For one batch of several: counts from `done`, of `total`."""
    return None if progress is None else lambda part, _: progress(done + part, total)
