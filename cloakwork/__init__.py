"""Machine-learning inference on encrypted data."""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("cloakwork")
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
