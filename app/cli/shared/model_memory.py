"""Memory limit of a model's run on this machine."""

from __future__ import annotations

from pathlib import Path

from cloakwork.app.cli.shared.console import FailureError
from cloakwork.fhe_core.machine import memory_bytes
from cloakwork.models.program import Program
from cloakwork.models.runtime import samples_in_memory


def check_memory(program: Program, shape: tuple[int, ...], source: Path) -> None:
    """Refuses what would not fit: the ciphertexts that are held at once, for all samples of the file."""
    most = samples_in_memory(program, physical_memory_bytes())
    if shape and shape[0] > most:
        raise FailureError(
            f"{source}: expected at most {most} samples for the memory of this machine, got {shape[0]}; encrypt them to several files"
        )


def physical_memory_bytes() -> int:
    """Returns the memory of this machine, or of the container."""
    return memory_bytes()
