"""Signals that ask a command to end."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType


@contextmanager
def ended_like_ctrl_c() -> Iterator[None]:
    """Lets SIGTERM and SIGHUP end what is inside as Ctrl-C does, so that it tidies up. Signals that somebody ignores or handles stay so."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = [number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) is signal.SIG_DFL]
    for number in numbers:
        signal.signal(number, _interrupt)
    try:
        yield
    finally:
        for number in numbers:
            signal.signal(number, signal.SIG_DFL)


@contextmanager
def ends_well() -> Iterator[None]:
    """Ends commands that run until they are stopped: Ctrl-C, SIGTERM and SIGHUP are no failure."""
    with suppress(KeyboardInterrupt), ended_like_ctrl_c():
        yield


def _interrupt(number: int, frame: FrameType | None) -> None:
    """What Ctrl-C would do here: asyncio cancels its main task, elsewhere it is KeyboardInterrupt, also where SIGINT itself is ignored."""
    handler = signal.getsignal(signal.SIGINT)
    if callable(handler):
        handler(number, frame)
    else:
        raise KeyboardInterrupt
