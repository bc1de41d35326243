"""Runs the `cloakwork` command: in this process, or as a user would."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer.main
from command_line import Run, settings

from cloakwork.app.cli import main
from cloakwork.app.cli.main import application
from cloakwork.fhe_core.wire import keystore


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """run(*arguments, environment={}, stdin=""): in a process of its own, a temporary folder, without a terminal."""

    def run(
        *arguments: str, environment: dict[str, str] | None = None, stdin: str = ""
    ) -> subprocess.CompletedProcess[str]:
        left_out = settings()
        clean = {name: value for name, value in os.environ.items() if name not in left_out}
        return subprocess.run(
            [sys.executable, "-m", "cloakwork.app.cli", *arguments],
            cwd=tmp_path,
            env={**clean, **(environment or {})},
            input=stdin,
            capture_output=True,
            text=True,
            timeout=300,
        )

    return run


@functools.cache
def parsed_commands(names: tuple[str, ...] | None = None) -> Any:
    return typer.main.get_command(application(names))


@pytest.fixture(autouse=True)
def commands_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Typer reads the signatures of all commands for each call, a fifth of a second."""
    monkeypatch.setattr(main, "application", parsed_commands)


@pytest.fixture(autouse=True)
def cheap_scrypt(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a passphrase costs is in the file: half a second for every opening would say nothing more."""
    for function in (keystore.save_secret, keystore.seal):
        monkeypatch.setattr(function, "__defaults__", (keystore.ScryptCost(log2_n=10),))


def one_line(text: str) -> str:
    """The only line of an error message."""
    lines = text.splitlines()
    assert len(lines) == 1, text
    assert lines[0].startswith("cloakwork: "), text
    return lines[0]


@pytest.fixture
def error_line() -> Callable[[str], str]:
    return one_line
