"""Which devices engines run on. The web process never looks at a GPU, which takes memory on it; `python -m cloakwork.api.engine.devices` says in
JSON which are usable, and ends.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from cloakwork.fhe_core import _engine
from cloakwork.fhe_core.engine import has_cuda
from cloakwork.fhe_core.errors import DeviceError
from cloakwork.fhe_core.evaluation_keys import device_ordinals

_RUNS_PER_GPU = 2  # one computes while the other's ciphertexts travel


def chosen_devices(wanted: tuple[str, ...]) -> tuple[str, ...]:
    """Those that were asked for, else every usable GPU, else the CPU."""
    for device in wanted:
        device_ordinals(device)  # DeviceError for a name that is none
    if wanted:
        return wanted
    return tuple(device["device"] for device in _listed() if device["usable"]) or ("cpu",)


def _listed() -> list[dict[str, Any]]:
    """Nothing where the build has no CUDA, or the machine no driver; `cloakwork devices` says which."""
    if not has_cuda():
        return []
    try:
        found: list[dict[str, Any]] = _engine.cuda_devices()
    except DeviceError:
        return []
    return found


def worker_count(devices: tuple[str, ...], threads: int) -> int:
    """Runs at a time."""
    return sum(threads if device == "cpu" else _RUNS_PER_GPU for device in devices)


def run_spread(devices: tuple[str, ...], threads: int) -> int:
    """Runs that are computed at a time as fast as one of them is alone: one for each thread of a CPU, one batch on a GPU."""
    return max(1, sum(threads for device in devices if device == "cpu"))


if __name__ == "__main__":
    json.dump(chosen_devices(()), sys.stdout)
