"""Classifiers whose scores are linear or quadratic in the features: naive Bayes, quadratic discriminants. Squares are the client's."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from cloakwork.models.client_steps import Binarise, InputStep, Polynomials, Standardise
from cloakwork.models.tabular.linear_model import LinearModel
from cloakwork.training.importers.combining import Part
from cloakwork.training.importers.nodes import unsupported_option

Reals = NDArray[np.float64]

CLASSIFIERS: Final = ("BernoulliNB", "ComplementNB", "GaussianNB", "MultinomialNB", "QuadraticDiscriminantAnalysis")


def bayes(estimator: Any, name: str) -> Part:
    if name == "GaussianNB":
        variance = np.asarray(estimator.var_, dtype=np.float64)
        precision = np.stack([np.diag(1 / row) for row in variance])
        return _quadratic(estimator, estimator.theta_, precision, np.log(variance).sum(axis=1), estimator.class_prior_)
    if name == "QuadraticDiscriminantAnalysis":
        if not hasattr(estimator, "rotations_"):
            raise unsupported_option(estimator, "solver", estimator.solver, "use 'svd'")
        pairs = list(zip(estimator.rotations_, estimator.scalings_, strict=True))
        precision = np.stack([rotation @ np.diag(1 / scale) @ rotation.T for rotation, scale in pairs])
        logarithm = np.array([np.log(scale).sum() for _, scale in pairs])
        return _quadratic(estimator, estimator.means_, precision, logarithm, estimator.priors_)
    weights = np.asarray(estimator.feature_log_prob_, dtype=np.float64)
    prior = np.asarray(estimator.class_log_prior_, dtype=np.float64)
    if name == "BernoulliNB":
        absent = np.log1p(-np.exp(weights))
        threshold = estimator.binarize
        steps = () if threshold is None else (Binarise(np.full(weights.shape[1], float(threshold))),)
        return Part(_classifier(weights - absent, prior + absent.sum(axis=1), estimator.classes_), steps)
    if name == "ComplementNB" and len(estimator.classes_) > 1:
        prior = np.zeros(len(weights))
    return Part(_classifier(weights, prior, estimator.classes_))


def _quadratic(estimator: Any, mean: Any, precision: Reals, log_determinant: Reals, prior: Any) -> Part:
    """log prior - (log determinant + (x - m) P (x - m)) / 2 for every class, on the centred and scaled features and their products.

    Args:
        mean [classes, features], precision [classes, features, features] P, log_determinant [classes] of its inverse.
    """
    mean = np.asarray(mean, dtype=np.float64)
    diagonal = np.einsum("kii->ki", precision)
    centre = mean.mean(axis=0)
    spread = np.sqrt((1 / diagonal).mean(axis=0) + mean.var(axis=0))
    features = mean.shape[1]
    used = np.abs(precision).max(axis=0) > 0
    pairs = [(i, j) for i in range(features) for j in range(i, features) if used[i, j]]
    unit = np.eye(features, dtype=np.int64)
    powers = np.concatenate([unit, np.stack([unit[i] + unit[j] for i, j in pairs])])
    # With x = c + s z and d = c - m: s z P s z + 2 s z P d + d P d.
    distance = centre - mean
    linear = -np.einsum("kij,kj->ki", precision, distance) * spread
    products = np.stack(
        [-(0.5 if i == j else 1.0) * precision[:, i, j] * spread[i] * spread[j] for i, j in pairs], axis=1
    )
    constant = np.log(np.asarray(prior, dtype=np.float64)) - 0.5 * (
        log_determinant + np.einsum("ki,kij,kj->k", distance, precision, distance)
    )
    steps: tuple[InputStep, ...] = (Standardise(centre, 1 / spread), Polynomials(powers))
    return Part(_classifier(np.concatenate([linear, products], axis=1), constant, estimator.classes_), steps)


def _classifier(weights: Reals, constant: Reals, labels: Any) -> LinearModel:
    """Softmax of joint log likelihoods, which only their differences tell: as small as they can be."""
    if len(labels) == 2:
        return LinearModel(weights[1:] - weights[:1], constant[1:] - constant[:1], "sigmoid", labels=labels)
    return LinearModel(weights - weights.mean(axis=0), constant - constant.mean(), "softmax", labels=labels)
