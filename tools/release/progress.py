"""Shows a build as it goes: `pip install --verbose .. 2>&1 | python tools/release/progress.py LOG`.

Reads what pip and Ninja print, keeps all of it in LOG, and shows Ninja's counter `[n/m]`: as one line that is written over on a terminal,
as a line at every tenth elsewhere. Of what comes before the compilation it shows only why CUDA is left out. The caller prints LOG if the build
failed.
"""

from __future__ import annotations

import re
import sys
import time
from pathlib import Path
from typing import Final, TextIO

STEP: Final = re.compile(r"^\s*\[(\d+)/(\d+)\] (.*)$")
NEWS: Final = re.compile(r"^\s*-- (CUDA back end .*)$")
_TENTHS: Final = 10
_BAR: Final = 30


def show(lines: TextIO, log: TextIO, out: TextIO) -> None:
    """Copies `lines` to `log` and draws the counter on `out`."""
    start, tenth, shown = time.monotonic(), 0, False
    for line in lines:
        log.write(line)
        if news := NEWS.match(line):
            out.write(f"{news[1]}\n")
        step = STEP.match(line)
        if step is None:
            continue
        done, total = int(step[1]), max(int(step[2]), 1)
        seconds = time.monotonic() - start
        if out.isatty():
            filled = _BAR * done // total
            out.write(f"\r\x1b[Kcompiling [{'#' * filled}{'.' * (_BAR - filled)}] {done}/{total} {seconds:.0f} s")
            shown = True
        elif _TENTHS * done // total > tenth:
            tenth = _TENTHS * done // total
            out.write(f"compiling [{done}/{total}] {seconds:.0f} s\n")
        out.flush()
    if shown:
        out.write("\n")


if __name__ == "__main__":
    with Path(sys.argv[1]).open("w", encoding="utf-8") as log_file:
        show(sys.stdin, log_file, sys.stdout)
