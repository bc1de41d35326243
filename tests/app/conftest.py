"""Runs the `cloakwork` command in a process of its own, as a user would."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from cloakwork.app.cli import main

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """run(*arguments, environment={}, stdin="") in a temporary folder, without a terminal."""

    def call(
        *arguments: str, environment: dict[str, str] | None = None, stdin: str = ""
    ) -> subprocess.CompletedProcess[str]:
        clean = {
            key: value
            for key, value in os.environ.items()
            if not key.startswith("CLOAKWORK_") or key == "CLOAKWORK_ALLOW_TOY"
        }
        return subprocess.run(
            [sys.executable, "-m", "cloakwork.app.cli", *arguments],
            cwd=tmp_path,
            env={**clean, **(environment or {})},
            input=stdin,
            capture_output=True,
            text=True,
            timeout=300,
        )

    return call


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """call(*arguments, environment={}): as `run`, inside this process, which saves the start of Python."""

    def call(*arguments: str, environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        with monkeypatch.context() as patch:
            patch.chdir(tmp_path)
            for key, value in (environment or {}).items():
                patch.setenv(key, value)
            capsys.readouterr()
            status = main.run(list(arguments))
        output, errors = capsys.readouterr()
        return subprocess.CompletedProcess(arguments, status, output, errors)

    return call


def one_line(text: str) -> str:
    """The only line of an error message."""
    lines = text.splitlines()
    assert len(lines) == 1, text
    assert lines[0].startswith("cloakwork: "), text
    return lines[0]


@pytest.fixture
def error_line() -> Callable[[str], str]:
    return one_line
