"""The guide's Python and commands, page by page in an empty folder: they run, and print what the page shows."""

from __future__ import annotations

import doctest
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
PAGES = sorted((REPOSITORY / "docs" / "guide").glob("*.md"))
BLOCK = re.compile(r"^```(python|bash)\n(.*?)^```\n(?:\n```text\n(.*?)^```$)?", re.DOTALL | re.MULTILINE)
MARK = "--- block ---"
RANDOM = re.compile(r" *\d{10,}|\b[0-9a-f]{8}(?=\.\.)")  # words of ciphertexts, and numbers of keys


class Block(NamedTuple):
    language: str
    code: str
    shown: str


def blocks(page: Path) -> list[Block]:
    return [Block(*(part or "" for part in found)) for found in BLOCK.findall(page.read_text(encoding="utf-8"))]


def printed(page: Path, folder: Path) -> list[str]:
    """By block. Python's share their names; commands run where Python is, between its blocks."""
    run = "import subprocess as _run; print(_run.run(['bash', '-euc', {code!r}], check=True, capture_output=True, text=True).stdout)"
    lines = []
    for block in blocks(page):
        lines += [
            block.code if block.language == "python" else run.format(code=block.code),
            f"print({MARK!r}, flush=True)",
        ]
    (folder / "page.py").write_text("\n".join(lines), encoding="utf-8")
    tools = folder / "bin"
    tools.mkdir()
    (tools / "cloakwork").write_text(
        f'#!/bin/sh\nexec "{sys.executable}" -m cloakwork.app.cli "$@"\n', encoding="utf-8"
    )
    (tools / "cloakwork").chmod(0o755)
    environment = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}", "XDG_CACHE_HOME": str(folder / "cache")}
    done = subprocess.run(
        [sys.executable, "page.py"], cwd=folder, env=environment, capture_output=True, text=True, timeout=500
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.split(f"{MARK}\n")[:-1]


@pytest.mark.tier("all")
@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page)], ids=lambda page: page.stem)
def test_pages_print_what_they_show(page: Path, tmp_path: Path) -> None:
    if "torch" in page.read_text(encoding="utf-8"):
        pytest.importorskip("torch")
    same = doctest.OutputChecker().check_output
    for block, text in zip(blocks(page), printed(page, tmp_path), strict=True):
        if block.shown:
            shown, text = (RANDOM.sub("#", each) for each in (block.shown, text))
            assert same(shown, text, doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE), f"{block.code}\n{text}"
        elif block.language == "python":
            assert text == "", f"printed, and not shown:\n{text}"
