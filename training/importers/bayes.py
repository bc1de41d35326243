"""Classifiers whose scores are linear or quadratic in the features: naive Bayes, quadratic discriminants. Squares are the client's."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from cloakwork.models.arrays import Reals
from cloakwork.models.client_steps import Binarise, InputStep, Polynomials, Project, Standardise
from cloakwork.models.linear.linear_model import LinearModel
from cloakwork.training.importers.combining import ImportedModel
from cloakwork.training.importers.nodes import unsupported_option

CLASSIFIERS: Final = ("BernoulliNB", "ComplementNB", "GaussianNB", "MultinomialNB", "QuadraticDiscriminantAnalysis")


def bayes(estimator: Any, name: str) -> ImportedModel:
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
        return ImportedModel(_classifier(weights - absent, prior + absent.sum(axis=1), estimator.classes_), steps)
    if name == "ComplementNB" and len(estimator.classes_) > 1:
        prior = np.zeros(len(weights))
    return ImportedModel(_classifier(weights, prior, estimator.classes_))


def _quadratic(estimator: Any, mean: Any, precision: Reals, log_determinant: Reals, prior: Any) -> ImportedModel:
    """Returns log prior - (log determinant + (x - m) P (x - m)) / 2 for every class, on z with x = c + B z and the products of its numbers.

    z are the features, centred and scaled, or turned too where P is not diagonal, so that they are of one size and say different things:
    that leaves the quantised sums the least to cancel.

    Args:
        mean [classes, features], precision [classes, features, features] P, log_determinant [classes] of its inverse.
    """
    mean = np.asarray(mean, dtype=np.float64)
    centre, features = mean.mean(axis=0), mean.shape[1]
    turned = bool(np.abs(precision * (1 - np.eye(features))).max() > 0)
    first, basis = _turned(precision, mean, centre) if turned else _scaled(precision, mean, centre)
    pairs = [(i, j) for i in range(features) for j in range(i, features) if turned or i == j]
    unit = np.eye(features, dtype=np.int64)
    powers = np.concatenate([unit, np.stack([unit[i] + unit[j] for i, j in pairs])])
    # With d = c - m: B z P B z + 2 B z P d + d P d.
    distance = centre - mean
    inner = basis.T @ precision @ basis
    linear = -np.einsum("kij,kj->ki", precision, distance) @ basis
    products = np.stack([-(0.5 if i == j else 1.0) * inner[:, i, j] for i, j in pairs], axis=1)
    constant = np.log(np.asarray(prior, dtype=np.float64)) - 0.5 * (
        log_determinant + np.einsum("ki,kij,kj->k", distance, precision, distance)
    )
    model = _classifier(np.concatenate([linear, products], axis=1), constant, estimator.classes_)
    return ImportedModel(model, (first, Polynomials(powers)))


def _scaled(precision: Reals, mean: Reals, centre: Reals) -> tuple[InputStep, Reals]:
    """Returns the step from x to z, and B: each feature by its deviation over all classes."""
    spread = np.sqrt((1 / np.einsum("kii->ki", precision)).mean(axis=0) + mean.var(axis=0))
    return Standardise(centre, 1 / spread), np.diag(spread)


def _turned(precision: Reals, mean: Reals, centre: Reals) -> tuple[InputStep, Reals]:
    """Returns the same for principal axes of the covariance over all classes."""
    covariance = np.linalg.pinv(precision, hermitian=True).mean(axis=0) + np.cov(mean.T, bias=True)
    variance, axes = np.linalg.eigh(covariance)
    spread = np.sqrt(np.maximum(variance, np.finfo(np.float64).eps * variance.max()))
    return Project(centre, axes / spread), axes * spread


def _classifier(weights: Reals, constant: Reals, labels: Any) -> LinearModel:
    """Softmax of joint log likelihoods, which only their differences tell: as small as they can be."""
    if len(labels) == 2:
        return LinearModel(weights[1:] - weights[:1], constant[1:] - constant[:1], "sigmoid", labels=labels)
    return LinearModel(weights - weights.mean(axis=0), constant - constant.mean(), "softmax", labels=labels)
