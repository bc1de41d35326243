"""Tables in cells: encrypted scores are the integers' in clear, 100,000 bytes each way; odd tables, what is chosen, hostile specifications."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cloakwork.fhe_core.errors import FheError
from cloakwork.fhe_core.levelled.ciphertexts import (
    LevelledCiphertexts,
    LevelledEvaluationKeys,
    SeededLevelledCiphertexts,
)
from cloakwork.fhe_core.levelled.client import LevelledClientKey
from cloakwork.models.errors import AccuracyWarning, CompileError
from cloakwork.models.neighbours.cells import UNSEEN, Cells
from cloakwork.models.neighbours.client import NeighbourClient
from cloakwork.models.neighbours.index import NeighbourIndex
from cloakwork.models.neighbours.index_file import load_index

pytestmark = [
    pytest.mark.filterwarnings("ignore::cloakwork.models.errors.AccuracyWarning"),
    pytest.mark.filterwarnings("ignore::cloakwork.models.errors.CalibratedRangeWarning"),
]


def clusters(rows: int, features: int, seed: int = 1) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.standard_normal((40, features))[rng.integers(0, 40, rows)] * 3 + rng.standard_normal((rows, features))


def labels(table: np.ndarray) -> np.ndarray:
    """That integers of 8 bits decide as unrounded numbers do."""
    return np.asarray(table[:, 0] > 0).astype(int)


@pytest.fixture(scope="module")
def index() -> NeighbourIndex:
    """Three blocks, of which cells are not all full."""
    table = clusters(20000, 5)
    return NeighbourIndex.build(table, labels(table), cells="auto", n_neighbors=4, weights="distance")


@pytest.fixture(scope="module")
def small() -> NeighbourIndex:
    """Two blocks."""
    table = clusters(9000, 5)
    return NeighbourIndex.build(table, labels(table), cells=10, n_neighbors=4, weights="distance")


def answered(index: NeighbourIndex, samples: np.ndarray) -> np.ndarray:
    """Scores through bytes on both ways, by a client that has its specification alone."""
    client = NeighbourClient.from_json(index.client.to_json())
    key = LevelledClientKey.generate(client.parameters)
    keys = LevelledEvaluationKeys.from_bytes(client.evaluation_keys(key).to_bytes(), client.parameters)
    scorer, found = index.scorer(keys, threads=2), []
    for sample, integers in zip(samples, client.integers(samples), strict=True):
        sent = client.encrypt(key, sample).to_bytes()
        query = SeededLevelledCiphertexts.from_bytes(sent, client.parameters)
        received = scorer.score(query).to_bytes()
        assert len(sent) <= 100_000 and len(received) <= 100_000
        found.append(client.scores(key, LevelledCiphertexts.from_bytes(received, client.parameters), integers))
    return np.stack(found)


@pytest.mark.tier("all")
def test_a_large_table(index: NeighbourIndex) -> None:
    report, client = index.report(), index.client
    assert client.cells is not None and client.cells.layout.blocks == 3
    assert (report["cells"], report["probes"]) == (24, 8) and report["recall"] == client.cells.recall > 0.95
    assert (
        report["query_bytes"] == 99328 and report["answer_bytes"] in (57344, 65536) and report["security_bits"] >= 132
    )
    assert "centroids" in report["client_learns"] and report["server_learns"] == "nothing of the query"
    samples = clusters(20000, 5)[[3, 500, 19999]] + 0.1
    found, queries = answered(index, samples), client.integers(samples)
    np.testing.assert_array_equal(found, index.scores(queries))
    every = index.exhaustive_scores(queries)
    for scores, query, exact in zip(found, queries, every, strict=True):
        seen = client.cells.scored(query)
        np.testing.assert_array_equal(scores[seen], exact[seen])
        assert (scores[~seen] == UNSEEN).all() and client.cells.fewest_rows <= seen.sum() < len(seen)
        assert exact.min() > UNSEEN
    np.testing.assert_array_equal(client.decide(found, queries), index.predict(samples))
    key = LevelledClientKey.generate(client.parameters)
    np.testing.assert_array_equal(index.predict(samples, "encrypted", key=key, threads=2), index.predict(samples))


@pytest.mark.tier("all")
def test_recall_is_what_it_says(index: NeighbourIndex) -> None:
    """Of rows beside those that it was measured on, and of the nearest rows of all."""
    cells = index.client.cells
    assert cells is not None
    queries = index.client.integers(clusters(20000, 5)[7:20000:50])
    near = index.client.nearest(index.exhaustive_scores(queries))
    found = np.mean([cells.scored(query)[rows] for query, rows in zip(queries, near, strict=True)])
    assert found == pytest.approx(cells.recall, abs=0.03)


def cases() -> list[Any]:
    rng = np.random.default_rng(4)
    return [
        pytest.param(
            rng.standard_normal((9000, 3)),
            {"cells": "auto", "input_bits": 8, "metric": "cosine"},
            id="fits-without-cells",
        ),
        pytest.param(rng.standard_normal((9000, 3)), {"cells": 10}, id="two-blocks"),
        pytest.param(rng.standard_normal((300, 4)) + 1e6, {"cells": 4, "probes": 2}, id="large-offset"),
        pytest.param(rng.standard_normal((120, 9)), {"cells": 1, "probes": 1, "metric": "cosine"}, id="one-cell"),
        pytest.param(rng.standard_normal((9000, 2)), {"cells": 2, "probes": 1}, id="one-probe"),
        pytest.param(rng.standard_normal((5, 2)), {"cells": 3, "probes": 16, "n_neighbors": 2}, id="more-probes"),
        pytest.param(rng.standard_normal((1, 1)), {"cells": 1, "n_neighbors": 1}, id="one-row"),
        pytest.param(np.zeros((600, 2)), {"cells": 8}, id="all-zero"),
        pytest.param(np.repeat(rng.standard_normal((4, 2)), 500, axis=0), {"cells": 8}, id="equal-rows"),
        pytest.param(rng.standard_normal((700, 3)) * 1e-9, {"cells": 8, "classify": False}, id="values"),
        pytest.param(rng.integers(0, 256, (500, 6)).astype(np.uint8), {"cells": 8, "input_bits": 10}, id="bits"),
    ]


QUICK = ("two-blocks", "large-offset", "one-row")


@pytest.mark.parametrize(
    ("table", "options"),
    [
        pytest.param(*each.values, id=each.id, marks=() if each.id in QUICK else pytest.mark.tier("all"))
        for each in cases()
    ],
)
def test_odd_tables(table: np.ndarray, options: dict[str, Any]) -> None:
    """Every score of the cells that are asked for is exact; equally near rows come in their order."""
    made = NeighbourIndex.build(table, np.arange(len(table)) % 3, **options)
    samples = np.concatenate([table[:1], table[-1:] + np.ptp(table) / 3])
    found, queries = answered(made, samples), made.client.integers(samples)
    np.testing.assert_array_equal(found, made.scores(queries))
    assert (np.sort(found, axis=1)[:, -made.client.n_neighbors :] > UNSEEN).all()
    np.testing.assert_array_equal(made.client.decide(found, queries), made.predict(samples))
    cells = made.client.cells
    assert (cells is None) == (options["cells"] == "auto")
    if cells is not None and cells.layout.blocks == 1:  # all cells are asked for, so nothing is left out
        np.testing.assert_array_equal(found, made.exhaustive_scores(queries))


def test_what_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cells where an answer with every row would exceed 100,000 bytes."""
    table = clusters(3000, 4)
    target = labels(table)
    assert NeighbourIndex.build(table, target).client.cells is None
    assert NeighbourIndex.build(table, target, cells="auto").client.cells is None
    monkeypatch.setattr("cloakwork.models.neighbours.building.MOST_BYTES", 20_000)
    chosen = NeighbourIndex.build(table, target, cells="auto", probes=4).client.cells
    assert chosen is not None and chosen.layout.probes == 4
    # Of so many features that no query has room for cells beside them.
    wide = np.random.default_rng(1).standard_normal((40, 8190))
    assert NeighbourIndex.build(wide, np.arange(40) % 2, cells="auto", input_bits=2).client.cells is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cells": 1, "probes": 4}, "at least 5 of 2048 rows"),
        ({"cells": 1}, "at least 5 of 2048 rows"),
        ({"cells": "some"}, "auto"),
        ({"probes": 4}, "probes"),
        ({"cells": 16, "probes": 3}, "power of two"),
        ({"cells": 16, "probes": 0}, "power of two"),
        ({"cells": 256, "probes": 128}, "up to 64"),
        ({"cells": "auto", "probes": -8}, "power of two"),
    ],
)
def test_wrong_wishes(options: dict[str, Any], message: str) -> None:
    with pytest.raises(CompileError, match=message):
        NeighbourIndex.build(np.zeros((9000, 2)), np.zeros(9000), **options)


