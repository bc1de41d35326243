"""The client of the scoring service: makes keys, encrypts, asks a server to compute, decrypts. Needs the extra `client`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cloakwork.app.client.audit import Recorder
from cloakwork.app.client.scores import Scores

if TYPE_CHECKING:
    from cloakwork.app.client.client import AsyncClient, Client

__all__ = ["AsyncClient", "Client", "Recorder", "Scores"]


def __getattr__(name: str) -> Any:
    """Returns the clients when they are asked for: commands that need no server use other modules of this package without the extra."""
    if name in ("AsyncClient", "Client"):
        from cloakwork.app.client import client

        return getattr(client, name)
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
