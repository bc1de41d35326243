"""Runs a program on GPUs with every number on the device: input expanded and extracted there, results copied to the host at the end.

The words are those of `Runtime` on the CPU. Several GPUs take contiguous shares of the samples, a thread for each.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from cloakwork.fhe_core import _engine
from cloakwork.fhe_core.ciphertexts import Ciphertexts, PackedCiphertexts, SeededPackedCiphertexts
from cloakwork.fhe_core.encoding import Encoding
from cloakwork.fhe_core.lookup_tables import LookupTables
from cloakwork.fhe_core.parameters import word_dtype
from cloakwork.fhe_core.phase_arithmetic import constant_words
from cloakwork.fhe_core.server import Session
from cloakwork.models.ir import Graph, Indices, Linear, Lookup, source_nodes
from cloakwork.models.program import Program
from cloakwork.models.tables import shift_coefficients

Packed: TypeAlias = SeededPackedCiphertexts | PackedCiphertexts
Progress: TypeAlias = Callable[[int, int], bool | None] | None
Tables: TypeAlias = tuple[LookupTables, Indices] | None

MEMORY_SHARE = 4  # of the free device memory, one part in so many for the ciphertexts of all wires; gathers and scratch need others


@dataclass(frozen=True)
class _Node:
    """Where a node's ciphertexts lie: columns `first` .. of an array [samples, width, kN + 1]."""

    array: Any
    first: int


