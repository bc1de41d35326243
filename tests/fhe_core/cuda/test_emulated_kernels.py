"""The CUDA kernels on the CPU: each emulate_*.cpp here is a program that runs kernels as they are, or their device functions lane by lane,
and compares the words with the reference. `make test-emulated` builds them with the emulated engine, in one folder, where it is asked to
(EMULATORS=ON: one shape of each kind; EVERY), as `make test-release` does."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from cloakwork.fhe_core import _engine

pytestmark = [pytest.mark.gpu, pytest.mark.tier("release")]  # a card, which the emulated engine stands for

HERE = Path(__file__).resolve().parent
EMULATORS = sorted(path.stem for path in HERE.glob("emulate_*.cpp"))
BUILT = Path(str(_engine.__file__)).resolve().parent


@pytest.mark.parametrize("name", EMULATORS if os.environ.get("CLOAKWORK_ENGINE") == "emulated" else [])
def test_emulated(name: str) -> None:
    result = subprocess.run([BUILT / name], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=500)
    assert result.returncode == 0, result.stdout
    assert result.stdout.count("wrong") >= 2  # it compared words, and said so
