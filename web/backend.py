"""The build back end of the package: scikit-build-core, and the page of the service, which Node draws, before it.

The page is built where it is missing and there is npm; a source distribution has it. Without it the package is complete but for the page, and
says so. CLOAKWORK_PAGE=off leaves it to `make web`; CLOAKWORK_PAGE=required ends a build that has no page.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from scikit_build_core import build as core
from scikit_build_core.build import (
    build_editable,
    get_requires_for_build_editable,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]

WEB: Final = Path(__file__).resolve().parent
PAGE: Final = WEB.parent / "api" / "page"
PROGRAM: Final = "client.wasm"
FILES: Final = (
    *("index.html", "page.css", "page.js", "worker.js", "docs.html", "docs.js", "admin.html", "admin.css", "admin.js"),
    *("hash-wasm.txt", PROGRAM),
)
"""Of the page, as `npm run page` and build_wasm.py make them."""
_ZIG: Final = "ziglang"  # whose clang compiles the client's part of the engine for browsers


def build_wheel(folder: str, config_settings: Any = None, metadata_directory: str | None = None) -> str:
    add_page()
    return core.build_wheel(folder, config_settings, metadata_directory)


def build_sdist(folder: str, config_settings: Any = None) -> str:
    add_page()
    return core.build_sdist(folder, config_settings)


def get_requires_for_build_wheel(config_settings: Any = None) -> list[str]:
    return [*core.get_requires_for_build_wheel(config_settings), *_tools()]


def get_requires_for_build_sdist(config_settings: Any = None) -> list[str]:
    return [*core.get_requires_for_build_sdist(config_settings), *_tools()]


def add_page() -> None:
    """Builds it where it is missing and can be built.

    Raises:
        SystemExit: it is required, and missing.
    """
    if _is_there():
        return
    missing = _why_not()
    if missing is None:
        try:
            build_page()
        except (OSError, subprocess.CalledProcessError) as error:
            missing = str(error)
    if missing is None:
        return
    text = f"the page of the service is left out: {missing}"
    if os.environ.get("CLOAKWORK_PAGE") == "required":
        raise SystemExit(text)
    print(text, file=sys.stderr)  # noqa: T201


def build_page() -> None:
    """All of it or nothing: a folder appears when every file is in it."""
    npm = str(shutil.which("npm"))
    if not (WEB / "node_modules").is_dir():
        _run(npm, "ci", "--no-fund", "--no-audit", "--silent")
    shutil.rmtree(PAGE, ignore_errors=True)
    try:
        _run(npm, "run", "--silent", "page")
        with tempfile.TemporaryDirectory() as folder:
            program = Path(folder) / PROGRAM
            _run(sys.executable, str(WEB / "build_wasm.py"), str(program))
            shutil.copy(program, PAGE / PROGRAM)
    except BaseException:
        shutil.rmtree(PAGE, ignore_errors=True)
        raise


def _run(*command: str) -> None:
    subprocess.run(command, cwd=WEB, check=True, stdout=sys.stderr)


def _is_there() -> bool:
    return all((PAGE / name).is_file() for name in FILES)


def _why_not() -> str | None:
    if os.environ.get("CLOAKWORK_PAGE") == "off":
        return "CLOAKWORK_PAGE=off"
    if shutil.which("npm") is None:
        return "there is no npm (Node 20.19 or newer)"
    return None


def _tools() -> list[str]:
    return [] if _is_there() or _why_not() is not None else [_ZIG]
