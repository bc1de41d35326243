"""Time of encrypted queries against a table of random int8 vectors, on one device: the server's part alone. Every score is compared.

python tests/benchmarks/neighbour_scoring.py ROWS FEATURES [DEVICE] [QUERIES_AT_ONCE] [QUERY_BITS]
"""

from __future__ import annotations

import json
import math
import statistics
import sys
import time

import numpy as np

from cloakwork.fhe_core.levelled.client import LevelledClientKey
from cloakwork.fhe_core.levelled.evaluator import LevelledEvaluator
from cloakwork.fhe_core.levelled.expansion_keys import expansion_automorphisms
from cloakwork.fhe_core.levelled.inner_products import (
    InnerProductTable,
    packed_query,
    products_noise,
    rows_of,
)
from cloakwork.fhe_core.levelled.noise import failure_log2
from cloakwork.fhe_core.levelled.parameters import LevelledParameters


def main(rows: int, features: int, device: str = "cpu", at_once: int = 1, bits: int = 8) -> None:
    rng = np.random.default_rng(1)
    table = rng.integers(-127, 128, (rows, features), dtype=np.int8)
    limit = (1 << (bits - 1)) - 1
    modulus = 2 * int(np.abs(table.astype(np.int32)).sum(axis=1).max()) * limit + 1
    for name, level, answer_level in (
        ("bgv12", 2, 1),
        ("bgv13", 2, 1),
        ("bgv13", 3, 1),
        ("bgv13", 3, 2),
        ("bgv13", 4, 2),
    ):
        if modulus >= 1 << 26:
            raise SystemExit(f"plaintext modulus {modulus}: take fewer bits")
        parameters = LevelledParameters.of(name, modulus)
        norms = 127.0 * parameters.polynomial_size * features, 127.0 * math.sqrt(parameters.polynomial_size * features)
        if (
            failure_log2(products_noise(parameters, (level, answer_level), features, *norms), parameters, answer_level)
            <= -128
        ):
            break
    key = LevelledClientKey.generate(parameters)
    evaluator = LevelledEvaluator(
        parameters, key.evaluation_keys(expansion_automorphisms(parameters, features)), device=device
    )
    start = time.perf_counter()
    prepared = InnerProductTable(evaluator, table, level=level, answer_level=answer_level)
    made = time.perf_counter() - start
    vectors = rng.integers(-limit, limit + 1, (at_once, features))
    queries = [key.encrypt(packed_query(parameters, vector)[None], level) for vector in vectors]
    seconds: list[float] = []
    while len(seconds) < 3 or (sum(seconds) < 5 and len(seconds) < 20):
        start = time.perf_counter()
        found = [answer.to_host() for answer in prepared.products_of_all(queries)]
        seconds.append(time.perf_counter() - start)
    wrong = sum(
        int(
            np.count_nonzero(
                rows_of(key.decrypt(answer, signed=True), rows) != table.astype(np.int32) @ vector.astype(np.int32)
            )
        )
        for answer, vector in zip(found, vectors, strict=True)
    )
    record = {
        "rows": rows, "features": features, "device": device, "set": parameters.set.name, "levels": [level, answer_level],
        "plaintext_modulus": modulus, "table_bytes": prepared.nbytes, "prepared_seconds": made, "wrong": wrong, "outputs": rows * at_once,
        "queries_at_once": at_once, "seconds_a_query": statistics.median(seconds[1:]) / at_once, "answer_bytes": len(found[0].to_bytes()),
    }  # fmt: skip
    print(json.dumps(record))


if __name__ == "__main__":
    rows_, features_, *rest = sys.argv[1:]
    device_ = rest.pop(0) if rest else "cpu"
    main(int(rows_), int(features_), device_, *map(int, rest))
