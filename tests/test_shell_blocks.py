"""Every shell block of README and documents, from top to bottom in an empty folder of each page, as somebody would paste them.

A block that cannot run here says why, behind its language (```sh notest="a cluster"). `cloakwork serve` runs beside what follows it, on a free port
in place of 8123, until the page ends. The network is this machine's, HOME and caches are the page's own.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]
PAGES = [REPOSITORY / "README.md", *sorted(REPOSITORY.glob("docs/**/*.md"))]
LANGUAGES = {"text", "sh", "bash", "python", "js", "json", "toml", "yaml", "mermaid"}
TIMEOUT_SECONDS = 300

# What a block begins with. The service is ready before the next command; it ends with the page.
PRELUDE = """
set -euo pipefail
cloakwork() {
    if [ "$1" = serve ]; then
        command cloakwork "$@" 2>> "$SERVICES/log" &
        echo $! >> "$SERVICES/pids"
        for _ in $(seq 1800); do
            curl -fsS -o /dev/null "http://127.0.0.1:$CLOAKWORK_PORT/v2/health/ready" 2> /dev/null && return
            kill -0 $! 2> /dev/null || break
            sleep 0.1
        done
        echo 'the service did not start' >&2; tail -5 "$SERVICES/log" >&2; return 1
    fi
    command cloakwork "$@"
}
"""


@dataclass(frozen=True)
class Block:
    page: Path
    line: int
    language: str
    words: str  # behind the language
    text: str

    @property
    def reason(self) -> str | None:
        """Why it does not run here."""
        found = re.fullmatch(r'notest="([^"]+)"', self.words)
        return found and found[1]


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    found = re.finditer(r"^(?P<fence>```+)(?P<info>[^\n`]*)\n(?P<text>.*?)^(?P=fence)$", text, re.MULTILINE | re.DOTALL)
    return [
        Block(page, text.count("\n", 0, each.start()) + 1, *each["info"].partition(" ")[::2], each["text"])
        for each in found
    ]


def name_of(page: Path) -> str:
    return str(page.relative_to(REPOSITORY))


def shell_blocks(page: Path) -> list[Block]:
    return [block for block in blocks(page) if block.language == "sh"]


RUN = [page for page in PAGES if any(block.reason is None for block in shell_blocks(page))]
LEFT_OUT = [block for page in PAGES for block in shell_blocks(page) if block.reason is not None]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_block_says_what_it_is(page: Path):
    assert [(block.line, block.language) for block in blocks(page) if block.language not in LANGUAGES] == []
    run_elsewhere = [block for block in blocks(page) if block.language == "bash"]
    assert run_elsewhere == [] or page.parent.name == "guide", (
        "tests/e2e/test_guide.py runs those, and compares what they print"
    )
    unknown = [(block.line, block.words) for block in shell_blocks(page) if block.words and block.reason is None]
    assert unknown == []
    fences = re.findall(r"^```", page.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(fences) == 2 * len(blocks(page))


@pytest.mark.skipif(shutil.which("bash") is None or shutil.which("curl") is None, reason="no bash or no curl here")
@pytest.mark.parametrize("page", RUN, ids=name_of)
def test_the_blocks_of_a_page_run(page: Path, tmp_path: Path):
    here, services, programs = tmp_path / "here", tmp_path / "services", tmp_path / "bin"
    for folder in (here, services, programs, tmp_path / "home"):
        folder.mkdir()
    command = programs / "cloakwork"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m cloakwork.app.cli "$@"\n')
    command.chmod(0o755)
    port = free_port()
    environment = clean_environment() | {
        "PATH": f"{programs}:{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HOME": str(tmp_path / "home"),
        "SERVICES": str(services),
        "CLOAKWORK_PORT": str(port),
        "CLOAKWORK_PASSPHRASE": "of the tests",
    }
    (services / "pids").touch()
    kept: dict[str, str] = {}  # what a block exports
    try:
        for block in shell_blocks(page):
            if block.reason is not None:
                continue
            script = PRELUDE + block.text.replace("8123", str(port)) + '\nenv -0 > "$SERVICES/environment"\n'
            # Into files: a service that stays would hold a pipe open.
            with (services / "out").open("wb") as out, (services / "err").open("wb") as errors:
                result = subprocess.run(
                    ["bash", "-c", script],
                    cwd=here,
                    env=environment | kept,
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=errors,
                    timeout=TIMEOUT_SECONDS,
                )
            told = (services / "err").read_text(encoding="utf-8", errors="replace")
            assert result.returncode == 0, f"{name_of(page)}, line {block.line}:\n{block.text}\n{told[-3000:]}"
            pairs = (services / "environment").read_text(encoding="utf-8").split("\0")
            kept = {
                name: value
                for name, _, value in (pair.partition("=") for pair in pairs)
                if name.startswith("CLOAKWORK_")
            }
    finally:
        for pid in (services / "pids").read_text().split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGTERM)


@pytest.mark.parametrize("block", LEFT_OUT, ids=lambda block: f"{name_of(block.page)}-{block.line}")
def test_blocks_that_do_not_run_here(block: Block):
    """Their commands are looked at by the shell, and by tests/test_docs.py."""
    checked = subprocess.run(["bash", "-n"], input=block.text, capture_output=True, text=True, timeout=30)
    assert checked.returncode == 0, checked.stderr
    pytest.skip(str(block.reason))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def clean_environment() -> dict[str, str]:
    left_out = ("CLOAKWORK_", "PYTEST_")
    return {name: value for name, value in os.environ.items() if not name.startswith(left_out)}
