"""scikit-learn, XGBoost and LightGBM estimators that also score encrypted samples: the same names, with `compile` and `predict(.., fhe=..)`.

A library is imported when one of its classes is asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from cloakwork.fhe_core.errors import how_to_install
from cloakwork.models.errors import CompileError

if TYPE_CHECKING:
    from cloakwork.training.estimators.boosting import LGBMClassifier, LGBMRegressor, XGBClassifier, XGBRegressor
    from cloakwork.training.estimators.clusters import KMeans
    from cloakwork.training.estimators.forests import (
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
        LinearRegression,
        LinearSVC,
        LinearSVR,
        LogisticRegression,
        PoissonRegressor,
        Ridge,
        SGDClassifier,
        SGDRegressor,
        TweedieRegressor,
    )
    from cloakwork.training.estimators.networks import MLPClassifier, MLPRegressor

_MODULES: Final[dict[str, tuple[str, ...]]] = {
    "boosting": (
        "LGBMClassifier",
        "LGBMRegressor",
        "XGBClassifier",
        "XGBRegressor",
    ),
    "clusters": ("KMeans",),
    "forests": (
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
        "LinearRegression",
        "LinearSVC",
        "LinearSVR",
        "LogisticRegression",
        "PoissonRegressor",
        "Ridge",
        "SGDClassifier",
        "SGDRegressor",
        "TweedieRegressor",
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
    "DecisionTreeClassifier",
    "DecisionTreeRegressor",
    "ElasticNet",
    "ExtraTreesClassifier",
    "ExtraTreesRegressor",
    "GammaRegressor",
    "GradientBoostingClassifier",
    "GradientBoostingRegressor",
    "HistGradientBoostingClassifier",
    "HistGradientBoostingRegressor",
    "IsolationForest",
    "KMeans",
    "LGBMClassifier",
    "LGBMRegressor",
    "Lasso",
    "LinearRegression",
    "LinearSVC",
    "LinearSVR",
    "LogisticRegression",
    "MLPClassifier",
    "MLPRegressor",
    "PoissonRegressor",
    "RandomForestClassifier",
    "RandomForestRegressor",
    "Ridge",
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
                return getattr(import_module(f"{__name__}.{module}"), name)
            except ModuleNotFoundError as error:
                if error.name not in _LIBRARIES:
                    raise
                raise CompileError(
                    f"{name}: {error.name} is not installed; {how_to_install(_LIBRARIES[error.name])}"
                ) from error
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
