"""A Python of Debian for AArch64 in a folder, run by qemu's user mode: wheels of a machine that is not here are tested with it.

Nothing is installed into this system: apt downloads packages of the other architecture into the folder, dpkg unpacks them. Needs
`qemu-aarch64-static` (Debian's qemu-user-static), apt and dpkg. Debian has one version of Python; wheels for others are not run.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

QEMU: Final = "qemu-aarch64-static"
_SETTINGS: Final = """APT::Architecture "arm64";
APT::Architectures {{ "arm64"; }};
Dir::State "{folder}/state";
Dir::State::status "{folder}/status";
Dir::Cache "{folder}/cache";
APT::Sandbox::User "root";
"""


def missing() -> list[str]:
    """Programs that are not here."""
    return [name for name in (QEMU, "apt-get", "dpkg") if shutil.which(name) is None]


def emulated_python(folder: Path) -> tuple[Path, str]:
    """Returns: a command that runs like python, and its version, such as "3.11"."""
    root = folder / "root"
    if not root.exists():
        _download(folder)
        partial = folder / "unpacked"
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
        for package in sorted((folder / "cache" / "archives").glob("*.deb")):
            subprocess.run(["dpkg", "--extract", str(package), str(partial)], check=True)
        partial.rename(root)
    (interpreter,) = (path for path in (root / "usr" / "bin").glob("python3.*") if path.suffix[1:].isdigit())
    command = folder / "python"
    command.write_text(f'#!/bin/sh\nexec {QEMU} -L "{root}" "{interpreter}" "$@"\n', encoding="utf-8")
    command.chmod(0o755)
    return command, interpreter.name.removeprefix("python")


def _download(folder: Path) -> None:
    for name in ("state/lists/partial", "cache/archives/partial"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "status").touch()
    settings = folder / "apt.conf"
    settings.write_text(_SETTINGS.format(folder=folder), encoding="utf-8")
    environment = {**os.environ, "APT_CONFIG": str(settings)}
    install = [
        "install",
        "--yes",
        "--no-install-recommends",
        "--download-only",
        "python3",
        "libstdc++6",
        "ca-certificates",
    ]
    for command in (["update"], install):
        subprocess.run(["apt-get", "--quiet", *command], env=environment, check=True, stdout=subprocess.DEVNULL)
