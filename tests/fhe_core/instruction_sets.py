"""A program in processes of its own, under one instruction set and under what the processor has."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

INSTRUCTION_SETS = ("baseline", "avx2", "avx512")


def check_same_output(program: str, features: str) -> None:
    """Skips where the processor does not have `features`."""
    found = {}
    for name in (features, ""):
        environment = os.environ | {"CLOAKWORK_CPU": name}
        run = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
        if run.returncode != 0 and "this processor does not have" in run.stderr:
            pytest.skip(f"this processor has no {features}")
        assert run.returncode == 0, run.stderr
        found[name] = run.stdout
    assert found[features] == found[""] != ""
