"""The same contract for files and for object storage."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from cloakwork.api.service.storage.objects import FileStorage, ObjectStorage, Storage
from cloakwork.fhe_core.errors import ParameterError


def check_storage(storage: Storage) -> None:
    async def run() -> None:
        storage.place("keys/a").write_bytes(b"content")
        await storage.keep("keys/a")
        assert (await storage.local("keys/a")).read_bytes() == b"content"
        assert await storage.names("keys") == ["keys/a"]
        assert await storage.names("keys", older_than=3600) == []
        assert (await storage.holds("keys/a", 7), await storage.holds("keys/a", 8)) == (True, False)
        assert not await storage.holds("keys/b", 7)
        assert await storage.names("results") == []
        await storage.delete("keys/a")
        await storage.delete("keys/a")
        with pytest.raises(FileNotFoundError):
            await storage.local("keys/a")

    asyncio.run(run())


def test_files(tmp_path: Path):
    storage = FileStorage(tmp_path)
    check_storage(storage)
    unfinished = storage.place("results/.x.tmp")
    unfinished.touch()
    storage.sweep(3600)
    assert unfinished.exists()
    storage.sweep(-1)
    assert not unfinished.exists()


def test_object_storage(tmp_path: Path):
    pytest.importorskip("obstore")
    (tmp_path / "bucket").mkdir()
    url = (tmp_path / "bucket").as_uri()
    check_storage(ObjectStorage(url, tmp_path / "first"))
    first, second = (ObjectStorage(url, tmp_path / name) for name in ("first", "second"))

    async def run() -> None:
        first.place("results/b").write_bytes(b"of the first")
        await first.keep("results/b")
        assert (await second.local("results/b")).read_bytes() == b"of the first"
        await first.delete("results/b")
        assert second.copies("results") == ["results/b"] and first.copies("results") == []
        await second.drop_copy("results/b")
        assert second.copies("results") == []

    asyncio.run(run())
    with pytest.raises(ParameterError, match="storage"):
        ObjectStorage("nonsense", tmp_path)
