"""Inputs: samples from headers, what cannot be scored with its reason, tables by rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from cloakwork.app.batch.errors import BatchError
from cloakwork.app.batch.plan import PIECE_BOOTSTRAPS, Planned, Planner, inputs_in
from cloakwork.app.batch.store import Store
from cloakwork.fhe_core.client import ClientKey
from cloakwork.fhe_core.errors import ParameterError
from cloakwork.models import zoo

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")


def plan(folder: Path, data, column: str | None = None) -> dict[str, Planned]:
    store = Store(str(folder))
    planned = Planner(store, data.model.program, data.key.key_id, column).plan(inputs_in(store, column))
    return {each.name: each for each in planned}


def test_samples_are_those_of_the_headers(data, tmp_path: Path):
    (data.write(tmp_path / "in") / ".hidden").write_bytes(b"x")
    found = plan(tmp_path / "in", data)
    assert list(found) == data.names
    assert {name: each.samples for name, each in found.items()} == data.samples
    assert all(each.reason is None and len(each.pieces) == 1 for each in found.values())


def test_inputs_that_cannot_be_scored_say_why_and_others_stay(data, tmp_path: Path):
    folder = data.write(tmp_path / "in", data.names[:1])
    good = data.inputs[data.names[0]]
    other_model = zoo.load_model("breast-cancer-forest")
    stranger = ClientKey.generate(data.model.program.parameters)
    x = np.full((2, 4), 3.0)
    hostile = {
        "empty": (b"", "empty"),
        "text": (b"not ciphertexts, but long enough for a header" * 9, "magic"),
        "cut": (good[:-40], "bytes"),
        "keys": (data.keys.read_bytes(), "expected packed ciphertexts"),
        "many": (good[:64] + (1 << 40).to_bytes(8, "little") + good[72:], ""),
        "stranger": (data.model.client.encrypt(stranger, x).to_bytes(), "key"),
        "result": (data.results[data.names[0]], "expected packed"),
        "other": (
            other_model.client.encrypt(
                ClientKey.generate(other_model.program.parameters), np.zeros((1, 30))
            ).to_bytes(),
            "",
        ),
    }
    for name, (content, _) in hostile.items():
        (folder / name).write_bytes(content)
    found = plan(folder, data)
    assert found.pop(data.names[0]).reason is None
    assert set(found) == set(hostile)
    for name, planned in found.items():
        assert planned.pieces == [] and planned.reason is not None and hostile[name][1] in planned.reason, name


def test_nothing_to_score(data, tmp_path: Path):
    with pytest.raises(BatchError, match="the place is empty or missing"):
        plan(tmp_path, data)


def test_tables_are_split_by_rows_worth_some_work(data, tmp_path: Path):
    name = max(data.names, key=lambda each: data.samples[each])
    table = pa.table({"x": pa.array([data.inputs[name]] * 130, pa.binary())})
    pq.write_table(table, tmp_path / "rows.parquet", row_group_size=100, use_dictionary=False)
    planned = plan(tmp_path, data, "x")["rows.parquet"]
    rows = PIECE_BOOTSTRAPS // (data.samples[name] * data.model.program.bootstraps)
    assert planned.rows_per_part == rows
    assert [(p.group, p.first, p.count) for p in planned.pieces[:2]] == [(0, 0, rows), (0, rows, rows)]
    assert sum(piece.count for piece in planned.pieces) == 130
    assert planned.samples == pytest.approx(130 * data.samples[name], rel=0.2)


def test_tables_that_do_not_fit(data, tmp_path: Path):
    pq.write_table(pa.table({"x": [1, 2], "y": [b"", b""], "results": ["a", "b"]}), tmp_path / "rows.parquet")
    (tmp_path / "false.parquet").write_bytes(b"PAR1 no table PAR1")
    with pytest.raises(ParameterError, match="name its column of ciphertexts with --column"):
        plan(tmp_path, data)
    for column, reason in {"z": "expected a column 'z'", "x": "expected binary, got int64", "y": "rename them"}.items():
        found = plan(tmp_path, data, column)
        assert reason in str(found["rows.parquet"].reason)
        assert "expected a Parquet file" in str(found["false.parquet"].reason)
