"""The `cloakwork` command inside the process of a test, and waiting for what other processes do."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

_OF_ALL_TESTS = ("CLOAKWORK_ALLOW_TOY", "CLOAKWORK_ALLOW_TOY_SERVERS", "CLOAKWORK_WEAK_PASSPHRASE")

Run = Callable[..., subprocess.CompletedProcess[str]]
WaitFor = Callable[[Callable[[], Any], str], Any]


def settings() -> list[str]:
    """The names in the environment that would change what a command does."""
    return [name for name in os.environ if name.startswith("CLOAKWORK_") and name not in _OF_ALL_TESTS]


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """call(*arguments, folder=, environment={}, stdin=""): a command inside this process, in a temporary folder, without a terminal."""
    from cloakwork.app.cli import main

    def call(
        *arguments: str, folder: Path = tmp_path, environment: dict[str, str] | None = None, stdin: str = ""
    ) -> subprocess.CompletedProcess[str]:
        with monkeypatch.context() as patch:
            patch.chdir(folder)
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
