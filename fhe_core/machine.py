"""CPUs and memory that this process may use, where a container or a service manager gives it less than the machine has."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_ROOT: Final = Path("/")
_SECOND: Final = ("memory.max", "memory.events")
_FIRST: Final = ("memory.limit_in_bytes", "memory.oom_control")


def usable_cores() -> int:
    """Returns CPUs that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def memory_bytes(root: Path = _ROOT) -> int:
    """Returns the machine's memory, or the least limit of this process's cgroups (version 1 or 2) and those around them."""
    return min([os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), *_limits(root)])


def is_limited(root: Path = _ROOT) -> bool:
    """Whether a cgroup gives less than the machine has."""
    return memory_bytes(root) < os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def memory_kills(root: Path = _ROOT) -> int:
    """Returns processes of this cgroup, and those below it, that the kernel has killed because memory was at an end; 0 where nobody counts them."""
    for folder, (_, events) in _groups(root):
        with contextlib.suppress(OSError):
            for line in (folder / events).read_text(encoding="ascii").splitlines():
                if line.startswith("oom_kill "):
                    return int(line.split()[1])
    return 0


def _limits(root: Path) -> Iterator[int]:
    for folder, (limit, _) in _groups(root):
        with contextlib.suppress(OSError):
            text = (folder / limit).read_text(encoding="ascii").strip()
            if text.isdecimal():  # "max" otherwise
                yield int(text)


def _groups(root: Path) -> Iterator[tuple[Path, tuple[str, str]]]:
    """This process's cgroups, from within outwards, with their files. A container that sees the host's path has its own group at the mount."""
    try:
        lines = (root / "proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return
    for line in lines:
        number, controllers, path = line.split(":", 2)
        mounts = {"0": ("sys/fs/cgroup", _SECOND)} if not controllers and number == "0" else {}
        mounts |= {"1": ("sys/fs/cgroup/memory", _FIRST)} if "memory" in controllers.split(",") else {}
        for mount, files in mounts.values():
            inside = Path(path.lstrip("/"))
            for each in (inside, *inside.parents):
                if ".." not in each.parts and (folder := root / mount / each).is_dir():
                    yield folder, files
