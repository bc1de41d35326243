"""Folders as stores: names, what overlaps, what may be shown of a URL. S3 is in test_score.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from cloakwork.app.batch.errors import StoreError
from cloakwork.app.batch.store import Store, absolute_place, overlap, shown


def test_objects_of_a_folder(tmp_path: Path):
    store = Store(str(tmp_path / "new"), make=True)
    store.write("b/ä c%20.bin", b"12345")
    store.write("a", b"1")
    assert [(entry.name, entry.byte_count) for entry in store.entries()] == [("a", 1), ("b/ä c%20.bin", 5)]
    assert [entry.name for entry in store.entries("b")] == ["b/ä c%20.bin"]
    assert store.read("a") == b"1" and store.read_start("b/ä c%20.bin", 2) == b"12"
    with store.reader("b/ä c%20.bin") as stream:
        assert stream.read(2) == b"12" and stream.seek(-1, 2) == 4 and stream.read() == b"5"
    before = store.entries()[0].version
    store.write("a", b"23")
    assert store.entries()[0].version != before
    store.delete(["a", "never there"])
    assert [entry.name for entry in store.entries()] == ["b/ä c%20.bin"]
    with pytest.raises(FileNotFoundError, match="a: no such object in"):
        store.read("a")


def test_a_folder_that_is_missing_is_one_line(tmp_path: Path):
    with pytest.raises(StoreError) as error:
        Store(str(tmp_path / "none"))
    assert "cannot be used" in str(error.value) and "\n" not in str(error.value)
    with pytest.raises(StoreError, match="nothing://place: it cannot be used"):
        Store("nothing://place")


def test_places_that_overlap():
    assert overlap("/a/b", "/a/b") and overlap("/a/b", "/a") and overlap("s3://x/y", "s3://x/y/z")
    assert not overlap("/a/b", "/a/bc") and not overlap("/a/b", "s3://a/b")
    assert absolute_place("s3://x/y/") == "s3://x/y" and Path(absolute_place("x")).is_absolute()


def test_urls_are_shown_without_what_may_be_secret():
    assert shown("s3://user:word@bucket/prefix?token=abc") == "s3://bucket/prefix"
