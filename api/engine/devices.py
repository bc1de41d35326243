"""Which devices the engine runs on. Asked in the engine process alone: looking at a GPU takes memory on it."""

from __future__ import annotations

from typing import Any

from cloakwork.fhe_core import _engine
from cloakwork.fhe_core.engine import has_cuda
from cloakwork.fhe_core.errors import DeviceError, FheError
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


def build_facts() -> dict[str, str]:
    """What the engine was built with, and which instructions of this processor it uses."""
    try:
        instructions = _engine.cpu_features()
    except FheError:  # a forced set that the processor does not have: runs say so
        instructions = ""
    return {"instruction_set": instructions, "cuda": str(has_cuda()).lower()}
