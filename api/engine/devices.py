"""Which devices the engine runs on. Asked in the engine process alone: looking at a GPU takes memory on it."""

from __future__ import annotations

from cloakwork.fhe_core import _engine
from cloakwork.fhe_core.evaluation_keys import device_ordinals

_RUNS_PER_GPU = 2  # one computes while the other's ciphertexts travel


def chosen_devices(wanted: tuple[str, ...]) -> tuple[str, ...]:
    """Those that were asked for, else every usable GPU, else the CPU."""
    for device in wanted:
        device_ordinals(device)  # DeviceError for a name that is none
    if wanted:
        return wanted
    listed = _engine.cuda_devices() if hasattr(_engine, "CudaKey") else []
    return tuple(device["device"] for device in listed if device["usable"]) or ("cpu",)


def worker_count(devices: tuple[str, ...], threads: int) -> int:
    """Runs at a time."""
    return sum(threads if device == "cpu" else _RUNS_PER_GPU for device in devices)
