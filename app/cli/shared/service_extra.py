"""Checks that the service's libraries (an extra) are installed and that its folder exists."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

from cloakwork.app.cli.shared.console import FailureError
from cloakwork.fhe_core.errors import how_to_install

_NEEDED = ("fastapi", "uvicorn", "sqlalchemy", "alembic", "pydantic_settings", "prometheus_client")


def require_service() -> None:
    """Requires the extra `service`.

    Raises:
        FailureError: a library is missing; the message says how to install it.
    """
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise FailureError(f"the service needs {', '.join(missing)}; {how_to_install('service')}")


def require_data_folder(folder: Path) -> None:
    """Requires the service's data folder.

    Raises:
        FailureError: there is none; a name with a mistake in it makes no new one.
    """
    _refuse_file(folder)
    if not folder.is_dir():
        raise FailureError(
            f"--data: there is no folder '{folder}'; correct the name, or make the folder of a new service with mkdir"
        )


def make_data_folder(folder: Path) -> None:
    """Make the folder of a new service, its owner's alone, as `cloakwork serve` does. FailureError: it is a file."""
    _refuse_file(folder)
    os.umask(0o077)
    folder.mkdir(parents=True, exist_ok=True)


def _refuse_file(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise FailureError(f"--data: expected a folder, got the file '{folder}'")
