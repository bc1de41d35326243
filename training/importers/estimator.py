"""One fitted estimator -> TreeEnsemble, LinearModel, or an ONNX graph for networks; by the name of its original class."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Final, TypeAlias

import numpy as np
import onnx
from numpy.typing import NDArray

from cloakwork.models.client_steps import (
    ZERO_IS_MISSING,
    Columns,
    Function,
    Indicators,
    LabelGroups,
    Labels,
    Outliers,
    Pick,
    Present,
    Transform,
)
from cloakwork.models.client_steps.transforms import plain_labels
from cloakwork.models.errors import CompileError, UnsupportedOperatorError
from cloakwork.models.linear.linear_model import LinearModel
from cloakwork.models.trees.ensemble import Tree, TreeEnsemble
from cloakwork.training.importers import bayes, ensembles, linear, sklearn_trees
from cloakwork.training.importers.catboost_trees import catboost_trees, classification_answer, regression_answer
from cloakwork.training.importers.combining import ImportedModel, makes_missing
from cloakwork.training.importers.lightgbm_trees import EACH, lightgbm_nodes
from cloakwork.training.importers.networks import import_network
from cloakwork.training.importers.nodes import check_own_methods, nearest_of, unsupported_option, unwrapped
from cloakwork.training.importers.preprocessing import given_to_last, split_pipeline
from cloakwork.training.importers.xgboost_trees import xgboost_nodes

Imported: TypeAlias = TreeEnsemble | LinearModel | onnx.ModelProto
Given: TypeAlias = Callable[[], Any]
"""Makes some samples as an estimator gets them."""
_LIBRARIES: Final = ("sklearn.", "xgboost.", "lightgbm.", "catboost.")


_COMPLETE: Final = ("GradientBoosting", "AdaBoost")  # which refuse missing values, whatever their trees would do


def import_estimator(estimator: Any, *, missing: bool = False) -> Imported:
    """Returns the model of `import_part`."""
    return import_part(estimator, missing=missing).model


def import_part(estimator: Any, *, missing: bool = False, given: Given | None = None) -> ImportedModel:
    """Returns the model that a fitted estimator computes, and what the client does before it: squares of features, the pipelines of members.

    Args:
        missing: keep where trees send missing values (NaN); without it the model takes none, which is cheaper.
        given: makes some samples as the estimator itself gets them, which tell what it cannot: sparse matrices, names as the user has them.

    Raises:
        CompileError: not fitted.
        UnsupportedOperatorError: another estimator, or an option of it that has no encrypted counterpart.
    """
    estimator = unwrapped(estimator)
    name = original_class(estimator)
    _check_fitted(estimator, name)
    part = _read(estimator, name, given)
    model = part.model
    names = None if part.steps else feature_names(estimator, given)
    if isinstance(model, TreeEnsemble):
        trees = model.trees
        if not makes_missing(part.steps) and (not missing or name.startswith(_COMPLETE)):
            trees = tuple(replace(tree, missing_left=None) for tree in trees)
        return replace(part, model=replace(model, trees=trees, feature_names=names))
    return replace(part, model=replace(model, feature_names=names)) if isinstance(model, LinearModel) else part


def _read(estimator: Any, name: str, given: Given | None) -> ImportedModel:
    only = _only_class(estimator, name)
    if only is not None:
        return ImportedModel(_constant(estimator, only))
    if name in ensembles.READERS:
        part = ensembles.READERS[name](estimator, partial(_member, given=given))
        # Members that take their own zeros as missing take no missing values of the user's.
        return replace(part, steps=(Present(), *part.steps)) if makes_missing(part.steps) else part
    read = _READERS[name](estimator, name)
    part = read if isinstance(read, ImportedModel) else ImportedModel(read)
    return replace(part, steps=(Function(ZERO_IS_MISSING),)) if _zero_is_missing(estimator, name, given) else part


def _only_class(estimator: Any, name: str) -> Any:
    """Returns the classes of a classifier of scikit-learn that saw only one; None for others."""
    classes = getattr(estimator, "classes_", None)
    single = isinstance(classes, np.ndarray) and classes.shape == (1,)
    return classes if single and not name.startswith(_OF_TWO) else None


_OF_TWO: Final = (
    "XGB",
    "LGBM",
    "CatBoost",
    "Hist",
    "MLP",
    "OneVsRest",
)  # which have a score for a second class all the same


def _constant(estimator: Any, classes: Any) -> TreeEnsemble:
    """Returns one class, whatever the features are, with probability 1."""
    leaf = Tree.of_nodes([0], [0.0], [-1], [-1], [[1.0]], [False])
    return _ensemble(estimator, [leaf], "none", after=(Pick(plain_labels(np.repeat(classes, 2))),))


def _zero_is_missing(estimator: Any, name: str, given: Given | None) -> bool:
    """Whether zeros take the way of missing values: XGBoost holds what a sparse matrix leaves out for missing, not for 0."""
    if name not in _XGBOOST:
        return False
    samples: Any = None if given is None else given()
    if not hasattr(samples, "tocsr"):
        return bool(estimator.missing == 0)
    if np.isnan(estimator.missing) and bool((samples.tocsr().data == 0).any()):
        remedy = "some of its zeros are numbers and others are missing values; fit it on dense ones (sparse_output=False, sparse_threshold=0)"
        raise unsupported_option(estimator, "features", "a sparse matrix that holds zeros", remedy)
    return True


def _member(estimator: Any, columns: NDArray[np.int64] | None = None, *, given: Given | None) -> ImportedModel:
    """Returns a member of an ensemble: an estimator, or a pipeline of steps on numbers that ends in one.

    Args:
        columns: that it gets of the ensemble's; None: the whole table as it is.
    """
    estimator = unwrapped(estimator)
    steps, last = split_pipeline(estimator)

    def given_to_member() -> Any:
        assert given is not None
        table = given()
        if columns is not None:
            table = (table.to_numpy() if hasattr(table, "to_numpy") else table)[:, columns]
        return given_to_last(estimator, table)

    part = _as_member(import_part(last, given=None if given is None else given_to_member))
    if steps and not isinstance(steps[0], Columns):
        raise UnsupportedOperatorError(
            f"{type(last).__name__}: its pipeline is a member of an ensemble and takes texts or categories; encode them before the ensemble"
        )
    return replace(part, steps=(*steps[1:], *part.steps)) if steps else part


def _as_member(part: ImportedModel) -> ImportedModel:
    """Without the shape of the labels where transform and labels say all the rest."""
    model = part.model
    known = isinstance(model, TreeEnsemble) and model.labels is not None and model.transform == "softmax"
    return replace(part, model=replace(model, after=None)) if known and isinstance(model, TreeEnsemble) else part


def original_class(estimator: Any) -> str:
    """Returns the name of the class of scikit-learn, XGBoost, LightGBM or CatBoost that the estimator is, or extends.

    Raises:
        UnsupportedOperatorError: another class, or one that predicts in a way of its own.
    """
    for cls in type(estimator).__mro__:
        if cls.__module__.startswith(_LIBRARIES) and cls.__name__ in SUPPORTED:
            check_own_methods(estimator, cls)
            return cls.__name__
    name = type(estimator).__name__
    raise UnsupportedOperatorError(
        f"{name} cannot run on encrypted data; {nearest_of(name, SUPPORTED)}; docs/howto/scikit-learn.md lists all"
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


def feature_names(estimator: Any, given: Given | None = None) -> tuple[str, ...] | None:
    """Returns the names of the columns; None where it was fitted without. LightGBM writes blanks of a name as underscores: then as the user's
    samples have it."""
    try:
        names = tuple(str(name) for name in estimator.feature_names_in_)
    except AttributeError:
        names = tuple(getattr(estimator, "feature_names_", None) or ())  # CatBoost
    if not names or names in [tuple(f"{word}{i}" for i in range(len(names))) for word in ("Column_", "")]:
        return None
    if given is not None and hasattr(estimator, "booster_") and any("_" in name for name in names):
        columns = tuple(str(column) for column in getattr(given(), "columns", ()))
        return columns if tuple(re.sub(r"\s", "_", column) for column in columns) == names else names
    return names


def features_of(estimator: Any) -> int:
    """Returns the number of columns that an estimator takes. CatBoost has forgotten the attribute of scikit-learn where it was loaded from a file."""
    return int(estimator.n_features_in_) or len(estimator.feature_names_)


# --- readers, one per kind of estimator ----------------------------------------------------------------------------------------------


def _forest(estimator: Any, name: str) -> TreeEnsemble:
    facts: dict[str, Any] = {"labels": labels_of(estimator)}
    if facts["labels"] is not None and estimator.n_outputs_ > 1:
        sizes = np.array(estimator.n_classes_, dtype=np.int64)
        facts = {"after": (LabelGroups(plain_labels(np.concatenate(facts["labels"])), sizes),)}
    trees = sklearn_trees.forest_trees(estimator)
    return _ensemble(estimator, trees, "none", aggregation="mean", single=True, **facts)


def _gradient_boosting(estimator: Any, name: str) -> TreeEnsemble:
    trees, base = sklearn_trees.gradient_boosting(estimator)
    exponential = estimator.loss == "exponential"  # 1 / (1 + exp(-2 s))
    transform = "softmax" if exponential else _logistic(estimator, len(base))
    return _ensemble(estimator, trees, transform, base=base, labels=labels_of(estimator), single=True)


def _histogram_boosting(estimator: Any, name: str) -> TreeEnsemble:
    trees, base = sklearn_trees.histogram_boosting(estimator)
    link = "exp" if name.endswith("Regressor") and estimator.loss in ("poisson", "gamma") else "none"
    transform = _logistic(estimator, len(base)) if name.endswith("Classifier") else link
    return _ensemble(estimator, trees, transform, base=base, labels=labels_of(estimator))


def _isolation_forest(estimator: Any, name: str) -> TreeEnsemble:
    trees, divisor = sklearn_trees.isolation_forest(estimator)
    after = (Transform("isolation", divisor), Outliers(float(estimator.offset_)))
    return _ensemble(estimator, trees, "isolation", transform_parameter=divisor, single=True, after=after)


def _xgboost(estimator: Any, name: str) -> TreeEnsemble:
    if not np.isnan(estimator.missing) and estimator.missing != 0:
        raise unsupported_option(estimator, "missing", estimator.missing, "mark missing values by NaN, or by 0")
    trees, base, transform = xgboost_nodes(estimator)
    facts: dict[str, Any] = {"labels": labels_of(estimator)}
    if facts["labels"] is not None and len(base) == 1 == len(estimator.classes_):
        facts = {"labels": np.arange(2)}  # it predicts the second one all the same
    if facts["labels"] is not None and transform == "sigmoid" and len(base) > 1:  # labels that may hold together
        facts = {"after": (Transform("sigmoid"), Indicators())}
    return _ensemble(estimator, trees, transform, base=base, strict=True, single=True, **facts)


def _lightgbm(estimator: Any, name: str) -> TreeEnsemble:
    trees, base, transform = lightgbm_nodes(estimator)
    if transform == EACH:  # probabilities that do not add up to 1
        labels = plain_labels(estimator.classes_)
        facts: dict[str, Any] = {"labels": labels, "after": (Transform("sigmoid"), Labels(labels))}
        return _ensemble(estimator, trees, "decision", base=base, **facts)
    return _ensemble(estimator, trees, transform, base=base, labels=labels_of(estimator))


def _ensemble(estimator: Any, trees: list[Tree], transform: str, **facts: Any) -> TreeEnsemble:
    return TreeEnsemble(tuple(trees), int(estimator.n_features_in_), transform=transform, **facts)


def _catboost(estimator: Any, name: str) -> TreeEnsemble:
    trees, base = catboost_trees(estimator)
    features = features_of(estimator)
    facts: dict[str, Any] = {"base": base, "single": True}
    if name.endswith("Classifier"):
        return TreeEnsemble(tuple(trees), features, **facts, **classification_answer(estimator))
    transform, after = regression_answer(estimator)
    if after is not None:  # the variance is exp(2 s)
        trees = [replace(tree, values=tree.values * [1.0, 2.0]) for tree in trees]
        facts["base"] = base * [1.0, 2.0]
    return TreeEnsemble(tuple(trees), features, transform=transform, after=after, **facts)


def _linear(estimator: Any, name: str) -> LinearModel:
    coefficients, intercept = linear.linear_coefficients(estimator)
    labels = labels_of(estimator) if name in linear.CLASSIFIERS else None
    if labels is not None and linear.is_multilabel(estimator):
        return LinearModel(coefficients, intercept, after=(Indicators(),))
    if labels is None and np.shape(estimator.coef_)[:-1] == (1,):  # fitted on targets [samples, 1]
        return LinearModel(coefficients, intercept, after=(Transform("none"),))
    return LinearModel(coefficients, intercept, linear.linear_transform(estimator, name), labels=labels)


def _nearest_centre(estimator: Any, name: str) -> LinearModel:
    coefficients, intercept = linear.nearest_centre(estimator)
    if len(coefficients) < 2:
        raise unsupported_option(estimator, "n_clusters", 1, "one cluster needs no model")
    return LinearModel(coefficients, intercept, "decision", labels=np.arange(len(coefficients)))


def _network(estimator: Any, name: str) -> onnx.ModelProto:
    return import_network(estimator)


def labels_of(estimator: Any) -> Any:
    """Returns classes; None for regressors. A single one twice: some tell the probability of a second one that they never predict."""
    labels = getattr(estimator, "classes_", None)
    return np.repeat(labels, 2) if isinstance(labels, np.ndarray) and labels.shape == (1,) else labels


def _logistic(estimator: Any, outputs: int) -> str:
    """Probabilities of boosted classifiers; regressors have no classes."""
    if not hasattr(estimator, "classes_"):
        return "none"
    return "sigmoid" if outputs == 1 else "softmax"


def _adaboost(estimator: Any, name: str) -> TreeEnsemble:
    return ensembles.adaboost(estimator)


_XGBOOST: Final = ("XGBClassifier", "XGBRegressor")
_READERS: Final[dict[str, Callable[[Any, str], Imported | ImportedModel]]] = {
    **dict.fromkeys((*linear.REGRESSORS, *linear.GENERALISED, *linear.CLASSIFIERS), _linear),
    **dict.fromkeys(
        ("DecisionTreeClassifier", "DecisionTreeRegressor", "ExtraTreeClassifier", "ExtraTreeRegressor"), _forest
    ),
    **dict.fromkeys(("RandomForestClassifier", "RandomForestRegressor"), _forest),
    **dict.fromkeys(("ExtraTreesClassifier", "ExtraTreesRegressor"), _forest),
    **dict.fromkeys(("GradientBoostingClassifier", "GradientBoostingRegressor"), _gradient_boosting),
    **dict.fromkeys(("HistGradientBoostingClassifier", "HistGradientBoostingRegressor"), _histogram_boosting),
    **dict.fromkeys(_XGBOOST, _xgboost),
    **dict.fromkeys(("LGBMClassifier", "LGBMRegressor"), _lightgbm),
    **dict.fromkeys(bayes.CLASSIFIERS, bayes.bayes),
    "AdaBoostClassifier": _adaboost,
    **dict.fromkeys(("CatBoostClassifier", "CatBoostRegressor"), _catboost),
    "IsolationForest": _isolation_forest,
    "KMeans": _nearest_centre,
    **dict.fromkeys(("MLPClassifier", "MLPRegressor"), _network),
}
SUPPORTED: Final = tuple(sorted((*_READERS, *ensembles.READERS)))
