"""CPU threads: how many are worth starting."""

from __future__ import annotations

import os


def usable_cores() -> int:
    """Returns CPUs that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