def test_too_few_rows_for_certain() -> None:
    """Neighbours that the smallest cells of a query might not have."""
    rng = np.random.default_rng(6)
    with pytest.raises(CompileError, match="n_neighbors: expected at most"):
        NeighbourIndex.build(rng.standard_normal((60, 3)), np.arange(60) % 2, cells=64, probes=2, n_neighbors=20)
    with pytest.raises(CompileError, match="no set has room .* in cells"):
        NeighbourIndex.build(rng.standard_normal((60, 8190)), np.arange(60) % 2, cells=8)


def test_a_table_without_clusters_is_told() -> None:
    rng = np.random.default_rng(7)
    with pytest.warns(AccuracyWarning, match="hold .* % of the nearest rows"):
        made = NeighbourIndex.build(rng.integers(-127, 128, (2000, 40)), np.arange(2000), cells=16, probes=2)
    assert made.client.cells is not None and made.client.cells.recall < 0.9


def test_a_file(small: NeighbourIndex, tmp_path: Path) -> None:
    small.save(tmp_path / "index")
    data = (tmp_path / "index").read_bytes()
    assert data[4] == 2
    found = load_index(tmp_path / "index")
    assert found.client.to_json() == small.client.to_json() and found.report() == small.report()
    queries = small.client.integers(clusters(20000, 5)[:3])
    np.testing.assert_array_equal(found.scores(queries), small.scores(queries))


