"""Runs the fuzz target for CLOAKWORK_FUZZ_SECONDS: twenty in CI, a few elsewhere."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

TARGET = Path(__file__).parent / "fuzz_wire.py"
SECONDS = float(os.environ.get("CLOAKWORK_FUZZ_SECONDS", "20" if os.environ.get("CI") else "3"))
HAS_ATHERIS = importlib.util.find_spec("atheris") is not None
RANDOM_SECONDS = min(SECONDS, 5.0) if HAS_ATHERIS else SECONDS


def _run(folder: Path, seconds: float, *options: str) -> str:
    """The target's output; a crashing input is in it, and in `folder` while the test's temporary files live."""
    command = [sys.executable, str(TARGET), "--seconds", str(seconds), *options]
    result = subprocess.run(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=seconds + 60
    )
    assert result.returncode == 0, f"{' '.join(command)}\n{result.stdout}"
    return result.stdout


def test_random_mutations_find_nothing(tmp_path: Path) -> None:
    seed = int.from_bytes(os.urandom(4), "little")
    output = _run(tmp_path, RANDOM_SECONDS, "--random", "--seed", str(seed))
    counts = re.search(r"(\d+) inputs, (\d+) accepted", output)
    assert counts is not None
    tried, accepted = map(int, counts.groups())
    assert tried > 100 * RANDOM_SECONDS and 0 < accepted < tried  # both sides of the parser were reached


@pytest.mark.skipif(not HAS_ATHERIS, reason="atheris is not installed")
def test_guided_mutations_find_nothing(tmp_path: Path) -> None:
    output = _run(tmp_path, SECONDS)
    executed = re.search(r"number_of_executed_units: (\d+)", output)
    assert executed is not None and int(executed.group(1)) > 10 * SECONDS, output
