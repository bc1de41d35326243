"""Time of encrypted queries against a table of random int8 vectors, on one device: the server's part alone. Every score is compared.

python tests/benchmarks/neighbour_scoring.py ROWS FEATURES [DEVICE] [QUERIES_AT_ONCE] [QUERY_BITS] [PROBES] [THREADS]

With PROBES rows are in as many cells a block, in their order, and queries ask for cells at random; 0: every row is scored.
"""

from __future__ import annotations

import json
import math
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloakwork.fhe_core.levelled.ciphertexts import LevelledCiphertexts, SeededLevelledCiphertexts
from cloakwork.fhe_core.levelled.client import LevelledClientKey
from cloakwork.fhe_core.levelled.evaluator import LevelledEvaluator
from cloakwork.fhe_core.levelled.neighbours.cell_products import CellTable, cell_products_noise
from cloakwork.fhe_core.levelled.neighbours.cells import CellLayout
from cloakwork.fhe_core.levelled.neighbours.expansion_keys import expansion_automorphisms
from cloakwork.fhe_core.levelled.neighbours.inner_products import (
    InnerProductTable,
    packed_query,
    products_noise,
    rows_of,
)
from cloakwork.fhe_core.levelled.noise import failure_log2
from cloakwork.fhe_core.levelled.parameters import LevelledParameters
from cloakwork.models.neighbours.sets import CELL_LEVELS, CELL_SET

Scores = NDArray[np.int64]


@dataclass
class Measured:
    """A table that is ready, queries, and what answers have to be.

    Attributes:
        read: the scores of a decrypted answer to query number i, and the rows that they are of.
    """

    table: InnerProductTable | CellTable
    queries: list[SeededLevelledCiphertexts]
    read: Callable[[NDArray[np.int64], int], tuple[Scores, NDArray[np.int64]]]
    facts: dict[str, Any]


def every_row(
    table: NDArray[np.int8], vectors: Scores, modulus: int, device: str, threads: int
) -> tuple[LevelledClientKey, Measured]:
    rows, features = table.shape
    for name, level, answer_level in (
        ("bgv12", 2, 1),
        ("bgv13", 2, 1),
        ("bgv13", 3, 1),
        ("bgv13", 3, 2),
        ("bgv13", 4, 2),
    ):
        parameters = LevelledParameters.of(name, modulus)
        foreseen = products_noise(parameters, (level, answer_level), features, *norms(parameters, features))
        if failure_log2(foreseen, parameters, answer_level) <= -128:
            break
    key = LevelledClientKey.generate(parameters)
    keys = key.evaluation_keys(expansion_automorphisms(parameters, features))
    evaluator = LevelledEvaluator(parameters, keys, device=device, threads=threads)
    prepared = InnerProductTable(evaluator, table, level=level, answer_level=answer_level)
    queries = [key.encrypt_seeded(packed_query(parameters, vector)[None], level) for vector in vectors]
    facts = {"set": name, "levels": [level, answer_level]}
    return key, Measured(prepared, queries, lambda answer, _: (rows_of(answer, rows), np.arange(rows)), facts)


