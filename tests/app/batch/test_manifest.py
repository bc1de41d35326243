"""An output belongs to one run: what resumes it, what is refused, what is stale."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from cloakwork.app.batch.errors import BatchError
from cloakwork.app.batch.manifest import MANIFEST, Identity, open_output
from cloakwork.app.batch.store import Entry, Store

RUN = Identity("program", "keys", "rerandomised", "/in", None)
INPUTS = [Entry("a", 1, "1"), Entry("b", 1, "1"), Entry("t.parquet", 1, "1")]


@pytest.fixture
def target(tmp_path: Path) -> Store:
    return Store(str(tmp_path))


def test_a_new_output_is_empty_and_has_a_manifest(target: Store):
    assert open_output(target, RUN, INPUTS, False) == set()
    assert [entry.name for entry in target.entries()] == [MANIFEST]


def test_the_same_run_goes_on_with_the_results_of_unchanged_inputs(target: Store):
    open_output(target, RUN, INPUTS, False)
    part = "_cloakwork_parts/t.parquet/000000-000000000000.parquet"
    for name in ("a.results", "b.results", part):
        target.write(name, b"x")
    changed = [INPUTS[0], replace(INPUTS[1], version="2"), INPUTS[2]]
    assert open_output(target, RUN, changed, False) == {MANIFEST, "a.results", part}
    assert {entry.name for entry in target.entries()} == {MANIFEST, "a.results", part}
    assert open_output(target, RUN, changed, False) == {MANIFEST, "a.results", part}


@pytest.mark.parametrize("field", ["program", "keys", "mode", "source", "column"])
def test_another_run_is_refused_and_replaced_by_force(target: Store, field: str):
    open_output(target, RUN, INPUTS, False)
    target.write("a.results", b"x")
    other = replace(RUN, **{field: "other"})
    with pytest.raises(BatchError, match=f"of another {field};"):
        open_output(target, other, INPUTS, False)
    assert target.read("a.results") == b"x"
    assert "a.results" not in open_output(target, other, INPUTS, True)
    with pytest.raises(FileNotFoundError):
        target.read("a.results")


@pytest.mark.parametrize(
    "content", [b"{", b"[]", b'{"format": 9, "run": {}, "inputs": {}}', b'{"format": 1, "run": 3, "inputs": {}}']
)
def test_a_damaged_manifest_is_refused(target: Store, content: bytes):
    target.write(MANIFEST, content)
    with pytest.raises(BatchError, match="it holds results of another run"):
        open_output(target, RUN, INPUTS, False)


def test_a_folder_of_other_things_is_refused(target: Store):
    target.write("letter.txt", b"dear")
    with pytest.raises(BatchError, match="got 1 objects without a manifest"):
        open_output(target, RUN, INPUTS, False)
    open_output(target, RUN, INPUTS, True)
    assert target.read("letter.txt") == b"dear"
