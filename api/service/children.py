"""Processes that end by themselves: one describes models, another makes tables. One that hangs is killed, whoever waits for it."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from pathlib import Path
from typing import Final, NamedTuple

STILL_SECONDS: Final = 120.0  # without a hundredth of a second of processor time or a byte read or written
_LOOK_SECONDS: Final = 1.0
_KILL_SECONDS: Final = 5.0  # until what was killed is gone, or is left to the kernel


class Ended(NamedTuple):
    status: int
    errors: list[str]
    """Lines of its standard error."""


async def run_module(*arguments: str, standard_input: bytes = b"", still_seconds: float | None = None) -> Ended:
    """Runs `python -m ARGUMENTS` until it ends, with `standard_input`.

    Raises:
        TimeoutError: it computed, read and wrote nothing for `still_seconds` (default: STILL_SECONDS), and was killed.
    """
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", *arguments, stdin=PIPE if standard_input else DEVNULL, stderr=PIPE
    )
    talk = asyncio.create_task(process.communicate(standard_input or None))
    try:
        await _watch(process.pid, talk, STILL_SECONDS if still_seconds is None else still_seconds)
        _, errors = await talk
        assert process.returncode is not None
        return Ended(process.returncode, errors.decode(errors="replace").splitlines())
    finally:
        await _kill(process, talk)


async def _watch(pid: int, talk: asyncio.Task[tuple[bytes, bytes]], still_seconds: float) -> None:
    """Looks are counted, not a clock: it is no fault of the process if this one was stopped too."""
    known, still = _work(pid), 0
    while not talk.done():
        await asyncio.wait({talk}, timeout=_LOOK_SECONDS)
        work = _work(pid)
        still = still + 1 if work == known and work is not None else 0
        known = work
        if still * _LOOK_SECONDS >= still_seconds and not talk.done():
            raise TimeoutError(f"the process stood still for {still_seconds:g} seconds and was killed")


def _work(pid: int) -> tuple[str, ...] | None:
    """Returns what the process has done so far: processor time, bytes read and written; None if the system does not tell."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        moved = Path(f"/proc/{pid}/io").read_text(encoding="ascii").split()
    except OSError:
        return None
    return *fields[11:15], moved[1], moved[3]


async def _kill(process: Process, talk: asyncio.Task[tuple[bytes, bytes]]) -> None:
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await asyncio.wait({talk}, timeout=_KILL_SECONDS)
    talk.cancel()
    await asyncio.gather(talk, return_exceptions=True)
