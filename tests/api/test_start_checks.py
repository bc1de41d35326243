"""What is wrong with the machine is one line that names the file, and status 2: no traceback, and nothing listens."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from scoring_server import empty_tables, with_tables
from self_signed import certificate

from cloakwork.api import __main__ as service
from cloakwork.api.database.connection import DATABASE_FILE
from cloakwork.fhe_core.engine import has_cuda

Break = Callable[[Path], tuple[dict[str, str], str]]
"""In a folder: settings, and what the line has to name."""


def file_in_place(folder: Path) -> tuple[dict[str, str], str]:
    (folder / "data").write_text("of somebody else")
    return {}, str(folder / "data")


def file_in_place_of_objects(folder: Path) -> tuple[dict[str, str], str]:
    (folder / "data").mkdir()
    (folder / "data" / "objects").write_text("of somebody else")
    return {}, str(folder / "data" / "objects")


def no_device(folder: Path) -> tuple[dict[str, str], str]:
    return {"DEVICES": "cpu tpu"}, "devices: expected auto, cpu, cuda, cuda:N or cuda:N,M,.., got 'tpu'"


def no_such_card(folder: Path) -> tuple[dict[str, str], str]:
    reason = "GPU 999 cannot be used here" if has_cuda() else "this build has no CUDA"
    return {"DEVICES": "cpu cuda:999"}, reason


def not_writable(folder: Path) -> tuple[dict[str, str], str]:
    return {"DATA_FOLDER": "/proc/cloakwork"}, "/proc/cloakwork"  # where root may not write either


def certificate_missing(folder: Path) -> tuple[dict[str, str], str]:
    return {"TLS_CERTIFICATE": str(folder / "a.pem"), "TLS_KEY": str(folder / "b.pem")}, str(folder / "a.pem")


def key_missing(folder: Path) -> tuple[dict[str, str], str]:
    (folder / "a.pem").write_text("")
    return {"TLS_CERTIFICATE": str(folder / "a.pem"), "TLS_KEY": str(folder / "b.pem")}, str(folder / "b.pem")


def key_of_another_certificate(folder: Path) -> tuple[dict[str, str], str]:
    one, two = certificate(folder / "one.pem"), certificate(folder / "two.pem")
    return {"TLS_CERTIFICATE": str(one), "TLS_KEY": str(two)}, f"{two} cannot be used (key values mismatch)"


def no_database(folder: Path) -> tuple[dict[str, str], str]:
    (folder / "data").mkdir()
    (folder / "data" / DATABASE_FILE).write_bytes(b"not a database at all" * 400)
    return {}, f"{folder / 'data' / DATABASE_FILE} cannot be used (file is not a database)"


def damaged_database(folder: Path) -> tuple[dict[str, str], str]:
    """A page in the middle: it opens, and the tables that a start reads are whole."""
    with_tables(folder / "data")
    content = bytearray(empty_tables())
    content[8 * 4096 : 9 * 4096] = bytes(4096)
    (folder / "data" / DATABASE_FILE).write_bytes(content)
    return {}, f"{folder / 'data' / DATABASE_FILE} is damaged"


def settings_in_a_folder(folder: Path) -> tuple[dict[str, str], str]:
    (folder / "service.toml").write_bytes(b"\xff")
    return {"CONFIG": str(folder / "service.toml")}, str(folder / "service.toml")


def port_taken(folder: Path) -> tuple[dict[str, str], str]:
    listening = socket.create_server(("127.0.0.1", 0))
    port = listening.getsockname()[1]
    _KEPT.append(listening)
    return {"PORT": str(port)}, f"127.0.0.1:{port} (Address already in use)"


def address_of_another_machine(folder: Path) -> tuple[dict[str, str], str]:
    return {"HOST": "192.0.2.1", "INSECURE_LOCAL": "false"}, "192.0.2.1:0"


_KEPT: list[socket.socket] = []
CASES: list[Break] = [
    file_in_place,
    no_device,
    pytest.param(no_such_card, marks=pytest.mark.os_entropy),
    file_in_place_of_objects,
    not_writable,
    certificate_missing,
    key_missing,
    key_of_another_certificate,
    no_database,
    damaged_database,
    settings_in_a_folder,
    port_taken,
    address_of_another_machine,
]


def settings_of(folder: Path, broken: dict[str, str]) -> dict[str, str]:
    named = {"DATA_FOLDER": str(folder / "data"), "PORT": "0", "INSECURE_LOCAL": "true", "ZOO": "false", **broken}
    return {f"CLOAKWORK_{name}": value for name, value in named.items()}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_a_start_that_fails_says_what_and_where(
    tmp_path: Path, case: Break, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    broken, named = case(tmp_path)
    for name, value in settings_of(tmp_path, broken).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("cloakwork.api.logs.set_up", lambda level: None)
    try:
        assert service.main() == 2
    finally:
        while _KEPT:
            _KEPT.pop().close()
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1 and lines[0].startswith("cloakwork: ") and named in lines[0], lines


@pytest.mark.tier("all")
@pytest.mark.os_entropy
def test_a_process_ends_with_that_line(tmp_path: Path):
    broken, named = file_in_place(tmp_path)
    environment = {**os.environ, **settings_of(tmp_path, broken)}
    command = [sys.executable, "-m", "cloakwork.api"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert named in done.stderr.splitlines()[-1]
