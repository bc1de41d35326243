"""CPU threads: how many are worth starting, and rows of arrays shared among them."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor


def usable_cores() -> int:
    """CPUs that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def in_parts(work: Callable[[slice], None], count: int, part: int, threads: int) -> None:
    """work(slice) for every `part` of `count` rows, on so many threads; for what leaves Python's lock while it computes."""
    parts = [slice(start, min(start + part, count)) for start in range(0, count, part)]
    if threads < 2 or len(parts) < 2:
        for each in parts:
            work(each)
        return
    with ThreadPoolExecutor(min(threads, len(parts))) as pool:
        list(pool.map(work, parts))
