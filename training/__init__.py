"""Networks trained for encryption (`prepare`), estimators, recipes of the zoo's models. Nothing that runs encrypted models needs this package."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cloakwork.training.preparation import Prepared, prepare

__all__ = ["Prepared", "prepare"]


def __getattr__(name: str) -> Any:
    """`prepare` and what belongs to it, imported when asked for: the estimators do without PyTorch."""
    if name in __all__:
        from cloakwork.training import preparation

        return getattr(preparation, name)
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
