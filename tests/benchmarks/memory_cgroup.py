"""A cgroup with little memory, made by hand: version 2, or the memory controller of version 1. Needs root."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

# Python loads it before the service, whose process and children are then in the group.
_ENTER = """
import os
_group = os.environ.pop("ENTER_CGROUP", None)
if _group:
    with open(_group, "w") as _procs:
        _procs.write(str(os.getpid()))
"""


@dataclass(frozen=True)
class MemoryCgroup:
    folder: Path
    variables: dict[str, str]  # of a process that is to be in it

    @classmethod
    @contextmanager
    def made(cls, limit: int) -> Iterator[MemoryCgroup]:
        """Gone at the end, when its processes are."""
        second = Path("/sys/fs/cgroup/cgroup.controllers").exists()
        root = Path("/sys/fs/cgroup" if second else "/sys/fs/cgroup/memory")
        folder = root / f"cloakwork-{os.getpid()}"
        folder.mkdir()
        try:
            if second:
                (folder / "memory.swap.max").write_text("0")
            (folder / ("memory.max" if second else "memory.limit_in_bytes")).write_text(str(limit))
            with tempfile.TemporaryDirectory() as site:
                (Path(site) / "sitecustomize.py").write_text(_ENTER, encoding="utf-8")
                path = os.pathsep.join([site, os.environ.get("PYTHONPATH", "")])
                yield cls(folder, {"PYTHONPATH": path, "ENTER_CGROUP": str(folder / "cgroup.procs")})
        finally:
            folder.rmdir()

    def facts(self) -> dict[str, int]:
        """The most that was held, with the cache of files, and how often the kernel killed a process, since it was made."""
        second = (self.folder / "memory.max").exists()
        peak = self.folder / ("memory.peak" if second else "memory.max_usage_in_bytes")
        events = self.folder / ("memory.events" if second else "memory.oom_control")
        kills = [line.split()[1] for line in events.read_text().splitlines() if line.startswith("oom_kill ")]
        most = int(peak.read_text()) if peak.exists() else 0
        return {"most_mb": most // 1_000_000, "killed": int(kills[0]) if kills else 0}
