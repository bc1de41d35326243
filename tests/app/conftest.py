"""Runs the `cloakwork` command: in this process, or as a user would."""

from __future__ import annotations

import functools
import io
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer.main

from cloakwork.app.cli import main
from cloakwork.fhe_core import keystore

Run = Callable[..., subprocess.CompletedProcess[str]]
WaitFor = Callable[[Callable[[], Any], str], Any]


def settings() -> list[str]:
    """The names in the environment that would change what a command does."""
    return [name for name in os.environ if name.startswith("CLOAKWORK_") and name != "CLOAKWORK_ALLOW_TOY"]


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


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """As `run`, inside this process, which saves the start of Python (two seconds of a core)."""

    def call(
        *arguments: str, environment: dict[str, str] | None = None, stdin: str = ""
    ) -> subprocess.CompletedProcess[str]:
        with monkeypatch.context() as patch:
            patch.chdir(tmp_path)
            patch.setattr(sys, "stdin", io.StringIO(stdin))
            for name in settings():
                patch.delenv(name)
            for name, value in (environment or {}).items():
                patch.setenv(name, value)
            capfd.readouterr()
            status = main.run(list(arguments))
        output, errors = capfd.readouterr()
        return subprocess.CompletedProcess(arguments, status, output, errors)

    return call


@pytest.fixture(scope="session")
def wait_for() -> WaitFor:
    """wait_for(condition, what): asks again until it holds, and returns its last answer; fails after two minutes."""

    def wait(condition: Callable[[], Any], what: str) -> Any:
        end = time.monotonic() + 120
        while not (answer := condition()):
            assert time.monotonic() < end, f"waited in vain: {what}"
            time.sleep(0.02)
        return answer

    return wait


@functools.cache
def parsed_commands() -> Any:
    return typer.main.get_command(main.app)


@pytest.fixture(autouse=True)
def commands_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Typer reads the signatures of all commands for each call, a fifth of a second."""
    monkeypatch.setattr(main, "app", parsed_commands())


@pytest.fixture(autouse=True)
def cheap_scrypt(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a passphrase costs is in the file: half a second for every opening would say nothing more."""
    monkeypatch.setattr(keystore.save_secret, "__defaults__", (keystore.ScryptCost(log2_n=10),))


def one_line(text: str) -> str:
    """The only line of an error message."""
    lines = text.splitlines()
    assert len(lines) == 1, text
    assert lines[0].startswith("cloakwork: "), text
    return lines[0]


@pytest.fixture
def error_line() -> Callable[[str], str]:
    return one_line