class ResidentRuntime:
    """A program on one GPU session or one spread over several; weights are uploaded once."""

    def __init__(self, program: Program, session: Session, tables: list[Tables]) -> None:
        self._program = program
        self._session = session
        self._tables = tables
        self._graph = program.graph
        self._owner = program.graph.owners()
        self._positions = {node.first_wire: i for i, node in enumerate(program.graph.nodes)}
        self._last_reader = last_readers(program, self._owner)
        self._weights: dict[tuple[int, int, int], Any] = {}
        self._bias = {
            self._positions[node.first_wire]: [
                constant_words(program.parameters, row, Encoding.TORUS) for row in program.phase_bias(node)
            ]
            for node in program.graph.linears
        }
        self._lock = threading.Lock()

    def run(self, x: Packed, progress: Progress = None) -> Ciphertexts:
        """[samples, numbers] -> [samples, outputs] in host memory."""
        samples, devices = x.shape[0], len(self._session.engine_sessions)
        bounds = [samples * i // devices for i in range(devices + 1)]
        shares = [i for i in range(devices) if bounds[i] < bounds[i + 1]]
        total = _Total(progress, self._program.bootstraps * samples)
        width = self._program.parameters.large_dimension + 1
        outputs = _engine.pinned_empty((samples, self._graph.output.size, width), word_dtype(x.parameters))

        def share(number: int) -> None:
            part = slice(bounds[number], bounds[number + 1])
            self._run_share(number, x, part, total).to_host(outputs[part])

        if len(shares) == 1:
            share(shares[0])
        else:
            with ThreadPoolExecutor(len(shares)) as pool:
                for future in [pool.submit(share, number) for number in shares]:
                    future.result()
        return Ciphertexts(
            x.parameters, outputs, outputs.shape[:2], encoding=Encoding.TORUS, key_id=self._session.expanded_key.key_id
        )

    def _run_share(self, number: int, x: Packed, part: slice, total: _Total) -> Any:
        """Outputs [samples, outputs, kN + 1] of some samples on one device."""
        engine, samples, numbers = self._session.engine_sessions[number], part.stop - part.start, x.shape[1]
        rows = self._session.extract_values(number, x, part.start * numbers, part.stop * numbers)
        values = {0: _Node(rows.reshape((samples, numbers, rows.shape[-1])), 0)}
        for step, (level, tables) in enumerate(zip(self._program.levels, self._tables, strict=True)):
            for node in level.linears:
                position = self._positions[node.first_wire]
                values[position] = _Node(self._linear(number, position, node, values), 0)
            if tables is not None:
                self._look_up(number, level.lookups, tables, values, total)
            for position in [p for p in values if self._last_reader[p] <= step]:
                del values[position]
        return self._read(engine, self._graph.output.reshape(-1), values)

    def _look_up(
        self,
        number: int,
        lookups: tuple[Lookup, ...],
        tables: tuple[LookupTables, Indices],
        values: dict[int, _Node],
        total: _Total,
    ) -> None:
        """The look-ups of a level; those of one output each in one batch of bootstraps."""
        engine, start = self._session.engine_sessions[number], 0
        for nodes in lookup_batches(lookups):
            gather = np.concatenate([node.gather for node in nodes])
            batch = self._read(engine, gather, values)
            samples, width = batch.shape[0], batch.shape[-1]
            chosen = tables[1][start : start + len(gather)].astype(np.uint32)
            index = None if len(tables[0]) == 1 else np.tile(chosen, samples)
            shifts = shift_coefficients(self._graph, nodes[0], self._program.parameters)
            coefficients = None if shifts is None else shifts.astype(np.uint32)
            flat = batch.reshape((samples * len(gather), width))
            out = engine.bootstrap(flat, tables[0].polynomials, index, coefficients, total.of(number, len(flat)))
            result, column = out.reshape((samples, len(gather) * out.shape[1], width)), 0
            for node in nodes:
                values[self._positions[node.first_wire]] = _Node(result, column)
                column += node.size
            start += len(gather)

    def _linear(self, number: int, position: int, node: Linear, values: dict[int, _Node]) -> Any:
        """[samples, P R, kN + 1]"""
        engine, rows = self._session.engine_sessions[number], node.weights.shape[1]
        store, local = self._located(node.gather, values)
        blocks = [b for b in range(len(node.weights)) if (node.block == b).any()]
        out = None
        for block in blocks:
            weights, bias = self._uploaded(number, position, block, node), self._bias[position][block]
            chosen = np.flatnonzero(node.block == block)
            gather = _gather_or_none(local[chosen], store.shape[1])
            if len(blocks) == 1:
                return engine.gathered_linear(weights, store, gather, bias)
            places = (chosen * rows).astype(np.int32)
            out = engine.gathered_linear(weights, store, local[chosen], bias, places, node.size, out)
        return out

    def _uploaded(self, number: int, position: int, block: int, node: Linear) -> Any:
        key = (number, position, block)
        with self._lock:
            if key not in self._weights:
                matrix = np.ascontiguousarray(node.weights[block], dtype=np.int32)
                self._weights[key] = self._session.engine_sessions[number].upload_weights(matrix)
            return self._weights[key]

    def _read(self, engine: Any, gather: Indices, values: dict[int, _Node]) -> Any:
        """[samples, wires, kN + 1] of a vector of wires; an array as it is when it holds just these."""
        store, local = self._located(gather, values)
        if np.array_equal(local, np.arange(store.shape[1])):
            return store
        return engine.take(store, local)

    def _located(self, gather: Indices, values: dict[int, _Node]) -> tuple[Any, NDArray[np.int32]]:
        """An array that holds all wires of a gather, and their columns in it (-1: the zero wire)."""
        # What reads nothing but zeros has no level before it, so that the input is there.
        sources = source_nodes(self._graph, gather, self._owner) or [0]
        arrays: list[Any] = []
        for source in sources:
            if not any(values[source].array is array for array in arrays):
                arrays.append(values[source].array)
        starts = np.concatenate([[0], np.cumsum([array.shape[1] for array in arrays])]).tolist()
        shift = np.zeros(len(self._graph.nodes), dtype=np.int64)
        for source in sources:
            value = values[source]
            which = next(i for i, array in enumerate(arrays) if array is value.array)
            shift[source] = starts[which] + value.first - self._graph.nodes[source].first_wire
        local = np.where(gather >= 0, gather + shift[self._owner[gather]], -1).astype(np.int32)
        if len(arrays) == 1:
            return arrays[0], np.ascontiguousarray(local)
        samples, width = arrays[0].shape[0], arrays[0].shape[-1]
        return _engine.device_concatenate(arrays, samples, (samples, starts[-1], width)), np.ascontiguousarray(local)


class _Total:
    """One progress(done, total) of the bootstraps on all devices."""

    def __init__(self, progress: Progress, total: int) -> None:
        self._progress, self._total = progress, total
        self._done: dict[int, int] = {}  # of the calls that each device has behind it and of the present one
        self._lock = threading.Lock()

    def of(self, number: int, batch: int) -> Progress:
        if self._progress is None:
            return None
        before = self._done.get(number, 0)

        def report(part: int, whole: int) -> bool:
            assert self._progress is not None
            with self._lock:
                self._done[number] = before + part * batch // whole
                return self._progress(sum(self._done.values()), self._total) is not False

        return report


def lookup_batches(nodes: tuple[Lookup, ...]) -> list[list[Lookup]]:
    """Look-ups of one output share a batch; those with shifts extract coefficients of their own."""
    batches: list[list[Lookup]] = []
    for node in nodes:
        if batches and node.shifts is None and batches[-1][0].shifts is None:
            batches[-1].append(node)
        else:
            batches.append([node])
    return batches


def last_readers(program: Program, owner: Indices) -> list[int]:
    """By node: the level after which nothing reads it; beyond the last level for what the output reads."""
    graph = program.graph
    last = [-1] * len(graph.nodes)
    for step, level in enumerate(program.levels):
        nodes: list[Linear | Lookup] = [*level.linears, *level.lookups]
        for node in nodes:
            for source in source_nodes(graph, node.gather, owner):
                last[source] = max(last[source], step)
    for source in source_nodes(graph, graph.output, owner):
        last[source] = len(program.levels)
    return last


def resident_samples(program: Program, session: Session) -> int:
    """Samples whose ciphertexts of every wire take at most a part of the free memory of each device."""
    one = wire_bytes(program.graph, program)
    free: int = min(_engine.device_memory(engine.device)[0] for engine in session.engine_sessions)
    return max(1, free // (MEMORY_SHARE * one)) * len(session.engine_sessions)


def wire_bytes(graph: Graph, program: Program) -> int:
    """A sample's ciphertexts of all wires."""
    params = program.parameters
    return int(graph.wire_count * (params.large_dimension + 1) * word_dtype(params).itemsize)


def _gather_or_none(local: NDArray[np.int32], width: int) -> NDArray[np.int32] | None:
    """None where one position reads the whole array in order."""
    whole = len(local) == 1 and local.shape[1] == width and np.array_equal(local[0], np.arange(width))
    return None if whole else np.ascontiguousarray(local)
