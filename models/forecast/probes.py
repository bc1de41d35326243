"""Small programs that consist mainly of one kind of work, and inputs for them: what the rates of a machine are measured with.

Public side only. Ciphertexts are uniform words, which the engine takes as long for as for encryptions.
"""

from __future__ import annotations

import numpy as np

from cloakwork.fhe_core.arrays.encoding import Encoding
from cloakwork.fhe_core.ciphertexts import SeededPackedCiphertexts
from cloakwork.fhe_core.parameters import ParameterSet, word_dtype
from cloakwork.fhe_core.server import Session
from cloakwork.models.arrays import Indices
from cloakwork.models.graph.ir import Graph, Input, Linear, Lookup, Node
from cloakwork.models.graph.steps import Step
from cloakwork.models.program import Program

_SCALE = 1 / 1024
_STORE = 64  # ciphertexts that a later product reads again and again, as a layer reads those of the one before


def dense(params: ParameterSet, columns: int, rows: int) -> Program:
    """Returns a matrix on the input."""
    return _program(params, [_input(columns), _linear(columns, np.arange(columns)[None], rows)], columns)


def chain(params: ParameterSet, count: int) -> Program:
    """Builds a chain of products of one number, one after the other."""
    nodes: list[Node] = [_input(1)]
    nodes += [_linear(wire, np.array([[wire - 1]]), 1) for wire in range(1, count + 2)]
    return _program(params, nodes, count + 1)


def layer(params: ParameterSet, positions: int, columns: int, rows: int, returned: int = 1) -> Program:
    """Makes a matrix [rows, columns] at several positions of a layer, as a convolution has it. Args: returned: how many numbers of it."""
    first = _linear(1, np.zeros((1, 1), dtype=np.int64), _STORE)
    gather = 1 + np.arange(positions * columns).reshape(positions, columns) % _STORE
    return _program(params, [_input(1), first, _linear(1 + _STORE, gather, rows)], 1 + _STORE, returned)


def unpacked(params: ParameterSet, columns: int) -> Program:
    """Returns an input of which every ciphertext is extracted, because a product reads it together with others."""
    first = _linear(columns, np.zeros((1, 1), dtype=np.int64), 1)
    return _program(params, [_input(columns), first, _linear(columns + 1, np.array([[0, columns]]), 1)], columns + 1)


def lookups(params: ParameterSet, count: int) -> Program:
    """Builds look-ups of one table in one batch."""
    first = _linear(1, np.zeros((1, 1), dtype=np.int64), 1)
    batch = Lookup(2, np.full(count, 1), (Step("Relu"),), np.zeros(count, dtype=np.int64), "probe")
    return _program(params, [_input(1), first, batch, _linear(2 + count, np.array([[2]]), 1)], 2 + count)


def probe_input(program: Program, session: Session, samples: int, seed: int = 0) -> SeededPackedCiphertexts:
    """Makes uniform words for this many samples."""
    params, rng = program.parameters, np.random.default_rng(seed)
    size, columns = params.polynomial_size, program.graph.input.size
    bodies = rng.integers(0, params.modulus, (-(-samples * columns // size), size), dtype=np.uint64)
    return SeededPackedCiphertexts(
        params, rng.bytes(32), bodies.astype(word_dtype(params)), (samples, columns),
        encoding=Encoding.TORUS, key_id=session.expanded_key.key_id, purpose=program.digest,
    )  # fmt: skip


def _input(columns: int) -> Input:
    return Input(0, (columns,), "probe")


def _linear(first_wire: int, gather: Indices, rows: int) -> Linear:
    positions, columns = gather.shape
    weights = np.arange(rows * columns).reshape(1, rows, columns) % 15 - 7  # as layers of four bits have them
    return Linear(first_wire, gather, np.zeros(positions, dtype=np.int64), weights, np.zeros((1, rows)), "probe")


def _program(params: ParameterSet, nodes: list[Node], output: int, returned: int = 1) -> Program:
    count = max(node.first_wire + node.size for node in nodes)
    ones = np.ones(count)
    graph = Graph(tuple(nodes), np.arange(output, output + returned), (), -ones, ones, _SCALE * ones, 0 * ones)
    return Program(graph, params, 0.0)
