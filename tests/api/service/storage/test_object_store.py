"""Whole objects: what is read is what was put, and what is not there is said so."""

from __future__ import annotations

import asyncio
import hashlib
import io
from pathlib import Path

import pytest

from cloakwork.api.service.storage.object_store import ObjectStore

CONTENT = hashlib.shake_256(b"object").digest(3 << 20)


def test_objects(tmp_path: Path):
    pytest.importorskip("obstore")
    (tmp_path / "bucket").mkdir()
    (tmp_path / "file").write_bytes(CONTENT)
    store = ObjectStore((tmp_path / "bucket").as_uri())

    async def run() -> None:
        await store.put("models/a.b/1/x.clkm", tmp_path / "file")
        await store.put("models/a.b/1/x.json", b"{}")
        assert await store.byte_count("models/a.b/1/x.clkm") == len(CONTENT)
        assert await store.fetch("models/a.b/1/x.clkm", tmp_path / "copy") == hashlib.sha256(CONTENT).hexdigest()
        assert (tmp_path / "copy").read_bytes() == CONTENT
        stream = io.BytesIO(b"before")
        stream.seek(0, io.SEEK_END)
        await store.read_into("models/a.b/1/x.json", stream)
        assert stream.getvalue() == b"before{}" and await store.read("models/a.b/1/x.json") == b"{}"
        assert sorted(await store.names("models")) == ["models/a.b/1/x.clkm", "models/a.b/1/x.json"]
        assert await store.names("models", older_than=3600) == await store.names("mod") == []

        await store.delete("models/a.b/1/x.clkm")
        await store.delete("models/a.b/1/x.clkm")
        assert await store.byte_count("models/a.b/1/x.clkm") is None
        with pytest.raises(FileNotFoundError):
            await store.read("models/a.b/1/x.clkm")
        with pytest.raises(FileNotFoundError):
            await store.fetch("models/a.b/1/x.clkm", tmp_path / "none")
        assert not (tmp_path / "none").exists() and list(tmp_path.glob(".none*")) == []

    asyncio.run(run())


def test_a_storage_that_refuses(tmp_path: Path):
    """A folder that is a file: an error of the system, as every caller expects one."""
    pytest.importorskip("obstore")
    (tmp_path / "bucket").mkdir()
    (tmp_path / "bucket" / "models").write_bytes(b"")
    store = ObjectStore((tmp_path / "bucket").as_uri())
    with pytest.raises(OSError, match="storage"):
        asyncio.run(store.put("models/a", b"x"))
