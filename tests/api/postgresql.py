"""A PostgreSQL server for tests, from Debian's package, in a folder of its own and on a socket there."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp

import psutil
from requirements import needs

_PREFIX = "cloakwork-postgresql-"  # then the process that made it: names that are drawn are the same in every run
_PROGRAMS = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name))


def reason_without() -> str | None:
    """Why there is none here, or None."""
    if not _PROGRAMS:
        return "no PostgreSQL server on this machine (Debian's package postgresql has it)"
    if os.getuid() == 0 and _user() is None:
        return "PostgreSQL does not run as root, and there is no user 'postgres'"
    return None


def needs_postgresql() -> None:
    reason = reason_without()
    needs(reason is None, str(reason))


def _user() -> str | None:
    """It refuses to run as root."""
    try:
        return pwd.getpwnam("postgres").pw_name
    except KeyError:
        return None


@dataclass(frozen=True)
class Server:
    folder: Path
    listen: str
    user: str | None

    @property
    def url(self) -> str:
        return f"postgresql://cloakwork@{self.listen}/postgres" + ("" if self.listen else f"?host={self.folder}")

    def call(self, program: str, *arguments: str) -> None:
        command = [str(_PROGRAMS[-1] / program), *arguments]
        subprocess.run(command, check=True, capture_output=True, timeout=120, cwd=self.folder, user=self.user)

    def start(self) -> None:
        options = f"-c listen_addresses='{self.listen}' -k {self.folder} -c fsync=off"
        self.call("pg_ctl", "-D", "data", "-l", "log", "-w", "-o", options, "start")

    def stop(self, mode: str = "immediate") -> None:
        """`immediate`: as after a crash, from which the next start recovers; `fast`: as an administrator does it."""
        self.call("pg_ctl", "-D", "data", "-m", mode, "-w", "stop")

    def silence(self) -> None:
        """From the next connection on pg_notify tells nobody anything."""
        statements = (
            "CREATE SCHEMA silent",
            "CREATE FUNCTION silent.pg_notify(text, text) RETURNS void LANGUAGE sql AS ''",
            "ALTER ROLE cloakwork SET search_path = silent, pg_catalog, public",
        )
        call = ["-h", self.listen or str(self.folder), "-U", "cloakwork", "-d", "postgres", "-q"]
        self.call("psql", *call, *(part for each in statements for part in ("-c", each)))


def _remove_leftovers(user: str | None) -> None:
    """Servers of runs that were killed: their folders name processes that are no more."""
    for folder in Path("/tmp").glob(f"{_PREFIX}*-*"):
        number = folder.name.removeprefix(_PREFIX).partition("-")[0]
        if number.isdigit() and not psutil.pid_exists(int(number)):
            with suppress(subprocess.SubprocessError, OSError):
                Server(folder, "", user).stop()
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def server(listen: str = "", allowed: str | None = None) -> Iterator[Server]:
    """With an empty database, on a socket; or at an address, for a network such as "10.77.0.0/24"."""
    user = _user() if os.getuid() == 0 else None
    _remove_leftovers(user)
    folder = Path(mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-", dir="/tmp"))
    if user is not None:
        shutil.chown(folder, user=user)
    made = Server(folder, listen, user)
    try:
        made.call("initdb", "-D", "data", "-A", "trust", "-U", "cloakwork", "--no-sync")
        if allowed is not None:
            with (folder / "data" / "pg_hba.conf").open("a", encoding="utf-8") as rules:
                rules.write(f"host all all {allowed} trust\n")
        made.start()
        try:
            yield made
        finally:
            if (folder / "data" / "postmaster.pid").exists():
                made.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def postgresql(listen: str = "", allowed: str | None = None) -> Iterator[str]:
    """The URL of such a server's database."""
    with server(listen, allowed) as made:
        yield made.url
