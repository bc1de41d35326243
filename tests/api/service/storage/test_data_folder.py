"""The data folder is its owner's alone, and belongs to one service."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from in_process import serving
from scoring_server import User, running

from cloakwork.api.service.storage.data_folder import Node
from cloakwork.fhe_core.errors import ParameterError

OTHERS = 0o077


def open_to_others(folder: Path) -> list[tuple[str, str]]:
    """Without what the tests themselves put there."""
    paths = [folder, *(path for path in folder.rglob("*") if not path.is_symlink())]
    modes = {str(path.relative_to(folder)): stat.S_IMODE(path.stat().st_mode) for path in paths}
    return [(name, oct(mode)) for name, mode in modes.items() if mode & OTHERS and name != "log.jsonl"]


def exercise(server_data: Path, umask: int, logs: Path) -> None:
    os.umask(umask)  # which every test gives back
    with serving(server_data, logs=logs) as server, server.client() as http:
        user = User.of(http)
        user.upload()
        other = User.of(http)
        identity = http.post("/v2/keys", json=other.announcement()).json()["id"]
        other.send(identity, end=1000).raise_for_status()
        job = http.post("/v2/models/toy/jobs", content=user.encrypt()[1]).json()["id"]
        with http.stream("GET", f"/v2/jobs/{job}/events") as events:
            assert "event: done" in "".join(events.iter_text())
        waiting = http.post("/v2/models/toy/jobs", content=user.encrypt(samples=2000)[1])
        assert waiting.status_code == 202
        assert open_to_others(server.data) == []
        names = {str(path.relative_to(server.data)) for path in server.data.rglob("*") if path.is_file()}
        assert {"cloakwork.db", "cloakwork.db-wal", "cloakwork.db-shm", "node", "reserve"} <= names
        assert {name.partition("/")[0] for name in names} >= {"objects", "models"}


def test_files_are_the_owners_alone_whatever_the_umask(tmp_path: Path, fill: Callable[[Path], Path]):
    exercise(fill(tmp_path / "data"), 0, tmp_path)


@pytest.mark.tier("all")
@pytest.mark.os_entropy
def test_a_process_makes_its_own_tables_and_they_are_the_owners(tmp_path: Path, fill: Callable[[Path], Path]):
    """Other tests give services a database that has tables already."""
    with running(fill(tmp_path / "data"), umask=0, made_tables=False, logs=tmp_path) as server:
        assert (server.data / "cloakwork.db").stat().st_size > 0
        assert open_to_others(server.data) == []
        with server.client() as http:
            user = User.of(http)
            user.upload()
            assert user.infer(user.encrypt()[1]).status_code == 200


def test_a_folder_that_was_open_is_narrowed_and_links_are_left_alone(tmp_path: Path, fill: Callable[[Path], Path]):
    data = fill(tmp_path / "data")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("of somebody else")
    elsewhere.chmod(0o644)
    (data / "link").symlink_to(elsewhere)
    (data / "objects").mkdir()
    (data / "objects" / "keys").mkdir()
    old = data / "objects" / "old"
    old.write_bytes(b"x")
    for path in (data, data / "models", data / "objects", data / "objects" / "keys"):
        path.chmod(0o777)
    old.chmod(0o666)
    exercise(data, 0o022, tmp_path)
    assert stat.S_IMODE(old.stat().st_mode) == 0o600
    assert stat.S_IMODE(elsewhere.stat().st_mode) == 0o644
    assert "open to other users" in (tmp_path / "log.jsonl").read_text()


@pytest.mark.tier("all")
@pytest.mark.os_entropy
def test_the_command_line_makes_what_is_in_it_alike(tmp_path: Path):
    (tmp_path / "data").mkdir(mode=0o755)
    clean = {name: value for name, value in os.environ.items() if not name.startswith("CLOAKWORK_")}
    command = [sys.executable, "-m", "cloakwork.app.cli", "tenants", "add", "alice", "--data", str(tmp_path / "data")]
    result = subprocess.run(command, check=True, capture_output=True, text=True, umask=0, env=clean, timeout=120)
    assert result.stderr == ""  # nothing was in the folder yet
    assert (tmp_path / "data" / "cloakwork.db").exists() and open_to_others(tmp_path / "data") == []


def test_a_data_folder_has_one_service_and_keeps_its_name(tmp_path: Path):
    first = Node(tmp_path)
    with pytest.raises(ParameterError, match="another service"):
        Node(tmp_path)
    first.release()
    again = Node(tmp_path)
    assert again.name == first.name
    again.release()


@pytest.mark.parametrize("left", [b"", bytes(32), b"0123", b"x" * 64], ids=["nothing", "zeros", "a part", "other"])
def test_what_a_loss_of_power_leaves_of_the_name_is_none(tmp_path: Path, left: bytes):
    (tmp_path / "node").write_bytes(left)
    first = Node(tmp_path)
    first.release()
    again = Node(tmp_path)
    assert len(bytes.fromhex(first.name)) == 16 and again.name == first.name
    again.release()
