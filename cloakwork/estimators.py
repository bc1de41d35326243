"""scikit-learn, XGBoost and LightGBM estimators that also score encrypted samples. They keep their names, parameters and `fit`, and have besides:

- `from_sklearn(fitted)`: the same estimator, fitted before, with these methods.
- `compile(X, **options)`: compile what was fitted. X: typical samples [samples, features]; options: fields of `cloakwork.Options`.
- `predict(X, how="clear")`, `predict_proba` and `decision_function`: what scikit-learn returns. how: "clear", "simulate" or "encrypted"; key: a
  `cloakwork.Key`, else one is made.
- `compiled_`: the compiled model; `client`, `save(path)`, `load(path)`: as of every compiled model.

A library is imported when one of its classes is asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from cloakwork.fhe_core.errors import how_to_install
from cloakwork.models.errors import CompileError

if TYPE_CHECKING:
    from cloakwork.training.estimators.bayes import BernoulliNB, GaussianNB, MultinomialNB
    from cloakwork.training.estimators.boosting import LGBMClassifier, LGBMRegressor, XGBClassifier, XGBRegressor
    from cloakwork.training.estimators.clusters import KMeans
    from cloakwork.training.estimators.forests import (
        AdaBoostClassifier,
        BaggingClassifier,
        BaggingRegressor,
        DecisionTreeClassifier,
        DecisionTreeRegressor,
        ExtraTreesClassifier,
        ExtraTreesRegressor,
        GradientBoostingClassifier,
        GradientBoostingRegressor,
        HistGradientBoostingClassifier,
        HistGradientBoostingRegressor,
        IsolationForest,
        RandomForestClassifier,
        RandomForestRegressor,
    )
    from cloakwork.training.estimators.linear import (
        ElasticNet,
        GammaRegressor,
        Lasso,
        LinearDiscriminantAnalysis,
        LinearRegression,
        LinearSVC,
        LinearSVR,
        LogisticRegression,
        PoissonRegressor,
        Ridge,
        RidgeClassifier,
        SGDClassifier,
        SGDRegressor,
        TweedieRegressor,
    )
    from cloakwork.training.estimators.machines import SVC, SVR, NuSVC, NuSVR
    from cloakwork.training.estimators.neighbours import KNeighborsClassifier, KNeighborsRegressor
    from cloakwork.training.estimators.networks import MLPClassifier, MLPRegressor

_MODULES: Final[dict[str, tuple[str, ...]]] = {
    "bayes": (
        "BernoulliNB",
        "GaussianNB",
        "MultinomialNB",
    ),
    "boosting": (
        "LGBMClassifier",
        "LGBMRegressor",
        "XGBClassifier",
        "XGBRegressor",
    ),
    "clusters": ("KMeans",),
    "forests": (
        "AdaBoostClassifier",
        "BaggingClassifier",
        "BaggingRegressor",
        "DecisionTreeClassifier",
        "DecisionTreeRegressor",
        "ExtraTreesClassifier",
        "ExtraTreesRegressor",
        "GradientBoostingClassifier",
        "GradientBoostingRegressor",
        "HistGradientBoostingClassifier",
        "HistGradientBoostingRegressor",
        "IsolationForest",
        "RandomForestClassifier",
        "RandomForestRegressor",
    ),
    "linear": (
        "ElasticNet",
        "GammaRegressor",
        "Lasso",
        "LinearDiscriminantAnalysis",
        "LinearRegression",
        "LinearSVC",
        "LinearSVR",
        "LogisticRegression",
        "PoissonRegressor",
        "Ridge",
        "RidgeClassifier",
        "SGDClassifier",
        "SGDRegressor",
        "TweedieRegressor",
    ),
    "machines": (
        "NuSVC",
        "NuSVR",
        "SVC",
        "SVR",
    ),
    "neighbours": (
        "KNeighborsClassifier",
        "KNeighborsRegressor",
    ),
    "networks": (
        "MLPClassifier",
        "MLPRegressor",
    ),
}
_LIBRARIES: Final = {
    "sklearn": "sklearn",
    "xgboost": "boosting",
    "lightgbm": "boosting",
}  # and the extra that brings each

__all__ = [
    "SVC",
    "SVR",
    "AdaBoostClassifier",
    "BaggingClassifier",
    "BaggingRegressor",
    "BernoulliNB",
    "DecisionTreeClassifier",
    "DecisionTreeRegressor",
    "ElasticNet",
    "ExtraTreesClassifier",
    "ExtraTreesRegressor",
    "GammaRegressor",
    "GaussianNB",
    "GradientBoostingClassifier",
    "GradientBoostingRegressor",
    "HistGradientBoostingClassifier",
    "HistGradientBoostingRegressor",
    "IsolationForest",
    "KMeans",
    "KNeighborsClassifier",
    "KNeighborsRegressor",
    "LGBMClassifier",
    "LGBMRegressor",
    "Lasso",
    "LinearDiscriminantAnalysis",
    "LinearRegression",
    "LinearSVC",
    "LinearSVR",
    "LogisticRegression",
    "MLPClassifier",
    "MLPRegressor",
    "MultinomialNB",
    "NuSVC",
    "NuSVR",
    "PoissonRegressor",
    "RandomForestClassifier",
    "RandomForestRegressor",
    "Ridge",
    "RidgeClassifier",
    "SGDClassifier",
    "SGDRegressor",
    "TweedieRegressor",
    "XGBClassifier",
    "XGBRegressor",
]


def __getattr__(name: str) -> Any:
    for module, classes in _MODULES.items():
        if name in classes:
            try:
                return getattr(import_module(f"cloakwork.training.estimators.{module}"), name)
            except ModuleNotFoundError as error:
                if error.name not in _LIBRARIES:
                    raise
                raise CompileError(
                    f"{name}: {error.name} is not installed; {how_to_install(_LIBRARIES[error.name])}"
                ) from error
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
