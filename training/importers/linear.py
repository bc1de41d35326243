"""Linear estimators, and the nearest centre as one: coefficients [outputs, features], intercept [outputs] and what follows the sum."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from cloakwork.models.arrays import Reals
from cloakwork.training.importers.nodes import unsupported_option

REGRESSORS: Final = (
    "LinearRegression", "Lasso", "LassoCV", "LassoLars", "LassoLarsCV", "LassoLarsIC", "Lars", "LarsCV", "Ridge", "RidgeCV", "ElasticNet",
    "ElasticNetCV", "LinearSVR", "SGDRegressor", "BayesianRidge", "ARDRegression", "HuberRegressor", "MultiTaskElasticNet", "MultiTaskLasso",
    "OrthogonalMatchingPursuit", "PassiveAggressiveRegressor", "QuantileRegressor", "TheilSenRegressor",
)  # fmt: skip
GENERALISED: Final = ("PoissonRegressor", "GammaRegressor", "TweedieRegressor")
CLASSIFIERS: Final = (
    "LogisticRegression", "LogisticRegressionCV", "LinearSVC", "LinearDiscriminantAnalysis", "SGDClassifier", "Perceptron",
    "PassiveAggressiveClassifier", "RidgeClassifier", "RidgeClassifierCV",
)  # fmt: skip
# Loss of SGDClassifier -> how decision values become probabilities; the others have none.
_LOSS_TRANSFORMS: Final = {"log_loss": "sigmoid", "modified_huber": "modified_huber"}


def linear_coefficients(estimator: Any) -> tuple[Reals, Reals]:
    """Returns [outputs, features] and [outputs]; one output for two classes."""
    coefficients = np.atleast_2d(np.asarray(estimator.coef_, dtype=np.float64))
    intercept = np.broadcast_to(np.asarray(estimator.intercept_, dtype=np.float64).reshape(-1), len(coefficients))
    return coefficients, intercept


def is_multilabel(estimator: Any) -> bool:
    """Whether several labels may hold together."""
    binarizer = getattr(estimator, "_label_binarizer", None)
    return binarizer is not None and str(binarizer.y_type_).startswith("multilabel")


def linear_transform(estimator: Any, name: str) -> str:
    """Returns the transform from sums to the prediction (regressors) or the probabilities (classifiers): none, exp, sigmoid, softmax, .."""
    if name in GENERALISED:
        return _link(estimator, name)
    if name == "LinearDiscriminantAnalysis":
        return "sigmoid" if len(estimator.classes_) == 2 else "softmax"
    if name in ("LogisticRegression", "LogisticRegressionCV"):
        # Older versions offer one-against-rest explicitly or by the solver liblinear.
        ovr = len(estimator.coef_) > 1 and (
            getattr(estimator, "multi_class", "auto") == "ovr" or estimator.solver == "liblinear"
        )
        return "sigmoid" if len(estimator.coef_) == 1 or ovr else "softmax"
    if name == "SGDClassifier":
        return _LOSS_TRANSFORMS.get(estimator.loss, "decision")
    return "decision" if name in CLASSIFIERS else "none"


def _link(estimator: Any, name: str) -> str:
    """Poisson and gamma regression have the logarithm as link; Tweedie's depends on its options."""
    if name != "TweedieRegressor":
        return "exp"
    if estimator.link == "auto":
        return "none" if estimator.power <= 0 else "exp"
    links = {"log": "exp", "identity": "none"}
    if estimator.link not in links:
        raise unsupported_option(estimator, "link", estimator.link, "expected 'auto', 'log' or 'identity'")
    return links[estimator.link]


def nearest_centre(estimator: Any) -> tuple[Reals, Reals]:
    """KMeans: |x - c|^2 less |x|^2, negated, so that the largest of 2 c.x - |c|^2 is the nearest centre."""
    centres = np.asarray(estimator.cluster_centers_, dtype=np.float64)
    return 2 * centres, -np.square(centres).sum(axis=1)