def test_answers_and_queries_that_do_not_fit(small: NeighbourIndex) -> None:
    client = small.client
    key = LevelledClientKey.generate(client.parameters)
    answer = key.encrypt(np.zeros((2, 8192), dtype=int), client.answer_level)
    for query in (None, np.zeros(4, dtype=np.int64), np.zeros((1, 5), dtype=np.int64)):
        with pytest.raises(CompileError, match="query"):
            client.scores(key, answer, query)
    with pytest.raises(CompileError, match="one ciphertext"):
        client.scores(key, answer, np.zeros(5, dtype=np.int64))


def test_hostile_specifications() -> None:
    rng = np.random.default_rng(9)
    made = NeighbourIndex.build(rng.standard_normal((30, 3)), np.arange(30) % 2, cells=4, probes=2, n_neighbors=2)
    fields = json.loads(made.client.to_json())
    assert fields["format"].endswith("2") and isinstance(made.client.cells, Cells)
    cells = fields["cells"]
    changes: list[dict[str, Any]] = [
        {"probes": 0}, {"probes": 3}, {"probes": 4}, {"probes": "x"}, {"blocks": 0}, {"blocks": 1 << 40}, {"blocks": None}, {"blocks": float("inf")},
        {"levels": [4, 3, 2]}, {"levels": [4, 4, 2, 2]}, {"levels": [9, 3, 2, 2]}, {"levels": [3, 2, 2, 2]}, {"levels": 4},
        {"dropped_bits": [28, 0]}, {"dropped_bits": [-1, 0]}, {"dropped_bits": []}, {"recall": 2}, {"recall": float("nan")}, {"recall": None},
        {"centroids": []}, {"centroids": cells["centroids"][1:]}, {"centroids": [[0.5] * 3] * 4}, {"centroids": [[1 << 70] * 3] * 4},
        {"centroids": [[10**6] * 3] * 4}, {"centroids": None}, {"centroids": [["1"] * 3] * 4},
        {"cell_of": []}, {"cell_of": cells["cell_of"][1:]}, {"cell_of": [-1] * 30}, {"cell_of": [4] * 30}, {"cell_of": [0.5] * 30},
        {"cell_of": [[0]] * 30}, {"cell_of": "0"},
    ]  # fmt: skip
    for change in changes:
        with pytest.raises(FheError):
            NeighbourClient.from_json(json.dumps(fields | {"cells": cells | change}))
    for name in cells:
        without = {key: value for key, value in cells.items() if key != name}
        with pytest.raises(FheError):
            NeighbourClient.from_json(json.dumps(fields | {"cells": without}))
    for change in (
        {"cells": None},
        {"cells": []},
        {"level": 3},
        {"answer_level": 3},
        {"set": "bgv12"},
        {"n_neighbors": 29},
    ):
        with pytest.raises(FheError):
            NeighbourClient.from_json(json.dumps(fields | change))
    few = cells | {"cell_of": [0] * 27 + [1, 2, 3]}  # a query might find two rows alone
    NeighbourClient.from_json(json.dumps(fields | {"cells": few}))
    with pytest.raises(FheError):
        NeighbourClient.from_json(json.dumps(fields | {"cells": few, "n_neighbors": 3}))


@pytest.mark.tier("all")
def test_queries_of_all_cells_have_one_size(index: NeighbourIndex) -> None:
    key = LevelledClientKey.generate(index.client.parameters)
    samples = (np.full(5, -4.0), np.zeros(5), np.full(5, 4.0))
    assert {len(index.client.encrypt(key, sample).to_bytes()) for sample in samples} == {99472}
