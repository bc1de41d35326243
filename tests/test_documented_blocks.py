"""Every block of shell and Python of README and documents, from top to bottom in an empty folder of each page, as somebody would paste them.

Python's of a page share their names. A block that cannot run here says why, behind its language (```sh notest="a cluster").
`cloakwork serve` runs beside what follows it, on a free port in place of 8123, until the page ends. The network is this machine's, HOME and
caches are the page's own.
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
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]
PAGES = [REPOSITORY / "README.md", *sorted(REPOSITORY.glob("docs/**/*.md"))]
LANGUAGES = {"text", "sh", "bash", "python", "js", "json", "toml", "yaml", "mermaid"}
TIMEOUT_SECONDS = 300

# Pages whose Python other tests run, on models that are not there or with what it prints.
PYTHON_ELSEWHERE = {
    "README.md": "tests/test_docs.py and tests/e2e/test_readme.py",
    "docs/compiler.md": "tests/models/compile/test_pipeline.py",
    "docs/large-precision.md": "tests/fhe_core/test_large_precision.py",
    "docs/service.md": "tests/api/routes/test_tritonclient.py",
}
INTERPRETER = """
import sys, traceback
said, sys.stdout = sys.stdout, sys.stderr
names = {"__name__": "__main__"}
for path in sys.stdin:
    path = path.rstrip("\\n")
    try:
        exec(compile(open(path, encoding="utf-8").read(), path, "exec"), names)
    except BaseException:
        traceback.print_exc()
        said.write("failed\\n")
    else:
        said.write("done\\n")
    sys.stderr.flush()
    said.flush()
"""

# What a block of the shell begins with. The service is ready before the next command; it ends with the page.
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


def run_blocks(page: Path) -> list[Block]:
    """Of the languages that run, those of the guide left out, whose test compares what they print."""
    if page.parent.name == "guide":
        return [block for block in blocks(page) if block.language == "sh"]
    languages = ("sh",) if name_of(page) in PYTHON_ELSEWHERE else ("sh", "python")
    return [block for block in blocks(page) if block.language in languages]


RUN = [page for page in PAGES if any(block.reason is None for block in run_blocks(page))]
LEFT_OUT = [block for page in PAGES for block in run_blocks(page) if block.reason is not None]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_block_says_what_it_is(page: Path):
    assert [(block.line, block.language) for block in blocks(page) if block.language not in LANGUAGES] == []
    run_elsewhere = [block for block in blocks(page) if block.language == "bash"]
    assert run_elsewhere == [] or page.parent.name == "guide", (
        "tests/e2e/test_guide.py runs those, and compares what they print"
    )
    unknown = [(block.line, block.words) for block in run_blocks(page) if block.words and block.reason is None]
    assert unknown == []
    fences = re.findall(r"^```", page.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(fences) == 2 * len(blocks(page))


def test_python_that_others_run_is_there():
    for page, tests in PYTHON_ELSEWHERE.items():
        assert any(block.language == "python" for block in blocks(REPOSITORY / page)), page
        assert all((REPOSITORY / name).is_file() for name in tests.split(" and "))


@dataclass
class Reader:
    """Who pastes the blocks of a page: a folder, a port, what was exported, and one Python."""

    folder: Path
    port: int = field(default_factory=lambda: free_port())
    exported: dict[str, str] = field(default_factory=dict)
    python: subprocess.Popen[str] | None = None

    def __post_init__(self) -> None:
        for each in ("here", "services", "bin", "home"):
            (self.folder / each).mkdir()
        command = self.folder / "bin" / "cloakwork"
        command.write_text(f'#!/bin/sh\nexec {sys.executable} -m cloakwork.app.cli "$@"\n')
        command.chmod(0o755)
        (self.services / "pids").touch()

    @property
    def services(self) -> Path:
        return self.folder / "services"

    @property
    def environment(self) -> dict[str, str]:
        own = {
            "PATH": f"{self.folder / 'bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}",
            "HOME": str(self.folder / "home"),
            "SERVICES": str(self.services),
            "CLOAKWORK_PORT": str(self.port),
            "CLOAKWORK_PASSPHRASE": "of the secret key on this disk",
        }
        return clean_environment() | own | self.exported

    def run(self, block: Block) -> str | None:
        """What went wrong."""
        text = block.text.replace("8123", str(self.port))
        # What it prints goes into a file: a service that stays would hold a pipe open.
        with (self.services / "out").open("wb") as out:
            good = self._shell(text, out) if block.language == "sh" else self._python(text)
        if good:
            return None
        return (self.services / ("out" if block.language == "sh" else "python")).read_text(errors="replace")[-3000:]

    def _shell(self, text: str, out: BinaryIO) -> bool:
        script = PRELUDE + text + '\nenv -0 > "$SERVICES/environment"\n'
        result = subprocess.run(
            ["bash", "-c", script],
            cwd=self.folder / "here",
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            timeout=TIMEOUT_SECONDS,
        )
        if result.returncode == 0:
            pairs = (self.services / "environment").read_text(encoding="utf-8").split("\0")
            found = dict(pair.partition("=")[::2] for pair in pairs)
            self.exported = {name: value for name, value in found.items() if name.startswith("CLOAKWORK_")}
        return result.returncode == 0

    def _python(self, text: str) -> bool:
        if self.python is None:
            with (self.services / "python").open("wb") as out:
                self.python = subprocess.Popen(
                    [sys.executable, "-W", "ignore", "-c", INTERPRETER],
                    cwd=self.folder / "here",
                    env=self.environment,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=out,
                    text=True,
                )
        assert self.python.stdin is not None and self.python.stdout is not None
        path = self.services / "block.py"
        path.write_text(text, encoding="utf-8")
        late = threading.Timer(TIMEOUT_SECONDS, self.python.kill)
        late.start()
        try:
            self.python.stdin.write(f"{path}\n")
            self.python.stdin.flush()
            return self.python.stdout.readline() == "done\n"
        finally:
            late.cancel()

    def leave(self) -> None:
        if self.python is not None:
            self.python.communicate(timeout=60)
        for pid in (self.services / "pids").read_text().split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGTERM)


@pytest.mark.skipif(shutil.which("bash") is None or shutil.which("curl") is None, reason="no bash or no curl here")
@pytest.mark.parametrize("page", RUN, ids=name_of)
def test_the_blocks_of_a_page_run(page: Path, tmp_path: Path):
    reader = Reader(tmp_path)
    try:
        for block in run_blocks(page):
            if block.reason is None:
                wrong = reader.run(block)
                assert wrong is None, f"{name_of(page)}, line {block.line}:\n{block.text}\n{wrong}"
    finally:
        reader.leave()


@pytest.mark.parametrize("block", LEFT_OUT, ids=lambda block: f"{name_of(block.page)}-{block.line}")
def test_blocks_that_do_not_run_here(block: Block):
    """Commands are looked at by the shell, and by tests/test_docs.py; Python by its compiler."""
    if block.language == "python":
        compile(block.text, name_of(block.page), "exec")
        pytest.skip(str(block.reason))
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
