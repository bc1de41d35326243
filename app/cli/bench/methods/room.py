"""A check that a row's keys fit this machine, before they are made: keys that digits select take up to fifteen gigabytes."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from cloakwork.fhe_core import _engine
from cloakwork.fhe_core.parameters import (
    ParameterSet,
    expanded_bootstrap_key_bytes,
    expanded_keyswitch_key_bytes,
    upload_bytes,
)

SPARE: Final = 1.05  # alignment, tables and pieces on their way
GIB: Final = 2**30


def require_room(params: ParameterSet, device: str) -> None:
    """Raises MemoryError where they do not; what the system does not tell is taken as enough.

    While a session is made, seeded and expanded keys are there, the expanded ones in the device's memory where it is not the CPU.
    """
    seeded = upload_bytes(params)
    expanded = expanded_bootstrap_key_bytes(params) + expanded_keyswitch_key_bytes(params)
    on_host = seeded + expanded if device == "cpu" else seeded
    _require(params, on_host, available_memory(), "memory")
    if device != "cpu":
        numbers = [int(number) for number in (device.partition(":")[2] or "0").split(",")]
        for number in numbers:
            _require(params, expanded, int(_engine.cuda_devices()[number]["free_bytes"]), f"memory of cuda:{number}")


def _require(params: ParameterSet, needed: int, available: int | None, what: str) -> None:
    if available is not None and SPARE * needed > available:
        raise MemoryError(
            f"{params.name}: its keys take {needed / GIB:.1f} GiB of {what}, {available / GIB:.1f} GiB are free; use a larger machine"
        )


def available_memory(facts: Path = Path("/proc/meminfo")) -> int | None:
    """Returns bytes, as Linux says; None elsewhere."""
    try:
        lines = facts.read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    fields = dict(line.split(":", 1) for line in lines if ":" in line)
    return int(fields["MemAvailable"].split()[0]) * 1024 if "MemAvailable" in fields else None
