"""Whether the service can be started: its libraries are an extra."""

from __future__ import annotations

import importlib.util

from cloakwork.app.cli.shared.console import FailureError
from cloakwork.fhe_core.errors import how_to_install

_NEEDED = ("fastapi", "uvicorn", "sqlalchemy", "alembic", "pydantic_settings", "prometheus_client")


def require_service() -> None:
    """Raises:
    FailureError: a library is missing; the message says how to install it.
    """
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise FailureError(f"the service needs {', '.join(missing)}; {how_to_install('service')}")
