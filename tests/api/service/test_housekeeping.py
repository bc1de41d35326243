"""Orphaned files go, files with a row stay; a job that is nowhere is queued again."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from in_process import serving
from scoring_server import User, becomes

from cloakwork.api.service.storage import pairing

OLD_SECONDS = 7200


def make_old(path: Path) -> Path:
    path.write_bytes(b"x")
    os.utime(path, (time.time() - OLD_SECONDS,) * 2)
    return path


def test_orphaned_files_are_deleted(tmp_path: Path, fill: Callable[[Path], Path], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(pairing, "ANNOUNCED_SECONDS", 0.0)
    with (
        serving(fill(tmp_path / "data"), environment={"RETENTION_CHECK_SECONDS": "0.1"}) as server,
        server.client() as http,
    ):
        users = [User.of(http) for _ in range(4)]  # so that not most of the objects are orphans
        user, (key, *_) = users[0], [each.upload() for each in users]
        objects = server.data / "objects"
        kept = objects / "keys" / key
        os.utime(kept, (time.time() - OLD_SECONDS,) * 2)
        name = "0" * 32
        orphans = [
            make_old(objects / folder / file)
            for folder, file in [
                ("inputs", name),
                ("results", f"{name}-0123"),
                ("uploads", name),
                ("keys", name),
                ("results", ".y.tmp"),
            ]
        ]
        young = objects / "inputs" / ("1" * 32)
        young.write_bytes(b"x")
        assert becomes(lambda: [path for path in orphans if path.exists()], [])
        assert kept.exists() and young.exists()
        assert user.infer(user.encrypt()[1]).status_code == 200
