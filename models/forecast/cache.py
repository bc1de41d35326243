"""Measurements of machines in the user's cache, `cloakwork/machine` there, a file for each machine, device and number of threads."""

from __future__ import annotations

from importlib.resources import files
from json import loads
from pathlib import Path
from typing import Final

from cloakwork.fhe_core.errors import DeviceError, SerializationError
from cloakwork.fhe_core.wire.files import atomic_writer, cache_folder
from cloakwork.models.forecast.machine import Machine
from cloakwork.models.forecast.profile import MOST_BYTES, MachineProfile

_MOST_FILES: Final = 256


def machine_folder() -> Path:
    return cache_folder() / "machine"


def save_profile(profile: MachineProfile) -> Path:
    """Saves a profile under the name of its machine, in place of an earlier measurement."""
    folder = machine_folder()
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / profile.machine.file_name
    with atomic_writer(path) as stream:
        stream.write(profile.to_json().encode())
    return path


def measured_profiles() -> tuple[list[MachineProfile], list[str]]:
    """Reads what was measured on this machine with this release, and a line for each file that cannot be read; other machines' are left alone."""
    profiles, problems = [], []
    for path in _stored_files():
        try:
            profile = MachineProfile.from_json(_contents(path))
        except (SerializationError, OSError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            problems.append(f"{path.name}: {reason}")
            continue
        if _is_here(profile.machine):
            profiles.append(profile)
    return profiles, problems


def stored_profiles() -> dict[str, MachineProfile]:
    """Returns stored profiles by name: machines that cloakwork was measured on, for those that were not."""
    text = files("cloakwork.models.forecast").joinpath("stored.json").read_text(encoding="utf-8")
    return {name: MachineProfile.from_fields(each) for name, each in loads(text).items()}


def _stored_files() -> list[Path]:
    try:
        return sorted(path for path in machine_folder().glob("*.json") if path.is_file())[:_MOST_FILES]
    except (OSError, RuntimeError):  # a folder that may not be read, or a user without a home
        return []


def _contents(path: Path) -> bytes:
    with path.open("rb") as stream:
        return stream.read(MOST_BYTES + 1)


def _is_here(machine: Machine) -> bool:
    try:
        return machine == Machine.here(machine.device, machine.threads)
    except DeviceError:
        return False
