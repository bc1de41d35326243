"""Estimators that were fitted by their library's own class."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, TypeVar

from cloakwork.models.errors import CompileError
from cloakwork.training.importers.nodes import check_own_methods

T = TypeVar("T")


def adopted(cls: type[T], fitted: Any, dropped: Sequence[str]) -> T:
    """Returns the same fitted estimator with the methods of this class; it shares what was fitted.

    Args:
        dropped: what belongs to an earlier program.

    Raises:
        CompileError: an estimator of another class.
        UnsupportedOperatorError: one that predicts in a way of its own.
    """
    original = next((base for base in cls.__mro__[1:] if base.__name__ == cls.__name__), object)
    library = original.__module__.partition(".")[0]
    library_class = next((base for base in type(fitted).__mro__ if base.__module__.partition(".")[0] == library), None)
    if library_class is not original:
        raise CompileError(f"{cls.__name__}.from_sklearn: expected a {cls.__name__}, got a {type(fitted).__name__}")
    check_own_methods(fitted, original)
    result = copy.copy(fitted)
    result.__class__ = cls
    for name in dropped:
        vars(result).pop(name, None)
    return result  # type: ignore[no-any-return]
