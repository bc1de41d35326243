"""A file becomes a version where there is none, on file systems with links and without."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from cloakwork.api.service.models.folder import Incoming


def arrived(incoming: Incoming, content: bytes) -> Path:
    artefact = incoming.new(".clkm")
    artefact.write_bytes(content)
    artefact.with_suffix(".json").write_bytes(b"{}")
    return artefact


@pytest.mark.parametrize("links", [True, False])
def test_a_version_is_never_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, links: bool):
    def refuse(*_: object) -> None:
        raise OSError(errno.EOPNOTSUPP, "no links here")

    if not links:
        monkeypatch.setattr(os, "link", refuse)
    incoming = Incoming(tmp_path)
    assert incoming.install(arrived(incoming, b"first"), "m", "1").read_bytes() == b"first"
    second = arrived(incoming, b"second")
    with pytest.raises(FileExistsError):
        incoming.install(second, "m", "1")
    assert (tmp_path / "m" / "1.clkm").read_bytes() == b"first"
    incoming.drop(second)
    assert sorted(path.name for path in tmp_path.rglob("*")) == [".incoming", "1.clkm", "1.json", "m"]


def test_what_a_service_left_that_ended_is_gone(tmp_path: Path):
    left = arrived(Incoming(tmp_path), b"half")
    Incoming(tmp_path)
    assert not left.exists() and not left.with_suffix(".json").exists()
