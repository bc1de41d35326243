"""One fitted estimator -> TreeEnsemble, LinearModel, or an ONNX graph for networks; by the name of its original class."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, TypeAlias

import numpy as np
import onnx

from cloakwork.models.client_steps import Columns, Indicators, LabelGroups, Outliers, Transform
from cloakwork.models.errors import CompileError, UnsupportedOperatorError
from cloakwork.models.linear.linear_model import LinearModel
from cloakwork.models.onnx_ml.importer import import_onnx_ml
from cloakwork.models.trees.ensemble import Tree, TreeEnsemble
from cloakwork.training.importers import bayes, ensembles, linear, sklearn_trees
from cloakwork.training.importers.combining import Part
from cloakwork.training.importers.lightgbm_trees import lightgbm_nodes
from cloakwork.training.importers.networks import import_network
from cloakwork.training.importers.nodes import check_own_methods, nearest_of, unsupported_option, unwrapped
from cloakwork.training.importers.preprocessing import split_pipeline
from cloakwork.training.importers.xgboost_trees import xgboost_nodes

Imported: TypeAlias = TreeEnsemble | LinearModel | onnx.ModelProto
_LIBRARIES: Final = ("sklearn.", "xgboost.", "lightgbm.", "catboost.")


def import_estimator(estimator: Any, *, missing: bool = False) -> Imported:
    """The model of `import_part`."""
    return import_part(estimator, missing=missing).model


def import_part(estimator: Any, *, missing: bool = False) -> Part:
    """The model that a fitted estimator computes, and what the client does before it: squares of features, the pipelines of members.

    Args:
        missing: keep where trees send missing values (NaN); without it the model takes none, which is cheaper.

    Raises:
        CompileError: not fitted.
        UnsupportedOperatorError: another estimator, or an option of it that has no encrypted counterpart.
    """
    estimator = unwrapped(estimator)
    name = original_class(estimator)
    _check_fitted(estimator, name)
    read = _READERS[name](estimator, name)
    part = read if isinstance(read, Part) else Part(read)
    model = part.model
    names = None if part.steps else feature_names(estimator)
    if isinstance(model, TreeEnsemble):
        trees = model.trees if missing else tuple(replace(tree, missing_left=None) for tree in model.trees)
        return replace(part, model=replace(model, trees=trees, feature_names=names))
    return replace(part, model=replace(model, feature_names=names)) if isinstance(model, LinearModel) else part


def _member(estimator: Any) -> Part:
    """A member of an ensemble: an estimator, or a pipeline of steps on numbers that ends in one."""
    estimator = unwrapped(estimator)
    steps, last = split_pipeline(estimator)
    part = import_part(last)
    if steps and not isinstance(steps[0], Columns):
        raise UnsupportedOperatorError(
            f"{type(last).__name__}: its pipeline is a member of an ensemble and takes texts or categories; encode them before the ensemble"
        )
    return replace(part, steps=(*steps[1:], *part.steps)) if steps else part


def original_class(estimator: Any) -> str:
    """The name of the class of scikit-learn, XGBoost, LightGBM or CatBoost that the estimator is, or extends.

    Raises:
        UnsupportedOperatorError: another class, or one that predicts in a way of its own.
    """
    for cls in type(estimator).__mro__:
        if cls.__module__.startswith(_LIBRARIES) and cls.__name__ in _READERS:
            check_own_methods(estimator, cls)
            return cls.__name__
    name = type(estimator).__name__
    raise UnsupportedOperatorError(
        f"{name} cannot run on encrypted data; {nearest_of(name, SUPPORTED)}; docs/scikit-learn.md lists all"
    )


def _check_fitted(estimator: Any, name: str) -> None:
    from sklearn.exceptions import NotFittedError
    from sklearn.utils.validation import check_is_fitted

    try:
        if not getattr(estimator, "is_fitted", lambda: True)():  # CatBoost
            raise NotFittedError
        check_is_fitted(estimator)
    except NotFittedError as error:
        raise CompileError(f"{name}: expected a fitted estimator; call fit(X, y) before it is compiled") from error


def feature_names(estimator: Any) -> tuple[str, ...] | None:
    try:
        return tuple(str(name) for name in estimator.feature_names_in_)
    except AttributeError:
        return None


# --- readers, one per kind of estimator ----------------------------------------------------------------------------------------------


def _forest(estimator: Any, name: str) -> TreeEnsemble:
    facts: dict[str, Any] = {"labels": _labels(estimator)}
    if facts["labels"] is not None and estimator.n_outputs_ > 1:
        sizes = np.array(estimator.n_classes_, dtype=np.int64)
        facts = {"after": (LabelGroups(np.concatenate(facts["labels"]), sizes),)}
    trees = sklearn_trees.forest_trees(estimator)
    return _ensemble(estimator, trees, "none", aggregation="mean", single=True, **facts)


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
    after = (Transform("isolation", divisor), Outliers(float(estimator.offset_)))
    return _ensemble(estimator, trees, "isolation", transform_parameter=divisor, single=True, after=after)


def _xgboost(estimator: Any, name: str) -> TreeEnsemble:
    if not np.isnan(estimator.missing):
        raise unsupported_option(estimator, "missing", estimator.missing, "mark missing values by NaN")
    trees, base, transform = xgboost_nodes(estimator)
    facts: dict[str, Any] = {"labels": _labels(estimator)}
    if facts["labels"] is not None and transform == "sigmoid" and len(base) > 1:  # labels that may hold together
        facts = {"after": (Transform("sigmoid"), Indicators())}
    return _ensemble(estimator, trees, transform, base=base, strict=True, single=True, **facts)


def _lightgbm(estimator: Any, name: str) -> TreeEnsemble:
    trees, base, transform = lightgbm_nodes(estimator)
    return _ensemble(estimator, trees, transform, base=base, labels=_labels(estimator))


def _ensemble(estimator: Any, trees: list[Tree], transform: str, **facts: Any) -> TreeEnsemble:
    return TreeEnsemble(tuple(trees), int(estimator.n_features_in_), transform=transform, **facts)


def _catboost(estimator: Any, name: str) -> TreeEnsemble:
    """By the ONNX file that CatBoost itself writes."""
    with TemporaryDirectory(prefix="cloakwork-") as folder:
        path = Path(folder) / "model.onnx"
        try:
            estimator.save_model(str(path), format="onnx")
        except Exception as error:  # its own class, which is not imported here
            raise unsupported_option(
                estimator, "model", str(error)[:200], "use numeric features and its own losses"
            ) from error
        _, model = import_onnx_ml(onnx.load(str(path)))
    assert isinstance(model, TreeEnsemble)
    return model


def _linear(estimator: Any, name: str) -> LinearModel:
    coefficients, intercept = linear.linear_coefficients(estimator)
    labels = _labels(estimator) if name in linear.CLASSIFIERS else None
    if labels is not None and linear.is_multilabel(estimator):
        return LinearModel(coefficients, intercept, after=(Indicators(),))
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


def _adaboost(estimator: Any, name: str) -> TreeEnsemble:
    return ensembles.adaboost(estimator)


def _of_members(estimator: Any, name: str) -> Part:
    return ensembles.READERS[name](estimator, _member)


_READERS: Final[dict[str, Callable[[Any, str], Imported | Part]]] = {
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
    **dict.fromkeys(bayes.CLASSIFIERS, bayes.bayes),
    **dict.fromkeys(ensembles.READERS, _of_members),
    "AdaBoostClassifier": _adaboost,
    **dict.fromkeys(("CatBoostClassifier", "CatBoostRegressor"), _catboost),
    "IsolationForest": _isolation_forest,
    "KMeans": _nearest_centre,
    **dict.fromkeys(("MLPClassifier", "MLPRegressor"), _network),
}
SUPPORTED: Final = tuple(sorted(_READERS))
