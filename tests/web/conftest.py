"""The client of web/ in Node, as `make web` builds it."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

WEB = Path(__file__).parents[2] / "web"
NODE = shutil.which("node")


@pytest.fixture(scope="session")
def web() -> Path:
    """The folder of the package."""
    if NODE is None:
        pytest.skip("node is not installed: the client for browsers cannot be run")
    missing = [name for name in ("dist/browser.js", "dist/client.wasm", "node_modules") if not (WEB / name).exists()]
    if missing:
        pytest.skip(f"web/{missing[0]} is not built: run 'make web'")
    return WEB


@pytest.fixture
def party(web: Path) -> Callable[..., None]:
    """party(step, folder): one step of the client in a process of its own."""

    def run(*arguments: str | Path) -> None:
        assert NODE is not None
        done = subprocess.run(
            [NODE, str(web / "test" / "party.mjs"), *map(str, arguments)], capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, done.stderr

    return run