def some_cells(
    table: NDArray[np.int8], vectors: Scores, modulus: int, device: str, threads: int, probes: int
) -> tuple[LevelledClientKey, Measured]:
    rows, features = table.shape
    parameters = LevelledParameters.of(CELL_SET, modulus)
    size = parameters.polynomial_size
    layout = CellLayout(parameters, features, -(-rows // size), probes)
    for levels in CELL_LEVELS:
        products, answers = cell_products_noise(layout, levels, *norms(parameters, features))
        chances = failure_log2(products, parameters, levels.product), failure_log2(answers, parameters, levels.answer)
        if max(chances) <= -128:
            break
    else:
        raise SystemExit("no levels have room: take fewer bits or probes")
    key = LevelledClientKey.generate(parameters)
    evaluator = LevelledEvaluator(
        parameters, key.evaluation_keys(layout.key_shape.automorphisms), device=device, threads=threads
    )
    padded = np.zeros((layout.blocks * size, features), dtype=np.int8)
    padded[:rows] = table
    prepared = CellTable(evaluator, layout, levels, padded, np.zeros(len(padded), dtype=np.int64))
    rng = np.random.default_rng(2)
    places = [layout.place(rng.permutation(layout.cells).tolist()) for _ in vectors]
    packed = [layout.query(vector, each) for vector, each in zip(vectors, places, strict=True)]
    queries = [key.encrypt_seeded(each[None], levels.query).rounded(levels.query_bits) for each in packed]

    def read(answer: NDArray[np.int64], number: int) -> tuple[Scores, NDArray[np.int64]]:
        scored = np.concatenate([layout.rows_of(int(cell), layout.cell_rows) for cell in places[number]])
        scores = layout.scores(answer[0], places[number]).reshape(-1)
        return scores[scored < rows], scored[scored < rows]

    facts = {
        "set": CELL_SET, "levels": [levels.query, levels.product, levels.joined, levels.answer], "cells": layout.cells, "probes": probes,
        "failure_log2": max(chances),
    }  # fmt: skip
    return key, Measured(prepared, queries, read, facts)


def norms(parameters: LevelledParameters, features: int) -> tuple[float, float]:
    numbers = parameters.polynomial_size * features
    return 127.0 * numbers, 127.0 * math.sqrt(numbers)


def main(
    rows: int, features: int, device: str = "cpu", at_once: int = 1, bits: int = 8, probes: int = 0, threads: int = 1
) -> None:
    rng = np.random.default_rng(1)
    table = rng.integers(-127, 128, (rows, features), dtype=np.int8)
    limit = (1 << (bits - 1)) - 1
    modulus = 2 * int(np.abs(table.astype(np.int32)).sum(axis=1).max()) * limit + 1
    if modulus >= 1 << 26:
        raise SystemExit(f"plaintext modulus {modulus}: take fewer bits")
    vectors = rng.integers(-limit, limit + 1, (at_once, features))
    start = time.perf_counter()
    if probes:
        key, measured = some_cells(table, vectors, modulus, device, threads, probes)
    else:
        key, measured = every_row(table, vectors, modulus, device, threads)
    made = time.perf_counter() - start
    seconds: list[float] = []
    answers: list[LevelledCiphertexts] = []
    expanded = [query.expand() for query in measured.queries]
    while len(seconds) < 3 or (sum(seconds) < 5 and len(seconds) < 20):
        start = time.perf_counter()
        answers = [answer.to_host() for answer in measured.table.products_of_all(expanded)]
        seconds.append(time.perf_counter() - start)
    wrong, outputs = 0, 0
    for number, answer in enumerate(answers):
        found, scored = measured.read(key.decrypt(answer, signed=True), number)
        expected = table[scored].astype(np.int32) @ vectors[number].astype(np.int32)
        wrong, outputs = wrong + int(np.count_nonzero(found != expected)), outputs + len(found)
    record = measured.facts | {
        "rows": rows, "features": features, "device": device, "threads": threads, "plaintext_modulus": modulus,
        "table_bytes": measured.table.nbytes, "prepared_seconds": made, "wrong": wrong, "outputs": outputs,
        "queries_at_once": at_once, "seconds_a_query": statistics.median(seconds[1:]) / at_once, "least_seconds_a_query": min(seconds) / at_once,
        "query_bytes": len(measured.queries[0].to_bytes()), "answer_bytes": len(answers[0].to_bytes()),
    }  # fmt: skip
    print(json.dumps(record))


if __name__ == "__main__":
    rows_, features_, *rest = sys.argv[1:]
    device_ = rest.pop(0) if rest else "cpu"
    main(int(rows_), int(features_), device_, *map(int, rest))
