"""Devices of engines. The web process never looks at a GPU, which takes memory on it; `python -m cloakwork.api.engine.devices` says in
JSON which are usable, and ends.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from cloakwork.fhe_core import _engine
from cloakwork.fhe_core.engine import has_cuda
from cloakwork.fhe_core.errors import DeviceError, FheError

_RUNS_PER_GPU = 2  # one computes while the other's ciphertexts travel


def usable_devices() -> tuple[str, ...]:
    """Returns every usable GPU, else the CPU."""
    return tuple(device["device"] for device in _listed() if device["usable"]) or ("cpu",)


def _listed() -> list[dict[str, Any]]:
    """Lists nothing where the build has no CUDA, or the machine no driver; `cloakwork devices` says which."""
    if not has_cuda():
        return []
    try:
        devices: list[dict[str, Any]] = _engine.cuda_devices()
    except DeviceError:
        return []
    return devices


def worker_count(device: str, threads: int) -> int:
    """Runs at a time."""
    return threads if device == "cpu" else _RUNS_PER_GPU


def run_spread(device: str, threads: int) -> int:
    """Runs that are computed at a time as fast as one of them is alone: one for each thread of a CPU, one batch on a GPU."""
    return threads if device == "cpu" else 1


def build_facts() -> dict[str, str]:
    """Returns what the engine was built with, and which instructions of this processor it uses."""
    try:
        instructions = _engine.cpu_features()
    except FheError:  # a forced set that the processor does not have: runs say so
        instructions = ""
    return {"instruction_set": instructions, "cuda": str(has_cuda()).lower()}


if __name__ == "__main__":
    json.dump(usable_devices(), sys.stdout)
