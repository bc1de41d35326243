"""Code that the readers share: errors, and a check that an object has the attributes of its class."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from difflib import get_close_matches
from importlib.util import find_spec
from typing import Any, Final

import numpy as np

from cloakwork.models.arrays import Reals
from cloakwork.models.errors import CompileError, UnsupportedOperatorError


def placed(values: Reals, output: int, outputs: int) -> Reals:
    """Returns [nodes] as column `output` of [nodes, outputs]: trees that add to one class's score only."""
    result = np.zeros((len(values), outputs))
    result[:, output] = values
    return result


def unsupported_option(estimator: Any, option: str, setting: Any, remedy: str) -> UnsupportedOperatorError:
    return UnsupportedOperatorError(f"{type(estimator).__name__}: {option} = {setting!r} cannot be imported; {remedy}")


def nearest_of(name: str, known: Iterable[str]) -> str:
    """Returns for a message the known names most like a name, or how to see them all."""
    names = list(known)
    near = (
        get_close_matches(name, names, n=3, cutoff=0.8) or [each for each in names if each in name or name in each][:3]
    )
    return f"nearest: {', '.join(near)}" if near else "nothing of a name like it can run"


def as_fitted(estimator: Any, samples: Any) -> Any:
    """Returns samples with the names of columns that it was fitted on: steps may choose columns by them."""
    names = getattr(estimator, "feature_names_in_", None)
    if (
        names is None
        or not isinstance(samples, np.ndarray)
        or samples.shape[1:] != (len(names),)
        or find_spec("pandas") is None
    ):
        return samples
    from pandas import DataFrame

    return DataFrame(samples, columns=names)


def is_fitted(estimator: Any) -> bool:
    """Whether fit was called."""
    from sklearn.exceptions import NotFittedError
    from sklearn.utils.validation import check_is_fitted

    try:
        check_is_fitted(estimator)
    except NotFittedError:
        return False
    return bool(getattr(estimator, "is_fitted", lambda: True)())  # CatBoost


def unwrapped(estimator: Any) -> Any:
    """Returns the estimator that a search found best, or that a FrozenEstimator holds; others are themselves."""
    while True:
        if hasattr(estimator, "best_estimator_") and _is_search(estimator):
            estimator = estimator.best_estimator_
        elif type(estimator).__name__.endswith("SearchCV"):
            raise CompileError(
                f"{type(estimator).__name__}: expected a search with its best model; call fit(X, y), with refit=True"
            )
        elif type(estimator).__name__ == "FrozenEstimator":
            estimator = estimator.estimator
        else:
            return estimator


def _is_search(estimator: Any) -> bool:
    """Raises UnsupportedOperatorError for one of scikit-learn's that answers otherwise than what it has found."""
    from sklearn.model_selection._search import BaseSearchCV

    if isinstance(estimator, BaseSearchCV):
        check_own_methods(estimator, BaseSearchCV)
        return True
    return type(estimator).__name__.endswith("SearchCV")


# What training and reporting call; an answer does not depend on them.
_TRAINING: Final = re.compile(
    r"__|fit|_fit|partial_fit|score$|score_$|scorer|get_params|set_|get_xgb_params|get_num_boosting|get_feature_names_out|get_metadata"
    r"|_get_tags|_more_tags|_get_param_names|_repr|_run_search|_validate_params|_doc_link"
)
_OURS: Final = "cloakwork.training.estimators"


def check_own_methods(estimator: Any, original: type, allowed: Collection[str] = ()) -> None:
    """Checks that an estimator answers as the library's class that it is, or extends: its coefficients say nothing of what a user's method does.

    Args:
        allowed: methods whose result is read, not known.

    Raises:
        UnsupportedOperatorError: names the first method that a class of the user's, or the object itself, has in place of the original's.
    """
    attributes = set(vars(estimator)) if hasattr(estimator, "__dict__") else set()
    for name in dir(original):
        if _TRAINING.match(name) or name in allowed:
            continue
        first = _definer(original, name)
        method = None if first is None else vars(first)[name]
        if not callable(method) and not hasattr(method, "__get__"):
            continue  # options and other values
        definer = _definer(type(estimator), name)
        replaced = definer is not first and definer is not None and not definer.__module__.startswith(_OURS)
        if replaced or (name in attributes and callable(method)):
            raise UnsupportedOperatorError(
                f"{type(estimator).__name__} extends {original.__name__} by its own '{name}', which cannot be imported; compile a "
                f"{original.__name__}, and do what '{name}' adds before encryption or after decryption"
            )


def _definer(cls: type, name: str) -> type | None:
    """Returns the class from which a method comes."""
    return next((each for each in cls.__mro__ if name in vars(each)), None)
