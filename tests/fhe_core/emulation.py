"""Emulated devices (CLOAKWORK_CUDA=EMULATE) compute on the CPU, a thread after the other: they get a few ciphertexts where others get all."""

from __future__ import annotations

import numpy as np

from cloakwork.fhe_core import _engine
from cloakwork.fhe_core.server import Session


def is_emulated() -> bool:
    if not hasattr(_engine, "cuda_devices") or _engine.cuda_device_count() == 0:
        return False
    return any("emulated" in str(device) for device in _engine.cuda_devices())


def some_of(session: Session, values: np.ndarray, count: int = 4) -> np.ndarray:
    """All, or on an emulated device so many, spread over them."""
    few = session.device != "cpu" and is_emulated()
    return values[:: max(1, len(values) // count)] if few else values


def batch_of(usual: int, emulated: int) -> int:
    """How many ciphertexts a device gets."""
    return emulated if is_emulated() else usual
