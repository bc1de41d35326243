"""A PostgreSQL server for tests, from Debian's package, in a folder of its own and on a socket there."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkdtemp

_PROGRAMS = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name))


def reason_without() -> str | None:
    """Why there is none here, or None."""
    if not _PROGRAMS:
        return "no PostgreSQL server on this machine (Debian's package postgresql has it)"
    if os.getuid() == 0 and _user() is None:
        return "PostgreSQL does not run as root, and there is no user 'postgres'"
    return None


def _user() -> str | None:
    """It refuses to run as root."""
    try:
        return pwd.getpwnam("postgres").pw_name
    except KeyError:
        return None


@contextmanager
def postgresql(listen: str = "", allowed: str | None = None) -> Iterator[str]:
    """The URL of an empty database, on a socket; or at an address, for a network such as "10.77.0.0/24"."""
    user = _user() if os.getuid() == 0 else None
    folder = Path(mkdtemp(prefix="cloakwork-postgresql-", dir="/tmp"))
    if user is not None:
        shutil.chown(folder, user=user)
    data, log = folder / "data", folder / "log"

    def call(program: str, *arguments: str) -> None:
        command = [str(_PROGRAMS[-1] / program), *arguments]
        subprocess.run(command, check=True, capture_output=True, timeout=120, cwd=folder, user=user)

    try:
        call("initdb", "-D", str(data), "-A", "trust", "-U", "cloakwork", "--no-sync")
        if allowed is not None:
            with (data / "pg_hba.conf").open("a", encoding="utf-8") as rules:
                rules.write(f"host all all {allowed} trust\n")
        call(
            "pg_ctl",
            "-D",
            str(data),
            "-l",
            str(log),
            "-w",
            "-o",
            f"-c listen_addresses='{listen}' -k {folder} -c fsync=off",
            "start",
        )
        try:
            yield f"postgresql://cloakwork@{listen}/postgres" + ("" if listen else f"?host={folder}")
        finally:
            call("pg_ctl", "-D", str(data), "-m", "immediate", "-w", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
