"""A worker's task without Ray: the bytes of one process, hostile inputs alone, tables in parts."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

from cloakwork.app.batch.errors import StoreError
from cloakwork.app.batch.evaluator import Evaluator
from cloakwork.app.batch.store import Store
from cloakwork.app.batch.tables import finished_table
from cloakwork.app.batch.work import DONE, FAILED, UNWRITTEN, Desk
from cloakwork.models.program.artefact import program_to_bytes

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")


@pytest.fixture(scope="module")
def evaluator(data) -> Evaluator:
    program, keys = program_to_bytes(data.model.program), data.keys.read_bytes()
    return Evaluator(program, keys, device="cpu", threads=1, deterministic=True)


@pytest.fixture
def desk(evaluator: Evaluator, tmp_path: Path) -> Desk:
    (tmp_path / "in").mkdir()
    (tmp_path / "out").mkdir()
    return Desk(evaluator, str(tmp_path / "in"), str(tmp_path / "out"), "x")


def files(*names: str) -> list[tuple[str, str, int, int, int]]:
    return [("file", name, 0, 0, 0) for name in names]


def test_results_are_those_of_one_process(desk: Desk, data, tmp_path: Path):
    names = data.names[:4]
    data.write(tmp_path / "in", names)
    for name, outcome in zip(names, desk.carry_out(files(*names)), strict=True):
        written = (tmp_path / "out" / f"{name}.results").read_bytes()
        assert written == data.results[name]
        assert outcome["state"] == DONE and outcome["samples"] == data.samples[name] and outcome["seconds"] > 0
        assert outcome["digests"] == [hashlib.sha256(written).digest()]


def test_damaged_and_missing_inputs_fail_alone(desk: Desk, data, tmp_path: Path):
    good = data.names[0]
    data.write(tmp_path / "in", [good])
    flipped = bytearray(data.inputs[good])
    flipped[-50] ^= 1
    (tmp_path / "in" / "flipped").write_bytes(flipped)
    states = desk.carry_out(files("flipped", good, "missing"))
    assert [each["state"] for each in states] == [FAILED, DONE, FAILED]
    assert "checksum" in states[0]["reason"] and "no such object" in states[2]["reason"]
    assert [path.name for path in (tmp_path / "out").iterdir()] == [f"{good}.results"]


def test_an_output_that_refuses_is_said(desk: Desk, data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def refuse(*_: Any) -> None:
        raise StoreError("no space left")

    data.write(tmp_path / "in", data.names[:1])
    monkeypatch.setattr(Store, "write", refuse)
    assert desk.carry_out(files(data.names[0])) == [{"state": UNWRITTEN, "reason": "no space left"}]


def test_rows_of_a_table_and_its_end(desk: Desk, data, tmp_path: Path):
    names = data.names[:5]
    rows = [data.inputs[name] for name in names]
    rows[1:3] = [b"no ciphertexts", None]
    table = pa.table({"id": range(5), "x": pa.array(rows, pa.binary()), "note": list("abcde")})
    pq.write_table(table, tmp_path / "in" / "t.parquet", row_group_size=3)
    pieces = [("rows", "t.parquet", *place) for place in ((0, 0, 2), (0, 2, 1), (1, 0, 2))]
    assert [each["state"] for each in desk.carry_out(pieces)] == [DONE] * 3
    (outcome,) = desk.carry_out([("finish", "t.parquet", 0, 0, 2)])
    found = pq.read_table(tmp_path / "out" / "t.results.parquet")
    assert found.column_names == ["id", "note", "results", "error"] and found.column("note").to_pylist() == list(
        "abcde"
    )
    expected = [None if i in (1, 2) else data.results[name] for i, name in enumerate(names)]
    assert found.column("results").to_pylist() == expected
    errors = found.column("error").to_pylist()
    assert errors[0] is errors[3] is errors[4] is None and errors[2] == "the row has no ciphertexts" and errors[1]
    assert outcome["failures"] == [(1, errors[1]), (2, errors[2])]
    assert outcome["digests"] == [hashlib.sha256(each).digest() for each in expected if each]
    again = finished_table(Store(str(tmp_path / "out")), "t.results.parquet")
    assert (again.digests, again.failures, again.samples) == (
        outcome["digests"],
        outcome["failures"],
        outcome["samples"],
    )
