"""Runs the fuzz target: the same inputs in every run, and others, drawn anew, in the last tier, for CLOAKWORK_FUZZ_SECONDS each."""

from __future__ import annotations

import importlib.util
import os
import re
import secrets
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.os_entropy  # a process of its own, which runs on entropy that follows from its seed

TARGET = Path(__file__).parent / "fuzz_wire.py"
SECONDS = float(os.environ.get("CLOAKWORK_FUZZ_SECONDS", "60"))
INPUTS = 3000
HAS_ATHERIS = importlib.util.find_spec("atheris") is not None
guided = pytest.mark.skipif(not HAS_ATHERIS, reason="runs with atheris: pip install atheris")


def _run(folder: Path, *options: str) -> str:
    """The target's output; a crashing input is in it, and in `folder` while the test's temporary files live."""
    command = [sys.executable, str(TARGET), *options]
    result = subprocess.run(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=SECONDS + 500
    )
    assert result.returncode == 0, f"{' '.join(command)}\n{result.stdout}"
    return result.stdout


def _counts(output: str) -> tuple[int, int]:
    """Inputs tried, and accepted."""
    counts = re.search(r"(\d+) inputs, (\d+) accepted", output)
    assert counts is not None, output
    tried, accepted = map(int, counts.groups())
    assert 0 < accepted < tried  # both sides of the parser were reached
    return tried, accepted


def _executed(output: str) -> int:
    executed = re.search(r"number_of_executed_units: (\d+)", output)
    assert executed is not None, output
    return int(executed.group(1))


def test_random_mutations_find_nothing(tmp_path: Path) -> None:
    tried, _ = _counts(_run(tmp_path, "--random", "--inputs", str(INPUTS), "--seed", "1"))
    assert tried == INPUTS


@pytest.mark.tier("all")
@guided
def test_guided_mutations_find_nothing(tmp_path: Path) -> None:
    assert _executed(_run(tmp_path, "--inputs", str(INPUTS), "--seed", "1")) >= INPUTS


@pytest.mark.tier("release")
@pytest.mark.parametrize("kind", ["random", pytest.param("guided", marks=guided)])
def test_explore(tmp_path: Path, kind: str) -> None:
    """A finding shows its seed, in the command."""
    options = ["--random"] if kind == "random" else []
    output = _run(tmp_path, *options, "--seconds", str(SECONDS), "--seed", str(secrets.randbelow(1 << 31)))
    assert (_counts(output)[0] if kind == "random" else _executed(output)) > SECONDS
