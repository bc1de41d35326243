"""scikit-learn, XGBoost and LightGBM estimators that also score encrypted samples: the same names, with `compile` and `predict(X, how=)`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cloakwork.training import estimators as _estimators

if TYPE_CHECKING:
    from cloakwork.training.estimators import *  # noqa: F403

__all__ = list(_estimators.__all__)


def __getattr__(name: str) -> Any:
    return getattr(_estimators, name)
