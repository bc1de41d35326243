"""One fitted estimator -> TreeEnsemble, LinearModel, or an ONNX graph for networks; by the name of its original class."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, TypeAlias

import numpy as np
import onnx

from cloakwork.models.errors import CompileError, UnsupportedOperatorError
from cloakwork.models.tabular.ensemble import Tree, TreeEnsemble
from cloakwork.models.tabular.linear_model import LinearModel
from cloakwork.training.importers import linear, sklearn_trees
from cloakwork.training.importers.lightgbm_trees import lightgbm_nodes
from cloakwork.training.importers.networks import import_network
from cloakwork.training.importers.nodes import unsupported_option
from cloakwork.training.importers.xgboost_trees import xgboost_nodes

Imported: TypeAlias = TreeEnsemble | LinearModel | onnx.ModelProto
_LIBRARIES: Final = ("sklearn.", "xgboost.", "lightgbm.")


def import_estimator(estimator: Any, *, missing: bool = False) -> Imported:
    """The model that a fitted estimator computes.

    Args:
        missing: keep where trees send missing values (NaN); without it the model takes none, which is cheaper.

    Raises:
        CompileError: not fitted.
        UnsupportedOperatorError: another estimator, or an option of it that has no encrypted counterpart.
    """
    name = original_class(estimator)
    _check_fitted(estimator, name)
    model = _READERS[name](estimator, name)
    if isinstance(model, TreeEnsemble):
        trees = model.trees if missing else tuple(replace(tree, missing_left=None) for tree in model.trees)
        return replace(model, trees=trees, feature_names=_names(estimator))
    return replace(model, feature_names=_names(estimator)) if isinstance(model, LinearModel) else model


def original_class(estimator: Any) -> str:
    """The name of the class of scikit-learn, XGBoost or LightGBM that the estimator is, or extends."""
    for cls in type(estimator).__mro__:
        if cls.__module__.startswith(_LIBRARIES) and cls.__name__ in _READERS:
            return cls.__name__
    raise UnsupportedOperatorError(
        f"{type(estimator).__name__} cannot run on encrypted data; expected one of {', '.join(SUPPORTED)}"
    )


def _check_fitted(estimator: Any, name: str) -> None:
    from sklearn.exceptions import NotFittedError
    from sklearn.utils.validation import check_is_fitted

    try:
        check_is_fitted(estimator)
    except NotFittedError as error:
        raise CompileError(f"{name}: expected a fitted estimator; call fit(X, y) before it is compiled") from error


def _names(estimator: Any) -> tuple[str, ...] | None:
    try:
        return tuple(str(name) for name in estimator.feature_names_in_)
    except AttributeError:
        return None


# --- readers, one per kind of estimator ----------------------------------------------------------------------------------------------


def _forest(estimator: Any, name: str) -> TreeEnsemble:
    return _ensemble(
        estimator,
        sklearn_trees.forest_trees(estimator),
        "none",
        aggregation="mean",
        labels=_labels(estimator),
        single=True,
    )


def _gradient_boosting(estimator: Any, name: str) -> TreeEnsemble:
    trees, base = sklearn_trees.gradient_boosting(estimator)
    return _ensemble(
        estimator, trees, _logistic(estimator, len(base)), base=base, labels=_labels(estimator), single=True
    )


def _histogram_boosting(estimator: Any, name: str) -> TreeEnsemble:
    trees, base = sklearn_trees.histogram_boosting(estimator)
    link = "exp" if name.endswith("Regressor") and estimator.loss in ("poisson", "gamma") else "none"
    transform = _logistic(estimator, len(base)) if name.endswith("Classifier") else link
    return _ensemble(estimator, trees, transform, base=base, labels=_labels(estimator))


def _isolation_forest(estimator: Any, name: str) -> TreeEnsemble:
    trees, divisor = sklearn_trees.isolation_forest(estimator)
    return _ensemble(estimator, trees, "isolation", transform_parameter=divisor, single=True)


def _xgboost(estimator: Any, name: str) -> TreeEnsemble:
    if not np.isnan(estimator.missing):
        raise unsupported_option(estimator, "missing", estimator.missing, "mark missing values by NaN")
    trees, base, transform = xgboost_nodes(estimator)
    labels = _labels(estimator)
    return _ensemble(estimator, trees, transform, base=base, labels=labels, strict=True, single=True)


def _lightgbm(estimator: Any, name: str) -> TreeEnsemble:
    trees, base, transform = lightgbm_nodes(estimator)
    return _ensemble(estimator, trees, transform, base=base, labels=_labels(estimator))


def _ensemble(estimator: Any, trees: list[Tree], transform: str, **facts: Any) -> TreeEnsemble:
    return TreeEnsemble(tuple(trees), int(estimator.n_features_in_), transform=transform, **facts)


def _linear(estimator: Any, name: str) -> LinearModel:
    coefficients, intercept = linear.linear_coefficients(estimator)
    labels = _labels(estimator) if name in linear.CLASSIFIERS else None
    return LinearModel(coefficients, intercept, linear.linear_transform(estimator, name), labels=labels)


def _nearest_centre(estimator: Any, name: str) -> LinearModel:
    coefficients, intercept = linear.nearest_centre(estimator)
    if len(coefficients) < 2:
        raise unsupported_option(estimator, "n_clusters", 1, "one cluster needs no model")
    return LinearModel(coefficients, intercept, "decision", labels=np.arange(len(coefficients)))


def _network(estimator: Any, name: str) -> onnx.ModelProto:
    return import_network(estimator)


def _labels(estimator: Any) -> Any:
    return getattr(estimator, "classes_", None)


def _logistic(estimator: Any, outputs: int) -> str:
    """Probabilities of boosted classifiers; regressors have no classes."""
    if not hasattr(estimator, "classes_"):
        return "none"
    return "sigmoid" if outputs == 1 else "softmax"


_READERS: Final[dict[str, Callable[[Any, str], Imported]]] = {
    **dict.fromkeys((*linear.REGRESSORS, *linear.GENERALISED, *linear.CLASSIFIERS), _linear),
    **dict.fromkeys(
        ("DecisionTreeClassifier", "DecisionTreeRegressor", "ExtraTreeClassifier", "ExtraTreeRegressor"), _forest
    ),
    **dict.fromkeys(("RandomForestClassifier", "RandomForestRegressor"), _forest),
    **dict.fromkeys(("ExtraTreesClassifier", "ExtraTreesRegressor"), _forest),
    **dict.fromkeys(("GradientBoostingClassifier", "GradientBoostingRegressor"), _gradient_boosting),
    **dict.fromkeys(("HistGradientBoostingClassifier", "HistGradientBoostingRegressor"), _histogram_boosting),
    **dict.fromkeys(("XGBClassifier", "XGBRegressor"), _xgboost),
    **dict.fromkeys(("LGBMClassifier", "LGBMRegressor"), _lightgbm),
    "IsolationForest": _isolation_forest,
    "KMeans": _nearest_centre,
    **dict.fromkeys(("MLPClassifier", "MLPRegressor"), _network),
}
SUPPORTED: Final = tuple(sorted(_READERS))
