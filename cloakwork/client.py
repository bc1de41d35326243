"""The client of a service: keys are made and kept here, samples are encrypted before they leave, answers are decrypted. Needs the extra `client`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from cloakwork.app.client.audit import Recorder
    from cloakwork.app.client.client import AsyncClient, Client
    from cloakwork.app.client.keyring import Keyring
    from cloakwork.app.client.scores import Scores

__all__ = ["AsyncClient", "Client", "Keyring", "Recorder", "Scores"]

_PLACES: Final = {
    "AsyncClient": "client",
    "Client": "client",
    "Keyring": "keyring",
    "Recorder": "audit",
    "Scores": "scores",
}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name not in _PLACES:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    return getattr(import_module(f"cloakwork.app.client.{_PLACES[name]}"), name)
